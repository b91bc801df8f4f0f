//! `cargo xtask doctor`: what this machine has, what is missing, and the command that mends it.

use std::path::Path;
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::setup::{self, MEND_PIP, MEND_PYTHON, Paths, State};
use crate::spawn::{self, workspace};

/// One line of the report.
struct Finding {
    what: &'static str,
    status: Status,
}

enum Status {
    /// Found: what.
    Found(String),
    /// Not needed for the emulator: what is absent.
    Optional(String),
    /// Needed: what is missing, and what mends it.
    Missing(String, String),
}

/// The command.
pub fn run() -> Outcome {
    let mut findings = vec![
        finding("rust", rust()),
        finding("python3", python()),
        finding("pip", pip()),
        finding("CUDA compiler", toolchain()?),
    ];
    if matches!(findings.last(), Some(Finding { status: Status::Found(_), .. })) {
        findings.push(finding("compiling", compiling()));
    }
    findings.push(finding("driver", driver()));
    findings.push(finding("GPU", gpu()));
    let mut mends = Vec::new();
    for Finding { what, status } in findings {
        match status {
            Status::Found(text) => println!("  ok       {what:<14} {text}"),
            Status::Optional(text) => println!("  absent   {what:<14} {text}"),
            Status::Missing(text, mend) => {
                println!("  MISSING  {what:<14} {text}");
                mends.push(mend);
            }
        }
    }
    if mends.is_empty() {
        println!("\nReady: cargo xtask gate --smoke");
        return Ok(());
    }
    println!("\nTo mend:");
    for mend in &mends {
        println!("  {mend}");
    }
    Err(Failure::Environment(format!(
        "{} missing",
        if mends.len() == 1 { "one thing is" } else { "some things are" }
    )))
}

fn finding(what: &'static str, status: Status) -> Finding {
    Finding { what, status }
}

/// First line that a command prints, or `None` if it fails.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned())
}

fn rust() -> Status {
    match first_line(Command::new("rustc").arg("--version")) {
        Some(version) => Status::Found(version),
        // cargo runs this program, so Rust exists; rustc may be out of PATH.
        None => Status::Found("cargo works; rustc is not in PATH".into()),
    }
}

fn python() -> Status {
    match first_line(Command::new("python3").arg("--version")) {
        Some(version) => Status::Found(version),
        None => only_for_wheels("python3 is not found", MEND_PYTHON),
    }
}

fn pip() -> Status {
    match first_line(setup::pip().arg("--version")) {
        Some(version) => Status::Found(version.split(" from ").next().unwrap_or_default().to_owned()),
        None => only_for_wheels("python3 has no pip", MEND_PIP),
    }
}

/// Python only installs the pinned compiler: once that is there, or another one is named, nothing needs it.
fn only_for_wheels(what: &str, mend: &str) -> Status {
    match Paths::below(&workspace()).state() {
        Ok(State::Pinned | State::Installed(_)) => Status::Optional(format!("{what}; not needed any more")),
        _ => Status::Missing(what.into(), mend.into()),
    }
}

fn toolchain() -> Result<Status, Failure> {
    let paths = Paths::below(&workspace());
    let mend = "cargo xtask setup".to_owned();
    Ok(match paths.state()? {
        State::Pinned => Status::Found(format!("as toolchain.lock, in {}", paths.folder().display())),
        State::Installed(root) if root.is_dir() => {
            Status::Found(format!("installed CUDA, {}", root.display()))
        }
        State::Installed(root) => {
            Status::Missing(format!("the CUDA named at set-up, {}, is gone", root.display()), mend)
        }
        State::Stale => Status::Missing("not the one that toolchain.lock names".into(), mend),
        State::Missing => Status::Missing("not installed".into(), mend),
    })
}

/// Compiles a one-line kernel for every architecture with the compiler that was found.
fn compiling() -> Status {
    let output = spawn::cargo()
        .args(["run", "--release", "--quiet", "-p", "fa4-kernels", "--bin", "fa4-build", "--", "check"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let version = text.split(" in ").next().unwrap_or_default().to_owned();
            let archs: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("compiles for ")).collect();
            Status::Found(format!("{version}: {}", archs.join(", ")))
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Status::Missing(text.trim().to_owned(), "cargo xtask setup".into())
        }
        Err(error) => Status::Missing(format!("cannot run cargo: {error}"), "install Rust".into()),
    }
}

fn driver() -> Status {
    const FOLDERS: [&str; 7] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/lib/wsl/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
    ];
    let library =
        FOLDERS.iter().map(|folder| Path::new(folder).join("libcuda.so.1")).find(|path| path.exists());
    match library {
        Some(path) => Status::Found(path.display().to_string()),
        None => Status::Optional("no libcuda.so.1; only `--device cuda` needs it".into()),
    }
}

fn gpu() -> Status {
    let query = ["--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"];
    match Command::new("nvidia-smi").args(query).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let gpus: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            Status::Found(gpus.join("; "))
        }
        _ => Status::Optional("none; kernels run in the emulator".into()),
    }
}
