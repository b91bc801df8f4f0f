//! Comparisons: `setp` and `set`.
//!
//! Two values are less, equal, greater or unordered; a comparison operator is the set of those outcomes it
//! accepts. So one loop per type finds the outcome masks, and everything else (operator, combination with a
//! third predicate, the complementary result) happens on whole 32-bit masks.

use super::lanes::Lane;
use super::{AluClass, AluFn, AluInstr, AluOp, Form};
use crate::isa::operands::Decoded;
use crate::isa::regs::{Class, LANES, RegFile};
use crate::num::cvt::half_to_f32;
use crate::num::half::Half;
use crate::num::wide::wide;
use crate::syntax::ast::{Operand, Ty};
use std::cmp::Ordering;

type D = Decoded<Option<AluInstr>>;

const LT: u64 = 1;
const EQ: u64 = 2;
const GT: u64 = 4;
const UN: u64 = 8;
/// Immediate layout: outcomes accepted (bits 0..3), combination (bits 4..5), then flags; `set`'s true value in
/// the upper half.
const COMBINE: u32 = 4;
const NEGATE_C: u64 = 1 << 6;
const HAS_Q: u64 = 1 << 7;
const IS_SET: u64 = 1 << 8;
const FTZ: u64 = 1 << 9;

/// Outcome masks of a comparison.
struct Outcome {
    lt: u32,
    eq: u32,
    un: u32,
}

/// Outcomes a comparison operator accepts.
fn accepted(name: &str, float: bool) -> Option<u64> {
    Some(match name {
        "eq" => EQ,
        "ne" => LT | GT,
        "lt" => LT,
        "le" => LT | EQ,
        "gt" => GT,
        "ge" => GT | EQ,
        "lo" if !float => LT,
        "ls" if !float => LT | EQ,
        "hi" if !float => GT,
        "hs" if !float => GT | EQ,
        "equ" if float => EQ | UN,
        "neu" if float => LT | GT | UN,
        "ltu" if float => LT | UN,
        "leu" if float => LT | EQ | UN,
        "gtu" if float => GT | UN,
        "geu" if float => GT | EQ | UN,
        "num" if float => LT | EQ | GT,
        "nan" if float => UN,
        _ => return None,
    })
}

const OPERATORS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

/// Defines the comparison function of a type.
macro_rules! compare {
    ($name:ident, $t:ty, |$a:ident, $b:ident| lt $lt:expr, eq $eq:expr, un $un:expr) => {
        fn $name(rf: &mut RegFile, op: &AluOp, mask: u32) {
            let outcome = wide(
                #[inline(always)]
                |w| {
                    let (x, y) = (<$t as Lane>::reg(rf, op.s[0]), <$t as Lane>::reg(rf, op.s[1]));
                    let (mut lt, mut eq, mut un) = ([0; LANES], [0; LANES], [0; LANES]);
                    for l in 0..LANES {
                        let ($a, $b) = (<$t as Lane>::at(x, l), <$t as Lane>::at(y, l));
                        lt[l] = if $lt { !0 } else { 0 };
                        eq[l] = if $eq { !0 } else { 0 };
                        un[l] = if $un { !0 } else { 0 };
                    }
                    Outcome { lt: w.signs(&lt), eq: w.signs(&eq), un: w.signs(&un) }
                },
            );
            let undef = <$t as Lane>::undef(rf, op.s[0]) | <$t as Lane>::undef(rf, op.s[1]);
            finish(rf, op, mask, outcome, undef);
        }
    };
}

compare!(bits32, u32, |a, b| lt false, eq a == b, un false);
compare!(unsigned32, u32, |a, b| lt a < b, eq a == b, un false);
compare!(signed32, i32, |a, b| lt a < b, eq a == b, un false);
compare!(single, f32, |a, b| lt a < b, eq a == b, un a.is_nan() | b.is_nan());
compare!(single_ftz, f32, |a, b| lt flush(a) < flush(b), eq flush(a) == flush(b), un a.is_nan() | b.is_nan());

/// Defines the comparison function of a type that inner loops rarely compare: one loop for all of them calls the
/// scalar comparison through a pointer.
macro_rules! compare_rare {
    ($name:ident, $t:ty, |$imm:ident, $a:ident, $b:ident| $order:expr) => {
        fn $name(rf: &mut RegFile, op: &AluOp, mask: u32) {
            let order = |$imm: u64, a: u64, b: u64| {
                let ($a, $b) = (<$t as Lane>::from_bits(a), <$t as Lane>::from_bits(b));
                $order
            };
            compare_lanes(rf, op, mask, <$t as Lane>::CLASS, order);
        }
    };
}

fn compare_lanes(
    rf: &mut RegFile,
    op: &AluOp,
    mask: u32,
    class: Class,
    order: fn(u64, u64, u64) -> Option<Ordering>,
) {
    let read = |s: u32, l: usize| match class {
        Class::R32 => u64::from(rf.r32[s as usize].0[l]),
        _ => rf.r64[s as usize].0[l],
    };
    let mut outcome = Outcome { lt: 0, eq: 0, un: 0 };
    for l in 0..LANES {
        let set = match order(op.imm, read(op.s[0], l), read(op.s[1], l)) {
            Some(Ordering::Less) => &mut outcome.lt,
            Some(Ordering::Equal) => &mut outcome.eq,
            Some(Ordering::Greater) => continue,
            None => &mut outcome.un,
        };
        *set |= 1 << l;
    }
    let undef = |s: u32| if class == Class::R32 { rf.u32[s as usize] } else { rf.u64[s as usize] };
    let undef = undef(op.s[0]) | undef(op.s[1]);
    finish(rf, op, mask, outcome, undef);
}

compare_rare!(unsigned16, u16, |_imm, a, b| a.partial_cmp(&b));
compare_rare!(unsigned64, u64, |_imm, a, b| a.partial_cmp(&b));
compare_rare!(signed16, i16, |_imm, a, b| a.partial_cmp(&b));
compare_rare!(signed64, i64, |_imm, a, b| a.partial_cmp(&b));
compare_rare!(double, f64, |_imm, a, b| a.partial_cmp(&b));
compare_rare!(half, u16, |imm, a, b| f16(imm, a).partial_cmp(&f16(imm, b)));
compare_rare!(bfloat, u16, |_imm, a, b| bf16(a).partial_cmp(&bf16(b)));

#[inline(always)]
fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

fn f16(imm: u64, x: u16) -> f32 {
    let subnormal = x & 0x7c00 == 0;
    f32::from_bits(half_to_f32(Half::F16, if imm & FTZ != 0 && subnormal { 0 } else { x }))
}

#[inline(always)]
fn bf16(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// Combines the outcome with the third predicate and writes the results.
fn finish(rf: &mut RegFile, op: &AluOp, mask: u32, o: Outcome, undef: u32) {
    let imm = op.imm;
    let pick = |bit: u64, lanes: u32| if imm & bit != 0 { lanes } else { 0 };
    let gt = !(o.lt | o.eq | o.un);
    let test = pick(LT, o.lt & !o.un) | pick(EQ, o.eq) | pick(GT, gt) | pick(UN, o.un);
    let (c, uc) = match imm >> COMBINE & 3 {
        0 => (0, 0),
        _ => (rf.p[op.s[2] as usize], rf.up[op.s[2] as usize]),
    };
    let c = if imm & NEGATE_C != 0 { !c } else { c };
    let combine = |t: u32| match imm >> COMBINE & 3 {
        1 => (t & c, (undef | uc) & !(!undef & !t) & !(!uc & !c)),
        2 => (t | c, (undef | uc) & !(!undef & t) & !(!uc & c)),
        3 => (t ^ c, undef | uc),
        _ => (t, undef),
    };
    let (p, up) = combine(test);
    if imm & IS_SET != 0 {
        let yes = (imm >> 32) as u32;
        let out = std::array::from_fn(|l| if p >> l & 1 != 0 { yes } else { 0 });
        <u32 as Lane>::store(rf, op.d[0], &out, mask);
        if up & mask != 0 {
            <u32 as Lane>::mark(rf, op.d[0], mask, &std::array::from_fn(|l| (up >> l & 1) as u8 * 0xff));
        }
        return;
    }
    let mut write = |d: u32, p: u32, up: u32| {
        let d = d as usize;
        rf.p[d] = rf.p[d] & !mask | p & mask;
        rf.up[d] = rf.up[d] & !mask | up & mask;
    };
    write(op.d[0], p, up);
    if imm & HAS_Q != 0 {
        let (q, uq) = combine(!test);
        write(op.d[1], q, uq);
    }
}

/// The comparison function of a source type, and whether it is a floating type.
fn comparer(ty: Ty, ftz: bool) -> Option<(AluFn, bool)> {
    Some(match (ty, ftz) {
        (Ty::B16, false) => (unsigned16, false),
        (Ty::B32, false) => (bits32, false),
        (Ty::B64, false) => (unsigned64, false),
        (Ty::U16, false) => (unsigned16, false),
        (Ty::U32, false) => (unsigned32, false),
        (Ty::U64, false) => (unsigned64, false),
        (Ty::S16, false) => (signed16, false),
        (Ty::S32, false) => (signed32, false),
        (Ty::S64, false) => (signed64, false),
        (Ty::F32, false) => (single, true),
        (Ty::F32, true) => (single_ftz, true),
        (Ty::F64, false) => (double, true),
        (Ty::F16, _) => (half, true),
        (Ty::BF16, false) => (bfloat, true),
        _ => return None,
    })
}

/// Operator, combination, `.ftz` and source type; what `setp` and `set` share.
fn comparison(c: &mut Form, ty: Ty) -> Decoded<(AluFn, u64)> {
    let ftz = c.flag("ftz");
    let Some(op) = c.one_of(&OPERATORS) else { return c.no("the comparison operator is missing") };
    let combine = match c.one_of(&["and", "or", "xor"]) {
        None => 0,
        Some("and") => 1,
        Some("or") => 2,
        Some(_) => 3,
    };
    let Some((f, float)) = comparer(ty, ftz) else { return c.no("not defined for this type") };
    let Some(accepted) = accepted(op, float) else { return c.no("operator not defined for this type") };
    let unsigned_only = matches!(op, "lo" | "ls" | "hi" | "hs");
    if unsigned_only && !matches!(ty, Ty::U16 | Ty::U32 | Ty::U64) {
        return c.no("lo, ls, hi and hs compare unsigned types");
    }
    if matches!(ty, Ty::B16 | Ty::B32 | Ty::B64) && !matches!(op, "eq" | "ne") {
        return c.no("bit types only compare for eq and ne");
    }
    let ftz = if ftz { FTZ } else { 0 };
    Ok((f, accepted | combine << COMBINE | ftz))
}

/// Adds the sources `a, b{, {!}c}`; returns the flag of a negated `c`.
fn sources(c: &mut Form, ty: Ty, imm: u64) -> Decoded<u64> {
    let combines = imm >> COMBINE & 3 != 0;
    c.check(if combines { 4 } else { 3 })?;
    c.src(1, ty)?;
    c.src(2, ty)?;
    if !combines {
        return Ok(0);
    }
    let args = c.args;
    let (slot, negated) = c.slots.src_p(&args[3])?;
    c.s.push((Class::P, slot));
    Ok(if negated { NEGATE_C } else { 0 })
}

/// `setp`.
pub fn setp(c: &mut Form) -> D {
    let ty = c.ty()?;
    let (f, imm) = comparison(c, ty)?;
    let negate = sources(c, ty, imm)?;
    let args = c.args;
    let q = match &args[0] {
        Operand::Pair(p, q) => {
            c.dst_operand(p, Ty::Pred)?;
            c.dst_operand(q, Ty::Pred)?;
            HAS_Q
        }
        p => {
            c.dst_operand(p, Ty::Pred)?;
            0
        }
    };
    c.done(f, imm | negate | q, AluClass::Cmp)
}

/// `set`: the comparison as an all-ones integer or a floating 1.
pub fn set(c: &mut Form) -> D {
    let types = c.types(2)?;
    let (result, ty) = (types[0], types[1]);
    let yes: u32 = match (result, ty) {
        (Ty::U32 | Ty::S32, _) => u32::MAX,
        (Ty::F32, t) if t.bytes() != 2 || matches!(t, Ty::U16 | Ty::S16 | Ty::B16) => 0x3f80_0000,
        (Ty::F16, Ty::F16) => 0x3c00,
        (Ty::BF16, Ty::BF16) => 0x3f80,
        (Ty::U16 | Ty::S16, Ty::F16 | Ty::BF16) => 0xffff,
        _ => return c.no("result type not defined for this source type"),
    };
    let (f, imm) = comparison(c, ty)?;
    let negate = sources(c, ty, imm)?;
    c.dst(0, result)?;
    c.done(f, imm | negate | IS_SET | u64::from(yes) << 32, AluClass::Cmp)
}
