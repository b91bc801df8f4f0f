//! Is a pipelined kernel pipelined? A prediction from the emulator's timed schedule, under unit costs.
//!
//! The problem is one head with eight K/V blocks. Only the matrix pipe and the multi-function unit cost anything, so
//! the larger of their two busy times is the least a perfect schedule could need; the condition bounds how far the
//! kernel's own critical path lies above it. Nothing here was measured on a GPU.

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_kernels::manifest::{self, Dtype, Mask as RowMask};
use fa4_spec::Case;
use fa4_spec::problem::{AttnProblem, DType, Mask};
use ptx_emu::launch::{Checks, Options, Schedule};
use ptx_emu::machine::predict::{Costs, Prediction};
use ptx_emu::trace::Trace;

use crate::judge::{prepare, run};
use crate::kernels::Kernel;

/// Largest critical path over the busier unit's time.
pub const MOST: f64 = 1.2;
/// Keys a K/V block holds.
const BLOCK: u64 = 128;
/// K/V blocks of the problem.
const BLOCKS: u64 = 8;

/// What was predicted for one kernel.
#[derive(Clone, Debug)]
pub struct Row {
    /// Kernel.
    pub kernel: String,
    /// With unit costs for matrix pipe and multi-function unit: the condition.
    pub units: Prediction,
    /// With an issue slot for every instruction and 800 cycles for a load besides: for information.
    pub issue: Prediction,
}

impl Row {
    /// Whether the condition holds.
    pub fn holds(&self) -> bool {
        self.units.ratio() <= MOST
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p = &self.units;
        write!(
            f,
            "{}: critical path {} cycles, matrix pipe {}, multi-function unit {}: ratio {:.3} (at most {MOST}); \
             pipe idle inside {}; with issue slots and load latency {} cycles",
            self.kernel,
            p.cycles,
            p.mma,
            p.mufu,
            p.ratio(),
            p.mma_idle_inside,
            self.issue.cycles
        )
    }
}

/// Whether the condition names a variant.
fn is_named(row: &manifest::Problem) -> bool {
    row.dtype == Dtype::Bf16 && row.mask != RowMask::General
}

/// The problem with eight K/V blocks for a variant.
fn case(row: &manifest::Problem) -> Case {
    let seqlen_k = BLOCKS * BLOCK;
    // Causal: the last tile pair sees every block.
    let seqlen_q = if row.mask == RowMask::Causal { seqlen_k } else { u64::from(row.rows_per_cta) };
    one_head(row, seqlen_q, seqlen_k)
}

/// A problem of one head for a variant, with the mask that it is made for.
pub fn one_head(row: &manifest::Problem, seqlen_q: u64, seqlen_k: u64) -> Case {
    let dtype = match row.dtype {
        Dtype::Bf16 => DType::Bf16,
        Dtype::Fp16 => DType::F16,
    };
    let problem = AttnProblem {
        batch: 1,
        seqlen_q,
        seqlen_k,
        num_heads_q: 1,
        num_heads_kv: 1,
        head_dim_qk: u64::from(row.head_dim_qk),
        head_dim_v: u64::from(row.head_dim_v),
        mask: if row.mask == RowMask::Causal { Mask::CAUSAL } else { Mask::FULL },
        sink: false,
        softcap: 0.0,
        scale: None,
        q_dtype: dtype,
        kv_dtype: dtype,
    };
    Case::dense("pipeline", problem, 1)
}

/// Predicts one kernel; `None` where the condition does not apply or the kernel does not run clean.
pub fn predict(kernel: &Kernel<EmuModule>) -> Option<Row> {
    let case = is_named(&kernel.row.problem).then(|| case(&kernel.row.problem))?;
    let data = prepare(&case).ok()?;
    let one = |costs| {
        let mut device = EmuDevice::new(Options {
            schedule: Schedule::Timed,
            checks: Checks::NONE,
            costs,
            ..Options::default()
        });
        run(kernel, &case, &data, &mut device);
        device.report().filter(|r| r.is_clean()).and_then(|r| r.prediction)
    };
    Some(Row { kernel: kernel.name.clone(), units: one(Costs::UNITS)?, issue: one(Costs::ISSUE)? })
}

/// The trace of the same problem: under the timed schedule in predicted cycles, under another in steps of the emulator.
///
/// # Errors
/// What stopped the run.
pub fn trace(kernel: &Kernel<EmuModule>, schedule: Schedule) -> Result<Trace, String> {
    let case = case(&kernel.row.problem);
    let data = prepare(&case).map_err(|e| e.to_string())?;
    let mut device = EmuDevice::new(Options { schedule, trace: true, ..Options::default() });
    let outcome = run(kernel, &case, &data, &mut device);
    let trace = device.report().filter(|r| r.is_clean()).and_then(|r| r.trace.clone());
    trace.ok_or_else(|| format!("{}: {:?}", kernel.name, outcome.verdict))
}
