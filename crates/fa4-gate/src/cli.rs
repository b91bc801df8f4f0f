//! Flags, and what they mean together.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fa4_kernels::arch::Arch;
use ptx_emu::launch::Schedule;
use regex::Regex;

use crate::error::GateError;
use crate::foreign::command::ForeignTask;

/// Compiles kernels, runs them on every case and compares with an f64 oracle.
///
/// Exit codes: 0 all right; 1 something was judged wrong; 2 usage or bad input; 3 environment (no toolchain, no
/// device); 4 interrupted; 101 a bug in fa4.
#[derive(Parser, Debug)]
#[command(name = "fa4-gate", version, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Another task than judging the kernels.
    #[command(subcommand)]
    pub task: Option<Task>,
    /// Flags of the gate.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Tasks beside the gate.
#[derive(Subcommand, Debug)]
pub enum Task {
    /// Break the kernels on purpose, one statement at a time, and require that each is caught.
    Twins {
        /// Only twins whose name matches.
        #[arg(long, value_name = "REGEX")]
        filter: Option<String>,
        /// No progress; only the verdict.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Lay a kernel open: roles, barriers, memory maps, register budget, launch, predicted schedule.
    Plan(PlanArgs),
    /// Kernels of other projects in the emulator: the evidence for the emulator.
    Foreign {
        /// Whose.
        #[command(subcommand)]
        task: ForeignTask,
    },
    /// Break a kernel's synchronisation one instruction at a time; every mutant must be caught or be justified.
    Mutate(MutateArgs),
    /// Compile the instruction probes into the build cache, for `--device both` on a machine without a compiler.
    Prebuild {
        /// Architecture of the GPU.
        #[arg(long, default_value = "sm_90a")]
        arch: Arch,
    },
}

/// Flags of `plan`.
#[derive(Args, Debug, Clone)]
pub struct PlanArgs {
    /// The kernel: fwd_sm100 or fwd_sm90, or one of its entries (fwd_sm100_hd64_bf16_causal).
    #[arg(value_name = "KERNEL")]
    pub kernel: String,
    /// The variant, as in hd128_bf16_full [default: the kernel's first].
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Draw barriers, memory maps and schedule: one file for a path that ends in .svg, else a folder of them.
    #[arg(long, value_name = "FILE.svg|FOLDER")]
    pub svg: Option<PathBuf>,
    /// Write everything as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A kernel file to lay open in place of ours.
    #[arg(long, value_name = "FILE.cu", requires = "namespace")]
    pub cand: Option<PathBuf>,
    /// What the candidate is called.
    #[arg(long, value_name = "NAME", requires = "cand")]
    pub namespace: Option<String>,
}

/// Flags of `mutate`.
#[derive(Args, Debug, Clone)]
pub struct MutateArgs {
    /// The kernel: fwd_sm100 or fwd_sm90.
    pub kernel: String,
    /// A fixed part of the mutants, a few of each class, in seconds.
    #[arg(long)]
    pub subset: bool,
    /// Only mutants whose name matches: the lines that --list prints, variant and all.
    #[arg(long, value_name = "REGEX")]
    pub filter: Option<String>,
    /// Only variants whose name matches, such as hd64.
    #[arg(long, value_name = "REGEX")]
    pub case: Option<String>,
    /// Take over what an earlier run of the same kernel and program has found (target/mutate/KERNEL.jsonl, and
    /// KERNEL.part.jsonl for --subset, --filter and --case). Without it a run starts anew and keeps the file that was
    /// there as KERNEL.jsonl.old.
    #[arg(long)]
    pub resume: bool,
    /// Mutants at a time; one per core if not given.
    #[arg(long, value_name = "N")]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Seeds of the random schedule, which follow on the other schedules: A..B without B, A..=B with it.
    #[arg(long, value_name = "A..B", default_value = "1..6")]
    pub seeds: String,
    /// Write one object per mutant as a JSON array: how it ended, and the report with its two operations, their lines
    /// and the missing edge.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Rewrite the kernel's table in this document, where all of its mutants were run.
    #[arg(long, value_name = "FILE.md")]
    pub doc: Option<PathBuf>,
    /// Print the names of the mutants and run none.
    #[arg(long)]
    pub list: bool,
    /// No progress; only holes and the verdict.
    #[arg(short, long)]
    pub quiet: bool,
}

impl MutateArgs {
    /// Seeds of the random schedule.
    pub fn seeds(&self) -> Result<std::ops::Range<u64>, GateError> {
        seeds(&self.seeds)
    }
}

/// Where kernels run.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A GPU of the kernel's architecture where one is present, else the emulator.
    Auto,
    /// The emulator.
    Emu,
    /// A GPU.
    Cuda,
    /// Both, and the instruction probes word by word.
    Both,
}

impl DeviceKind {
    /// The word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            DeviceKind::Auto => "auto",
            DeviceKind::Emu => "emu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Both => "both",
        }
    }
}

/// Flags of the gate.
#[derive(Args, Debug, Clone)]
pub struct GateArgs {
    /// Where kernels run.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceKind,
    /// A few cases in seconds, for the edit loop.
    #[arg(long, conflicts_with = "configs")]
    pub smoke: bool,
    /// What the manual asks and shipped kernels leave out fails too.
    #[arg(long)]
    pub strict: bool,
    /// Schedules of the emulator, separated by commas: eager, late-lifo, late-tma, random. Default: all.
    #[arg(long, value_name = "LIST")]
    pub schedule: Option<String>,
    /// Seed of the data and of the random schedule.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Run the random schedule once for each seed: A..B without B, A..=B with it.
    #[arg(long, value_name = "A..B", conflicts_with = "seed")]
    pub seeds: Option<String>,
    /// Cases from a file in the form of sets/README.md instead of the built-in set.
    #[arg(long, value_name = "FILE.csv")]
    pub configs: Option<PathBuf>,
    /// Only cases whose `kernel/case` matches.
    #[arg(long, value_name = "REGEX")]
    pub filter: Option<String>,
    /// A kernel file to judge in place of ours.
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
}

/// One way to run a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Who acts when.
    pub schedule: Schedule,
    /// Seed of the random schedule; the data's seed for the others.
    pub seed: u64,
}

impl GateArgs {
    /// The flags that a command to repeat one run must carry besides its own.
    pub fn replay_flags(&self) -> String {
        let mut flags = String::new();
        if let Some(path) = &self.configs {
            flags.push_str(&format!(" --configs {}", path.display()));
        }
        if let (Some(path), Some(namespace)) = (&self.cand, &self.namespace) {
            flags.push_str(&format!(" --cand {} --namespace {namespace}", path.display()));
        }
        if self.strict {
            flags.push_str(" --strict");
        }
        flags
    }

    /// The runs that each case gets.
    pub fn runs(&self) -> Result<Vec<Run>, GateError> {
        runs(self.schedule.as_deref(), self.seed, self.seeds.as_deref())
    }
}

/// The runs that `--schedule`, `--seed` and `--seeds` ask for.
pub fn runs(list: Option<&str>, seed: u64, many: Option<&str>) -> Result<Vec<Run>, GateError> {
    let mut schedules = match list {
        None => Schedule::ALL.to_vec(),
        Some(list) => list.split(',').map(|name| schedule(list, name)).collect::<Result<_, _>>()?,
    };
    let of_random = match many {
        None => seed..seed + 1,
        Some(text) => seeds(text)?,
    };
    if many.is_some() && !schedules.contains(&Schedule::Random) {
        schedules.push(Schedule::Random);
    }
    let mut runs = Vec::new();
    for schedule in schedules {
        match schedule {
            Schedule::Random => runs.extend(of_random.clone().map(|seed| Run { schedule, seed })),
            _ => runs.push(Run { schedule, seed }),
        }
    }
    Ok(runs)
}

fn schedule(list: &str, name: &str) -> Result<Schedule, GateError> {
    // The timed schedule predicts and does not judge.
    Schedule::parse(name.trim()).filter(|schedule| Schedule::ALL.contains(schedule)).ok_or_else(|| {
        let all = Schedule::ALL.map(Schedule::as_str).join(", ");
        let what = format!("`{name}` is not a schedule; allowed, separated by commas: {all}");
        GateError::Flag { flag: "--schedule", value: list.to_string(), what }
    })
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, GateError> {
    let range = ptx_emu::launch::parse_seeds(text);
    let range = range
        .and_then(|r| if r.end - r.start <= 100_000 { Ok(r) } else { Err("at most 100000 seeds".into()) });
    range.map_err(|what| GateError::Flag { flag: "--seeds", value: text.to_string(), what })
}

/// Makes a closed standard output (`… | head`) end the program quietly, with the code that a shell shows for SIGPIPE:
/// `println!` would panic, and exit code 101 means a bug in fa4.
pub fn end_quietly_when_nobody_reads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to std") && text.contains("Broken pipe") {
            std::process::exit(141);
        }
        usual(panic);
    }));
}

/// Compiles a filter.
pub fn filter(text: Option<&str>) -> Result<Option<Regex>, GateError> {
    text.map(|text| {
        Regex::new(text).map_err(|e| GateError::Flag {
            flag: "--filter",
            value: text.to_string(),
            what: format!("not a regular expression: {e}"),
        })
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> GateArgs {
        Cli::try_parse_from(["fa4-gate"].iter().chain(list)).unwrap().gate
    }

    #[test]
    fn every_schedule_runs_by_default() {
        let runs = args(&[]).runs().unwrap();
        assert_eq!(runs.iter().map(|r| r.schedule).collect::<Vec<_>>(), Schedule::ALL);
        assert!(runs.iter().all(|r| r.seed == 1));
    }

    #[test]
    fn seeds_multiply_the_random_schedule_only() {
        let runs = args(&["--schedule", "eager", "--seeds", "3..6"]).runs().unwrap();
        let seeds: Vec<_> = runs.iter().map(|r| (r.schedule, r.seed)).collect();
        assert_eq!(seeds[0].0, Schedule::Eager);
        assert_eq!(seeds[1..], [3, 4, 5].map(|seed| (Schedule::Random, seed)));
        assert_eq!(args(&["--seeds", "3..=5"]).runs().unwrap()[3..], runs[1..]);
    }

    #[test]
    fn bad_values_say_what_is_allowed() {
        let no = |list: &[&str]| args(list).runs().unwrap_err().to_string();
        assert!(no(&["--schedule", "eager,lazy"]).contains("late-lifo, late-tma"));
        assert!(no(&["--schedule", "timed"]).contains("`timed` is not a schedule"));
        for bad in ["3", "5..5", "6..5", "a..b", "0..18446744073709551615"] {
            assert!(no(&["--seeds", bad]).contains("--seeds"), "{bad}");
        }
        assert!(filter(Some("(")).unwrap_err().to_string().contains("--filter ("));
        assert!(Cli::try_parse_from(["fa4-gate", "--cand", "k.cu"]).is_err());
        assert!(Cli::try_parse_from(["fa4-gate", "--smoke", "--configs", "x.csv"]).is_err());
        assert!(Cli::try_parse_from(["fa4-gate", "--no-such-flag"]).is_err());
    }
}
