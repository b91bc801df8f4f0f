//! Kinds of inputs that are PTX: damaged text, damaged programs that run, random programs.

use super::case::{self, Revision};
use super::corpus::{Corpus, files, root};
use super::memory::{Images, Memory};
use super::program;
use super::robust_util::{Random, damage};
use super::{Stage, Try};
use ptx_emu::render::{self, Context};
use ptx_emu::syntax::ast::{Module, Span};
use ptx_emu::syntax::{parse_bytes, print};
use ptx_emu::{Annotations, Checks, GlobalMemory, Launch, Options, Report, Schedule};
use std::sync::Arc;

/// Warp instructions after which a run is given up.
const STEP_LIMIT: u64 = 3_000;

/// All kinds of this file.
pub fn all(corpus: &Corpus) -> Vec<(&'static str, Try<'_>)> {
    let cases = cases();
    vec![
        ("ptx-bytes", Box::new(|r, keep| text(corpus, r, keep, bytes))),
        ("ptx-tokens", Box::new(|r, keep| text(corpus, r, keep, damage))),
        ("run-damaged", Box::new(move |r, keep| damaged(&cases, r, keep))),
        ("run-random", Box::new(|r, keep| random(corpus, r, keep, false))),
        ("run-parallel", Box::new(|r, keep| random(corpus, r, keep, true))),
    ]
}

/// Flips, inserts, removes and copies bytes.
fn bytes(text: &[u8], r: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..1 + r.below(6) {
        let at = r.below(text.len() + 1);
        let end = (at + r.below(12)).min(text.len());
        match r.below(5) {
            0 if at < text.len() => text[at] ^= 1 << r.below(8),
            1 => text.insert(at, r.next() as u8),
            2 => drop(text.drain(at..end)),
            3 => {
                let piece = text[at..end].to_vec();
                let to = r.below(text.len() + 1);
                text.splice(to..to, piece);
            }
            _ if at < text.len() => text[at] = b" \n\"{}[]();,.@%:-+/*\0\x7f"[r.below(21)],
            _ => {}
        }
    }
    text
}

fn text(c: &Corpus, r: &mut Random, keep: &dyn Fn(&[u8]), wound: fn(&[u8], &mut Random) -> Vec<u8>) -> Stage {
    // Large files are rare: most time goes to texts whose every token counts.
    let most = if r.below(60) == 0 { usize::MAX } else { 16_000 };
    let (_, text) = loop {
        let one = &c.files[r.below(c.files.len())];
        if one.1.len() < most {
            break one;
        }
    };
    let input = if r.below(500) == 0 { text.clone().into_bytes() } else { wound(text.as_bytes(), r) };
    keep(&input);
    read(&input).map_or(Stage::Refused, |_| Stage::Read)
}

/// Reads a text: an error lies within it; a tree printed and read again is the same.
fn read(text: &[u8]) -> Option<Module> {
    let lines = text.iter().filter(|&&b| b == b'\n').count() as u32 + 1;
    match parse_bytes("mutant.ptx", text) {
        Ok(module) => {
            let printed = print(&module);
            let again = parse_bytes("printed", printed.as_bytes()).unwrap_or_else(|e| panic!("printed: {e}"));
            assert_eq!(tree(&module), tree(&again), "parse(print(parse(x))) is another tree");
            Some(module)
        }
        Err(e) => {
            assert!((1..=lines).contains(&e.line) && e.column >= 1, "line {} of {lines}", e.line);
            assert!(e.to_string().len() < 4_000, "a long message");
            None
        }
    }
}

/// The tree without what printing drops: places, and names of what has a number.
fn tree(m: &Module) -> String {
    let mut m = m.clone();
    m.name.clear();
    m.files.clear();
    m.locs.clear();
    let none: Arc<str> = Arc::from("");
    for f in &mut m.functions {
        f.line = 0;
        f.regs.iter_mut().for_each(|r| r.0 = none.clone());
        f.labels.clear();
        f.vars.iter_mut().for_each(|v| v.name.clear());
        f.body.iter_mut().for_each(|i| i.span = Span::default());
    }
    format!("{m:?}")
}

/// What one run gave must be sound: it can be shown, and has a documented exit code.
pub fn check(module: &Module, report: &Report) {
    let context = Context::of(module, "");
    let _ = render::verdict(&report.verdict, &context);
    assert!([0, 10, 11, 12].contains(&report.exit_code()));
    if let Some(trace) = &report.trace {
        let _ = render::chrome(trace);
    }
}

fn cases() -> Vec<(Revision, Images)> {
    let mut cases = Vec::new();
    for folder in ["exec", "fault", "litmus"] {
        for path in files(&root().join("tests").join(folder)) {
            let text = std::fs::read_to_string(&path).expect("a test file");
            for revision in case::revisions("mutant.ptx", &text).expect("a golden test") {
                let images = Images::new(&revision.header).expect("buffers");
                cases.push((revision, images));
            }
        }
    }
    cases
}

/// A golden test's program, damaged, under one schedule.
fn damaged(cases: &[(Revision, Images)], r: &mut Random, keep: &dyn Fn(&[u8])) -> Stage {
    let (revision, images) = &cases[r.below(cases.len())];
    let input = damage(revision.ptx.as_bytes(), r);
    keep(&input);
    let Some(module) = read(&input) else { return Stage::Refused };
    let Some(kernel) = module.functions.iter().find(|f| f.is_entry) else { return Stage::Read };
    let h = &revision.header;
    let Ok(mut memory) = Memory::new(h, images, kernel) else { return Stage::Read };
    let launch = Launch {
        module: &module,
        entry: "",
        grid: h.grid,
        block: h.block,
        cluster: h.cluster,
        dynamic_smem: h.smem,
        params: memory.params.clone(),
        outputs: memory.outputs(),
        annotations: Annotations::default(),
    };
    check(&module, &ptx_emu::run(&launch, &mut memory.gmem, &options(r)));
    Stage::Ran
}

/// Any schedule, mostly all checks, sometimes strict or traced.
pub fn options(r: &mut Random) -> Options {
    let schedules =
        [Schedule::Eager, Schedule::LateLifo, Schedule::LateTma, Schedule::Random, Schedule::Timed];
    Options {
        schedule: schedules[r.below(5)],
        seed: r.next(),
        checks: if r.below(5) == 0 { Checks::NONE } else { Checks::ALL },
        strict: r.below(2) == 0,
        step_limit: STEP_LIMIT,
        resident: 1 + r.below(3),
        trace: r.below(8) == 0,
        ..Options::default()
    }
}

/// A random program under every schedule; with `twice`, in four threads at once, which must agree to the bit.
fn random(c: &Corpus, r: &mut Random, keep: &dyn Fn(&[u8]), twice: bool) -> Stage {
    let text = program::program(c, r);
    keep(text.as_bytes());
    let Some(module) = read(text.as_bytes()) else { return Stage::Refused };
    let block = [32, 64, 128, 160, 33, 1, 256][r.below(7)];
    let grid = [1, 2, 4][r.below(3)];
    let cluster = if r.below(4) == 0 { 2.min(grid) } else { 1 };
    let once = |options: &Options| {
        let mut memory = GlobalMemory::new();
        let base = memory.alloc("p0", 4096, 256);
        let data: Vec<u8> = (0..2048u32).map(|i| (i * 7) as u8).collect();
        memory.write(base, &data).expect("in bounds");
        let mut params = base.to_le_bytes().to_vec();
        params.resize(64 + 128, 0);
        let launch = Launch {
            module: &module,
            entry: "",
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            cluster: [cluster, 1, 1],
            dynamic_smem: 4096,
            params,
            outputs: vec![],
            annotations: Annotations::default(),
        };
        let report = ptx_emu::run(&launch, &mut memory, options);
        check(&module, &report);
        (
            format!("{:?} {:?}", report.verdict, report.strict),
            report.counters.steps,
            memory.read(base, 4096).ok(),
        )
    };
    if twice {
        let options = options(r);
        let serial = once(&options);
        std::thread::scope(|s| {
            let all: Vec<_> = (0..4).map(|_| s.spawn(|| once(&options))).collect();
            for one in all {
                assert_eq!(one.join().expect("no panic"), serial, "parallel and serial differ");
            }
        });
    } else {
        let mut options = options(r);
        for schedule in Schedule::ALL.into_iter().chain([Schedule::Timed]) {
            options.schedule = schedule;
            once(&options);
        }
    }
    Stage::Ran
}
