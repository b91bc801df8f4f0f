//! Exports against flashinfer-bench's own pydantic models, in a Python environment of their own below `target/`.
//!
//! Our exporter and its tests rest on our reading of that format; the package is the authority on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fa4_gate::error::exit;
use sha2::{Digest, Sha256};

use super::{export, folders};
use crate::error::BenchError;
use crate::folder;
use crate::paths;
use crate::worker::workspace;

/// Versions that are installed.
const LOCK: &str = include_str!("../../py/flashinfer-bench.txt");
/// What is run there.
const SCRIPT: &str = include_str!("../../py/validate_flashinfer.py");
/// Written last: an environment without it was not finished.
const FINISHED: &str = "finished";

/// Validates `given`, or every run below the workspace's `results/`; each is a result folder, which is exported first, or
/// an export. Answers with the exit code.
///
/// # Errors
/// No Python, no package, or what is wrong with a folder.
pub fn validate(given: &[PathBuf], python: &Path) -> Result<u8, BenchError> {
    let all = match given {
        [] => folders(&workspace().join("results"))?,
        given => given.to_vec(),
    };
    let interpreter = environment(python)?;
    let scratch = tempfile::tempdir().map_err(BenchError::file("a folder for temporary files"))?;
    let script = scratch.path().join("validate.py");
    std::fs::write(&script, SCRIPT).map_err(BenchError::file(&script))?;
    let mut code = exit::OK;
    for (at, given) in all.iter().enumerate() {
        let is_run = given.join(folder::ENV).is_file();
        let export = if is_run { scratch.path().join(at.to_string()) } else { given.clone() };
        if is_run {
            export::flashinfer(given, &export)?;
        } else if !given.join("definitions").is_dir() {
            let what = "is neither a result folder (env.json) nor an export (definitions/)";
            return Err(BenchError::folder(given, what));
        }
        let output = Command::new(&interpreter).arg("-B").arg(&script).arg(&export).output();
        let output = output.map_err(|e| failed(format!("cannot start {}: {e}", interpreter.display())))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let name = paths::shown(given, &workspace());
        let name = name.display();
        match output.status.code() {
            Some(0) => println!("valid   {name}: {}", said.trim()),
            Some(1) => {
                said.lines().for_each(|line| println!("INVALID {name}: {line}"));
                code = exit::WRONG;
            }
            _ => {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(failed(format!("the validator ended badly: {}{}", said.trim(), errors.trim())));
            }
        }
    }
    Ok(code)
}

fn failed(what: String) -> BenchError {
    BenchError::Python { what }
}

/// The interpreter of an environment with the pinned packages; made at the first call.
fn environment(python: &Path) -> Result<PathBuf, BenchError> {
    let hash: String = Sha256::digest(LOCK).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let home = workspace().join("target").join(format!("flashinfer-bench-{hash}"));
    let interpreter = home.join("bin/python");
    if home.join(FINISHED).is_file() {
        return Ok(interpreter);
    }
    eprintln!("installing flashinfer-bench's models into {}", home.display());
    let lock = home.join("lock.txt");
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&home))?;
    std::fs::write(&lock, LOCK).map_err(BenchError::file(&lock))?;
    // Without dependencies: the list is complete for the models, and the package's others are torch and compilers.
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
    run(pip.arg(&lock))?;
    let finished = home.join(FINISHED);
    std::fs::write(&finished, "").map_err(BenchError::file(&finished))?;
    Ok(interpreter)
}

fn run(command: &mut Command) -> Result<(), BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| {
        failed(format!("cannot start {program}: {e}; install Python 3.10 or newer with venv and pip"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(failed(format!(
        "{program} failed ({last}); it needs Python 3.10 or newer with venv, pip and an index"
    )))
}
