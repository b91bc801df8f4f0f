//! How a command ends: the exit codes that scripts may rely on.

use std::process::{ExitCode, ExitStatus};

/// A command that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Exit code 1: something was judged wrong.
    #[error("{0}")]
    Judged(String),
    /// Exit code 2: usage or bad input.
    #[error("{0}")]
    Usage(String),
    /// Exit code 3: this machine lacks something; the text says what mends it.
    #[error("{0}")]
    Environment(String),
    /// The exit code of a program that has already said what is wrong.
    #[error("")]
    Child(u8),
}

/// What commands return.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Judged(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Environment(_) => 3,
            Failure::Child(code) => *code,
        })
    }

    /// A child's status as an outcome; one that a signal ended counts as our bug (101).
    pub fn of(status: ExitStatus) -> Outcome {
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(Failure::Child(u8::try_from(code).unwrap_or(101))),
            None => Err(Failure::Child(101)),
        }
    }
}
