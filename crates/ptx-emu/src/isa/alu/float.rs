//! Single- and double-precision arithmetic, packed `.f32x2`, and the mixed forms with 16-bit sources.

use super::lanes::{batch_fn, lane_fn, run_batch, run_words, warp_fn};
use super::{AluClass, AluFn, AluInstr, Form};
use crate::isa::operands::Decoded;
use crate::num::fp::{self, MinMax, Mode};
use crate::num::half::Half;
use crate::num::{Round, cvt, lanes};
use crate::syntax::ast::Ty;

type D = Decoded<Option<AluInstr>>;

pub(super) const ROUND: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// Rounding by its modifier; `None` when no rounding is given.
pub(super) fn rounding(c: &mut Form) -> Option<Round> {
    Some(match c.one_of(&ROUND)? {
        "rn" => Round::Rn,
        "rz" => Round::Rz,
        "rm" => Round::Rm,
        _ => Round::Rp,
    })
}

/// Immediate form of a rounding: two bits.
pub(super) fn round_bits(r: Round) -> u64 {
    match r {
        Round::Rn => 0,
        Round::Rz => 1,
        Round::Rm => 2,
        Round::Rp => 3,
    }
}

#[inline(always)]
pub(super) fn round_of(imm: u64) -> Round {
    match imm & 3 {
        0 => Round::Rn,
        1 => Round::Rz,
        2 => Round::Rm,
        _ => Round::Rp,
    }
}

const FTZ: u64 = 4;
const SAT: u64 = 8;

#[inline(always)]
fn mode(imm: u64) -> Mode {
    Mode { round: round_of(imm), ftz: imm & FTZ != 0, sat: imm & SAT != 0 }
}

#[inline(always)]
fn min_max_mode(imm: u64) -> MinMax {
    MinMax { nan: imm & 1 != 0, ftz: imm & FTZ != 0, xorsign_abs: imm & 2 != 0, abs: imm & 8 != 0 }
}

/// A function of whole registers, on 32-bit registers or on both words of 64-bit ones.
macro_rules! batch {
    ($run:ident, $n:literal; |$imm:ident, $x:ident| $e:expr) => {
        (|rf, op, mask| {
            let $imm = op.imm;
            let _ = $imm;
            $run::<$n>(rf, op, mask, |$x| $e)
        }) as AluFn
    };
}

/// `add`, `sub`, `mul` and `fma` in rounding to nearest have loops of their own; the rest shares one by mode.
macro_rules! arith_fn {
    ($run:ident, $op:expr, $imm:expr) => {
        match ($op, $imm) {
            ("add", 0) => batch_fn!($run, 2; |w, x| lanes::add_rn::<false>(w, x[0], x[1])),
            ("add", FTZ) => batch_fn!($run, 2; |w, x| lanes::add_rn::<true>(w, x[0], x[1])),
            ("add", _) => batch!($run, 2; |imm, x| lanes::add32(x[0], x[1], mode(imm))),
            ("sub", 0) => batch_fn!($run, 2; |w, x| lanes::sub_rn::<false>(w, x[0], x[1])),
            ("sub", FTZ) => batch_fn!($run, 2; |w, x| lanes::sub_rn::<true>(w, x[0], x[1])),
            ("sub", _) => batch!($run, 2; |imm, x| lanes::sub32(x[0], x[1], mode(imm))),
            ("mul", 0) => batch_fn!($run, 2; |w, x| lanes::mul_rn::<false>(w, x[0], x[1])),
            ("mul", FTZ) => batch_fn!($run, 2; |w, x| lanes::mul_rn::<true>(w, x[0], x[1])),
            ("mul", _) => batch!($run, 2; |imm, x| lanes::mul32(x[0], x[1], mode(imm))),
            ("fma" | "mad", 0) => batch_fn!($run, 3; |w, x| lanes::fma_rn::<false>(w, x[0], x[1], x[2])),
            ("fma" | "mad", FTZ) => batch_fn!($run, 3; |w, x| lanes::fma_rn::<true>(w, x[0], x[1], x[2])),
            _ => batch!($run, 3; |imm, x| lanes::fma32(x[0], x[1], x[2], mode(imm))),
        }
    };
}

/// `add`, `sub`, `mul`, `fma`, `mad`, `div`, `abs`, `neg`, `min`, `max` of `.f32`, `.f64` and `.f32x2`.
pub fn arith(c: &mut Form) -> D {
    let name = c.op.mnemonic.clone();
    if c.flag("f32x2") {
        return packed(c, &name);
    }
    let ty = c.ty()?;
    match (name.as_str(), ty) {
        ("add" | "sub" | "mul" | "fma" | "mad", Ty::F32) => {
            let imm = qualifiers(c, matches!(name.as_str(), "fma" | "mad"))?;
            let n = if matches!(name.as_str(), "fma" | "mad") { 4 } else { 3 };
            c.operands(&vec![ty; n])?;
            c.done(arith_fn!(run_batch, name.as_str(), imm), imm, AluClass::Fp32)
        }
        ("add" | "sub" | "mul" | "fma" | "mad", _) => {
            let needs = matches!(name.as_str(), "fma" | "mad");
            let round = rounding(c);
            if needs && round.is_none() {
                return c.no("needs a rounding");
            }
            let f = match name.as_str() {
                "add" => lane_fn!(imm; |a: u64, b: u64| -> u64 { fp::add64(a, b, round_of(imm)) }),
                "sub" => lane_fn!(imm; |a: u64, b: u64| -> u64 { fp::sub64(a, b, round_of(imm)) }),
                "mul" => lane_fn!(imm; |a: u64, b: u64| -> u64 { fp::mul64(a, b, round_of(imm)) }),
                _ => lane_fn!(imm; |a: u64, b: u64, c: u64| -> u64 { fp::fma64(a, b, c, round_of(imm)) }),
            };
            c.operands(&vec![ty; if needs { 4 } else { 3 }])?;
            c.done(f, round_bits(round.unwrap_or_default()), AluClass::Fp64)
        }
        ("div", _) => super::mufu::div(c, ty),
        ("abs" | "neg", Ty::F32) => {
            let imm = if c.flag("ftz") { FTZ } else { 0 };
            let f = match name.as_str() {
                "abs" => warp_fn!(imm; |a: u32| -> u32 { fp::abs(a, imm & FTZ != 0) }),
                _ => warp_fn!(imm; |a: u32| -> u32 { fp::neg(a, imm & FTZ != 0) }),
            };
            c.operands(&[ty, ty])?;
            c.done(f, imm, AluClass::Fp32)
        }
        ("abs", _) => c.simple(2, ty, Some(lane_fn!(|a: u64| -> u64 { a & !(1 << 63) })), AluClass::Fp64),
        ("neg", _) => c.simple(2, ty, Some(lane_fn!(|a: u64| -> u64 { a ^ 1 << 63 })), AluClass::Fp64),
        ("min", Ty::F64) => {
            c.simple(3, ty, Some(lane_fn!(|a: u64, b: u64| -> u64 { fp::min64(a, b) })), AluClass::Fp64)
        }
        ("max", Ty::F64) => {
            c.simple(3, ty, Some(lane_fn!(|a: u64, b: u64| -> u64 { fp::max64(a, b) })), AluClass::Fp64)
        }
        ("min" | "max", Ty::F32) => min_max(c, name == "min"),
        _ => c.no("not defined for this type"),
    }
}

/// Rounding, `.ftz` and `.sat` as an immediate.
fn qualifiers(c: &mut Form, needs_rounding: bool) -> Decoded<u64> {
    let round = rounding(c);
    if needs_rounding && round.is_none() {
        return c.no("needs a rounding");
    }
    let ftz = if c.flag("ftz") { FTZ } else { 0 };
    let sat = if c.flag("sat") { SAT } else { 0 };
    Ok(round_bits(round.unwrap_or_default()) | ftz | sat)
}

/// `.f32x2` in 64-bit registers.
fn packed(c: &mut Form, name: &str) -> D {
    let fma = name == "fma";
    if !fma && !matches!(name, "add" | "sub" | "mul") {
        return c.no("not defined for .f32x2");
    }
    let imm = qualifiers(c, fma)?;
    if imm & SAT != 0 {
        return c.no(".sat is not defined for .f32x2");
    }
    c.operands(&vec![Ty::B64; if fma { 4 } else { 3 }])?;
    c.done(arith_fn!(run_words, name, imm), imm, AluClass::Packed)
}

/// `min` and `max` of two or three `.f32`.
fn min_max(c: &mut Form, min: bool) -> D {
    let ftz = if c.flag("ftz") { FTZ } else { 0 };
    let nan = u64::from(c.flag("NaN"));
    let xorsign = if c.flag("xorsign") { 2 } else { 0 };
    let abs = c.flag("abs");
    let three = c.args.len() == 4;
    if (xorsign != 0) != (abs && !three) {
        return c.no("allowed: .xorsign.abs with two sources, .abs with three");
    }
    let imm = ftz | nan | xorsign | if abs && three { 8 } else { 0 };
    const PLAIN: MinMax = MinMax { nan: false, ftz: false, xorsign_abs: false, abs: false };
    let f = match (min, three) {
        (true, false) if imm == 0 => {
            batch_fn!(run_batch, 2; |w, x| lanes::pick::<false>(w, x[0], x[1], PLAIN))
        }
        (false, false) if imm == 0 => {
            batch_fn!(run_batch, 2; |w, x| lanes::pick::<true>(w, x[0], x[1], PLAIN))
        }
        (true, false) if imm == FTZ => {
            batch_fn!(run_batch, 2; |w, x| lanes::pick::<false>(w, x[0], x[1], MinMax { ftz: true, ..PLAIN }))
        }
        (false, false) if imm == FTZ => {
            batch_fn!(run_batch, 2; |w, x| lanes::pick::<true>(w, x[0], x[1], MinMax { ftz: true, ..PLAIN }))
        }
        (true, false) => batch!(run_batch, 2; |imm, x| lanes::min32(x[0], x[1], min_max_mode(imm))),
        (false, false) => batch!(run_batch, 2; |imm, x| lanes::max32(x[0], x[1], min_max_mode(imm))),
        (true, true) => {
            warp_fn!(imm; |a: u32, b: u32, c: u32| -> u32 { fp::min3(a, b, c, min_max_mode(imm)) })
        }
        (false, true) => {
            warp_fn!(imm; |a: u32, b: u32, c: u32| -> u32 { fp::max3(a, b, c, min_max_mode(imm)) })
        }
    };
    c.operands(&vec![Ty::F32; if three { 4 } else { 3 }])?;
    c.done(f, imm, AluClass::Fp32)
}

/// `fma.rn.f32.bf16` and its kin: the 16-bit sources are widened exactly, the arithmetic is single precision.
pub fn mixed(c: &mut Form) -> D {
    let types = c.types(2)?;
    let half = match types[..] {
        [Ty::F32, Ty::F16] => Half::F16,
        [Ty::F32, Ty::BF16] => Half::Bf16,
        _ => return c.no("mixed arithmetic is .f32.f16 or .f32.bf16"),
    };
    const BF16: u64 = 16;
    #[inline(always)]
    fn widen(imm: u64, x: u16) -> u32 {
        if imm & BF16 != 0 { u32::from(x) << 16 } else { cvt::half_to_f32(Half::F16, x) }
    }
    let name = c.op.mnemonic.clone();
    let fma = name == "fma";
    let round = rounding(c);
    if fma && round.is_none() {
        return c.no("needs a rounding");
    }
    let sat = if c.flag("sat") { SAT } else { 0 };
    let imm = round_bits(round.unwrap_or_default()) | sat | if half == Half::Bf16 { BF16 } else { 0 };
    let f = match name.as_str() {
        "add" => lane_fn!(imm; |a: u16, b: u32| -> u32 { fp::add(widen(imm, a), b, mode(imm)) }),
        "sub" => lane_fn!(imm; |a: u16, b: u32| -> u32 { fp::sub(widen(imm, a), b, mode(imm)) }),
        "fma" => lane_fn!(imm; |a: u16, b: u16, c: u32| -> u32 {
            fp::fma(widen(imm, a), widen(imm, b), c, mode(imm))
        }),
        _ => return c.no("mixed precision exists for add, sub and fma"),
    };
    if fma {
        c.operands(&[Ty::F32, types[1], types[1], Ty::F32])?;
    } else {
        c.operands(&[Ty::F32, types[1], Ty::F32])?;
    }
    c.done(f, imm, AluClass::Fp32)
}

/// `fma` of every floating type.
pub fn fma(c: &mut Form) -> D {
    match c.op.mods.last().map(String::as_str) {
        Some("f16" | "bf16") if c.op.has("f32") => mixed(c),
        Some("f16" | "bf16" | "f16x2" | "bf16x2") => super::half::arith(c),
        _ => arith(c),
    }
}

/// `copysign`: the sign of `a` on the magnitude of `b`.
pub fn copysign(c: &mut Form) -> D {
    let ty = c.ty()?;
    match ty {
        Ty::F32 => {
            let f = lane_fn!(|a: u32, b: u32| -> u32 { a & 1 << 31 | b & !(1 << 31) });
            c.simple(3, ty, Some(f), AluClass::Fp32)
        }
        Ty::F64 => {
            let f = lane_fn!(|a: u64, b: u64| -> u64 { a & 1 << 63 | b & !(1 << 63) });
            c.simple(3, ty, Some(f), AluClass::Fp64)
        }
        _ => c.no("not defined for this type"),
    }
}

/// `testp`: class of a floating value.
pub fn testp(c: &mut Form) -> D {
    let ty = c.ty()?;
    use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal};
    #[inline(always)]
    fn is(imm: u64, class: std::num::FpCategory) -> bool {
        match imm {
            0 => !matches!(class, Infinite | Nan),
            1 => class == Infinite,
            2 => class != Nan,
            3 => class == Nan,
            4 => class == Normal,
            _ => class == Subnormal,
        }
    }
    let tests = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    let Some(test) = c.one_of(&tests) else { return c.no("the test is missing") };
    let f = match ty {
        Ty::F32 => lane_fn!(imm; |a: f32| -> bool { is(imm, a.classify()) }),
        Ty::F64 => lane_fn!(imm; |a: f64| -> bool { is(imm, a.classify()) }),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[Ty::Pred, ty])?;
    let imm = tests.iter().position(|t| *t == test).unwrap_or(0) as u64;
    c.done(f, imm, AluClass::Cmp)
}
