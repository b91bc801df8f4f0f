//! Survivors that are no holes, each with a reason that a reviewer can check.
//!
//! An entry names the source line's text and not its number, so that an edit elsewhere in the kernel leaves it standing.

use std::path::Path;

use serde::Deserialize;

use crate::error::GateError;
use crate::mutate::allow_path;
use crate::mutate::report::Row;

/// One justified kind of survivor.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The source line, without surrounding blanks.
    pub at: String,
    /// The line that calls the helper which it stands in, where not every call is meant.
    #[serde(default)]
    pub via: Option<String>,
    /// The line before either, where two lines of the kernel read alike.
    #[serde(default)]
    pub after: Option<String>,
    /// Instruction and change, as in a mutant's name: `tcgen05.fence delete`.
    pub mutation: String,
    /// Variants that it holds for; all if not given.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Why nothing can notice, or why nothing need.
    pub reason: String,
}

/// The list of a kernel.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowList {
    /// Entries in the order of the file.
    #[serde(rename = "survivor", default)]
    pub entries: Vec<Entry>,
}

impl AllowList {
    /// Reads a kernel's list; a kernel without a file has none.
    ///
    /// # Errors
    /// [`GateError::Mutants`] with what is wrong in the file.
    pub fn read(root: &Path, kernel: &str) -> Result<Self, GateError> {
        let path = allow_path(root, kernel);
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AllowList::default()),
            Err(source) => Err(GateError::File { path, source }),
            Ok(text) => AllowList::parse(&text).map_err(|what| GateError::Mutants { path, what }),
        }
    }

    /// Reads the text of a list.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        /// A reason shorter than this says nothing.
        const SHORTEST: usize = 30;
        let list: AllowList = toml::from_str(text).map_err(|e| e.to_string())?;
        match list.entries.iter().find(|e| e.reason.trim().len() < SHORTEST) {
            Some(entry) => {
                Err(format!("`{}` of `{}`: the reason is too short to check", entry.mutation, entry.at))
            }
            None => Ok(list),
        }
    }

    /// Why a survivor may survive.
    pub fn reason(&self, row: &Row) -> Option<&str> {
        Some(&self.entries.iter().find(|e| e.covers(row))?.reason)
    }

    /// Entries that no survivor of a complete run needs.
    pub fn stale<'a>(&'a self, rows: &'a [Row]) -> impl Iterator<Item = &'a Entry> {
        let needed = |entry: &Entry| {
            let survivors = rows.iter().filter(|row| !row.outcome.is_noticed());
            survivors.into_iter().any(|row| entry.covers(row))
        };
        self.entries.iter().filter(move |entry| !needed(entry))
    }
}

impl Entry {
    fn covers(&self, row: &Row) -> bool {
        self.at == row.at
            && self.via.as_ref().is_none_or(|via| *via == row.via)
            && self.after.as_ref().is_none_or(|after| row.after.contains(after))
            && self.mutation == row.mutation
            && (self.variants.is_empty() || self.variants.contains(&row.target))
    }
}
