//! Element operations of `cp.reduce.async.bulk` and `cp.reduce.async.bulk.tensor`.
//!
//! All operations are recorded silicon. f32 rounds to nearest even and keeps subnormals, the FTZ tensor type flushes
//! inputs and result, f16 and bf16 round once and keep subnormals; every NaN sum becomes all ones (sign clear), but in
//! f64 a NaN passes unchanged, not even quieted. In floating-point min and max a number beats a NaN.

use super::tensor_map::ElemType;

/// Operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum (integers wrap).
    Add,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// `old >= src ? 0 : old + 1`.
    Inc,
    /// `old == 0 || old > src ? src : old - 1`.
    Dec,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl ReduceOp {
    /// From the modifier, without its dot.
    pub fn from_modifier(m: &str) -> Option<ReduceOp> {
        Some(match m {
            "add" => ReduceOp::Add,
            "min" => ReduceOp::Min,
            "max" => ReduceOp::Max,
            "inc" => ReduceOp::Inc,
            "dec" => ReduceOp::Dec,
            "and" => ReduceOp::And,
            "or" => ReduceOp::Or,
            "xor" => ReduceOp::Xor,
            _ => return None,
        })
    }
}

/// Type in which the elements are combined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum NumType {
    B32,
    B64,
    U32,
    S32,
    U64,
    S64,
    F16,
    BF16,
    F32,
    /// f32 that flushes subnormals to signed zero: tensor type f32.ftz.
    F32Ftz,
    F64,
}

use NumType::*;
use ReduceOp::*;

impl NumType {
    /// From the type modifier of the linear `cp.reduce.async.bulk`.
    pub fn from_modifier(m: &str) -> Option<NumType> {
        Some(match m {
            "b32" => B32,
            "b64" => B64,
            "u32" => U32,
            "s32" => S32,
            "u64" => U64,
            "s64" => S64,
            "f16" => F16,
            "bf16" => BF16,
            "f32" => F32,
            "f64" => F64,
            _ => return None,
        })
    }

    /// The type in which a tensor map's elements are reduced; `None` where no reduction exists.
    pub fn of_tensor(elem: ElemType) -> Option<NumType> {
        Some(match elem {
            ElemType::U32 => U32,
            ElemType::S32 => S32,
            ElemType::U64 => U64,
            ElemType::S64 => S64,
            ElemType::F16 => F16,
            ElemType::BF16 => BF16,
            ElemType::F32 => F32,
            ElemType::F32Ftz => F32Ftz,
            ElemType::F64 => F64,
            _ => return None,
        })
    }

    /// Size in bytes.
    pub fn bytes(self) -> usize {
        match self {
            F16 | BF16 => 2,
            B32 | U32 | S32 | F32 | F32Ftz => 4,
            B64 | U64 | S64 | F64 => 8,
        }
    }

    /// Whether the operation exists for the type with a global destination (the widest set in the manual;
    /// bitwise operations take any 32- or 64-bit integer type of a tensor map).
    pub fn allows(self, op: ReduceOp) -> bool {
        match op {
            Add => matches!(self, U32 | S32 | U64 | F32 | F32Ftz | F64 | F16 | BF16),
            Min | Max => matches!(self, U32 | S32 | U64 | S64 | F16 | BF16),
            Inc | Dec => self == U32,
            And | Or | Xor => matches!(self, B32 | B64 | U32 | S32 | U64 | S64),
        }
    }
}

/// Combines `src` into `dst` element by element. Both must hold the same number of whole elements; what is left
/// over is not touched. Returns false, and changes nothing, where [`NumType::allows`] says no.
pub fn reduce(op: ReduceOp, ty: NumType, dst: &mut [u8], src: &[u8]) -> bool {
    if !ty.allows(op) {
        return false;
    }
    match ty {
        F16 => each16(dst, src, |a, b| half(op, a, b, F16_FORMAT)),
        BF16 => each16(dst, src, |a, b| half(op, a, b, BF16_FORMAT)),
        F32 => each32(dst, src, |a, b| add_f32(a, b, false)),
        F32Ftz => each32(dst, src, |a, b| add_f32(a, b, true)),
        F64 => each64(dst, src, add_f64),
        S32 => each32(dst, src, |a, b| match op {
            Min => (a as i32).min(b as i32) as u32,
            Max => (a as i32).max(b as i32) as u32,
            _ => int(op, a.into(), b.into(), u64::from(u32::MAX)) as u32,
        }),
        S64 => each64(dst, src, |a, b| match op {
            Min => (a as i64).min(b as i64) as u64,
            Max => (a as i64).max(b as i64) as u64,
            _ => int(op, a, b, u64::MAX),
        }),
        U32 | B32 => each32(dst, src, |a, b| int(op, a.into(), b.into(), u64::from(u32::MAX)) as u32),
        U64 | B64 => each64(dst, src, |a, b| int(op, a, b, u64::MAX)),
    }
    true
}

fn each16(dst: &mut [u8], src: &[u8], f: impl Fn(u16, u16) -> u16) {
    for (d, s) in dst.chunks_exact_mut(2).zip(src.chunks_exact(2)) {
        let r = f(u16::from_le_bytes([d[0], d[1]]), u16::from_le_bytes([s[0], s[1]]));
        d.copy_from_slice(&r.to_le_bytes());
    }
}

fn each32(dst: &mut [u8], src: &[u8], f: impl Fn(u32, u32) -> u32) {
    let get = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    for (d, s) in dst.chunks_exact_mut(4).zip(src.chunks_exact(4)) {
        let r = f(get(d), get(s));
        d.copy_from_slice(&r.to_le_bytes());
    }
}

fn each64(dst: &mut [u8], src: &[u8], f: impl Fn(u64, u64) -> u64) {
    let get = |b: &[u8]| b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
    for (d, s) in dst.chunks_exact_mut(8).zip(src.chunks_exact(8)) {
        let r = f(get(d), get(s));
        d.copy_from_slice(&r.to_le_bytes());
    }
}

/// Unsigned and bitwise operations on values below or at `mask`.
fn int(op: ReduceOp, old: u64, src: u64, mask: u64) -> u64 {
    let r = match op {
        Add => old.wrapping_add(src),
        Min => old.min(src),
        Max => old.max(src),
        Inc if old >= src => 0,
        Inc => old + 1,
        Dec if old == 0 || old > src => src,
        Dec => old - 1,
        And => old & src,
        Or => old | src,
        Xor => old ^ src,
    };
    r & mask
}

fn add_f32(a: u32, b: u32, ftz: bool) -> u32 {
    let flush = |u: u32| if ftz && u & 0x7f80_0000 == 0 { u & 0x8000_0000 } else { u };
    let sum = f32::from_bits(flush(a)) + f32::from_bits(flush(b));
    // A sum of two f32 is never inexact below the smallest normal, so flushing the rounded result is exact.
    if sum.is_nan() { 0x7fff_ffff } else { flush(sum.to_bits()) }
}

/// Sum of doubles as the memory system computes it, for reductions and global atomics. A NaN passes unchanged; which
/// of two, and what infinities of opposite sign give, is not recorded.
pub fn add_f64(a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match (x.is_nan(), y.is_nan()) {
        (true, _) => a,
        (_, true) => b,
        _ if (x + y).is_nan() => 0x7ff8_0000_0000_0000,
        _ => (x + y).to_bits(),
    }
}

/// A 16-bit floating format.
#[derive(Clone, Copy)]
struct Format {
    mantissa: u32,
    bias: i32,
}

const F16_FORMAT: Format = Format { mantissa: 10, bias: 15 };
const BF16_FORMAT: Format = Format { mantissa: 7, bias: 127 };

/// The 16-bit NaN that the hardware writes.
const NAN16: u16 = 0x7fff;

fn half(op: ReduceOp, a: u16, b: u16, f: Format) -> u16 {
    let (x, y) = (f.widen(a), f.widen(b));
    match op {
        // Exact for f16; for bf16 the f64 sum is off only when one operand is below 2^-45 of the other, where
        // no bf16 rounding boundary is near. So there is one rounding.
        Add => f.round(x + y),
        _ if x.is_nan() && y.is_nan() => NAN16,
        _ if x.is_nan() => b,
        _ if y.is_nan() => a,
        // -0 orders before +0; the sign bit decides where the values are equal.
        _ => {
            let a_less = x < y || (x == y && a >> 15 > b >> 15);
            if a_less == (op == Min) { a } else { b }
        }
    }
}

impl Format {
    fn widen(self, u: u16) -> f64 {
        let mag = u32::from(u & 0x7fff);
        let (e, m) = ((mag >> self.mantissa) as i32, mag & ((1 << self.mantissa) - 1));
        let e_max = (1 << (15 - self.mantissa)) - 1;
        let v = match e {
            0 => f64::from(m) * pow2(1 - self.bias - self.mantissa as i32),
            e if e == e_max => return if m != 0 { f64::NAN } else { signed(f64::INFINITY, u) },
            e => f64::from(m | 1 << self.mantissa) * pow2(e - self.bias - self.mantissa as i32),
        };
        signed(v, u)
    }

    /// Rounds to nearest even, with subnormals and overflow to infinity.
    fn round(self, v: f64) -> u16 {
        if v.is_nan() {
            return NAN16;
        }
        let sign = ((v.to_bits() >> 63) as u16) << 15;
        let v = v.abs();
        let exponent = ((v.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        // In units of the last place of the target; at most 2^(mantissa+1), so exact in f64.
        let units = (v * pow2(self.mantissa as i32 - exponent.min(self.bias + 1))).round_ties_even();
        let inf = ((1u32 << (15 - self.mantissa)) - 1) << self.mantissa;
        if exponent > self.bias {
            return sign | inf as u16;
        }
        let bits = (((exponent + self.bias - 1) as u32) << self.mantissa) + units as u32;
        sign | bits.min(inf) as u16
    }
}

fn signed(v: f64, u: u16) -> f64 {
    if u >> 15 != 0 { -v } else { v }
}

/// 2^e for the exponents met here (all normal in f64).
fn pow2(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}
