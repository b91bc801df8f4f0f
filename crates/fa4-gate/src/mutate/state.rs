//! What runs before this one have found, a line per mutant: an interrupted run goes on where it stopped.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::GateError;
use crate::mutate::target::Target;
use crate::mutate::trial::Outcome;

/// Outcomes by what was run and the mutant's name.
pub struct State {
    path: PathBuf,
    file: File,
    known: HashMap<(String, String), (Outcome, f64)>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    id: String,
    #[serde(flatten)]
    outcome: Outcome,
    seconds: f64,
}

impl State {
    /// Opens the file; without `resume` it starts empty. Lines that are no records (a run killed in the middle of one) are
    /// skipped.
    ///
    /// # Errors
    /// [`GateError::File`].
    pub fn open(path: &Path, resume: bool) -> Result<Self, GateError> {
        let error = |source| GateError::File { path: path.to_path_buf(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(error)?;
        }
        let mut known = HashMap::new();
        if resume {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
                known.insert((line.run, line.id), (line.outcome, line.seconds));
            }
        }
        let file = OpenOptions::new().create(true).append(resume).write(true).truncate(!resume).open(path);
        Ok(State { path: path.to_path_buf(), file: file.map_err(error)?, known })
    }

    /// What became of a mutant before.
    pub fn get(&self, run: &str, id: &str) -> Option<(Outcome, f64)> {
        self.known.get(&(run.to_string(), id.to_string())).cloned()
    }

    /// Notes an outcome at once.
    ///
    /// # Errors
    /// [`GateError::File`].
    pub fn add(&mut self, run: &str, id: &str, outcome: &Outcome, seconds: f64) -> Result<(), GateError> {
        let line = Line { run: run.to_string(), id: id.to_string(), outcome: outcome.clone(), seconds };
        let text = serde_json::to_string(&line).expect("plain data has a JSON form");
        writeln!(self.file, "{text}").map_err(|source| GateError::File { path: self.path.clone(), source })
    }
}

/// Names what an outcome depends on: the kernel's text, the case, the seeds, and this very program.
pub fn fingerprint(ptx: &str, target: &Target, seeds: &Range<u64>) -> String {
    let mut hash = DefaultHasher::new();
    (ptx, target.name(), target.sizes, target.grid, seeds.start, seeds.end).hash(&mut hash);
    // The program by size and time: reading 30 MB to hash them would cost more than a mutant.
    if let Ok(meta) = std::env::current_exe().and_then(std::fs::metadata) {
        (meta.len(), meta.modified().ok()).hash(&mut hash);
    }
    format!("{:016x}", hash.finish())
}
