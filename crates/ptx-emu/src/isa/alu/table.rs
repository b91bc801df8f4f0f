//! The table of pure register instructions: what is decoded, where the manual defines it, and what its
//! semantics rest on.

use super::{AluInstr, Form, bits, cmp, cvt, float, int, logic, mov, mufu};
use crate::isa::operands::Decoded;

/// What the semantics of an instruction rest on, weakest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// Forms of the row were compared bit for bit with results recorded on a GPU; its other forms differ in a
    /// qualifier.
    Silicon,
    /// Met in other people's kernels whose results were checked.
    Foreign,
    /// NVIDIA's assembler accepts every form (ptxas 13.4, sm_100a; sm_90a too where no `min_sm` stands); the
    /// values are the manual's.
    Ptxas,
    /// As `Ptxas`, but the manual only bounds the error: the bits are this emulator's choice.
    Manual,
}

/// Forms of one mnemonic that share operands, manual section and evidence.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Opcodes in the manual's notation: `{.x}` optional, `(a|b)` a choice. A test decodes every expansion.
    pub form: &'static str,
    /// Operands, destinations first. `T` is a register of the last type, `S` of the last but one, `W` of twice
    /// the last type's size, `u` 32 bits, `h` 16 bits, `b` 8 bits, `p` a predicate, `i` an immediate; `a|b` a pair and `{ab}`
    /// a vector.
    pub operands: &'static str,
    /// Section of the PTX ISA manual, version 9.1.
    pub section: &'static str,
    /// Smallest `sm_` number; 0 where every supported target has it.
    pub min_sm: u32,
    /// What the semantics rest on.
    pub evidence: Evidence,
}

impl Row {
    /// The mnemonic.
    pub fn mnemonic(&self) -> &'static str {
        self.form.split(['.', '{']).next().unwrap_or_default()
    }

    /// All opcodes of the row.
    pub fn opcodes(&self) -> Vec<String> {
        expand(self.form)
    }
}

/// All strings a form stands for.
fn expand(form: &str) -> Vec<String> {
    let Some(at) = form.find(['{', '(']) else { return vec![form.to_string()] };
    let (head, rest) = form.split_at(at);
    let close = if rest.starts_with('{') { '}' } else { ')' };
    let end = rest.find(close).unwrap_or(rest.len() - 1);
    let (inside, tail) = (&rest[1..end], &rest[end + 1..]);
    let mut choices: Vec<&str> = inside.split('|').collect();
    if close == '}' {
        choices.insert(0, "");
    }
    let tails = expand(tail);
    choices.iter().flat_map(|c| tails.iter().map(move |t| format!("{head}{c}{t}"))).collect()
}

const fn row(form: &'static str, operands: &'static str, section: &'static str, evidence: Evidence) -> Row {
    Row { form, operands, section, min_sm: 0, evidence }
}

const fn since(min_sm: u32, r: Row) -> Row {
    Row { min_sm, ..r }
}

use Evidence::{Manual, Ptxas, Silicon};

/// Every form that is decoded.
pub const ROWS: &[Row] = &[
    // Integer arithmetic.
    row("add.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.1", Ptxas),
    row("add.(sat.s32|u16x2|s16x2)", "uuu", "9.7.1.1", Ptxas),
    row("sub.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.2", Ptxas),
    row("sub.sat.s32", "uuu", "9.7.1.2", Ptxas),
    row("mul.(lo|hi).(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.3", Ptxas),
    row("mul.wide.(u16|s16|u32|s32)", "WTT", "9.7.1.3", Ptxas),
    row("mad.(lo|hi).(u16|s16|u32|s32|u64|s64)", "TTTT", "9.7.1.4", Ptxas),
    row("mad.hi.sat.s32", "TTTT", "9.7.1.4", Ptxas),
    row("mad.wide.(u16|s16|u32|s32)", "WTTW", "9.7.1.4", Ptxas),
    row("mul24.(lo|hi).(u32|s32)", "TTT", "9.7.1.5", Ptxas),
    row("mad24.(lo|hi).(u32|s32)", "TTTT", "9.7.1.6", Ptxas),
    row("mad24.hi.sat.s32", "TTTT", "9.7.1.6", Ptxas),
    row("sad.(u16|s16|u32|s32|u64|s64)", "TTTT", "9.7.1.7", Ptxas),
    row("div.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.8", Ptxas),
    row("rem.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.9", Ptxas),
    row("abs.(s16|s32|s64)", "TT", "9.7.1.10", Ptxas),
    row("neg.(s16|s32|s64)", "TT", "9.7.1.11", Ptxas),
    row("min.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.12", Ptxas),
    row("min.(relu.s32|u16x2|s16x2|relu.s16x2)", "uuu", "9.7.1.12", Ptxas),
    row("max.(u16|s16|u32|s32|u64|s64)", "TTT", "9.7.1.13", Ptxas),
    row("max.(relu.s32|u16x2|s16x2|relu.s16x2)", "uuu", "9.7.1.13", Ptxas),
    row("popc.(b32|b64)", "uT", "9.7.1.14", Ptxas),
    row("clz.(b32|b64)", "uT", "9.7.1.15", Ptxas),
    row("bfind{.shiftamt}.(u32|s32|u64|s64)", "uT", "9.7.1.16", Ptxas),
    row("fns.b32", "uuuu", "9.7.1.17", Ptxas),
    row("brev.(b32|b64)", "TT", "9.7.1.18", Ptxas),
    row("bfe.(u32|s32|u64|s64)", "TTuu", "9.7.1.19", Ptxas),
    row("bfi.(b32|b64)", "TTTuu", "9.7.1.20", Ptxas),
    row("szext.(clamp|wrap).(u32|s32)", "TTu", "9.7.1.21", Ptxas),
    row("bmsk.(clamp|wrap).b32", "uuu", "9.7.1.22", Ptxas),
    row("dp4a.(u32|s32).(u32|s32)", "uuuu", "9.7.1.23", Ptxas),
    row("dp2a.(lo|hi).(u32|s32).(u32|s32)", "uuuu", "9.7.1.24", Ptxas),
    // Extended precision.
    row("add.cc.(u32|s32|u64|s64)", "TTT", "9.7.2.1", Ptxas),
    row("addc{.cc}.(u32|s32|u64|s64)", "TTT", "9.7.2.2", Ptxas),
    row("sub.cc.(u32|s32|u64|s64)", "TTT", "9.7.2.3", Ptxas),
    row("subc{.cc}.(u32|s32|u64|s64)", "TTT", "9.7.2.4", Ptxas),
    row("mad.(lo|hi).cc.(u32|s32|u64|s64)", "TTTT", "9.7.2.5", Ptxas),
    row("madc.(lo|hi){.cc}.(u32|s32|u64|s64)", "TTTT", "9.7.2.6", Ptxas),
    // Floating point.
    row("testp.(finite|infinite|number|notanumber|normal|subnormal).(f32|f64)", "pT", "9.7.3.1", Ptxas),
    row("copysign.(f32|f64)", "TTT", "9.7.3.2", Ptxas),
    row("add{.rn|.rz|.rm|.rp}{.ftz}{.sat}.f32", "TTT", "9.7.3.3", Silicon),
    since(100, row("add{.rn|.rz|.rm|.rp}{.ftz}.f32x2", "WWW", "9.7.3.3", Ptxas)),
    row("add{.rn|.rz|.rm|.rp}.f64", "TTT", "9.7.3.3", Ptxas),
    row("sub{.rn|.rz|.rm|.rp}{.ftz}{.sat}.f32", "TTT", "9.7.3.4", Silicon),
    since(100, row("sub{.rn|.rz|.rm|.rp}{.ftz}.f32x2", "WWW", "9.7.3.4", Ptxas)),
    row("sub{.rn|.rz|.rm|.rp}.f64", "TTT", "9.7.3.4", Ptxas),
    row("mul{.rn|.rz|.rm|.rp}{.ftz}{.sat}.f32", "TTT", "9.7.3.5", Silicon),
    since(100, row("mul{.rn|.rz|.rm|.rp}{.ftz}.f32x2", "WWW", "9.7.3.5", Ptxas)),
    row("mul{.rn|.rz|.rm|.rp}.f64", "TTT", "9.7.3.5", Ptxas),
    row("fma.(rn|rz|rm|rp){.ftz}{.sat}.f32", "TTTT", "9.7.3.6", Silicon),
    since(100, row("fma.(rn|rz|rm|rp){.ftz}.f32x2", "WWWW", "9.7.3.6", Ptxas)),
    row("fma.(rn|rz|rm|rp).f64", "TTTT", "9.7.3.6", Ptxas),
    row("mad.(rn|rz|rm|rp){.ftz}{.sat}.f32", "TTTT", "9.7.3.7", Ptxas),
    row("mad.(rn|rz|rm|rp).f64", "TTTT", "9.7.3.7", Ptxas),
    row("div.(approx|full){.ftz}.f32", "TTT", "9.7.3.8", Silicon),
    row("div.(rn|rz|rm|rp){.ftz}.f32", "TTT", "9.7.3.8", Ptxas),
    row("div.(rn|rz|rm|rp).f64", "TTT", "9.7.3.8", Ptxas),
    row("abs{.ftz}.f32", "TT", "9.7.3.9", Ptxas),
    row("abs.f64", "TT", "9.7.3.9", Ptxas),
    row("neg{.ftz}.f32", "TT", "9.7.3.10", Ptxas),
    row("neg.f64", "TT", "9.7.3.10", Ptxas),
    row("min{.ftz}{.NaN}{.xorsign.abs}.f32", "TTT", "9.7.3.11", Silicon),
    since(100, row("min{.ftz}{.NaN}{.abs}.f32", "TTTT", "9.7.3.11", Ptxas)),
    row("min.f64", "TTT", "9.7.3.11", Ptxas),
    row("max{.ftz}{.NaN}{.xorsign.abs}.f32", "TTT", "9.7.3.12", Silicon),
    since(100, row("max{.ftz}{.NaN}{.abs}.f32", "TTTT", "9.7.3.12", Ptxas)),
    row("max.f64", "TTT", "9.7.3.12", Ptxas),
    row("rcp.approx{.ftz}.f32", "TT", "9.7.3.13", Silicon),
    row("rcp.(rn|rz|rm|rp){.ftz}.f32", "TT", "9.7.3.13", Ptxas),
    row("rcp.(rn|rz|rm|rp).f64", "TT", "9.7.3.13", Ptxas),
    row("rcp.approx.ftz.f64", "TT", "9.7.3.14", Manual),
    row("sqrt.approx{.ftz}.f32", "TT", "9.7.3.15", Silicon),
    row("sqrt.(rn|rz|rm|rp){.ftz}.f32", "TT", "9.7.3.15", Ptxas),
    row("sqrt.(rn|rz|rm|rp).f64", "TT", "9.7.3.15", Ptxas),
    row("rsqrt.approx{.ftz}.f32", "TT", "9.7.3.16", Silicon),
    row("rsqrt.approx.ftz.f64", "TT", "9.7.3.17", Manual),
    row("sin.approx{.ftz}.f32", "TT", "9.7.3.18", Manual),
    row("cos.approx{.ftz}.f32", "TT", "9.7.3.19", Manual),
    row("lg2.approx{.ftz}.f32", "TT", "9.7.3.20", Silicon),
    row("ex2.approx{.ftz}.f32", "TT", "9.7.3.21", Silicon),
    row("tanh.approx.f32", "TT", "9.7.3.22", Silicon),
    // Half precision.
    row("add{.rn}{.ftz}{.sat}.(f16|f16x2)", "TTT", "9.7.4.1", Silicon),
    row("add{.rn}.(bf16|bf16x2)", "TTT", "9.7.4.1", Silicon),
    row("sub{.rn}{.ftz}{.sat}.(f16|f16x2)", "TTT", "9.7.4.2", Silicon),
    row("sub{.rn}.(bf16|bf16x2)", "TTT", "9.7.4.2", Silicon),
    row("mul{.rn}{.ftz}{.sat}.(f16|f16x2)", "TTT", "9.7.4.3", Silicon),
    row("mul{.rn}.(bf16|bf16x2)", "TTT", "9.7.4.3", Silicon),
    row("fma.rn{.ftz}{.sat|.relu}.(f16|f16x2)", "TTTT", "9.7.4.4", Silicon),
    row("fma.rn{.relu}.(bf16|bf16x2)", "TTTT", "9.7.4.4", Silicon),
    row("neg{.ftz}.(f16|f16x2)", "TT", "9.7.4.5", Ptxas),
    row("neg.(bf16|bf16x2)", "TT", "9.7.4.5", Ptxas),
    row("abs{.ftz}.(f16|f16x2)", "TT", "9.7.4.6", Ptxas),
    row("abs.(bf16|bf16x2)", "TT", "9.7.4.6", Ptxas),
    row("min{.ftz}{.NaN}{.xorsign.abs}.(f16|f16x2)", "TTT", "9.7.4.7", Silicon),
    row("min{.NaN}{.xorsign.abs}.(bf16|bf16x2)", "TTT", "9.7.4.7", Silicon),
    row("max{.ftz}{.NaN}{.xorsign.abs}.(f16|f16x2)", "TTT", "9.7.4.8", Silicon),
    row("max{.NaN}{.xorsign.abs}.(bf16|bf16x2)", "TTT", "9.7.4.8", Silicon),
    row("tanh.approx.(f16|f16x2|bf16|bf16x2)", "TT", "9.7.4.9", Silicon),
    row("ex2.approx.(f16|f16x2|ftz.bf16|ftz.bf16x2)", "TT", "9.7.4.10", Silicon),
    // Mixed precision.
    since(100, row("add{.rn|.rz|.rm|.rp}{.sat}.f32.(f16|bf16)", "STS", "9.7.5.1", Ptxas)),
    since(100, row("sub{.rn|.rz|.rm|.rp}{.sat}.f32.(f16|bf16)", "STS", "9.7.5.2", Ptxas)),
    since(100, row("fma.(rn|rz|rm|rp){.sat}.f32.(f16|bf16)", "STTS", "9.7.5.3", Ptxas)),
    // Comparison and selection.
    row(
        "set.(eq|ne|lt|le|gt|ge)(|.and|.or|.xor).(u32|s32|f32).(u16|s16|u32|s32|u64|s64)",
        "STTc",
        "9.7.6.1",
        Ptxas,
    ),
    row(
        "set.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(|.and|.or|.xor){.ftz}.(u32|s32|f32).f32",
        "STTc",
        "9.7.6.1",
        Ptxas,
    ),
    row("setp.(eq|ne)(|.and|.or|.xor).(b16|b32|b64)", "p|pTTc", "9.7.6.2", Ptxas),
    row("setp.(eq|ne|lt|le|gt|ge)(|.and|.or|.xor).(u16|s16|u32|s32|u64|s64)", "pTTc", "9.7.6.2", Ptxas),
    row("setp.(lo|ls|hi|hs).(u16|u32|u64)", "pTTc", "9.7.6.2", Ptxas),
    row(
        "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(|.and|.or|.xor){.ftz}.f32",
        "p|pTTc",
        "9.7.6.2",
        Ptxas,
    ),
    row(
        "setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(|.and|.or|.xor).f64",
        "pTTc",
        "9.7.6.2",
        Ptxas,
    ),
    row("selp.(b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64)", "TTTp", "9.7.6.3", Ptxas),
    row("slct.(b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64).s32", "SSST", "9.7.6.4", Ptxas),
    row("slct{.ftz}.(b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64).f32", "SSST", "9.7.6.4", Ptxas),
    row(
        "set.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan){.ftz}.(f16|u16|s16|u32|s32).f16",
        "STTc",
        "9.7.7.1",
        Ptxas,
    ),
    row(
        "set.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).(bf16|u16|s16|u32|s32).bf16",
        "STTc",
        "9.7.7.1",
        Ptxas,
    ),
    row("setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan){.ftz}.f16", "pTTc", "9.7.7.2", Ptxas),
    row("setp.(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan).bf16", "pTTc", "9.7.7.2", Ptxas),
    // Logic and shifts.
    row("and.(pred|b16|b32|b64)", "TTT", "9.7.8.1", Ptxas),
    row("or.(pred|b16|b32|b64)", "TTT", "9.7.8.2", Ptxas),
    row("xor.(pred|b16|b32|b64)", "TTT", "9.7.8.3", Ptxas),
    row("not.(pred|b16|b32|b64)", "TT", "9.7.8.4", Ptxas),
    row("cnot.(b16|b32|b64)", "TT", "9.7.8.5", Ptxas),
    row("lop3.b32", "uuuui", "9.7.8.6", Ptxas),
    row("lop3.(or|and).b32", "u|puuuip", "9.7.8.6", Ptxas),
    row("shf.(l|r).(clamp|wrap).b32", "uuuu", "9.7.8.7", Ptxas),
    row("shl.(b16|b32|b64)", "TTu", "9.7.8.8", Ptxas),
    row("shr.(b16|u16|s16|b32|u32|s32|b64|u64|s64)", "TTu", "9.7.8.9", Ptxas),
    // Moves and conversions.
    row("mov.(pred|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128)", "TT", "9.7.9.3", Ptxas),
    row("mov.b32", "u{hh}", "9.7.9.4", Ptxas),
    row("mov.b32", "{hh}u", "9.7.9.4", Ptxas),
    row("mov.b64", "T{uu}", "9.7.9.4", Ptxas),
    row("mov.b64", "{uu}T", "9.7.9.4", Ptxas),
    row("mov.b64", "T{hhhh}", "9.7.9.4", Ptxas),
    row("mov.b64", "{hhhh}T", "9.7.9.4", Ptxas),
    row("mov.b128", "T{ww}", "9.7.9.4", Ptxas),
    row("mov.b128", "{ww}T", "9.7.9.4", Ptxas),
    row("prmt.b32", "uuuu", "9.7.9.7", Ptxas),
    row("prmt.b32.(f4e|b4e|rc8|ecl|ecr|rc16)", "uuuu", "9.7.9.7", Ptxas),
    row("cvt.(u8|s8|u16|s16|u32|s32|u64|s64).(u8|s8|u16|s16|u32|s32|u64|s64)", "ST", "9.7.9.21", Ptxas),
    row("cvt.sat.(u8|u16|u32|u64).(s8|s16|s32|s64)", "ST", "9.7.9.21", Ptxas),
    row("cvt.sat.(u8.u16|u8.u32|u8.u64|u16.u32|u16.u64|u32.u64)", "ST", "9.7.9.21", Ptxas),
    row("cvt.sat.(s8.s16|s8.s32|s8.s64|s16.s32|s16.s64|s32.s64)", "ST", "9.7.9.21", Ptxas),
    row(
        "cvt.sat.(s8.u8|s8.u16|s8.u32|s8.u64|s16.u16|s16.u32|s16.u64|s32.u32|s32.u64|s64.u64)",
        "ST",
        "9.7.9.21",
        Ptxas,
    ),
    row("cvt.(rni|rzi|rmi|rpi){.ftz}{.sat}.(u16|s16|u32|s32|u64|s64).f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rni|rzi|rmi|rpi){.sat}.(u16|s16|u32|s32|u64|s64).(f16|f64)", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rni|rzi|rmi|rpi).(u16|s16|u32|s32|u64|s64).bf16", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp).(f16|bf16|f32|f64).(u16|s16|u32|s32|u64|s64)", "ST", "9.7.9.21", Ptxas),
    row("cvt{.rni|.rzi|.rmi|.rpi}{.ftz}{.sat}.f32.f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rni|rzi|rmi|rpi).(f16.f16|bf16.bf16|f64.f64)", "ST", "9.7.9.21", Ptxas),
    row("cvt{.ftz}{.sat}.f32.f16", "ST", "9.7.9.21", Ptxas),
    row("cvt{.ftz}.f32.bf16", "ST", "9.7.9.21", Ptxas),
    row("cvt{.ftz}.f64.f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.f64.(f16|bf16)", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp){.ftz}{.sat}.f32.f64", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp).(f16|bf16).f64", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp){.ftz}.f16.f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz)(.relu|.satfinite|.relu.satfinite).(f16|bf16).f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp).bf16.f32", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz|rm|rp).(f16.bf16|bf16.f16)", "ST", "9.7.9.21", Ptxas),
    row("cvt.(rn|rz){.relu}{.satfinite}.(f16x2|bf16x2).f32", "STT", "9.7.9.21", Silicon),
    row("cvt.(rn|rz){.relu}.tf32.f32", "uu", "9.7.9.21", Silicon),
    row("cvt.rna{.satfinite}.tf32.f32", "uu", "9.7.9.21", Silicon),
    since(100, row("cvt.(rn|rz){.relu}.satfinite.tf32.f32", "uu", "9.7.9.21", Ptxas)),
    row("cvt.rn.satfinite{.relu}.(e4m3x2|e5m2x2).f32", "huu", "9.7.9.21", Silicon),
    row("cvt.rn.satfinite{.relu}.(e4m3x2|e5m2x2).f16x2", "hu", "9.7.9.21", Silicon),
    row("cvt.rn{.relu}.f16x2.(e4m3x2|e5m2x2)", "uh", "9.7.9.21", Silicon),
    since(100, row("cvt.rn.satfinite{.relu}.(e2m3x2|e3m2x2).f32", "huu", "9.7.9.21", Ptxas)),
    since(100, row("cvt.rn.satfinite{.relu}.e2m1x2.f32", "buu", "9.7.9.21", Ptxas)),
    since(100, row("cvt.rn{.relu}.f16x2.(e2m3x2|e3m2x2)", "uh", "9.7.9.21", Ptxas)),
    since(100, row("cvt.rn{.relu}.f16x2.e2m1x2", "ub", "9.7.9.21", Ptxas)),
    since(100, row("cvt.(rz|rp){.satfinite}.ue8m0x2.f32", "huu", "9.7.9.21", Ptxas)),
    since(100, row("cvt.(rz|rp){.satfinite}.ue8m0x2.bf16x2", "hu", "9.7.9.21", Ptxas)),
    since(100, row("cvt.rn.bf16x2.ue8m0x2", "uh", "9.7.9.21", Ptxas)),
    row("cvt.pack.sat.(u16|s16).s32", "uuu", "9.7.9.22", Ptxas),
    row("cvt.pack.sat.(u8|s8|u4|s4|u2|s2).s32.b32", "uuuu", "9.7.9.22", Ptxas),
];

pub(super) type Decoder = fn(&mut Form) -> Decoded<Option<AluInstr>>;

/// The decoder of a mnemonic, `None` when it is not a pure register instruction.
pub(super) fn decoder(mnemonic: &str) -> Option<Decoder> {
    Some(match mnemonic {
        "add" | "sub" => int::add_sub,
        "addc" | "subc" => int::addc_subc,
        "mul" => int::mul,
        "mad" | "madc" => int::mad,
        "mul24" | "mad24" => int::mul24,
        "sad" => int::sad,
        "div" | "rem" => int::div_rem,
        "abs" | "neg" => int::abs_neg,
        "min" | "max" => int::min_max,
        "popc" | "clz" | "brev" => bits::count,
        "bfind" => bits::bfind,
        "fns" => bits::fns,
        "bfe" => bits::bfe,
        "bfi" => bits::bfi,
        "szext" => bits::szext,
        "bmsk" => bits::bmsk,
        "prmt" => bits::prmt,
        "dp4a" | "dp2a" => bits::dot,
        "and" | "or" | "xor" => logic::and_or_xor,
        "not" => logic::not,
        "cnot" => logic::cnot,
        "shl" => logic::shl,
        "shr" => logic::shr,
        "shf" => logic::shf,
        "lop3" => logic::lop3,
        "fma" => float::fma,
        "copysign" => float::copysign,
        "testp" => float::testp,
        "rcp" | "sqrt" | "rsqrt" => mufu::roots,
        "ex2" | "lg2" | "sin" | "cos" | "tanh" => mufu::functions,
        "set" => cmp::set,
        "setp" => cmp::setp,
        "selp" => mov::selp,
        "slct" => mov::slct,
        "mov" => mov::mov,
        "cvt" => cvt::cvt,
        _ => return None,
    })
}
