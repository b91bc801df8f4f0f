//! f16 and bf16 arithmetic, scalar (`u16`) and packed (`u32`, two independent halves).
//!
//! Operands convert exactly to f64, where products are exact and sums are rounded to odd, so each result is
//! rounded once. The reference is the H200 record; bf16 has no `.ftz` and keeps subnormals.

use super::NAN16;
use super::exact::{self, Exact, Layout, add_odd};
use super::fp::MinMax;
use super::{Round, cvt};

/// Which 16-bit format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE binary16.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl Half {
    pub(crate) fn layout(self) -> Layout {
        match self {
            Half::F16 => exact::F16,
            Half::Bf16 => exact::BF16,
        }
    }
    /// Bits of +infinity.
    pub fn inf(self) -> u16 {
        match self {
            Half::F16 => 0x7c00,
            Half::Bf16 => 0x7f80,
        }
    }
    fn one(self) -> u16 {
        match self {
            Half::F16 => 0x3c00,
            Half::Bf16 => 0x3f80,
        }
    }
    /// Whether the bits are a NaN.
    pub fn is_nan(self, x: u16) -> bool {
        x & 0x7fff > self.inf()
    }
    fn flush(self, x: u16) -> u16 {
        if x & self.inf() == 0 { x & 0x8000 } else { x }
    }
}

/// Qualifiers of 16-bit arithmetic (rounding is always `.rn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct HalfMode {
    /// `.ftz` (f16 only): subnormal inputs and results become zeros of the same sign.
    pub ftz: bool,
    /// `.sat` (f16 only): clamps to [0, 1], NaN becomes +0.
    pub sat: bool,
    /// `.relu` (fma only): negative results become +0, NaN the canonical NaN.
    pub relu: bool,
}

fn input(h: Half, x: u16, m: HalfMode) -> f64 {
    let x = if m.ftz { h.flush(x) } else { x };
    f32::from_bits(cvt::half_to_f32(h, x)).into()
}

fn finish(h: Half, x: f64, m: HalfMode) -> u16 {
    let bits = match Exact::of_f64(x) {
        Some(e) => e.round(h.layout(), Round::Rn, m.ftz) as u16,
        None if x.is_nan() => NAN16,
        None => u16::from(x.is_sign_negative()) << 15 | if x == 0.0 { 0 } else { h.inf() },
    };
    if m.sat {
        if h.is_nan(bits) || bits & 0x8000 != 0 { 0 } else { bits.min(h.one()) }
    } else if m.relu && !h.is_nan(bits) && bits & 0x8000 != 0 {
        0
    } else {
        bits
    }
}

/// `add{.rn}{.ftz}{.sat}`
pub fn add(h: Half, a: u16, b: u16, m: HalfMode) -> u16 {
    finish(h, add_odd(input(h, a, m), input(h, b, m)), m)
}

/// `sub{.rn}{.ftz}{.sat}`
pub fn sub(h: Half, a: u16, b: u16, m: HalfMode) -> u16 {
    finish(h, add_odd(input(h, a, m), -input(h, b, m)), m)
}

/// `mul{.rn}{.ftz}{.sat}`
pub fn mul(h: Half, a: u16, b: u16, m: HalfMode) -> u16 {
    finish(h, input(h, a, m) * input(h, b, m), m)
}

/// `fma.rn{.ftz}{.sat}{.relu}`: one rounding of a·b + c.
pub fn fma(h: Half, a: u16, b: u16, c: u16, m: HalfMode) -> u16 {
    finish(h, add_odd(input(h, a, m) * input(h, b, m), input(h, c, m)), m)
}

/// `min{.ftz}{.NaN}{.xorsign.abs}`; −0 is below +0.
pub fn min(h: Half, a: u16, b: u16, q: MinMax) -> u16 {
    pick(h, a, b, q, false)
}

/// `max{.ftz}{.NaN}{.xorsign.abs}`
pub fn max(h: Half, a: u16, b: u16, q: MinMax) -> u16 {
    pick(h, a, b, q, true)
}

fn pick(h: Half, a: u16, b: u16, q: MinMax, max: bool) -> u16 {
    let (a, b) = if q.ftz { (h.flush(a), h.flush(b)) } else { (a, b) };
    let mags = q.xorsign_abs || q.abs;
    let (x, y) = if mags { (a & 0x7fff, b & 0x7fff) } else { (a, b) };
    let key = |v: u16| (v ^ ((v as i16 >> 15) as u16 >> 1)) as i16;
    let (nx, ny) = (h.is_nan(a), h.is_nan(b));
    if nx && ny || q.nan && (nx || ny) {
        return NAN16;
    }
    let first = if max { key(x) >= key(y) } else { key(x) <= key(y) };
    let r = if ny || !nx && first { x } else { y };
    if q.xorsign_abs { r | (a ^ b) & 0x8000 } else { r }
}

/// `neg` (NaN operands become the canonical NaN).
pub fn neg(h: Half, a: u16, ftz: bool) -> u16 {
    if h.is_nan(a) { NAN16 } else { (if ftz { h.flush(a) } else { a }) ^ 0x8000 }
}

/// `abs` (NaN operands become the canonical NaN).
pub fn abs(h: Half, a: u16, ftz: bool) -> u16 {
    if h.is_nan(a) { NAN16 } else { (if ftz { h.flush(a) } else { a }) & 0x7fff }
}

/// Applies a function to the two halves of packed operands.
#[inline]
pub fn map_x2<const N: usize>(x: [u32; N], f: impl Fn([u16; N]) -> u16) -> u32 {
    let lo = f(x.map(|v| v as u16));
    let hi = f(x.map(|v| (v >> 16) as u16));
    u32::from(hi) << 16 | u32::from(lo)
}

/// [`add`] on both halves.
pub fn add_x2(h: Half, a: u32, b: u32, m: HalfMode) -> u32 {
    map_x2([a, b], |[a, b]| add(h, a, b, m))
}

/// [`sub`] on both halves.
pub fn sub_x2(h: Half, a: u32, b: u32, m: HalfMode) -> u32 {
    map_x2([a, b], |[a, b]| sub(h, a, b, m))
}

/// [`mul`] on both halves.
pub fn mul_x2(h: Half, a: u32, b: u32, m: HalfMode) -> u32 {
    map_x2([a, b], |[a, b]| mul(h, a, b, m))
}

/// [`fma`] on both halves.
pub fn fma_x2(h: Half, a: u32, b: u32, c: u32, m: HalfMode) -> u32 {
    map_x2([a, b, c], |[a, b, c]| fma(h, a, b, c, m))
}

/// [`min`] on both halves.
pub fn min_x2(h: Half, a: u32, b: u32, q: MinMax) -> u32 {
    map_x2([a, b], |[a, b]| min(h, a, b, q))
}

/// [`max`] on both halves.
pub fn max_x2(h: Half, a: u32, b: u32, q: MinMax) -> u32 {
    map_x2([a, b], |[a, b]| max(h, a, b, q))
}
