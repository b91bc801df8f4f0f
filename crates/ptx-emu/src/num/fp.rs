//! IEEE f32 and f64 arithmetic with PTX's qualifiers.
use super::{Lanes, Round};

/// Qualifiers of an f32 arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Mode {
    /// Rounding of the result.
    pub round: Round,
    /// `.ftz`: subnormal inputs and results become zeros of the same sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes +0.
    pub sat: bool,
}

/// Qualifiers of `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MinMax {
    /// `.NaN`: a NaN operand makes the result NaN (else it is ignored).
    pub nan: bool,
    /// `.ftz`
    pub ftz: bool,
    /// `.xorsign.abs`: compares magnitudes; the result's sign is the xor of the operands' signs.
    pub xorsign_abs: bool,
    /// `.abs` alone (three-input forms): compares and returns magnitudes.
    pub abs: bool,
}

macro_rules! stub { ($($n:ident($($a:ident:$t:ty),*)->$r:ty = $v:expr;)*) => { $(
/// stub
pub fn $n($($a:$t),*)->$r { let _=($($a),*,); $v } )* } }
stub! {
    add(a:u32,b:u32,m:Mode)->u32=0;
    sub(a:u32,b:u32,m:Mode)->u32=0;
    mul(a:u32,b:u32,m:Mode)->u32=0;
    fma(a:u32,b:u32,c:u32,m:Mode)->u32=0;
    div(a:u32,b:u32,m:Mode)->u32=0;
    rcp(a:u32,m:Mode)->u32=0;
    sqrt(a:u32,m:Mode)->u32=0;
    neg(a:u32,ftz:bool)->u32=0;
    abs(a:u32,ftz:bool)->u32=0;
    min(a:u32,b:u32,q:MinMax)->u32=0;
    max(a:u32,b:u32,q:MinMax)->u32=0;
    min3(a:u32,b:u32,c:u32,q:MinMax)->u32=0;
    max3(a:u32,b:u32,c:u32,q:MinMax)->u32=0;
    add64(a:u64,b:u64,r:Round)->u64=0;
    sub64(a:u64,b:u64,r:Round)->u64=0;
    mul64(a:u64,b:u64,r:Round)->u64=0;
    fma64(a:u64,b:u64,c:u64,r:Round)->u64=0;
    div64(a:u64,b:u64,r:Round)->u64=0;
    rcp64(a:u64,r:Round)->u64=0;
    sqrt64(a:u64,r:Round)->u64=0;
    min64(a:u64,b:u64)->u64=0;
    max64(a:u64,b:u64)->u64=0;
    add32(a:&Lanes,b:&Lanes,m:Mode)->Lanes=[0;32];
    sub32(a:&Lanes,b:&Lanes,m:Mode)->Lanes=[0;32];
    mul32(a:&Lanes,b:&Lanes,m:Mode)->Lanes=[0;32];
    fma32(a:&Lanes,b:&Lanes,c:&Lanes,m:Mode)->Lanes=[0;32];
    min32(a:&Lanes,b:&Lanes,q:MinMax)->Lanes=[0;32];
    max32(a:&Lanes,b:&Lanes,q:MinMax)->Lanes=[0;32];
}
/// `add.rn{.ftz}.f32` (as sub, mul, fma below)
pub fn add_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    let _ = (a, b);
    [0; 32]
}
/// stub
pub fn sub_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    let _ = (a, b);
    [0; 32]
}
/// stub
pub fn mul_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes) -> Lanes {
    let _ = (a, b);
    [0; 32]
}
/// stub
pub fn fma_rn32<const FTZ: bool>(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    let _ = (a, b, c);
    [0; 32]
}
