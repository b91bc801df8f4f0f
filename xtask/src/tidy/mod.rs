//! `cargo xtask tidy`: structure that the compiler does not check. Each rule says what it wants and why in the message.

mod crates;
mod docs;
mod text;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::spawn::workspace;

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    path: String,
    /// From 1; 0 where the whole file is meant.
    line: usize,
    message: String,
}

impl Problem {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// One file of the working tree.
pub struct SourceFile {
    /// Path from the root, in forward slashes.
    path: String,
    text: String,
}

impl SourceFile {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    }
}

/// The command.
pub fn run() -> Outcome {
    let problems = check(&workspace())?;
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        1 => Err(Failure::Judged("tidy: one rule is broken".into())),
        count => Err(Failure::Judged(format!("tidy: {count} rules are broken"))),
    }
}

/// Every broken rule of the workspace at `root`.
fn check(root: &Path) -> Result<Vec<Problem>, Failure> {
    let files = files(root)?;
    let mut problems: Vec<Problem> = files.iter().flat_map(text::check).collect();
    problems.extend(text::stale_exceptions(&files));
    problems.extend(docs::check(&files));
    problems.extend(crates::check(&crates::Graph::read(root)?, &files));
    problems.sort();
    Ok(problems)
}

/// Text files that git tracks or would track.
fn files(root: &Path) -> Result<Vec<SourceFile>, Failure> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| Failure::Environment(format!("cannot run git: {error}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Failure::Environment(format!("git ls-files failed: {message}")));
    }
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    // A deleted file is still listed until the deletion is staged; what is not text is nobody's business here.
    let read = |path: &str| {
        let text = fs::read_to_string(root.join(PathBuf::from(path))).ok()?;
        Some(SourceFile { path: path.to_owned(), text })
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_tidy() {
        let problems = check(&workspace()).unwrap();
        assert!(problems.is_empty(), "{}", problems.iter().map(|p| format!("\n{p}")).collect::<String>());
    }
}
