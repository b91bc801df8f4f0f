//! Why nothing was published. No text here holds a token: whatever a server said was redacted before it came here.

use std::path::PathBuf;

use fa4_gate::error::exit;
use thiserror::Error;

use super::secret::SecretError;

/// Why nothing was published.
#[derive(Debug, Error)]
pub enum PublishError {
    /// No token in the environment.
    #[error(
        "no token: set the environment variable {variable} to one that may write commit statuses and pull-request \
         comments, or use --dry-run"
    )]
    NoToken {
        /// The variable.
        variable: &'static str,
    },
    /// Not a token.
    #[error("the environment variable {variable} holds no token: {what}")]
    Token {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        what: SecretError,
    },
    /// A flag's value.
    #[error("{flag} {value}: {what}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        what: &'static str,
    },
    /// The server does not want it.
    #[error("{what}: the server answered {status}: {body}{}", advice(*status))]
    Refused {
        /// What was to be done.
        what: String,
        /// HTTP status.
        status: u16,
        /// What the server said, redacted and shortened.
        body: String,
    },
    /// The server wants us elsewhere.
    #[error(
        "{what}: the server answered {status} and points to {to}; not followed, since the token is for one server only; \
         if the repository was renamed, give its new name"
    )]
    Redirected {
        /// What was to be done.
        what: String,
        /// HTTP status.
        status: u16,
        /// Host and path.
        to: String,
    },
    /// No usable answer, however often it was asked.
    #[error("{what}: no success in {attempts} attempts; the last one: {last}")]
    GaveUp {
        /// What was to be done.
        what: String,
        /// How often.
        attempts: u32,
        /// Why the last one failed.
        last: String,
    },
    /// An answer that is not what the interface promises.
    #[error("{what}: the answer makes no sense: {detail}")]
    Nonsense {
        /// What was to be done.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The HTTP library does not start.
    #[error("cannot set up HTTP: {0}")]
    Client(String),
    /// The results to publish.
    #[error("{}: {what}", path.display())]
    Results {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nobody reads what is printed.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; the token is wrong or has expired",
        403 => "; the token lacks a permission: commit statuses and pull requests, write",
        404 => "; the repository, commit or pull request does not exist, or the token may not see it",
        422 => "; the commit is not in the repository, or the request is malformed",
        _ => "",
    }
}

impl PublishError {
    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            PublishError::Flag { .. } | PublishError::Results { .. } => exit::USAGE,
            _ => exit::ENVIRONMENT,
        }
    }
}
