//! What is said to a child process and what it answers: one JSON object a line, over its standard input and output.
//!
//! Every request carries the protocol's version and a number that the answer repeats. An answer has `ok` with the
//! operation's result, or `error` with a kind and a message. `docs/references.md` describes it for writers of adapters.

use std::path::PathBuf;

use fa4_spec::AttnProblem;
use serde::{Deserialize, Serialize};

use crate::files::Description;
use crate::reference::{LseBase, RowAt, Versions};

/// Version of all of this. Any change that an old adapter would not understand raises it.
pub const PROTOCOL: u32 = 2;

/// A request as it is sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Repeated by the answer.
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub op: Op,
}

/// What a child can be asked.
// One exists at a time, for as long as it takes to send it.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// First of all: who are you? Answer: [`Hello`]. Must not load any library.
    Hello,
    /// Load a reference's library. Answer: [`Versions`].
    Versions {
        /// Who.
        reference: String,
    },
    /// Answer: an empty object, or an error of kind `unsupported`.
    Supports {
        /// Who.
        reference: String,
        /// What.
        problem: AttnProblem,
    },
    /// Load data and build all that a run needs. Answer: [`PrepareReply`].
    Prepare {
        /// Who.
        reference: String,
        /// What later requests will call it.
        handle: u64,
        /// What.
        problem: AttnProblem,
        /// On which data.
        inputs: Description,
    },
    /// Run once into memory filled with NaN; write dense (batch, seqlen_q, head, dim) bits of O to `o`, or those of `rows`
    /// alone, and, where the library gives one, all of f32 (batch, head, seqlen_q) LSE to `lse`. Answer: [`OutputReply`].
    Output {
        /// Whose.
        handle: u64,
        /// File for O.
        o: PathBuf,
        /// File for the LSE.
        lse: PathBuf,
        /// Rows of O to write, in this order; absent: all. Long problems have gigabytes of O, of which some rows are judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rows: Option<Vec<RowAt>>,
    },
    /// Answer: [`Route`].
    Route {
        /// Whose.
        handle: u64,
    },
    /// Answer: [`Timing`].
    Time {
        /// Whose.
        handle: u64,
        /// How.
        #[serde(flatten)]
        request: TimeRequest,
    },
    /// Free it. Answer: an empty object.
    Release {
        /// Whose.
        handle: u64,
    },
}

impl Op {
    /// The name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Hello => "hello",
            Op::Versions { .. } => "versions",
            Op::Supports { .. } => "supports",
            Op::Prepare { .. } => "prepare",
            Op::Output { .. } => "output",
            Op::Route { .. } => "route",
            Op::Time { .. } => "time",
            Op::Release { .. } => "release",
        }
    }
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The request's number.
    pub id: u64,
    /// Result of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<serde_json::Value>,
    /// Or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReply>,
}

/// An operation that failed while the process lives on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorReply {
    /// What it is.
    pub kind: ErrorKind,
    /// In words.
    pub message: String,
}

/// Kinds of [`ErrorReply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The library, or what it needs, is not here.
    Unavailable,
    /// The library does not do this.
    Unsupported,
    /// The device's memory is too small.
    OutOfMemory,
    /// Anything else.
    Failed,
}

/// Answer to [`Op::Hello`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The child's protocol version.
    pub protocol: u32,
    /// References that it serves.
    pub references: Vec<String>,
}

/// Answer to [`Op::Versions`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionsReply {
    /// Libraries and versions.
    pub versions: Versions,
}

/// Answer to [`Op::Prepare`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PrepareReply {
    /// What a reader of the figures must know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Answer to [`Op::Output`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OutputReply {
    /// Base of the LSE that was written; `None` where none was.
    pub lse_base: Option<LseBase>,
    /// Where only some rows were asked for: the dense index of the first element of all of O that is NaN or infinite.
    #[serde(default)]
    pub not_finite: Option<u64>,
}

/// Which kernels answered, and whether that is what was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The call that was made, in the library's words.
    pub called: String,
    /// Names of the kernels that one run launched, in order, by the profiler; empty where it could not look.
    pub kernels: Vec<String>,
    /// Whether those names are the ones that this reference stands for; `None` where that is unknown.
    pub proven: Option<bool>,
    /// Why unknown, or what is odd.
    #[serde(default)]
    pub note: String,
}

/// How iterations reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeMode {
    /// A call of the library per iteration.
    Event,
    /// A replay of a captured CUDA graph per iteration.
    Graph,
}

/// One round of a timing; the caller interleaves rounds of several references.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeRequest {
    /// Iterations that are timed.
    pub iterations: u32,
    /// Iterations before, not timed.
    pub warmup: u32,
    /// Calls or graph replays.
    pub mode: TimeMode,
    /// Copies of the tensors that iterations walk through in turn, so that no iteration finds its data in the L2 cache.
    /// At least 1.
    pub buffers: u32,
    /// Iterations between two events; at least 1. One event costs the device about a microsecond, which counts against
    /// short kernels, so that everybody who is compared has as many.
    #[serde(default = "one")]
    pub group: u32,
    /// Overrides [`crate::Deadlines::time`].
    #[serde(skip)]
    pub deadline: Option<std::time::Duration>,
}

fn one() -> u32 {
    1
}

impl TimeRequest {
    /// Times that the answer must have: one per group.
    pub fn times(&self) -> usize {
        self.iterations.div_ceil(self.group.max(1)) as usize
    }
}

impl Default for TimeRequest {
    fn default() -> Self {
        TimeRequest { iterations: 10, warmup: 2, mode: TimeMode::Event, buffers: 1, group: 1, deadline: None }
    }
}

/// What a round gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Microseconds of an iteration by device events, the mean of each group; the last group may be shorter.
    pub us: Vec<f64>,
    /// Microseconds of the host per iteration until it was queued, mean.
    pub host_us: f64,
    /// Copies of the tensors that were really used.
    pub buffers: u32,
}
