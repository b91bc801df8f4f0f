//! Moves, packing, unpacking and selection.

use super::lanes::{Lane, Shadow, Undef, lane_fn, store32, warp_fn};
use super::logic::{copy_pred, not_pred};
use super::{AluClass, AluFn, AluInstr, AluOp, Form, by_ty, shadow};
use crate::isa::operands::{Decoded, class_of};
use crate::isa::regs::{Class, LANES, RegFile};
use crate::num::wide::wide as wide_vectors;
use crate::syntax::ast::{Operand, Ty};

type D = Decoded<Option<AluInstr>>;

/// Special registers whose value changes while a warp runs: reading one is the machine's business.
const VOLATILE: [&str; 3] = ["%clock", "%globaltimer", "%pm"];

/// `mov`.
pub fn mov(c: &mut Form) -> D {
    let ty = c.ty()?;
    c.check(2)?;
    let args = c.args;
    match (&args[0], &args[1]) {
        // Addresses and code labels belong to the machine.
        (_, Operand::Sym(..) | Operand::Label(_) | Operand::Targets(_) | Operand::Name(_)) => Ok(None),
        (_, Operand::Special(n)) if VOLATILE.iter().any(|v| n.starts_with(v)) => Ok(None),
        (Operand::Vector(to), from) => unpack(c, ty, to, from),
        (to, Operand::Vector(from)) => pack(c, ty, to, from),
        (to, from) if ty == Ty::B128 => {
            wide(c, to, true)?;
            wide(c, from, false)?;
            c.done(copy_pair, 0, AluClass::Mov)
        }
        (to, Operand::NotReg(_)) if ty == Ty::Pred => {
            let (p, _) = c.slots.src_p(&args[1])?;
            c.s.push((Class::P, p));
            c.dst_operand(to, ty)?;
            c.done(not_pred, 0, AluClass::Mov)
        }
        _ => {
            let f = match class_of(ty) {
                Class::P => copy_pred,
                Class::R32 if ty.bytes() == 4 => warp_fn!(|a: u32| -> u32 { a }, shadow::copy),
                Class::R32 => lane_fn!(|a: u16| -> u16 { a }, shadow::copy),
                _ => warp_fn!(|a: u64| -> u64 { a }, shadow::copy),
            };
            c.simple(2, ty, Some(f), AluClass::Mov)
        }
    }
}

/// Adds both halves of a 128-bit register.
fn wide(c: &mut Form, o: &Operand, dst: bool) -> Decoded<()> {
    let lo = match o {
        Operand::Reg(r) if c.slots.reg(*r).0 == Class::R128 => c.slots.reg(*r).1,
        Operand::Sink if dst => {
            let lo = c.slots.fresh64();
            c.slots.fresh64();
            lo
        }
        _ => return c.no("a .b128 register is needed here"),
    };
    let list = if dst { &mut c.d } else { &mut c.s };
    list.extend([(Class::R64, lo), (Class::R64, lo + 1)]);
    Ok(())
}

/// Unsigned bit type of a size in bytes.
fn bits(bytes: u32) -> Option<Ty> {
    match bytes {
        1 => Some(Ty::B8),
        2 => Some(Ty::B16),
        4 => Some(Ty::B32),
        8 => Some(Ty::B64),
        _ => None,
    }
}

/// Element type of an `n`-vector that fills a register of type `ty`.
fn element(c: &Form, ty: Ty, n: usize) -> Decoded<Ty> {
    match (ty, n) {
        (Ty::B16 | Ty::B32 | Ty::B64 | Ty::B128, 2) | (Ty::B32 | Ty::B64 | Ty::B128, 4) => {
            bits(ty.bytes() / n as u32).map_or_else(|| c.no("this vector does not fill the register"), Ok)
        }
        _ => c.no("packing takes 2 or 4 elements that fill a .b16, .b32, .b64 or .b128 register"),
    }
}

fn pack(c: &mut Form, ty: Ty, to: &Operand, from: &[Operand]) -> D {
    let e = element(c, ty, from.len())?;
    from.iter().try_for_each(|o| c.src_operand(o, e))?;
    if ty == Ty::B128 {
        wide(c, to, true)?;
    } else {
        c.dst_operand(to, ty)?;
    }
    const BY_BYTE: Shadow = |_, _, u| u[0] & 1 | (u[1] & 1) << 1 | (u[2] & 1) << 2 | (u[3] & 1) << 3;
    const BY_HALF: Shadow = |_, _, u| u[0] & 3 | (u[1] & 3) << 2 | (u[2] & 3) << 4 | (u[3] & 3) << 6;
    const BY_WORD: Shadow = |_, _, u| u[0] & 15 | u[1] << 4;
    let f: AluFn = match (ty, from.len()) {
        (Ty::B16, _) => lane_fn!(|a: u8, b: u8| -> u16 { u16::from(a) | u16::from(b) << 8 }, BY_BYTE),
        (Ty::B32, 2) => warp_fn!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }, BY_HALF),
        (Ty::B32, _) => {
            lane_fn!(|a: u8, b: u8, c: u8, d: u8| -> u32 { u32::from_le_bytes([a, b, c, d]) }, BY_BYTE)
        }
        (Ty::B64, 2) => warp_fn!(|a: u32, b: u32| -> u64 { u64::from(a) | u64::from(b) << 32 }, BY_WORD),
        (Ty::B64, _) => lane_fn!(
            |a: u16, b: u16, c: u16, d: u16| -> u64 {
                u64::from(a) | u64::from(b) << 16 | u64::from(c) << 32 | u64::from(d) << 48
            },
            BY_HALF
        ),
        (_, 2) => copy_pair,
        _ => pack_words,
    };
    c.done(f, 0, AluClass::Mov)
}

fn unpack(c: &mut Form, ty: Ty, to: &[Operand], from: &Operand) -> D {
    let e = element(c, ty, to.len())?;
    if ty == Ty::B128 {
        wide(c, from, false)?;
    } else {
        c.src_operand(from, ty)?;
    }
    to.iter().try_for_each(|o| c.dst_operand(o, e))?;
    let f: AluFn = match (ty, to.len()) {
        (Ty::B16 | Ty::B32, 4) => split32::<4, 1>,
        (Ty::B16, _) => split32::<2, 1>,
        (Ty::B32, _) => split32::<2, 2>,
        (Ty::B64, 2) => split64::<2, 4>,
        (Ty::B64, _) => split64::<4, 2>,
        (_, 2) => copy_pair,
        _ => unpack_words,
    };
    c.done(f, 0, AluClass::Mov)
}

/// Splits a 32-bit register into `N` elements of `B` bytes.
fn split32<const N: usize, const B: usize>(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let s = op.s[0] as usize;
    let undef = rf.u32[s] & mask;
    // A destination may be the source itself, so its bytes are read before anything is written.
    let bytes = if undef != 0 { rf.b32[s] } else { [0; LANES] };
    wide_vectors(
        #[inline(always)]
        |_| {
            let src = rf.r32[s].0;
            for i in 0..N {
                let mut out = [0; LANES];
                for l in 0..LANES {
                    out[l] = src[l] >> (8 * B * i) & ones(B);
                }
                store32(rf, op.d[i], &out, mask);
            }
        },
    );
    if undef != 0 {
        (0..N).for_each(|i| mark_part::<B>(rf, op.d[i], undef, &bytes, i));
    }
}

/// Splits a 64-bit register into `N` elements of `B` bytes.
fn split64<const N: usize, const B: usize>(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let s = op.s[0] as usize;
    // The source is a 64-bit register and the results are 32-bit ones, so they cannot overlap.
    wide_vectors(
        #[inline(always)]
        |_| {
            for i in 0..N {
                let mut out = [0; LANES];
                for l in 0..LANES {
                    out[l] = (rf.r64[s].0[l] >> (8 * B * i)) as u32 & ones(B);
                }
                store32(rf, op.d[i], &out, mask);
            }
        },
    );
    let undef = rf.u64[s] & mask;
    if undef != 0 {
        let bytes = rf.b64[s];
        (0..N).for_each(|i| mark_part::<B>(rf, op.d[i], undef, &bytes, i));
    }
}

/// The low `bytes` bytes of a 32-bit word.
#[inline(always)]
fn ones(bytes: usize) -> u32 {
    u32::MAX >> (32 - 8 * bytes)
}

/// Marks the undefined bytes of element `i` (of `B` bytes) in the lanes of `undef`.
#[cold]
#[inline(never)]
fn mark_part<const B: usize>(rf: &mut RegFile, d: u32, undef: u32, bytes: &Undef, i: usize) {
    let part = bytes.map(|b| b >> (B * i) & ((1 << B) - 1));
    <u32 as Lane>::mark(rf, d, undef, &part);
}

/// Copies two 64-bit registers at once (`.b128`).
fn copy_pair(rf: &mut RegFile, op: &AluOp, mask: u32) {
    let read = |rf: &RegFile, s: u32| {
        let undef = (rf.u64[s as usize] & mask != 0).then(|| std::array::from_fn(|l| rf.bytes64(s, l)));
        (rf.r64[s as usize].0, undef)
    };
    let halves = [read(rf, op.s[0]), read(rf, op.s[1])];
    for (d, (value, undef)) in op.d.iter().zip(&halves) {
        <u64 as Lane>::store(rf, *d, value, mask);
        if let Some(u) = undef {
            <u64 as Lane>::mark(rf, *d, mask, u);
        }
    }
}

/// `mov.b128 d, {a, b, c, d}` of 32-bit elements.
fn pack_words(rf: &mut RegFile, op: &AluOp, mask: u32) {
    for l in (0..LANES).filter(|&l| mask >> l & 1 != 0) {
        for h in 0..2 {
            let (lo, hi) = (op.s[2 * h], op.s[2 * h + 1]);
            let v = u64::from(rf.r32[lo as usize].0[l]) | u64::from(rf.r32[hi as usize].0[l]) << 32;
            let u = rf.bytes32(lo, l) | rf.bytes32(hi, l) << 4;
            rf.set64(op.d[h], l, v, u);
        }
    }
}

/// `mov.b128 {a, b, c, d}, s` into 32-bit elements.
fn unpack_words(rf: &mut RegFile, op: &AluOp, mask: u32) {
    for l in (0..LANES).filter(|&l| mask >> l & 1 != 0) {
        for i in 0..4 {
            let s = op.s[i / 2];
            let v = (rf.r64[s as usize].0[l] >> (32 * (i % 2))) as u32;
            let u = rf.bytes64(s, l) >> (4 * (i % 2)) & 0xf;
            rf.set32(op.d[i], l, v, u);
        }
    }
}

/// `selp`: `a` where the predicate is true, else `b`.
pub fn selp(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::B16 | Ty::U16 | Ty::S16 => {
            lane_fn!(|a: u16, b: u16, p: bool| -> u16 { if p { a } else { b } }, shadow::select)
        }
        Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 => {
            warp_fn!(|a: u32, b: u32, p: bool| -> u32 { if p { a } else { b } }, shadow::select)
        }
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => {
            warp_fn!(|a: u64, b: u64, p: bool| -> u64 { if p { a } else { b } }, shadow::select)
        }
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, ty, Ty::Pred])?;
    c.done(f, 0, AluClass::Mov)
}

/// `slct`: `a` where the third operand is ≥ 0 (NaN is not), else `b`.
pub fn slct(c: &mut Form) -> D {
    let types = c.types(2)?;
    let (ty, sel) = (types[0], types[1]);
    // A flushed negative subnormal is −0, which is ≥ 0.
    let ftz = c.flag("ftz");
    #[inline(always)]
    fn nonneg(ftz: u64, x: f32) -> bool {
        x >= 0.0 || ftz != 0 && x > -f32::MIN_POSITIVE
    }
    let value = match ty {
        Ty::B16 | Ty::U16 | Ty::S16 => Ty::B16,
        Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 => Ty::B32,
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => Ty::B64,
        _ => return c.no("not defined for this type"),
    };
    let f = match sel {
        Ty::S32 if !ftz => by_ty!(value; B16 = u16, B32 = u32, B64 = u64;
            lane_fn!(|a: T, b: T, c: i32| -> T { if c >= 0 { a } else { b } })),
        Ty::F32 => by_ty!(value; B16 = u16, B32 = u32, B64 = u64;
            lane_fn!(ftz; |a: T, b: T, c: f32| -> T { if nonneg(ftz, c) { a } else { b } })),
        _ => None,
    };
    let Some(f) = f else { return c.no("the selector is .s32 or .f32") };
    c.operands(&[ty, ty, ty, sel])?;
    c.done(f, u64::from(ftz), AluClass::Mov)
}
