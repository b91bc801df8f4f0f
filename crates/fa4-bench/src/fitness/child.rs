//! This program again, with a deadline: what a stranger's kernel does to a process, it does to that one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::BenchError;

/// Of the child's words, in a reason.
const LAST_WORDS_CHARS: usize = 600;
/// Between two looks at the child.
const LOOK: Duration = Duration::from_millis(20);

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself; a signal counts as a bug of ours.
    Code(u8),
    /// It was killed.
    TooLate,
}

/// A task of this program with its flags.
pub struct Run {
    args: Vec<OsString>,
    /// What it wrote, once it has run.
    words: String,
}

impl Run {
    /// A task.
    pub fn new(task: &str) -> Self {
        Run { args: vec![task.into()], words: String::new() }
    }

    /// A flag without a value.
    pub fn flag(&mut self, name: &str) -> &mut Self {
        self.args.push(name.into());
        self
    }

    /// A flag with its value.
    pub fn pair(&mut self, name: &str, value: impl Into<OsString>) -> &mut Self {
        self.flag(name);
        self.args.push(value.into());
        self
    }

    /// Runs it to its end or to the deadline.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn wait(&mut self, limit: Duration) -> Result<Ended, BenchError> {
        let here = || BenchError::file("this program");
        let program = std::env::current_exe().map_err(here())?;
        // A file and no pipe: nobody has to read while the child runs.
        let mut words = tempfile::tempfile().map_err(here())?;
        let stream = |file: &File| file.try_clone().map(Stdio::from).map_err(here());
        let mut child = Command::new(program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(stream(&words)?)
            .stderr(stream(&words)?)
            .spawn()
            .map_err(here())?;
        let until = Instant::now() + limit;
        let ended = loop {
            if let Some(status) = child.try_wait().map_err(here())? {
                break Ended::Code(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(101));
            }
            if Instant::now() > until {
                // Workers of a `bench` end with it: their standard input does.
                let _ = child.kill();
                let _ = child.wait();
                break Ended::TooLate;
            }
            std::thread::sleep(LOOK);
        };
        let mut bytes = Vec::new();
        let read = words.seek(SeekFrom::Start(0)).and_then(|_| words.read_to_end(&mut bytes));
        self.words = read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned());
        Ok(ended)
    }

    /// What it wrote from the first `error: ` on, or else the beginning of it.
    pub fn last_words(&self) -> String {
        let text = self.words.trim();
        let text = text.find("error: ").map_or(text, |at| &text[at + "error: ".len()..]);
        let skipped = text.chars().count().saturating_sub(LAST_WORDS_CHARS);
        match skipped {
            0 => text.to_string(),
            _ => text.chars().take(LAST_WORDS_CHARS).chain(['…']).collect(),
        }
    }
}
