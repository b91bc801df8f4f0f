//! Why a command does not do what it was asked to, by exit code.

use std::path::PathBuf;

use fa4_gate::error::{GateError, exit};
use fa4_host::error::DeviceError;
use fa4_spec::sets::SetError;
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum BenchError {
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
    /// A CSV file.
    #[error("{}: {what}", path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No row matches.
    #[error("nothing to run: no row matches; a filter is matched against the ids of the rows")]
    Nothing,
    /// No GPU.
    #[error(
        "no GPU to time on ({0}); without one `cargo xtask gate` judges the kernels in the emulator, and \
         `cargo xtask results report` shows what was measured elsewhere"
    )]
    NoGpu(DeviceError),
    /// Kernels that do not compile, no toolchain.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A folder of built kernels.
    #[error("{}: {what}; `fa4-bench pack --out DIR` makes one", path.display())]
    Artifacts {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A result folder that cannot be used so.
    #[error("{}: {what}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A process of `fitness` that gave no verdict.
    #[error("{what}")]
    Fitness {
        /// Its words.
        what: String,
        /// Its exit code.
        code: u8,
    },
    /// No Python, or none with the packages that are needed.
    #[error("{what}")]
    Python {
        /// What is missing and what to do.
        what: String,
    },
    /// Publishing.
    #[error(transparent)]
    Publish(#[from] crate::publish::PublishError),
    /// Workers that do not come up.
    #[error("GPU {ordinal} cannot be used: {what}")]
    Worker {
        /// The GPU.
        ordinal: u32,
        /// The worker's words.
        what: String,
        /// Exit code of the failure.
        code: u8,
    },
}

impl BenchError {
    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::NoGpu(_) | BenchError::Python { .. } => exit::ENVIRONMENT,
            BenchError::Gate(error) => error.exit_code(),
            BenchError::Publish(error) => error.exit_code(),
            BenchError::Fitness { code, .. } | BenchError::Worker { code, .. } => *code,
            _ => exit::USAGE,
        }
    }

    /// A failure at `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| BenchError::File { path, source }
    }

    /// A folder that cannot be used.
    pub fn folder(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        BenchError::Folder { path: path.into(), what: what.into() }
    }
}
