//! Everything that can keep a problem from running: what was given, what is allowed, what to do.

use fa4_spec::problem::ProblemError;
use thiserror::Error;

/// Why a problem gives no result.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum HostError {
    /// The problem makes no sense for any kernel.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// No kernel serves the problem.
    #[error("{what} is {given}; {kernel} takes {allowed}. {advice}")]
    Unsupported {
        /// The property.
        what: &'static str,
        /// Its value.
        given: String,
        /// The kernel that came nearest.
        kernel: &'static str,
        /// What that kernel takes.
        allowed: String,
        /// What the caller can do.
        advice: &'static str,
    },
    /// A tensor's address or strides cannot be used.
    #[error("{tensor}: {what} is {given}; it must be {allowed}. {advice}")]
    Tensor {
        /// `q`, `k`, `v`, `o` or `lse`.
        tensor: &'static str,
        /// The property.
        what: &'static str,
        /// Its value.
        given: String,
        /// What is allowed.
        allowed: String,
        /// What the caller can do.
        advice: &'static str,
    },
    /// The compiled kernel's own tables contradict this launcher.
    #[error("{kernel}: {what}; the kernel and this launcher are of different versions, rebuild both")]
    Abi {
        /// Entry name.
        kernel: String,
        /// The contradiction.
        what: String,
    },
    /// The machine could not do it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What a machine can answer instead of a result.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum DeviceError {
    /// An access outside every allocation, or no memory left.
    #[error("memory: {0}")]
    Memory(String),
    /// The code cannot be loaded.
    #[error("cannot load the kernel: {0}")]
    Load(String),
    /// The machine refuses a tensor map.
    #[error("tensor map: {0}")]
    TensorMap(String),
    /// The kernel is wrong; the rendering names the place.
    #[error("{rendering}")]
    Fault {
        /// Stable code, such as `lease.tmem`.
        code: String,
        /// The whole report; names the code.
        rendering: String,
    },
    /// The machine does not implement something the kernel uses.
    #[error("not supported by this device: {0}")]
    Unsupported(String),
    /// The step or time limit was reached.
    #[error("gave up: {0}")]
    Timeout(String),
    /// Memory was read that nobody wrote.
    #[error("undefined: {0}")]
    Undefined(String),
}
