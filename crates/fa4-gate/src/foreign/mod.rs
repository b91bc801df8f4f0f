//! Strangers' kernels, run in the emulator and judged against f64. The modules here are the section of Triton's kernels,
//! whose PTX is committed; [`fa4`] has FlashAttention-4's, [`findings`] what the emulator remarks on any of them, and
//! [`command`] the tasks of `cargo xtask foreign`.
//!
//! Triton's kernels are the evidence that the emulator runs Blackwell and Hopper code as the chips do, because neither their tile
//! layouts nor their barrier protocols come from our reading of the manual (`foreign/triton/README.md`).
//!
//! [`catalog`] holds the committed kernels and the cases; [`inputs`] makes a case's data; [`reference`] says what must
//! come out and how far off it may be; [`params`] lays out the parameters; [`launch`] is the only part that knows the emulator.

use std::fmt;

pub mod catalog;
pub mod command;
pub mod fa4;
pub mod findings;
pub mod format;
pub mod inputs;
pub mod launch;
pub mod params;
pub mod reference;

pub use catalog::{Case, Kernel, cases, kernels};
pub use inputs::{Setup, setup};
pub use launch::{Device, Emulator, Fault, LaunchSpec};

use inputs::Output;

/// Everything that can go wrong with a case before its numbers are compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A committed metadata file does not describe a launchable kernel.
    #[error("{kernel}.json: {reason}; rebuild it with foreign/triton/compile.py")]
    Metadata {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        reason: String,
    },
    /// The case leaves a parameter without a value of the right kind.
    #[error("{kernel}: parameter {parameter}: {reason}")]
    Parameter {
        /// The kernel's name.
        kernel: String,
        /// The parameter's name in the signature.
        parameter: String,
        /// What is wrong.
        reason: String,
    },
    /// The machine refused or stopped the launch.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// How one output of one case compares with its f64 reference.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The output's parameter name.
    pub output: &'static str,
    /// Worst |got − want| / bound over all elements; at most 1 passes. Infinite where a value is not finite.
    pub ratio: f64,
    /// Where the worst element is: (row, column).
    pub at: (usize, usize),
    /// What the kernel wrote there.
    pub got: f64,
    /// What f64 says.
    pub want: f64,
    /// How far off it may be.
    pub bound: f64,
}

impl Judgement {
    /// Whether every element is within its bound.
    pub fn passed(&self) -> bool {
        self.ratio <= 1.0
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { output, ratio, at: (row, column), got, want, bound } = self;
        write!(
            f,
            "{output}: worst error {ratio:.3} of the bound at [{row}, {column}]: got {got:e}, f64 says {want:e} ± {bound:.2e}"
        )
    }
}

/// Runs one case on `device` and judges every output that the kernel promises to write.
///
/// `setup` comes from [`inputs::setup`]; make it once per case, its f64 reference costs more than many a launch.
///
/// # Errors
/// [`Error::Fault`] where the machine found a fault (an output byte left undefined included); the others mean that the
/// case or the committed data is broken.
pub fn run(kernel: &Kernel, setup: &Setup, device: &mut impl Device) -> Result<Vec<Judgement>, Error> {
    let addresses = place(setup, device)?;
    let params = params::pack(kernel, setup, &addresses, device)?;
    let promised: Vec<(u64, u64)> = setup
        .outputs
        .iter()
        .flat_map(|output| {
            let base = addresses[output.buffer];
            output.written(setup).into_iter().map(move |(at, bytes)| (base + at as u64, bytes as u64))
        })
        .collect();
    let meta = &kernel.meta;
    device.launch(&LaunchSpec {
        name: kernel.name,
        ptx: kernel.ptx,
        entry: &meta.entry,
        grid: [setup.grid[0] * meta.num_ctas, setup.grid[1], setup.grid[2]],
        block: [32 * meta.num_warps, 1, 1],
        cluster: [meta.num_ctas, 1, 1],
        shared_bytes: meta.shared,
        params: &params,
        outputs: &promised,
    })?;
    setup
        .outputs
        .iter()
        .map(|output| {
            let format = setup.buffers[output.buffer].format;
            let mut got = vec![];
            for (offset, length) in output.written(setup) {
                let bytes = device.read(output.name, addresses[output.buffer] + offset as u64, length)?;
                got.extend(format.from_bytes(&bytes));
            }
            Ok(judge(output, &got))
        })
        .collect()
}

/// Allocates every buffer of `setup` and fills those that are inputs; outputs stay undefined.
fn place(setup: &Setup, device: &mut impl Device) -> Result<Vec<u64>, Fault> {
    setup
        .buffers
        .iter()
        .map(|buffer| {
            let address = device.alloc(buffer.name, buffer.bytes())?;
            if let Some(data) = &buffer.data {
                device.write(address, data)?;
            }
            Ok(address)
        })
        .collect()
}

/// Compares `got` with what `output` expects.
pub fn judge(output: &Output, got: &[f64]) -> Judgement {
    let expected = &output.expected;
    let mut worst = Judgement {
        output: output.name,
        ratio: -1.0,
        at: (0, 0),
        got: f64::NAN,
        want: f64::NAN,
        bound: f64::NAN,
    };
    for (i, &got) in got.iter().enumerate() {
        let (want, bound) = (expected.value[i], expected.bound[i]);
        let ratio = if got.is_finite() { (got - want).abs() / bound } else { f64::INFINITY };
        if ratio > worst.ratio {
            worst = Judgement {
                output: output.name,
                ratio,
                at: (i / expected.columns, i % expected.columns),
                got,
                want,
                bound,
            };
        }
    }
    worst
}

#[cfg(test)]
mod tests;
