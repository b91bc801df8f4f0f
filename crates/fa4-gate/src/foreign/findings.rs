//! What the emulator remarks on strangers' kernels, triaged in `foreign-findings.toml`.
//!
//! These kernels run on real chips every day, so that where the emulator faults one, the emulator is the first suspect. Each
//! remark belongs to one of the file's entries; one that belongs to none is unexplained, and unexplained ones fail the run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ptx_emu::fault::Fault;
use ptx_emu::{Report, Verdict};
use regex::Regex;
use serde::{Deserialize, Serialize};

/// The file below the workspace root.
pub const FILE: &str = "foreign-findings.toml";

/// One remark, without the places: a loop makes one many times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// `namespace/kernel`.
    pub kernel: String,
    /// Code.
    pub code: &'static str,
    /// The emulator's sentence, numbers replaced by `#`.
    pub message: String,
    /// The edge that is missing, likewise.
    pub missing: String,
}

impl Finding {
    /// All that a run's report holds, at fault and at strict level.
    pub fn all(kernel: &str, report: &Report) -> Vec<Self> {
        let fault = match &report.verdict {
            Verdict::Fault(fault) => Some(&**fault),
            _ => None,
        };
        report.strict.iter().chain(fault).map(|fault| Self::of(kernel, fault)).collect()
    }

    /// What `fault` says about `kernel`.
    pub fn of(kernel: &str, fault: &Fault) -> Self {
        Self {
            kernel: kernel.to_string(),
            code: fault.code.as_str(),
            message: without_numbers(&fault.message),
            missing: without_numbers(fault.missing.as_deref().unwrap_or("")),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.code, self.kernel, self.message)?;
        if self.missing.is_empty() { Ok(()) } else { write!(f, " (missing: {})", self.missing) }
    }
}

/// Addresses, columns and steps differ from place to place; what is said does not.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let (body, end) = word.split_at(word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
        let is_number = body.starts_with(|c: char| c.is_ascii_digit());
        out.push_str(if is_number { "#" } else { body });
        out.push_str(end);
    }
    out
}

/// What a remark turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The kernel leaves out what the manual asks, as shipped kernels do; silicon runs it.
    Strict,
    /// A known fault of the kernel, reported to its authors.
    Upstream,
    /// The emulator is wrong and not mended yet.
    Emulator,
}

/// One entry of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The emulator's code.
    pub code: String,
    /// Which kernels, as a regular expression on the whole `namespace/kernel`.
    pub kernels: String,
    /// What the sentence must contain; anything where it is not given.
    #[serde(default)]
    pub says: String,
    /// What it is.
    pub class: Class,
    /// Why a reader should believe that.
    pub why: String,
    /// Where it was reported.
    pub link: Option<String>,
}

/// The whole file.
#[derive(Debug, Default)]
pub struct Triage {
    entries: Vec<(Entry, Regex)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, rename = "finding")]
    findings: Vec<Entry>,
}

/// Remarks by what explains them.
#[derive(Debug, Default)]
pub struct Sorted {
    /// (entry, remark) → runs with it.
    pub explained: BTreeMap<(usize, Finding), u64>,
    /// Those that no entry explains.
    pub unexplained: BTreeMap<Finding, u64>,
}

impl Triage {
    /// Reads the file of the workspace at `root`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn open(root: &Path) -> Result<Self, String> {
        let path = root.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{FILE}: {e}"))
    }

    /// Reads its text.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|e| e.to_string())?;
        let mut entries = Vec::new();
        for entry in document.findings {
            if ptx_emu::fault::Code::parse(&entry.code).is_none() {
                return Err(format!("`{}` is no code; `cargo xtask emu explain` lists them", entry.code));
            }
            if entry.class == Class::Upstream && entry.link.is_none() {
                return Err(format!("{} on {}: `upstream` needs a link", entry.code, entry.kernels));
            }
            let pattern = format!("^(?:{})$", entry.kernels);
            let kernels = Regex::new(&pattern).map_err(|e| format!("kernels = `{}`: {e}", entry.kernels))?;
            entries.push((entry, kernels));
        }
        Ok(Self { entries })
    }

    /// The entries in the file's order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// Number of the entry that explains `finding`.
    pub fn explain(&self, finding: &Finding) -> Option<usize> {
        self.entries.iter().position(|(entry, kernels)| {
            entry.code == finding.code
                && kernels.is_match(&finding.kernel)
                && finding.message.contains(&entry.says)
        })
    }

    /// Sorts the remarks of many runs; each is counted once per run.
    pub fn sort<'a>(&self, runs: impl Iterator<Item = &'a [Finding]>) -> Sorted {
        let mut sorted = Sorted::default();
        for findings in runs {
            let distinct: std::collections::BTreeSet<&Finding> = findings.iter().collect();
            for finding in distinct {
                let count = match self.explain(finding) {
                    Some(entry) => sorted.explained.entry((entry, finding.clone())).or_default(),
                    None => sorted.unexplained.entry(finding.clone()).or_default(),
                };
                *count += 1;
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use ptx_emu::fault::Code;

    use super::*;

    fn finding(code: &str, message: &str) -> Finding {
        let code = Code::parse(code).expect("a code of the emulator");
        Finding::of("fa4/hd128_causal", &Fault::new(code, message))
    }

    const FILE_TEXT: &str = "\
[[finding]]
code = \"strict.mma-order\"
kernels = \"fa4/.*\"
says = \"issue order\"
class = \"strict\"
why = \"because\"
";

    #[test]
    fn places_do_not_make_a_finding_another() {
        let (a, b) = ("column 128 at 0x1c0, step 7", "column 64 at 0x40, step 19");
        assert_eq!(finding("strict.mma-order", a), finding("strict.mma-order", b));
        assert_eq!(without_numbers("32x32b of P2 takes 3 steps."), "# of P2 takes # steps.");
    }

    #[test]
    fn an_entry_explains_its_code_kernel_and_sentence_only() {
        let triage = Triage::parse(FILE_TEXT).unwrap();
        let explained = finding("strict.mma-order", "only issue order puts 3 first");
        let other_sentence = finding("strict.mma-order", "something else");
        let other_code = finding("strict.ld-unwaited", "only issue order");
        let runs = [vec![explained.clone(), explained.clone(), other_sentence], vec![explained, other_code]];
        let sorted = triage.sort(runs.iter().map(Vec::as_slice));
        assert_eq!(sorted.explained.values().collect::<Vec<_>>(), [&2]);
        assert_eq!(sorted.unexplained.len(), 2);
        let elsewhere = Finding { kernel: "triton/x".into(), ..finding("strict.mma-order", "issue order") };
        assert_eq!(triage.explain(&elsewhere), None);
    }

    #[test]
    fn bad_entries_are_refused() {
        let no = |from: &str, to: &str| Triage::parse(&FILE_TEXT.replace(from, to)).unwrap_err();
        assert!(no("strict.mma-order", "strict.nonsense").contains("is no code"));
        assert!(no("fa4/.*", "fa4/(").contains("kernels"));
        assert!(no("\"strict\"", "\"upstream\"").contains("needs a link"));
        assert!(no("why", "because").contains("because"));
    }

    #[test]
    fn the_committed_file_is_readable() {
        let triage = Triage::open(&crate::kernels::workspace()).unwrap();
        assert!(triage.entries().all(|entry| !entry.why.is_empty()));
    }
}
