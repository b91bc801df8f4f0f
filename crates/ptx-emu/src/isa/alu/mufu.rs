//! Division, roots and the functions of the special function unit.

use super::float::{round_bits, round_of, rounding};
use super::lanes::{batch_fn, lane_fn, run_batch};
use super::{AluClass, AluFn, AluInstr, Form, shadow};
use crate::isa::operands::Decoded;
use crate::num::fp::{self, Mode};
use crate::num::mufu;
use crate::syntax::ast::Ty;

type D = Decoded<Option<AluInstr>>;

const FTZ: u64 = 4;

#[inline(always)]
fn mode(imm: u64) -> Mode {
    Mode { round: round_of(imm), ftz: imm & FTZ != 0, sat: false }
}

/// `div` of `.f32` and `.f64` (the type is already read).
pub fn div(c: &mut Form, ty: Ty) -> D {
    let approx = c.one_of(&["approx", "full"]);
    let round = rounding(c);
    let ftz = c.flag("ftz");
    let f = match (approx, round, ty, ftz) {
        (Some("approx"), None, Ty::F32, true) => {
            lane_fn!(|a: u32, b: u32| -> u32 { mufu::div_approx_ftz(a, b) })
        }
        (Some("approx"), None, Ty::F32, false) => {
            lane_fn!(|a: u32, b: u32| -> u32 { mufu::div_approx(a, b) })
        }
        (Some("full"), None, Ty::F32, true) => lane_fn!(|a: u32, b: u32| -> u32 { mufu::div_full_ftz(a, b) }),
        (Some("full"), None, Ty::F32, false) => lane_fn!(|a: u32, b: u32| -> u32 { mufu::div_full(a, b) }),
        (None, Some(_), Ty::F32, _) => lane_fn!(imm; |a: u32, b: u32| -> u32 { fp::div(a, b, mode(imm)) }),
        (None, Some(_), Ty::F64, false) => {
            lane_fn!(imm; |a: u64, b: u64| -> u64 { fp::div64(a, b, round_of(imm)) })
        }
        _ => return c.no("needs one of .approx, .full (both .f32) or a rounding"),
    };
    let imm = round_bits(round.unwrap_or_default()) | if ftz { FTZ } else { 0 };
    c.operands(&[ty; 3])?;
    c.done(f, imm, if ty == Ty::F64 { AluClass::Fp64 } else { AluClass::Mufu })
}

/// A function of whole registers.
macro_rules! batch1 {
    ($f:path) => {
        (|rf, op, mask| run_batch::<1>(rf, op, mask, |[x]| $f(x))) as AluFn
    };
}

/// A function of single lanes.
macro_rules! each {
    ($f:path) => {
        lane_fn!(|a: u32| -> u32 { $f(a) })
    };
}

/// `rcp`, `sqrt`, `rsqrt`.
pub fn roots(c: &mut Form) -> D {
    let ty = c.ty()?;
    let approx = c.flag("approx");
    let round = rounding(c);
    let ftz = c.flag("ftz");
    let f = match (c.op.mnemonic.as_str(), ty, approx, round.is_some(), ftz) {
        ("rcp", Ty::F32, true, false, true) => batch1!(mufu::rcp_ftz32),
        ("rcp", Ty::F32, true, false, false) => each!(mufu::rcp),
        ("rcp", Ty::F32, false, true, _) => lane_fn!(imm; |a: u32| -> u32 { fp::rcp(a, mode(imm)) }),
        ("rcp", Ty::F64, false, true, false) => {
            lane_fn!(imm; |a: u64| -> u64 { fp::rcp64(a, round_of(imm)) })
        }
        ("rcp", Ty::F64, true, false, true) => lane_fn!(|a: u64| -> u64 { mufu::rcp_ftz64(a) }),
        ("sqrt", Ty::F32, true, false, true) => each!(mufu::sqrt_ftz),
        ("sqrt", Ty::F32, true, false, false) => each!(mufu::sqrt),
        ("sqrt", Ty::F32, false, true, _) => lane_fn!(imm; |a: u32| -> u32 { fp::sqrt(a, mode(imm)) }),
        ("sqrt", Ty::F64, false, true, false) => {
            lane_fn!(imm; |a: u64| -> u64 { fp::sqrt64(a, round_of(imm)) })
        }
        ("rsqrt", Ty::F32, true, false, true) => each!(mufu::rsqrt_ftz),
        ("rsqrt", Ty::F32, true, false, false) => each!(mufu::rsqrt),
        ("rsqrt", Ty::F64, true, false, true) => {
            lane_fn!(|a: u64| -> u64 { mufu::rsqrt_ftz64(a) })
        }
        _ => return c.no("not a form of this function"),
    };
    c.operands(&[ty, ty])?;
    let imm = round_bits(round.unwrap_or_default()) | if ftz { FTZ } else { 0 };
    c.done(f, imm, if ty == Ty::F64 { AluClass::Fp64 } else { AluClass::Mufu })
}

/// `ex2`, `lg2`, `sin`, `cos`, `tanh`.
pub fn functions(c: &mut Form) -> D {
    let ty = c.ty()?;
    if !c.flag("approx") {
        return c.no("needs .approx");
    }
    let ftz = c.flag("ftz");
    let f = match (c.op.mnemonic.as_str(), ty, ftz) {
        ("ex2", Ty::F32, true) => batch_fn!(run_batch, 1; |w, x| mufu::ex2_ftz_lanes(w, x[0])),
        ("ex2", Ty::F32, false) => batch_fn!(run_batch, 1; |w, x| mufu::ex2_lanes(w, x[0])),
        ("lg2", Ty::F32, true) => batch1!(mufu::lg2_ftz32),
        ("lg2", Ty::F32, false) => each!(mufu::lg2),
        ("sin", Ty::F32, true) => each!(mufu::sin_ftz),
        ("sin", Ty::F32, false) => each!(mufu::sin),
        ("cos", Ty::F32, true) => each!(mufu::cos_ftz),
        ("cos", Ty::F32, false) => each!(mufu::cos),
        ("tanh", Ty::F32, false) => each!(mufu::tanh),
        ("ex2", Ty::F16, false) => lane_fn!(|a: u16| -> u16 { mufu::ex2_f16(a) }),
        ("ex2", Ty::F16x2, false) => lane_fn!(|a: u32| -> u32 { mufu::ex2_f16x2(a) }, shadow::halves),
        ("ex2", Ty::BF16, true) => lane_fn!(|a: u16| -> u16 { mufu::ex2_bf16(a) }),
        ("ex2", Ty::BF16x2, true) => lane_fn!(|a: u32| -> u32 { mufu::ex2_bf16x2(a) }, shadow::halves),
        ("tanh", Ty::F16, false) => lane_fn!(|a: u16| -> u16 { mufu::tanh_f16(a) }),
        ("tanh", Ty::F16x2, false) => lane_fn!(|a: u32| -> u32 { mufu::tanh_f16x2(a) }, shadow::halves),
        ("tanh", Ty::BF16, false) => lane_fn!(|a: u16| -> u16 { mufu::tanh_bf16(a) }),
        ("tanh", Ty::BF16x2, false) => lane_fn!(|a: u32| -> u32 { mufu::tanh_bf16x2(a) }, shadow::halves),
        _ => return c.no("not a form of this function"),
    };
    c.operands(&[ty, ty])?;
    c.done(f, 0, AluClass::Mufu)
}
