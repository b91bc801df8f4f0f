//! A kernel's source with every header it includes, read once: what is hashed is what is compiled.
//!
//! Headers are handed to the compiler from memory under their path below the include root (`ptx/tma.cuh`), so
//! messages, `.loc` lines and cache keys are the same on every machine. An `#include "…"` is looked for beside the
//! including file first, then below the include root, and rewritten to the latter's form; line numbers stay.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A translation unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// How messages call the main file: its path below the include root, or as given for a file outside.
    pub name: String,
    /// The main file's text, includes rewritten.
    pub text: String,
    /// (include name, text) of every header reached, in name order.
    pub headers: Vec<(String, String)>,
}

/// Why a source could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The main file or a header cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A header that is not there.
    #[error(
        "{file}:{line}: no file \"{include}\" beside {file} or below {}", root.display()
    )]
    Include {
        /// The including file.
        file: String,
        /// Line of the `#include`, from 1.
        line: usize,
        /// The name between the quotes.
        include: String,
        /// The include root.
        root: PathBuf,
    },
}

impl Source {
    /// Reads `main` and every header that it includes, directly or not. `root` is the folder that include names
    /// start from (`cuda/`).
    ///
    /// # Errors
    /// [`SourceError`]: a file that cannot be read, or an include that leads nowhere, with the line that asks for it.
    pub fn load(root: &Path, main: &Path) -> Result<Self, SourceError> {
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        let mut pending = Vec::new();
        let (name, text) = Self::rewritten(root, main, &mut pending)?;
        while let Some(path) = pending.pop() {
            let header = include_name(root, &path);
            if headers.contains_key(&header) {
                continue;
            }
            let (_, text) = Self::rewritten(root, &path, &mut pending)?;
            headers.insert(header, text);
        }
        Ok(Self { name, text, headers: headers.into_iter().collect() })
    }

    /// The text of the file called `name` (`kernels/k.cu`, `ptx/tma.cuh`), to be edited before compilation: that is
    /// how a twin is made. `None` if the source does not reach such a file.
    pub fn file_mut(&mut self, name: &str) -> Option<&mut String> {
        if self.name == name {
            return Some(&mut self.text);
        }
        self.headers.iter_mut().find(|(header, _)| header == name).map(|(_, text)| text)
    }

    /// The text of one file with its includes rewritten; the files they name are pushed on `pending`.
    fn rewritten(
        root: &Path,
        path: &Path,
        pending: &mut Vec<PathBuf>,
    ) -> Result<(String, String), SourceError> {
        let name = include_name(root, path);
        let text =
            fs::read_to_string(path).map_err(|source| SourceError::Read { path: path.to_owned(), source })?;
        let mut out = String::with_capacity(text.len());
        for (index, line) in text.lines().enumerate() {
            match quoted_include(line) {
                None => out.push_str(line),
                Some(include) => {
                    let beside = path.parent().unwrap_or(Path::new("")).join(include);
                    let below = root.join(include);
                    let found = [beside, below]
                        .into_iter()
                        .find(|candidate| candidate.is_file())
                        .ok_or_else(|| SourceError::Include {
                            file: name.clone(),
                            line: index + 1,
                            include: include.to_owned(),
                            root: root.to_owned(),
                        })?;
                    out.push_str(&line.replacen(include, &include_name(root, &found), 1));
                    pending.push(found);
                }
            }
            out.push('\n');
        }
        Ok((name, out))
    }
}

/// `#include "a.cuh"` → `a.cuh`; anything else, `<…>` included, → `None`.
fn quoted_include(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    rest.strip_prefix('"')?.split_once('"').map(|(name, _)| name)
}

/// `path` below `root` with `.` and `..` resolved, in forward slashes; unchanged if it is elsewhere.
fn include_name(root: &Path, path: &Path) -> String {
    let (root, path) = (normal(root), normal(path));
    path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/")
}

/// Lexically resolved: links are not followed, so names stay as the sources spell them.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("fa4-source-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn includes_are_found_beside_and_below_and_named_from_the_root() {
        let root = folder(
            "found",
            &[
                ("kernels/k.cu", "#include \"ptx/a.cuh\"\n#include \"../prim/c.cuh\"\nint x;\n"),
                ("ptx/a.cuh", "#pragma once\n  # include \"b.cuh\" // neighbour\n"),
                ("ptx/b.cuh", "#include \"ptx/a.cuh\"\n#include <cuda_bf16.h>\n"),
                ("prim/c.cuh", ""),
                ("prim/unused.cuh", ""),
            ],
        );
        let mut source = Source::load(&root, &root.join("kernels/k.cu")).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(source.name, "kernels/k.cu");
        assert_eq!(source.text, "#include \"ptx/a.cuh\"\n#include \"prim/c.cuh\"\nint x;\n");
        let names: Vec<_> = source.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["prim/c.cuh", "ptx/a.cuh", "ptx/b.cuh"]);
        assert_eq!(source.headers[1].1, "#pragma once\n  # include \"ptx/b.cuh\" // neighbour\n");
        *source.file_mut("kernels/k.cu").unwrap() = "edited".into();
        *source.file_mut("prim/c.cuh").unwrap() = "edited, too".into();
        assert_eq!((source.text.as_str(), source.headers[0].1.as_str()), ("edited", "edited, too"));
        assert_eq!(source.file_mut("prim/unused.cuh"), None);
    }

    #[test]
    fn a_missing_header_is_named_with_its_line() {
        let root = folder("missing", &[("k.cu", "\n#include \"nowhere.cuh\"\n")]);
        let error = Source::load(&root, &root.join("k.cu")).unwrap_err().to_string();
        fs::remove_dir_all(&root).unwrap();
        assert!(error.starts_with("k.cu:2: no file \"nowhere.cuh\""), "{error}");
    }
}
