//! Exact values and their single rounding into a binary format: the core of everything that is not a fast path.

use super::Round;

/// An IEEE-like binary format: sign, `exp` exponent bits with bias 2^(exp−1)−1, `man` fraction bits; the top
/// exponent means infinity and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub exp: u32,
    pub man: u32,
}

pub(crate) const F16: Layout = Layout { exp: 5, man: 10 };
pub(crate) const BF16: Layout = Layout { exp: 8, man: 7 };
pub(crate) const F32: Layout = Layout { exp: 8, man: 23 };
pub(crate) const F64: Layout = Layout { exp: 11, man: 52 };

impl Layout {
    pub const fn bias(self) -> i32 {
        (1 << (self.exp - 1)) - 1
    }
    /// Bits of +infinity; one less is the largest finite value.
    pub const fn inf(self) -> u64 {
        ((1 << self.exp) - 1) << self.man
    }
    pub const fn sign(self) -> u64 {
        1 << (self.exp + self.man)
    }
}

/// What a bit pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Nan,
    Inf { neg: bool },
    Zero { neg: bool },
    Finite(Exact),
}

/// A finite non-zero value (−1)^neg · (sig + δ) · 2^exp, where δ = 0, or 0 < δ < 1 if `sticky`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exact {
    pub neg: bool,
    pub sig: u128,
    pub exp: i32,
    pub sticky: bool,
}

/// Takes a bit pattern apart.
pub(crate) fn unpack(bits: u64, l: Layout) -> Value {
    let neg = bits & l.sign() != 0;
    let mag = bits & (l.sign() - 1);
    if mag > l.inf() {
        return Value::Nan;
    }
    if mag == l.inf() {
        return Value::Inf { neg };
    }
    if mag == 0 {
        return Value::Zero { neg };
    }
    let (e, m) = ((mag >> l.man) as i32, mag & ((1 << l.man) - 1));
    let (sig, e) = if e == 0 { (m, 1) } else { (m | 1 << l.man, e) };
    Value::Finite(Exact { neg, sig: sig.into(), exp: e - l.bias() - l.man as i32, sticky: false })
}

/// Whether rounding in direction `r` takes a value of this sign away from zero.
pub(crate) fn away(r: Round, neg: bool) -> bool {
    match r {
        Round::Rm => neg,
        Round::Rp => !neg,
        Round::Rn | Round::Rz => false,
    }
}

impl Exact {
    /// floor(|value| / 2^q) and the rounded-up decision for rounding to a multiple of 2^q.
    pub fn quantum(&self, q: i32, r: Round) -> u128 {
        let sh = q - self.exp;
        let (floor, half, rest) = if sh <= 0 {
            // δ is below the last kept bit: less than half unless nothing was shifted, when it is unknown.
            debug_assert!(!self.sticky || sh == 0);
            (self.sig << (-sh).min(127), false, self.sticky)
        } else if sh > 127 {
            (0, false, true)
        } else {
            let cut = self.sig & ((1u128 << sh) - 1);
            let half = cut >> (sh - 1) & 1 == 1;
            (self.sig >> sh, half, cut & ((1u128 << (sh - 1)) - 1) != 0 || self.sticky)
        };
        let up = match r {
            Round::Rn => half && (rest || floor & 1 == 1),
            _ => away(r, self.neg) && (half || rest),
        };
        floor + u128::from(up)
    }

    /// Exponent of the leading bit.
    pub fn top(&self) -> i32 {
        self.exp + 127 - self.sig.leading_zeros() as i32
    }

    /// Rounds into a format. With `ftz` the value is rounded as if the exponent were unbounded and becomes a
    /// zero of its sign if that is below the smallest normal.
    pub fn round(&self, l: Layout, r: Round, ftz: bool) -> u64 {
        let sign = if self.neg { l.sign() } else { 0 };
        let emin = 1 - l.bias();
        let top = self.top();
        let e = if ftz { top } else { top.max(emin) };
        let v = self.quantum(e - l.man as i32, r);
        // A carry out of the significand moves into the exponent field by itself.
        if e < emin {
            // Only with ftz: what rounds up to the smallest normal survives.
            let normal = e == emin - 1 && v == 2 << l.man;
            return sign | if normal { 1 << l.man } else { 0 };
        }
        let mag = if v < 1 << l.man {
            v as u64
        } else if e > l.bias() {
            l.inf()
        } else {
            (((e - emin) as u64) << l.man) + v as u64
        };
        if mag >= l.inf() {
            let to_inf = r == Round::Rn || away(r, self.neg);
            return sign | if to_inf { l.inf() } else { l.inf() - 1 };
        }
        sign | mag
    }

    /// The value of an f64 that is finite and not zero.
    pub fn of_f64(x: f64) -> Option<Exact> {
        match unpack(x.to_bits(), F64) {
            Value::Finite(e) => Some(e),
            _ => None,
        }
    }
}

/// a + b rounded to odd: the result's last bit is 1 whenever it is not exact, so rounding it again to any
/// format at least two bits shorter gives the correctly rounded sum. Infinities and NaN behave as in a + b.
#[inline(always)]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    let t = s - a;
    let err = (a - (s - t)) + (b - t);
    let bits = s.to_bits();
    // An inexact even sum moves one step toward the side its error lies on; NaN errors (infinite sums) compare
    // false everywhere.
    let off = (err > 0.0) | (err < 0.0);
    let grow = (err > 0.0) == (s > 0.0);
    let fix = if off & (bits & 1 == 0) { if grow { 1u64 } else { u64::MAX } } else { 0 };
    f64::from_bits(bits.wrapping_add(fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Powers of two far apart: the sum is inexact, so it must be odd and still between its neighbours.
    #[test]
    fn odd_sums_stay_on_their_side() {
        assert_eq!(add_odd(1.0, 2f64.powi(-80)).to_bits(), 1f64.to_bits() + 1);
        assert_eq!(add_odd(1.0, -(2f64.powi(-80))).to_bits(), 1f64.to_bits() - 1);
        assert_eq!(add_odd(-1.0, -(2f64.powi(-80))), -1.0 - f64::EPSILON);
        assert_eq!(add_odd(1.5, 2.25), 3.75);
        assert_eq!(add_odd(f64::INFINITY, 1.0), f64::INFINITY);
    }

    /// Every f16 survives unpack and round in every direction.
    #[test]
    fn round_trip() {
        for b in 0..=0xffffu64 {
            if let Value::Finite(e) = unpack(b, F16) {
                for r in [Round::Rn, Round::Rz, Round::Rm, Round::Rp] {
                    assert_eq!(e.round(F16, r, false), b);
                }
            }
        }
    }
}
