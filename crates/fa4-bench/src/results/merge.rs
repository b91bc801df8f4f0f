//! Shards joined into the folder that one run would have made.

use std::path::{Path, PathBuf};

use crate::env::Env;
use crate::error::BenchError;
use crate::folder::{self, CASES, Folder};
use crate::record::RunRow;

/// Joins `folders` into `out`; how many planned rows are in none of them.
///
/// # Errors
/// Folders of different versions, settings or plans; a row in two of them.
pub fn merge(folders: &[PathBuf], out: &Path) -> Result<usize, BenchError> {
    let mut joined: Option<(Env, String)> = None;
    let mut rows: Vec<(RunRow, &Path)> = Vec::new();
    for path in folders {
        let env = folder::env(path)?;
        let file = path.join(CASES);
        let cases = std::fs::read_to_string(&file).map_err(BenchError::file(&file))?;
        for row in folder::rows(path)? {
            if let Some((_, other)) = rows.iter().find(|(known, _)| known.index == row.index) {
                let what = format!("row {} is in {}, too; merge parts of one run", row.case, other.display());
                return Err(BenchError::folder(path, what));
            }
            rows.push((row, path.as_path()));
        }
        match &mut joined {
            None => joined = Some((env, cases)),
            Some((first, plan)) => {
                let first_path = folders[0].display();
                if let Some(what) = first.differs(&env) {
                    let what = format!("does not belong to {first_path}: {what}");
                    return Err(BenchError::folder(path, what));
                }
                if *plan != cases {
                    return Err(BenchError::folder(path, format!("plans other rows than {first_path}")));
                }
                first.started = first.started.clone().min(env.started);
                first.gpus.extend(env.gpus);
            }
        }
    }
    let Some((mut env, cases)) = joined else { return Err(BenchError::Nothing) };
    env.settings.shard = None;
    let mut rows: Vec<RunRow> = rows.into_iter().map(|(row, _)| row).collect();
    rows.sort_by_key(|row| row.index);
    same_references(&rows, out)?;
    let mut folder = Folder::create(out, &env, &cases)?;
    for row in &rows {
        folder.append(row)?;
    }
    Ok(folder::cases(out)?.len() - rows.len())
}

/// One table, one version of each reference.
fn same_references(rows: &[RunRow], out: &Path) -> Result<(), BenchError> {
    let mut known: Vec<(&str, &std::collections::BTreeMap<String, String>)> = Vec::new();
    for entry in rows.iter().flat_map(|row| &row.references).filter(|e| !e.versions.is_empty()) {
        match known.iter().find(|(id, _)| *id == entry.id) {
            None => known.push((&entry.id, &entry.versions)),
            Some((_, versions)) if **versions == entry.versions => {}
            Some((_, versions)) => {
                let what = format!(
                    "would mix versions of {}: {versions:?} and {:?}; measure again with one of them",
                    entry.id, entry.versions
                );
                return Err(BenchError::folder(out, what));
            }
        }
    }
    Ok(())
}
