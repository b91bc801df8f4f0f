//! What keeps a green verdict honest: every marker of every kernel was passed, every compiled variant passed a case.
//!
//! Random data never triggers a conditional rescale, and a table of passes says nothing about code that never ran.
//! Kernels therefore mark the branches that matter (`COVER` in `ptx/cover.cuh`); the emulator counts how often control
//! passes them.

use std::collections::{BTreeMap, BTreeSet};

/// Counts over the runs of one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Passes of each marker in passing runs, by warps. Markers never passed are present with 0.
    pub markers: BTreeMap<String, u64>,
    /// Passing runs.
    pub passes: u64,
    /// Markers that other runs passed, up to where they failed. They prove nothing, but the code was reached.
    pub failing: BTreeSet<String>,
}

impl Coverage {
    /// Counts of a kernel that has these markers and no runs yet.
    pub fn of_markers(markers: impl IntoIterator<Item = String>) -> Self {
        Coverage { markers: markers.into_iter().map(|name| (name, 0)).collect(), ..Coverage::default() }
    }

    /// Adds a passing run.
    pub fn add(&mut self, counts: &BTreeMap<String, u64>) {
        self.passes += 1;
        for (name, count) in counts {
            *self.markers.entry(name.clone()).or_default() += count;
        }
    }

    /// Adds a run that failed.
    pub fn add_failing(&mut self, counts: &BTreeMap<String, u64>) {
        self.failing.extend(counts.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name.clone()));
    }

    /// Adds what other runs of the kernel counted.
    pub fn join(&mut self, other: Coverage) {
        self.passes += other.passes;
        for (name, count) in other.markers {
            *self.markers.entry(name).or_default() += count;
        }
        self.failing.extend(other.failing);
    }

    /// What is missing, in words; empty if nothing is.
    pub fn gaps(&self) -> Vec<String> {
        if self.passes == 0 {
            return vec!["no case passed".to_string()];
        }
        let zero = self.markers.iter().filter(|(_, count)| **count == 0);
        zero.map(|(name, _)| match self.failing.contains(name) {
            true => format!("marker {name} was passed in failing runs only"),
            false => format!("marker {name} was never passed"),
        })
        .collect()
    }
}

/// The markers in the body of an entry function: lines `// cover: NAME` of the PTX.
pub fn markers(ptx: &str, entry: &str) -> Vec<String> {
    let is_entry = |line: &str| line.contains(".entry");
    let is_this = |line: &str| {
        let name = line.split(".entry").nth(1).unwrap_or("").trim_start();
        name.strip_prefix(entry)
            .is_some_and(|rest| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
    };
    let body = ptx.lines().skip_while(|line| !(is_entry(line) && is_this(line))).skip(1);
    let mut names: Vec<String> = body
        .take_while(|line| !is_entry(line))
        .filter_map(|line| line.trim().strip_prefix("// cover: "))
        .map(|name| name.trim().to_string())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.visible .entry k_full(
)
{
\t// cover: tail
\t// cover: block
}
.visible .entry k(
)
{
\t// cover: tail
\t// begin inline asm
\t// cover: wrap
\t// cover: wrap
}
";

    #[test]
    fn markers_belong_to_their_entry() {
        assert_eq!(markers(PTX, "k"), ["tail", "wrap"]);
        assert_eq!(markers(PTX, "k_full"), ["block", "tail"]);
        assert!(markers(PTX, "other").is_empty());
    }

    #[test]
    fn a_marker_never_passed_is_a_gap() {
        let mut c = Coverage::of_markers(markers(PTX, "k"));
        assert_eq!(c.gaps(), ["no case passed"]);
        c.add(&BTreeMap::from([("tail".to_string(), 3), ("wrap".to_string(), 0)]));
        assert_eq!(c.gaps(), ["marker wrap was never passed"]);
        c.add_failing(&BTreeMap::from([("wrap".to_string(), 2), ("tail".to_string(), 0)]));
        assert_eq!(c.gaps(), ["marker wrap was passed in failing runs only"]);
        c.add(&BTreeMap::from([("wrap".to_string(), 1)]));
        assert!(c.gaps().is_empty());
        assert_eq!((c.passes, c.markers["tail"]), (2, 3));
    }
}
