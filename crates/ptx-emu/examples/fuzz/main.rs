//! Fuzzing by hand: random and damaged inputs for some seconds, each answered by a value or a typed error, never by
//! a panic, without measure in time or memory.
//!
//! ```text
//! (ulimit -v 4194304; cargo run --release -p ptx-emu --example fuzz -- --seconds 60 --seed 1 [--kind ptx,run])
//! ```
//!
//! An input that fails is kept in `target/fuzz/`, and the one being tried in `current-SEED` there; the table at the end counts by place of the panic. The address-space
//! limit makes memory without measure an abort. The exit code is 1 where something failed.

#[path = "../../tests/golden_util/case.rs"]
#[allow(dead_code)]
mod case;
mod corpus;
#[path = "../../tests/golden_util/expr.rs"]
#[allow(dead_code)]
mod expr;
mod kinds;
mod launches;
#[path = "../../tests/golden_util/memory.rs"]
#[allow(dead_code)]
mod memory;
mod program;
#[path = "../../tests/robust_util/mod.rs"]
mod robust_util;

use clap::Parser;
use robust_util::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Flags.
#[derive(Parser)]
struct Args {
    /// How long to go on, all kinds together.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the generator starts; another one gives other inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Kinds of inputs, separated by commas (default: all).
    #[arg(long, value_delimiter = ',')]
    kind: Vec<String>,
}

/// How far an input came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Not read.
    Refused,
    /// Read.
    Read,
    /// Run to a verdict.
    Ran,
}

/// Makes one input, tells it to the second argument, and tries it.
pub type Try<'a> = Box<dyn Fn(&mut Random, &dyn Fn(&[u8])) -> Stage + 'a>;

#[derive(Default)]
struct Count {
    tried: u64,
    read: u64,
    ran: u64,
    failed: u64,
    slowest: Duration,
}

/// Place and text of the last panic.
static LAST: Mutex<String> = Mutex::new(String::new());

/// An input that takes longer than this fails.
const LONGEST: Duration = Duration::from_secs(10);

fn main() {
    let args = Args::parse();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or("?".into(), |l| format!("{}:{}", l.file(), l.line()));
        let payload = info.payload();
        let text =
            payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        let text = text.and_then(|t| t.lines().next()).unwrap_or("?");
        *LAST.lock().unwrap_or_else(|e| e.into_inner()) =
            format!("{place}: {}", text.get(..200).unwrap_or(text));
    }));
    let corpus = corpus::Corpus::read();
    println!("{} files, {} instruction shapes", corpus.files.len(), corpus.shapes.len());
    let mut kinds: Vec<(&str, Try<'_>)> = kinds::all(&corpus);
    kinds.extend(launches::all(&corpus));
    if !args.kind.is_empty() {
        kinds.retain(|(name, _)| args.kind.iter().any(|k| k == name));
    }
    assert!(!kinds.is_empty(), "no such kind");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let _ = std::fs::create_dir_all(&folder);
    // Written before it is tried, so that it survives an abort or a kill.
    let current = folder.join(format!("current-{}", args.seed));
    let keep = |input: &[u8]| drop(std::fs::write(&current, input));
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut places: BTreeMap<String, (u64, PathBuf)> = BTreeMap::new();
    let mut random = Random(args.seed << 20);
    let start = Instant::now();
    'all: loop {
        for (name, attempt) in &kinds {
            // Kinds take turns by time, so that a slow one does not starve the others.
            let turn = Instant::now();
            while turn.elapsed() < Duration::from_millis(500) {
                if start.elapsed().as_secs() >= args.seconds {
                    break 'all;
                }
                let t = Instant::now();
                let result = catch_unwind(AssertUnwindSafe(|| attempt(&mut random, &keep)));
                let took = t.elapsed();
                let c = counts.entry(name).or_default();
                c.tried += 1;
                c.slowest = c.slowest.max(took);
                let failure = match result {
                    Ok(stage) => {
                        c.read += u64::from(stage >= Stage::Read);
                        c.ran += u64::from(stage == Stage::Ran);
                        (took > LONGEST).then(|| format!("took {took:?}"))
                    }
                    Err(_) => Some(LAST.lock().unwrap_or_else(|e| e.into_inner()).clone()),
                };
                if let Some(text) = failure {
                    c.failed += 1;
                    let entry = places.entry(format!("{name}: {text}")).or_insert_with(|| {
                        let path = folder.join(format!("{name}-{}-{}", args.seed, c.tried));
                        let _ = std::fs::copy(&current, &path);
                        (0, path)
                    });
                    entry.0 += 1;
                }
            }
        }
    }
    println!("{:<16} {:>10} {:>10} {:>10} {:>7} {:>9}", "kind", "tried", "read", "ran", "failed", "slowest");
    for (name, c) in &counts {
        println!(
            "{name:<16} {:>10} {:>10} {:>10} {:>7} {:>7.2} s",
            c.tried,
            c.read,
            c.ran,
            c.failed,
            c.slowest.as_secs_f64()
        );
    }
    for (text, (n, path)) in &places {
        println!("FAILED {n} times: {text}\n    first: {}", path.display());
    }
    std::process::exit(i32::from(!places.is_empty()));
}
