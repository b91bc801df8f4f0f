//! `cargo xtask bless`: golden files rewritten from what the code does now.
//!
//! The tests themselves write the files, when `PTX_EMU_BLESS` is set. Recorded silicon answers are no goldens: no
//! test may write them, and this command fails if one did.

use std::process::Command;

use crate::cli;
use crate::outcome::{Failure, Outcome};
use crate::setup;
use crate::spawn::{cargo, status, workspace};

/// The variable that tells golden tests to write instead of compare.
const BLESS: &str = "PTX_EMU_BLESS";

/// Documents with parts that a test generates.
const DOCUMENTS: &str = "docs/kernels";

/// The command.
pub fn run(args: &cli::Bless) -> Outcome {
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false") {
        return Err(Failure::Usage(
            "bless is refused under CI: goldens are rewritten where somebody reads them".into(),
        ));
    }
    setup::ensure()?;
    let mut tests = cargo();
    tests.args(["test", "--release", "--quiet", "--workspace", "--tests", "--no-fail-fast"]).env(BLESS, "1");
    if let Some(filter) = &args.filter {
        tests.arg("--").arg(filter);
    }
    let tested = status(&mut tests)?;

    let changed = changed_goldens()?;
    if let Some(path) = changed.iter().find(|path| path.contains("/silicon/")) {
        let message =
            format!("{path} was rewritten: recorded silicon is truth, not output; restore it with git");
        return Err(Failure::Judged(message));
    }
    if changed.is_empty() {
        println!("no golden file differs from the last commit");
    } else {
        status(
            Command::new("git").args(["--no-pager", "diff", "--"]).args(&changed).current_dir(workspace()),
        )?;
        println!("\nrewritten, or changed before; read every line of the difference before you commit:");
        for path in &changed {
            println!("  {path}");
        }
    }
    match tested.success() {
        true => Ok(()),
        false => Err(Failure::Judged("some tests fail for another reason than their golden files".into())),
    }
}

/// Files in test folders, other than Rust, and documents with generated parts that differ from the last commit or are new.
fn changed_goldens() -> Result<Vec<String>, Failure> {
    let output = Command::new("git")
        .args(["status", "--porcelain", "--untracked-files=all", "--", "crates", DOCUMENTS])
        .current_dir(workspace())
        .output()
        .map_err(|error| Failure::Environment(format!("cannot run git: {error}")))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_golden =
        |path: &&str| path.starts_with(DOCUMENTS) || path.contains("/tests/") && !path.ends_with(".rs");
    Ok(listed.lines().filter_map(|line| line.get(3..)).filter(is_golden).map(str::to_owned).collect())
}
