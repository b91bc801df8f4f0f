//! Conversions (`cvt`).
use super::half::Half;
use super::{Lanes, Round};

/// Integer types a conversion can have on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// 8, 16, 32 or 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
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

macro_rules! stub { ($($n:ident($($a:ident:$t:ty),*)->$r:ty=$v:expr;)*) => { $(
/// stub
pub fn $n($($a:$t),*)->$r { let _=($($a),*,); $v } )* } }
stub! {
    f32_to_half(h:Half,x:u32,r:Round,fit:Fit)->u16=0;
    half_to_f32(h:Half,x:u16)->u32=0;
    f32x2_to_half_x2(h:Half,hi:u32,lo:u32,r:Round,fit:Fit)->u32=0;
    f32_to_tf32(x:u32,r:TfRound,fit:Fit)->u32=0;
    f32_to_tiny(t:Tiny,x:u32,relu:bool)->u8=0;
    f32x2_to_tiny_x2(t:Tiny,hi:u32,lo:u32,relu:bool)->u16=0;
    f16x2_to_tiny_x2(t:Tiny,x:u32,relu:bool)->u16=0;
    bf16x2_to_tiny_x2(t:Tiny,x:u32,relu:bool)->u16=0;
    tiny_to_f16(t:Tiny,x:u8,relu:bool)->u16=0;
    tiny_x2_to_f16x2(t:Tiny,x:u16,relu:bool)->u32=0;
    f32_to_ue8m0(x:u32,r:Round,satfinite:bool)->u8=0;
    ue8m0_to_bf16(x:u8)->u16=0;
    f32_to_f64(x:u32,ftz:bool)->u64=0;
    f64_to_f32(x:u64,r:Round,ftz:bool,sat:bool)->u32=0;
    f64_to_half(h:Half,x:u64,r:Round)->u16=0;
    f32_round(x:u32,r:Round,ftz:bool,sat:bool)->u32=0;
    f64_round(x:u64,r:Round)->u64=0;
    half_round(h:Half,x:u16,r:Round)->u16=0;
    f32_to_int(x:u32,to:Int,r:Round,ftz:bool)->u64=0;
    f64_to_int(x:u64,to:Int,r:Round)->u64=0;
    half_to_int(h:Half,x:u16,to:Int,r:Round)->u64=0;
    int_to_f32(x:u64,from:Int,r:Round)->u32=0;
    int_to_f64(x:u64,from:Int,r:Round)->u64=0;
    int_to_half(h:Half,x:u64,from:Int,r:Round)->u16=0;
    int_to_int(x:u64,from:Int,to:Int,sat:bool)->u64=0;
    bf16x2_rn32(hi:&Lanes,lo:&Lanes)->Lanes=[0;32];
    f16x2_rn32(hi:&Lanes,lo:&Lanes)->Lanes=[0;32];
}
