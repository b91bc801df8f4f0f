//! The matrix unit: D = A·Bᵀ + C with one fused fixed-point sum per element and instruction.
//!
//! # Model
//! Every product is exact and keeps the exponent ea + eb of its un-normalised significand in [1, 4); subnormal
//! inputs keep the exponent of the smallest normal. With emax the largest exponent over all K products and C
//! (zero terms count as −133), each term is truncated toward zero to a multiple of 2^(emax − n), the multiples
//! are added exactly, and an f32 result is truncated toward zero to `out_bits` fraction bits (f16: rounded to
//! nearest even). A zero result is +0, an exponent above 127 gives infinity, any NaN, ∞ − ∞ or 0·∞ gives
//! 0x7fffffff (f16: 0x7fff).
//!
//! On Hopper this was compared with 5.66 million dot products without a difference (n = 25; fp8 `wgmma` n = 13);
//! the recorded tiles are in tests/silicon. That tcgen05 uses n = 25 for every kind without block scaling,
//! fp8 included, is published for the B200 and not recorded here.
//!
//! # Speed
//! [`fast`] handles whole rows with vector instructions; elements with a NaN, an infinity or a very large or
//! small emax are redone one at a time by [`fused`].

mod fast;
mod format;
mod fused;
pub mod scaled;
mod vector;

pub use fast::Scratch;
pub use format::Format;

use super::half::Half;
use super::{cvt, fp};

/// Width of the fused sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Model {
    /// Fraction bits kept of each term, relative to the largest exponent.
    pub n: u32,
    /// Fraction bits of an f32 result.
    pub out_bits: u32,
}

impl Model {
    /// tcgen05.mma, every kind without block scaling.
    pub const TCGEN05: Model = Model { n: 25, out_bits: 23 };
    /// wgmma on f16, bf16 and tf32; mma.sync on the same.
    pub const WGMMA: Model = Model { n: 25, out_bits: 23 };
    /// wgmma on e4m3 and e5m2.
    pub const WGMMA_FP8: Model = Model { n: 13, out_bits: 13 };
}

/// Shape and operand interpretation of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Width of the fused sum.
    pub model: Model,
    /// Format of A.
    pub a_fmt: Format,
    /// Format of B.
    pub b_fmt: Format,
    /// Rows of A and D.
    pub m: usize,
    /// Rows of B, columns of D.
    pub n: usize,
    /// Products per element of D.
    pub k: usize,
    /// A's signs are flipped.
    pub negate_a: bool,
    /// B's signs are flipped.
    pub negate_b: bool,
}

/// Type of C and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Acc {
    F32,
    F16,
}

/// D = A·Bᵀ + C with f32 C and D.
///
/// `a` is m×k and `b` n×k, row-major raw elements (a row of `b` is a column of D); `c` and `d` are m×n row-major
/// f32 bits. Without `c` (`scale-d` 0) C is +0.
///
/// # Panics
/// If a slice is shorter than its matrix: the caller owns the shapes.
pub fn mma(op: &Op, a: &[u32], b: &[u32], c: Option<&[u32]>, d: &mut [u32], scratch: &mut Scratch) {
    fast::run(op, Acc::F32, a, b, c, d, scratch);
}

/// As [`mma`] with f16 C and D (in the low halves of `u32`).
pub fn mma_f16(op: &Op, a: &[u32], b: &[u32], c: Option<&[u32]>, d: &mut [u32], scratch: &mut Scratch) {
    fast::run(op, Acc::F16, a, b, c, d, scratch);
}

/// Hopper's `mma.sync` m16n8k32 on e4m3 or e5m2, which it emulates: an f16 product over the k with k mod 4 < 2,
/// a second one over the others on top of it, and an IEEE addition of C. `op.model` is not used.
pub fn mma_sync_fp8(op: &Op, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32], scratch: &mut Scratch) {
    let half = |x: &[u32], fmt: Format, negate: bool, second: bool| -> Vec<u32> {
        let tiny = if fmt == Format::E4m3 { cvt::Tiny::E4m3 } else { cvt::Tiny::E5m2 };
        let wanted = |i: &usize| (i % op.k % 4 >= 2) == second;
        let flip = u16::from(negate) << 15;
        (0..x.len())
            .filter(wanted)
            .map(|i| (cvt::tiny_to_f16(tiny, x[i] as u8, false) ^ flip).into())
            .collect()
    };
    let part = Op {
        model: Model::WGMMA,
        a_fmt: Format::F16,
        b_fmt: Format::F16,
        k: op.k / 2,
        negate_a: false,
        negate_b: false,
        ..*op
    };
    let mut sum = vec![0; op.m * op.n];
    for second in [false, true] {
        let (x, y) = (half(a, op.a_fmt, op.negate_a, second), half(b, op.b_fmt, op.negate_b, second));
        let before = sum.clone();
        mma(&part, &x, &y, second.then_some(&before), &mut sum, scratch);
    }
    for (d, (&s, &c)) in d.iter_mut().zip(sum.iter().zip(c)) {
        *d = fp::add(s, c, fp::Mode::RN);
    }
}

/// An f16 accumulator as f32.
fn f16_as_f32(x: u32) -> u32 {
    cvt::half_to_f32(Half::F16, x as u16)
}
