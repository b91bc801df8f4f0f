//! Bit fields, counting, permutation.

use super::lanes::{Shadow, lane_fn, warp_fn};
use super::{AluClass, AluInstr, Form, shadow};
use crate::isa::operands::Decoded;
use crate::syntax::ast::Ty;

type D = Decoded<Option<AluInstr>>;

/// `popc`, `clz` (32-bit result), `brev`.
pub fn count(c: &mut Form) -> D {
    let ty = c.ty()?;
    let (f, result) = match (c.op.mnemonic.as_str(), ty) {
        ("popc", Ty::B32) => (lane_fn!(|a: u32| -> u32 { a.count_ones() }), Ty::U32),
        ("popc", Ty::B64) => (lane_fn!(|a: u64| -> u32 { a.count_ones() }), Ty::U32),
        ("clz", Ty::B32) => (lane_fn!(|a: u32| -> u32 { a.leading_zeros() }), Ty::U32),
        ("clz", Ty::B64) => (lane_fn!(|a: u64| -> u32 { a.leading_zeros() }), Ty::U32),
        ("brev", Ty::B32) => (lane_fn!(|a: u32| -> u32 { a.reverse_bits() }), Ty::B32),
        ("brev", Ty::B64) => (lane_fn!(|a: u64| -> u64 { a.reverse_bits() }), Ty::B64),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[result, ty])?;
    c.done(f, 0, AluClass::Int)
}

/// `bfind`: position of the most significant bit that differs from the sign; all ones if there is none.
pub fn bfind(c: &mut Form) -> D {
    let ty = c.ty()?;
    let shiftamt = c.flag("shiftamt");
    fn find(shiftamt: u64, v: u64, msb: u32) -> u32 {
        match (v, shiftamt) {
            (0, _) => u32::MAX,
            (v, 0) => 63 - v.leading_zeros(),
            (v, _) => msb - (63 - v.leading_zeros()),
        }
    }
    let f = match ty {
        Ty::U32 => lane_fn!(s; |a: u32| -> u32 { find(s, u64::from(a), 31) }),
        Ty::S32 => lane_fn!(s; |a: i32| -> u32 { find(s, u64::from((a ^ a >> 31) as u32), 31) }),
        Ty::U64 => lane_fn!(s; |a: u64| -> u32 { find(s, a, 63) }),
        Ty::S64 => lane_fn!(s; |a: i64| -> u32 { find(s, (a ^ a >> 63) as u64, 63) }),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[Ty::U32, ty])?;
    c.done(f, u64::from(shiftamt), AluClass::Int)
}

/// `fns`: position of the n-th set bit counted from `base`, upwards or downwards.
pub fn fns(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::B32 => lane_fn!(|mask: u32, base: u32, offset: i32| -> u32 { find_nth(mask, base, offset) }),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, Ty::U32, Ty::S32])?;
    c.done(f, 0, AluClass::Int)
}

/// Offset 0 asks for bit `base` itself; ±n for the n-th set bit at or above / at or below it.
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    let mut pos = base as i32;
    while (0..32).contains(&pos) {
        if mask >> pos & 1 != 0 {
            left -= 1;
            if left == 0 {
                return pos as u32;
            }
        }
        pos += offset.signum();
    }
    u32::MAX
}

/// `bfe`: extracts a field, filled above with zeros or copies of its top bit.
pub fn bfe(c: &mut Form) -> D {
    let ty = c.ty()?;
    // Shifting the field's top to the register's top and back does both fills; a field that reaches past the
    // register takes its sign from the register's top bit. The 32-bit forms look at the low eight bits of position
    // and length; the 64-bit ones, which are sequences of shifts on the device, at all of them (recorded H200).
    let f = match ty {
        Ty::U32 => warp_fn!(
            |a: u32, pos: u32, len: u32| -> u32 {
                let (pos, len) = (pos & 0xff, len & 0xff);
                let v = if pos < 32 { a >> (pos & 31) } else { 0 };
                if len < 32 { v & ((1 << (len & 31)) - 1) } else { v }
            },
            shadow::bfe
        ),
        Ty::S32 => lane_fn!(|a: i32, pos: u32, len: u32| -> i32 {
            let (pos, len) = (pos & 0xff, len & 0xff);
            let v = a >> pos.min(31);
            let up = 32 - len.min(32);
            if len == 0 { 0 } else { v << (up & 31) >> (up & 31) }
        }),
        Ty::U64 => lane_fn!(
            |a: u64, pos: u32, len: u32| -> u64 {
                let v = if pos < 64 { a >> (pos & 63) } else { 0 };
                if len < 64 { v & ((1 << (len & 63)) - 1) } else { v }
            },
            shadow::bfe
        ),
        Ty::S64 => lane_fn!(|a: i64, pos: u32, len: u32| -> i64 {
            let v = a >> pos.min(63);
            let up = 64 - len.min(64);
            if len == 0 { 0 } else { v << (up & 63) >> (up & 63) }
        }),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, Ty::U32, Ty::U32])?;
    c.done(f, looked_at(ty), AluClass::Int)
}

/// The bits of a position or length that `bfe` and `bfi` look at.
fn looked_at(ty: Ty) -> u64 {
    if ty.bytes() == 8 { u64::from(u32::MAX) } else { 0xff }
}

/// `bfi`: inserts the low bits of `a` into `b`.
pub fn bfi(c: &mut Form) -> D {
    let ty = c.ty()?;
    #[inline(always)]
    fn field(pos: u32, len: u32) -> u64 {
        let ones = if len < 64 { (1 << (len & 63)) - 1 } else { u64::MAX };
        if pos < 64 { ones << (pos & 63) } else { 0 }
    }
    let f = match ty {
        Ty::B32 => lane_fn!(
            |a: u32, b: u32, pos: u32, len: u32| -> u32 {
                let m = field(pos & 0xff, len & 0xff) as u32;
                b & !m | a << (pos & 31) & m
            },
            shadow::bfi
        ),
        Ty::B64 => lane_fn!(
            |a: u64, b: u64, pos: u32, len: u32| -> u64 {
                let m = field(pos, len);
                b & !m | a << (pos & 63) & m
            },
            shadow::bfi
        ),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, ty, Ty::U32, Ty::U32])?;
    c.done(f, looked_at(ty), AluClass::Int)
}

/// `szext`: sign- or zero-extends the low `b` bits of `a`.
pub fn szext(c: &mut Form) -> D {
    let ty = c.ty()?;
    let Some(mode) = c.one_of(&["clamp", "wrap"]) else { return c.no("needs .clamp or .wrap") };
    #[inline(always)]
    fn width(clamp: u64, b: u32) -> u32 {
        if clamp != 0 { b.min(32) } else { b & 31 }
    }
    let f = match ty {
        Ty::U32 => lane_fn!(clamp; |a: u32, b: u32| -> u32 {
            let n = width(clamp, b);
            if n < 32 { a & ((1 << n) - 1) } else { a }
        }),
        Ty::S32 => lane_fn!(clamp; |a: i32, b: u32| -> i32 {
            let n = width(clamp, b);
            if n == 0 { 0 } else { a << (32 - n) >> (32 - n) }
        }),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&[ty, ty, Ty::U32])?;
    c.done(f, u64::from(mode == "clamp"), AluClass::Int)
}

/// `bmsk`: a mask of `b` bits from bit `a` on.
pub fn bmsk(c: &mut Form) -> D {
    let ty = c.ty()?;
    let Some(mode) = c.one_of(&["clamp", "wrap"]) else { return c.no("needs .clamp or .wrap") };
    if ty != Ty::B32 {
        return c.no("not defined for this type");
    }
    let f = lane_fn!(clamp; |a: u32, b: u32| -> u32 {
        let (start, len) = if clamp != 0 { (a.min(32), b.min(32)) } else { (a & 31, b & 31) };
        let ones = (1u64 << len) - 1;
        (ones << start) as u32
    });
    c.operands(&[ty, Ty::U32, Ty::U32])?;
    c.done(f, u64::from(mode == "clamp"), AluClass::Int)
}

/// Generic-form selectors of each `prmt` mode by the low two bits of the third operand.
const PRMT_MODES: [(&str, [u64; 4]); 6] = [
    ("f4e", [0x3210, 0x4321, 0x5432, 0x6543]),
    ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
    ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
    ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
    ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
    ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
];

/// `prmt`: picks four of the eight bytes of `b:a`, or replicates their signs.
pub fn prmt(c: &mut Form) -> D {
    // The mode follows the type.
    let ty = Ty::B32;
    if !c.flag("b32") {
        return c.no("defined for .b32 only");
    }
    let names = PRMT_MODES.map(|m| m.0);
    let mode = c.one_of(&names);
    c.operands(&[ty, ty, ty, Ty::U32])?;
    match mode {
        None => {
            let f = warp_fn!(|a: u32, b: u32, sel: u32| -> u32 { permute(a, b, sel) }, shadow::prmt);
            c.done(f, 0, AluClass::Int)
        }
        Some(mode) => {
            // The four selectors travel in the immediate.
            let table = PRMT_MODES.iter().find(|m| m.0 == mode).map_or([0; 4], |m| m.1);
            let imm = (0..4).fold(0, |w, i| w | table[i] << (16 * i));
            fn selector(imm: u64, c: u64) -> u64 {
                imm >> (16 * (c & 3)) & 0xffff
            }
            const SHADOW: Shadow = |imm, v, u| shadow::prmt_bytes(selector(imm, v[2]), u);
            let f = lane_fn!(imm; |a: u32, b: u32, c: u32| -> u32 {
                permute(a, b, selector(imm, u64::from(c)) as u32)
            }, SHADOW);
            c.done(f, imm, AluClass::Int)
        }
    }
}

#[inline(always)]
fn permute(a: u32, b: u32, sel: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    let mut d = 0;
    for i in 0..4 {
        let s = sel >> (4 * i) & 0xf;
        let byte = (both >> (8 * (s & 7))) as u8;
        let sign = ((byte as i8) >> 7) as u8;
        d |= u32::from(if s & 8 != 0 { sign } else { byte }) << (8 * i);
    }
    d
}

/// `dp4a`: dot product of four bytes, accumulated; `dp2a`: of two halves with two bytes.
pub fn dot(c: &mut Form) -> D {
    let types = c.types(2)?;
    let half = if c.op.mnemonic == "dp2a" { c.one_of(&["lo", "hi"]) } else { None };
    let signed = |t| match t {
        Ty::U32 => Some(0u64),
        Ty::S32 => Some(1),
        _ => None,
    };
    let (Some(sa), Some(sb)) = (signed(types[0]), signed(types[1])) else {
        return c.no("types are .u32 or .s32");
    };
    #[inline(always)]
    fn part(v: u32, bits: u32, i: u32, signed: bool) -> i32 {
        let x = v << (32 - bits * (i + 1));
        if signed { x as i32 >> (32 - bits) } else { (x >> (32 - bits)) as i32 }
    }
    let f = match (c.op.mnemonic.as_str(), half) {
        ("dp4a", None) => lane_fn!(imm; |a: u32, b: u32, c: i32| -> i32 {
            let mut d = c;
            for i in 0..4 {
                let p = part(a, 8, i, imm & 1 != 0).wrapping_mul(part(b, 8, i, imm & 2 != 0));
                d = d.wrapping_add(p);
            }
            d
        }),
        ("dp2a", Some(_)) => lane_fn!(imm; |a: u32, b: u32, c: i32| -> i32 {
            let b = if imm & 4 != 0 { b >> 16 } else { b };
            let mut d = c;
            for i in 0..2 {
                let p = part(a, 16, i, imm & 1 != 0).wrapping_mul(part(b, 8, i, imm & 2 != 0));
                d = d.wrapping_add(p);
            }
            d
        }),
        _ => return c.no("dp2a needs .lo or .hi"),
    };
    let acc = if sa | sb != 0 { Ty::S32 } else { Ty::U32 };
    c.operands(&[acc, Ty::B32, Ty::B32, acc])?;
    c.done(f, sa | sb << 1 | u64::from(half == Some("hi")) << 2, AluClass::Int)
}
