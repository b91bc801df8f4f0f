//! `fitness`: what one kernel file is worth, as one JSON line; the objective of a search.
//!
//! First the file is judged, in the emulator or on a GPU; whatever is not right, hangs or does not compile is worth 0. Then
//! it is timed against its parent (another file, or the kernels of this checkout) and the references. Everything that runs
//! the file is a process of its own with a deadline. Without a GPU nothing is said about speed, unless a prediction is asked
//! for, and that says that it is one.
//!
//! - [`score`]: measured rows → figures; [`child`]: this program again, with a deadline.

mod child;
pub mod score;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fa4_gate::error::exit;
use fa4_gate::kernels::{Candidate, Kernel, compile, takes_candidates};
use fa4_gate::pipeline;
use fa4_host::emu::EmuModule;
use fa4_kernels::compile::Builder;
use fa4_kernels::manifest::{Dtype, Mask, Row};
use serde::Serialize;
use serde_json::Value;

use crate::cli::{MOST_SECONDS, check_references, names, ordinals};
use crate::error::BenchError;
use crate::folder;
use crate::gpu;
use crate::plan::SetName;
use crate::record::RunRow;
use crate::stats::geomean;
use crate::worker::workspace;
use child::{Ended, Run};

/// Version of the JSON line.
pub const SCHEMA: u32 = 1;

/// `fitness`.
#[derive(Args, Debug, Clone)]
pub struct FitnessArgs {
    /// The kernel file.
    pub file: PathBuf,
    /// What it is compared with; default: the kernels of this checkout.
    #[arg(long, value_name = "FILE.cu")]
    pub parent: Option<PathBuf>,
    /// Rows of a committed set.
    #[arg(long, value_enum, default_value = "claim", conflicts_with = "configs")]
    pub set: SetName,
    /// Rows of a file in the form of sets/README.md.
    #[arg(long, value_name = "FILE.csv")]
    pub configs: Option<PathBuf>,
    /// Only rows whose id matches.
    #[arg(long, value_name = "REGEX")]
    pub filter: Option<String>,
    /// References, separated by commas; default: all that are here, `none`: none.
    #[arg(long, value_name = "LIST")]
    pub refs: Option<String>,
    /// Python with the references' packages.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub refs_python: PathBuf,
    /// GPUs by number, separated by commas; default: all that our kernels run on.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<String>,
    /// Seconds of timing a row may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub budget: f64,
    /// Seconds after which a row counts as hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub timeout: f64,
    /// Seconds after which judging or one round of timing is ended and counts as hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    pub limit: f64,
    /// How often file and parent are timed in turn.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub rounds: u32,
    /// Without a GPU: predict the ratio to the parent by the emulator's timed schedule.
    #[arg(long)]
    pub predict: bool,
    /// For tests: a mock, as for `bench`.
    #[arg(long, value_name = "SPEC", hide = true)]
    pub mock: Option<String>,
}

/// How a file did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Right, and timed or predicted.
    Pass,
    /// Right; there is no GPU to time it on.
    Unmeasured,
    /// Not right.
    Wrong,
    /// Did not end in time.
    Hung,
    /// Not a kernel.
    Uncompilable,
    /// Does not serve a row that its parent serves.
    Narrower,
}

/// The JSON line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fitness {
    /// [`SCHEMA`].
    pub schema: u32,
    /// 0 unless right; else the geometric mean of the parent's times over the file's. Null where speed is unknown.
    pub fitness: Option<f64>,
    /// How it did.
    pub status: Status,
    /// The same mean, by itself.
    pub against_parent: Option<f64>,
    /// Geometric mean, over rows, of the fastest right reference's time over the file's.
    pub against_reference: Option<f64>,
    /// Rows that the means are taken over.
    pub rows: usize,
    /// The row with the least ratio to the parent, and that ratio.
    pub worst: Option<(String, f64)>,
    /// Whether the figures are predicted and not measured.
    pub predicted: bool,
    /// What they rest on.
    pub evidence: String,
    /// Why it is worth 0, or why there is no figure.
    pub reason: Option<String>,
    /// Wall time.
    pub seconds: f64,
}

impl Fitness {
    /// Worth nothing.
    pub fn nothing(status: Status, evidence: &str, reason: impl Into<String>) -> Self {
        Fitness {
            schema: SCHEMA,
            fitness: Some(0.0),
            status,
            against_parent: None,
            against_reference: None,
            rows: 0,
            worst: None,
            predicted: false,
            evidence: evidence.into(),
            reason: Some(reason.into()),
            seconds: 0.0,
        }
    }

    fn exit_code(&self) -> u8 {
        match self.status {
            Status::Pass => exit::OK,
            Status::Unmeasured => exit::ENVIRONMENT,
            _ => exit::WRONG,
        }
    }
}

/// Where the file is judged.
const EMULATOR: &str = "emulator";

/// Runs the task, prints the line and answers with the exit code.
///
/// # Errors
/// Where the file could not be judged: flags, toolchain, no such file.
pub fn fitness(args: &FitnessArgs) -> Result<u8, BenchError> {
    let started = Instant::now();
    let mut found = assess(args)?;
    found.seconds = started.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&found).expect("plain data has a JSON form"));
    if found.status == Status::Unmeasured {
        eprintln!("{}", found.reason.as_deref().unwrap_or_default());
    }
    Ok(found.exit_code())
}

fn assess(args: &FitnessArgs) -> Result<Fitness, BenchError> {
    for (flag, value) in [("--budget", args.budget), ("--timeout", args.timeout), ("--limit", args.limit)] {
        if !(value > 0.0 && value <= MOST_SECONDS) {
            let what = format!("expected a number of seconds above 0 and at most {MOST_SECONDS}");
            return Err(BenchError::Flag { flag, value: value.to_string(), what });
        }
    }
    check_references(args.refs.as_deref().map(names).as_deref().filter(|_| args.mock.is_none()))?;
    ordinals(args.gpus.as_deref())?;
    fa4_gate::cli::filter(args.filter.as_deref())?;
    let file = readable(&args.file)?;
    let parent = args.parent.as_deref().map(readable).transpose()?;
    let with_gpu = args.mock.is_some() || gpu::machines().is_ok();
    if with_gpu {
        return measured(args, &file, parent.as_deref());
    }
    if let Some(nothing) = judged(args, &file)? {
        return Ok(nothing);
    }
    match args.predict {
        true => predicted(&file, parent.as_deref()),
        false => Ok(Fitness {
            fitness: None,
            ..Fitness::nothing(
                Status::Unmeasured,
                EMULATOR,
                "right in the emulator; speed cannot be measured without a GPU (`--predict` gives the emulator's \
                 prediction, marked as one)",
            )
        }),
    }
}

fn readable(path: &Path) -> Result<PathBuf, BenchError> {
    path.canonicalize().map_err(BenchError::file(path))
}

/// Judges the file in the emulator; `None` where it is right.
fn judged(args: &FitnessArgs, file: &Path) -> Result<Option<Fitness>, BenchError> {
    let dir = tempfile::tempdir().map_err(BenchError::file(std::env::temp_dir()))?;
    let rows = dir.path().join("gate.json");
    let mut run = Run::new("judge");
    run.pair("--device", "emu")
        .pair("--cand", file)
        .pair("--namespace", NAMESPACE)
        .pair("--json", &rows)
        .flag("-q");
    if let Some(configs) = &args.configs {
        run.pair("--configs", configs);
    }
    if let Some(filter) = &args.filter {
        run.pair("--filter", filter);
    }
    let nothing = |status, reason: String| Ok(Some(Fitness::nothing(status, EMULATOR, reason)));
    let ended = run.wait(Duration::from_secs_f64(args.limit))?;
    let code = match ended {
        Ended::TooLate => return nothing(Status::Hung, format!("not judged within {} s", args.limit)),
        Ended::Code(code) => code,
    };
    match code {
        exit::OK => Ok(None),
        UNCOMPILABLE => nothing(Status::Uncompilable, run.last_words()),
        exit::WRONG => {
            let (status, reason) = first_wrong(&rows).unwrap_or((Status::Wrong, run.last_words()));
            nothing(status, reason)
        }
        code => Err(BenchError::Fitness { what: run.last_words(), code }),
    }
}

/// What the file is called in tables.
const NAMESPACE: &str = "candidate";
/// The hidden task `judge` ends so where the file is at fault before anything ran.
pub const UNCOMPILABLE: u8 = 20;

/// The first row of the gate's JSON that is not right.
fn first_wrong(path: &Path) -> Option<(Status, String)> {
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let row = rows.iter().find(|row| matches!(word(row, "status").as_str(), "fail" | "fault" | "timeout"))?;
    let status = if word(row, "status") == "timeout" { Status::Hung } else { Status::Wrong };
    let schedule = word(row, "schedule");
    Some((status, format!("{} under {schedule}: {}", word(row, "case"), word(row, "reason"))))
}

/// Times the file and its parent in turn; `bench` judges each before.
fn measured(args: &FitnessArgs, file: &Path, parent: Option<&Path>) -> Result<Fitness, BenchError> {
    let dir = tempfile::tempdir().map_err(BenchError::file(std::env::temp_dir()))?;
    let (mut of_file, mut of_parent) = (Vec::new(), Vec::new());
    let mut evidence = String::from("GPU");
    for round in 0..args.rounds {
        for is_parent in [false, true] {
            let out = dir.path().join(format!("{round}-{is_parent}"));
            let candidate = if is_parent { parent } else { Some(file) };
            let rows = match bench(args, candidate, &out)? {
                Some(rows) => rows,
                None if is_parent => continue,
                None => {
                    let reason = format!("not timed within {} s", args.limit);
                    return Ok(Fitness::nothing(Status::Hung, &evidence, reason));
                }
            };
            if let Some(gpu) = folder::env(&out)?.gpus.first() {
                evidence = gpu.name.clone();
            }
            if is_parent {
                of_parent.push(rows);
                continue;
            }
            if let Some((status, reason)) = score::wrong(&rows) {
                return Ok(Fitness::nothing(status, &evidence, reason));
            }
            of_file.push(rows);
        }
    }
    Ok(score::score(&of_file, &of_parent, &evidence))
}

/// The rows of one run of `bench`; `None` where it did not end in time.
fn bench(
    args: &FitnessArgs,
    candidate: Option<&Path>,
    out: &Path,
) -> Result<Option<Vec<RunRow>>, BenchError> {
    let mut run = Run::new("bench");
    run.pair("--out", out).flag("-q");
    run.pair("--budget", args.budget.to_string()).pair("--timeout", args.timeout.to_string());
    run.pair("--refs-python", &args.refs_python);
    match &args.configs {
        Some(configs) => run.pair("--configs", configs),
        None => run.pair("--set", args.set.name()),
    };
    if let Some(file) = candidate {
        run.pair("--cand", file).pair("--namespace", NAMESPACE);
    }
    for (flag, value) in
        [("--filter", &args.filter), ("--refs", &args.refs), ("--gpus", &args.gpus), ("--mock", &args.mock)]
    {
        if let Some(value) = value {
            run.pair(flag, value);
        }
    }
    match run.wait(Duration::from_secs_f64(args.limit))? {
        Ended::TooLate => Ok(None),
        Ended::Code(exit::OK | exit::WRONG) => Ok(Some(folder::rows(out)?)),
        Ended::Code(code) => Err(BenchError::Fitness { what: run.last_words(), code }),
    }
}

/// Whether [`pipeline::predict`] has a problem for a variant that a candidate may stand for.
fn is_predictable(row: &Row) -> bool {
    takes_candidates(row) && row.problem.dtype == Dtype::Bf16 && row.problem.mask != Mask::General
}

/// The emulator's word on both: predicted cycles with issue slots and load latency, per entry function.
fn predicted(file: &Path, parent: Option<&Path>) -> Result<Fitness, BenchError> {
    let root = workspace();
    let builder = Builder::open(&root).map_err(fa4_gate::error::GateError::from)?;
    let cycles = |path: Option<&Path>| -> Result<Vec<(&'static str, f64)>, BenchError> {
        let candidate = path.map(|path| Candidate { path, namespace: NAMESPACE });
        let kernels = compile(&builder, &root, candidate, is_predictable)?;
        let one = |kernel: &Kernel<EmuModule>| {
            Some((kernel.row.entry, pipeline::predict(kernel)?.issue.cycles as f64))
        };
        Ok(kernels.iter().filter_map(one).collect())
    };
    let (of_file, of_parent) = (cycles(Some(file))?, cycles(parent)?);
    let ratios: Vec<(&str, f64)> = of_parent
        .iter()
        .filter_map(|(entry, parent)| {
            let (_, file) = of_file.iter().find(|(other, _)| other == entry)?;
            Some((*entry, parent / file))
        })
        .collect();
    let evidence = "emulator's timed schedule: predicted, not measured";
    if ratios.is_empty() {
        let reason = "no entry function of the file can be predicted";
        return Ok(Fitness { fitness: None, ..Fitness::nothing(Status::Unmeasured, evidence, reason) });
    }
    let mean = geomean(&ratios.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>());
    let worst =
        ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(entry, ratio)| (entry.to_string(), *ratio));
    Ok(Fitness {
        fitness: Some(mean),
        against_parent: Some(mean),
        rows: ratios.len(),
        worst,
        predicted: true,
        reason: None,
        ..Fitness::nothing(Status::Pass, evidence, "")
    })
}
