//! Damaged PTX and damaged launch files: whatever is read, the answer is a tree or an error at a line, and whatever
//! runs ends clean, with a fault, as unsupported or at the step limit; nothing panics.
//!
//! The mutants come from a seeded generator, so every run sees the same ones. `PTX_EMU_ROBUST_FACTOR=100` multiplies
//! their number and starts from other seeds (`PTX_EMU_ROBUST_SEED`): a campaign by hand. A mutant that panics is left
//! in the target's temporary folder.

#[path = "golden_util/case.rs"]
#[allow(dead_code)]
mod case;
#[path = "golden_util/expr.rs"]
#[allow(dead_code)]
mod expr;
#[path = "robust_util/guard.rs"]
mod guard;
#[path = "golden_util/memory.rs"]
#[allow(dead_code)]
mod memory;
#[path = "robust_util/mod.rs"]
mod robust_util;

use guard::{factor, guarded, seed};
use memory::{Images, Memory};
use ptx_emu::render::{self, Context};
use ptx_emu::syntax::ast::Module;
use ptx_emu::syntax::{parse_bytes, print};
use ptx_emu::{Annotations, Checks, GlobalMemory, Launch, Options, Report, Schedule, Verdict, launch_file};
use robust_util::{Random, damage};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Warp instructions of a mutant: enough to pass set-up and reach the first barriers.
const STEP_LIMIT: u64 = 3_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The PTX files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let below = |p: PathBuf| if p.is_dir() { files(&p) } else { vec![p] };
    paths.into_iter().flat_map(below).filter(|p| p.extension().is_some_and(|e| e == "ptx")).collect()
}

/// Every PTX at hand: the tests', Triton's, and this project's own kernels where they were compiled.
fn corpus() -> Vec<(String, String)> {
    let folders = ["tests", "../../foreign/triton", "../../target/fa4-kernels"];
    let paths = folders.iter().flat_map(|f| files(&root().join(f)));
    let read = |p: PathBuf| Some((p.display().to_string(), std::fs::read_to_string(p).ok()?));
    paths.filter_map(read).collect()
}

/// Printed once and read again, a tree prints the same.
fn check_print(name: &str, module: &Module) {
    let printed = print(module);
    let again = parse_bytes("printed", printed.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}\n"));
    assert_eq!(printed, print(&again), "{name}: the normal form is not a fixed point");
}

#[test]
fn normal_form_is_a_fixed_point_for_every_file() {
    for (name, text) in corpus() {
        if let Ok(module) = parse_bytes(&name, text.as_bytes()) {
            check_print(&name, &module);
        }
    }
}

/// Reads a text; an error must lie within it.
fn parse_checked(bytes: &[u8]) -> Option<Module> {
    let lines = bytes.iter().filter(|&&b| b == b'\n').count() as u32 + 1;
    match parse_bytes("mutant.ptx", bytes) {
        Ok(module) => Some(module),
        Err(e) => {
            assert!(
                (1..=lines).contains(&e.line) && e.column >= 1,
                "line {}:{} of {lines}",
                e.line,
                e.column
            );
            assert!(!e.message.is_empty());
            let text = e.to_string();
            assert!(text.len() < 4_000, "a message of {} bytes", text.len());
            None
        }
    }
}

#[test]
fn damaged_ptx_is_read_or_refused_at_a_line() {
    let mut random = Random(seed(1));
    let corpus = corpus();
    let small: Vec<_> = corpus.iter().filter(|(_, t)| t.len() < 16_000).collect();
    let mut read = 0u64;
    for round in 0..6_000 * factor() {
        // A large kernel now and then; most time goes to small files, whose every token counts.
        let (name, text) = if round % 60 == 0 {
            &corpus[random.below(corpus.len())]
        } else {
            small[random.below(small.len())]
        };
        let mutant = damage(text.as_bytes(), &mut random);
        guarded(&format!("ptx {name} round {round}"), &mutant, || {
            if let Some(module) = parse_checked(&mutant) {
                check_print(name, &module);
                read += 1;
            }
        });
    }
    println!("{} mutants, {read} read", 6_000 * factor());
    assert!(read > 500 * factor(), "only {read} mutants were read: the damage is too heavy to test anything");
}

/// What one run gave must be sound: it can be shown, and has a documented exit code.
fn check_report(module: &Module, report: &Report) {
    let _ = render::verdict(&report.verdict, &Context::of(module, ""));
    assert!([0, 10, 11, 12].contains(&report.exit_code()));
    if let Verdict::Unsupported { what, .. } = &report.verdict {
        assert!(!what.is_empty());
    }
    if let Some(trace) = &report.trace {
        let _ = render::chrome(trace);
    }
}

/// Both ends of the order in which asynchronous effects land.
fn schedules() -> [Schedule; 2] {
    [Schedule::Eager, Schedule::Random]
}

#[test]
fn damaged_programs_run_to_a_verdict() {
    let mut random = Random(seed(2));
    let mut cases = Vec::new();
    for folder in ["exec", "fault", "litmus"] {
        for path in files(&root().join("tests").join(folder)) {
            let text = std::fs::read_to_string(&path).expect("a test file");
            for revision in case::revisions("mutant.ptx", &text).expect("a golden test") {
                let images = Images::new(&revision.header).expect("buffers");
                cases.push((path.display().to_string(), revision, images));
            }
        }
    }
    let mut verdicts = [0u64; 4];
    for round in 0..2_500 * factor() {
        let (name, revision, images) = &cases[random.below(cases.len())];
        let mutant = damage(revision.ptx.as_bytes(), &mut random);
        guarded(&format!("run {name} round {round}"), &mutant, || {
            let Some(module) = parse_checked(&mutant) else { return };
            let Some(kernel) = module.functions.iter().find(|f| f.is_entry) else { return };
            let h = &revision.header;
            for schedule in schedules() {
                let Ok(mut memory) = Memory::new(h, images, kernel) else { return };
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
                let options = Options {
                    schedule,
                    seed: round,
                    checks: Checks::ALL,
                    step_limit: STEP_LIMIT,
                    trace: round % 8 == 0,
                    ..Options::default()
                };
                let report = ptx_emu::run(&launch, &mut memory.gmem, &options);
                check_report(&module, &report);
                verdicts[[0, 10, 11, 12].iter().position(|&c| c == report.exit_code()).unwrap_or(0)] += 1;
            }
        });
    }
    println!("clean, fault, unsupported, step limit: {verdicts:?}");
    assert!(verdicts.iter().all(|&v| v > 0), "a kind of verdict never came: {verdicts:?}");
}

/// A launch file with one of everything, over the kernel that it names.
const LAUNCH: &str = include_str!("launch/triton_softmax.toml");
const LAUNCH_OF_ALL: &str = include_str!("robust_util/all.toml");

#[test]
fn damaged_launch_files_are_read_or_refused_at_a_line() {
    let mut random = Random(seed(3));
    let ptx = root().join("../../foreign/triton/sm_100a/softmax_rows.ptx");
    let text = std::fs::read(&ptx).expect("a Triton kernel");
    let module = parse_bytes("softmax_rows.ptx", &text).expect("parses");
    let (mut read, mut ran) = (0u64, 0u64);
    for round in 0..4_000 * factor() {
        let original = if round % 2 == 0 { LAUNCH } else { LAUNCH_OF_ALL };
        let mutant = damage(original.as_bytes(), &mut random);
        let Ok(text) = std::str::from_utf8(&mutant) else { continue };
        guarded(&format!("launch round {round}"), &mutant, || {
            let lines = text.matches('\n').count() as u32 + 1;
            let launch = match launch_file::parse("launch.toml", text, Path::new("no/such/folder")) {
                Ok(launch) => launch,
                Err(e) => {
                    assert!((1..=lines).contains(&e.line), "line {} of {lines}: {e}", e.line);
                    return;
                }
            };
            read += 1;
            let mut memory = GlobalMemory::new();
            let Ok(addresses) = launch.allocate(&mut memory) else { return };
            let Ok(ready) = launch.launch(&module, &addresses) else { return };
            for schedule in schedules() {
                let options = Options { schedule, seed: round, step_limit: STEP_LIMIT, ..Options::default() };
                check_report(&module, &ptx_emu::run(&ready, &mut memory, &options));
                ran += 1;
            }
        });
    }
    println!("{} launch files, {read} read, {ran} runs", 4_000 * factor());
    assert!(read > 100 && ran > 100, "{read} read, {ran} runs: the damage is too heavy to test anything");
}

/// Extremes through the program itself: exit code 2 (or a verdict), a line in the message, and never a panic's 101.
#[test]
fn extremes_through_the_binary() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extremes");
    std::fs::create_dir_all(&folder).expect("a folder");
    let head = ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k() {\n";
    let body = |text: &str| format!("{head}{text}\n ret;\n}}\n").into_bytes();
    let long = "x".repeat(1 << 20);
    let cases: Vec<(&str, Vec<u8>, i32)> = vec![
        ("not_text", [head.as_bytes(), b"\xff\xfe\x00"].concat(), 2),
        ("empty", vec![], 2),
        ("zeros", vec![0; 4096], 2),
        ("long_name", body(&format!(" {long}.b32 {long}, {long};")), 2),
        ("long_label", body(&[&long, ":\n bra ", &long, ";"].concat()), 0),
        ("deep_scopes", body(&"{\n".repeat(100_000)), 2),
        ("deep_vectors", body(&format!(" mov.b32 {}", "{".repeat(100_000))), 2),
        ("deep_brackets", body(&format!(" ld.b32 {}", "[".repeat(100_000))), 2),
        ("deep_parentheses", body(&format!(" call {}", "(".repeat(100_000))), 2),
        ("many_signs", body(&format!(" mov.b32 _, {}1;", "-".repeat(100_000))), 0),
        ("huge_number", body(" mov.b32 _, 99999999999999999999999;"), 2),
        ("many_registers", body(" .reg .b32 %r<4000000000>;"), 2),
        ("huge_variable", body(" .shared .b8 s[99999999999999];"), 2),
        ("huge_rows", body(" .shared .b8 s[4][4000000000][4000000000];"), 2),
        (
            "huge_initialiser",
            ".version 8.7\n.target sm_100a\n.address_size 64\n.global .b8 s[2][4000000000] = {{1}, {2}};\n"
                .as_bytes()
                .to_vec(),
            2,
        ),
    ];
    for (name, bytes, code) in cases {
        let path = folder.join(format!("{name}.ptx"));
        std::fs::write(&path, bytes).expect("a file");
        let output =
            Command::new(env!("CARGO_BIN_EXE_ptx-emu")).arg("parse").arg(&path).output().expect("runs");
        let text = String::from_utf8_lossy(&output.stderr);
        let start = &text[..text.len().min(2_000)];
        assert_eq!(output.status.code(), Some(code), "{name}: {start}");
        assert!(text.len() < 10_000, "{name}: a message of {} bytes", text.len());
        assert!(code == 0 || text.contains(&format!("{name}.ptx:")), "{name}: no place in {start}");
    }
}

/// Programs and launches that ask for more than the machine has: a verdict, at once and without the memory.
#[test]
fn demands_without_measure_are_refused() {
    let head = ".version 8.7\n.target sm_100a\n.address_size 64\n";
    let kernel = |body: &str| format!("{head}.visible .entry k() {{\n{body}\n ret;\n}}\n");
    let run = |text: &str, grid: [u32; 3], block: [u32; 3], dynamic_smem: u32| {
        let module = parse_bytes("k.ptx", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let launch = Launch {
            module: &module,
            entry: "",
            grid,
            block,
            cluster: [1; 3],
            dynamic_smem,
            params: vec![],
            outputs: vec![],
            annotations: Annotations::default(),
        };
        let options = Options { step_limit: STEP_LIMIT, ..Options::default() };
        let report = ptx_emu::run(&launch, &mut GlobalMemory::new(), &options);
        check_report(&module, &report);
        report.exit_code()
    };
    let one = [1; 3];
    for (declaration, code) in [
        (".shared .b8 s[4294967296];", 10),
        (".shared .b8 a[4294967295];\n .shared .b8 b[4294967295];", 10),
        (".shared .align 1073741824 .b8 a[4];", 10),
        (".local .b8 s[4294967296];", 11),
        (".local .b8 s[134217728];", 11),
        (".local .b8 s[1099511627776];", 11),
    ] {
        assert_eq!(run(&kernel(declaration), one, [32, 1, 1], 0), code, "{declaration}");
    }
    assert_eq!(
        run(
            &format!("{head}.global .b8 g[1099511627776];\n.visible .entry k() {{ ret; }}"),
            one,
            [32, 1, 1],
            0
        ),
        0
    );
    let empty = kernel("");
    for (grid, block, smem, code) in [
        ([u32::MAX; 3], one, 0, 10),
        ([0, 1, 1], one, 0, 10),
        ([1, 65_536, 1], one, 0, 10),
        ([i32::MAX as u32, 65_535, 65_535], one, 0, 12),
        (one, [u32::MAX; 3], 0, 10),
        (one, [1 << 22, 1 << 21, 1 << 21], 0, 10),
        (one, one, u32::MAX, 10),
    ] {
        assert_eq!(run(&empty, grid, block, smem), code, "{grid:?} {block:?} {smem}");
    }
}

/// A message quotes names, and names have any length: it stays a message.
#[test]
fn messages_stay_short() {
    let name = "x".repeat(100_000);
    let launch = format!(
        "ptx = \"k.ptx\"\ngrid = [1]\nblock = [32]\n[[buffer]]\nname = \"{name}\"\ndtype = \"f32\"\nshape = [1]\n\
         [[param]]\nkind = \"buffer\"\nname = \"y{name}\"\n"
    );
    let e = launch_file::parse("launch.toml", &launch, Path::new("")).expect_err("no such buffer");
    assert_eq!(e.line, 10);
    let text = e.to_string();
    assert!(
        text.starts_with("error: no buffer is called `yxxx") && text.len() < 4_000,
        "{} bytes",
        text.len()
    );
}
