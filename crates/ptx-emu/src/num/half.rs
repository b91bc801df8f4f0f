//! f16 and bf16 arithmetic.
use super::fp::MinMax;

/// Which 16-bit format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE binary16.
    F16,
    /// The upper half of an f32.
    Bf16,
}

/// Qualifiers of 16-bit arithmetic (rounding is always `.rn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct HalfMode {
    /// `.ftz` (f16 only)
    pub ftz: bool,
    /// `.sat` (f16 only)
    pub sat: bool,
    /// `.relu` (fma only): negative results become +0, NaN the canonical NaN
    pub relu: bool,
}
macro_rules! stub { ($($n:ident($($a:ident:$t:ty),*)->$r:ty;)*) => { $(
/// stub
pub fn $n($($a:$t),*)->$r { let _=($($a),*,); 0 } )* } }
stub! {
    add(h:Half,a:u16,b:u16,m:HalfMode)->u16;
    sub(h:Half,a:u16,b:u16,m:HalfMode)->u16;
    mul(h:Half,a:u16,b:u16,m:HalfMode)->u16;
    fma(h:Half,a:u16,b:u16,c:u16,m:HalfMode)->u16;
    min(h:Half,a:u16,b:u16,q:MinMax)->u16;
    max(h:Half,a:u16,b:u16,q:MinMax)->u16;
    add_x2(h:Half,a:u32,b:u32,m:HalfMode)->u32;
    sub_x2(h:Half,a:u32,b:u32,m:HalfMode)->u32;
    mul_x2(h:Half,a:u32,b:u32,m:HalfMode)->u32;
    fma_x2(h:Half,a:u32,b:u32,c:u32,m:HalfMode)->u32;
    min_x2(h:Half,a:u32,b:u32,q:MinMax)->u32;
    max_x2(h:Half,a:u32,b:u32,q:MinMax)->u32;
}
