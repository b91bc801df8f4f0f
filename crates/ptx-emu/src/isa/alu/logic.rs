//! Bitwise logic and shifts on registers and predicates.

use super::lanes::{lane_fn, warp_fn};
use super::{AluClass, AluFn, AluInstr, AluOp, Form, by_ty, shadow};
use crate::isa::operands::Decoded;
use crate::isa::regs::RegFile;
use crate::syntax::ast::{Operand, Ty};

type D = Decoded<Option<AluInstr>>;

/// Writes the lanes of `mask` of a predicate with their undefinedness.
fn store_pred(rf: &mut RegFile, d: u32, mask: u32, v: u32, undef: u32) {
    let d = d as usize;
    rf.p[d] = rf.p[d] & !mask | v & mask;
    rf.up[d] = rf.up[d] & !mask | undef & mask;
}

/// Value and undefinedness of the first two predicate sources, all lanes at once.
fn two_preds(rf: &RegFile, op: &AluOp) -> [(u32, u32); 2] {
    [op.s[0], op.s[1]].map(|s| (rf.p[s as usize], rf.up[s as usize]))
}

/// `mov.pred`
pub fn copy_pred(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let [(a, ua), _] = two_preds(rf, op);
    store_pred(rf, op.d[0], mask, a, ua);
}

/// `not.pred`
pub fn not_pred(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let [(a, ua), _] = two_preds(rf, op);
    store_pred(rf, op.d[0], mask, !a, ua);
}

/// `and.pred`: a defined false decides.
fn and_pred(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let [(a, ua), (b, ub)] = two_preds(rf, op);
    store_pred(rf, op.d[0], mask, a & b, (ua | ub) & (ua | a) & (ub | b));
}

/// `or.pred`: a defined true decides.
fn or_pred(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let [(a, ua), (b, ub)] = two_preds(rf, op);
    store_pred(rf, op.d[0], mask, a | b, (ua | ub) & (ua | !a) & (ub | !b));
}

/// `xor.pred`
fn xor_pred(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let [(a, ua), (b, ub)] = two_preds(rf, op);
    store_pred(rf, op.d[0], mask, a ^ b, ua | ub);
}

/// `and`, `or`, `xor`.
pub fn and_or_xor(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match c.op.mnemonic.as_str() {
        "and" => match ty {
            Ty::Pred => Some(and_pred as AluFn),
            Ty::B32 => Some(warp_fn!(|a: u32, b: u32| -> u32 { a & b }, shadow::and)),
            _ => by_ty!(ty; B16 = u16, B64 = u64; lane_fn!(|a: T, b: T| -> T { a & b }, shadow::and)),
        },
        "or" => match ty {
            Ty::Pred => Some(or_pred as AluFn),
            Ty::B32 => Some(warp_fn!(|a: u32, b: u32| -> u32 { a | b }, shadow::or)),
            _ => by_ty!(ty; B16 = u16, B64 = u64; lane_fn!(|a: T, b: T| -> T { a | b }, shadow::or)),
        },
        _ => match ty {
            Ty::Pred => Some(xor_pred as AluFn),
            Ty::B32 => Some(warp_fn!(|a: u32, b: u32| -> u32 { a ^ b }, shadow::either)),
            _ => by_ty!(ty; B16 = u16, B64 = u64; lane_fn!(|a: T, b: T| -> T { a ^ b }, shadow::either)),
        },
    };
    c.simple(3, ty, f, AluClass::Int)
}

/// `not`.
pub fn not(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::Pred => Some(not_pred as AluFn),
        _ => by_ty!(ty; B16 = u16, B32 = u32, B64 = u64; lane_fn!(|a: T| -> T { !a }, shadow::copy)),
    };
    c.simple(2, ty, f, AluClass::Int)
}

/// `cnot`: 1 when the source is zero.
pub fn cnot(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = by_ty!(ty; B16 = u16, B32 = u32, B64 = u64; lane_fn!(|a: T| -> T { T::from(a == 0) }));
    c.simple(2, ty, f, AluClass::Int)
}

/// `shl`: amounts beyond the width give 0.
pub fn shl(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::B16 => lane_fn!(|a: u16, n: u32| -> u16 { if n < 16 { a << n } else { 0 } }, shadow::shl::<16>),
        Ty::B32 => {
            warp_fn!(|a: u32, n: u32| -> u32 { if n < 32 { a << (n & 31) } else { 0 } }, shadow::shl::<32>)
        }
        Ty::B64 => {
            warp_fn!(|a: u64, n: u32| -> u64 { if n < 64 { a << (n & 63) } else { 0 } }, shadow::shl::<64>)
        }
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, Ty::U32])?;
    c.done(f, 0, AluClass::Int)
}

/// `shr`: amounts beyond the width give 0 or copies of the sign.
pub fn shr(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::B16 | Ty::U16 => {
            lane_fn!(|a: u16, n: u32| -> u16 { if n < 16 { a >> n } else { 0 } }, shadow::shr::<16>)
        }
        Ty::B32 | Ty::U32 => {
            warp_fn!(|a: u32, n: u32| -> u32 { if n < 32 { a >> (n & 31) } else { 0 } }, shadow::shr::<32>)
        }
        Ty::B64 | Ty::U64 => {
            warp_fn!(|a: u64, n: u32| -> u64 { if n < 64 { a >> (n & 63) } else { 0 } }, shadow::shr::<64>)
        }
        Ty::S16 => lane_fn!(|a: i16, n: u32| -> i16 { a >> n.min(15) }, shadow::sar::<16>),
        Ty::S32 => warp_fn!(|a: i32, n: u32| -> i32 { a >> n.min(31) }, shadow::sar::<32>),
        Ty::S64 => lane_fn!(|a: i64, n: u32| -> i64 { a >> n.min(63) }, shadow::sar::<64>),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, Ty::U32])?;
    c.done(f, 0, AluClass::Int)
}

/// `shf`: funnel shift of `b:a` by `c`.
pub fn shf(c: &mut Form) -> D {
    let ty = c.ty()?;
    let dir = c.one_of(&["l", "r"]);
    let mode = c.one_of(&["clamp", "wrap"]);
    fn amount(clamp: u64, n: u32) -> u32 {
        if clamp != 0 { n.min(32) } else { n & 31 }
    }
    fn join(a: u32, b: u32) -> u64 {
        u64::from(b) << 32 | u64::from(a)
    }
    let f = match (dir, ty) {
        (Some("l"), Ty::B32) => {
            lane_fn!(clamp; |a: u32, b: u32, n: u32| -> u32 { (join(a, b) << amount(clamp, n) >> 32) as u32 })
        }
        (Some("r"), Ty::B32) => {
            lane_fn!(clamp; |a: u32, b: u32, n: u32| -> u32 { (join(a, b) >> amount(clamp, n)) as u32 })
        }
        _ => return c.no("allowed: shf.{l,r}.{clamp,wrap}.b32"),
    };
    let Some(mode) = mode else { return c.no("needs .clamp or .wrap") };
    c.operands(&[ty, ty, ty, Ty::U32])?;
    c.done(f, u64::from(mode == "clamp"), AluClass::Int)
}

/// `lop3`: any function of three bits, optionally with a predicate `d != 0` combined with another.
pub fn lop3(c: &mut Form) -> D {
    let ty = c.ty()?;
    let combine = c.one_of(&["or", "and"]);
    if ty != Ty::B32 {
        return c.no("not defined for this type");
    }
    c.check(if combine.is_some() { 6 } else { 5 })?;
    let args = c.args;
    let Some(Operand::Int(lut @ 0..=255)) = args.get(4) else {
        return c.no("the look-up table must be an immediate from 0 to 255");
    };
    let lut = *lut as u64;
    let Some(combine) = combine else {
        c.dst(0, ty)?;
        (1..4).try_for_each(|i| c.src(i, ty))?;
        let f = match lut {
            // The common tables get loops of their own; the general one evaluates eight minterms.
            0xc0 => warp_fn!(|a: u32, b: u32, _c: u32| -> u32 { a & b }, lop3_shadow),
            0x96 => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a ^ b ^ c }, lop3_shadow),
            0xf8 => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a | b & c }, lop3_shadow),
            0xfe => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a | b | c }, lop3_shadow),
            0x80 => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a & b & c }, lop3_shadow),
            0xea => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a & b | c }, lop3_shadow),
            0xca => warp_fn!(|a: u32, b: u32, c: u32| -> u32 { a & b | !a & c }, lop3_shadow),
            _ => warp_fn!(lut; |a: u32, b: u32, c: u32| -> u32 { lut3(lut, a, b, c) }, lop3_shadow),
        };
        return c.done(f, lut, AluClass::Int);
    };
    match &args[0] {
        Operand::Pair(d, p) => {
            c.dst_operand(d, ty)?;
            c.dst_operand(p, Ty::Pred)?;
        }
        _ => return c.no("with a boolean operation the destination is `d|p`"),
    }
    (1..4).try_for_each(|i| c.src(i, ty))?;
    c.src(5, Ty::Pred)?;
    let f = if combine == "or" {
        lane_fn!(lut; |a: u32, b: u32, c: u32, q: bool| -> (u32, bool) {
            let d = lut3(lut, a, b, c);
            (d, (d != 0) | q)
        })
    } else {
        lane_fn!(lut; |a: u32, b: u32, c: u32, q: bool| -> (u32, bool) {
            let d = lut3(lut, a, b, c);
            (d, (d != 0) & q)
        })
    };
    c.done(f, lut, AluClass::Int)
}

/// Bit `a·4 + b·2 + c` of the table, for each bit position.
#[inline(always)]
fn lut3(lut: u64, a: u32, b: u32, c: u32) -> u32 {
    let mut d = 0;
    for i in 0..8u32 {
        let on = 0u32.wrapping_sub((lut >> i & 1) as u32);
        let pick = |x: u32, bit: u32| if i >> bit & 1 != 0 { x } else { !x };
        d |= on & pick(a, 2) & pick(b, 1) & pick(c, 0);
    }
    d
}

/// A byte is undefined when the table lets it depend on an undefined byte of a source.
fn lop3_shadow(lut: u64, v: [u64; 4], u: [u8; 4]) -> u8 {
    let mut w = 0;
    for byte in 0..4 {
        let undef = (0..3).fold(0u64, |m, k| m | u64::from(u[k] >> byte & 1) << (2 - k));
        let depends = (0..8).any(|bit| {
            let defined = (0..3).fold(0, |m, k| m | (v[k] >> (8 * byte + bit) & 1) << (2 - k)) & !undef;
            let values = (0..8).filter(|i| i & !undef == defined).fold(0, |s, i| s | 1 << (lut >> i & 1));
            values == 0b11
        });
        w |= u8::from(undef != 0 && depends) << byte;
    }
    w
}
