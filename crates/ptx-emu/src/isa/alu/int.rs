//! Integer arithmetic.

use super::lanes::{Lane, lane_fn, warp_fn};
use super::{AluClass, AluFn, AluInstr, AluOp, Form, by_ty, float, half, shadow};
use crate::isa::operands::Decoded;
use crate::isa::regs::{Class, RegFile};
use crate::syntax::ast::Ty;

type D = Decoded<Option<AluInstr>>;

/// True when the last modifier names a floating type, whose arithmetic [`float`] and [`half`] decode.
fn float_type(c: &Form) -> Option<fn(&mut Form) -> D> {
    match c.op.mods.last().map(String::as_str) {
        Some("f32" | "f64" | "f32x2") => Some(float::arith),
        // `fma.rn.f32.bf16` and its kin end in a 16-bit type but compute in single precision.
        Some("f16" | "bf16") if c.op.has("f32") => Some(float::mixed),
        Some("f16" | "bf16" | "f16x2" | "bf16x2") => Some(half::arith),
        _ => None,
    }
}

/// Both 16-bit halves of a register, transformed separately.
#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// An operation that is the same for signed and unsigned types. Addresses are 32 and 64 bits wide.
macro_rules! wrapping {
    ($ty:expr; |$($a:ident),+| $e:expr) => {
        match $ty {
            Ty::U16 | Ty::S16 => Some(lane_fn!(|$($a: u16),+| -> u16 { $e })),
            Ty::U32 | Ty::S32 => Some(warp_fn!(|$($a: u32),+| -> u32 { $e })),
            Ty::U64 | Ty::S64 => Some(warp_fn!(|$($a: u64),+| -> u64 { $e })),
            _ => None,
        }
    };
}

/// `add` and `sub`, with `.sat` and `.cc`.
pub fn add_sub(c: &mut Form) -> D {
    if let Some(f) = float_type(c) {
        return f(c);
    }
    let add = c.op.mnemonic == "add";
    if add && c.one_of(&["u16x2", "s16x2"]).is_some() {
        let f = lane_fn!(|a: u32, b: u32| -> u32 { halves(a, b, u16::wrapping_add) }, shadow::halves);
        return c.simple(3, Ty::B32, Some(f), AluClass::Int);
    }
    let ty = c.ty()?;
    if c.flag("cc") {
        return carry(c, ty, false, true);
    }
    let f = match (c.flag("sat"), ty, add) {
        (true, Ty::S32, true) => Some(lane_fn!(|a: i32, b: i32| -> i32 { a.saturating_add(b) })),
        (true, Ty::S32, false) => Some(lane_fn!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) })),
        (true, ..) => return c.no(".sat is only defined for .s32"),
        (false, _, true) => wrapping!(ty; |a, b| a.wrapping_add(b)),
        (false, _, false) => wrapping!(ty; |a, b| a.wrapping_sub(b)),
    };
    c.simple(3, ty, f, AluClass::Int)
}

/// `addc` and `subc`.
pub fn addc_subc(c: &mut Form) -> D {
    let ty = c.ty()?;
    let out = c.flag("cc");
    carry(c, ty, true, out)
}

/// Extended-precision addition and subtraction through the condition-code bit. Subtraction keeps the *borrow*
/// in it, as the manual words it.
fn carry(c: &mut Form, ty: Ty, takes: bool, gives: bool) -> D {
    let add = c.op.mnemonic.starts_with("add");
    c.operands(&[ty, ty, ty])?;
    let cc = c.slots.cc();
    if takes {
        c.s.push((Class::P, cc));
    }
    if gives {
        c.d.push((Class::P, cc));
    }
    macro_rules! pick {
        ($add:ident, $($v:ident),+; $t:ident) => {
            match (add, takes, gives) {
                (true, false, true) => Some(lane_fn!(|a: $t, b: $t| -> ($t, bool) { a.overflowing_add(b) })),
                (true, true, true) => Some(lane_fn!(|a: $t, b: $t, k: bool| -> ($t, bool) {
                    let (x, p) = a.overflowing_add(b);
                    let (y, q) = x.overflowing_add($t::from(k));
                    (y, p | q)
                })),
                (true, ..) => Some(lane_fn!(|a: $t, b: $t, k: bool| -> $t {
                    a.wrapping_add(b).wrapping_add($t::from(k))
                })),
                (false, false, true) => Some(lane_fn!(|a: $t, b: $t| -> ($t, bool) { a.overflowing_sub(b) })),
                (false, true, true) => Some(lane_fn!(|a: $t, b: $t, k: bool| -> ($t, bool) {
                    let (x, p) = a.overflowing_sub(b);
                    let (y, q) = x.overflowing_sub($t::from(k));
                    (y, p | q)
                })),
                (false, ..) => Some(lane_fn!(|a: $t, b: $t, k: bool| -> $t {
                    a.wrapping_sub(b).wrapping_sub($t::from(k))
                })),
            }
        };
    }
    let f: Option<AluFn> = match ty {
        Ty::U32 | Ty::S32 => pick!(add, takes; u32),
        Ty::U64 | Ty::S64 => pick!(add, takes; u64),
        _ => None,
    };
    match f {
        Some(f) => c.done(f, 0, AluClass::Int),
        None => c.no("carry is defined for 32- and 64-bit integers"),
    }
}

/// `mul.{lo,hi,wide}`.
pub fn mul(c: &mut Form) -> D {
    if let Some(f) = float_type(c) {
        return f(c);
    }
    let ty = c.ty()?;
    let part = c.one_of(&["lo", "hi", "wide"]);
    let (f, result) = match part {
        Some("lo") => (wrapping!(ty; |a, b| a.wrapping_mul(b)), ty),
        Some("hi") => (hi_fn(ty), ty),
        Some("wide") => match ty {
            Ty::U16 => (Some(lane_fn!(|a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) })), Ty::U32),
            Ty::S16 => (Some(lane_fn!(|a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) })), Ty::S32),
            Ty::U32 => (Some(warp_fn!(|a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) })), Ty::U64),
            Ty::S32 => (Some(warp_fn!(|a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) })), Ty::S64),
            _ => (None, ty),
        },
        _ => return c.no("needs .lo, .hi or .wide"),
    };
    let Some(f) = f else { return c.no("not defined for this type") };
    c.operands(&[result, ty, ty])?;
    c.done(f, 0, AluClass::Int)
}

fn hi_fn(ty: Ty) -> Option<AluFn> {
    Some(match ty {
        Ty::U16 => lane_fn!(|a: u16, b: u16| -> u16 { ((u32::from(a) * u32::from(b)) >> 16) as u16 }),
        Ty::S16 => lane_fn!(|a: i16, b: i16| -> i16 { ((i32::from(a) * i32::from(b)) >> 16) as i16 }),
        Ty::U32 => lane_fn!(|a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }),
        Ty::S32 => lane_fn!(|a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }),
        Ty::U64 => lane_fn!(|a: u64, b: u64| -> u64 { ((u128::from(a) * u128::from(b)) >> 64) as u64 }),
        Ty::S64 => lane_fn!(|a: i64, b: i64| -> i64 { ((i128::from(a) * i128::from(b)) >> 64) as i64 }),
        _ => return None,
    })
}

/// `mad.{lo,hi,wide}`, `mad.hi.sat.s32`, `mad{.cc}` and `madc`.
pub fn mad(c: &mut Form) -> D {
    if c.op.mnemonic == "mad" && float_type(c).is_some() {
        return float::arith(c);
    }
    let ty = c.ty()?;
    let part = c.one_of(&["lo", "hi", "wide"]);
    let takes = c.op.mnemonic == "madc";
    let gives = c.flag("cc");
    if takes || gives {
        return mad_carry(c, ty, part, takes, gives);
    }
    let sat = c.flag("sat");
    if sat {
        if (part, ty) != (Some("hi"), Ty::S32) {
            return c.no(".sat is only defined for mad.hi.sat.s32");
        }
        let f = lane_fn!(|a: i32, b: i32, c: i32| -> i32 {
            (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c)
        });
        return c.simple(4, ty, Some(f), AluClass::Int);
    }
    let f = match part {
        Some("lo") => wrapping!(ty; |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Some("hi") => match ty {
            Ty::U16 => Some(lane_fn!(|a: u16, b: u16, c: u16| -> u16 {
                (((u32::from(a) * u32::from(b)) >> 16) as u16).wrapping_add(c)
            })),
            Ty::S16 => Some(lane_fn!(|a: i16, b: i16, c: i16| -> i16 {
                (((i32::from(a) * i32::from(b)) >> 16) as i16).wrapping_add(c)
            })),
            Ty::U32 => Some(lane_fn!(|a: u32, b: u32, c: u32| -> u32 {
                (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)
            })),
            Ty::S32 => Some(lane_fn!(|a: i32, b: i32, c: i32| -> i32 {
                (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c)
            })),
            Ty::U64 => Some(lane_fn!(|a: u64, b: u64, c: u64| -> u64 {
                (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
            })),
            Ty::S64 => Some(lane_fn!(|a: i64, b: i64, c: i64| -> i64 {
                (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
            })),
            _ => None,
        },
        Some("wide") => {
            let (f, wide) = match ty {
                Ty::U16 => (
                    lane_fn!(|a: u16, b: u16, c: u32| -> u32 {
                        (u32::from(a) * u32::from(b)).wrapping_add(c)
                    }),
                    Ty::U32,
                ),
                Ty::S16 => (
                    lane_fn!(|a: i16, b: i16, c: i32| -> i32 {
                        (i32::from(a) * i32::from(b)).wrapping_add(c)
                    }),
                    Ty::S32,
                ),
                Ty::U32 => (
                    warp_fn!(|a: u32, b: u32, c: u64| -> u64 {
                        (u64::from(a) * u64::from(b)).wrapping_add(c)
                    }),
                    Ty::U64,
                ),
                Ty::S32 => (
                    warp_fn!(|a: i32, b: i32, c: i64| -> i64 {
                        (i64::from(a) * i64::from(b)).wrapping_add(c)
                    }),
                    Ty::S64,
                ),
                _ => return c.no("not defined for this type"),
            };
            c.operands(&[wide, ty, ty, wide])?;
            return c.done(f, 0, AluClass::Int);
        }
        _ => return c.no("needs .lo, .hi or .wide"),
    };
    c.simple(4, ty, f, AluClass::Int)
}

/// `mad.{lo,hi}.cc` and `madc.{lo,hi}{.cc}`: the carry out is that of adding `c` (and the carry in).
fn mad_carry(c: &mut Form, ty: Ty, part: Option<&str>, takes: bool, gives: bool) -> D {
    c.operands(&[ty, ty, ty, ty])?;
    let cc = c.slots.cc();
    if takes {
        c.s.push((Class::P, cc));
    }
    if gives {
        c.d.push((Class::P, cc));
    }
    macro_rules! pick {
        ($t:ident, |$a:ident, $b:ident| $product:expr) => {
            match (takes, gives) {
                (false, _) => lane_fn!(|$a: $t, $b: $t, c: $t| -> ($t, bool) { $product.overflowing_add(c) }),
                (true, true) => lane_fn!(|$a: $t, $b: $t, c: $t, k: bool| -> ($t, bool) {
                    let (x, p) = $product.overflowing_add(c);
                    let (y, q) = x.overflowing_add($t::from(k));
                    (y, p | q)
                }),
                (true, false) => lane_fn!(|$a: $t, $b: $t, c: $t, k: bool| -> $t {
                    $product.wrapping_add(c).wrapping_add($t::from(k))
                }),
            }
        };
    }
    let f = match (part, ty) {
        (Some("lo"), Ty::U32 | Ty::S32) => pick!(u32, |a, b| a.wrapping_mul(b)),
        (Some("lo"), Ty::U64 | Ty::S64) => pick!(u64, |a, b| a.wrapping_mul(b)),
        (Some("hi"), Ty::U32) => pick!(u32, |a, b| (((u64::from(a) * u64::from(b)) >> 32) as u32)),
        (Some("hi"), Ty::S32) => {
            pick!(u32, |a, b| (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32))
        }
        (Some("hi"), Ty::U64) => pick!(u64, |a, b| (((u128::from(a) * u128::from(b)) >> 64) as u64)),
        (Some("hi"), Ty::S64) => {
            pick!(u64, |a, b| (((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64))
        }
        _ => return c.no("carry is defined for .lo and .hi of 32- and 64-bit integers"),
    };
    c.done(f, 0, AluClass::Int)
}

/// `mul24` and `mad24`: products of the low 24 bits; `.lo` = bits 31:0, `.hi` = bits 47:16.
pub fn mul24(c: &mut Form) -> D {
    let ty = c.ty()?;
    let Some(part) = c.one_of(&["lo", "hi"]) else { return c.no("needs .lo or .hi") };
    let add = c.op.mnemonic == "mad24";
    let sat = c.flag("sat");
    #[inline(always)]
    fn unsigned(shift: u64, a: u32, b: u32) -> u32 {
        ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> shift) as u32
    }
    #[inline(always)]
    fn signed(shift: u64, a: i32, b: i32) -> i32 {
        ((i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)) >> shift) as i32
    }
    let f = match (ty, add, sat) {
        (Ty::U32, false, false) => lane_fn!(s; |a: u32, b: u32| -> u32 { unsigned(s, a, b) }),
        (Ty::S32, false, false) => lane_fn!(s; |a: i32, b: i32| -> i32 { signed(s, a, b) }),
        (Ty::U32, true, false) => {
            lane_fn!(s; |a: u32, b: u32, c: u32| -> u32 { unsigned(s, a, b).wrapping_add(c) })
        }
        (Ty::S32, true, false) => {
            lane_fn!(s; |a: i32, b: i32, c: i32| -> i32 { signed(s, a, b).wrapping_add(c) })
        }
        (Ty::S32, true, true) if part == "hi" => {
            lane_fn!(s; |a: i32, b: i32, c: i32| -> i32 { signed(s, a, b).saturating_add(c) })
        }
        _ => return c.no("not defined for this type"),
    };
    c.operands(&vec![ty; if add { 4 } else { 3 }])?;
    c.done(f, if part == "hi" { 16 } else { 0 }, AluClass::Int)
}

/// `sad`: `c + |a − b|`.
pub fn sad(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f = match ty {
        Ty::U16 => Some(lane_fn!(|a: u16, b: u16, c: u16| -> u16 { c.wrapping_add(a.abs_diff(b)) })),
        Ty::U32 => Some(lane_fn!(|a: u32, b: u32, c: u32| -> u32 { c.wrapping_add(a.abs_diff(b)) })),
        Ty::U64 => Some(lane_fn!(|a: u64, b: u64, c: u64| -> u64 { c.wrapping_add(a.abs_diff(b)) })),
        Ty::S16 => Some(lane_fn!(|a: i16, b: i16, c: u16| -> u16 { c.wrapping_add(a.abs_diff(b)) })),
        Ty::S32 => Some(lane_fn!(|a: i32, b: i32, c: u32| -> u32 { c.wrapping_add(a.abs_diff(b)) })),
        Ty::S64 => Some(lane_fn!(|a: i64, b: i64, c: u64| -> u64 { c.wrapping_add(a.abs_diff(b)) })),
        _ => None,
    };
    c.simple(4, ty, f, AluClass::Int)
}

/// Runs a division, then marks the quotients of zero divisors undefined: the manual leaves their value open
/// ("unspecified, machine-specific"), so a kernel that uses one has no meaning.
fn divide(rf: &mut RegFile, op: &AluOp, mask: u32, zero: u32, wide: bool, f: AluFn) {
    f(rf, op, mask);
    if zero & mask != 0 {
        let undef = std::array::from_fn(|l| if zero >> l & 1 != 0 { 0xff } else { 0 });
        if wide {
            <u64 as Lane>::mark(rf, op.d[0], mask, &undef);
        } else {
            <u32 as Lane>::mark(rf, op.d[0], mask, &undef);
        }
    }
}

fn zeros32(rf: &RegFile, slot: u32) -> u32 {
    (0..32).fold(0, |w, l| w | u32::from(rf.r32[slot as usize].0[l] == 0) << l)
}

fn zeros64(rf: &RegFile, slot: u32) -> u32 {
    (0..32).fold(0, |w, l| w | u32::from(rf.r64[slot as usize].0[l] == 0) << l)
}

/// `div` and `rem`.
pub fn div_rem(c: &mut Form) -> D {
    if c.op.mnemonic == "div"
        && let Some(f) = float_type(c)
    {
        return f(c);
    }
    let ty = c.ty()?;
    // The values of zero divisors are what compiled code leaves behind today: all ones, and the dividend.
    macro_rules! pick {
        ($t:ident, $zeros:ident, $wide:expr) => {
            if c.op.mnemonic == "div" {
                (|rf, op, mask| {
                    let zero = $zeros(rf, op.s[1]);
                    let f = lane_fn!(|a: $t, b: $t| -> $t { if b == 0 { !0 } else { a.wrapping_div(b) } });
                    divide(rf, op, mask, zero, $wide, f);
                }) as AluFn
            } else {
                (|rf, op, mask| {
                    let zero = $zeros(rf, op.s[1]);
                    let f = lane_fn!(|a: $t, b: $t| -> $t { if b == 0 { a } else { a.wrapping_rem(b) } });
                    divide(rf, op, mask, zero, $wide, f);
                }) as AluFn
            }
        };
    }
    let f = match ty {
        Ty::U16 => pick!(u16, zeros32, false),
        Ty::S16 => pick!(i16, zeros32, false),
        Ty::U32 => pick!(u32, zeros32, false),
        Ty::S32 => pick!(i32, zeros32, false),
        Ty::U64 => pick!(u64, zeros64, true),
        Ty::S64 => pick!(i64, zeros64, true),
        _ => return c.no("not defined for this type"),
    };
    c.simple(3, ty, Some(f), AluClass::Int)
}

/// `abs` and `neg`.
pub fn abs_neg(c: &mut Form) -> D {
    if let Some(f) = float_type(c) {
        return f(c);
    }
    let ty = c.ty()?;
    let f = if c.op.mnemonic == "abs" {
        by_ty!(ty; S16 = i16, S32 = i32, S64 = i64; lane_fn!(|a: T| -> T { a.wrapping_abs() }))
    } else {
        by_ty!(ty; S16 = i16, S32 = i32, S64 = i64; lane_fn!(|a: T| -> T { a.wrapping_neg() }))
    };
    c.simple(2, ty, f, AluClass::Int)
}

/// `min` and `max`.
pub fn min_max(c: &mut Form) -> D {
    if let Some(f) = float_type(c) {
        return f(c);
    }
    let min = c.op.mnemonic == "min";
    let relu = c.flag("relu");
    if let Some(x2) = c.one_of(&["u16x2", "s16x2"]) {
        macro_rules! pick {
            (|$a:ident, $b:ident| $e:expr) => {
                lane_fn!(|a: u32, b: u32| -> u32 { halves(a, b, |$a, $b| $e) }, shadow::halves)
            };
        }
        let f = match (x2, relu, min) {
            ("u16x2", false, true) => pick!(|a, b| a.min(b)),
            ("u16x2", false, false) => pick!(|a, b| a.max(b)),
            ("s16x2", false, true) => pick!(|a, b| (a as i16).min(b as i16) as u16),
            ("s16x2", false, false) => pick!(|a, b| (a as i16).max(b as i16) as u16),
            ("s16x2", true, true) => pick!(|a, b| (a as i16).min(b as i16).max(0) as u16),
            ("s16x2", true, false) => pick!(|a, b| (a as i16).max(b as i16).max(0) as u16),
            _ => return c.no(".relu is only defined for signed types"),
        };
        return c.simple(3, Ty::B32, Some(f), AluClass::Int);
    }
    let ty = c.ty()?;
    let f = match (relu, ty, min) {
        (true, Ty::S32, true) => Some(lane_fn!(|a: i32, b: i32| -> i32 { a.min(b).max(0) })),
        (true, Ty::S32, false) => Some(lane_fn!(|a: i32, b: i32| -> i32 { a.max(b).max(0) })),
        (true, ..) => return c.no(".relu is only defined for .s32 and .s16x2"),
        (false, _, true) => by_ty!(ty; U16 = u16, S16 = i16, U32 = u32, S32 = i32, U64 = u64, S64 = i64;
            lane_fn!(|a: T, b: T| -> T { a.min(b) })),
        (false, _, false) => by_ty!(ty; U16 = u16, S16 = i16, U32 = u32, S32 = i32, U64 = u64, S64 = i64;
            lane_fn!(|a: T, b: T| -> T { a.max(b) })),
    };
    c.simple(3, ty, f, AluClass::Int)
}
