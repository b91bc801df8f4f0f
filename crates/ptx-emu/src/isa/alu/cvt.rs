//! Conversions.
//!
//! `cvt` names its destination and source types last; each pair of families (integer, floating, packed, tiny)
//! has its own decoder and its own set of qualifiers.

use super::float::{round_bits, round_of, rounding};
use super::lanes::{batch_fn, lane_fn, warp_fn};
use super::{AluClass, AluFn, AluInstr, Form, type_named};
use crate::isa::operands::{Decoded, class_of};
use crate::isa::regs::Class;
use crate::num::cvt::{Fit, Int, TfRound, Tiny};
use crate::num::fp;
use crate::num::half::Half;
use crate::num::{Round, cvt as num};
use crate::syntax::ast::{Operand, Ty};

type D = Decoded<Option<AluInstr>>;

/// Immediate bits shared by the decoders below (bits 0..1 hold the rounding).
const FTZ: u64 = 4;
const SAT: u64 = 8;
const RELU: u64 = 16;
const SATFINITE: u64 = 32;
/// Integer types travel as log2(bits / 8) and a sign bit: at 8 the one converted to, at 12 the one from.
const TO: u32 = 8;
const FROM: u32 = 12;

fn int_type(ty: Ty) -> Option<Int> {
    Some(match ty {
        Ty::U8 => Int { bits: 8, signed: false },
        Ty::S8 => Int { bits: 8, signed: true },
        Ty::U16 => Int { bits: 16, signed: false },
        Ty::S16 => Int { bits: 16, signed: true },
        Ty::U32 => Int { bits: 32, signed: false },
        Ty::S32 => Int { bits: 32, signed: true },
        Ty::U64 => Int { bits: 64, signed: false },
        Ty::S64 => Int { bits: 64, signed: true },
        _ => return None,
    })
}

fn int_bits(i: Int) -> u64 {
    u64::from(i.bits.trailing_zeros() - 3) | u64::from(i.signed) << 2
}

#[inline(always)]
fn int_of(imm: u64, at: u32) -> Int {
    Int { bits: 8 << (imm >> at & 3), signed: imm >> at & 4 != 0 }
}

#[inline(always)]
fn fit(imm: u64) -> Fit {
    Fit { relu: imm & RELU != 0, satfinite: imm & SATFINITE != 0 }
}

/// `cvt` in all its forms.
pub fn cvt(c: &mut Form) -> D {
    if c.flag("pack") {
        return pack(c);
    }
    let n = c.op.mods.len();
    if n < 2 {
        return c.no("the types are missing");
    }
    let (to, from) = (c.op.mods[n - 2].clone(), c.op.mods[n - 1].clone());
    c.used |= 3 << (n - 2);
    match (type_named(&to), type_named(&from)) {
        (Some(Ty::F16x2 | Ty::BF16x2), Some(Ty::F32)) => to_packed_half(c, &to),
        (Some(d), Some(s)) => match (int_type(d), int_type(s)) {
            (Some(i), Some(j)) => int_int(c, d, i, s, j),
            (Some(i), None) => float_int(c, d, i, s),
            (None, Some(j)) => int_float(c, d, s, j),
            (None, None) => float_float(c, d, s),
        },
        _ => exotic(c, &to, &from),
    }
}

/// Width in bits of the register that operand `o` names, at least that of `ty`.
fn register_bits(c: &Form, o: &Operand, ty: Ty) -> u32 {
    let own = match o {
        Operand::Reg(r) => c.slots.types.get(*r as usize).map_or(0, |t| t.bytes() * 8),
        _ => 0,
    };
    own.max(ty.bytes() * 8)
}

/// Adds the operands `d, a` of a conversion that involves integers; either register may be wider than its type.
/// Returns the class of each and the width of the destination.
fn relaxed(c: &mut Form, to: Ty, from: Ty) -> Decoded<(Class, Class, u32)> {
    c.check(2)?;
    let args = c.args;
    let width = register_bits(c, &args[0], to);
    let d = if width == 64 { Ty::B64 } else { to };
    let s =
        if class_of(from) == Class::R32 && register_bits(c, &args[1], from) == 64 { Ty::B64 } else { from };
    c.dst(0, d)?;
    c.src(1, s)?;
    Ok((class_of(s), class_of(d), width))
}

/// Extends an integer result of the type at `TO` to the destination register (`WIDTH` bits at 16).
#[inline(always)]
fn extend(imm: u64, v: u64) -> u64 {
    let to = int_of(imm, TO);
    let up = 64 - to.bits;
    let v = if to.signed { ((v << up) as i64 >> up) as u64 } else { v << up >> up };
    let spare = 64 - (imm >> 16 & 0x7f);
    v << spare >> spare
}

/// Bytes of an integer conversion: kept ones are copied, added ones follow the sign byte.
fn int_shadow(imm: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    let grow = |u: u8, t: Int| {
        let n = t.bits / 8;
        let kept = u & ((1u16 << n) - 1) as u8;
        if t.signed && kept >> (n - 1) & 1 != 0 { kept | (0xffu16 << n) as u8 } else { kept }
    };
    grow(grow(u[0], int_of(imm, FROM)), int_of(imm, TO))
}

fn int_int(c: &mut Form, d: Ty, to: Int, s: Ty, from: Int) -> D {
    let sat = c.flag("sat");
    // Where every source value fits there is nothing to clamp, and the assembler refuses `.sat`.
    let fits = match (from.signed, to.signed) {
        (true, false) => false,
        (false, true) => from.bits < to.bits,
        _ => from.bits <= to.bits,
    };
    if sat && fits {
        return c.no(".sat has nothing to clamp here");
    }
    let (sc, dc, width) = relaxed(c, d, s)?;
    let imm = int_bits(to) << TO | int_bits(from) << FROM | u64::from(width) << 16;
    let f: AluFn = match (sc, dc, sat) {
        // The plain widenings and narrowings of address arithmetic.
        (Class::R32, Class::R64, false) if s == Ty::U32 => {
            warp_fn!(|a: u32| -> u64 { u64::from(a) }, int_shadow)
        }
        (Class::R32, Class::R64, false) if s == Ty::S32 && to.bits == 64 => {
            warp_fn!(|a: i32| -> i64 { i64::from(a) }, int_shadow)
        }
        (Class::R64, Class::R32, false) if to.bits == 32 => {
            warp_fn!(|a: u64| -> u32 { a as u32 }, int_shadow)
        }
        (Class::R32, Class::R32, false) if d == Ty::U16 && width == 16 => {
            warp_fn!(|a: u16| -> u16 { a }, int_shadow)
        }
        (Class::R32, Class::R32, _) => lane_fn!(imm; |a: u32| -> u32 {
            convert(imm, u64::from(a)) as u32
        }, int_shadow),
        (Class::R32, _, _) => lane_fn!(imm; |a: u32| -> u64 { convert(imm, u64::from(a)) }, int_shadow),
        (_, Class::R32, _) => lane_fn!(imm; |a: u64| -> u32 { convert(imm, a) as u32 }, int_shadow),
        _ => lane_fn!(imm; |a: u64| -> u64 { convert(imm, a) }, int_shadow),
    };
    c.done(f, imm | if sat { SAT } else { 0 }, AluClass::Cvt)
}

#[inline(always)]
fn convert(imm: u64, x: u64) -> u64 {
    extend(imm, num::int_to_int(x, int_of(imm, FROM), int_of(imm, TO), imm & SAT != 0))
}

/// `.rni`, `.rzi`, `.rmi`, `.rpi`.
fn int_rounding(c: &mut Form) -> Option<Round> {
    Some(match c.one_of(&["rni", "rzi", "rmi", "rpi"])? {
        "rni" => Round::Rn,
        "rzi" => Round::Rz,
        "rmi" => Round::Rm,
        _ => Round::Rp,
    })
}

fn float_int(c: &mut Form, d: Ty, to: Int, s: Ty) -> D {
    let Some(round) = int_rounding(c) else { return c.no("needs .rni, .rzi, .rmi or .rpi") };
    let ftz = if s == Ty::F32 && c.flag("ftz") { FTZ } else { 0 };
    // Conversions to integers clamp anyway; `.sat` says it again (and does not exist for bf16).
    if s != Ty::BF16 {
        c.flag("sat");
    }
    let (_, dc, width) = relaxed(c, d, s)?;
    #[inline(always)]
    fn f32_int(imm: u64, a: u32) -> u64 {
        extend(imm, num::f32_to_int(a, int_of(imm, TO), round_of(imm), imm & FTZ != 0))
    }
    #[inline(always)]
    fn f64_int(imm: u64, a: u64) -> u64 {
        extend(imm, num::f64_to_int(a, int_of(imm, TO), round_of(imm)))
    }
    #[inline(always)]
    fn half_int(h: Half, imm: u64, a: u16) -> u64 {
        extend(imm, num::half_to_int(h, a, int_of(imm, TO), round_of(imm)))
    }
    let wide = dc == Class::R64;
    let f = match (s, wide) {
        (Ty::F32, false) => lane_fn!(imm; |a: u32| -> u32 { f32_int(imm, a) as u32 }),
        (Ty::F32, true) => lane_fn!(imm; |a: u32| -> u64 { f32_int(imm, a) }),
        (Ty::F64, false) => lane_fn!(imm; |a: u64| -> u32 { f64_int(imm, a) as u32 }),
        (Ty::F64, true) => lane_fn!(imm; |a: u64| -> u64 { f64_int(imm, a) }),
        (Ty::F16, false) => lane_fn!(imm; |a: u16| -> u32 { half_int(Half::F16, imm, a) as u32 }),
        (Ty::F16, true) => lane_fn!(imm; |a: u16| -> u64 { half_int(Half::F16, imm, a) }),
        (Ty::BF16, false) => lane_fn!(imm; |a: u16| -> u32 { half_int(Half::Bf16, imm, a) as u32 }),
        (Ty::BF16, true) => lane_fn!(imm; |a: u16| -> u64 { half_int(Half::Bf16, imm, a) }),
        _ => return c.no("no such conversion"),
    };
    let imm = round_bits(round) | ftz | int_bits(to) << TO | u64::from(width) << 16;
    c.done(f, imm, AluClass::Cvt)
}

fn int_float(c: &mut Form, d: Ty, s: Ty, from: Int) -> D {
    let Some(round) = rounding(c) else { return c.no("needs a rounding") };
    let (sc, ..) = relaxed(c, d, s)?;
    let wide = sc == Class::R64;
    macro_rules! pick {
        ($r:ty, |$x:ident, $from:ident, $round:ident| $e:expr) => {
            if wide {
                lane_fn!(imm; |a: u64| -> $r { let ($x, $from, $round) = (a, int_of(imm, FROM), round_of(imm)); $e })
            } else {
                lane_fn!(imm; |a: u32| -> $r {
                    let ($x, $from, $round) = (u64::from(a), int_of(imm, FROM), round_of(imm));
                    $e
                })
            }
        };
    }
    let f = match d {
        Ty::F32 => pick!(u32, |x, from, round| num::int_to_f32(x, from, round)),
        Ty::F64 => pick!(u64, |x, from, round| num::int_to_f64(x, from, round)),
        Ty::F16 => pick!(u16, |x, from, round| num::int_to_half(Half::F16, x, from, round)),
        Ty::BF16 => pick!(u16, |x, from, round| num::int_to_half(Half::Bf16, x, from, round)),
        _ => return c.no("no such conversion"),
    };
    c.done(f, round_bits(round) | int_bits(from) << FROM, AluClass::Cvt)
}

fn half_of(ty: Ty) -> Option<Half> {
    match ty {
        Ty::F16 => Some(Half::F16),
        Ty::BF16 => Some(Half::Bf16),
        _ => None,
    }
}

fn float_float(c: &mut Form, d: Ty, s: Ty) -> D {
    let to_int = int_rounding(c);
    let round = rounding(c);
    let single = d == Ty::F32 || s == Ty::F32;
    let ftz = single && c.flag("ftz");
    let sat = d == Ty::F32 && s != Ty::BF16 && c.flag("sat");
    let mut imm = if ftz { FTZ } else { 0 } | if sat { SAT } else { 0 };
    imm |= round_bits(to_int.or(round).unwrap_or_default());
    let same = d == s;
    if to_int.is_some() && (!same || round.is_some()) {
        return c.no("rounding to an integral value keeps the type");
    }
    // Narrowing needs a rounding, widening and same-type conversions take none.
    let narrowing = matches!(
        (d, s),
        (Ty::F32, Ty::F64)
            | (Ty::F16 | Ty::BF16, Ty::F32 | Ty::F64)
            | (Ty::F16, Ty::BF16)
            | (Ty::BF16, Ty::F16)
    );
    if narrowing != round.is_some() {
        return c.no(if narrowing { "needs a rounding" } else { "takes no rounding" });
    }
    if half_of(d).is_some() && s == Ty::F32 && !ftz && matches!(round, Some(Round::Rn | Round::Rz)) {
        if c.flag("relu") {
            imm |= RELU;
        }
        if c.flag("satfinite") {
            imm |= SATFINITE;
        }
    }
    let f = match (d, s) {
        (Ty::F32, Ty::F32) if to_int.is_some() => {
            lane_fn!(m; |a: u32| -> u32 { num::f32_round(a, round_of(m), m & FTZ != 0, m & SAT != 0) })
        }
        (Ty::F32, Ty::F32) => lane_fn!(m; |a: u32| -> u32 { num::f32_to_f32(a, m & FTZ != 0, m & SAT != 0) }),
        (Ty::F64, Ty::F64) if to_int.is_some() => {
            lane_fn!(m; |a: u64| -> u64 { num::f64_round(a, round_of(m)) })
        }
        (Ty::F16, Ty::F16) if to_int.is_some() => {
            lane_fn!(m; |a: u16| -> u16 { num::half_round(Half::F16, a, round_of(m)) })
        }
        (Ty::BF16, Ty::BF16) if to_int.is_some() => {
            lane_fn!(m; |a: u16| -> u16 { num::half_round(Half::Bf16, a, round_of(m)) })
        }
        (Ty::F64, Ty::F32) => lane_fn!(m; |a: u32| -> u64 { num::f32_to_f64(a, m & FTZ != 0) }),
        (Ty::F32, Ty::F64) => {
            lane_fn!(m; |a: u64| -> u32 { num::f64_to_f32(a, round_of(m), m & FTZ != 0, m & SAT != 0) })
        }
        (Ty::F32, Ty::F16) => {
            warp_fn!(m; |a: u16| -> u32 { num::f32_to_f32(num::half_to_f32(Half::F16, a), false, m & SAT != 0) })
        }
        (Ty::F32, Ty::BF16) => {
            warp_fn!(m; |a: u16| -> u32 {
                num::f32_to_f32(num::half_to_f32(Half::Bf16, a), m & FTZ != 0, m & SAT != 0)
            })
        }
        (Ty::F64, Ty::F16) => lane_fn!(|a: u16| -> u64 { num::half_to_f64(Half::F16, a) }),
        (Ty::F64, Ty::BF16) => lane_fn!(|a: u16| -> u64 { num::half_to_f64(Half::Bf16, a) }),
        (Ty::F16, Ty::F32) => {
            lane_fn!(m; |a: u32| -> u16 {
                num::f32_to_half(Half::F16, if m & FTZ != 0 { fp::flush(a) } else { a }, round_of(m), fit(m))
            })
        }
        (Ty::BF16, Ty::F32) if !ftz => {
            lane_fn!(m; |a: u32| -> u16 { num::f32_to_half(Half::Bf16, a, round_of(m), fit(m)) })
        }
        (Ty::F16, Ty::F64) => lane_fn!(m; |a: u64| -> u16 { num::f64_to_half(Half::F16, a, round_of(m)) }),
        (Ty::BF16, Ty::F64) => lane_fn!(m; |a: u64| -> u16 { num::f64_to_half(Half::Bf16, a, round_of(m)) }),
        (Ty::BF16, Ty::F16) => lane_fn!(m; |a: u16| -> u16 {
            num::f32_to_half(Half::Bf16, num::half_to_f32(Half::F16, a), round_of(m), Fit::default())
        }),
        (Ty::F16, Ty::BF16) => lane_fn!(m; |a: u16| -> u16 {
            num::f32_to_half(Half::F16, num::half_to_f32(Half::Bf16, a), round_of(m), Fit::default())
        }),
        _ => return c.no("no such conversion"),
    };
    c.operands(&[d, s])?;
    c.done(f, imm, AluClass::Cvt)
}

/// `cvt.{rn,rz}{.relu}{.satfinite}.{f16x2,bf16x2}.f32 d, a, b`: `a` in the upper half.
fn to_packed_half(c: &mut Form, to: &str) -> D {
    let round = match c.one_of(&["rn", "rz"]) {
        Some("rn") => Round::Rn,
        Some(_) => Round::Rz,
        None => return c.no("needs .rn or .rz"),
    };
    let mut imm = round_bits(round);
    if c.flag("relu") {
        imm |= RELU;
    }
    if c.flag("satfinite") {
        imm |= SATFINITE;
    }
    c.operands(&[Ty::B32, Ty::F32, Ty::F32])?;
    let f: AluFn = match (to, imm) {
        ("bf16x2", 0) => {
            batch_fn!(run_batch, 2; |w, x| crate::num::lanes::bf16x2_rn(w, x[0], x[1]))
        }
        (_, 0) => {
            batch_fn!(run_batch, 2; |w, x| crate::num::lanes::f16x2_rn(w, x[0], x[1]))
        }
        ("bf16x2", _) => lane_fn!(m; |hi: u32, lo: u32| -> u32 {
            num::f32x2_to_half_x2(Half::Bf16, hi, lo, round_of(m), fit(m))
        }, by_half),
        _ => lane_fn!(m; |hi: u32, lo: u32| -> u32 {
            num::f32x2_to_half_x2(Half::F16, hi, lo, round_of(m), fit(m))
        }, by_half),
    };
    c.done(f, imm, AluClass::Cvt)
}

/// Each source fills a half.
fn by_half(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    (if u[0] != 0 { 0b1100 } else { 0 }) | if u[1] != 0 { 0b0011 } else { 0 }
}

/// Each source fills a byte of a 16-bit result.
fn by_byte(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    u8::from(u[0] != 0) << 1 | u8::from(u[1] != 0)
}

/// Each half of the source fills a byte.
fn half_to_byte(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    u8::from(u[0] & 0b1100 != 0) << 1 | u8::from(u[0] & 0b0011 != 0)
}

/// Each byte of the source fills a half.
fn byte_to_half(_: u64, _: [u64; 4], u: [u8; 4]) -> u8 {
    (if u[0] & 2 != 0 { 0b1100 } else { 0 }) | if u[0] & 1 != 0 { 0b0011 } else { 0 }
}

fn tiny_of(name: &str) -> Option<Tiny> {
    Some(match name {
        "e4m3x2" => Tiny::E4m3,
        "e5m2x2" => Tiny::E5m2,
        "e2m1x2" => Tiny::E2m1,
        "e2m3x2" => Tiny::E2m3,
        "e3m2x2" => Tiny::E3m2,
        _ => return None,
    })
}

/// One conversion in the five tiny formats.
macro_rules! by_tiny {
    ($t:expr, |$tiny:ident| $f:expr) => {
        match $t {
            Tiny::E4m3 => {
                #[allow(non_upper_case_globals)]
                const $tiny: Tiny = Tiny::E4m3;
                $f
            }
            Tiny::E5m2 => {
                #[allow(non_upper_case_globals)]
                const $tiny: Tiny = Tiny::E5m2;
                $f
            }
            Tiny::E2m1 => {
                #[allow(non_upper_case_globals)]
                const $tiny: Tiny = Tiny::E2m1;
                $f
            }
            Tiny::E2m3 => {
                #[allow(non_upper_case_globals)]
                const $tiny: Tiny = Tiny::E2m3;
                $f
            }
            Tiny::E3m2 => {
                #[allow(non_upper_case_globals)]
                const $tiny: Tiny = Tiny::E3m2;
                $f
            }
        }
    };
}

/// Conversions with tf32, ue8m0 or an 8-, 6- or 4-bit format on one side.
fn exotic(c: &mut Form, to: &str, from: &str) -> D {
    match (to, from) {
        ("tf32", "f32") => to_tf32(c),
        ("ue8m0x2", "f32" | "bf16x2") => to_ue8m0(c, from),
        ("bf16x2", "ue8m0x2") => {
            if !c.flag("rn") {
                return c.no("needs .rn");
            }
            c.operands(&[Ty::B32, Ty::B16])?;
            c.done(lane_fn!(|a: u16| -> u32 { num::ue8m0x2_to_bf16x2(a) }, byte_to_half), 0, AluClass::Cvt)
        }
        ("f16x2", _) => match tiny_of(from) {
            Some(t) => from_tiny(c, t),
            None => c.no("no such conversion"),
        },
        (_, "f32" | "f16x2" | "bf16x2") => match tiny_of(to) {
            Some(t) => to_tiny(c, t, from),
            None => c.no("no such conversion"),
        },
        _ => c.no("no such conversion"),
    }
}

fn to_tf32(c: &mut Form) -> D {
    let Some(round) = c.one_of(&["rna", "rn", "rz"]) else { return c.no("needs .rn, .rz or .rna") };
    let mut imm = match round {
        "rna" => 2,
        "rz" => 1,
        _ => 0,
    };
    if round != "rna" && c.flag("relu") {
        imm |= RELU;
    }
    if c.flag("satfinite") {
        imm |= SATFINITE;
    }
    #[inline(always)]
    fn tf_round(imm: u64) -> TfRound {
        match imm & 3 {
            0 => TfRound::Rn,
            1 => TfRound::Rz,
            _ => TfRound::Rna,
        }
    }
    c.operands(&[Ty::B32, Ty::F32])?;
    c.done(lane_fn!(m; |a: u32| -> u32 { num::f32_to_tf32(a, tf_round(m), fit(m)) }), imm, AluClass::Cvt)
}

fn to_ue8m0(c: &mut Form, from: &str) -> D {
    let mut imm = match c.one_of(&["rz", "rp"]) {
        Some("rz") => round_bits(Round::Rz),
        Some(_) => round_bits(Round::Rp),
        None => return c.no("needs .rz or .rp"),
    };
    if c.flag("satfinite") {
        imm |= SATFINITE;
    }
    #[inline(always)]
    fn byte(imm: u64, x: u32) -> u16 {
        u16::from(num::f32_to_ue8m0(x, round_of(imm), imm & SATFINITE != 0))
    }
    if from == "f32" {
        c.operands(&[Ty::B16, Ty::F32, Ty::F32])?;
        let f = lane_fn!(m; |hi: u32, lo: u32| -> u16 { byte(m, hi) << 8 | byte(m, lo) }, by_byte);
        return c.done(f, imm, AluClass::Cvt);
    }
    c.operands(&[Ty::B16, Ty::B32])?;
    let f = lane_fn!(m; |a: u32| -> u16 { byte(m, a & 0xffff_0000) << 8 | byte(m, a << 16) }, half_to_byte);
    c.done(f, imm, AluClass::Cvt)
}

/// Result register of a packed tiny pair: 4-bit pairs fill a byte.
fn pair_register(t: Tiny) -> Ty {
    if t == Tiny::E2m1 { Ty::B8 } else { Ty::B16 }
}

fn to_tiny(c: &mut Form, t: Tiny, from: &str) -> D {
    if !c.flag("rn") || !c.flag("satfinite") {
        return c.no("needs .rn.satfinite");
    }
    let imm = if c.flag("relu") { RELU } else { 0 };
    let d = pair_register(t);
    let f = if from == "f32" {
        c.operands(&[d, Ty::F32, Ty::F32])?;
        by_tiny!(t, |T| lane_fn!(m; |hi: u32, lo: u32| -> u16 {
            num::f32x2_to_tiny_x2(T, hi, lo, m & RELU != 0)
        }, by_byte))
    } else {
        c.operands(&[d, Ty::B32])?;
        if from == "f16x2" {
            by_tiny!(t, |T| lane_fn!(m; |a: u32| -> u16 {
                num::f16x2_to_tiny_x2(T, a, m & RELU != 0)
            }, half_to_byte))
        } else {
            by_tiny!(t, |T| lane_fn!(m; |a: u32| -> u16 {
                num::bf16x2_to_tiny_x2(T, a, m & RELU != 0)
            }, half_to_byte))
        }
    };
    c.done(f, imm, AluClass::Cvt)
}

fn from_tiny(c: &mut Form, t: Tiny) -> D {
    if !c.flag("rn") {
        return c.no("needs .rn");
    }
    let imm = if c.flag("relu") { RELU } else { 0 };
    c.operands(&[Ty::B32, pair_register(t)])?;
    let f = by_tiny!(t, |T| lane_fn!(m; |a: u16| -> u32 {
        num::tiny_x2_to_f16x2(T, a, m & RELU != 0)
    }, byte_to_half));
    c.done(f, imm, AluClass::Cvt)
}

/// `cvt.pack.sat.<to>.s32{.b32} d, a, b{, c}`: saturated `a` above `b`, and above both the low bits of `c`.
fn pack(c: &mut Form) -> D {
    if !c.flag("sat") {
        return c.no("needs .sat");
    }
    let narrow = c.one_of(&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"]);
    let Some(narrow) = narrow else { return c.no("packs .u16, .s16, .u8, .s8, .u4, .s4, .u2 or .s2") };
    if !c.flag("s32") {
        return c.no("packs .s32 sources");
    }
    let bits: u64 = narrow[1..].parse().unwrap_or(16);
    let imm = bits | u64::from(narrow.starts_with('s')) << 8;
    #[inline(always)]
    fn saturate(imm: u64, x: i32) -> u32 {
        let bits = imm & 0xff;
        let (lo, hi) =
            if imm >> 8 & 1 != 0 { (-1 << (bits - 1), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
        (x.clamp(lo, hi) as u32) & ((1 << bits) - 1)
    }
    if bits == 16 {
        c.operands(&[Ty::B32, Ty::S32, Ty::S32])?;
        let f = lane_fn!(m; |a: i32, b: i32| -> u32 { saturate(m, a) << 16 | saturate(m, b) }, by_half);
        return c.done(f, imm, AluClass::Cvt);
    }
    if !c.flag("b32") {
        return c.no("needs .b32 for the third operand");
    }
    c.operands(&[Ty::B32, Ty::S32, Ty::S32, Ty::B32])?;
    let f = lane_fn!(m; |a: i32, b: i32, c: u32| -> u32 {
        let bits = m & 0xff;
        c << (2 * bits) | saturate(m, a) << bits | saturate(m, b)
    });
    c.done(f, imm, AluClass::Cvt)
}
