//! What runs before this one have found, a line per mutant: an interrupted run goes on where it stopped.
//!
//! `KERNEL.jsonl` is of a run of all mutants, `KERNEL.part.jsonl` of a part of them. A run that starts anew keeps the file
//! that was there as `….old`, so that no hour of work is lost to a forgotten `--resume`.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::GateError;
use crate::mutate::evidence::Evidence;
use crate::mutate::target::Target;
use crate::mutate::trial::Outcome;

/// Outcomes by what was run and the mutant's name.
pub struct State {
    path: PathBuf,
    file: File,
    known: HashMap<(String, String), Found>,
}

/// What a mutant came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What was said about it.
    pub report: Option<Evidence>,
    /// Wall time of its runs.
    pub seconds: f64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    run: String,
    id: String,
    #[serde(flatten)]
    found: Found,
}

/// The file of a kernel: of a run of all its mutants, or of a `part`.
pub fn path(root: &Path, kernel: &str, part: bool) -> PathBuf {
    root.join("target/mutate").join(format!("{kernel}{}.jsonl", if part { ".part" } else { "" }))
}

impl State {
    /// Opens the file of `kernel`. With `resume` it goes on, and what the other of the two files holds is known, too;
    /// without it starts empty, and the file that was there becomes `….old`. Lines that are no records (a run killed in the
    /// middle of one) are skipped.
    ///
    /// # Errors
    /// [`GateError::File`].
    pub fn open(root: &Path, kernel: &str, part: bool, resume: bool) -> Result<Self, GateError> {
        let path = path(root, kernel, part);
        let error = |source| GateError::File { path: path.clone(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(error)?;
        }
        let (mut known, mut torn) = (HashMap::new(), false);
        if resume {
            for one in [true, false] {
                let text = std::fs::read_to_string(self::path(root, kernel, one)).unwrap_or_default();
                torn |= one == part && !text.is_empty() && !text.ends_with('\n');
                for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
                    known.insert((line.run, line.id), line.found);
                }
            }
        } else if std::fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            std::fs::rename(&path, path.with_extension("jsonl.old")).map_err(error)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(error)?;
        if torn {
            writeln!(file).map_err(error)?;
        }
        Ok(State { path, file, known })
    }

    /// What became of a mutant before.
    pub fn get(&self, run: &str, id: &str) -> Option<Found> {
        self.known.get(&(run.to_string(), id.to_string())).cloned()
    }

    /// Notes an outcome at once.
    ///
    /// # Errors
    /// [`GateError::File`].
    pub fn add(&mut self, run: &str, id: &str, found: &Found) -> Result<(), GateError> {
        let line = Line { run: run.to_string(), id: id.to_string(), found: found.clone() };
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
