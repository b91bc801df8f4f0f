//! Every command and every flag, in this one place.
//!
//! A command exists here once it does something. Flags of judging commands are checked here and passed on unchanged,
//! so that `cargo xtask gate --help` and the program behind it cannot disagree for long.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Commands of the fa4 workspace.
///
/// Exit codes: 0 all right; 1 something was judged wrong; 2 usage or bad input; 3 environment (no toolchain, no
/// device); 4 interrupted, resumable; 101 a bug in fa4.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Install the pinned CUDA compiler into .toolchain/ (other commands do this by themselves).
    Setup(Setup),
    /// Say what this machine has, what is missing, and the command that mends it.
    Doctor,
    /// Compile kernels to PTX and cubins; count machine instructions (`cargo xtask build sass-mix --help`).
    Build(Build),
    /// Compile, run every case, compare with the oracle; table and exit code.
    Gate(Gate),
    /// Break kernels on purpose, one statement at a time: each must be caught (`cargo xtask twins --help`).
    Twins(Forward),
    /// A kernel's roles, barriers, memory maps and timeline from its tables (`cargo xtask plan --help`).
    Plan(Forward),
    /// Delete or weaken one synchronisation at a time: none may survive (`cargo xtask mutate --help`).
    Mutate(Forward),
    /// Kernels of other projects in the emulator (`cargo xtask foreign --help`).
    Foreign(Forward),
    /// Gate, then time against the field (`cargo xtask bench --help`).
    Bench(Forward),
    /// One kernel file's worth as one JSON line: 0 unless right, else its speed ratio (`cargo xtask fitness --help`).
    Fitness(Forward),
    /// Result folders: merge, index, report, export (`cargo xtask results --help`).
    Results(Forward),
    /// Post a result folder as a commit status and a pull-request comment (`cargo xtask publish --help`).
    Publish(Forward),
    /// Other people's kernels: what is available here, by which route (`cargo xtask refs --help`).
    Refs(Forward),
    /// GPUs of this machine and the launcher's self-test on them (`cargo xtask gpu --help`).
    Gpu(Forward),
    /// The emulator: `cargo xtask emu run LAUNCH.toml`, `cargo xtask emu --help`.
    Emu(Forward),
    /// Everything that CI checks.
    Test(Test),
    /// Structure rules only: where `asm` and `unsafe` may be, file lengths, crate dependencies, documents.
    Tidy,
    /// Rewrite golden files from what the code does now, and show the difference. Refused under CI.
    Bless(Bless),
}

/// `setup`.
#[derive(Args, Debug, Default)]
pub struct Setup {
    /// Use an installed CUDA (13.0 or newer) instead of the pinned wheels, from now on: its root folder.
    #[arg(long, value_name = "PATH")]
    pub toolchain: Option<PathBuf>,
}

/// `build`.
#[derive(Args, Debug)]
pub struct Build {
    /// What the builder shall do: nothing for all kernels, `check` (which toolchain), `file FILE.cu …`, or `sass-mix KERNEL …`
    /// (machine instructions of softmax loops); `-- --help` or `sass-mix --help` tell more.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// Where kernels run.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum Device {
    /// A GPU of the kernel's architecture where one is present, else the emulator.
    Auto,
    /// The emulator.
    Emu,
    /// A GPU.
    Cuda,
    /// Both, compared with each other.
    Both,
}

/// Orders in which the emulator lets asynchronous operations land.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum Schedule {
    /// At issue.
    Eager,
    /// When no warp can issue, the newest first.
    LateLifo,
    /// When no warp can issue, copies before matrix products.
    LateTma,
    /// By a seeded choice.
    Random,
}

/// Rust's ranges: `0..8` without 8, `0..=8` with it. (What reads the flag in the end says the same.)
fn parse_seeds(text: &str) -> Result<String, String> {
    let (first, last) = text.split_once("..").unwrap_or_default();
    let (last, included) = last.strip_prefix('=').map_or((last, false), |last| (last, true));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(a), Ok(b)) if a < b || included && a == b => Ok(text.to_owned()),
        _ => Err("expected A..B (B not included) or A..=B (included), as in 0..32".into()),
    }
}

/// `gate`.
#[derive(Args, Debug)]
pub struct Gate {
    /// Where kernels run.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// A few cases in seconds, for the edit loop.
    #[arg(long)]
    pub smoke: bool,
    /// What the manual asks and shipped kernels leave out fails too.
    #[arg(long)]
    pub strict: bool,
    /// Schedules, separated by commas (default: all).
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub schedule: Vec<Schedule>,
    /// Seed of the data and of the random schedule.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run the random schedule once for each seed: A..B without B, A..=B with it.
    #[arg(long, value_name = "A..B", conflicts_with = "seed", value_parser = parse_seeds)]
    pub seeds: Option<String>,
    /// Flags that every judging command takes.
    #[command(flatten)]
    pub shared: Shared,
}

/// Flags with one meaning everywhere.
#[derive(Args, Debug)]
pub struct Shared {
    /// Cases from a file instead of the built-in set.
    #[arg(long, value_name = "FILE.csv")]
    pub configs: Option<PathBuf>,
    /// Only what matches: kernel/case names.
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

/// A command whose arguments another program reads.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Forward {
    /// Arguments of that program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

/// `test`.
#[derive(Args, Debug)]
pub struct Test {
    /// Only steps whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
}

/// `bless`.
#[derive(Args, Debug)]
pub struct Bless {
    /// Only golden files whose path contains this.
    pub filter: Option<String>,
}

impl Gate {
    /// The same flags for `fa4-gate`.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = Arguments::default();
        let name = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned());
        args.pair("--device", name(self.device.to_possible_value()));
        args.flag("--smoke", self.smoke);
        args.flag("--strict", self.strict);
        let schedules: Vec<_> =
            self.schedule.iter().filter_map(|schedule| name(schedule.to_possible_value())).collect();
        args.pair("--schedule", (!schedules.is_empty()).then(|| schedules.join(",")));
        args.pair("--seed", self.seed.map(|seed| seed.to_string()));
        args.pair("--seeds", self.seeds.as_ref());
        self.shared.push(&mut args);
        args.0
    }
}

impl Shared {
    fn push(&self, args: &mut Arguments) {
        args.pair("--configs", self.configs.as_ref());
        args.pair("--filter", self.filter.as_ref());
        args.pair("--cand", self.cand.as_ref());
        args.pair("--namespace", self.namespace.as_ref());
        args.pair("--json", self.json.as_ref());
        args.flag("-q", self.quiet);
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, name: &str, on: bool) {
        if on {
            self.0.push(name.into());
        }
    }

    fn pair(&mut self, name: &str, value: Option<impl Into<OsString>>) {
        if let Some(value) = value {
            self.0.push(name.into());
            self.0.push(value.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn gate_flags_are_passed_on() {
        let cli = Cli::try_parse_from(["xtask", "gate", "--smoke", "--filter", "hd128", "-q"]).unwrap();
        let Command::Gate(gate) = cli.command else { panic!("parsed as another command") };
        assert_eq!(gate.to_args(), ["--device", "auto", "--smoke", "--filter", "hd128", "-q"]);
    }

    #[test]
    fn lists_and_ranges_are_checked() {
        let parse = |args: &[&str]| Cli::try_parse_from(["xtask", "gate"].iter().chain(args));
        let Command::Gate(gate) = parse(&["--schedule", "late-lifo,random"]).unwrap().command else {
            panic!()
        };
        assert_eq!(gate.to_args(), ["--device", "auto", "--schedule", "late-lifo,random"]);
        assert!(parse(&["--schedule", "eagre"]).is_err());
        assert!(parse(&["--seeds", "0..32"]).is_ok());
        assert!(parse(&["--seeds", "3..=3"]).is_ok());
        assert!(parse(&["--seeds", "3..3"]).is_err());
        assert!(parse(&["--seeds", "32..0"]).is_err());
        assert!(parse(&["--seeds", "0..32", "--seed", "1"]).is_err());
    }

    #[test]
    fn a_candidate_needs_a_name() {
        assert!(Cli::try_parse_from(["xtask", "gate", "--cand", "k.cu"]).is_err());
    }

    #[test]
    fn forwarded_arguments_are_left_alone() {
        let cli = Cli::try_parse_from(["xtask", "emu", "run", "a.toml", "--seed", "3"]).unwrap();
        let Command::Emu(forward) = cli.command else { panic!("parsed as another command") };
        assert_eq!(forward.args, ["run", "a.toml", "--seed", "3"]);
    }
}
