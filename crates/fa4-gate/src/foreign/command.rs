//! `fa4-gate foreign …`: flags, and what the tasks print alike.

use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use indicatif::ProgressBar;

use super::fa4;
use super::findings::{self, Class, Sorted, Triage};
use crate::cli::{self, Run};
use crate::error::{GateError, exit};
use crate::foreign_section::Section;
use crate::kernels::workspace;
use crate::rows::{Row, Status};
use crate::{gate, table};

/// Whose kernels.
#[derive(Subcommand, Debug)]
pub enum ForeignTask {
    /// Say which foreign kernels there are and what is prepared.
    List,
    /// Triton's kernels, which are committed.
    Triton(ForeignArgs),
    /// FlashAttention-4's forward kernels, compiled here from its package.
    Fa4 {
        /// What to run.
        #[command(flatten)]
        args: ForeignArgs,
        /// Install the package first where it is missing (about 5 GB in .toolchain-foreign/).
        #[arg(long)]
        setup: bool,
        /// Write foreign/fa4/evidence.json; takes the whole set under every schedule.
        #[arg(long, conflicts_with_all = ["filter", "schedule"])]
        evidence: bool,
        /// Break each kernel's synchronisation one instruction at a time and count what is noticed; the first schedule that
        /// notices ends a mutant. Takes minutes a kernel: narrow it by --filter.
        #[arg(long, conflicts_with = "evidence")]
        mutate: bool,
    },
}

/// What to run.
#[derive(Args, Debug, Clone)]
pub struct ForeignArgs {
    /// Only cases whose `kernel/case` matches.
    #[arg(long, value_name = "REGEX")]
    pub filter: Option<String>,
    /// Schedules of the emulator, separated by commas: eager, late-lifo, late-tma, random. Default: all.
    #[arg(long, value_name = "LIST")]
    pub schedule: Option<String>,
    /// Seed of the data and of the random schedule.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run the random schedule once for each seed from A to B−1.
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<String>,
    /// No progress; only the verdict.
    #[arg(short, long)]
    pub quiet: bool,
}

impl ForeignArgs {
    /// The runs that each case gets.
    pub fn runs(&self) -> Result<Vec<Run>, GateError> {
        cli::runs(self.schedule.as_deref(), self.seed, self.seeds.as_deref())
    }
}

/// Runs a task and answers with its exit code.
pub fn run(task: &ForeignTask, stop: &AtomicBool) -> Result<u8, GateError> {
    match task {
        ForeignTask::List => list(),
        ForeignTask::Triton(args) => triton(args, stop),
        &ForeignTask::Fa4 { ref args, setup, evidence, mutate } => {
            fa4::command::run(args, fa4::command::Task { setup, evidence, mutate }, stop)
        }
    }
}

fn list() -> Result<u8, GateError> {
    let triton = Section::open(None)?;
    println!("triton  {} cases of committed PTX (foreign/triton/)", triton.len());
    println!("fa4     {}", fa4::command::state(&workspace())?);
    Ok(exit::OK)
}

fn triton(args: &ForeignArgs, stop: &AtomicBool) -> Result<u8, GateError> {
    /// Progress counts runs.
    const COST: u64 = 1;
    let runs = args.runs()?;
    let triage = Triage::open(&workspace()).map_err(GateError::Findings)?;
    let section = Section::open(cli::filter(args.filter.as_deref())?.as_ref())?;
    if section.is_empty() {
        return Ok(nothing_matches());
    }
    let progress = progress(args, section.len() * runs.len());
    let (results, interrupted) = section.judge_and_remark(&runs, false, stop, &progress, COST);
    progress.finish_and_clear();
    let (rows, remarks): (Vec<Row>, Vec<_>) = results.into_iter().unzip();
    let sorted = triage.sort(remarks.iter().map(Vec::as_slice));
    Ok(verdict("triton", args, &rows, &triage, &sorted, interrupted))
}

/// Says that a filter left nothing.
pub fn nothing_matches() -> u8 {
    eprintln!(
        "error: nothing to judge: no case matches; `cargo xtask foreign list` and a run without a filter show them"
    );
    exit::USAGE
}

/// A bar over `runs` runs.
pub fn progress(args: &ForeignArgs, runs: usize) -> ProgressBar {
    let progress = gate::progress_bar(args.quiet);
    progress.set_length(runs as u64);
    progress
}

/// Prints what came of a task; its exit code: wrong where a number is, or a remark is unexplained.
pub fn verdict(
    task: &str,
    args: &ForeignArgs,
    rows: &[Row],
    triage: &Triage,
    sorted: &Sorted,
    interrupted: bool,
) -> u8 {
    if !args.quiet {
        println!("{}", table::verdicts(rows.iter()));
        println!("O and LSE: worst error over its bound; at most 1 passes.\n");
        print!("{}", explained(triage, sorted));
    }
    print!("{}", failures(task, rows));
    for (finding, runs) in &sorted.unexplained {
        println!("unexplained ({runs} runs): {finding}");
    }
    if interrupted {
        println!("interrupted: what had finished is above");
    }
    println!("{}; {} unexplained findings", table::summary(rows), sorted.unexplained.len());
    // A fault that the file explains is known; its row shows it.
    let wrong = rows.iter().any(|row| matches!(row.status, Status::Fail | Status::Timeout));
    match (wrong || !sorted.unexplained.is_empty(), interrupted) {
        (true, _) => exit::WRONG,
        (false, true) => exit::INTERRUPTED,
        (false, false) => exit::OK,
    }
}

/// What the emulator remarked and why that is no alarm, one line per entry and sentence.
fn explained(triage: &Triage, sorted: &Sorted) -> String {
    let mut text = String::new();
    for (number, entry) in triage.entries().enumerate() {
        let of_entry = sorted.explained.iter().filter(|((n, _), _)| *n == number);
        let (mut kernels, mut runs) = (std::collections::BTreeSet::new(), 0);
        for ((_, finding), count) in of_entry {
            kernels.insert(&finding.kernel);
            runs += count;
        }
        if kernels.is_empty() {
            continue;
        }
        let class = match entry.class {
            Class::Strict => "strict",
            Class::Upstream => "upstream",
            Class::Emulator => "emulator fault",
        };
        let n = kernels.len();
        let _ =
            writeln!(text, "{class}: {} on {n} kernels ({runs} in all): {}", entry.code, entry.why.trim());
    }
    if !text.is_empty() {
        let _ = writeln!(text, "({} explains each)\n", findings::FILE);
    }
    text
}

/// What went wrong, with the command that repeats it.
fn failures(task: &str, rows: &[Row]) -> String {
    /// So that the verdict stays readable.
    const IN_FULL: usize = 8;
    let mut text = String::new();
    let wrong: Vec<&Row> = rows.iter().filter(|row| row.status.is_wrong()).collect();
    for row in wrong.iter().take(IN_FULL) {
        let reason = row.reason.as_deref().unwrap_or("").replace('\n', "\n    ");
        let (name, schedule) = (format!("{}/{}", row.kernel, row.case), row.schedule.unwrap_or("eager"));
        let _ = writeln!(text, "{}: {name} [{schedule}, seed {}]\n    {reason}", row.status.name(), row.seed);
        let pattern = regex::escape(&name);
        let how = format!("--schedule {schedule} --seed {}", row.seed);
        let _ = writeln!(text, "    replay: cargo xtask foreign {task} --filter '^{pattern}$' {how}");
    }
    if wrong.len() > IN_FULL {
        let _ = writeln!(text, "… and {} more", wrong.len() - IN_FULL);
    }
    let unsupported: std::collections::BTreeMap<_, _> = rows
        .iter()
        .filter(|row| row.status == Status::Unsupported)
        .map(|row| ((&row.kernel, &row.case), row.reason.as_deref().unwrap_or("")))
        .collect();
    for ((kernel, case), reason) in unsupported {
        let _ = writeln!(text, "{kernel}/{case}: {reason}");
    }
    text
}
