//! What a machine must offer so that rows can be judged and timed on it: contestants that take the same inputs, and
//! readings of the GPU. [`crate::gpu::GpuRunner`] is a GPU, [`crate::mock::MockRunner`] stands in for one in tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fa4_refs::RowAt;
use fa4_spec::qdist::Inputs;
use fa4_spec::{Case, Row};
use serde::{Deserialize, Serialize};

use crate::record::Status;
use crate::stages::Stages;
use crate::telemetry::Telemetry;

/// Groups of launches between two events in a round at most, for ours and for references alike: an event costs about a
/// microsecond.
pub const GROUPS: u32 = 64;

/// How launches reach the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One call each.
    Stream,
    /// Replays of a captured CUDA graph.
    Graph,
}

/// One round of a contestant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lap {
    /// Microseconds of each launch by the device's events; for many launches, means of equal groups.
    pub us: Vec<f64>,
    /// CPU microseconds to enqueue one launch, where known.
    pub host_us: Option<f64>,
}

/// Why a contestant gives no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// The kind.
    pub status: Status,
    /// What went wrong, what is allowed, what to do.
    pub reason: String,
}

impl Failure {
    /// A failure of kind `status`.
    pub fn new(status: Status, reason: impl Into<String>) -> Self {
        Failure { status, reason: reason.into() }
    }

    /// Not served or not available.
    pub fn unsupported(reason: impl Into<String>) -> Self {
        Failure::new(Status::Unsupported, reason)
    }
}

/// What a contestant computed, as far as it is judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// O as storage bits: the rows that the job asks for, or all, (batch, token, head, dim).
    pub o: Vec<u16>,
    /// (batch, head, token); empty where the kernel gives none.
    pub lse: Vec<f32>,
    /// Where only some rows are asked for: dense index of the first element of all of O that is NaN or infinite.
    pub not_finite: Option<u64>,
}

/// One kernel, ours or another's, with its own copies of the inputs in device memory.
pub trait Contestant {
    /// Its name: `ours`, the name of another kernel of ours, or a reference's.
    fn id(&self) -> &str;
    /// What really runs: an entry function, or a reference's own words.
    fn route(&self) -> Option<String>;
    /// Versions of what it is made of.
    fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Runs once on every copy and answers with one copy's output, after having seen that all are of the same bits.
    fn run_once(&mut self) -> Result<Answer, Failure>;
    /// Runs `launches` times in turn over the copies.
    fn time(&mut self, launches: u32, mode: Mode) -> Result<Lap, Failure>;
    /// The output that timed launches left, under the same conditions as [`Contestant::run_once`].
    fn leftover(&mut self) -> Result<Answer, Failure>;
}

/// A scenario row with its data, ready for every contestant.
pub struct Job<'a> {
    /// The scenario row.
    pub row: &'a Row,
    /// As a case.
    pub case: &'a Case,
    /// The bytes that everybody gets.
    pub inputs: &'a Inputs,
    /// The same as the contents of its buffers.
    pub images: &'a [Vec<u8>],
    /// Rows of O that are judged; `None`: all.
    pub rows: Option<&'a [RowAt]>,
    /// Sets of tensors to go through.
    pub copies: u32,
    /// Time for one call of a contestant, after which it counts as hung.
    pub limit: Duration,
    /// Where the row's time goes.
    pub stages: &'a Stages,
}

/// A reference by name: ready, or why not.
pub type Entrant<'a> = (String, Result<Box<dyn Contestant + 'a>, Failure>);

/// Those who take part in a row.
pub struct Field<'a> {
    /// Our kernels that serve it, the routed one first.
    pub ours: Vec<Box<dyn Contestant + 'a>>,
    /// The references.
    pub references: Vec<Entrant<'a>>,
}

/// What a GPU is called and what it is like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuRecord {
    /// Its number in this process.
    pub ordinal: u32,
    /// Product name.
    pub name: String,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Level-2 cache in bytes.
    pub l2_bytes: u64,
    /// Highest SM clock in MHz.
    pub max_clock_mhz: u32,
    /// The driver's own version, where NVML tells it, else the CUDA version that it supports.
    pub driver: String,
    /// Enforced power limit in watts.
    pub power_limit_w: Option<f64>,
}

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Seconds of timing a row may take.
    pub budget_s: f64,
    /// Device time of a round.
    pub round: Duration,
    /// Pause before a round.
    pub rest: Duration,
    /// Device time of a sustained run; its second half counts. A third of the budget, from 1 s to 1.5 s.
    pub sustained: Duration,
}

impl Effort {
    /// The usual effort within `budget_s` seconds.
    pub fn within(budget_s: f64) -> Self {
        let ms = Duration::from_millis;
        let sustained = Duration::from_secs_f64((budget_s / 3.0).clamp(1.0, 1.5));
        Effort { budget_s, round: ms(10), rest: ms(10), sustained }
    }
}

/// A machine that runs rows.
pub trait Runner {
    /// The GPU.
    fn gpu(&self) -> GpuRecord;
    /// Whether a kernel of ours serves the case, and the name of the routed one.
    fn route(&self, case: &Case) -> Result<String, Failure>;
    /// SHA-256 of a kernel's cubin, shortened.
    fn artifact(&mut self, kernel: &str) -> Option<String>;
    /// Makes the contestants ready.
    ///
    /// # Errors
    /// Where our own kernel cannot be made ready.
    fn field<'a>(&'a mut self, job: &Job<'a>) -> Result<Field<'a>, Failure>;
    /// Readings of the GPU; shared, since the field keeps the runner borrowed.
    fn telemetry(&self) -> Arc<Telemetry>;
    /// How much is run.
    fn effort(&self) -> Effort;
    /// Most bytes that one contestant's copies may take.
    fn memory_share(&self) -> u64;
}
