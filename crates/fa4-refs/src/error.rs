//! How a reference may fail. Every variant becomes a row's status and a message that says what to do.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

/// What stands in a result row for a reference that gave no figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The library is not here.
    Unavailable,
    /// The library does not compute this.
    Unsupported,
    /// The device's memory is too small for it.
    OutOfMemory,
    /// The library answered with an error.
    Error,
    /// No answer in time; the process was killed.
    Timeout,
    /// The process died.
    Crashed,
    /// The process said something that makes no sense.
    Protocol,
    /// fa4 itself could not do its part (files, starting a process).
    Host,
}

/// The last of what a child wrote to its standard error; may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stderr(pub String);

/// Characters of [`Stderr`] that an error message shows.
const SHOWN_CHARS: usize = 1500;

impl fmt::Display for Stderr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.trim_end();
        if text.is_empty() {
            return f.write_str("; it wrote nothing to its standard error");
        }
        let skipped = text.chars().count().saturating_sub(SHOWN_CHARS);
        let shown: String = text.chars().skip(skipped).collect();
        let cut = if skipped > 0 { "…" } else { "" };
        write!(f, "; its standard error ends:\n{cut}{shown}")
    }
}

/// Why a reference gave no answer.
#[derive(Debug, Error)]
pub enum RefError {
    /// The library is not here.
    #[error("{id} is unavailable: {reason}")]
    Unavailable {
        /// The reference.
        id: String,
        /// What is missing.
        reason: String,
    },
    /// The library does not compute this problem.
    #[error("{id} does not support this: {reason}")]
    Unsupported {
        /// The reference.
        id: String,
        /// What it does not do.
        reason: String,
    },
    /// The device's memory is too small.
    #[error("{id}: out of device memory in `{op}`: {message}")]
    OutOfMemory {
        /// The reference.
        id: String,
        /// The request.
        op: &'static str,
        /// The library's words.
        message: String,
    },
    /// The library answered with an error.
    #[error("{id} failed in `{op}`: {message}{stderr}")]
    Failed {
        /// The reference.
        id: String,
        /// The request.
        op: &'static str,
        /// The library's words.
        message: String,
        /// What it wrote.
        stderr: Stderr,
    },
    /// No answer in time.
    #[error("{id} gave no answer to `{op}` within {seconds:.1} s and was killed{stderr}")]
    Timeout {
        /// The reference.
        id: String,
        /// The request.
        op: &'static str,
        /// The deadline.
        seconds: f64,
        /// What it wrote.
        stderr: Stderr,
    },
    /// The process died.
    #[error("{id} died in `{op}`: {how}{stderr}")]
    Crashed {
        /// The reference.
        id: String,
        /// The request.
        op: &'static str,
        /// Exit code or signal.
        how: String,
        /// What it wrote.
        stderr: Stderr,
    },
    /// The process said something that makes no sense; it was killed, since its state is unknown.
    #[error("{id} broke the protocol in `{op}`: {what}{stderr}")]
    Protocol {
        /// The reference.
        id: String,
        /// The request.
        op: &'static str,
        /// What was wrong, with the offending text.
        what: String,
        /// What it wrote.
        stderr: Stderr,
    },
    /// The process speaks another version.
    #[error(
        "{program} speaks protocol {theirs}, this build speaks {ours}: use adapters of the same checkout"
    )]
    Version {
        /// What was started.
        program: String,
        /// Its version.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The process could not be started.
    #[error("cannot start {program}: {error}; give another interpreter or install it")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        error: std::io::Error,
    },
    /// Reading or writing data failed.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// More data than the limit given by the caller.
    #[error("the inputs take {bytes} bytes, more than the {limit} that may be written to files")]
    TooLarge {
        /// Size of all buffers.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

impl RefError {
    /// The row's status.
    pub fn status(&self) -> Status {
        match self {
            RefError::Unavailable { .. } => Status::Unavailable,
            RefError::Unsupported { .. } => Status::Unsupported,
            RefError::OutOfMemory { .. } => Status::OutOfMemory,
            RefError::Failed { .. } => Status::Error,
            RefError::Timeout { .. } => Status::Timeout,
            RefError::Crashed { .. } => Status::Crashed,
            RefError::Protocol { .. } | RefError::Version { .. } => Status::Protocol,
            RefError::Start { .. } => Status::Unavailable,
            RefError::Io { .. } | RefError::TooLarge { .. } => Status::Host,
        }
    }

    /// The child's standard error, where there was a child.
    pub fn stderr(&self) -> Option<&str> {
        match self {
            RefError::Failed { stderr, .. }
            | RefError::Timeout { stderr, .. }
            | RefError::Crashed { stderr, .. }
            | RefError::Protocol { stderr, .. } => Some(&stderr.0),
            _ => None,
        }
    }
}
