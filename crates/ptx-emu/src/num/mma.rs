//! The matrix unit's dot product.

/// Element formats of A and B. Elements are raw bits in the low end of a `u32` (tf32: a full word, its low 13
/// bits ignored).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// f32 without its low 13 bits.
    Tf32,
    /// 4 exponent, 3 mantissa bits, no infinity.
    E4m3,
    /// 5 exponent, 2 mantissa bits.
    E5m2,
    /// 2 exponent, 1 mantissa bit, finite only.
    E2m1,
    /// 2 exponent, 3 mantissa bits, finite only.
    E2m3,
    /// 3 exponent, 2 mantissa bits, finite only.
    E3m2,
}

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

/// Working memory, kept between calls.
#[derive(Debug, Default)]
pub struct Scratch {}

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

/// D = A·Bᵀ + C with f32 C and D: `a` m×k row-major, `b` n×k row-major (row = column of D), `c` and `d` m×n
/// row-major; `c` None is scale-d 0.
pub fn mma(op: &Op, a: &[u32], b: &[u32], c: Option<&[u32]>, d: &mut [u32], scratch: &mut Scratch) {
    let _ = (op, a, b, c, d, scratch);
}

/// As [`mma`] with f16 C and D (in the low halves of `u32`).
pub fn mma_f16(op: &Op, a: &[u32], b: &[u32], c: Option<&[u32]>, d: &mut [u32], scratch: &mut Scratch) {
    let _ = (op, a, b, c, d, scratch);
}

/// Hopper's `mma.sync.m16n8k32` on e4m3 or e5m2, emulated there with two f16 products and a rounded add.
pub fn mma_sync_fp8(op: &Op, a: &[u32], b: &[u32], c: &[u32], d: &mut [u32], scratch: &mut Scratch) {
    let _ = (op, a, b, c, d, scratch);
}
