//! Broken twins: each differs from a kernel in one statement and must be caught, with a message that names the fault.
//!
//! A twin is a TOML file in `crates/fa4-gate/twins/`: edits (exact text, found exactly once), the case that shows the
//! fault, what is expected and which names the message must contain. The sources are copied, edited and compiled in a
//! folder of their own below `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use fa4_host::emu::EmuDevice;
use fa4_host::error::DeviceError;
use fa4_host::routes::route_among;
use fa4_host::tensor_map::Fill;
use fa4_kernels::compile::{Builder, CUDA_FOLDER};
use fa4_kernels::manifest::ROWS;
use fa4_kernels::toolchain::Toolchain;
use fa4_spec::qdist::QDist;
use fa4_spec::{AttnProblem, Case, DType, Mask};
use ptx_emu::launch::{Options, Schedule};
use serde::Deserialize;

use crate::cli::filter as compile_filter;
use crate::error::{GateError, exit};
use crate::judge::{Verdict, prepare, run_edited};
use crate::kernels::{compile, workspace};
use crate::pool;

/// Folder of the twins below the workspace root.
pub const FOLDER: &str = "crates/fa4-gate/twins";

/// One twin, as its file says.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Twin {
    /// What is broken, one line.
    pub title: String,
    /// Why the case shows it.
    pub why: String,
    /// The kernel.
    pub kernel: String,
    /// `mismatch`, or `fault:CODE` with one of the emulator's codes; several separated by `|`.
    pub expected: String,
    /// Each must occur in the verdict's message.
    #[serde(default)]
    pub names: Vec<String>,
    /// The case that shows it.
    pub case: TwinCase,
    /// What is changed in the sources.
    #[serde(rename = "edit", default)]
    pub edits: Vec<Edit>,
    /// What is changed in the launch.
    pub launch: Option<LaunchEdit>,
}

/// An edit of the launch.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchEdit {
    /// What loads of V read past its end.
    pub v_map_fill: FillEdit,
}

/// A fill that is not the planned one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FillEdit {
    /// NaN instead of zeros.
    Nan,
}

/// Sizes and data of a twin's case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwinCase {
    /// Batch entries.
    pub batch: u64,
    /// Query heads.
    pub num_heads_q: u64,
    /// Key/value heads.
    pub num_heads_kv: u64,
    /// Query tokens.
    pub seqlen_q: u64,
    /// Key tokens.
    pub seqlen_k: u64,
    /// Mask.
    pub causal: bool,
    /// A `qdist` of `sets/README.md`.
    pub dist: String,
    /// τ.
    pub rescale_threshold: f32,
    /// Head dim; 128 if not given.
    #[serde(default = "default_head_dim")]
    pub head_dim: u64,
    /// Keys visible to the left; all if not given.
    #[serde(default)]
    pub window_left: Option<u64>,
    /// Keys visible to the right; all if not given.
    #[serde(default)]
    pub window_right: Option<u64>,
    /// One logit per query head joins the sum.
    #[serde(default)]
    pub sink: bool,
    /// Softcap; 0 is none.
    #[serde(default)]
    pub softcap: f64,
    /// Batch entries of the LSE lie 2^31 elements apart.
    #[serde(default)]
    pub spread: bool,
}

fn default_head_dim() -> u64 {
    128
}

/// One replacement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// File below `cuda/`.
    pub file: String,
    /// Text that occurs exactly once.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
}

/// What became of a twin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Caught as expected; the first line of the message.
    Caught(String),
    /// Ran through unnoticed, or was caught as something else.
    Escaped(String),
}

/// Reads and checks one description.
pub fn parse(path: &Path, text: &str) -> Result<Twin, GateError> {
    let bad = |what: String| GateError::Twin { path: path.to_path_buf(), what };
    let twin: Twin = toml::from_str(text).map_err(|e| bad(e.to_string()))?;
    if !ROWS.iter().any(|row| row.kernel == twin.kernel) {
        return Err(bad(format!("kernel `{}` is not in the manifest", twin.kernel)));
    }
    for part in twin.expected.split('|') {
        match part.trim().strip_prefix("fault:") {
            Some(code) if ptx_emu::fault::Code::parse(code).is_some() => {}
            None if part.trim() == "mismatch" => {}
            _ => return Err(bad(format!("expected `{part}`; allowed: mismatch, fault:CODE"))),
        }
    }
    if twin.edits.is_empty() && twin.launch.is_none() {
        return Err(bad("neither [[edit]] nor [launch]; a twin differs in one statement".to_string()));
    }
    twin.case(1).map_err(bad)?;
    Ok(twin)
}

impl Twin {
    /// The case with data made from `seed`.
    pub fn case(&self, seed: u64) -> Result<Case, String> {
        let c = &self.case;
        let mask = Mask { causal: c.causal, window_left: c.window_left, window_right: c.window_right };
        let (seqlens, heads) = ((c.seqlen_q, c.seqlen_k), (c.num_heads_q, c.num_heads_kv));
        let dense = AttnProblem::dense(c.batch, seqlens, heads, c.head_dim, mask, DType::Bf16);
        let problem = AttnProblem { sink: c.sink, softcap: c.softcap, ..dense };
        problem.validate().map_err(|e| e.to_string())?;
        let qdist = c.dist.parse::<QDist>().map_err(|()| {
            let all: Vec<&str> = QDist::ALL.iter().map(|q| q.name()).collect();
            format!("dist `{}`; allowed: {}", c.dist, all.join(", "))
        })?;
        let spread = c.spread.then(|| problem.clone());
        Ok(Case { qdist, tau: Some(c.rescale_threshold), spread, ..Case::dense("twin", problem, seed) })
    }

    /// Applies the edits to a copy of the sources below `cuda`.
    pub fn apply(&self, path: &Path, cuda: &Path) -> Result<(), GateError> {
        for edit in &self.edits {
            let file = cuda.join(&edit.file);
            let error = |source| GateError::File { path: file.clone(), source };
            let text = fs::read_to_string(&file).map_err(error)?;
            let count = text.matches(&edit.find).count();
            if count != 1 || edit.find.is_empty() {
                let what = format!(
                    "`find` occurs {count} times in {}, it must occur exactly once:\n{}",
                    edit.file, edit.find
                );
                return Err(GateError::Twin { path: path.to_path_buf(), what });
            }
            fs::write(&file, text.replacen(&edit.find, &edit.replace, 1)).map_err(error)?;
        }
        Ok(())
    }

    /// Whether a run's verdict is what this twin expects, and the message that says so.
    fn check(&self, verdict: &Verdict) -> Finding {
        let (kind, message) = match verdict {
            Verdict::Pass(j) => {
                return Finding::Escaped(format!("passed, worst error of O {:.3} of its bound", j.o.ratio));
            }
            Verdict::Wrong(mismatch) => ("mismatch".to_string(), mismatch.to_string()),
            Verdict::Device(DeviceError::Fault { code, rendering }) => {
                (format!("fault:{code}"), rendering.clone())
            }
            Verdict::Device(error) => ("device".to_string(), error.to_string()),
            Verdict::Host(error) => ("host".to_string(), error.to_string()),
        };
        if !self.expected.split('|').any(|part| part.trim() == kind) {
            return Finding::Escaped(format!("expected {}, got {kind}: {message}", self.expected));
        }
        match self.names.iter().find(|name| !message.contains(name.as_str())) {
            Some(name) => {
                Finding::Escaped(format!("{kind}, but the message does not name `{name}`: {message}"))
            }
            None => Finding::Caught(format!("{kind}: {}", message.lines().next().unwrap_or(""))),
        }
    }
}

/// Compiles and runs one twin under each schedule until one catches it.
fn judge(path: &Path, twin: &Twin, root: &Path, toolchain: &Toolchain) -> Result<Finding, GateError> {
    let name = path.file_stem().map_or_else(|| "twin".into(), |s| s.to_string_lossy().into_owned());
    let folder = root.join("target/twins").join(name);
    let cuda = folder.join(CUDA_FOLDER);
    copy_folder(&root.join(CUDA_FOLDER), &cuda)?;
    twin.apply(path, &cuda)?;
    let bad = |what: String| GateError::Twin { path: path.to_path_buf(), what };
    let case = twin.case(1).map_err(bad)?;
    let rows = ROWS.iter().filter(|row| row.kernel == twin.kernel);
    let row = route_among(&case.problem, rows).map_err(|e| bad(e.to_string()))?;
    let builder = Builder::with_toolchain(&folder, toolchain.clone());
    let kernels = compile(&builder, &folder, None, |other| other == row)?;
    let kernel = kernels.iter().find(|k| k.row.entry == row.entry);
    let kernel = kernel.ok_or_else(|| bad(format!("no entry `{}` came out", row.entry)))?;
    let data = prepare(&case).map_err(|e| bad(e.to_string()))?;
    let mut last = Finding::Escaped("no schedule ran".to_string());
    for schedule in Schedule::ALL {
        let mut device =
            EmuDevice::new(Options { schedule, seed: 1, ..Options::default() }).with_sources(cuda.clone());
        let outcome = run_edited(kernel, &case, &data, &mut device, |plan| {
            if let Some(LaunchEdit { v_map_fill: FillEdit::Nan }) = twin.launch {
                plan.params.v_map.fill = Fill::Nan;
            }
        });
        last = match twin.check(&outcome.verdict) {
            Finding::Caught(message) => {
                return Ok(Finding::Caught(format!("[{}] {message}", schedule.as_str())));
            }
            escaped => escaped,
        };
    }
    Ok(last)
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), GateError> {
    let error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| GateError::File { path, source }
    };
    fs::create_dir_all(to).map_err(error(to))?;
    for entry in fs::read_dir(from).map_err(error(from))? {
        let entry = entry.map_err(error(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(error(&source))?;
        }
    }
    Ok(())
}

/// The twins' files, by name.
pub fn files(root: &Path) -> Result<Vec<PathBuf>, GateError> {
    let folder = root.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|source| GateError::File { path: folder.clone(), source })?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    Ok(files)
}

/// Judges every twin; the exit code is 1 if one escapes.
pub fn run(filter: Option<&str>, quiet: bool, stop: &AtomicBool) -> Result<u8, GateError> {
    let root = workspace();
    let pattern = compile_filter(filter)?;
    let mut twins = Vec::new();
    for path in files(&root)? {
        let text =
            fs::read_to_string(&path).map_err(|source| GateError::File { path: path.clone(), source })?;
        let twin = parse(&path, &text)?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if pattern.as_ref().is_none_or(|p| p.is_match(&name)) {
            twins.push((path, name, twin));
        }
    }
    if twins.is_empty() {
        let (flag, value) = ("--filter", filter.unwrap_or_default().to_string());
        return Err(GateError::Flag { flag, value, what: "no twin's name matches".to_string() });
    }
    let toolchain = Toolchain::locate(&root)?;
    let results = pool::run(&twins, pool::cores(), stop, |(path, name, twin)| {
        let result = judge(path, twin, &root, &toolchain);
        if !quiet && let Ok(finding) = &result {
            println!("{}", line(name, twin, finding));
        }
        result
    });
    let interrupted = results.iter().any(Option::is_none);
    let (mut caught, mut escaped) = (0, 0);
    let mut failed: Vec<GateError> = Vec::new();
    for ((_, name, twin), result) in twins.iter().zip(results) {
        match result {
            Some(Ok(Finding::Caught(_))) => caught += 1,
            Some(Ok(finding @ Finding::Escaped(_))) => {
                escaped += 1;
                if quiet {
                    println!("{}", line(name, twin, &finding));
                }
            }
            Some(Err(error)) => failed.push(error),
            None => {}
        }
    }
    println!("{caught} twins caught, {escaped} escaped, {} broken, of {}", failed.len(), twins.len());
    let mut failed = failed.into_iter();
    if let Some(first) = failed.next() {
        failed.for_each(|error| eprintln!("error: {error}"));
        return Err(first);
    }
    Ok(match (escaped > 0, interrupted) {
        (true, _) => exit::WRONG,
        (false, true) => exit::INTERRUPTED,
        (false, false) => exit::OK,
    })
}

fn line(name: &str, twin: &Twin, finding: &Finding) -> String {
    match finding {
        Finding::Caught(message) => format!("caught   {name}: {}\n           {message}", twin.title),
        Finding::Escaped(message) => format!("ESCAPED  {name}: {}\n           {message}", twin.title),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "t"
why = "w"
kernel = "fwd_sm100"
expected = "fault:lease.tmem | mismatch"
names = ["S"]
case = { batch = 1, num_heads_q = 2, num_heads_kv = 2, seqlen_q = 4, seqlen_k = 3, causal = true, dist = "randn", rescale_threshold = 0.0 }
[[edit]]
file = "a.cu"
find = "one"
replace = "two"
"#;

    fn error(text: &str) -> String {
        parse(Path::new("x.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn descriptions_are_checked() {
        let twin = parse(Path::new("x.toml"), GOOD).unwrap();
        assert_eq!(twin.case(1).unwrap().tau, Some(0.0));
        assert!(error(&GOOD.replace("fault:lease.tmem", "fault:nonsense")).contains("fault:CODE"));
        assert!(error(&GOOD.replace("randn", "rand")).contains("monotone_up"));
        assert!(error(&GOOD.replace("fwd_sm100", "fwd_sm1")).contains("manifest"));
        assert!(error(&GOOD.replace("num_heads_kv = 2", "num_heads_kv = 3")).contains("must divide"));
        let unknown = error(&GOOD.replace("why", "because"));
        assert!(unknown.starts_with("x.toml:") && unknown.contains("because"), "{unknown}");
    }

    #[test]
    fn edits_must_fit_exactly_once() {
        let folder = std::env::temp_dir().join(format!("fa4-twins-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let twin = parse(Path::new("x.toml"), GOOD).unwrap();
        let with = |text: &str| {
            fs::write(folder.join("a.cu"), text).unwrap();
            twin.apply(Path::new("x.toml"), &folder).map_err(|e| e.to_string())
        };
        assert!(with("no").unwrap_err().contains("occurs 0 times"));
        assert!(with("one one").unwrap_err().contains("occurs 2 times"));
        with("just one here").unwrap();
        assert_eq!(fs::read_to_string(folder.join("a.cu")).unwrap(), "just two here");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_twin_must_be_caught_as_it_says() {
        let twin = parse(Path::new("x.toml"), GOOD).unwrap();
        let fault = |code: &str, rendering: &str| {
            Verdict::Device(DeviceError::Fault { code: code.into(), rendering: rendering.into() })
        };
        assert!(matches!(twin.check(&fault("lease.tmem", "S0 is held")), Finding::Caught(_)));
        assert!(matches!(twin.check(&fault("lease.tmem", "who knows")), Finding::Escaped(_)));
        assert!(matches!(twin.check(&fault("deadlock", "S0")), Finding::Escaped(_)));
    }

    /// The committed twins are well formed and still fit the committed kernels.
    #[test]
    fn committed_twins_fit_their_sources() {
        let root = workspace();
        for path in files(&root).unwrap_or_default() {
            let twin = parse(&path, &fs::read_to_string(&path).unwrap()).unwrap();
            for edit in &twin.edits {
                let text = fs::read_to_string(root.join(CUDA_FOLDER).join(&edit.file)).unwrap();
                assert_eq!(text.matches(&edit.find).count(), 1, "{}: {}", path.display(), edit.find);
            }
        }
    }
}
