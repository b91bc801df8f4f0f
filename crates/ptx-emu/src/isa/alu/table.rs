//! The table of pure register instructions: what is decoded, where the manual defines it, and what its
//! semantics rest on.

use super::{AluInstr, Form, bits, cmp, cvt, float, int, logic, mov, mufu};
use crate::isa::operands::Decoded;

/// What the semantics of an instruction rest on, weakest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// Compared bit for bit with results recorded on a GPU.
    Silicon,
    /// Met in other people's kernels whose results were checked.
    Foreign,
    /// The assembler accepts the forms; the semantics are the manual's.
    Ptxas,
    /// The manual's words alone.
    Manual,
}

/// A family of forms of one mnemonic.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Mnemonic.
    pub mnemonic: &'static str,
    /// Forms in the manual's notation: `{…}` optional, `(a|b)` a choice. Each alternative of the expansion is
    /// decoded by a test.
    pub forms: &'static [&'static str],
    /// Operand kinds, destination first, in the order written.
    pub operands: &'static str,
    /// Section of the PTX ISA manual, version 9.1.
    pub section: &'static str,
    /// Smallest SM version, 0 where every supported target has it.
    pub min_sm: u32,
    /// What the semantics rest on.
    pub evidence: Evidence,
}

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
