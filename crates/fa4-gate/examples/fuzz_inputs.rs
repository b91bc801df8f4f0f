//! Fuzzing by hand of what the gate reads besides PTX: scenario files, kernel tables, twins, lists of mutants, triage of
//! findings, captured launches. Every damaged input is read or refused by a typed error that is not empty.
//!
//! `cargo run --release -p fa4-gate --example fuzz_inputs -- SECONDS SEED`. The exit code is 1 where an input panicked or took
//! longer than 10 s; it is kept in `target/fuzz/`.

#[path = "../../ptx-emu/tests/robust_util/mod.rs"]
mod robust_util;

use fa4_gate::foreign::fa4::capture::HostLaunch;
use fa4_gate::foreign::findings::Triage;
use fa4_gate::mutate::allow::AllowList;
use robust_util::{Random, damage};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Reads a text; the error in words.
type Read = fn(&str) -> Result<(), String>;

struct Kind {
    name: &'static str,
    texts: Vec<String>,
    read: Read,
    tried: u64,
    good: u64,
    failed: u64,
    slowest: Duration,
}

/// A launch as `capture.py` writes it, over [`KERNEL`].
const LAUNCH: &str = r#"{"ptx": "k.ptx", "entry": "k", "grid": [4, 1, 1], "block": [384, 1, 1], "cluster": [2, 1, 1],
 "shared_bytes": 230000, "params": ["0000007f00000000", "0000807f00000000", "0000c842"],
 "tensors": [{"name": "q", "address": 2130706432, "shape": [1, 512, 1, 128], "strides": [65536, 128, 128, 1], "dtype": "bfloat16"},
  {"name": "lse", "address": 2139095040, "shape": [1, 1, 512], "strides": [512, 512, 1], "dtype": "float32"}]}"#;
const KERNEL: &str = ".version 8.7\n.target sm_100a\n.address_size 64\n\
    .visible .entry k(.param .u64 a, .param .u64 b, .param .f32 c) { ret; }\n";

fn launch(text: &str) -> Result<(), String> {
    let launch = HostLaunch::parse(text)?;
    let module = ptx_emu::syntax::parse("k.ptx", KERNEL).map_err(|e| e.to_string())?;
    let params = launch.params(&module, |_| 0x10_0000)?;
    let _ = fa4_gate::foreign::params::lay_out(&params);
    Ok(())
}

/// Texts of the files with extension `ext` below a folder, at most `most` of them.
fn texts(folder: &Path, ext: &str, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ext) && found.len() < most {
                found.extend(std::fs::read_to_string(path));
            }
        }
    }
    found
}

fn kinds(root: &Path) -> Vec<Kind> {
    let kind =
        |name, texts, read| Kind { name, texts, read, tried: 0, good: 0, failed: 0, slowest: Duration::ZERO };
    let findings = std::fs::read_to_string(root.join("foreign-findings.toml")).into_iter();
    vec![
        kind("scenario-csv", texts(&root.join("sets"), "csv", 50), |t| {
            fa4_spec::sets::parse(Path::new("set.csv"), t).map(drop).map_err(|e| e.to_string())
        }),
        kind("kernel-tables", texts(&root.join("target/fa4-kernels"), "ptx", 20), |t| {
            fa4_kernels::kernel_info::parse(t).map(drop).map_err(|e| e.to_string())
        }),
        kind("twins-toml", texts(&root.join("crates/fa4-gate/twins"), "toml", 100), |t| {
            fa4_gate::twins::parse(Path::new("twin.toml"), t).map(drop).map_err(|e| e.to_string())
        }),
        kind("mutants-toml", texts(&root.join("crates/fa4-gate/mutants"), "toml", 100), |t| {
            AllowList::parse(t).map(drop)
        }),
        kind("findings-toml", findings.collect(), |t| Triage::parse(t).map(drop)),
        kind("launch-json", vec![LAUNCH.to_string()], launch),
    ]
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("SECONDS SEED, two numbers"));
    let (seconds, seed) = (args.next().unwrap_or(30), args.next().unwrap_or(0));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("target/fuzz");
    let _ = std::fs::create_dir_all(&folder);
    let mut kinds = kinds(&root);
    kinds.retain(|k| !k.texts.is_empty());
    let mut random = Random(seed << 20);
    let start = Instant::now();
    while start.elapsed().as_secs() < seconds {
        for k in &mut kinds {
            let turn = Instant::now();
            while turn.elapsed() < Duration::from_millis(200) {
                let original = &k.texts[random.below(k.texts.len())];
                let mutant = damage(original.as_bytes(), &mut random);
                let Ok(text) = std::str::from_utf8(&mutant) else { continue };
                let t = Instant::now();
                let result = catch_unwind(AssertUnwindSafe(|| match (k.read)(text) {
                    Ok(()) => true,
                    Err(e) => {
                        assert!(!e.is_empty() && e.len() < 1_000_000, "a message of {} bytes", e.len());
                        false
                    }
                }));
                let took = t.elapsed();
                k.tried += 1;
                k.slowest = k.slowest.max(took);
                k.good += u64::from(matches!(result, Ok(true)));
                if result.is_err() || took > Duration::from_secs(10) {
                    k.failed += 1;
                    let _ = std::fs::write(folder.join(format!("{}-{seed}-{}", k.name, k.tried)), &mutant);
                }
            }
        }
    }
    println!("{:<16} {:>10} {:>10} {:>7} {:>9}", "kind", "tried", "read", "failed", "slowest");
    for k in &kinds {
        let slowest = k.slowest.as_secs_f64();
        println!("{:<16} {:>10} {:>10} {:>7} {slowest:>7.2} s", k.name, k.tried, k.good, k.failed);
    }
    std::process::exit(i32::from(kinds.iter().any(|k| k.failed > 0)));
}
