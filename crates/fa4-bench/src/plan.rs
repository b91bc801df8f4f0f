//! Which rows are run, in which order: read, filtered, numbered. The rows of a run lie in its folder as `cases.csv`, in the
//! form of `sets/README.md`: workers read them from there, and a run that is taken up again cannot meet an edited set.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use fa4_spec::sets::{self, Row};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// The committed sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetName {
    /// Shapes of models in use.
    Real,
    /// Rows born of public bugs.
    Edge,
    /// The grids that papers and vendors publish.
    Claim,
    /// All three.
    All,
}

impl SetName {
    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SetName::Real => "real",
            SetName::Edge => "edge",
            SetName::Claim => "claim",
            SetName::All => "all",
        }
    }

    /// Its files below `root`.
    pub fn files(self, root: &Path) -> Vec<PathBuf> {
        let names: &[&str] = match self {
            SetName::All => &["claim", "real", "edge"],
            SetName::Real => &["real"],
            SetName::Edge => &["edge"],
            SetName::Claim => &["claim"],
        };
        names.iter().map(|name| root.join("sets").join(format!("{name}.csv"))).collect()
    }
}

/// Part K of N, K from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Which part.
    pub k: usize,
    /// Of how many.
    pub n: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((k, n)) if 1 <= k && k <= n => Ok(Shard { k, n }),
            _ => Err("expected K/N with 1 ≤ K ≤ N, as in 2/4".into()),
        }
    }
}

impl Shard {
    /// Whether row `index` is in this part. Neighbours go to different parts: they are alike in cost.
    pub fn has(self, index: usize) -> bool {
        index % self.n == self.k - 1
    }
}

/// A run's rows as a CSV file's text, the rows that match of `files`, in their order.
///
/// # Errors
/// A file that cannot be read, an id that two files share, or nothing that matches.
pub fn cases_csv(files: &[PathBuf], filter: Option<&Regex>) -> Result<String, BenchError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let broken = |path: &Path, e: csv::Error| BenchError::Csv { path: path.into(), what: e.to_string() };
    writer.write_record(sets::HEADER).map_err(|e| broken(Path::new("cases.csv"), e))?;
    let mut ids = std::collections::HashSet::new();
    for path in files {
        // The strict reader first: its errors name line and column.
        sets::read(path)?;
        let mut reader = csv::Reader::from_path(path).map_err(|e| broken(path, e))?;
        for record in reader.records() {
            let record = record.map_err(|e| broken(path, e))?;
            let id = record.get(0).unwrap_or_default();
            if filter.is_some_and(|f| !f.is_match(id)) {
                continue;
            }
            if !ids.insert(id.to_string()) {
                let what =
                    format!("id `{id}` stands in another of the files, too; ids must be unique in a run");
                return Err(BenchError::Csv { path: path.clone(), what });
            }
            writer.write_record(&record).map_err(|e| broken(path, e))?;
        }
    }
    if ids.is_empty() {
        return Err(BenchError::Nothing);
    }
    let bytes =
        writer.into_inner().map_err(|e| BenchError::Csv { path: "cases.csv".into(), what: e.to_string() })?;
    Ok(String::from_utf8(bytes).expect("CSV made from text is text"))
}

/// The rows of `cases.csv`.
///
/// # Errors
/// As [`sets::read`].
pub fn read(path: &Path) -> Result<Vec<Row>, BenchError> {
    Ok(sets::read(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_row_is_in_one_part() {
        for n in [1, 2, 3, 7] {
            for index in 0..20 {
                assert_eq!((1..=n).filter(|&k| Shard { k, n }.has(index)).count(), 1);
            }
        }
        assert_eq!("2/3".parse(), Ok(Shard { k: 2, n: 3 }));
        for bad in ["0/2", "3/2", "1", "a/b", "1/0"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }

    /// What is written reads back as the rows of the files, quoted fields included.
    #[test]
    fn cases_round_trip() {
        let files = SetName::All.files(&root());
        let text = cases_csv(&files, None).unwrap();
        let rows = sets::parse(Path::new("cases.csv"), &text).unwrap();
        let originals: Vec<Row> = files.iter().flat_map(|f| sets::read(f).unwrap()).collect();
        assert_eq!(rows, originals);
        let some = cases_csv(&files, Some(&Regex::new("^fa4paper_.*_d64_").unwrap())).unwrap();
        let some = sets::parse(Path::new("cases.csv"), &some).unwrap();
        assert!(!some.is_empty() && some.iter().all(|row| row.id.contains("_d64_")));
        assert!(matches!(cases_csv(&files, Some(&Regex::new("^$").unwrap())), Err(BenchError::Nothing)));
    }

    #[test]
    fn the_same_file_twice_is_refused() {
        let mut files = SetName::Edge.files(&root());
        files.extend(SetName::Edge.files(&root()));
        assert!(cases_csv(&files, None).unwrap_err().to_string().contains("unique in a run"));
    }
}
