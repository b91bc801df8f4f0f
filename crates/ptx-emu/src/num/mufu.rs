//! The approximate functions.
use super::Lanes;
macro_rules! stub { ($($n:ident($($a:ident:$t:ty),*)->$r:ty=$v:expr;)*) => { $(
/// stub
pub fn $n($($a:$t),*)->$r { let _=($($a),*,); $v } )* } }
stub! {
    ex2_ftz(x:u32)->u32=0;
    rcp_ftz(x:u32)->u32=0;
    rsqrt_ftz(x:u32)->u32=0;
    sqrt_ftz(x:u32)->u32=0;
    lg2_ftz(x:u32)->u32=0;
    tanh(x:u32)->u32=0;
    sin_ftz(x:u32)->u32=0;
    cos_ftz(x:u32)->u32=0;
    ex2(x:u32)->u32=0;
    rcp(x:u32)->u32=0;
    rsqrt(x:u32)->u32=0;
    sqrt(x:u32)->u32=0;
    lg2(x:u32)->u32=0;
    sin(x:u32)->u32=0;
    cos(x:u32)->u32=0;
    div_approx_ftz(a:u32,b:u32)->u32=0;
    div_approx(a:u32,b:u32)->u32=0;
    div_full_ftz(a:u32,b:u32)->u32=0;
    div_full(a:u32,b:u32)->u32=0;
    ex2_f16(x:u16)->u16=0;
    ex2_bf16(x:u16)->u16=0;
    tanh_f16(x:u16)->u16=0;
    tanh_bf16(x:u16)->u16=0;
    ex2_f16x2(x:u32)->u32=0;
    ex2_bf16x2(x:u32)->u32=0;
    tanh_f16x2(x:u32)->u32=0;
    tanh_bf16x2(x:u32)->u32=0;
    ex2_ftz32(x:&Lanes)->Lanes=[0;32];
    rcp_ftz32(x:&Lanes)->Lanes=[0;32];
    lg2_ftz32(x:&Lanes)->Lanes=[0;32];
}
