//! Times the hot numerics: nanoseconds per call of the warp forms and of a 128×128×16 matrix instruction.
//!
//! `cargo run --release -p ptx-emu --example num_bench`

use std::hint::black_box;
use std::time::Instant;

use ptx_emu::num::fp::Mode;
use ptx_emu::num::mma::{Format, Model, Op, Scratch, mma};
use ptx_emu::num::{Lanes, Round, lanes, mufu};

/// The best of many short repetitions, so that other work on the machine does not count.
fn time<R>(name: &str, n: u32, mut f: impl FnMut() -> R) {
    let mut repetition = || {
        let t = Instant::now();
        for _ in 0..n {
            black_box(f());
        }
        t.elapsed().as_secs_f64() / f64::from(n)
    };
    let best = (0..300).map(|_| repetition()).fold(f64::INFINITY, f64::min);
    println!("{name:<28}{:>12.1} ns", best * 1e9);
}

fn main() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut lane = || -> Lanes { std::array::from_fn(|_| (random() as f32 / 2f32.powi(28) - 4.0).to_bits()) };
    let (a, b, c) = (lane(), lane(), lane());
    let n = 2000;
    time("fma.rn.ftz x32", n, || lanes::fma_rn32::<true>(black_box(&a), black_box(&b), black_box(&c)));
    time("fma.rn x32", n, || lanes::fma_rn32::<false>(black_box(&a), black_box(&b), black_box(&c)));
    time("add.rn.ftz x32", n, || lanes::add_rn32::<true>(black_box(&a), black_box(&b)));
    time("mul.rn.ftz x32", n, || lanes::mul_rn32::<true>(black_box(&a), black_box(&b)));
    let rm = Mode { round: Round::Rm, ..Mode::RN_FTZ };
    time("add.rm.ftz x32", n, || lanes::add32(black_box(&a), black_box(&b), rm));
    time("fma.rm.ftz x32", n, || lanes::fma32(black_box(&a), black_box(&b), black_box(&c), rm));
    time("max x32", n, || lanes::max32(black_box(&a), black_box(&b), Default::default()));
    time("cvt.rn.bf16x2 x32", n, || lanes::bf16x2_rn32(black_box(&a), black_box(&b)));
    time("cvt.rn.f16x2 x32", n, || lanes::f16x2_rn32(black_box(&a), black_box(&b)));
    time("ex2.ftz x32", n, || mufu::ex2_ftz32(black_box(&a)));
    time("rcp.ftz x32", n, || mufu::rcp_ftz32(black_box(&a)));
    time("lg2.ftz x32", n, || mufu::lg2_ftz32(black_box(&a)));

    let (m, n, k) = (128, 128, 16);
    let mut matrix = |len: usize| -> Vec<u32> { (0..len).map(|_| lane()[0]).collect() };
    let (x, y, c) = (matrix(m * k), matrix(n * k), matrix(m * n));
    let mut d = vec![0; m * n];
    let mut scratch = Scratch::default();
    for (name, fmt, shift) in
        [("bf16", Format::Bf16, 16), ("f16", Format::F16, 17), ("e4m3", Format::E4m3, 24)]
    {
        let a: Vec<u32> = x.iter().map(|v| v >> shift).collect();
        let b: Vec<u32> = y.iter().map(|v| v >> shift).collect();
        let op =
            Op { model: Model::TCGEN05, a_fmt: fmt, b_fmt: fmt, m, n, k, negate_a: false, negate_b: false };
        time(&format!("mma 128x128x16 {name}"), 4, || mma(&op, &a, &b, Some(&c), &mut d, &mut scratch));
    }
}
