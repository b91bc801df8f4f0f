//! Tasks and flags. A new task is a variant here, an arm in `main.rs` and a module of its own.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fa4_gate::cli::GateArgs;
use fa4_refs::catalog::{CATALOG, find};
use regex::Regex;

use crate::error::BenchError;
use crate::fitness::FitnessArgs;
use crate::plan::{SetName, Shard};
use crate::publish::PublishArgs;

/// Longest time that a flag may name: more than anybody waits, and a `Duration` holds it.
pub const MOST_SECONDS: f64 = 1e7;

/// For the end of each task's help, since nobody looks for them elsewhere.
const CODES: &str = "Exit codes: 0 all right; 1 something was judged wrong; 2 usage or bad input; 3 environment (no \
                     toolchain, no device); 4 interrupted, resumable; 101 a bug in fa4.";
/// Those of `fitness`.
const FITNESS_CODES: &str = "Exit codes: 0 right, and timed or predicted; 1 worth nothing (wrong, hung, uncompilable, \
                             narrower than its parent); 2 usage or bad input; 3 right but no GPU to time it on, or no \
                             toolchain; 101 a bug in fa4.";
/// Those of `publish`.
const PUBLISH_CODES: &str = "Exit codes: 0 posted, or printed by --dry-run; 2 usage or bad input; 3 no token, no network, \
                             or a server that refuses; 101 a bug in fa4.";
/// Those of `results`.
const RESULTS_CODES: &str = "Exit codes: 0 all right; 1 an export is not valid; 2 usage or bad input; 3 environment; 4 \
                             merged, but planned rows are missing; 101 a bug in fa4.";

/// Times kernels against the field, judges before it times, writes results.
///
/// Exit codes: 0 all right; 1 something was judged wrong; 2 usage or bad input; 3 environment (no toolchain, no device);
/// 4 interrupted, resumable; 101 a bug in fa4.
#[derive(Parser, Debug)]
#[command(name = "fa4-bench", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What this program does.
#[derive(Subcommand, Debug)]
pub enum Task {
    /// Gate, then time against the field.
    #[command(after_help = CODES)]
    Bench(Box<BenchArgs>),
    /// Result folders.
    #[command(subcommand, after_help = RESULTS_CODES)]
    Results(ResultsTask),
    /// Which references are here, and what is missing.
    #[command(after_help = CODES)]
    Refs(RefsArgs),
    /// What one kernel file is worth, as one JSON line: 0 unless right, else its speed against its parent.
    #[command(after_help = FITNESS_CODES)]
    Fitness(FitnessArgs),
    /// Post a result folder as a commit status and a pull-request comment; the token comes from GITHUB_TOKEN.
    #[command(after_help = PUBLISH_CODES)]
    Publish(PublishArgs),
    /// Collect built kernels in a folder, for `bench --artifacts` on a machine without a compiler.
    #[command(after_help = CODES)]
    Pack(PackArgs),
    /// The gate, as a process of `fitness`.
    #[command(hide = true)]
    Judge(GateArgs),
    /// The process of one GPU; started by `bench`.
    #[command(hide = true)]
    Worker,
}

/// `bench`.
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
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
    /// Python with the references' packages; default: python3.
    #[arg(long, value_name = "PYTHON")]
    pub refs_python: Option<PathBuf>,
    /// A program, with arguments, that speaks the references' protocol, instead of the Python adapters; needs --refs.
    #[arg(long, value_name = "COMMAND")]
    pub refs_program: Option<String>,
    /// Folder for files that are handed to references; default: a RAM disk, or the system's for
    /// temporary files.
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// GPUs by number, separated by commas; default: all that our kernels run on.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<String>,
    /// Part K of N of the rows, for several machines; `results merge` joins the folders.
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,
    /// Take up an interrupted run: its folder, or the newest unfinished one. Settings are that run's; files outside the
    /// checkout must be named again.
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with_all = ["set", "configs", "filter", "refs", "shard", "budget", "out", "mock", "seed"])]
    #[allow(clippy::option_option, reason = "absent, without and with a value")]
    pub resume: Option<Option<PathBuf>>,
    /// Seconds of timing a row may take; data, oracle and compilation apart.
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0)]
    pub budget: f64,
    /// Seconds after which a row counts as hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub timeout: f64,
    /// Seed of the data.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Where the results go; default: a new folder below results/.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Kernels built by `fa4-bench pack`, instead of compiling.
    #[arg(long, value_name = "DIR", conflicts_with = "cand")]
    pub artifacts: Option<PathBuf>,
    /// The workspace's folder; default: where this program was built, else the current one.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// A kernel file to judge and time in place of ours.
    #[arg(long, value_name = "FILE.cu", requires = "namespace")]
    pub cand: Option<PathBuf>,
    /// What the candidate is called in tables.
    #[arg(long, value_name = "NAME", requires = "cand")]
    pub namespace: Option<String>,
    /// Write one object per row as a JSON array.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No progress; only the verdict.
    #[arg(short, long)]
    pub quiet: bool,
    /// For tests: no GPU but a mock of one, as `gpus=2;row_ms=20;refs=a:0.9,b;fault=hang@REGEX`. Its figures mean nothing.
    #[arg(long, value_name = "SPEC")]
    pub mock: Option<String>,
}

/// `results`.
#[derive(Subcommand, Debug, Clone)]
pub enum ResultsTask {
    /// Join the folders of shards; refuses those of different versions or settings.
    Merge {
        /// The folders.
        #[arg(required = true, num_args = 1..)]
        folders: Vec<PathBuf>,
        /// Where the result goes.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Run the gate and keep its verdict as a result folder; exit codes as the gate's.
    Gate {
        /// Where the result goes.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Flags of the gate, behind `--`.
        #[arg(last = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Write results/INDEX.md.
    Index {
        /// The folder of folders; default: the workspace's.
        #[arg(long, value_name = "DIR")]
        results: Option<PathBuf>,
    },
    /// Make README.md, rows.csv, summary.md and the plots of a folder anew; without a folder, print the newest's summary.
    Report {
        /// The folder.
        folder: Option<PathBuf>,
        /// Also put the table between the markers `generated: bench` (of a gate's folder: `generated: gate`) of this file.
        #[arg(long, value_name = "FILE.md")]
        into: Option<PathBuf>,
    },
    /// Write a folder's results in another project's form.
    Export {
        /// The folder.
        folder: PathBuf,
        /// The form.
        #[arg(long, value_enum)]
        format: ExportFormat,
        /// Where it goes.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Hold exports against flashinfer-bench's own models, which a first call installs below target/.
    #[command(
        after_help = "Exit codes: 0 valid; 1 not, with file, object and field; 2 bad input; 3 no Python or no package."
    )]
    Validate {
        /// Result folders, which are exported first, or exports; none: every run below results/.
        folders: Vec<PathBuf>,
        /// Python 3.10 or newer with venv and pip.
        #[arg(long, value_name = "PYTHON", default_value = "python3")]
        python: PathBuf,
    },
}

/// Forms to export to.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// flashinfer-bench: Definition, Workload, Solution, Trace.
    Flashinfer,
}

/// `refs`.
#[derive(Args, Debug, Clone)]
pub struct RefsArgs {
    /// Python with the references' packages.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub refs_python: PathBuf,
    /// A program, with arguments, that speaks the references' protocol, instead of the Python adapters.
    #[arg(long, value_name = "COMMAND")]
    pub refs_program: Option<String>,
    /// The workspace's folder.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// `pack`.
#[derive(Args, Debug, Clone)]
pub struct PackArgs {
    /// Architectures, separated by commas, as `sm_90a`; default: all.
    #[arg(long, value_name = "LIST")]
    pub arch: Option<String>,
    /// Where the kernels go.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

impl BenchArgs {
    /// The filter, compiled.
    ///
    /// # Errors
    /// Not a regular expression.
    pub fn pattern(&self) -> Result<Option<Regex>, BenchError> {
        Ok(fa4_gate::cli::filter(self.filter.as_deref())?)
    }

    /// The references asked for; `None`: all.
    pub fn references(&self) -> Option<Vec<String>> {
        self.refs.as_deref().map(names)
    }

    /// The GPUs asked for; `None`: all.
    ///
    /// # Errors
    /// Not a list of numbers.
    pub fn ordinals(&self) -> Result<Option<Vec<u32>>, BenchError> {
        ordinals(self.gpus.as_deref())
    }

    /// Flags that clap cannot judge.
    ///
    /// # Errors
    /// What is wrong and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        for (flag, value) in [("--budget", self.budget), ("--timeout", self.timeout)] {
            if !(value > 0.0 && value <= MOST_SECONDS) {
                let what = format!("expected a number of seconds above 0 and at most {MOST_SECONDS}");
                return Err(BenchError::Flag { flag, value: value.to_string(), what });
            }
        }
        check_references(self.references().as_deref().filter(|_| {
            // Whoever stands for all references has names of its own.
            self.mock.is_none() && self.refs_program.is_none()
        }))?;
        self.ordinals()?;
        let files = [("--cand", &self.cand, false), ("--artifacts", &self.artifacts, true)];
        for (flag, path, is_folder) in files {
            let Some(path) = path else { continue };
            if !(if is_folder { path.is_dir() } else { path.is_file() }) {
                let what = format!("there is no such {}", if is_folder { "folder" } else { "file" });
                return Err(BenchError::Flag { flag, value: path.display().to_string(), what });
            }
        }
        if let (Some(command), None, None) = (&self.refs_program, &self.refs, &self.resume) {
            let what = "needs --refs with the names that the program serves".to_string();
            return Err(BenchError::Flag { flag: "--refs-program", value: command.clone(), what });
        }
        Ok(())
    }
}

/// The GPUs in a list; `None`: all.
///
/// # Errors
/// Not a list of numbers, or a number twice.
pub fn ordinals(list: Option<&str>) -> Result<Option<Vec<u32>>, BenchError> {
    let Some(list) = list else { return Ok(None) };
    let numbers: Result<Vec<u32>, _> = list.split(',').map(|n| n.trim().parse()).collect();
    let wrong = |what: &str| BenchError::Flag { flag: "--gpus", value: list.into(), what: what.into() };
    let mut numbers = numbers.map_err(|_| wrong("expected numbers separated by commas, as in 0,1"))?;
    numbers.sort_unstable();
    match numbers.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(wrong("a GPU is named twice")),
        false => Ok(Some(numbers)),
    }
}

/// The names in a list of references.
pub fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "none");
    names.map(str::to_string).collect()
}

/// Refuses names of references that there are not.
///
/// # Errors
/// The name, and those that there are.
pub fn check_references(names: Option<&[String]>) -> Result<(), BenchError> {
    match names.into_iter().flatten().find(|name| find(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = CATALOG.iter().map(|entry| entry.id).collect();
            let what = format!("there is no such reference; there are {}, and `none`", known.join(", "));
            Err(BenchError::Flag { flag: "--refs", value: name.clone(), what })
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn bench(args: &[&str]) -> Result<BenchArgs, clap::Error> {
        let cli = Cli::try_parse_from(["fa4-bench", "bench"].iter().chain(args))?;
        let Task::Bench(args) = cli.task else { panic!("another task") };
        Ok(*args)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_checked() {
        assert_eq!(bench(&["--gpus", "1,0"]).unwrap().ordinals().unwrap(), Some(vec![0, 1]));
        for bad in ["0,x", "0,0", ""] {
            assert!(bench(&["--gpus", bad]).unwrap().ordinals().is_err(), "{bad}");
        }
        assert_eq!(bench(&["--refs", "none"]).unwrap().references(), Some(vec![]));
        assert_eq!(bench(&["--refs", "fa3, torch-cudnn"]).unwrap().references().unwrap().len(), 2);
        assert!(bench(&["--budget", "0"]).unwrap().check().is_err());
        for most in ["1e300", "inf", "nan"] {
            assert!(bench(&["--timeout", most]).unwrap().check().is_err(), "{most}");
        }
        assert!(bench(&["--shard", "3/2"]).is_err());
        assert!(bench(&["--cand", "k.cu"]).is_err());
    }

    #[test]
    fn a_run_that_is_taken_up_keeps_its_settings() {
        assert_eq!(bench(&["--resume"]).unwrap().resume, Some(None));
        assert_eq!(bench(&["--resume", "x"]).unwrap().resume, Some(Some("x".into())));
        assert!(bench(&["--resume", "--set", "real"]).is_err());
        assert!(bench(&["--resume", "--budget", "3"]).is_err());
    }
}
