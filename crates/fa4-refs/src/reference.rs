//! What a third-party kernel must offer to stand beside ours in a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use fa4_spec::AttnProblem;

use crate::error::RefError;
use crate::files::InputFiles;
use crate::protocol::{Route, TimeRequest, Timing};

/// Names of libraries and their versions.
pub type Versions = BTreeMap<String, String>;

/// A problem that a reference has been made ready for: tensors on the device, plans and code built.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What it was made ready for.
    pub problem: AttnProblem,
    /// The data.
    pub inputs: Arc<InputFiles>,
    /// Seconds that this took, compilation included; never part of a timing.
    pub seconds: f64,
    /// What a reader of the figures must know, for example "K and V copied into pages".
    pub notes: Vec<String>,
    /// How the reference knows it.
    pub handle: u64,
    /// Which life of the child process `handle` belongs to.
    pub(crate) generation: u64,
}

impl Prepared {
    /// For references that live in this process: `handle` is theirs to choose.
    pub fn new(problem: AttnProblem, inputs: Arc<InputFiles>, handle: u64) -> Self {
        Prepared { problem, inputs, seconds: 0.0, notes: Vec::new(), handle, generation: 0 }
    }
}

/// (batch, token, query head) of a row of O.
pub type RowAt = (usize, usize, usize);

/// What a reference computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// O as storage bits, (batch, seqlen_q, head, dim), or (row, dim) of the rows asked for.
    pub o: Vec<u16>,
    /// Where rows were asked for: the dense index of the first element of all of O that is NaN or infinite.
    pub not_finite: Option<u64>,
    /// Natural logarithm of the sum of exponentials, (batch, head, seqlen_q); `None` where the library gives none.
    pub lse: Option<Vec<f32>>,
    /// Base of the logarithm that the library itself returned, before it was made natural here.
    pub lse_base: Option<LseBase>,
}

/// Base of a library's LSE. Reading one as the other is a classic wrong merge of split results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LseBase {
    /// Natural.
    #[serde(rename = "e")]
    E,
    /// Binary.
    #[serde(rename = "2")]
    Two,
}

/// A third-party attention kernel.
///
/// `supports` answers about the library's documented reach and about this machine; `prepare` may still find that there is
/// no kernel and then answers [`RefError::Unsupported`], too. After an error of the process (timeout, crash, protocol) the
/// next call starts afresh and makes `prepared` ready again by itself.
pub trait Reference: Send {
    /// The name in tables, from [`crate::catalog`].
    fn id(&self) -> &str;

    /// Versions of the libraries involved. [`RefError::Unavailable`] says why there are none.
    fn versions(&mut self) -> Result<Versions, RefError>;

    /// Whether it computes this problem; [`RefError::Unsupported`] gives the reason, [`RefError::Unavailable`] the
    /// library's absence.
    fn supports(&mut self, problem: &AttnProblem) -> Result<(), RefError>;

    /// Loads the data, builds plans and code.
    fn prepare(&mut self, problem: &AttnProblem, inputs: &Arc<InputFiles>) -> Result<Prepared, RefError>;

    /// Runs once, into memory that was filled with NaN, and hands back what it computed: all of O, or `rows` of it and
    /// whether all is finite.
    fn output(&mut self, prepared: &mut Prepared, rows: Option<&[RowAt]>) -> Result<Output, RefError>;

    /// Microseconds per iteration.
    fn time(&mut self, prepared: &mut Prepared, request: &TimeRequest) -> Result<Timing, RefError>;

    /// What really ran, as far as it can be shown.
    fn route(&mut self, prepared: &mut Prepared) -> Result<Route, RefError>;

    /// Frees what `prepare` made. A child that has died meanwhile has freed it already.
    fn release(&mut self, prepared: Prepared);
}
