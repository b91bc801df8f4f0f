//! Bit-exact numerics: scalar arithmetic, conversions, the MUFU models and the matrix unit's dot product.
//!
//! Everything works on raw bits, because NaN payloads, signed zeros and subnormals are part of the result.
//! Scalar functions take and return `u32` (f32 bits), `u64` (f64 bits) or `u16` (f16 and bf16 bits); functions
//! whose name ends in `32` work on the 32 lanes of a warp at once and give exactly the scalar function's bits.

pub mod cvt;
mod exact;
pub mod fp;
pub mod half;
pub mod lanes;
pub mod mma;
pub mod mufu;
mod mufu_tables;
pub(crate) mod wide;

/// The 32 lanes of a warp, one raw 32-bit value each.
pub type Lanes = [u32; 32];

/// IEEE rounding of a floating-point result (`.rn`, `.rz`, `.rm`, `.rp`), and of a value to an integer
/// (`.rni`, `.rzi`, `.rmi`, `.rpi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Round {
    /// To nearest, ties to even.
    #[default]
    Rn,
    /// Toward zero.
    Rz,
    /// Toward negative infinity.
    Rm,
    /// Toward positive infinity.
    Rp,
}

/// The NaN every f32 arithmetic instruction returns, whatever NaN it was given.
pub const NAN32: u32 = 0x7fff_ffff;
/// The NaN of f16 and bf16 arithmetic and conversions.
pub const NAN16: u16 = 0x7fff;
/// The NaN of f64 arithmetic. Not recorded on silicon: the pattern f64 instructions are known to produce for
/// invalid operations.
pub const NAN64: u64 = 0xfff8_0000_0000_0000;
