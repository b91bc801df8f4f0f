//! A test file: its header, its revisions and what it expects.

use ptx_emu::{Code, Schedule};
use serde::Deserialize;
use std::collections::BTreeMap;

type Res<T> = Result<T, String>;

/// The `//@` lines, as TOML. `README.md` beside this explains every key.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Header {
    #[serde(default = "one")]
    pub grid: [u32; 3],
    #[serde(default = "warp")]
    pub block: [u32; 3],
    #[serde(default = "one")]
    pub cluster: [u32; 3],
    #[serde(default)]
    pub smem: u32,
    #[serde(default = "seeds")]
    pub seeds: String,
    #[serde(default)]
    pub revisions: Vec<String>,
    /// Why the revisions differ in more than one line.
    pub block_reason: Option<String>,
    /// Strict findings fail the run.
    #[serde(default)]
    pub strict: bool,
    /// `all` (default), or `some` with a reason: the fault need not appear under every schedule and seed.
    #[serde(default = "all")]
    pub detect: String,
    pub detect_reason: Option<String>,
    /// Litmus: what the broken revision does without checks, by schedule: `right`, `wrong` or `fault CODE`.
    #[serde(default)]
    pub litmus: BTreeMap<String, String>,
    /// Warps of each role: name → [first, count].
    #[serde(default)]
    pub roles: BTreeMap<String, [u32; 2]>,
    #[serde(default)]
    pub barriers: BTreeMap<String, Barrier>,
    /// Shared-memory regions: name → [first byte, bytes].
    #[serde(default)]
    pub shared: BTreeMap<String, [u32; 2]>,
    /// Tensor-memory regions: name → [first column, columns].
    #[serde(default)]
    pub tmem: BTreeMap<String, [u32; 2]>,
    /// Kernel parameters by name.
    #[serde(default)]
    pub param: BTreeMap<String, Param>,
    /// Global memory that no parameter points to (tensor maps do).
    #[serde(default)]
    pub buffer: BTreeMap<String, Param>,
}

#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
pub struct Barrier {
    pub offset: u32,
    #[serde(default = "stage")]
    pub stages: u32,
    #[serde(default)]
    pub arrivers: Vec<String>,
    #[serde(default)]
    pub waiters: Vec<String>,
}

/// A parameter: a scalar, a buffer (`ptr`) or a tensor map (`map`).
#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct Param {
    pub value: Option<i64>,
    /// Type and length, e.g. `u32[32]`.
    pub ptr: Option<String>,
    pub init: Option<toml::Value>,
    pub expect: Option<toml::Value>,
    /// The buffer that a tensor map describes.
    pub map: Option<String>,
    #[serde(default)]
    pub dims: Vec<u64>,
    /// Byte strides of dimensions 1 and up; dense when left out.
    #[serde(default)]
    pub strides: Vec<u64>,
    #[serde(default, rename = "box")]
    pub boxes: Vec<u32>,
    #[serde(default)]
    pub element_strides: Vec<u32>,
    #[serde(default)]
    pub swizzle: u32,
    #[serde(default)]
    pub nan_fill: bool,
    /// The map lies in global memory and the parameter points to it.
    #[serde(default)]
    pub global: bool,
}

fn one() -> [u32; 3] {
    [1; 3]
}
fn warp() -> [u32; 3] {
    [32, 1, 1]
}
fn seeds() -> String {
    "0..8".into()
}
fn all() -> String {
    "all".into()
}
fn stage() -> u32 {
    1
}

/// An inline expectation.
pub struct Fault {
    pub code: Code,
    /// Lines of the fault's site, any of which will do; empty: the fault has no site.
    pub lines: Vec<u32>,
}

/// One revision of a file.
pub struct Revision {
    /// File name.
    pub file: String,
    /// The text, lines of other revisions blanked.
    pub ptx: String,
    pub header: Header,
    pub fault: Option<Fault>,
    /// What the rendered fault must contain.
    pub notes: Vec<String>,
}

impl Header {
    pub fn seeds(&self) -> Res<std::ops::Range<u64>> {
        let parts = self.seeds.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
        parts.filter(|r| !r.is_empty()).ok_or_else(|| format!("seeds `{}`; write \"0..8\"", self.seeds))
    }

    /// Schedules and seeds to run.
    pub fn runs(&self) -> Res<Vec<(Schedule, u64)>> {
        let mut runs: Vec<_> =
            Schedule::ALL.into_iter().filter(|&s| s != Schedule::Random).map(|s| (s, 0)).collect();
        runs.extend(self.seeds()?.map(|s| (Schedule::Random, s)));
        Ok(runs)
    }
}

/// Which revision a line belongs to, if it is marked.
fn mark(line: &str) -> Option<&str> {
    let at = line.rfind("//[")?;
    line[at + 3..].split_once(']').map(|(name, _)| name)
}

/// Splits a file into its revisions (one, unnamed, when the header declares none).
pub fn revisions(file: &str, text: &str) -> Res<Vec<Revision>> {
    let marks: Vec<&str> = text.lines().filter_map(mark).collect();
    let mut names: Vec<&str> = marks.clone();
    names.sort_unstable();
    names.dedup();
    let plain = one_revision(file, text, "")?;
    let declared = &plain.header.revisions;
    if let Some(n) = names.iter().find(|n| !declared.iter().any(|d| d == *n)) {
        return Err(format!("a line is marked `//[{n}]`, which `revisions` does not declare"));
    }
    if declared.is_empty() {
        return Ok(vec![plain]);
    }
    if *declared != ["fixed", "broken"] {
        return Err("revisions are [\"fixed\", \"broken\"], in this order".into());
    }
    let count = |n: &str| marks.iter().filter(|m| **m == n).count();
    match (count("fixed"), count("broken")) {
        (0, 0) => return Err("the revisions are the same text".into()),
        (0 | 1, 0 | 1) if plain.header.block_reason.is_some() => {
            return Err("block_reason, but the revisions differ in one line only".into());
        }
        (0 | 1, 0 | 1) => {}
        _ if plain.header.block_reason.is_none() => {
            return Err("the revisions differ in more than one line; say why in block_reason".into());
        }
        _ => {}
    }
    declared.iter().map(|n| one_revision(file, text, n)).collect()
}

fn one_revision(file: &str, text: &str, name: &str) -> Res<Revision> {
    let (mut ptx, mut toml) = (String::new(), String::new());
    let (mut fault, mut notes): (Option<Fault>, _) = (None, Vec::new());
    for (i, line) in text.lines().enumerate() {
        let here = name.is_empty() || mark(line).is_none_or(|m| m == name);
        let code = line.split("//").next().unwrap_or("").trim();
        if let Some(at) = line.find("//~") {
            let Some((who, what)) = line[at + 3..].strip_prefix('[').and_then(|r| r.split_once("] ")) else {
                return Err(format!(
                    "line {}: write `//~[broken] FAULT code` or `//~[broken] NOTE text`",
                    i + 1
                ));
            };
            match what.trim().split_once(' ') {
                Some(("FAULT", c)) if who == name => {
                    let c = Code::parse(c).ok_or_else(|| format!("line {}: no fault code `{c}`", i + 1))?;
                    let f = fault.get_or_insert(Fault { code: c, lines: vec![] });
                    if f.code != c {
                        return Err(format!("line {}: a second FAULT with another code", i + 1));
                    }
                    if !code.is_empty() {
                        f.lines.push(i as u32 + 1);
                    }
                }
                Some(("NOTE", t)) if who == name => notes.push(t.to_string()),
                Some(("FAULT" | "NOTE", _)) => {}
                _ => return Err(format!("line {}: `{what}` is neither FAULT nor NOTE", i + 1)),
            }
        }
        if let Some(h) = line.trim_start().strip_prefix("//@")
            && here
        {
            toml.push_str(h.split("//[").next().unwrap_or(h));
        }
        toml.push('\n');
        ptx.push_str(if here { line } else { "" });
        ptx.push('\n');
    }
    // Without a revision both sides of a marked header line would be one key twice.
    if name.is_empty() {
        let kept: Vec<&str> = text.lines().filter(|l| mark(l).is_none_or(|m| m == "fixed")).collect();
        toml = kept
            .iter()
            .filter_map(|l| l.strip_prefix("//@"))
            .map(|h| h.split("//[").next().unwrap_or(h))
            .fold(String::new(), |mut t, h| {
                t.push_str(h);
                t.push('\n');
                t
            });
    }
    let header: Header = toml::from_str(&toml).map_err(|e| format!("header: {e}"))?;
    match header.detect.as_str() {
        "all" if header.detect_reason.is_none() => {}
        "some" if header.detect_reason.is_some() => {}
        _ => return Err("detect is \"all\", or \"some\" with a detect_reason".into()),
    }
    Ok(Revision { file: file.into(), ptx, header, fault, notes })
}
