//! Warp forms of the hot f32 instructions: the 32 lanes of a warp at once, bit for bit the scalar functions of
//! [`super::fp`].
//!
//! Rare cases (a flushed result that rounded up to the smallest normal, an overflowed
//! directed sum) are redone by the scalar function.

use super::exact::add_odd;
use super::fp::{self, MinMax, Mode, flush};
use super::wide::{Wide, wide};
use super::{Lanes, NAN32, Round};

#[inline(always)]
fn ftz<const FTZ: bool>(x: u32) -> u32 {
    if FTZ { flush(x) } else { x }
}

#[inline(always)]
fn canonical(x: u32) -> u32 {
    if fp::is_nan(x) { NAN32 } else { x }
}

#[inline(always)]
fn map2<const FTZ: bool>(a: &Lanes, b: &Lanes, f: impl Fn(f32, f32) -> f32) -> Lanes {
    let mut d = [0; 32];
    for i in 0..32 {
        let (x, y) = (f32::from_bits(ftz::<FTZ>(a[i])), f32::from_bits(ftz::<FTZ>(b[i])));
        d[i] = canonical(ftz::<FTZ>(f(x, y).to_bits()));
    }
    d
}

/// `add.rn{.ftz}.f32`. A sum in the subnormal range is exact, so flushing it is all `.ftz` has to do.
#[inline(always)]
pub fn add_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| add_rn::<FTZ>(w, a, b),
    )
}

/// [`add_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn add_rn<const FTZ: bool>(_: Wide, a: &Lanes, b: &Lanes) -> Lanes {
    map2::<FTZ>(
        a,
        b,
        #[inline(always)]
        |x, y| x + y,
    )
}

/// `sub.rn{.ftz}.f32`
#[inline(always)]
pub fn sub_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| sub_rn::<FTZ>(w, a, b),
    )
}

/// [`sub_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn sub_rn<const FTZ: bool>(_: Wide, a: &Lanes, b: &Lanes) -> Lanes {
    map2::<FTZ>(
        a,
        b,
        #[inline(always)]
        |x, y| x - y,
    )
}

/// With `.ftz`: whether some rounded result has the magnitude of the smallest normal, where plain rounding may
/// differ from rounding with an unbounded exponent.
#[inline(always)]
fn doubtful<const FTZ: bool>(d: &Lanes) -> bool {
    let mut any = 0;
    for i in 0..32 {
        any |= u32::from(d[i] & 0x7fff_ffff == 0x0080_0000);
    }
    FTZ && any != 0
}

/// `mul.rn{.ftz}.f32`
#[inline(always)]
pub fn mul_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| mul_rn::<FTZ>(w, a, b),
    )
}

/// [`mul_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn mul_rn<const FTZ: bool>(_: Wide, a: &Lanes, b: &Lanes) -> Lanes {
    let d = map2::<FTZ>(
        a,
        b,
        #[inline(always)]
        |x, y| x * y,
    );
    if doubtful::<FTZ>(&d) { scalar_mul_ftz(a, b) } else { d }
}

#[cold]
#[inline(never)]
fn scalar_mul_ftz(a: &Lanes, b: &Lanes) -> Lanes {
    std::array::from_fn(|i| fp::mul(a[i], b[i], Mode::RN_FTZ))
}

/// `fma.rn{.ftz}.f32`
#[inline(always)]
pub fn fma_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| fma_rn::<FTZ>(w, a, b, c),
    )
}

/// [`fma_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn fma_rn<const FTZ: bool>(w: Wide, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let d = fma_lanes::<FTZ>(a, b, c, w.fused);
    if doubtful::<FTZ>(&d) { scalar_fma_ftz(a, b, c) } else { d }
}

#[cold]
#[inline(never)]
fn scalar_fma_ftz(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    std::array::from_fn(|i| fp::fma(a[i], b[i], c[i], Mode::RN_FTZ))
}

/// Without a fused instruction the product, exact in f64, is added with rounding to odd.
#[inline(always)]
fn fma_lanes<const FTZ: bool>(a: &Lanes, b: &Lanes, c: &Lanes, fused: bool) -> Lanes {
    let mut d = [0; 32];
    for i in 0..32 {
        let x = f32::from_bits(ftz::<FTZ>(a[i]));
        let y = f32::from_bits(ftz::<FTZ>(b[i]));
        let z = f32::from_bits(ftz::<FTZ>(c[i]));
        let r =
            if fused { x.mul_add(y, z) } else { add_odd(f64::from(x) * f64::from(y), f64::from(z)) as f32 };
        d[i] = canonical(ftz::<FTZ>(r.to_bits()));
    }
    d
}

/// A directed sum from the nearest one: its exact error (two-sum) says on which side of the sum it lies.
/// Returns the lanes and whether one overflowed or was not a number, which leaves it to the scalar function.
#[inline(always)]
fn directed_sum(a: &Lanes, b: &Lanes, m: Mode, negate: u32) -> (Lanes, bool) {
    let mut d = [0; 32];
    let mut odd = false;
    for i in 0..32 {
        let (x, y) = if m.ftz { (flush(a[i]), flush(b[i] ^ negate)) } else { (a[i], b[i] ^ negate) };
        let (x, y) = (f32::from_bits(x), f32::from_bits(y));
        let s = x + y;
        let t = s - x;
        let err = (x - (s - t)) + (y - t);
        let bits = s.to_bits();
        let neg = bits >> 31;
        // Magnitude steps: the nearest sum lies beyond (−1) or short of (+1) what the direction asks for.
        let (high, low) = (u32::from(err < 0.0), u32::from(err > 0.0));
        let (beyond, short) = if neg == 1 { (low, high) } else { (high, low) };
        let r = match m.round {
            Round::Rn => bits,
            Round::Rz => bits.wrapping_sub(beyond),
            Round::Rm => bits.wrapping_add(if neg == 1 { short } else { 0 }).wrapping_sub(if neg == 1 {
                0
            } else {
                beyond
            }),
            Round::Rp => bits.wrapping_add(if neg == 1 { 0 } else { short }).wrapping_sub(if neg == 1 {
                beyond
            } else {
                0
            }),
        };
        let minus_zero = m.round == Round::Rm && s == 0.0 && (x.to_bits() ^ y.to_bits()) >> 31 == 1;
        let r = if minus_zero { 0x8000_0000 } else { r };
        odd |= bits & 0x7f80_0000 == 0x7f80_0000;
        d[i] = if m.ftz { flush(r) } else { r };
    }
    (d, odd)
}

fn sum32(a: &Lanes, b: &Lanes, m: Mode, negate: u32) -> Lanes {
    let slow = |a: &Lanes, b: &Lanes| {
        let mut d = [0; 32];
        for i in 0..32 {
            d[i] = fp::add(a[i], b[i] ^ negate, m);
        }
        d
    };
    if m.sat {
        return slow(a, b);
    }
    // One copy of the loop per direction, so that nothing in it depends on the direction.
    macro_rules! fixed {
        ($($r:ident)*) => {
            match (m.round, m.ftz) {
                $((Round::$r, true) => wide(#[inline(always)] |_| directed_sum(a, b, Mode { round: Round::$r, ftz: true, sat: false }, negate)),
                (Round::$r, false) => wide(#[inline(always)] |_| directed_sum(a, b, Mode { round: Round::$r, ftz: false, sat: false }, negate)),)*
            }
        };
    }
    let (d, odd) = fixed!(Rn Rz Rm Rp);
    if odd { slow(a, b) } else { d }
}

/// `add{.rnd}{.ftz}{.sat}.f32` in any mode.
pub fn add32(a: &Lanes, b: &Lanes, m: Mode) -> Lanes {
    match m {
        Mode::RN => add_rn32::<false>(a, b),
        Mode::RN_FTZ => add_rn32::<true>(a, b),
        _ => sum32(a, b, m, 0),
    }
}

/// `sub{.rnd}{.ftz}{.sat}.f32` in any mode.
pub fn sub32(a: &Lanes, b: &Lanes, m: Mode) -> Lanes {
    match m {
        Mode::RN => sub_rn32::<false>(a, b),
        Mode::RN_FTZ => sub_rn32::<true>(a, b),
        _ => sum32(a, b, m, 0x8000_0000),
    }
}

/// `mul{.rnd}{.ftz}{.sat}.f32` in any mode.
pub fn mul32(a: &Lanes, b: &Lanes, m: Mode) -> Lanes {
    match m {
        Mode::RN => mul_rn32::<false>(a, b),
        Mode::RN_FTZ => mul_rn32::<true>(a, b),
        _ => wide(
            #[inline(always)]
            |_| {
                let mut d = [0; 32];
                for i in 0..32 {
                    d[i] = fp::mul(a[i], b[i], m);
                }
                d
            },
        ),
    }
}

/// `fma.rnd{.ftz}{.sat}.f32` in any mode.
pub fn fma32(a: &Lanes, b: &Lanes, c: &Lanes, m: Mode) -> Lanes {
    match m {
        Mode::RN => fma_rn32::<false>(a, b, c),
        Mode::RN_FTZ => fma_rn32::<true>(a, b, c),
        _ => wide(
            #[inline(always)]
            |_| {
                let mut d = [0; 32];
                for i in 0..32 {
                    d[i] = fp::fma(a[i], b[i], c[i], m);
                }
                d
            },
        ),
    }
}

/// `min.f32`
pub fn min32(a: &Lanes, b: &Lanes, q: MinMax) -> Lanes {
    pick32::<false>(a, b, q)
}

/// `max.f32`
pub fn max32(a: &Lanes, b: &Lanes, q: MinMax) -> Lanes {
    pick32::<true>(a, b, q)
}

/// `min.f32` or `max.f32` inside [`wide`]. With a constant `q` the loop has no branch.
#[inline(always)]
pub(crate) fn pick<const MAX: bool>(_: Wide, a: &Lanes, b: &Lanes, q: MinMax) -> Lanes {
    let mut d = [0; 32];
    for i in 0..32 {
        d[i] = fp::pick::<MAX>(a[i], b[i], q);
    }
    d
}

fn pick32<const MAX: bool>(a: &Lanes, b: &Lanes, q: MinMax) -> Lanes {
    wide(
        #[inline(always)]
        |w| pick::<MAX>(w, a, b, q),
    )
}

/// `cvt.rn.bf16x2.f32 d, hi, lo`: nearest even; NaN becomes 0x7fff.
pub fn bf16x2_rn32(hi: &Lanes, lo: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| bf16x2_rn(w, hi, lo),
    )
}

/// [`bf16x2_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn bf16x2_rn(_: Wide, hi: &Lanes, lo: &Lanes) -> Lanes {
    #[inline(always)]
    fn one(x: u32) -> u32 {
        let r = (x.wrapping_add(0x7fff + (x >> 16 & 1))) >> 16;
        if fp::is_nan(x) { 0x7fff } else { r }
    }
    let mut d = [0; 32];
    for i in 0..32 {
        d[i] = one(hi[i]) << 16 | one(lo[i]);
    }
    d
}

/// One f32 to f16, nearest even; NaN becomes 0x7fff.
#[inline(always)]
pub(crate) fn f16_rn(x: u32) -> u32 {
    let (sign, mag) = (x >> 16 & 0x8000, x & 0x7fff_ffff);
    // Normal results: round the fraction in place and rebias. Subnormal ones: let an addition whose last
    // bit is 2^-24 do the rounding.
    let normal = (mag.wrapping_add(0xfff + (mag >> 13 & 1))).wrapping_sub(112 << 23) >> 13;
    let tiny = (f32::from_bits(mag) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let r = if mag < 113 << 23 { tiny } else { normal };
    let r = if mag >= 0x4780_0000 { 0x7c00 } else { r };
    let r = r.min(0x7c00);
    if mag > 0x7f80_0000 { 0x7fff } else { sign | r }
}

/// `cvt.rn.f16x2.f32 d, hi, lo`: nearest even; NaN becomes 0x7fff.
pub fn f16x2_rn32(hi: &Lanes, lo: &Lanes) -> Lanes {
    wide(
        #[inline(always)]
        |w| f16x2_rn(w, hi, lo),
    )
}

/// [`f16x2_rn32`] inside [`wide`].
#[inline(always)]
pub(crate) fn f16x2_rn(_: Wide, hi: &Lanes, lo: &Lanes) -> Lanes {
    let mut d = [0; 32];
    for i in 0..32 {
        d[i] = f16_rn(hi[i]) << 16 | f16_rn(lo[i]);
    }
    d
}

#[cfg(test)]
mod tests {
    use super::super::wide::tests::every_width;
    use super::super::{cvt, half::Half, mufu};
    use super::*;

    /// Lanes around every rounding boundary: anything, few-bit factors, tiny factors, subnormals.
    fn lanes(state: &mut u64, kind: u32) -> Lanes {
        std::array::from_fn(|_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = (*state >> 32) as u32;
            match kind % 4 {
                0 => x,
                1 => x & 0x80ff_ffff | 0x3f00_0000,
                2 => x & 0x81ff_0000 | 0x1f00_0000,
                _ => x & 0x807f_ffff,
            }
        })
    }

    /// Every vectorised form, compiled for every kind of vectors, against the scalar function.
    #[test]
    fn warp_forms_are_the_scalar_ones() {
        let mut state = 7;
        for round in 0..2000 {
            let (a, b) = (lanes(&mut state, round), lanes(&mut state, round));
            let mut c = lanes(&mut state, round);
            if round % 8 == 1 {
                // Addends that half-cancel the product.
                c = mul_rn32::<false>(&a, &b).map(|x| x ^ 0x8000_0000);
            }
            let each =
                |f: &dyn Fn(u32, u32, u32) -> u32| -> Lanes { std::array::from_fn(|l| f(a[l], b[l], c[l])) };
            let same = |name: &str, got: Vec<Lanes>, f: &dyn Fn(u32, u32, u32) -> u32| {
                let want = each(f);
                got.iter().for_each(|got| assert_eq!(*got, want, "{name}, round {round}"));
            };
            macro_rules! same {
                ($f:expr, |$w:ident| $got:expr) => {
                    same(
                        stringify!($got),
                        every_width(
                            #[inline(always)]
                            |$w| $got,
                        ),
                        &$f,
                    )
                };
            }
            let (rn, ftz) = (Mode::RN, Mode::RN_FTZ);
            same!(|x, y, _| fp::add(x, y, rn), |w| add_rn::<false>(w, &a, &b));
            same!(|x, y, _| fp::add(x, y, ftz), |w| add_rn::<true>(w, &a, &b));
            same!(|x, y, _| fp::sub(x, y, rn), |w| sub_rn::<false>(w, &a, &b));
            same!(|x, y, _| fp::sub(x, y, ftz), |w| sub_rn::<true>(w, &a, &b));
            same!(|x, y, _| fp::mul(x, y, rn), |w| mul_rn::<false>(w, &a, &b));
            same!(|x, y, _| fp::mul(x, y, ftz), |w| mul_rn::<true>(w, &a, &b));
            same!(|x, y, z| fp::fma(x, y, z, rn), |w| fma_rn::<false>(w, &a, &b, &c));
            same!(|x, y, z| fp::fma(x, y, z, ftz), |w| fma_rn::<true>(w, &a, &b, &c));
            let q = MinMax { ftz: round % 2 == 0, nan: round % 3 == 0, ..MinMax::default() };
            same!(|x, y, _| fp::min(x, y, q), |w| pick::<false>(w, &a, &b, q));
            same!(|x, y, _| fp::max(x, y, q), |w| pick::<true>(w, &a, &b, q));
            let pair =
                |h: Half| move |hi, lo, _| cvt::f32x2_to_half_x2(h, hi, lo, Round::Rn, cvt::Fit::default());
            same!(pair(Half::Bf16), |w| bf16x2_rn(w, &a, &b));
            same!(pair(Half::F16), |w| f16x2_rn(w, &a, &b));
            same!(|x, _, _| mufu::ex2_ftz(x), |w| mufu::ex2_ftz_lanes(w, &a));
            same!(|x, _, _| mufu::ex2(x), |w| mufu::ex2_lanes(w, &a));
            same!(|x, _, _| mufu::rcp_ftz(x), |_w| mufu::rcp_ftz32(&a));
            same!(|x, _, _| mufu::lg2_ftz(x), |_w| mufu::lg2_ftz32(&a));
        }
    }
}
