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
    /// There is no GPU to use: no driver, one that is too old, or no device.
    #[error("no GPU: {0}")]
    NoDevice(String),
    /// Nothing was compiled for this GPU.
    #[error("{device} runs {allowed}; the kernel was compiled for {given}")]
    Architecture {
        /// The GPU and its compute capability.
        device: String,
        /// Architectures that the kernel was compiled for.
        given: String,
        /// The architecture that the GPU runs.
        allowed: String,
    },
    /// The GPU's memory does not suffice.
    #[error("{name}: {bytes} bytes do not fit into the GPU's memory, {free} bytes are free ({driver})")]
    OutOfMemory {
        /// The allocation.
        name: String,
        /// Its size.
        bytes: u64,
        /// What was free when it failed.
        free: u64,
        /// The driver's own name of the failure.
        driver: String,
    },
    /// A launch that the GPU cannot start, found before the driver was asked.
    #[error("{kernel}: {what} is {given}; allowed: {allowed}")]
    Launch {
        /// Entry function.
        kernel: String,
        /// The property.
        what: &'static str,
        /// Its value.
        given: String,
        /// What is allowed.
        allowed: String,
    },
    /// The driver's own words for a failure.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// An earlier kernel broke the GPU's context; nothing runs in it any more.
    #[error("not run: an earlier kernel broke the GPU's context ({0}); start a new process")]
    Lost(String),
    /// Memory was read that nobody wrote.
    #[error("undefined: {0}")]
    Undefined(String),
}

impl DeviceError {
    /// Whether the machine lacks what was asked for (exit code 3), and no kernel is at fault.
    pub fn is_environment(&self) -> bool {
        matches!(self, DeviceError::NoDevice(_) | DeviceError::Architecture { .. })
    }
}

/// A failed call into the CUDA driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{call}: {name} ({text})")]
pub struct DriverError {
    /// The driver's function.
    pub call: &'static str,
    /// The status as a number.
    pub code: i32,
    /// The driver's name of the status, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// The driver's explanation.
    pub text: String,
}
