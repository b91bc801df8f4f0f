//! A pipelined kernel is pipelined: the emulator's timed schedule predicts the critical path under unit costs, for 256
//! query rows of one head and eight K/V blocks. A prediction about the protocol, never a measurement of speed.

use std::fmt;

use fa4_host::emu::{EmuDevice, EmuModule};
use fa4_spec::problem::MaskKind;
use fa4_spec::{AttnProblem, Case, DType, Mask};
use ptx_emu::launch::{Options, Schedule};
use ptx_emu::machine::predict::Prediction;

use crate::judge::{prepare, run};
use crate::kernels::Kernel;

/// Critical path over the busier of matrix pipe and multi-function unit: more is a serial kernel.
const MOST: f64 = 1.25;

/// What the timed schedule says of one kernel.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The kernel.
    pub kernel: String,
    /// Its prediction, or why there is none.
    pub prediction: Result<Prediction, String>,
}

impl Pipeline {
    /// Whether the critical path is short enough.
    pub fn is_pipelined(&self) -> bool {
        self.prediction.as_ref().is_ok_and(|p| p.ratio() <= MOST)
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.prediction {
            Ok(p) => write!(
                f,
                "{}pipelining of {} (predicted, 8 K/V blocks): critical path {} cycles, {:.3} × the busier of matrix pipe \
                 ({}) and multi-function unit ({}); at most {MOST}",
                if self.is_pipelined() { "" } else { "fail: " },
                self.kernel,
                p.cycles,
                p.ratio(),
                p.mma,
                p.mufu
            ),
            Err(reason) => write!(f, "fail: pipelining of {}: no prediction: {reason}", self.kernel),
        }
    }
}

/// Predicts every kernel whose mask is full: with eight blocks for both tiles it shows the steady state; a causal one
/// differs in which blocks it skips and not in its protocol.
pub fn predict(kernels: &[Kernel<EmuModule>]) -> Vec<Pipeline> {
    let full = kernels.iter().filter(|k| fa4_host::routes::mask_of(k.row) == MaskKind::Full);
    full.map(|kernel| Pipeline { kernel: kernel.name.clone(), prediction: one(kernel) }).collect()
}

fn one(kernel: &Kernel<EmuModule>) -> Result<Prediction, String> {
    let head_dim = u64::from(kernel.row.problem.head_dim_qk);
    let problem = AttnProblem::dense(1, (256, 1024), (1, 1), head_dim, Mask::FULL, DType::Bf16);
    let case = Case::dense("pipelining", problem, 1);
    let data = prepare(&case).map_err(|e| e.to_string())?;
    let mut device = EmuDevice::new(Options { schedule: Schedule::Timed, ..Options::default() });
    run(kernel, &case, &data, &mut device);
    let prediction = device.report().and_then(|report| report.prediction);
    prediction.ok_or_else(|| "the timed run did not end".to_string())
}
