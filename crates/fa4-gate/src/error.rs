//! Why the gate gives no verdict, by exit code.

use std::path::PathBuf;

use fa4_host::error::DeviceError;
use fa4_kernels::compile::BuildError;
use fa4_kernels::kernel_info::KernelInfoError;
use fa4_kernels::toolchain::ToolchainError;
use fa4_spec::sets::SetError;
use thiserror::Error;

/// Exit codes of every command.
pub mod exit {
    /// All right.
    pub const OK: u8 = 0;
    /// Something was judged wrong.
    pub const WRONG: u8 = 1;
    /// Usage or bad input.
    pub const USAGE: u8 = 2;
    /// No toolchain, no device.
    pub const ENVIRONMENT: u8 = 3;
    /// Interrupted.
    pub const INTERRUPTED: u8 = 4;
}

/// Why there is no verdict.
#[derive(Debug, Error)]
pub enum GateError {
    /// A flag's value.
    #[error("{flag} {value}: {what}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// A scenario file.
    #[error(transparent)]
    Set(#[from] SetError),
    /// A kernel that does not compile, or no compiler.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No compiler.
    #[error("{0}\nrun `cargo xtask setup`")]
    Toolchain(#[from] ToolchainError),
    /// A candidate that defines nothing to judge.
    #[error("{}: none of its entry functions ({defined}) is one that the gate launches; define at least one of {wanted}", path.display())]
    NoEntry {
        /// The candidate.
        path: PathBuf,
        /// What it defines.
        defined: String,
        /// What is judged.
        wanted: String,
    },
    /// A kernel without its tables.
    #[error("{kernel}: {source}")]
    Tables {
        /// The kernel.
        kernel: String,
        /// What is wrong with them.
        source: KernelInfoError,
    },
    /// PTX that the device cannot load.
    #[error("{kernel}: {what}")]
    Load {
        /// The kernel.
        kernel: String,
        /// The device's words.
        what: String,
    },
    /// No device of the kind asked for.
    #[error("--device {device}: {source}; --device emu needs none")]
    NoDevice {
        /// The value of `--device`.
        device: &'static str,
        /// Why there is none.
        source: DeviceError,
    },
    /// A file that cannot be written or read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The committed foreign kernels.
    #[error(transparent)]
    Foreign(#[from] crate::foreign::Error),
    /// FlashAttention-4's kernels.
    #[error(transparent)]
    Fa4(#[from] crate::foreign::fa4::Error),
    /// The triage of remarks on foreign kernels.
    #[error("{0}")]
    Findings(String),
    /// The list of justified survivors, or the document about them.
    #[error("{}: {what}", path.display())]
    Mutants {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A recorded instruction probe.
    #[error("{file}: {what}")]
    Probe {
        /// The file, with the line where there is one.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A twin's description.
    #[error("{}: {what}", path.display())]
    Twin {
        /// The TOML file.
        path: PathBuf,
        /// What is wrong and what is allowed.
        what: String,
    },
}

impl GateError {
    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            GateError::Build(error) if error.is_environment() => exit::ENVIRONMENT,
            GateError::Fa4(error) if error.is_environment() => exit::ENVIRONMENT,
            GateError::Toolchain(_) | GateError::NoDevice { .. } => exit::ENVIRONMENT,
            _ => exit::USAGE,
        }
    }
}
