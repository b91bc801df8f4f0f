//! The public face of the machine: what to run, how, and what came of it.

use crate::fault::{Fault, Level};
use crate::machine::inst::OpClass;
use crate::machine::predict::{Costs, Prediction};
use crate::syntax::ast::Module;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// Who acts when: see `docs/` and the crate's EMULATOR notes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Asynchronous effects land at issue.
    Eager,
    /// Operations land only when no warp can issue, the newest first.
    LateLifo,
    /// Operations land only when no warp can issue, copies before matrix instructions, the oldest first.
    LateTma,
    /// Seeded choice among warps and operations.
    Random,
    /// Effects land at issue while clocks predict the critical path ([`crate::machine::predict`]).
    Timed,
}

impl Schedule {
    /// The schedules that judge (the timed one only predicts).
    pub const ALL: [Schedule; 4] = [Schedule::Eager, Schedule::LateLifo, Schedule::LateTma, Schedule::Random];

    /// Name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Schedule::Eager => "eager",
            Schedule::LateLifo => "late-lifo",
            Schedule::LateTma => "late-tma",
            Schedule::Random => "random",
            Schedule::Timed => "timed",
        }
    }

    /// Parses a name.
    pub fn parse(s: &str) -> Option<Schedule> {
        Schedule::ALL.into_iter().chain([Schedule::Timed]).find(|x| x.as_str() == s)
    }
}

/// Seeds from a command line, written as Rust writes ranges: `0..8` for 0 to 7, `0..=8` for 0 to 8.
///
/// # Errors
/// What is allowed, where `text` is no such range or holds no seed.
pub fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let what = || {
        "expected A..B (B not included) or A..=B (included), with at least one seed, as in 0..8".to_string()
    };
    let (first, last) = text.split_once("..").ok_or_else(what)?;
    let number = |s: &str| s.parse::<u64>().ok();
    let end = match last.strip_prefix('=') {
        Some(last) => number(last).and_then(|n| n.checked_add(1)),
        None => number(last),
    };
    match (number(first), end) {
        (Some(a), Some(b)) if a < b => Ok(a..b),
        _ => Err(what()),
    }
}

/// A named range of warps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoleName {
    /// Name.
    pub name: String,
    /// First warp of the CTA.
    pub first_warp: u32,
    /// Number of warps.
    pub warps: u32,
}

/// A named mbarrier array in dynamic shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BarrierName {
    /// Name.
    pub name: String,
    /// Byte offset of stage 0 from the start of dynamic shared memory.
    pub offset: u32,
    /// Number of 8-byte barriers.
    pub stages: u32,
    /// Roles that may arrive (empty = unchecked). The warp that issues a copy or commit counts as arriver.
    pub arrivers: Vec<String>,
    /// Roles that may wait (empty = unchecked).
    pub waiters: Vec<String>,
}

/// A named range of dynamic shared memory or of tensor-memory columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegionName {
    /// Name.
    pub name: String,
    /// First byte (or column).
    pub start: u32,
    /// Bytes (or columns).
    pub len: u32,
}

/// Names and declared roles, as plain data: the emulator prints `P_full[1]` instead of `0x5c0` and faults when
/// an undeclared role touches a barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Annotations {
    /// Warp roles.
    pub roles: Vec<RoleName>,
    /// Barriers.
    pub barriers: Vec<BarrierName>,
    /// Shared-memory regions.
    pub shared: Vec<RegionName>,
    /// Tensor-memory regions.
    pub tmem: Vec<RegionName>,
}

/// A kernel launch.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Parsed PTX.
    pub module: &'a Module,
    /// Kernel name; may be empty when the module holds one kernel.
    pub entry: &'a str,
    /// Grid size in CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// Cluster size in CTAs; 1×1×1 also stands for the one that the kernel itself asks for.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// The parameter buffer, laid out as in the kernel's declaration.
    pub params: Vec<u8>,
    /// Global ranges (address, bytes) that must be wholly defined when the grid ends.
    pub outputs: Vec<(u64, u64)>,
    /// Names.
    pub annotations: Annotations,
}

/// Which checks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// Leases of asynchronous operations on memory and registers, and fences between proxies.
    pub lease: bool,
    /// Happens-before: unordered conflicting accesses, and fences between proxies by causality.
    pub race: bool,
    /// Faults on undefined values.
    pub uninit: bool,
    /// Declared roles on barriers.
    pub roles: bool,
}

impl Checks {
    /// Everything.
    pub const ALL: Checks = Checks { lease: true, race: true, uninit: true, roles: true };
    /// Nothing beyond what the hardware itself would raise.
    pub const NONE: Checks = Checks { lease: false, race: false, uninit: false, roles: false };
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Schedule.
    pub schedule: Schedule,
    /// Seed of the random schedule and of random choices.
    pub seed: u64,
    /// Checks.
    pub checks: Checks,
    /// Strict findings fail the run.
    pub strict: bool,
    /// Warp instructions after which the run is given up.
    pub step_limit: u64,
    /// Clusters resident at a time.
    pub resident: usize,
    /// Record a trace.
    pub trace: bool,
    /// Costs of the timed schedule.
    pub costs: Costs,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            schedule: Schedule::Eager,
            seed: 0,
            checks: Checks::ALL,
            strict: false,
            step_limit: 20_000_000_000,
            resident: 2,
            trace: false,
            costs: Costs::UNITS,
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Ran to the end, nothing to report at fault level.
    Clean,
    /// The kernel is wrong.
    Fault(Box<Fault>),
    /// This machine cannot run it; says what and where (PTX line), and nothing about the kernel.
    Unsupported {
        /// What.
        what: String,
        /// Opcode as spelled, where there is one.
        opcode: String,
        /// PTX line (0 = none).
        line: u32,
    },
    /// The step limit was reached.
    StepLimit,
}

/// Counts of what happened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Warp instructions by role (or `warp N`) and class.
    pub instructions: BTreeMap<String, BTreeMap<OpClass, u64>>,
    /// Executions of each coverage marker, by warps.
    pub covers: BTreeMap<String, u64>,
    /// Completed phases by barrier name (or address), summed over CTAs.
    pub phases: BTreeMap<String, u64>,
    /// Bytes moved by tensor and bulk loads.
    pub bytes_loaded: u64,
    /// Bytes moved by tensor and bulk stores.
    pub bytes_stored: u64,
    /// Matrix instructions.
    pub mmas: u64,
    /// Most tensor-memory columns allocated at once in a CTA.
    pub tmem_columns: u32,
    /// Warp instructions in all.
    pub steps: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Outcome.
    pub verdict: Verdict,
    /// Strict findings (one for each code and instruction pair).
    pub strict: Vec<Fault>,
    /// Counts.
    pub counters: Counters,
    /// Schedule that was run.
    pub schedule: Schedule,
    /// Its seed.
    pub seed: u64,
    /// What the timed schedule predicts for the slowest CTA.
    pub prediction: Option<Prediction>,
    /// Trace events, when asked for.
    #[serde(skip)]
    pub trace: Option<crate::trace::Trace>,
}

impl Report {
    /// True when nothing failed.
    pub fn is_clean(&self) -> bool {
        self.verdict == Verdict::Clean
    }

    /// The documented exit code of `ptx-emu run`.
    pub fn exit_code(&self) -> i32 {
        match self.verdict {
            Verdict::Clean => 0,
            Verdict::Fault(_) => 10,
            Verdict::Unsupported { .. } => 11,
            Verdict::StepLimit => 12,
        }
    }

    /// Whether the finding list holds something at or above a level.
    pub fn has_strict(&self) -> bool {
        self.strict.iter().any(|f| f.code.level() == Level::Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_rust_ranges() {
        assert_eq!(parse_seeds("0..8"), Ok(0..8));
        assert_eq!(parse_seeds("3..=3"), Ok(3..4));
        for bad in ["", "3", "5..5", "6..5", "6..=5", "a..b", "1..", "..2", "0..=18446744073709551615"] {
            assert!(parse_seeds(bad).is_err_and(|e| e.contains("A..=B")), "{bad}");
        }
    }
}
