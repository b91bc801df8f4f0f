//! `cargo xtask test`: everything that CI checks, in one profile so that a fresh clone compiles once.
//!
//! All steps run even when one fails, so that one run tells everything. The last line counts single tests plus one
//! for each other step, in the form that test summaries commonly have.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cli;
use crate::outcome::{Failure, Outcome};
use crate::setup;
use crate::spawn::{cargo, workspace};
use crate::tidy;

/// A step's name and what it runs.
struct Step {
    name: &'static str,
    work: Work,
}

enum Work {
    /// A command that is right if it exits with 0.
    Check(fn() -> Command),
    /// `cargo test`, whose tests are counted one by one.
    Tests(fn() -> Command),
    /// The structure rules, in this process.
    Tidy,
}

/// In the order of how soon they tell something.
const STEPS: [Step; 7] = [
    Step { name: "fmt", work: Work::Check(|| with(&["fmt", "--all", "--check"])) },
    Step { name: "tidy", work: Work::Tidy },
    Step { name: "clippy", work: Work::Check(clippy) },
    // Unit tests, goldens, litmus files, recorded silicon.
    Step {
        name: "tests",
        work: Work::Tests(|| with(&["test", "--release", "--workspace", "--no-fail-fast"])),
    },
    // The adapters' protocol; python3 is needed anyway, their libraries are not.
    Step { name: "adapters", work: Work::Check(adapters) },
    Step { name: "twins", work: Work::Check(twins) },
    Step { name: "gate --smoke", work: Work::Check(gate_smoke) },
];

fn with(args: &[&str]) -> Command {
    let mut command = cargo();
    command.args(args);
    command
}

fn clippy() -> Command {
    with(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn adapters() -> Command {
    let mut command = Command::new("python3");
    command.args(["-B", "crates/fa4-refs/py/test_protocol.py"]).current_dir(workspace());
    command
}

/// Kernels broken on purpose: every one must be caught.
fn twins() -> Command {
    with(&["run", "--release", "--quiet", "-p", "fa4-gate", "--bin", "fa4-gate", "--", "twins"])
}

fn gate_smoke() -> Command {
    with(&["run", "--release", "--quiet", "-p", "fa4-gate", "--bin", "fa4-gate", "--", "--smoke"])
}

/// Tests that passed, failed and were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    /// One check that passed or not.
    fn one(passed: bool) -> Self {
        Self { passed: usize::from(passed), failed: usize::from(!passed), skipped: 0 }
    }

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The command.
pub fn run(args: &cli::Test) -> Outcome {
    let only = args.only.as_deref().unwrap_or_default();
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.name.contains(only)).collect();
    if steps.is_empty() {
        let names = STEPS.map(|step| step.name).join(", ");
        return Err(Failure::Usage(format!("no step's name contains `{only}`; there are: {names}")));
    }
    setup::ensure()?;
    let mut summary = Vec::new();
    let mut total = Tally::default();
    for step in steps {
        eprintln!("\n=== {}", step.name);
        let started = Instant::now();
        let tally = perform(step)?;
        total.add(tally);
        summary.push((step.name, tally, started.elapsed()));
    }
    println!("\n{:<14} {:>7} {:>7} {:>9}", "step", "passed", "failed", "seconds");
    for (name, tally, took) in summary {
        println!("{name:<14} {:>7} {:>7} {:>9.1}", tally.passed, tally.failed, Duration::as_secs_f64(&took));
    }
    println!();
    match total.skipped {
        0 => println!("{} passed, {} failed", total.passed, total.failed),
        skipped => println!("{} passed, {} failed, {skipped} skipped", total.passed, total.failed),
    }
    match total.failed {
        0 => Ok(()),
        _ => Err(Failure::Child(1)),
    }
}

fn perform(step: &Step) -> Result<Tally, Failure> {
    match &step.work {
        Work::Check(command) => Ok(Tally::one(crate::spawn::status(&mut command())?.success())),
        Work::Tests(command) => tests(command()),
        Work::Tidy => match tidy::run() {
            Ok(()) => Ok(Tally::one(true)),
            Err(Failure::Judged(message)) => {
                eprintln!("error: {message}");
                Ok(Tally::one(false))
            }
            Err(other) => Err(other),
        },
    }
}

/// Runs `cargo test`, shows what it prints and counts its result lines.
fn tests(mut command: Command) -> Result<Tally, Failure> {
    let failed = |error| Failure::Environment(format!("cannot run cargo: {error}"));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut tally = Tally::default();
    let output = child.stdout.take().expect("standard output is piped");
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        println!("{line}");
        if let Some(counted) = result_line(&line) {
            tally.add(counted);
        }
    }
    let succeeded = child.wait().map_err(failed)?.success();
    // Something broke that no test counts: it did not compile, or a test program died.
    if !succeeded && tally.failed == 0 || tally == Tally::default() {
        tally.failed += 1;
    }
    Ok(tally)
}

/// `test result: ok. 12 passed; 1 failed; 2 ignored; …`
fn result_line(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |label: &str| {
        counts
            .split(';')
            .find_map(|part| part.trim().strip_suffix(label)?.trim().parse::<usize>().ok())
            .unwrap_or(0)
    };
    Some(Tally { passed: count("passed"), failed: count("failed"), skipped: count("ignored") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(result_line(line), Some(Tally { passed: 12, failed: 1, skipped: 2 }));
        assert_eq!(result_line("test a ... ok"), None);
    }
}
