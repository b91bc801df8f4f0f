//! The special function unit: `ex2`, `rcp`, `rsqrt`, `sqrt`, `lg2`, `tanh` and what compilers build on them.
//!
//! # Algorithm
//! The top bits of the 23-bit fraction choose a table row (A, B, D); with x the remaining bits,
//! `t = A + B·x + D·sq(x)`, where `sq` is a truncated squarer: of the partial products of x² only those in
//! columns ≥ T are summed, and the sum is shifted right by T. All of it is integer arithmetic. The tables were
//! recovered from recordings of an H200, and the functions compared with it on all 2^32 inputs
//! (`cargo run --release -p ptx-emu --example mufu_exhaustive` repeats the comparison).
//!
//! # What is not from silicon
//! `sin` and `cos` have no model: they are correctly rounded values of the f64 functions, within the manual's
//! error bound, but not the hardware's bits. Blackwell's unit was not recorded; Hopper's stands in for it.

use super::exact::{self, Value, unpack};
use super::fp::{self, Mode, flush};
use super::half::{Half, map_x2};
use super::mufu_tables::{self as tab, Row};
use super::wide::{Wide, wide};
use super::{Lanes, NAN16, NAN32, Round};

const SIGN: u32 = 0x8000_0000;
const INF: u32 = 0x7f80_0000;

/// The truncated square of a 17-bit x: without the partial products in columns below 19 (xᵢ² stands in column
/// 2i, 2·xᵢ·xⱼ in column i+j+1), shifted right by 19. Its greatest value is 2^15 − 1.
///
/// With x = 2^9·h + l, all of l² is dropped and of h² only h₀²; what is kept of 2·h·l is Σ hⱼ·(l >> (9−j)). Two
/// terms of that sum are one product: 2·m·h₁ + m·h₀, halved, is m·h₁ + (m >> 1)·h₀.
#[inline(always)]
fn square17(x: u32) -> u16 {
    square_of((x >> 9) as u16, (x & 511) as u16)
}

/// The same of the 8 upper and 9 lower bits: 16-bit arithmetic, so that many lanes fit a vector.
#[inline(always)]
fn square_of(h: u16, l: u16) -> u16 {
    let pair = |j: u16| ((h >> j & 3) * (l >> (8 - j))) >> 1;
    ((h * h) >> 1) + pair(1) + pair(3) + pair(5) + (h >> 7) * (l >> 2)
}

/// The same of the 16-bit x of `rcp`, which has 128 segments, with columns below 17 dropped.
#[inline(always)]
fn square16(x: u32) -> u16 {
    square17(x << 1)
}

/// Interpolates at a 23-bit fraction in a table of 64 rows.
#[inline(always)]
fn interpolate(table: &[Row; 64], fraction: u32) -> i64 {
    interpolate_with(table, fraction, square17(fraction & 0x1_ffff))
}

/// The same with the square of the low 17 bits.
#[inline(always)]
fn interpolate_with(table: &[Row; 64], fraction: u32, square: u16) -> i64 {
    let (a, b, d) = table[(fraction >> 17 & 63) as usize];
    let x = fraction & 0x1_ffff;
    a + i64::from(b) * i64::from(x) + i64::from(d) * i64::from(square)
}

struct Parts {
    negative: bool,
    exponent: i32,
    fraction: u32,
}

#[inline(always)]
fn split(u: u32) -> Parts {
    Parts { negative: u >> 31 == 1, exponent: (u >> 23 & 255) as i32, fraction: u & 0x7f_ffff }
}

/// The argument of ex2 in two's complement with 23 fraction bits. The magnitude is truncated to that; a negative
/// one is one's-complemented unless its fraction is zero. Magnitudes of 128 and more become 128, which over- and
/// underflows as they do.
#[inline(always)]
fn ex2_fixed(u: u32) -> i32 {
    let magnitude = (u & !SIGN).min(128f32.to_bits());
    let significand = magnitude << 8 | SIGN;
    let down = 135 - (magnitude >> 23);
    let v = if down < 32 { significand >> down } else { 0 };
    let negative = (u as i32 >> 31) as u32;
    let whole = if v << 9 == 0 { negative } else { 0 };
    (v ^ negative).wrapping_sub(whole) as i32
}

/// Puts the integer part of `v` and the 24-bit significand of ex2 together; `u` is the original argument.
#[inline(always)]
fn ex2_result(u: u32, v: i32, significand: u32) -> u32 {
    let r = (v as u32 & !0x7f_ffff).wrapping_add(127 << 23) | significand & 0x7f_ffff;
    let r = if v < -126 << 23 { 0 } else { r };
    let r = if v >= 128 << 23 { INF } else { r };
    if fp::is_nan(u) { NAN32 } else { r }
}

/// `ex2.approx.ftz.f32`
pub fn ex2_ftz(u: u32) -> u32 {
    let v = ex2_fixed(u);
    ex2_result(u, v, (interpolate(&tab::EX2, v as u32 & 0x7f_ffff) >> 17) as u32)
}

/// The rows of [`tab::EX2`] in two words, all coefficients are multiples of 4; the
/// first word is B/4 with the low 15 bits of A/4 from bit 16, the second D/4 − [`EX2_D`] with the next 23 bits of
/// A/4 from bit 9.
static EX2_ROWS: [[u32; 64]; 2] = {
    let (mut rows, mut i) = ([[0; 64]; 2], 0);
    while i < 64 {
        let (a, b, d) = tab::EX2[i];
        assert!(a % 4 == 0 && b % 4 == 0 && d % 4 == 0);
        let (a, b, d) = (a as u64 / 4, b as u32 / 4, d as u32 / 4 - EX2_D);
        assert!(b < 1 << 16 && d < 1 << 9);
        rows[0][i] = b | (a as u32 & 0x7fff) << 16;
        rows[1][i] = d | ((a >> 15) as u32) << 9;
        i += 1;
    }
    rows
};
/// Less than the least D/4 of ex2.
const EX2_D: u32 = 490;

/// [`ex2_ftz`] on 32 lanes.
pub fn ex2_ftz32(u: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| ex2_ftz_lanes(w, u),
    )
}

/// [`ex2_ftz32`] inside [`wide`], in 32-bit arithmetic: t/4 = A' + B'·x + D'·sq is needed down to bit 15. B'·x does
/// not fit, so x is split into 2·y + x₀, and everything but B'·y, which is an integer then, is halved.
#[inline(always)]
pub(crate) fn ex2_ftz_lanes(w: Wide, u: &Lanes) -> Lanes {
    let (mut v, mut at, mut square, mut d) = ([0i32; 32], [0; 32], [0u16; 32], [0; 32]);
    for i in 0..32 {
        v[i] = ex2_fixed(u[i]);
        at[i] = v[i] as u32 >> 17;
    }
    for i in 0..32 {
        square[i] = square_of((v[i] >> 9) as u16 & 255, v[i] as u16 & 511);
    }
    let rows = [w.lookup(&EX2_ROWS[0], &at), w.lookup(&EX2_ROWS[1], &at)];
    for i in 0..32 {
        let x = v[i] as u32 & 0x1_ffff;
        let (b, a) = (rows[0][i] & 0xffff, rows[0][i] >> 16);
        let (d1, a1) = ((rows[1][i] & 511) + EX2_D, rows[1][i] >> 9);
        let rest = a + b * (x & 1) + d1 * u32::from(square[i]);
        d[i] = ex2_result(u[i], v[i], a1 + ((b * (x >> 1) + (rest >> 1)) >> 14));
    }
    d
}

/// `rcp.approx.ftz.f32`
pub fn rcp_ftz(u: u32) -> u32 {
    rcp_from(u, square16(u & 0xffff))
}

/// [`rcp_ftz`] with the square of the low 16 bits.
#[inline(always)]
fn rcp_from(u: u32, square: u16) -> u32 {
    let Parts { exponent, fraction, .. } = split(u);
    let sign = u & SIGN;
    if exponent == 255 {
        return if fraction != 0 { NAN32 } else { sign };
    }
    if exponent == 0 {
        return sign | INF;
    }
    let (e, significand) = if fraction == 0 {
        (254 - exponent, 0)
    } else {
        let (a, b, d) = tab::RCP[(fraction >> 16) as usize];
        let x = fraction & 0xffff;
        let t = a + i64::from(b) * i64::from(x) + i64::from(d) * i64::from(square);
        (253 - exponent, (t >> 16) as u32 & 0x7f_ffff)
    };
    sign | if e <= 0 { 0 } else { (e as u32) << 23 | significand }
}

/// [`rcp_ftz`] on 32 lanes.
pub fn rcp_ftz32(u: &Lanes) -> Lanes {
    let mut squares = [0; 32];
    wide(
        #[inline(always)]
        |_| (0..32).for_each(|i| squares[i] = square16(u[i] & 0xffff)),
    );
    std::array::from_fn(|i| rcp_from(u[i], squares[i]))
}

/// `rsqrt.approx.ftz.f32`
pub fn rsqrt_ftz(u: u32) -> u32 {
    let Parts { negative, exponent, fraction } = split(u);
    if exponent == 255 {
        return if fraction != 0 || negative { NAN32 } else { 0 };
    }
    if exponent == 0 {
        return u & SIGN | INF;
    }
    if negative {
        return NAN32;
    }
    let even = exponent & 1 == 1; // of the unbiased exponent
    let half = (exponent - 127 - i32::from(!even)) / 2;
    let y = match (even, fraction) {
        (true, 0) => 0x100_0000,
        (true, _) => (interpolate(&tab::RSQRT_EVEN, fraction) >> 17) as u32,
        (false, _) => (interpolate(&tab::RSQRT_ODD, fraction) >> 17) as u32,
    };
    let e = 126 - half + i32::from(y >= 0x100_0000);
    (e as u32) << 23 | y & 0x7f_ffff
}

/// `sqrt.approx.ftz.f32`
pub fn sqrt_ftz(u: u32) -> u32 {
    let Parts { negative, exponent, fraction } = split(u);
    if exponent == 255 {
        return if fraction != 0 || negative { NAN32 } else { INF };
    }
    if exponent == 0 {
        return u & SIGN;
    }
    if negative {
        return NAN32;
    }
    let even = exponent & 1 == 1;
    let half = (exponent - 127 - i32::from(!even)) / 2;
    let table = if even { &tab::SQRT_EVEN } else { &tab::SQRT_ODD };
    let y = (interpolate(table, fraction) >> 17) as u32;
    ((127 + half) as u32) << 23 | y & 0x7f_ffff
}

/// `lg2.approx.ftz.f32`. Powers of two above 1 are exact, those below are not: lg2(0.5) = −0.99999988.
pub fn lg2_ftz(u: u32) -> u32 {
    lg2_from(u, square17(u & 0x1_ffff))
}

/// [`lg2_ftz`] with the square of the low 17 bits.
#[inline(always)]
fn lg2_from(u: u32, square: u16) -> u32 {
    let Parts { negative, exponent, fraction } = split(u);
    if exponent == 255 {
        return if fraction != 0 || negative { NAN32 } else { INF };
    }
    if exponent == 0 {
        return SIGN | INF;
    }
    if negative {
        return NAN32;
    }
    if u == 0x3f80_0000 {
        return 0;
    }
    // The logarithm with 36 fraction bits; a negative one is one's-complemented, then truncated to 24 bits.
    let v = (i64::from(exponent - 127) << 36) + (interpolate_with(&tab::LG2, fraction, square) >> 4);
    let sign = if v < 0 { SIGN } else { 0 };
    let magnitude = (if v < 0 { !v } else { v }) as u64;
    if magnitude == 0 {
        return sign;
    }
    let top = 63 - magnitude.leading_zeros() as i32;
    let significand = if top >= 23 { magnitude >> (top - 23) } else { magnitude << (23 - top) };
    sign | ((top - 36 + 127) as u32) << 23 | significand as u32 & 0x7f_ffff
}

/// [`lg2_ftz`] on 32 lanes.
pub fn lg2_ftz32(u: &Lanes) -> Lanes {
    let mut squares = [0; 32];
    wide(
        #[inline(always)]
        |_| (0..32).for_each(|i| squares[i] = square17(u[i] & 0x1_ffff)),
    );
    std::array::from_fn(|i| lg2_from(u[i], squares[i]))
}

/// `tanh.approx.f32`. Below 2^−8 the argument itself, from 8 on ±1.
pub fn tanh(u: u32) -> u32 {
    let Parts { exponent, fraction, .. } = split(u);
    let sign = u & SIGN;
    match exponent {
        255 if fraction != 0 => return NAN32,
        130..=255 => return sign | 0x3f80_0000,
        0..=118 => return u,
        _ => {}
    }
    let at = (exponent - 119) as usize;
    let log = tab::TANH_SEGMENTS[at];
    let first: u32 = tab::TANH_SEGMENTS[..at].iter().map(|l| 1 << l).sum();
    let (unit, a, b, d) = tab::TANH[(first + (fraction >> (23 - log))) as usize];
    let x = fraction >> (6 - log) & 0x1_ffff;
    let t = (a << 17) + b * i64::from(x) + ((d * i64::from(square17(x))) << 2);
    let top = 63 - t.leading_zeros() as i32;
    sign | ((unit + top - 40) as u32) << 23 | (t >> (top - 23)) as u32 & 0x7f_ffff
}

/// `sin.approx.ftz.f32`: sin of the flushed argument in f64, rounded. Not the hardware's bits (see the module).
pub fn sin_ftz(u: u32) -> u32 {
    trig(u, f64::sin, true)
}

/// `cos.approx.ftz.f32`: cos of the flushed argument in f64, rounded. Not the hardware's bits (see the module).
pub fn cos_ftz(u: u32) -> u32 {
    trig(u, f64::cos, true)
}

/// `sin.approx.f32`, as [`sin_ftz`].
pub fn sin(u: u32) -> u32 {
    trig(u, f64::sin, false)
}

/// `cos.approx.f32`, as [`cos_ftz`].
pub fn cos(u: u32) -> u32 {
    trig(u, f64::cos, false)
}

fn trig(u: u32, f: fn(f64) -> f64, ftz: bool) -> u32 {
    let x = f32::from_bits(if ftz { flush(u) } else { u });
    fp::narrow(f(x.into()), Mode { ftz, ..Mode::RN })
}

/// `rcp.approx.ftz.f64`: the manual's gross approximation, from and to the high 32 bits. Rounded to nearest
/// there; not recorded on silicon.
pub fn rcp_ftz64(u: u64) -> u64 {
    gross64(u, |x| 1.0 / x)
}

/// `rsqrt.approx.ftz.f64`, as [`rcp_ftz64`].
pub fn rsqrt_ftz64(u: u64) -> u64 {
    gross64(u, |x| 1.0 / x.sqrt())
}

fn gross64(u: u64, f: fn(f64) -> f64) -> u64 {
    const HIGH: u64 = !0 << 32;
    let x = if u >> 52 & 0x7ff == 0 { u & 1 << 63 } else { u & HIGH };
    let y = f(f64::from_bits(if f64::from_bits(u).is_nan() { u } else { x }));
    if y.is_nan() {
        return super::NAN64 & HIGH;
    }
    let r = y.to_bits() + if y.is_finite() { 1 << 31 } else { 0 };
    if r >> 52 & 0x7ff == 0 { r & 1 << 63 } else { r & HIGH }
}

// The forms without .ftz are sequences around the flushing unit, as the assembler emits them.

/// Multiplies by a power of two, rounding to nearest.
fn scale(u: u32, log: i32) -> u32 {
    fp::mul(u, ((127 + log) as u32) << 23, Mode::RN)
}

fn below(u: u32, bound: f32) -> bool {
    f32::from_bits(u).abs() < bound
}

/// `ex2.approx.f32`: below −126 the square of ex2(x/2).
pub fn ex2(u: u32) -> u32 {
    if f32::from_bits(u) < -126.0 {
        let r = ex2_ftz(scale(u, -1));
        fp::mul(r, r, Mode::RN)
    } else {
        ex2_ftz(u)
    }
}

/// [`ex2`] on 32 lanes.
pub fn ex2_32(u: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| ex2_lanes(w, u),
    )
}

/// [`ex2_32`] inside [`wide`].
#[inline(always)]
pub(crate) fn ex2_lanes(w: Wide, u: &Lanes) -> Lanes {
    #[inline(always)]
    fn low(u: u32) -> bool {
        f32::from_bits(u) < -126.0
    }
    let mut halved = *u;
    for i in 0..32 {
        halved[i] = if low(u[i]) { (f32::from_bits(u[i]) * 0.5).to_bits() } else { u[i] };
    }
    let mut d = ex2_ftz_lanes(w, &halved);
    for i in 0..32 {
        let r = f32::from_bits(d[i]);
        d[i] = if low(u[i]) { (r * r).to_bits() } else { d[i] };
    }
    d
}

/// `lg2.approx.f32`: subnormals are scaled by 2^24.
pub fn lg2(u: u32) -> u32 {
    if below(u, f32::MIN_POSITIVE) {
        fp::add(lg2_ftz(scale(u, 24)), (-24f32).to_bits(), Mode::RN)
    } else {
        lg2_ftz(u)
    }
}

/// `rsqrt.approx.f32`: subnormals are scaled by 2^24, the result by 2^12.
pub fn rsqrt(u: u32) -> u32 {
    if below(u, f32::MIN_POSITIVE) { scale(rsqrt_ftz(scale(u, 24)), 12) } else { rsqrt_ftz(u) }
}

/// `sqrt.approx.f32`: subnormals are scaled by 2^24, the result by 2^−12.
pub fn sqrt(u: u32) -> u32 {
    if below(u, f32::MIN_POSITIVE) { scale(sqrt_ftz(scale(u, 24)), -12) } else { sqrt_ftz(u) }
}

/// `rcp.approx.f32`: subnormals are scaled by 2^24, magnitudes above 2^126 by 1/4, before and after.
pub fn rcp(u: u32) -> u32 {
    let log = if below(u, f32::MIN_POSITIVE) {
        24
    } else if above_2_126(u) {
        -2
    } else {
        return rcp_ftz(u);
    };
    scale(rcp_ftz(scale(u, log)), log)
}

/// `div.approx.ftz.f32`: a · rcp(b).
pub fn div_approx_ftz(a: u32, b: u32) -> u32 {
    fp::mul(a, rcp_ftz(b), Mode::RN_FTZ)
}

/// `div.approx.f32`: as with `.ftz` but without flushing; both operands are scaled by 2^24 if b is subnormal.
pub fn div_approx(a: u32, b: u32) -> u32 {
    if below(b, f32::MIN_POSITIVE) { quotient_scaled(a, b, 24) } else { quotient_scaled(a, b, 0) }
}

/// `div.full.ftz.f32`: both operands are scaled by 1/4 if |b| > 2^126.
pub fn div_full_ftz(a: u32, b: u32) -> u32 {
    if above_2_126(b) {
        let quarter = |x| fp::mul(x, 0.25f32.to_bits(), Mode::RN_FTZ);
        div_approx_ftz(quarter(a), quarter(b))
    } else {
        div_approx_ftz(a, b)
    }
}

/// `div.full.f32`: scales by 1/4 for large b, by 2^24 for subnormal b.
pub fn div_full(a: u32, b: u32) -> u32 {
    if above_2_126(b) { quotient_scaled(a, b, -2) } else { div_approx(a, b) }
}

fn quotient_scaled(a: u32, b: u32, log: i32) -> u32 {
    fp::mul(scale(a, log), rcp_ftz(scale(b, log)), Mode::RN)
}

fn above_2_126(u: u32) -> bool {
    f32::from_bits(u).abs() > 2f32.powi(126)
}

/// Truncates an f32 to a 16-bit format, as the 16-bit forms of the unit do (NaN becomes 0x7fff).
fn truncate(h: Half, u: u32) -> u16 {
    match unpack(u.into(), exact::F32) {
        Value::Nan => NAN16,
        Value::Inf { neg } => u16::from(neg) << 15 | h.inf(),
        Value::Zero { neg } => u16::from(neg) << 15,
        // Truncation never rounds up to infinity, but the unit's range is wider than f16's.
        Value::Finite(e) if e.top() > h.layout().bias() => u16::from(e.neg) << 15 | h.inf(),
        Value::Finite(e) => e.round(h.layout(), Round::Rz, false) as u16,
    }
}

fn f16_in(x: u16) -> u32 {
    super::cvt::half_to_f32(Half::F16, x)
}

fn bf16_in(x: u16) -> u32 {
    u32::from(x) << 16
}

/// `ex2.approx.f16`
pub fn ex2_f16(x: u16) -> u16 {
    truncate(Half::F16, ex2_ftz(f16_in(x)))
}

/// `ex2.approx.ftz.bf16`
pub fn ex2_bf16(x: u16) -> u16 {
    truncate(Half::Bf16, ex2_ftz(bf16_in(x)))
}

/// `tanh.approx.f16`
pub fn tanh_f16(x: u16) -> u16 {
    truncate(Half::F16, tanh(f16_in(x)))
}

/// `tanh.approx.bf16`
pub fn tanh_bf16(x: u16) -> u16 {
    truncate(Half::Bf16, tanh(bf16_in(x)))
}

/// `ex2.approx.f16x2`
pub fn ex2_f16x2(x: u32) -> u32 {
    map_x2([x], |[v]| ex2_f16(v))
}

/// `ex2.approx.ftz.bf16x2`
pub fn ex2_bf16x2(x: u32) -> u32 {
    map_x2([x], |[v]| ex2_bf16(v))
}

/// `tanh.approx.f16x2`
pub fn tanh_f16x2(x: u32) -> u32 {
    map_x2([x], |[v]| tanh_f16(v))
}

/// `tanh.approx.bf16x2`
pub fn tanh_bf16x2(x: u32) -> u32 {
    map_x2([x], |[v]| tanh_bf16(v))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`square17`] and [`square16`] by the definition: partial products column by column.
    #[test]
    fn squares_are_sums_of_partial_products() {
        let square = |x: u32, bits: u32, least: u32| {
            let bit = |i: u32| u64::from(x >> i & 1);
            let mut sum = 0;
            for i in 0..bits {
                sum += if 2 * i >= least { bit(i) << (2 * i) } else { 0 };
                for j in i + 1..bits {
                    sum += if i + j + 1 >= least { (bit(i) * bit(j)) << (i + j + 1) } else { 0 };
                }
            }
            sum >> least
        };
        for x in 0..1 << 17 {
            assert_eq!(u64::from(square17(x)), square(x, 17, 19), "{x}");
        }
        for x in 0..1 << 16 {
            assert_eq!(u64::from(square16(x)), square(x, 16, 17), "{x}");
        }
    }

    /// The vector form of ex2 on every fraction, with integer parts on both sides of the limits.
    #[test]
    fn ex2_is_the_same_in_32_bits() {
        for base in (0..1 << 23).step_by(32) {
            for whole in [0.0f32, 1.0, -1.0, 127.0, -126.0, 130.0] {
                let u: Lanes = std::array::from_fn(|l| {
                    (whole + (base + l as u32) as f32 / 8_388_608.0).to_bits() ^ (base >> 5 & 1) << 31
                });
                assert_eq!(ex2_ftz32(&u), u.map(ex2_ftz));
            }
        }
    }
}
