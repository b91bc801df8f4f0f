//! Probe kernels against an H200: `silicon/probes/*.ptx` runs here, and every recorded word must come out.

mod silicon_util;

use ptx_emu::tma::{ElemType, EncodeArgs, encode};
use ptx_emu::{Annotations, Checks, Code, GlobalMemory, Initial, Launch, Module, Options, Schedule, Verdict};
use serde_json::Value;
use silicon_util::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What this machine cannot run yet: probes that must say "unsupported".
const UNSUPPORTED: &[&str] = &[];

/// Bytes that a kernel does not write keep this value.
const UNWRITTEN: u8 = 0xa5;

fn splitmix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

const F16: [u32; 16] = [
    0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfd01, 0x3c00, 0xbc00,
    0x3555, 0x0200,
];
const BF16: [u32; 16] = [
    0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffa1, 0x3f80, 0xbf80,
    0x3eab, 0x0040,
];
const F32: [u32; 16] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffa0_0001,
    0x3f80_0000,
    0xbf80_0000,
    0x8040_0000,
    0x0040_0000,
];
/// High words; any word also serves as a low word.
const F64: [u32; 16] = [
    0,
    0,
    0,
    0,
    0x8000_0000,
    0x8000_0000,
    1,
    0x000f_ffff,
    0x0010_0000,
    0x7fef_ffff,
    0xffef_ffff,
    0x7ff0_0000,
    0xfff0_0000,
    0x7ff8_0000,
    0x3ff0_0000,
    0xbff0_0000,
];

/// A number format as `record.py` draws it: special values, mantissa bits, bias, mask of exponents, sign bit.
struct Fill(&'static [u32; 16], u32, u32, u32, u32);

impl Fill {
    /// A quarter special values, a quarter any bits, half of them near 1.
    fn number(&self, raw: u32, s: u32) -> u32 {
        let Fill(special, mantissa, bias, spread, sign) = *self;
        match s & 3 {
            0 => special[(s >> 2 & 15) as usize],
            1 => raw,
            _ => raw & (sign | ((1 << mantissa) - 1)) | (bias - 4 + (s >> 2 & spread)) << mantissa,
        }
    }
}

/// The input words of a probe: `inputs` of `record.py`.
fn inputs(fill: &str, seed: u64, count: u64) -> Vec<u32> {
    let word = |z: u64| {
        let (lo, hi) = (z as u32, (z >> 32) as u32);
        let pair = |f: Fill| f.number(lo & 0xffff, hi & 0xffff) | f.number(lo >> 16, hi >> 16) << 16;
        match fill {
            "bits" => lo,
            "f16" => pair(Fill(&F16, 10, 15, 7, 1 << 15)),
            "bf16" => pair(Fill(&BF16, 7, 127, 7, 1 << 15)),
            "f32" => Fill(&F32, 23, 127, 15, 1 << 31).number(lo, hi),
            "f64" => Fill(&F64, 20, 1023, 15, 1 << 31).number(lo, hi),
            other => panic!("unknown fill {other}"),
        }
    };
    (0..count).map(|i| word(splitmix(seed, i))).collect()
}

/// What came of a probe in one run.
enum Outcome {
    Words(Vec<u8>),
    Unsupported(String),
    Deadlock,
    Failed(String),
}

fn run(module: &Module, record: &Value, schedule: Schedule) -> Outcome {
    let n = |k: &str| record[k].as_u64().unwrap_or_else(|| panic!("{record}: no {k}"));
    let words = inputs(record["fill"].as_str().expect("a fill"), n("seed"), n("in_words"));
    let size = 4 * n("out_words");
    let mut memory = GlobalMemory::new();
    let input = memory.alloc("in", 4 * words.len() as u64, 256);
    memory.write(input, &bytes(words)).expect("inside");
    let output = memory.alloc_init("out", size, 256, Initial::Byte(UNWRITTEN));
    let mut params = [input.to_le_bytes(), output.to_le_bytes()].concat();
    if let Some(map) = record.get("map") {
        let list = |k: &str| ints(&map[k]).into_iter().map(|x| x as u64).collect::<Vec<_>>();
        let elem = ElemType::from_host(map["type"].as_u64().expect("a number") as u32).expect("a type");
        let boxes: Vec<u32> = list("box").into_iter().map(|x| x as u32).collect();
        let base = if map["over"] == "in" { input } else { output };
        params.resize(64, 0);
        let args = EncodeArgs::new(elem, base, &list("dims"), &list("strides"), &boxes);
        params.extend(encode(&args).expect("a legal map"));
    }
    let launch = Launch {
        module,
        entry: record["probe"].as_str().expect("a name"),
        grid: [n("grid") as u32, 1, 1],
        block: [n("block") as u32, 1, 1],
        cluster: [n("cluster") as u32, 1, 1],
        dynamic_smem: 0,
        params,
        outputs: vec![(output, size)],
        annotations: Annotations::default(),
    };
    let options = Options { schedule, checks: Checks::ALL, step_limit: 10_000_000, ..Options::default() };
    match ptx_emu::run(&launch, &mut memory, &options).verdict {
        Verdict::Clean => Outcome::Words(memory.read(output, size as usize).expect("inside")),
        Verdict::Unsupported { what, line, .. } => Outcome::Unsupported(format!("{what} (line {line})")),
        Verdict::Fault(f) if f.code == Code::Deadlock => Outcome::Deadlock,
        Verdict::Fault(f) => Outcome::Failed(format!("{f:?}")),
        Verdict::StepLimit => Outcome::Failed("does not end".into()),
    }
}

/// The words that differ, in words.
fn differences(got: &[u8], want: &[u8]) -> Vec<String> {
    let word = |b: &[u8]| b.iter().rev().fold(0u32, |v, &x| v << 8 | u32::from(x));
    let pairs = got.chunks(4).zip(want.chunks(4)).enumerate().filter(|(_, (g, w))| g != w);
    pairs.map(|(i, (g, w))| format!("word {i}: {:#010x}, the H200 says {:#010x}", word(g), word(w))).collect()
}

#[test]
fn probes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/silicon/probes");
    let text = std::fs::read_to_string(dir.join("manifest.json")).expect("a manifest");
    let manifest: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let all = records("probes_sm90.jsonl");
    let names = |v: &[Value]| v.iter().map(|r| r["probe"].to_string()).collect::<BTreeSet<_>>();
    assert_eq!(names(&manifest), names(&all), "record again: the manifest has changed");

    let mut modules: BTreeMap<String, Module> = BTreeMap::new();
    let (mut matched, mut total, mut unsupported, mut wrong) = (0, 0, vec![], vec![]);
    for r in &all {
        let (name, file) = (r["probe"].as_str().expect("a name"), r["file"].as_str().expect("a file"));
        let module = modules.entry(file.into()).or_insert_with(|| {
            let text = std::fs::read_to_string(dir.join(file)).expect("a probe file");
            ptx_emu::syntax::parse(file, &text).unwrap_or_else(|e| panic!("{e}"))
        });
        let want = r.get("out").map(|o| base64(o.as_str().expect("base64")));
        total += want.as_ref().map_or(0, |w| w.len() / 4);
        for schedule in Schedule::ALL {
            let first = schedule == Schedule::ALL[0];
            match (run(module, r, schedule), &want) {
                (Outcome::Unsupported(what), _) => {
                    if first {
                        unsupported.push(name);
                        eprintln!("{name}: unsupported: {what}");
                    }
                }
                (Outcome::Words(got), Some(want)) => {
                    let bad = differences(&got, want);
                    if first {
                        matched += want.len() / 4 - bad.len();
                    }
                    if let Some(text) = bad.first() {
                        wrong.push(format!(
                            "{name} under {}: {} words differ, {text}",
                            schedule.as_str(),
                            bad.len()
                        ));
                    }
                }
                // Where the device hangs, so must the emulator: it reports a deadlock.
                (Outcome::Deadlock, None) => {}
                (Outcome::Deadlock, Some(_)) => {
                    wrong.push(format!("{name} under {}: deadlock", schedule.as_str()))
                }
                (Outcome::Words(_), None) => wrong.push(format!("{name} ends; on the H200 it does not")),
                (Outcome::Failed(what), _) => {
                    wrong.push(format!("{name} under {}: {what}", schedule.as_str()))
                }
            }
        }
    }
    eprintln!(
        "{} probes, {matched} of {total} words match, {} probes unsupported",
        all.len(),
        unsupported.len()
    );
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(unsupported, UNSUPPORTED);
}
