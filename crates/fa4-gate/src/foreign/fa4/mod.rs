//! FlashAttention-4's forward kernels as strangers: compiled on this machine from the published package, launched as its
//! own host code would, and judged against the oracle.
//!
//! The code is not ours and is not committed: PTX and launch data are made below `target/`, by Python in an environment of
//! its own (`foreign/fa4/`, see the README there). Committed is what came of it, `foreign/fa4/evidence.json`.
//!
//! [`catalog`]: the cases; [`package`]: the environment; [`capture`]: PTX and launches; [`run`]: one case under one
//! schedule; [`evidence`]: the committed record; [`mutants`]: the kernels broken on purpose, so that a clean verdict means
//! something; [`command`]: all of it from flags to exit code.

use std::path::PathBuf;

pub mod capture;
pub mod catalog;
pub mod command;
pub mod evidence;
pub mod mutants;
pub mod package;
pub mod run;

/// Folder of the scripts and the evidence below the workspace root.
pub const FOLDER: &str = "foreign/fa4";
/// What rows and findings call these kernels.
pub const NAMESPACE: &str = "fa4";

/// Why FlashAttention-4's kernels could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment is not there, or is another than the requirements say.
    #[error(
        "FlashAttention-4 is {state} in {}; `cargo xtask foreign fa4 --setup` installs it (about 5 GB)",
        folder.display()
    )]
    NotSetUp {
        /// Where it should be.
        folder: PathBuf,
        /// In what way it is not there.
        state: &'static str,
    },
    /// A program could not be started or failed.
    #[error("`{program}` {how}")]
    Program {
        /// What was called.
        program: String,
        /// What happened, with the end of its output.
        how: String,
    },
    /// A file of ours or one that the scripts should have written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A file with other content than expected.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    /// Whether this machine is to blame and not an input.
    pub fn is_environment(&self) -> bool {
        matches!(self, Error::NotSetUp { .. } | Error::Program { .. })
    }
}

fn read(path: PathBuf) -> Result<String, Error> {
    std::fs::read_to_string(&path).map_err(|source| Error::File { path, source })
}

fn write(path: PathBuf, text: &str) -> Result<(), Error> {
    std::fs::write(&path, text).map_err(|source| Error::File { path, source })
}

/// The last lines of a program's output: where Python says what went wrong.
fn tail(text: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n  ")
}
