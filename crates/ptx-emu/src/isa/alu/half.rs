//! Arithmetic of `.f16`, `.bf16` and their packed forms.

use super::lanes::lane_fn;
use super::{AluClass, AluFn, AluInstr, Form, shadow};
use crate::isa::operands::Decoded;
use crate::num::fp::MinMax;
use crate::num::half::{self, Half, HalfMode};
use crate::syntax::ast::Ty;

type D = Decoded<Option<AluInstr>>;

const FTZ: u64 = 1;
const SAT: u64 = 2;
const RELU: u64 = 4;
const NAN: u64 = 8;
const XORSIGN: u64 = 16;

#[inline(always)]
fn mode(imm: u64) -> HalfMode {
    HalfMode { ftz: imm & FTZ != 0, sat: imm & SAT != 0, relu: imm & RELU != 0 }
}

#[inline(always)]
fn min_max_mode(imm: u64) -> MinMax {
    MinMax { nan: imm & NAN != 0, ftz: imm & FTZ != 0, xorsign_abs: imm & XORSIGN != 0, abs: false }
}

/// One operation in its four types.
macro_rules! four {
    ($ty:expr; 1, $f:ident, $mode:ident) => {
        match $ty {
            Ty::F16 => lane_fn!(m; |a: u16| -> u16 { half::$f(Half::F16, a, $mode(m)) }),
            Ty::BF16 => lane_fn!(m; |a: u16| -> u16 { half::$f(Half::Bf16, a, $mode(m)) }),
            Ty::F16x2 => lane_fn!(m; |a: u32| -> u32 {
                half::map_x2([a], |[a]| half::$f(Half::F16, a, $mode(m)))
            }, shadow::halves),
            _ => lane_fn!(m; |a: u32| -> u32 {
                half::map_x2([a], |[a]| half::$f(Half::Bf16, a, $mode(m)))
            }, shadow::halves),
        }
    };
    ($ty:expr; 2, $f:ident, $mode:ident) => {
        match $ty {
            Ty::F16 => lane_fn!(m; |a: u16, b: u16| -> u16 { half::$f(Half::F16, a, b, $mode(m)) }),
            Ty::BF16 => lane_fn!(m; |a: u16, b: u16| -> u16 { half::$f(Half::Bf16, a, b, $mode(m)) }),
            Ty::F16x2 => lane_fn!(m; |a: u32, b: u32| -> u32 {
                half::map_x2([a, b], |[a, b]| half::$f(Half::F16, a, b, $mode(m)))
            }, shadow::halves),
            _ => lane_fn!(m; |a: u32, b: u32| -> u32 {
                half::map_x2([a, b], |[a, b]| half::$f(Half::Bf16, a, b, $mode(m)))
            }, shadow::halves),
        }
    };
    ($ty:expr; 3, $f:ident, $mode:ident) => {
        match $ty {
            Ty::F16 => lane_fn!(m; |a: u16, b: u16, c: u16| -> u16 { half::$f(Half::F16, a, b, c, $mode(m)) }),
            Ty::BF16 => lane_fn!(m; |a: u16, b: u16, c: u16| -> u16 { half::$f(Half::Bf16, a, b, c, $mode(m)) }),
            Ty::F16x2 => lane_fn!(m; |a: u32, b: u32, c: u32| -> u32 {
                half::map_x2([a, b, c], |[a, b, c]| half::$f(Half::F16, a, b, c, $mode(m)))
            }, shadow::halves),
            _ => lane_fn!(m; |a: u32, b: u32, c: u32| -> u32 {
                half::map_x2([a, b, c], |[a, b, c]| half::$f(Half::Bf16, a, b, c, $mode(m)))
            }, shadow::halves),
        }
    };
}

#[inline(always)]
fn ftz(imm: u64) -> bool {
    imm & FTZ != 0
}

/// `add`, `sub`, `mul`, `fma`, `min`, `max`, `neg`, `abs`.
pub fn arith(c: &mut Form) -> D {
    let ty = c.ty()?;
    let f16 = matches!(ty, Ty::F16 | Ty::F16x2);
    let name = c.op.mnemonic.clone();
    let mut imm = 0;
    // `.ftz` and `.sat` exist for half precision only.
    if f16 && c.flag("ftz") {
        imm |= FTZ;
    }
    let (f, n): (AluFn, usize) = match name.as_str() {
        "add" | "sub" | "mul" => {
            c.flag("rn");
            if f16 && c.flag("sat") {
                imm |= SAT;
            }
            let f = match name.as_str() {
                "add" => four!(ty; 2, add, mode),
                "sub" => four!(ty; 2, sub, mode),
                _ => four!(ty; 2, mul, mode),
            };
            (f, 3)
        }
        "fma" => {
            if !c.flag("rn") {
                return c.no("needs .rn");
            }
            if f16 && c.flag("sat") {
                imm |= SAT;
            } else if c.flag("relu") {
                imm |= RELU;
            }
            (four!(ty; 3, fma, mode), 4)
        }
        "min" | "max" => {
            if c.flag("NaN") {
                imm |= NAN;
            }
            if c.flag("xorsign") {
                if !c.flag("abs") {
                    return c.no(".xorsign goes with .abs");
                }
                imm |= XORSIGN;
            }
            let f =
                if name == "min" { four!(ty; 2, min, min_max_mode) } else { four!(ty; 2, max, min_max_mode) };
            (f, 3)
        }
        "neg" => (four!(ty; 1, neg, ftz), 2),
        "abs" => (four!(ty; 1, abs, ftz), 2),
        _ => return c.no("not defined for this type"),
    };
    c.operands(&vec![ty; n])?;
    c.done(f, imm, AluClass::Fp16)
}
