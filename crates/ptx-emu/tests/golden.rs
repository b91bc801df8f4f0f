//! Golden tests of the machine: PTX files that say in their header what must come of them.
//!
//! `exec/` computes values, `fault/` pairs a broken kernel with its one-line repair, `litmus/` shows that a missing
//! wait matters, `unsupported/` pins what the machine refuses. `README.md` says how to add a file. Every file runs
//! under all four schedules and all its seeds; nothing is timed and nothing is retried.

#[path = "golden_util/case.rs"]
mod case;
#[path = "golden_util/expr.rs"]
mod expr;
#[path = "golden_util/memory.rs"]
mod memory;

use case::{Revision, revisions};
use libtest_mimic::{Arguments, Failed, Trial};
use memory::{Images, Memory};
use ptx_emu::render::{self, Context};
use ptx_emu::syntax::ast::{Function, Module};
use ptx_emu::{Annotations, BarrierName, Checks, Code, Launch, Options, RegionName, Report, RoleName};
use ptx_emu::{Schedule, Verdict};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type Res<T> = Result<T, String>;

/// Codes without a pair in `fault/`, and why.
const WITHOUT_PAIR: &[(&str, &str)] = &[];

/// A test that needs more steps than this does not end.
const STEP_LIMIT: u64 = 3_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// All files below `dir`, sorted.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().flat_map(|p| if p.is_dir() { files(&p) } else { vec![p] }).collect()
}

fn main() {
    let args = Arguments::from_args();
    let mut trials = Vec::new();
    for kind in ["exec", "fault", "litmus", "unsupported"] {
        for path in files(&root().join(kind)) {
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            if path.extension().is_some_and(|e| e == "ptx") {
                let name = name.trim_end_matches(".ptx").to_string();
                trials.push(Trial::test(name, move || judge(kind, &path).map_err(Failed::from)));
            } else if !belongs(&path) {
                let why = format!("{name} belongs to no test: remove it");
                trials.push(Trial::test(name, || Err(why.into())));
            }
        }
    }
    trials.push(Trial::test("every_code_has_a_pair", || coverage().map_err(Failed::from)));
    libtest_mimic::run(&args, trials).exit();
}

/// Whether a side file stands beside its test.
fn belongs(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.strip_suffix(".stderr").is_some_and(|t| Path::new(&format!("{t}.ptx")).exists())
}

fn judge(kind: &str, path: &Path) -> Res<()> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let revs = revisions(&file, &text)?;
    match (kind, revs.as_slice()) {
        ("exec", [one]) if one.fault.is_none() => clean(one, Checks::ALL),
        ("exec", _) => Err("an exec file has one revision and no FAULT".into()),
        ("unsupported", [one]) => unsupported(one, path),
        ("unsupported", _) => Err("an unsupported file has one revision".into()),
        (_, [fixed, broken]) => {
            if fixed.fault.is_some() || broken.fault.is_none() {
                return Err("`broken` needs one FAULT, `fixed` none".into());
            }
            clean(fixed, Checks::ALL).map_err(|e| format!("fixed: {e}"))?;
            faults(broken)?;
            if kind == "litmus" {
                clean(fixed, Checks::NONE).map_err(|e| format!("fixed without checks: {e}"))?;
                return litmus(broken);
            }
            pin(broken, path)
        }
        _ => Err(format!("a {kind} file has the revisions [\"fixed\", \"broken\"]")),
    }
}

/// A parsed revision.
struct Parsed<'a> {
    rev: &'a Revision,
    module: Module,
    images: Images,
}

impl<'a> Parsed<'a> {
    fn new(rev: &'a Revision) -> Res<Parsed<'a>> {
        let module = ptx_emu::syntax::parse(&rev.file, &rev.ptx).map_err(|e| e.to_string())?;
        Ok(Parsed { rev, module, images: Images::new(&rev.header)? })
    }

    fn kernel(&self) -> Res<&Function> {
        self.module.functions.iter().find(|f| f.is_entry).ok_or_else(|| "no kernel in the file".into())
    }

    fn run(&self, schedule: Schedule, seed: u64, checks: Checks, strict: bool) -> Res<(Report, Memory)> {
        let h = &self.rev.header;
        let mut memory = Memory::new(h, &self.images, self.kernel()?)?;
        let region =
            |(name, r): (&String, &[u32; 2])| RegionName { name: name.clone(), start: r[0], len: r[1] };
        let annotations = Annotations {
            roles: h
                .roles
                .iter()
                .map(|(name, r)| RoleName { name: name.clone(), first_warp: r[0], warps: r[1] })
                .collect(),
            barriers: h
                .barriers
                .iter()
                .map(|(name, b)| BarrierName {
                    name: name.clone(),
                    offset: b.offset,
                    stages: b.stages,
                    arrivers: b.arrivers.clone(),
                    waiters: b.waiters.clone(),
                })
                .collect(),
            shared: h.shared.iter().map(region).collect(),
            tmem: h.tmem.iter().map(region).collect(),
        };
        let launch = Launch {
            module: &self.module,
            entry: "",
            grid: h.grid,
            block: h.block,
            cluster: h.cluster,
            dynamic_smem: h.smem,
            params: memory.params.clone(),
            outputs: memory.outputs(),
            annotations,
        };
        let opts = Options { schedule, seed, checks, strict, step_limit: STEP_LIMIT, ..Options::default() };
        Ok((ptx_emu::run(&launch, &mut memory.gmem, &opts), memory))
    }

    /// A verdict as `ptx-emu run` prints it.
    fn render(&self, verdict: &Verdict) -> String {
        let context = Context { ptx: Some(&self.rev.ptx), ..Context::of(&self.module, "") };
        render::verdict(verdict, &context)
    }
}

/// What the manual asks of every kernel and short examples leave out, unless they are about the strict level.
const LEFT_OUT: [Code; 2] = [Code::StrictMbarrierInit, Code::StrictTensorFence];

/// Clean, at the strict level too, and right under every schedule and seed.
fn clean(rev: &Revision, checks: Checks) -> Res<()> {
    let parsed = Parsed::new(rev)?;
    for (schedule, seed) in rev.header.runs()? {
        let at = format!("{} seed {seed}", schedule.as_str());
        let (report, memory) = parsed.run(schedule, seed, checks, rev.header.strict)?;
        if !report.is_clean() {
            return Err(format!("{at}: expected clean, got {}", parsed.render(&report.verdict)));
        }
        if let Some(f) = report.strict.iter().find(|f| !LEFT_OUT.contains(&f.code)) {
            let found = Verdict::Fault(Box::new(f.clone()));
            return Err(format!("{at}: expected clean, got {}", parsed.render(&found)));
        }
        if let Some(d) = memory.difference() {
            return Err(format!("{at}: {d}"));
        }
    }
    Ok(())
}

/// The declared fault, at its line, under every schedule and seed (or under some, with a reason).
fn faults(rev: &Revision) -> Res<()> {
    let (parsed, Some(want)) = (Parsed::new(rev)?, &rev.fault) else { return Err("no FAULT".into()) };
    let (mut seen, mut missed) = (0, 0);
    for (schedule, seed) in rev.header.runs()? {
        let at = format!("broken: {} seed {seed}", schedule.as_str());
        let (report, _) = parsed.run(schedule, seed, Checks::ALL, rev.header.strict)?;
        let f = match &report.verdict {
            Verdict::Fault(f) => f,
            Verdict::Clean if rev.header.detect == "some" => {
                missed += 1;
                continue;
            }
            v => return Err(format!("{at}: expected {}, got {}", want.code.as_str(), parsed.render(v))),
        };
        seen += 1;
        let (body, text) = (&parsed.kernel()?.body, parsed.render(&report.verdict));
        let line = f.site.as_ref().and_then(|s| body.get(s.pc as usize)).map(|i| i.span.line);
        let there = line.map_or(want.lines.is_empty(), |l| want.lines.contains(&l));
        if f.code != want.code || !there {
            let (code, lines) = (want.code.as_str(), &want.lines);
            return Err(format!("{at}: expected {code} at lines {lines:?}, got line {line:?}: {text}"));
        }
        if let Some(n) = rev.notes.iter().find(|n| !text.contains(n.as_str())) {
            return Err(format!("{at}: `{n}` is missing in: {text}"));
        }
    }
    match (rev.header.detect.as_str(), seen, missed) {
        ("some", 0, _) => Err("detect = \"some\", but no run found it".into()),
        ("some", _, 0) => Err("every run found it: leave detect away".into()),
        _ => Ok(()),
    }
}

/// Without checks: what the missing wait does under each schedule that the header names.
fn litmus(rev: &Revision) -> Res<()> {
    let parsed = Parsed::new(rev)?;
    if rev.header.litmus.get("eager").map(String::as_str) != Some("right") {
        return Err("litmus.eager must be \"right\": otherwise the file shows no missing wait".into());
    }
    for (name, want) in &rev.header.litmus {
        let schedule = Schedule::parse(name).ok_or_else(|| format!("no schedule `{name}`"))?;
        let (report, memory) = parsed.run(schedule, 0, Checks::NONE, false)?;
        let got = match (&report.verdict, memory.difference()) {
            (Verdict::Clean, None) => "right".to_string(),
            (Verdict::Clean, Some(_)) => "wrong".to_string(),
            (Verdict::Fault(f), _) => format!("fault {}", f.code.as_str()),
            (v, _) => parsed.render(v),
        };
        if got != *want {
            return Err(format!("without checks under {name}: expected {want}, got {got}"));
        }
    }
    if !rev.header.litmus.values().any(|v| v != "right") {
        return Err("no schedule tells the broken revision from the fixed one".into());
    }
    Ok(())
}

/// The whole text of the fault under `eager`, in the file beside the test.
fn pin(rev: &Revision, path: &Path) -> Res<()> {
    let parsed = Parsed::new(rev)?;
    for (schedule, seed) in rev.header.runs()? {
        let (report, _) = parsed.run(schedule, seed, Checks::ALL, rev.header.strict)?;
        if let Verdict::Fault(_) = &report.verdict {
            return compare(path, &parsed.render(&report.verdict));
        }
    }
    Err("no fault to pin".into())
}

fn unsupported(rev: &Revision, path: &Path) -> Res<()> {
    let parsed = Parsed::new(rev)?;
    for (schedule, seed) in rev.header.runs()? {
        let (report, _) = parsed.run(schedule, seed, Checks::ALL, rev.header.strict)?;
        let text = parsed.render(&report.verdict);
        if !matches!(report.verdict, Verdict::Unsupported { .. }) {
            return Err(format!("expected unsupported, got {text}"));
        }
        compare(path, &format!("{text}exit code: {}\n", report.exit_code()))?;
    }
    Ok(())
}

/// Compares with the side file, or writes it when `PTX_EMU_BLESS` is set.
fn compare(path: &Path, got: &str) -> Res<()> {
    let side = path.with_extension("stderr");
    let bless = std::env::var_os("PTX_EMU_BLESS").is_some();
    match std::fs::read_to_string(&side) {
        Ok(want) if want == got => Ok(()),
        _ if bless => std::fs::write(&side, got).map_err(|e| format!("{}: {e}", side.display())),
        Ok(want) => Err(format!("{} says\n{want}but the run said\n{got}(cargo xtask bless)", side.display())),
        Err(e) => Err(format!("{}: {e}; the run said\n{got}(cargo xtask bless)", side.display())),
    }
}

/// Every fault code has a pair, or a reason why not.
fn coverage() -> Res<()> {
    let mut have = BTreeSet::new();
    for path in files(&root().join("fault")).iter().filter(|p| p.extension().is_some_and(|e| e == "ptx")) {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        let revs = revisions("", &text).map_err(|e| format!("{}: {e}", path.display()))?;
        have.extend(revs.iter().filter_map(|r| r.fault.as_ref()).map(|f| f.code));
    }
    let excused = |c: Code| WITHOUT_PAIR.iter().any(|(code, _)| Code::parse(code) == Some(c));
    let missing: Vec<&str> =
        Code::ALL.iter().filter(|c| !have.contains(c) && !excused(**c)).map(|c| c.as_str()).collect();
    let stale: Vec<&str> = have.iter().filter(|c| excused(**c)).map(|c| c.as_str()).collect();
    match (missing.is_empty(), stale.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("no pair in fault/ for {}", missing.join(", "))),
        _ => Err(format!("WITHOUT_PAIR lists codes that have one: {}", stale.join(", "))),
    }
}
