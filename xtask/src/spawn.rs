//! Running the workspace's other programs. They are built when needed, in the one profile that everything uses.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::setup;

/// The workspace's root folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// `cargo` as it was called, so that a `+toolchain` is kept.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// `cargo xtask build`.
pub fn build(args: &[OsString]) -> Outcome {
    setup::ensure()?;
    run("fa4-kernels", "fa4-build", args)
}

/// `cargo xtask gate`.
pub fn gate(args: &[OsString]) -> Outcome {
    setup::ensure()?;
    run("fa4-gate", "fa4-gate", args)
}

/// A task of `fa4-gate` beside the gate.
pub fn gate_task(task: &str, args: &[OsString]) -> Outcome {
    setup::ensure()?;
    run("fa4-gate", "fa4-gate", with_task(task, args))
}

/// A task of `fa4-bench`.
pub fn bench_task(task: &str, args: &[OsString]) -> Outcome {
    setup::ensure()?;
    run("fa4-bench", "fa4-bench", with_task(task, args))
}

fn with_task(task: &str, args: &[OsString]) -> Vec<OsString> {
    std::iter::once(task.into()).chain(args.iter().cloned()).collect()
}

/// `cargo xtask emu`.
pub fn emulator(args: &[OsString]) -> Outcome {
    run("ptx-emu", "ptx-emu", args)
}

/// Builds and runs a program of the workspace in the caller's folder, so that relative paths mean what they say.
pub fn run(package: &str, program: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
    let mut command = cargo();
    command.current_dir(std::env::current_dir().unwrap_or_else(|_| workspace()));
    command.args(["run", "--release", "--quiet", "--manifest-path"]);
    command.arg(workspace().join("Cargo.toml"));
    command.args(["-p", package, "--bin", program, "--"]).args(args);
    Failure::of(status(&mut command)?)
}

/// Runs a command to its end. An interrupt of the terminal reaches the command, too, which ends in its own way and with its
/// own exit code; this program waits for that.
pub fn status(command: &mut Command) -> Result<std::process::ExitStatus, Failure> {
    // Fails only where a handler is set already: by an earlier command of this run.
    let _ = ctrlc::set_handler(|| {});
    command.status().map_err(|error| {
        Failure::Environment(format!("cannot run {}: {error}", command.get_program().to_string_lossy()))
    })
}
