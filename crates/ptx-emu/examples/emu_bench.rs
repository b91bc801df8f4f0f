//! The emulator's speed against its bars, one line each: figure, bar, met or not.
//!
//! `cargo run --release -p ptx-emu --example emu_bench`. Times are processor time of this thread where Linux tells
//! it (`/proc/thread-self/schedstat`), else elapsed time, and the best of several runs, so that other work on the
//! machine blurs them little; it still costs cache and clock. With the argument `attention`,
//! `softmax` or `pair`, only that is run, for a profiler.

use ptx_emu::machine::decode::{Layout, decode};
use ptx_emu::tma::{ElemType, EncodeArgs, encode};
use ptx_emu::{Checks, GlobalMemory, Launch, Module, Options, syntax};
use std::time::Instant;

/// A kernel that this project did not write: attention, head dimension 128, compiled by Triton for sm_100a.
const ATTENTION: &str = include_str!("../../../foreign/triton/sm_100a/attn_fwd_d128.ptx");

/// A matmul of CTA pairs, compiled by Triton for sm_100a.
const PAIR: &str = include_str!("../../../foreign/triton/sm_100a/matmul_pair.ptx");

/// Processor seconds of this thread so far.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

/// Seconds that `f` takes, the best of `runs`.
fn seconds(runs: usize, mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let (wall, cpu) = (Instant::now(), processor_seconds());
        f();
        let spent = processor_seconds().zip(cpu).map(|(a, b)| a - b);
        best = best.min(spent.unwrap_or_else(|| wall.elapsed().as_secs_f64()));
    }
    best
}

/// Prints one line; `most`: the figure must not exceed the bar (else: not fall short of it).
fn line(what: &str, figure: f64, bar: f64, unit: &str, most: bool) {
    let met = if most { figure <= bar } else { figure >= bar };
    let (than, word) = (if most { "<=" } else { ">=" }, if met { "met" } else { "NOT met" });
    println!("{what:<58} {figure:8.2} {unit:<18} bar {than} {bar:<5} {word}");
}

/// About 10 MB of real code: the attention kernel again and again under other names.
fn ten_megabytes() -> String {
    let start = ATTENTION.find(".visible .entry").expect("a kernel");
    let mut text = ATTENTION[..start].to_string();
    let mut n = 0;
    while text.len() < 10_000_000 {
        text.push_str(&ATTENTION[start..].replace("attn_fwd", &format!("attn_fwd_{n}")));
        n += 1;
    }
    text
}

fn decoding() -> f64 {
    let text = ten_megabytes();
    seconds(3, || {
        let module = syntax::parse("ten.ptx", &text).expect("parses");
        for f in module.functions.iter().filter(|f| f.is_entry) {
            let layout = Layout {
                module_vars: vec![0x400; module.vars.len()],
                func_vars: vec![0x400; f.vars.len()],
                ..Layout::default()
            };
            std::hint::black_box(decode(&module, f, layout).expect("decodes"));
        }
    })
}

/// The instruction mix of a softmax on registers: row maximum, exponents, row sum, conversion to bf16.
fn softmax_like(rounds: u32) -> String {
    use std::fmt::Write;
    let mut body = String::new();
    // Eight values, %f0..%f7, kept between 0 and 1.
    for i in 0..8 {
        let (a, e) = (i, i + 8);
        let _ = write!(
            body,
            "  max.f32 %m, %m, %f{a};
  fma.rn.ftz.f32 %f{e}, %f{a}, %scale, %neg;
  ex2.approx.ftz.f32 %f{e}, %f{e};
  add.f32 %sum, %sum, %f{e};
  fma.rn.ftz.f32 %f{a}, %f{e}, %half, %f{a};
  mov.b32 %r{i}, %f{e};
"
        );
    }
    for i in 0..4 {
        let (lo, hi) = (8 + 2 * i, 9 + 2 * i);
        let _ = writeln!(body, "  cvt.rn.bf16x2.f32 %r{}, %f{hi}, %f{lo};", 8 + i);
    }
    let inputs: String = (0..8).map(|i| format!("  mul.f32 %f{i}, %half, 0f3F{:02X}0000;\n", i)).collect();
    format!(
        ".version 8.7
.target sm_100a
.address_size 64
.visible .entry softmax() {{
  .reg .pred %p;
  .reg .f32 %f<16>, %m, %sum, %scale, %neg, %half;
  .reg .b32 %r<12>, %i;
  mov.f32 %m, 0f00000000;
  mov.f32 %sum, 0f00000000;
  mov.f32 %scale, 0f3E000000;
  mov.f32 %neg, 0fBF800000;
  mov.f32 %half, 0f3F000000;
{inputs}  mov.u32 %i, 0;
L:
{body}  add.s32 %i, %i, 1;
  setp.lt.s32 %p, %i, {rounds};
  @%p bra L;
  ret;
}}
"
    )
}

/// Million warp instructions a second.
fn softmax(checks: Checks) -> f64 {
    let module = syntax::parse("softmax.ptx", &softmax_like(10_000)).expect("parses");
    let launch = Launch {
        module: &module,
        entry: "softmax",
        grid: [1; 3],
        block: [128, 1, 1],
        cluster: [1; 3],
        dynamic_smem: 0,
        params: vec![],
        outputs: vec![],
        annotations: Default::default(),
    };
    let options = Options { checks, ..Options::default() };
    let mut steps = 0;
    let spent = seconds(5, || {
        let report = ptx_emu::run(&launch, &mut GlobalMemory::new(), &options);
        assert!(report.is_clean(), "{:?}", report.verdict);
        steps = report.counters.steps;
    });
    steps as f64 / spent * 1e-6
}

/// A parameter at the next multiple of its alignment.
fn push(params: &mut Vec<u8>, align: usize, bytes: &[u8]) {
    params.resize(params.len().next_multiple_of(align), 0);
    params.extend_from_slice(bytes);
}

/// Seconds of one head of 1024 queries and keys, and its warp instructions.
fn attention(checks: Checks, runs: usize) -> (f64, u64) {
    const S: u64 = 1024;
    const D: u64 = 128;
    let module: Module = syntax::parse("attn_fwd_d128.ptx", ATTENTION).expect("parses");
    let mut steps = 0;
    let spent = seconds(runs, || {
        let mut memory = GlobalMemory::new();
        let mut params = Vec::new();
        push(&mut params, 4, &(D as f32).sqrt().recip().to_le_bytes());
        let lse = memory.alloc("lse", S * 4, 256);
        push(&mut params, 8, &lse.to_le_bytes());
        // Values around zero with a full mantissa; the speed does not depend on them.
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
            (x.to_bits() >> 16) as u16
        };
        for (name, rows) in [("q", 128), ("k", 64), ("v", 64), ("o", 128)] {
            let base = memory.alloc(name, S * D * 2, 256);
            if name != "o" {
                let data: Vec<u8> = (0..S * D).flat_map(|_| random().to_le_bytes()).collect();
                memory.write(base, &data).expect("in bounds");
            }
            let mut map = EncodeArgs::new(ElemType::BF16, base, &[D, S], &[D * 2], &[64, rows]);
            map.swizzle = 3;
            push(&mut params, 64, &encode(&map).expect("a valid map"));
            push(&mut params, 4, &(S as u32).to_le_bytes());
            push(&mut params, 4, &(D as u32).to_le_bytes());
            push(&mut params, 8, &D.to_le_bytes());
            push(&mut params, 8, &1u64.to_le_bytes());
        }
        push(&mut params, 4, &(S as u32).to_le_bytes());
        push(&mut params, 8, &[0; 16]);
        let launch = Launch {
            module: &module,
            entry: "attn_fwd",
            grid: [(S / 128) as u32, 1, 1],
            block: [128, 1, 1],
            cluster: [1; 3],
            dynamic_smem: 98_368,
            params,
            outputs: vec![(lse, S * 4)],
            annotations: Default::default(),
        };
        let report = ptx_emu::run(&launch, &mut memory, &Options { checks, ..Options::default() });
        assert!(report.is_clean(), "{:?}", report.verdict);
        steps = report.counters.steps;
    });
    (spent, steps)
}

/// Seconds of a matmul of 512 x 512 x 2048 by CTA pairs.
fn pair(checks: Checks, runs: usize) -> f64 {
    const M: u64 = 512;
    const K: u64 = 2048;
    let module: Module = syntax::parse("matmul_pair.ptx", PAIR).expect("parses");
    seconds(runs, || {
        let mut memory = GlobalMemory::new();
        let mut params = Vec::new();
        let mut c = 0;
        for (name, cols, rows) in [("a", K, 128), ("b", K, 64), ("c", M, 128)] {
            c = memory.alloc(name, M * cols * 2, 256);
            if name != "c" {
                let data: Vec<u8> =
                    (0..M * cols).flat_map(|i| (0x3f80 + (i % 61) as u16).to_le_bytes()).collect();
                memory.write(c, &data).expect("in bounds");
            }
            let mut map = EncodeArgs::new(ElemType::BF16, c, &[cols, M], &[cols * 2], &[64, rows]);
            map.swizzle = 3;
            push(&mut params, 64, &encode(&map).expect("a valid map"));
            push(&mut params, 4, &(M as u32).to_le_bytes());
            push(&mut params, 4, &(cols as u32).to_le_bytes());
            push(&mut params, 8, &cols.to_le_bytes());
            push(&mut params, 8, &1u64.to_le_bytes());
        }
        for x in [M, M, K] {
            push(&mut params, 4, &(x as u32).to_le_bytes());
        }
        push(&mut params, 8, &[0; 16]);
        let launch = Launch {
            module: &module,
            entry: "matmul_pair",
            grid: [2 * (M / 256 * (M / 128)) as u32, 1, 1],
            block: [128, 1, 1],
            cluster: [2, 1, 1],
            dynamic_smem: 73_784,
            params,
            outputs: vec![(c, M * M * 2)],
            annotations: Default::default(),
        };
        let report = ptx_emu::run(&launch, &mut memory, &Options { checks, ..Options::default() });
        assert!(report.is_clean(), "{:?}", report.verdict);
    })
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("attention") => {
            let (s, steps) = attention(Checks::ALL, 1);
            return println!("{s:.2} s, {steps} warp instructions");
        }
        Some("pair") => {
            let (all, none) = (pair(Checks::ALL, 5), pair(Checks::NONE, 5));
            return line("matmul of CTA pairs, all checks over none", all / none, 6.0, "times", true);
        }
        Some("softmax") => return println!("{:.1} M warp-instr/s", softmax(Checks::ALL)),
        _ => {}
    }
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!("load {} on {cores} cores", load.split(' ').next().unwrap_or("?"));
    }
    line("10 MB of PTX parsed and decoded", decoding(), 2.0, "s", true);
    line("softmax-like registers, no checks", softmax(Checks::NONE), 40.0, "M warp-instr/s", false);
    line("softmax-like registers, all checks", softmax(Checks::ALL), 10.0, "M warp-instr/s", false);
    let (s, steps) = attention(Checks::ALL, 3);
    line(&format!("attention b1 h1 s1024 hd128, all checks ({steps} warp-instr)"), s, 2.0, "s", true);
    let (s, _) = attention(Checks::NONE, 3);
    println!("{:<58} {s:8.2} s", "  the same without checks");
    let (all, none) = (pair(Checks::ALL, 3), pair(Checks::NONE, 3));
    line("matmul of CTA pairs, all checks over none", all / none, 6.0, "times", true);
}
