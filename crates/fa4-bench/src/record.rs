//! What a run leaves behind: one [`RunRow`] per scenario row, one JSON object a line in `raw.jsonl`.
//!
//! Times are microseconds per launch, clocks MHz, power watts, temperatures °C. A field that was not measured is absent,
//! never 0.

use std::collections::BTreeMap;

use fa4_spec::AttnProblem;
use serde::{Deserialize, Serialize};

use crate::caveats::Caveat;
use crate::verdict::Verdict;

/// Version of [`RunRow`]; written into every row, raised when the meaning of a field changes.
pub const SCHEMA: u32 = 1;

/// How a row, or one contestant of it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Right.
    Pass,
    /// A wrong result. Has no times.
    Fail,
    /// The device stopped the kernel.
    Fault,
    /// Not served, or not available here; the reason says which.
    Unsupported,
    /// Did not end in time and was killed.
    Timeout,
    /// The process around the kernel failed: a crash, a broken protocol.
    Error,
}

impl Status {
    /// Every status, in the order of summaries.
    pub const ALL: [Status; 6] =
        [Status::Pass, Status::Fail, Status::Fault, Status::Timeout, Status::Error, Status::Unsupported];

    /// The word in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::Fault => "fault",
            Status::Unsupported => "unsupported",
            Status::Timeout => "timeout",
            Status::Error => "error",
        }
    }

    /// Whether our kernel's row makes the exit code 1.
    pub const fn is_wrong(self) -> bool {
        matches!(self, Status::Fail | Status::Fault | Status::Timeout | Status::Error)
    }
}

/// One scenario row, judged and timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Place in the run's plan (`cases.csv`), from 0.
    pub index: usize,
    /// The row's id.
    pub case: String,
    /// Its set.
    pub set: String,
    /// Its group.
    pub family: String,
    /// Its part of inference.
    pub phase: String,
    /// Sizes, mask, dtypes.
    pub problem: AttnProblem,
    /// How the data was made.
    pub qdist: String,
    /// Seed of the data.
    pub seed: u64,
    /// How our kernel ended.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// Our kernel's entry function.
    pub kernel: Option<String>,
    /// SHA-256 of its cubin, the first 16 hex digits.
    pub artifact: Option<String>,
    /// The GPU's name.
    pub gpu: Option<String>,
    /// The GPU's ordinal in this run.
    pub ordinal: Option<u32>,
    /// How the output was judged.
    pub judged: Option<Judged>,
    /// Work as counted.
    pub counts: Option<Counts>,
    /// Sets of tensors that the timed launches went through.
    pub copies: Option<u32>,
    /// Our kernel's times.
    pub ours: Option<Timing>,
    /// Our other kernels that serve the row.
    pub others: Vec<Entry>,
    /// The references.
    pub references: Vec<Entry>,
    /// Where our kernel stands.
    pub verdict: Option<Verdict>,
    /// What to keep in mind when reading the times.
    pub caveats: Vec<Caveat>,
    /// Seconds since 1970 when the row was begun.
    pub started: u64,
    /// Wall seconds that the row took.
    pub seconds: f64,
    /// Of these by stage: `data`, `oracle`, `load` (ours onto the GPU), `files`, `prepare` and `route` (of references),
    /// `output` (runs whose results are read back), `judge`, `timing`.
    #[serde(default)]
    pub stages: BTreeMap<String, f64>,
}

/// Another contestant of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub id: String,
    /// How it ended.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// What really ran, in its own words.
    pub route: Option<String>,
    /// Versions of what it is made of.
    pub versions: BTreeMap<String, String>,
    /// How its output was judged.
    pub judged: Option<Judged>,
    /// Its times.
    pub timing: Option<Timing>,
}

/// An output held against the f64 oracle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Worst error of O over its bound; at most 1 is right.
    pub o_ratio: f64,
    /// Worst error of the LSE over its bound; absent where none was given.
    pub lse_ratio: Option<f64>,
    /// Largest |error| of O over the judged rows.
    pub o_abs: f64,
    /// Largest |error| / |oracle| of O over the judged elements that are not 0.
    pub o_rel: f64,
    /// Rows of O that the oracle computed.
    pub rows: u64,
    /// Rows of O in all.
    pub of: u64,
}

/// Work and traffic of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// (query, key) pairs that the mask leaves, over batch and query heads.
    pub pairs: u64,
    /// 2·(head_dim_qk + head_dim_v) per visible pair: the effective FLOPs.
    pub flops: f64,
    /// 4·b·h·sq·sk·d, half of it if causal: the convention of FlashAttention's benchmarks.
    pub flops_convention: f64,
    /// q, k, v, O and LSE, each once.
    pub bytes: u64,
}

/// Times of one contestant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Short runs with rests, in turn with the other contestants.
    pub burst: Option<Figure>,
    /// Back to back for a second or more.
    pub sustained: Option<Figure>,
    /// As `burst`, replayed from a CUDA graph.
    pub graph: Option<Figure>,
    /// CPU time to enqueue one launch.
    pub host_us: Option<f64>,
}

/// One measured figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Median over all launches.
    pub us: f64,
    /// 10th percentile.
    pub us_p10: f64,
    /// 90th percentile.
    pub us_p90: f64,
    /// Launches timed.
    pub launches: u64,
    /// The rounds behind it.
    pub rounds: Vec<Round>,
}

/// One round: consecutive launches of one contestant, and what the GPU said meanwhile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Round {
    /// Median over the round's launches.
    pub us: f64,
    /// SM clock.
    pub clock_mhz: Option<u32>,
    /// Power draw.
    pub power_w: Option<f64>,
    /// GPU temperature.
    pub temperature_c: Option<u32>,
    /// What held the clock back.
    pub throttled: Vec<String>,
}

impl Figure {
    /// (p90 − p10) over the median.
    pub fn spread(&self) -> f64 {
        (self.us_p90 - self.us_p10) / self.us
    }

    /// Median SM clock of its rounds.
    pub fn clock_mhz(&self) -> Option<f64> {
        let clocks: Vec<f64> = self.rounds.iter().filter_map(|r| r.clock_mhz.map(f64::from)).collect();
        (!clocks.is_empty()).then(|| crate::stats::median(&clocks))
    }

    /// Median power of its rounds.
    pub fn power_w(&self) -> Option<f64> {
        let power: Vec<f64> = self.rounds.iter().filter_map(|r| r.power_w).collect();
        (!power.is_empty()).then(|| crate::stats::median(&power))
    }
}

impl Counts {
    /// Effective TFLOP/s at `us` per launch.
    pub fn tflops(&self, us: f64) -> f64 {
        self.flops / us / 1e6
    }

    /// GB/s at `us` per launch.
    pub fn gbps(&self, us: f64) -> f64 {
        self.bytes as f64 / us / 1e3
    }

    /// FLOPs per byte.
    pub fn intensity(&self) -> f64 {
        self.flops / (self.bytes as f64).max(1.0)
    }
}

impl RunRow {
    /// Our burst time.
    pub fn ours_us(&self) -> Option<f64> {
        Some(self.ours.as_ref()?.burst.as_ref()?.us)
    }

    /// The row without what differs from run to run on any device: wall times and which of several equal GPUs took it.
    pub fn without_clock(&self) -> RunRow {
        RunRow { started: 0, seconds: 0.0, stages: BTreeMap::new(), ordinal: None, ..self.clone() }
    }
}
