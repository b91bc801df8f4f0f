//! Result folders: joined, listed, reported, exported.

pub mod export;
pub mod gate;
pub mod index;
pub mod merge;
pub mod report;
pub mod validate;

use std::path::{Path, PathBuf};

use fa4_gate::error::exit;

use crate::cli::{ExportFormat, ResultsTask};
use crate::error::BenchError;
use crate::worker::workspace;
use crate::{folder, render};

/// `results`.
///
/// # Errors
/// What is wrong with a folder.
pub fn run(task: &ResultsTask) -> Result<u8, BenchError> {
    match task {
        ResultsTask::Merge { folders, out } => {
            let missing = merge::merge(folders, out)?;
            report::write(out)?;
            println!("{}", render::summary(&folder::rows(out)?));
            println!("results: {}", out.display());
            if missing > 0 {
                println!("{missing} planned rows are in none of the folders");
            }
            Ok(if missing > 0 { exit::INTERRUPTED } else { exit::OK })
        }
        ResultsTask::Index { results } => {
            let results = results.clone().unwrap_or_else(|| workspace().join("results"));
            let count = index::write(&results)?;
            println!("{count} result folders in {}", results.join(index::FILE).display());
            Ok(exit::OK)
        }
        ResultsTask::Gate { out, flags } => gate::judge(flags, out),
        ResultsTask::Report { folder: Some(folder), into } if folder.join(gate::RUN).is_file() => {
            gate::write(folder)?;
            if let Some(file) = into {
                gate::into(folder, file)?;
                println!("{} has the table of {}", file.display(), folder.display());
            }
            Ok(exit::OK)
        }
        ResultsTask::Report { folder, into } => {
            match folder {
                Some(folder) => report::write(folder)?,
                None if into.is_some() => {}
                None => {
                    let newest = newest(&workspace().join("results"))?;
                    println!("{}", newest.display());
                    println!("{}", render::table(&folder::rows(&newest)?));
                }
            }
            if let Some(file) = into {
                let folder = match folder {
                    Some(folder) => folder.clone(),
                    None => newest(&workspace().join("results"))?,
                };
                report::into(&folder, file)?;
                println!("{} has the table of {}", file.display(), folder.display());
            }
            Ok(exit::OK)
        }
        ResultsTask::Validate { folders, python } => validate::validate(folders, python),
        ResultsTask::Export { folder, format: ExportFormat::Flashinfer, out } => {
            let counts = export::flashinfer(folder, out)?;
            println!("{counts} in {}", out.display());
            Ok(exit::OK)
        }
    }
}

/// The folders below `results` that hold a run, by name.
///
/// # Errors
/// The system's words.
pub fn folders(results: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let entries = std::fs::read_dir(results).map_err(BenchError::file(results))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.join(folder::ENV).is_file() && path.join(folder::RAW).is_file());
    found.sort();
    Ok(found)
}

/// The folder of the run that was begun last.
fn newest(results: &Path) -> Result<PathBuf, BenchError> {
    let begun = |path: PathBuf| folder::env(&path).ok().map(|env| (env.started, path));
    let none = || BenchError::folder(results, "holds no run; `cargo xtask bench` makes one");
    folders(results)?.into_iter().filter_map(begun).max().map(|(_, path)| path).ok_or_else(none)
}

/// The folder of the run that was begun last and is not finished.
///
/// # Errors
/// There is none.
pub fn newest_unfinished(results: &Path) -> Result<PathBuf, BenchError> {
    let open = |path: PathBuf| {
        let (env, rows) = (folder::env(&path).ok()?, folder::rows(&path).ok()?);
        let planned = planned(&env, folder::cases(&path).ok()?.len());
        (rows.len() < planned).then_some((env.started, path))
    };
    let none = || BenchError::folder(results, "holds no unfinished run; name the folder: `--resume DIR`");
    folders(results)?.into_iter().filter_map(open).max().map(|(_, path)| path).ok_or_else(none)
}

/// Rows that a run plans of a list of `rows`.
pub fn planned(env: &crate::env::Env, rows: usize) -> usize {
    (0..rows).filter(|&i| env.settings.shard.is_none_or(|s| s.has(i))).count()
}
