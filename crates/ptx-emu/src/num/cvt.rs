//! Conversions (`cvt`).
//!
//! Everything goes through one exact value and one rounding ([`super::exact`]). Recorded on an H200: the forms
//! of f16x2, bf16x2, tf32, e4m3x2 and e5m2x2. From the PTX manual alone: 4- and 6-bit formats, ue8m0, f64.

use super::exact::{self, Exact, Layout, Value, unpack};
use super::half::{Half, map_x2};
pub use super::lanes::{bf16x2_rn32, f16x2_rn32};
use super::{NAN16, NAN32, NAN64, Round};

/// Integer types a conversion can have on either side. Values are zero-extended in a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// 8, 16, 32 or 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
}

impl Int {
    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }
    fn max(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }
    fn value(self, x: u64) -> i128 {
        let up = 64 - self.bits;
        if self.signed { ((x << up) as i64 >> up).into() } else { (x << up >> up).into() }
    }
    fn raw(self, v: i128) -> u64 {
        v as u64 & (u64::MAX >> (64 - self.bits))
    }
}

/// Qualifiers of conversions to floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fit {
    /// `.relu`: negative results become +0, NaN the canonical NaN.
    pub relu: bool,
    /// `.satfinite`: magnitudes above the largest finite value become it.
    pub satfinite: bool,
}

/// 8-, 6- and 4-bit formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tiny {
    /// 4 exponent, 3 fraction bits; no infinity, NaN 0x7f; up to 448.
    E4m3,
    /// 5 exponent, 2 fraction bits; up to 57344.
    E5m2,
    /// 2 exponent, 1 fraction bit, finite only; up to 6.
    E2m1,
    /// 2 exponent, 3 fraction bits, finite only; up to 7.5.
    E2m3,
    /// 3 exponent, 2 fraction bits, finite only; up to 28.
    E3m2,
}

impl Tiny {
    fn layout(self) -> Layout {
        let (exp, man) = match self {
            Tiny::E4m3 => (4, 3),
            Tiny::E5m2 => (5, 2),
            Tiny::E2m1 => (2, 1),
            Tiny::E2m3 => (2, 3),
            Tiny::E3m2 => (3, 2),
        };
        Layout { exp, man }
    }
    /// Code of the largest finite value.
    fn largest(self) -> u8 {
        match self {
            Tiny::E4m3 => 0x7e,
            Tiny::E5m2 => 0x7b,
            Tiny::E2m1 => 0x07,
            Tiny::E2m3 | Tiny::E3m2 => 0x1f,
        }
    }
    /// What a NaN converts to: formats without NaN take their largest value.
    fn nan(self) -> u8 {
        match self {
            Tiny::E4m3 | Tiny::E5m2 => 0x7f,
            _ => self.largest(),
        }
    }
    /// Magnitude of a code; e4m3 has finite values in its top exponent, the smaller formats have nothing else.
    fn value(self, code: u8) -> Value {
        let l = self.layout();
        let neg = u64::from(code) & l.sign() != 0;
        let mag = u64::from(code) & (l.sign() - 1);
        match self {
            Tiny::E5m2 => unpack(u64::from(code), l),
            Tiny::E4m3 if mag == 0x7f => Value::Nan,
            _ if mag == 0 => Value::Zero { neg },
            _ => {
                let (e, m) = ((mag >> l.man) as i32, mag & ((1 << l.man) - 1));
                let (sig, e) = if e == 0 { (m, 1) } else { (m | 1 << l.man, e) };
                Value::Finite(Exact { neg, sig: sig.into(), exp: e - l.bias() - l.man as i32, sticky: false })
            }
        }
    }
    /// Rounds to nearest even with `.satfinite`.
    fn encode(self, v: Value, relu: bool) -> u8 {
        let l = self.layout();
        let mag = match v {
            Value::Nan => return self.nan(),
            Value::Zero { .. } => 0,
            Value::Inf { .. } => self.largest(),
            Value::Finite(e) => {
                let emin = 1 - l.bias();
                let top = e.top().max(emin);
                let q = e.quantum(top - l.man as i32, Round::Rn);
                let code = ((top - emin) as u128).min(64) << l.man;
                (code + q).min(self.largest().into()) as u8
            }
        };
        let neg = match v {
            Value::Zero { neg } | Value::Inf { neg } => neg,
            Value::Finite(e) => e.neg,
            Value::Nan => false,
        };
        match (neg, relu) {
            (true, true) => 0,
            (true, false) => mag | l.sign() as u8,
            (false, _) => mag,
        }
    }
}

/// Rounding of `cvt.tf32.f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TfRound {
    /// `.rn`
    Rn,
    /// `.rz`
    Rz,
    /// `.rna`: to nearest, ties away from zero.
    Rna,
}

/// Encodes a value in an IEEE layout, with the format's NaN.
fn encode(v: Value, l: Layout, r: Round, ftz: bool, nan: u64) -> u64 {
    let sign = |neg: bool| if neg { l.sign() } else { 0 };
    match v {
        Value::Nan => nan,
        Value::Inf { neg } => sign(neg) | l.inf(),
        Value::Zero { neg } => sign(neg),
        Value::Finite(e) => e.round(l, r, ftz),
    }
}

fn to_half(h: Half, v: Value, r: Round, fit: Fit) -> u16 {
    let l = h.layout();
    let x = encode(v, l, r, false, NAN16.into()) as u16;
    if h.is_nan(x) {
        return x;
    }
    if fit.relu && x & 0x8000 != 0 {
        return 0;
    }
    if fit.satfinite && x & 0x7fff == h.inf() { x - 1 } else { x }
}

/// `cvt.rnd{.relu}{.satfinite}.{f16,bf16}.f32`
pub fn f32_to_half(h: Half, x: u32, r: Round, fit: Fit) -> u16 {
    to_half(h, unpack(x.into(), exact::F32), r, fit)
}

/// `cvt.f32.{f16,bf16}` (exact; NaN becomes the canonical NaN).
#[inline]
pub fn half_to_f32(h: Half, x: u16) -> u32 {
    if h.is_nan(x) {
        return NAN32;
    }
    match h {
        Half::Bf16 => u32::from(x) << 16,
        Half::F16 => {
            let sign = u32::from(x & 0x8000) << 16;
            let mag = u32::from(x & 0x7fff);
            if mag == 0x7c00 {
                return sign | 0x7f80_0000;
            }
            // Scaling by 2^112 rebiases normal and subnormal numbers alike.
            sign | (f32::from_bits(mag << 13) * f32::from_bits((127 + 112) << 23)).to_bits()
        }
    }
}

/// `cvt.rnd{.relu}{.satfinite}.{f16x2,bf16x2}.f32 d, hi, lo`
pub fn f32x2_to_half_x2(h: Half, hi: u32, lo: u32, r: Round, fit: Fit) -> u32 {
    u32::from(f32_to_half(h, hi, r, fit)) << 16 | u32::from(f32_to_half(h, lo, r, fit))
}

/// `cvt.{rn,rz,rna}{.relu}{.satfinite}.tf32.f32`.
///
/// `.rn` and `.rz` make every NaN 0x7fffe000. `.rna` works on the bits as an integer on Hopper, so non-finite
/// inputs merely lose their low 13 bits, and a NaN with a small payload becomes infinity; with `.satfinite` they
/// then go down by one step, NaN or not (all recorded).
pub fn f32_to_tf32(x: u32, r: TfRound, fit: Fit) -> u32 {
    const KEEP: u32 = !0x1fff;
    let finite = x & 0x7f80_0000 != 0x7f80_0000;
    let y = match r {
        _ if !finite && r == TfRound::Rna => x & KEEP,
        _ if x & 0x7fff_ffff > 0x7f80_0000 => NAN32 & KEEP,
        _ if !finite => x,
        TfRound::Rn => x.wrapping_add(0xfff + (x >> 13 & 1)) & KEEP,
        TfRound::Rz => x & KEEP,
        TfRound::Rna => x.wrapping_add(0x1000) & KEEP,
    };
    let over =
        if r == TfRound::Rna { y & 0x7f80_0000 == 0x7f80_0000 } else { y & 0x7fff_ffff == 0x7f80_0000 };
    let y = if fit.satfinite && over { y - 0x2000 } else { y };
    if fit.relu && y & 0x8000_0000 != 0 && y & 0x7fff_ffff <= 0x7f80_0000 { 0 } else { y }
}

/// One f32 to an 8-, 6- or 4-bit code, `.rn.satfinite{.relu}`.
pub fn f32_to_tiny(t: Tiny, x: u32, relu: bool) -> u8 {
    t.encode(unpack(x.into(), exact::F32), relu)
}

fn pack(t: Tiny, hi: u8, lo: u8) -> u16 {
    if t == Tiny::E2m1 { u16::from(hi << 4 | lo) } else { u16::from(hi) << 8 | u16::from(lo) }
}

/// `cvt.rn.satfinite{.relu}.{e4m3x2,…}.f32 d, hi, lo`; e2m1x2 packs into one byte.
pub fn f32x2_to_tiny_x2(t: Tiny, hi: u32, lo: u32, relu: bool) -> u16 {
    pack(t, f32_to_tiny(t, hi, relu), f32_to_tiny(t, lo, relu))
}

/// `cvt.rn.satfinite{.relu}.{e4m3x2,…}.f16x2`
pub fn f16x2_to_tiny_x2(t: Tiny, x: u32, relu: bool) -> u16 {
    let one = |v: u32| t.encode(unpack((v & 0xffff).into(), exact::F16), relu);
    pack(t, one(x >> 16), one(x))
}

/// `cvt.rn.satfinite{.relu}.{e4m3x2,…}.bf16x2`
pub fn bf16x2_to_tiny_x2(t: Tiny, x: u32, relu: bool) -> u16 {
    f32x2_to_tiny_x2(t, x & 0xffff_0000, x << 16, relu)
}

/// One 8-, 6- or 4-bit code to f16 (exact; NaN becomes 0x7fff).
pub fn tiny_to_f16(t: Tiny, x: u8, relu: bool) -> u16 {
    to_half(Half::F16, t.value(x), Round::Rn, Fit { relu, satfinite: false })
}

/// `cvt.rn{.relu}.f16x2.{e4m3x2,…}`
pub fn tiny_x2_to_f16x2(t: Tiny, x: u16, relu: bool) -> u32 {
    let (hi, lo) = if t == Tiny::E2m1 { (x >> 4 & 15, x & 15) } else { (x >> 8, x & 0xff) };
    u32::from(tiny_to_f16(t, hi as u8, relu)) << 16 | u32::from(tiny_to_f16(t, lo as u8, relu))
}

/// `cvt.{rz,rp}{.satfinite}.ue8m0x2.f32`, one value: a power of two from 2^−127 (code 0) to 2^127 (0xfe), NaN
/// 0xff. The format has no sign: negative inputs convert by magnitude zero, as the least value. Not recorded.
pub fn f32_to_ue8m0(x: u32, r: Round, satfinite: bool) -> u8 {
    match unpack(x.into(), exact::F32) {
        Value::Nan => 0xff,
        Value::Zero { .. } | Value::Inf { neg: true } => 0,
        Value::Inf { neg: false } => 0xff - u8::from(satfinite),
        Value::Finite(e) if e.neg => 0,
        Value::Finite(e) => {
            let exact_power = e.sig.is_power_of_two();
            let code = e.top() + 127 + i32::from(r == Round::Rp && !exact_power);
            code.clamp(0, 0xff - i32::from(satfinite)) as u8
        }
    }
}

/// `cvt.rn.bf16x2.ue8m0x2`, one value.
pub fn ue8m0_to_bf16(x: u8) -> u16 {
    match x {
        0xff => NAN16,
        0 => 0x0040,
        _ => u16::from(x) << 7,
    }
}

/// `cvt{.ftz}.f64.f32` (exact).
pub fn f32_to_f64(x: u32, ftz: bool) -> u64 {
    let x = if ftz { super::fp::flush(x) } else { x };
    encode(unpack(x.into(), exact::F32), exact::F64, Round::Rn, false, NAN64)
}

/// `cvt.rnd{.ftz}{.sat}.f32.f64`
pub fn f64_to_f32(x: u64, r: Round, ftz: bool, sat: bool) -> u32 {
    super::fp::narrow(f64::from_bits(x), super::fp::Mode { round: r, ftz, sat })
}

/// `cvt.rnd.{f16,bf16}.f64`
pub fn f64_to_half(h: Half, x: u64, r: Round) -> u16 {
    to_half(h, unpack(x, exact::F64), r, Fit::default())
}

/// `cvt.{f64}.{f16,bf16}` (exact).
pub fn half_to_f64(h: Half, x: u16) -> u64 {
    f32_to_f64(half_to_f32(h, x), false)
}

/// Rounds a value to an integer and encodes it in the same format.
fn integral(bits: u64, l: Layout, r: Round, nan: u64) -> u64 {
    match unpack(bits, l) {
        Value::Nan => nan,
        Value::Finite(e) if e.exp < 0 => match e.quantum(0, r) {
            0 => bits & l.sign(),
            sig => Exact { neg: e.neg, sig, exp: 0, sticky: false }.round(l, Round::Rn, false),
        },
        _ => bits,
    }
}

/// `cvt.{rni,rzi,rmi,rpi}{.ftz}{.sat}.f32.f32`
pub fn f32_round(x: u32, r: Round, ftz: bool, sat: bool) -> u32 {
    let x = if ftz { super::fp::flush(x) } else { x };
    saturate(integral(x.into(), exact::F32, r, NAN32.into()) as u32, sat)
}

/// `cvt{.ftz}.sat.f32.f32`: no rounding, clamped to [0, 1]; without `sat`, a copy with `.ftz`.
pub fn f32_to_f32(x: u32, ftz: bool, sat: bool) -> u32 {
    saturate(if ftz { super::fp::flush(x) } else { x }, sat)
}

fn saturate(x: u32, sat: bool) -> u32 {
    if !sat {
        x
    } else if super::fp::is_nan(x) || x >> 31 == 1 {
        0
    } else {
        x.min(0x3f80_0000)
    }
}

/// `cvt.{rni,rzi,rmi,rpi}.f64.f64`
pub fn f64_round(x: u64, r: Round) -> u64 {
    integral(x, exact::F64, r, NAN64)
}

/// `cvt.{rni,rzi,rmi,rpi}.{f16.f16,bf16.bf16}`
pub fn half_round(h: Half, x: u16, r: Round) -> u16 {
    integral(x.into(), h.layout(), r, NAN16.into()) as u16
}

/// Clamps to the integer type. NaN gives 0; where either side is 64 bits wide the manual does not promise that,
/// and the result is the top bit alone (not recorded on silicon).
fn to_int(v: Value, to: Int, r: Round, wide: bool) -> u64 {
    let n = match v {
        Value::Nan if wide && to.bits >= 32 => return 1 << (to.bits - 1),
        Value::Nan | Value::Zero { .. } => 0,
        Value::Inf { neg } => {
            if neg {
                to.min()
            } else {
                to.max()
            }
        }
        Value::Finite(e) => {
            let mag = if e.top() > 66 { 1 << 66 } else { e.quantum(0, r) as i128 };
            if e.neg { -mag } else { mag }
        }
    };
    to.raw(n.clamp(to.min(), to.max()))
}

/// `cvt.{rni,rzi,rmi,rpi}{.ftz}{.sat}.{s,u}{8,16,32,64}.f32`; always clamps. NaN: 0, or 2^63 for 64 bits.
pub fn f32_to_int(x: u32, to: Int, r: Round, ftz: bool) -> u64 {
    let x = if ftz { super::fp::flush(x) } else { x };
    to_int(unpack(x.into(), exact::F32), to, r, to.bits == 64)
}

/// `cvt.{rni,rzi,rmi,rpi}{.sat}.{s,u}{8,16,32,64}.f64`; always clamps. NaN: the type's top bit alone.
pub fn f64_to_int(x: u64, to: Int, r: Round) -> u64 {
    to_int(unpack(x, exact::F64), to, r, true)
}

/// `cvt.{rni,rzi,rmi,rpi}{.sat}.{s,u}{8,16,32,64}.{f16,bf16}`; always clamps.
pub fn half_to_int(h: Half, x: u16, to: Int, r: Round) -> u64 {
    to_int(unpack(x.into(), h.layout()), to, r, to.bits == 64)
}

fn of_int(x: u64, from: Int) -> Value {
    match from.value(x) {
        0 => Value::Zero { neg: false },
        v => Value::Finite(Exact { neg: v < 0, sig: v.unsigned_abs(), exp: 0, sticky: false }),
    }
}

/// `cvt.rnd.f32.{s,u}{8,16,32,64}`
pub fn int_to_f32(x: u64, from: Int, r: Round) -> u32 {
    encode(of_int(x, from), exact::F32, r, false, 0) as u32
}

/// `cvt.rnd.f64.{s,u}{8,16,32,64}`
pub fn int_to_f64(x: u64, from: Int, r: Round) -> u64 {
    encode(of_int(x, from), exact::F64, r, false, 0)
}

/// `cvt.rnd.{f16,bf16}.{s,u}{8,16,32,64}`
pub fn int_to_half(h: Half, x: u64, from: Int, r: Round) -> u16 {
    encode(of_int(x, from), h.layout(), r, false, 0) as u16
}

/// `cvt{.sat}` between integers: extends by the source's sign, then keeps the low bits or, with `sat`, clamps.
pub fn int_to_int(x: u64, from: Int, to: Int, sat: bool) -> u64 {
    let v = from.value(x);
    to.raw(if sat { v.clamp(to.min(), to.max()) } else { v })
}

/// `cvt.rn.bf16x2.ue8m0x2`
pub fn ue8m0x2_to_bf16x2(x: u16) -> u32 {
    map_x2([u32::from(x >> 8) << 16 | u32::from(x & 0xff)], |[v]| ue8m0_to_bf16(v as u8))
}
