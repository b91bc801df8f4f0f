//! IEEE f32 and f64 arithmetic with PTX's qualifiers, one value at a time. [`super::lanes`] has the warp forms.

use super::exact::{self, Exact, Value, add_odd, away, unpack};
pub use super::lanes::{add_rn32, add32, fma_rn32, fma32, max32, min32, mul_rn32, mul32, sub_rn32, sub32};
use super::{NAN32, NAN64, Round};

/// Qualifiers of an f32 arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Mode {
    /// Rounding of the result.
    pub round: Round,
    /// `.ftz`: subnormal inputs and results become zeros of the same sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes +0.
    pub sat: bool,
}

impl Mode {
    /// `.rn`
    pub const RN: Mode = Mode { round: Round::Rn, ftz: false, sat: false };
    /// `.rn.ftz`
    pub const RN_FTZ: Mode = Mode { round: Round::Rn, ftz: true, sat: false };
}

/// Qualifiers of `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MinMax {
    /// `.NaN`: a NaN operand makes the result NaN (else it is ignored).
    pub nan: bool,
    /// `.ftz`
    pub ftz: bool,
    /// `.xorsign.abs`: compares magnitudes; the result's sign is the xor of the operands' signs.
    pub xorsign_abs: bool,
    /// `.abs` alone (three-input forms): compares and returns magnitudes.
    pub abs: bool,
}

const SIGN: u32 = 0x8000_0000;
const INF: u32 = 0x7f80_0000;
/// Smallest normal f32 as f64.
const MIN_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// Flushes a subnormal to a zero of its sign.
#[inline(always)]
pub fn flush(x: u32) -> u32 {
    if x & INF == 0 { x & SIGN } else { x }
}

/// Whether the bits are a NaN.
#[inline(always)]
pub fn is_nan(x: u32) -> bool {
    x & 0x7fff_ffff > INF
}

#[inline(always)]
fn input(x: u32, m: Mode) -> f64 {
    f32::from_bits(if m.ftz { flush(x) } else { x }).into()
}

/// Clamps to [0, 1]; NaN and everything negative become +0.
#[inline(always)]
fn saturate(x: u32) -> u32 {
    if is_nan(x) || x & SIGN != 0 { 0 } else { x.min(0x3f80_0000) }
}

/// Rounds an exact, or rounded-to-odd, f64 to f32.
#[inline(always)]
pub(crate) fn narrow(x: f64, m: Mode) -> u32 {
    let bits = if x.is_nan() {
        NAN32
    } else {
        let near = x as f32;
        let back = f64::from(near);
        let b = near.to_bits();
        let neg = x.is_sign_negative();
        // Distance of the wanted neighbour from the nearest one, in steps of magnitude.
        let step = match m.round {
            Round::Rn => 0,
            r => {
                let (over, under) = (back.abs() > x.abs(), back.abs() < x.abs());
                if away(r, neg) { i32::from(under) } else { -i32::from(over) }
            }
        };
        let b = b.wrapping_add_signed(step);
        if m.ftz && x.abs() < MIN_NORMAL {
            // Tininess is judged after rounding to 24 bits with an unbounded exponent.
            let survives = match m.round {
                Round::Rn => x.abs() >= MIN_NORMAL * (1.0 - 1.0 / 33_554_432.0),
                r => away(r, neg) && x.abs() > MIN_NORMAL * (1.0 - 1.0 / 16_777_216.0),
            };
            b & SIGN | if survives { 0x0080_0000 } else { 0 }
        } else {
            b
        }
    };
    if m.sat { saturate(bits) } else { bits }
}

/// p + c, with the sign PTX (IEEE) gives an exact zero: minus when rounding down, unless both are +0.
#[inline(always)]
fn sum(p: f64, c: f64, m: Mode) -> u32 {
    let s = add_odd(p, c);
    let zero = s == 0.0 && m.round == Round::Rm && p.is_sign_negative() != c.is_sign_negative();
    narrow(if zero { -0.0 } else { s }, m)
}

/// `add{.rnd}{.ftz}{.sat}.f32`
#[inline(always)]
pub fn add(a: u32, b: u32, m: Mode) -> u32 {
    sum(input(a, m), input(b, m), m)
}

/// `sub{.rnd}{.ftz}{.sat}.f32`
#[inline(always)]
pub fn sub(a: u32, b: u32, m: Mode) -> u32 {
    sum(input(a, m), -input(b, m), m)
}

/// `mul{.rnd}{.ftz}{.sat}.f32`
#[inline(always)]
pub fn mul(a: u32, b: u32, m: Mode) -> u32 {
    narrow(input(a, m) * input(b, m), m)
}

/// `fma.rnd{.ftz}{.sat}.f32`: one rounding of a·b + c.
#[inline(always)]
pub fn fma(a: u32, b: u32, c: u32, m: Mode) -> u32 {
    sum(input(a, m) * input(b, m), input(c, m), m)
}

fn finish32(bits: u64, m: Mode) -> u32 {
    if m.sat { saturate(bits as u32) } else { bits as u32 }
}

/// `div.rnd{.ftz}.f32`
pub fn div(a: u32, b: u32, m: Mode) -> u32 {
    let (a, b) = if m.ftz { (flush(a), flush(b)) } else { (a, b) };
    finish32(quotient(a.into(), b.into(), exact::F32, m.round, m.ftz, NAN32.into()), m)
}

/// `rcp.rnd{.ftz}.f32`
pub fn rcp(a: u32, m: Mode) -> u32 {
    div(1f32.to_bits(), a, m)
}

/// `sqrt.rnd{.ftz}.f32`
pub fn sqrt(a: u32, m: Mode) -> u32 {
    let a = if m.ftz { flush(a) } else { a };
    finish32(root(a.into(), exact::F32, m.round, m.ftz, NAN32.into()), m)
}

/// `neg{.ftz}.f32` (NaN operands become the canonical NaN).
pub fn neg(a: u32, ftz: bool) -> u32 {
    if is_nan(a) { NAN32 } else { (if ftz { flush(a) } else { a }) ^ SIGN }
}

/// `abs{.ftz}.f32` (NaN operands become the canonical NaN).
pub fn abs(a: u32, ftz: bool) -> u32 {
    if is_nan(a) { NAN32 } else { (if ftz { flush(a) } else { a }) & !SIGN }
}

/// `min{.ftz}{.NaN}{.xorsign.abs}.f32`; −0 is below +0.
#[inline(always)]
pub fn min(a: u32, b: u32, q: MinMax) -> u32 {
    pick::<false>(a, b, q)
}

/// `max{.ftz}{.NaN}{.xorsign.abs}.f32`; +0 is above −0.
#[inline(always)]
pub fn max(a: u32, b: u32, q: MinMax) -> u32 {
    pick::<true>(a, b, q)
}

/// Three-input `min.f32`.
#[inline(always)]
pub fn min3(a: u32, b: u32, c: u32, q: MinMax) -> u32 {
    min(min(a, b, q), c, q)
}

/// Three-input `max.f32`.
#[inline(always)]
pub fn max3(a: u32, b: u32, c: u32, q: MinMax) -> u32 {
    max(max(a, b, q), c, q)
}

/// A total order of the non-NaN values as signed integers.
#[inline(always)]
fn key(x: u32) -> i32 {
    (x ^ ((x as i32 >> 31) as u32 >> 1)) as i32
}

#[inline(always)]
pub(crate) fn pick<const MAX: bool>(a: u32, b: u32, q: MinMax) -> u32 {
    let (a, b) = if q.ftz { (flush(a), flush(b)) } else { (a, b) };
    let mags = q.xorsign_abs || q.abs;
    let (x, y) = if mags { (a & !SIGN, b & !SIGN) } else { (a, b) };
    let (nx, ny) = (is_nan(a), is_nan(b));
    let first = if MAX { key(x) >= key(y) } else { key(x) <= key(y) };
    let r = if ny || (!nx && first) { x } else { y };
    let r = if q.xorsign_abs { r | (a ^ b) & SIGN } else { r };
    if nx && ny || q.nan && (nx || ny) { NAN32 } else { r }
}

/// a / b in any format.
fn quotient(a: u64, b: u64, l: exact::Layout, r: Round, ftz: bool, nan: u64) -> u64 {
    let sign = (a ^ b) & l.sign();
    match (unpack(a, l), unpack(b, l)) {
        (Value::Nan, _) | (_, Value::Nan) => nan,
        (Value::Inf { .. }, Value::Inf { .. }) | (Value::Zero { .. }, Value::Zero { .. }) => nan,
        (Value::Inf { .. }, _) | (_, Value::Zero { .. }) => sign | l.inf(),
        (Value::Zero { .. }, _) | (_, Value::Inf { .. }) => sign,
        (Value::Finite(x), Value::Finite(y)) => {
            // 127 bits over at most 53: at least 74 quotient bits, enough for every format.
            let up = x.sig.leading_zeros() as i32 - 1;
            let n = x.sig << up;
            let e = x.exp - up - y.exp;
            Exact { neg: sign != 0, sig: n / y.sig, exp: e, sticky: !n.is_multiple_of(y.sig) }
                .round(l, r, ftz)
        }
    }
}

/// The square root in any format.
fn root(a: u64, l: exact::Layout, r: Round, ftz: bool, nan: u64) -> u64 {
    match unpack(a, l) {
        Value::Nan | Value::Inf { neg: true } => nan,
        Value::Inf { neg: false } | Value::Zero { .. } => a,
        Value::Finite(x) if x.neg => nan,
        Value::Finite(x) => {
            let mut up = x.sig.leading_zeros() as i32 - 1;
            if (x.exp - up) & 1 != 0 {
                up -= 1;
            }
            let n = x.sig << up;
            let s = n.isqrt();
            Exact { neg: false, sig: s, exp: (x.exp - up) / 2, sticky: s * s != n }.round(l, r, ftz)
        }
    }
}

/// `add{.rnd}.f64`
pub fn add64(a: u64, b: u64, r: Round) -> u64 {
    fma64(a, 1f64.to_bits(), b, r)
}

/// `sub{.rnd}.f64`
pub fn sub64(a: u64, b: u64, r: Round) -> u64 {
    add64(a, b ^ 1 << 63, r)
}

/// `mul{.rnd}.f64`
pub fn mul64(a: u64, b: u64, r: Round) -> u64 {
    match product(unpack(a, exact::F64), unpack(b, exact::F64)) {
        Value::Nan => NAN64,
        Value::Inf { neg } => u64::from(neg) << 63 | exact::F64.inf(),
        Value::Zero { neg } => u64::from(neg) << 63,
        Value::Finite(p) => p.round(exact::F64, r, false),
    }
}

fn product(a: Value, b: Value) -> Value {
    use Value::{Finite, Inf, Nan, Zero};
    match (a, b) {
        (Nan, _) | (_, Nan) | (Inf { .. }, Zero { .. }) | (Zero { .. }, Inf { .. }) => Nan,
        (Inf { neg: x } | Zero { neg: x }, Inf { neg: y } | Zero { neg: y }) => {
            if matches!(a, Inf { .. }) {
                Inf { neg: x ^ y }
            } else {
                Zero { neg: x ^ y }
            }
        }
        (Inf { neg }, Finite(f)) | (Finite(f), Inf { neg }) => Inf { neg: neg ^ f.neg },
        (Zero { neg }, Finite(f)) | (Finite(f), Zero { neg }) => Zero { neg: neg ^ f.neg },
        (Finite(x), Finite(y)) => {
            Finite(Exact { neg: x.neg ^ y.neg, sig: x.sig * y.sig, exp: x.exp + y.exp, sticky: false })
        }
    }
}

/// `fma.rnd.f64`: one rounding of a·b + c.
pub fn fma64(a: u64, b: u64, c: u64, r: Round) -> u64 {
    use Value::{Finite, Inf, Nan, Zero};
    let f = exact::F64;
    let bits = |neg: bool, mag: u64| u64::from(neg) << 63 | mag;
    let zero_sum = r == Round::Rm;
    match (product(unpack(a, f), unpack(b, f)), unpack(c, f)) {
        (Nan, _) | (_, Nan) => NAN64,
        (Inf { neg: x }, Inf { neg: y }) if x != y => NAN64,
        (Inf { neg }, _) | (_, Inf { neg }) => bits(neg, f.inf()),
        (Zero { neg: x }, Zero { neg: y }) => bits(if x == y { x } else { zero_sum }, 0),
        (Zero { .. }, Finite(v)) | (Finite(v), Zero { .. }) => v.round(f, r, false),
        (Finite(p), Finite(c)) => match add_exact(p, c) {
            Some(s) => s.round(f, r, false),
            None => bits(zero_sum, 0),
        },
    }
}

/// Sum of two exact values of at most 106 bits; None if they cancel. Bits more than about 126 places below the
/// leading one are folded into `sticky`, which is enough for any rounding to 53 bits.
fn add_exact(a: Exact, b: Exact) -> Option<Exact> {
    let lift = |v: Exact| {
        let up = v.sig.leading_zeros() as i32 - 2;
        Exact { sig: v.sig << up, exp: v.exp - up, ..v }
    };
    let (a, b) = (lift(a), lift(b));
    let (hi, lo) = if (a.exp, a.sig) >= (b.exp, b.sig) { (a, b) } else { (b, a) };
    let sh = hi.exp - lo.exp;
    let (part, sticky) = if sh > 127 { (0, true) } else { (lo.sig >> sh, lo.sig & ((1u128 << sh) - 1) != 0) };
    let sig = if hi.neg == lo.neg { hi.sig + part } else { hi.sig - part - u128::from(sticky) };
    (sig != 0 || sticky).then_some(Exact { neg: hi.neg, sig, exp: hi.exp, sticky })
}

/// `neg.f64`
pub fn neg64(a: u64) -> u64 {
    a ^ 1 << 63
}

/// `abs.f64`
pub fn abs64(a: u64) -> u64 {
    a & !(1 << 63)
}

/// `div.rnd.f64`
pub fn div64(a: u64, b: u64, r: Round) -> u64 {
    quotient(a, b, exact::F64, r, false, NAN64)
}

/// `rcp.rnd.f64`
pub fn rcp64(a: u64, r: Round) -> u64 {
    div64(1f64.to_bits(), a, r)
}

/// `sqrt.rnd.f64`
pub fn sqrt64(a: u64, r: Round) -> u64 {
    root(a, exact::F64, r, false, NAN64)
}

/// `min.f64`
pub fn min64(a: u64, b: u64) -> u64 {
    pick64(a, b, false)
}

/// `max.f64`
pub fn max64(a: u64, b: u64) -> u64 {
    pick64(a, b, true)
}

fn pick64(a: u64, b: u64, max: bool) -> u64 {
    let nan = |x: u64| x & (u64::MAX >> 1) > exact::F64.inf();
    let key = |x: u64| (x ^ ((x as i64 >> 63) as u64 >> 1)) as i64;
    match (nan(a), nan(b)) {
        (true, true) => NAN64,
        (true, false) => b,
        (false, true) => a,
        _ if (key(a) >= key(b)) == max => a,
        _ => b,
    }
}
