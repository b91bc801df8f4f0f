//! The numerics against what an H200 answered (tests/silicon). Every comparison is of bits.

mod silicon;

use ptx_emu::num::cvt::{self, Fit, TfRound, Tiny};
use ptx_emu::num::fp::{self, MinMax, Mode};
use ptx_emu::num::half::{self, Half, HalfMode};
use ptx_emu::num::{Lanes, Round, lanes, mufu};
use silicon::{Crc, bytes, records, words};

type Scalar = Box<dyn Fn(&[u32]) -> u32>;

/// A 16-bit function on the low half.
fn low(f: fn(u16) -> u16) -> Scalar {
    Box::new(move |x| f(x[0] as u16).into())
}

fn unary(f: fn(u32) -> u32) -> Scalar {
    Box::new(move |x| f(x[0]))
}

fn binary(f: fn(u32, u32) -> u32) -> Scalar {
    Box::new(move |x| f(x[0], x[1]))
}

/// The function that should reproduce a record, from the instruction's name.
fn model(op: &str) -> Option<Scalar> {
    let words: Vec<&str> = op.split('_').collect();
    let has = |w: &str| words.contains(&w);
    let ty = *words.last()?;
    let h = if ty.starts_with("bf16") { Half::Bf16 } else { Half::F16 };
    let round = if has("rz") {
        Round::Rz
    } else if has("rm") {
        Round::Rm
    } else {
        Round::Rn
    };
    let (ftz, sat, relu) = (has("ftz"), has("sat"), has("relu"));
    let mode = Mode { round, ftz, sat };
    let hm = HalfMode { ftz, sat, relu };
    let q = MinMax { nan: has("NaN"), ftz, xorsign_abs: has("xorsign"), abs: false };
    let fit = Fit { relu, satfinite: has("satfinite") };
    let tiny = if op.contains("e4m3") { Tiny::E4m3 } else { Tiny::E5m2 };
    let packed = ty.ends_with("16x2");
    Some(match words[0] {
        "ex2" => match ty {
            "bf16" => low(mufu::ex2_bf16),
            "f16" => low(mufu::ex2_f16),
            "bf16x2" => unary(mufu::ex2_bf16x2),
            "f16x2" => unary(mufu::ex2_f16x2),
            _ => unary(if ftz { mufu::ex2_ftz } else { mufu::ex2 }),
        },
        "tanh" => unary(match ty {
            "bf16x2" => mufu::tanh_bf16x2,
            "f16x2" => mufu::tanh_f16x2,
            _ => mufu::tanh,
        }),
        "lg2" => unary(if ftz { mufu::lg2_ftz } else { mufu::lg2 }),
        "rcp" => unary(if ftz { mufu::rcp_ftz } else { mufu::rcp }),
        "rsqrt" => unary(if ftz { mufu::rsqrt_ftz } else { mufu::rsqrt }),
        "sqrt" => unary(if ftz { mufu::sqrt_ftz } else { mufu::sqrt }),
        "div" => binary(match (words[1], ftz) {
            ("approx", true) => mufu::div_approx_ftz,
            ("approx", false) => mufu::div_approx,
            (_, true) => mufu::div_full_ftz,
            (_, false) => mufu::div_full,
        }),
        "min" if packed => Box::new(move |x| half::min_x2(h, x[0], x[1], q)),
        "max" if packed => Box::new(move |x| half::max_x2(h, x[0], x[1], q)),
        "add" if packed => Box::new(move |x| half::add_x2(h, x[0], x[1], hm)),
        "sub" if packed => Box::new(move |x| half::sub_x2(h, x[0], x[1], hm)),
        "mul" if packed => Box::new(move |x| half::mul_x2(h, x[0], x[1], hm)),
        "fma" if packed => Box::new(move |x| half::fma_x2(h, x[0], x[1], x[2], hm)),
        "min" => Box::new(move |x| fp::min(x[0], x[1], q)),
        "max" => Box::new(move |x| fp::max(x[0], x[1], q)),
        "add" => Box::new(move |x| fp::add(x[0], x[1], mode)),
        "sub" => Box::new(move |x| fp::sub(x[0], x[1], mode)),
        "mul" => Box::new(move |x| fp::mul(x[0], x[1], mode)),
        "fma" => Box::new(move |x| fp::fma(x[0], x[1], x[2], mode)),
        "cvt" if has("tf32") => {
            let r = if has("rna") {
                TfRound::Rna
            } else if has("rz") {
                TfRound::Rz
            } else {
                TfRound::Rn
            };
            Box::new(move |x| cvt::f32_to_tf32(x[0], r, fit))
        }
        "cvt" if ty == "f16x2" => Box::new(move |x| cvt::f16x2_to_tiny_x2(tiny, x[0], relu).into()),
        "cvt" if op.contains("f16x2_e") => Box::new(move |x| cvt::tiny_x2_to_f16x2(tiny, x[0] as u16, relu)),
        "cvt" if has("e4m3x2") || has("e5m2x2") => {
            Box::new(move |x| cvt::f32x2_to_tiny_x2(tiny, x[0], x[1], relu).into())
        }
        "cvt" => {
            let h = if has("bf16x2") { Half::Bf16 } else { Half::F16 };
            Box::new(move |x| cvt::f32x2_to_half_x2(h, x[0], x[1], round, fit))
        }
        _ => return None,
    })
}

/// Instructions recorded without a model: sin and cos come from f64 (see `num::mufu`).
const WITHOUT_MODEL: [&str; 2] = ["sin_approx_ftz_f32", "cos_approx_ftz_f32"];

#[test]
fn scalar_records() {
    let mut failures = Vec::new();
    let mut seen = 0;
    for r in records("scalar.jsonl") {
        let op = r["op"].as_str().unwrap();
        let inputs: Vec<Vec<u32>> = r["inputs"].as_array().unwrap().iter().map(|v| words(v, 4)).collect();
        let out = words(&r["out"], 4);
        assert_eq!(out.len(), r["n"].as_u64().unwrap() as usize);
        seen += 1;
        if WITHOUT_MODEL.contains(&op) {
            continue;
        }
        let f = model(op).unwrap_or_else(|| panic!("{op} has no model"));
        let at = |i: usize| inputs.iter().map(|x| x[i]).collect::<Vec<_>>();
        let wrong: Vec<usize> = (0..out.len()).filter(|&i| f(&at(i)) != out[i]).collect();
        if let Some(&i) = wrong.first() {
            let (got, x) = (f(&at(i)), at(i));
            failures.push(format!(
                "{op}: {} of {}, first {x:08x?} -> {got:08x}, silicon {:08x}",
                wrong.len(),
                out.len(),
                out[i]
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(seen, 90);
}

/// sin and cos are not the hardware's bits, but within the manual's bound (2^−20.5 on [−2π, 2π], absolute).
#[test]
fn sin_and_cos_stay_within_the_manuals_bound() {
    for r in records("scalar.jsonl") {
        let op = r["op"].as_str().unwrap();
        if !WITHOUT_MODEL.contains(&op) {
            continue;
        }
        let f = if op.starts_with("sin") { mufu::sin_ftz } else { mufu::cos_ftz };
        let (x, out) = (words(&r["inputs"][0], 4), words(&r["out"], 4));
        for (&x, &y) in x.iter().zip(&out) {
            let (got, want) = (f32::from_bits(f(x)), f32::from_bits(y));
            if f32::from_bits(x).abs() <= std::f32::consts::TAU {
                assert!((got - want).abs() <= 2f32.powf(-20.5), "{op}({x:08x}) = {got}, silicon {want}");
            }
            assert_eq!(got.is_nan(), want.is_nan(), "{op}({x:08x})");
        }
    }
}

/// The warp form of ex2 on its own recorded inputs, whose exponents are those of softmax.
#[test]
fn warp_ex2_on_recorded_inputs() {
    for r in records("scalar.jsonl") {
        let f = match r["op"].as_str().unwrap() {
            "ex2_approx_ftz_f32" => mufu::ex2_ftz32,
            "ex2_approx_f32" => mufu::ex2_32,
            "lg2_approx_ftz_f32" => mufu::lg2_ftz32,
            "rcp_approx_ftz_f32" => mufu::rcp_ftz32,
            _ => continue,
        };
        let (x, want) = (words(&r["inputs"][0], 4), words(&r["out"], 4));
        for (x, want) in x.chunks_exact(32).zip(want.chunks_exact(32)) {
            assert_eq!(f(x.try_into().unwrap()), want, "{}", r["op"]);
        }
    }
}

/// Blocks of 2^23 inputs: exponents around one, both ends of the range, both signs. The example
/// `mufu_exhaustive` covers all 512.
const BLOCKS: [usize; 5] = [0, 127, 255, 256 + 126, 256 + 132];

#[test]
fn mufu_blocks() {
    let crc = Crc::new();
    for r in records("exhaustive_crc.jsonl") {
        let Some(op) = r["op"].as_str() else { continue };
        let f = model(op).unwrap();
        for block in BLOCKS {
            let base = (block as u32) << 23;
            let got = crc.of((0..1 << 23).flat_map(|i| f(&[base | i]).to_le_bytes()));
            assert_eq!(format!("{got:08x}"), r["crc32"][block].as_str().unwrap(), "{op}, block {block}");
        }
    }
}

#[test]
fn sixteen_bit_functions_on_every_input() {
    let crc = Crc::new();
    let mut seen = 0;
    for r in records("exhaustive_crc.jsonl") {
        let name = r["op16"].as_str().or(r["op8"].as_str());
        let Some(op) = name.map(|n| n.split(' ').next().unwrap()) else { continue };
        let f = model(op).unwrap();
        seen += 1;
        if let Some(want) = r["crc32_u16"].as_str() {
            let got = crc.of((0..=0xffff).flat_map(|x| (f(&[x]) as u16).to_le_bytes()));
            assert_eq!(format!("{got:08x}"), want, "{op}");
        } else if let Some(want) = r["crc32_u8"].as_str() {
            let got = crc.of((0..=0xffff).map(|x| f(&[x]) as u8));
            assert_eq!(format!("{got:08x}"), want, "{op}");
        } else {
            let got: Vec<u8> = (0..256).flat_map(|x| (f(&[x]) as u16).to_le_bytes()).collect();
            assert_eq!(got, bytes(&r["u16"]), "{op}");
        }
    }
    assert_eq!(seen, 8);
}

/// The warp forms give the scalar functions' bits on the recorded operands, in every mode.
#[test]
fn warp_forms_equal_scalar_ones() {
    let r = records("scalar.jsonl").into_iter().find(|r| r["op"] == "fma_rn_ftz_f32").unwrap();
    let x: Vec<Vec<u32>> = (0..3).map(|i| words(&r["inputs"][i], 4)).collect();
    let chunk = |i: usize, at: usize| -> Lanes { x[i][at..at + 32].try_into().unwrap() };
    let each = |f: &dyn Fn(usize) -> u32| -> Lanes { std::array::from_fn(f) };
    let modes = [Round::Rn, Round::Rz, Round::Rm, Round::Rp].into_iter().flat_map(|round| {
        [(false, false), (true, false), (false, true), (true, true)].map(move |(ftz, sat)| Mode {
            round,
            ftz,
            sat,
        })
    });
    for m in modes {
        for at in (0..x[0].len()).step_by(32) {
            let (a, b, c) = (chunk(0, at), chunk(1, at), chunk(2, at));
            assert_eq!(lanes::add32(&a, &b, m), each(&|i| fp::add(a[i], b[i], m)), "add {m:?}");
            assert_eq!(lanes::sub32(&a, &b, m), each(&|i| fp::sub(a[i], b[i], m)), "sub {m:?}");
            assert_eq!(lanes::mul32(&a, &b, m), each(&|i| fp::mul(a[i], b[i], m)), "mul {m:?}");
            assert_eq!(lanes::fma32(&a, &b, &c, m), each(&|i| fp::fma(a[i], b[i], c[i], m)), "fma {m:?}");
            assert_eq!(mufu::ex2_ftz32(&a), each(&|i| mufu::ex2_ftz(a[i])), "ex2.ftz");
            assert_eq!(mufu::ex2_32(&a), each(&|i| mufu::ex2(a[i])), "ex2");
            let nearest = |h, i: usize| cvt::f32x2_to_half_x2(h, a[i], b[i], Round::Rn, Fit::default());
            assert_eq!(lanes::bf16x2_rn32(&a, &b), each(&|i| nearest(Half::Bf16, i)), "bf16x2");
            assert_eq!(lanes::f16x2_rn32(&a, &b), each(&|i| nearest(Half::F16, i)), "f16x2");
        }
    }
}
