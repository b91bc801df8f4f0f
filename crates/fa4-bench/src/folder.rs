//! A result folder: `env.json` (what was run, where, with what), `cases.csv` (its rows) and `raw.jsonl` (one finished row a
//! line, each on disk before the next is counted as done). Everything else in a folder is made from these three.
//!
//! A run may end at any moment. What `raw.jsonl` holds then is whole rows and perhaps the beginning of one more, which is
//! dropped when the run is taken up again: no row is lost that was reported, none is there twice.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::BenchError;
use crate::plan;
use crate::record::{RunRow, SCHEMA};

/// What was run, where and with what.
pub const ENV: &str = "env.json";
/// The run's rows.
pub const CASES: &str = "cases.csv";
/// The results.
pub const RAW: &str = "raw.jsonl";

/// A folder open for adding rows. Nobody else can open it meanwhile.
pub struct Folder {
    path: PathBuf,
    raw: File,
}

impl Folder {
    /// A new folder for a run.
    ///
    /// # Errors
    /// One that already holds a run, or that cannot be written.
    pub fn create(path: &Path, env: &Env, cases: &str) -> Result<Self, BenchError> {
        if path.join(RAW).exists() {
            let what = format!(
                "holds a run already; take it up with `--resume {}`, or name another --out",
                path.display()
            );
            return Err(BenchError::folder(path, what));
        }
        fs::create_dir_all(path).map_err(BenchError::file(path))?;
        write_atomically(&path.join(CASES), cases.as_bytes())?;
        write_atomically(&path.join(ENV), env.to_json().as_bytes())?;
        // Last: a folder without it is no run yet, and an interrupt before this point leaves nothing to resume.
        Self::lock(path)
    }

    /// The folder of an earlier run, with the rows that it finished.
    ///
    /// # Errors
    /// No run there, one that is still going on, or a damaged file.
    pub fn resume(path: &Path) -> Result<(Self, Vec<RunRow>), BenchError> {
        if !path.join(RAW).exists() {
            return Err(BenchError::folder(path, "holds no run to take up (no raw.jsonl)"));
        }
        let folder = Self::lock(path)?;
        let (rows, whole_bytes) = parse(&path.join(RAW))?;
        folder.raw.set_len(whole_bytes).map_err(BenchError::file(path.join(RAW)))?;
        Ok((folder, rows))
    }

    fn lock(path: &Path) -> Result<Self, BenchError> {
        let file = path.join(RAW);
        let raw =
            OpenOptions::new().create(true).append(true).open(&file).map_err(BenchError::file(&file))?;
        match raw.try_lock() {
            Ok(()) => Ok(Folder { path: path.into(), raw }),
            Err(fs::TryLockError::WouldBlock) => {
                Err(BenchError::folder(path, "another process is writing to it; wait for it to end"))
            }
            Err(fs::TryLockError::Error(source)) => Err(BenchError::File { path: file, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row; it is on disk when this returns.
    ///
    /// # Errors
    /// The system's words.
    pub fn append(&mut self, row: &RunRow) -> Result<(), BenchError> {
        let mut line = serde_json::to_string(row).expect("plain data has a JSON form");
        line.push('\n');
        // One call: a reader or a kill sees the whole line or its beginning, never two lines mixed.
        self.raw
            .write_all(line.as_bytes())
            .and_then(|()| self.raw.sync_data())
            .map_err(BenchError::file(self.path.join(RAW)))
    }
}

/// The rows of a folder, in the order of its plan.
///
/// # Errors
/// A damaged file, a row twice, or another schema.
pub fn rows(path: &Path) -> Result<Vec<RunRow>, BenchError> {
    let (mut rows, _) = parse(&path.join(RAW))?;
    rows.sort_by_key(|row| row.index);
    Ok(rows)
}

/// A folder's environment.
///
/// # Errors
/// A file that is not there or not of this form.
pub fn env(path: &Path) -> Result<Env, BenchError> {
    let file = path.join(ENV);
    let text = fs::read_to_string(&file).map_err(BenchError::file(&file))?;
    serde_json::from_str(&text)
        .map_err(|e| BenchError::folder(&file, format!("not the environment of a run: {e}")))
}

/// A folder's planned rows.
///
/// # Errors
/// As [`plan::read`].
pub fn cases(path: &Path) -> Result<Vec<fa4_spec::Row>, BenchError> {
    plan::read(&path.join(CASES))
}

/// Rows of `raw.jsonl`, and up to which byte it is whole.
fn parse(file: &Path) -> Result<(Vec<RunRow>, u64), BenchError> {
    let bytes = fs::read(file).map_err(BenchError::file(file))?;
    let (mut rows, mut whole): (Vec<RunRow>, usize) = (Vec::new(), 0);
    for (number, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        let wrong = |what: String| BenchError::folder(file, format!("line {}: {what}", number + 1));
        let row: RunRow = serde_json::from_slice(text).map_err(|e| wrong(format!("not a row: {e}")))?;
        if row.schema != SCHEMA {
            return Err(wrong(format!("schema {}, this version reads {SCHEMA}", row.schema)));
        }
        if rows.iter().any(|known| known.index == row.index) {
            return Err(wrong(format!("row {} is there twice", row.case)));
        }
        rows.push(row);
        whole += line.len();
    }
    Ok((rows, whole as u64))
}

/// Writes aside and renames, so that no reader ever sees half a file.
///
/// # Errors
/// The system's words.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), BenchError> {
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    let write = || {
        let mut file = File::create(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(BenchError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::unmeasured;
    use crate::record::Status;

    fn row(index: usize) -> RunRow {
        let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sets/edge.csv");
        let rows = plan::read(&set).unwrap();
        unmeasured(index, &rows[index], 1, Status::Unsupported, "a \"reason\"\nof two lines")
    }

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::create(&dir.path().join("run"), &Env::empty(), "id\n").unwrap();
        (dir, folder)
    }

    #[test]
    fn rows_survive_and_a_truncated_one_is_dropped() {
        let (_dir, mut folder) = folder();
        let path = folder.path().to_path_buf();
        folder.append(&row(0)).unwrap();
        folder.append(&row(1)).unwrap();
        drop(folder);
        let whole = fs::read(path.join(RAW)).unwrap();
        let first = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        // Every place where a kill may have ended the second line.
        for len in first..whole.len() {
            fs::write(path.join(RAW), &whole[..len]).unwrap();
            let (mut folder, rows) = Folder::resume(&path).unwrap();
            assert_eq!(rows, [row(0)].map(|r| RunRow { started: rows[0].started, ..r }));
            if len % 97 == 0 {
                folder.append(&row(1)).unwrap();
                assert_eq!(super::rows(&path).unwrap().len(), 2);
            }
        }
    }

    #[test]
    fn a_folder_has_one_writer() {
        let (_dir, folder) = folder();
        let path = folder.path().to_path_buf();
        assert!(Folder::resume(&path).err().unwrap().to_string().contains("another process"));
        assert!(Folder::create(&path, &Env::empty(), "").err().unwrap().to_string().contains("--resume"));
        drop(folder);
        Folder::resume(&path).unwrap();
        assert!(Folder::resume(path.parent().unwrap()).err().unwrap().to_string().contains("no run"));
    }

    #[test]
    fn damage_is_located() {
        let (_dir, mut folder) = folder();
        folder.append(&row(0)).unwrap();
        let file = folder.path().join(RAW);
        let line = fs::read_to_string(&file).unwrap();
        let complain = |text: String| {
            fs::write(&file, text).unwrap();
            parse(&file).unwrap_err().to_string()
        };
        assert!(complain(format!("{line}{line}")).contains("line 2: row"));
        assert!(complain(format!("nonsense\n{line}")).contains("line 1: not a row"));
        assert!(
            complain(line.replace("\"schema\":1", "\"schema\":9")).contains("schema 9, this version reads 1")
        );
    }
}
