//! The 32-bit instruction descriptor of tcgen05.mma, kinds f16, tf32, f8f6f4 and i8 (dense).

use thiserror::Error;

/// `.kind::` of a tcgen05.mma without block scaling.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// f16 and bf16 inputs.
    F16,
    /// tf32 inputs.
    Tf32,
    /// 8-, 6- and 4-bit floating inputs in any mix.
    F8f6f4,
    /// 8-bit integers.
    I8,
}

impl Kind {
    /// From the modifier after `kind::`.
    pub fn from_modifier(m: &str) -> Option<Kind> {
        Some(match m {
            "f16" => Kind::F16,
            "tf32" => Kind::Tf32,
            "f8f6f4" => Kind::F8f6f4,
            "i8" => Kind::I8,
            _ => return None,
        })
    }

    /// K of one instruction.
    pub fn k(self) -> u32 {
        match self {
            Kind::F16 => 16,
            Kind::Tf32 => 8,
            Kind::F8f6f4 | Kind::I8 => 32,
        }
    }

    /// Bits of an element's slot in shared memory and in TMEM (8 for the padded small types).
    pub fn slot_bits(self) -> u32 {
        256 / self.k()
    }
}

/// Type of the accumulator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum AccType {
    F16,
    F32,
    S32,
}

/// Type of A or B.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum InputType {
    F16,
    BF16,
    Tf32,
    E4m3,
    E5m2,
    E2m3,
    E3m2,
    E2m1,
    U8,
    S8,
}

/// How the instruction is issued: what else decides which shapes are legal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Issue {
    /// `.cta_group::2`.
    pub cta_pair: bool,
    /// `.ws`.
    pub ws: bool,
}

/// A decoded, legal instruction descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InstrDesc {
    /// Accumulator type.
    pub d: AccType,
    /// Type of A.
    pub a: InputType,
    /// Type of B.
    pub b: InputType,
    /// A is negated.
    pub negate_a: bool,
    /// B is negated.
    pub negate_b: bool,
    /// A is M-major in shared memory.
    pub transpose_a: bool,
    /// B is N-major in shared memory.
    pub transpose_b: bool,
    /// Saturate the s32 result (kind i8).
    pub saturate: bool,
    /// M of the whole instruction (both CTAs of a pair).
    pub m: u32,
    /// N.
    pub n: u32,
    /// Maximum B column shift of `.ws`: 0, 8, 16 or 32.
    pub max_shift: u32,
}

/// A field with a value that the instruction does not allow.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("instruction descriptor 0x{bits:08x}: {field} is {value}; allowed is {allowed}")]
pub struct IdescError {
    /// The descriptor.
    pub bits: u32,
    /// Field, in the manual's words.
    pub field: &'static str,
    /// Its value (M and N as numbers, the rest as coded).
    pub value: u32,
    /// What may stand there.
    pub allowed: String,
}

/// Decodes and validates `bits` for `kind`.
pub fn decode(bits: u32, kind: Kind, issue: Issue) -> Result<InstrDesc, IdescError> {
    use Kind::*;
    let get = |at: u32, len: u32| bits >> at & ((1 << len) - 1);
    let err = |field, value, allowed: &str| Err(IdescError { bits, field, value, allowed: allowed.into() });

    for (field, at, len) in [("bit 6", 6, 1), ("bit 23", 23, 1), ("bit 29", 29, 1)] {
        if get(at, len) != 0 {
            return err(field, get(at, len), "0 (reserved)");
        }
    }
    if get(2, 1) != 0 {
        return err("sparsity", 1, "0 (dense; sparse matrices are not supported)");
    }
    if get(0, 2) != 0 {
        return err("sparsity selector", get(0, 2), "0 for a dense matrix");
    }
    if get(3, 1) != 0 && kind != I8 {
        return err("saturate", 1, "0 (1 only for kind::i8)");
    }
    let d = match (kind, get(4, 2)) {
        (F16 | F8f6f4, 0) => AccType::F16,
        (F16 | F8f6f4 | Tf32, 1) => AccType::F32,
        (I8, 2) => AccType::S32,
        (F16 | F8f6f4, v) => return err("D type", v, "0 (F16), 1 (F32)"),
        (Tf32, v) => return err("D type", v, "1 (F32)"),
        (I8, v) => return err("D type", v, "2 (S32)"),
    };
    let input = |field, code| match (kind, code) {
        (F16, 0) => Ok(InputType::F16),
        (F16, 1) => Ok(InputType::BF16),
        (Tf32, 2) => Ok(InputType::Tf32),
        (F8f6f4, 0) => Ok(InputType::E4m3),
        (F8f6f4, 1) => Ok(InputType::E5m2),
        (F8f6f4, 3) => Ok(InputType::E2m3),
        (F8f6f4, 4) => Ok(InputType::E3m2),
        (F8f6f4, 5) => Ok(InputType::E2m1),
        (I8, 0) => Ok(InputType::U8),
        (I8, 1) => Ok(InputType::S8),
        (kind, value) => {
            let allowed = match kind {
                F16 => "0 (F16), 1 (BF16)",
                Tf32 => "2 (TF32)",
                F8f6f4 => "0 (E4M3), 1 (E5M2), 3 (E2M3), 4 (E3M2), 5 (E2M1)",
                I8 => "0 (U8), 1 (S8)",
            };
            Err(IdescError { bits, field, value, allowed: allowed.into() })
        }
    };
    let a = input("A type", get(7, 3))?;
    let b = input("B type", get(10, 3))?;
    if d == AccType::F16 && kind == F16 && (a, b) != (InputType::F16, InputType::F16) {
        return err("D type", 0, "1 (F32) with BF16 inputs");
    }
    if get(13, 2) != 0 && kind == I8 {
        return err("negate A/B", get(13, 2), "0 for kind::i8");
    }
    let transpose_b = get(16, 1) != 0;
    let max_shift = get(30, 2);
    if max_shift != 0 && !issue.ws {
        return err("maximum B shift", max_shift, "0 (only .ws shifts)");
    }

    let (n, m) = (get(17, 6) << 3, get(24, 5) << 4);
    let ms = legal_m(issue);
    if !ms.contains(&m) {
        return err("M", m, &format!("one of {ms:?} ({})", issue.name()));
    }
    let (ok, allowed) = legal_n(n, kind, issue, transpose_b);
    if !ok {
        return err("N", n, &format!("{allowed} ({})", issue.name()));
    }
    Ok(InstrDesc {
        d,
        a,
        b,
        negate_a: get(13, 1) != 0,
        negate_b: get(14, 1) != 0,
        transpose_a: get(15, 1) != 0,
        transpose_b,
        saturate: get(3, 1) != 0,
        m,
        n,
        max_shift: [0, 8, 16, 32][max_shift as usize],
    })
}

impl Issue {
    fn name(self) -> &'static str {
        match (self.ws, self.cta_pair) {
            (true, _) => ".ws",
            (_, true) => ".cta_group::2",
            _ => ".cta_group::1",
        }
    }
}

fn legal_m(issue: Issue) -> &'static [u32] {
    match (issue.ws, issue.cta_pair) {
        (true, _) => &[32, 64, 128],
        (_, true) => &[128, 256],
        _ => &[64, 128],
    }
}

/// Legality of `n`, and the rule in words.
fn legal_n(n: u32, kind: Kind, issue: Issue, transpose_b: bool) -> (bool, &'static str) {
    let stepped = |from: u32, step: u32| n >= from && n <= 256 && n.is_multiple_of(step);
    let eight_bit = kind.slot_bits() == 8;
    if issue.ws {
        return (matches!(n, 64 | 128 | 256), "64, 128 or 256");
    }
    match (issue.cta_pair, kind) {
        (true, Kind::I8) => (stepped(32, 32), "32..=256 in steps of 32"),
        (true, _) if eight_bit && transpose_b => {
            (stepped(32, 32), "32..=256 in steps of 32 for an N-major B")
        }
        (true, _) => (stepped(16, 16), "16..=256 in steps of 16"),
        (false, _) if eight_bit && transpose_b => {
            (stepped(16, 16), "16..=256 in steps of 16 for an N-major B")
        }
        (false, Kind::I8) => (matches!(n, 8 | 24) || stepped(16, 16), "8, 24 or 16..=256 in steps of 16"),
        (false, _) => (stepped(8, 8), "8..=256 in steps of 8"),
    }
}

impl InstrDesc {
    /// With A in TMEM, libraries keep N to a coarser step than the manual's table (16 for M=128 in one CTA, 32
    /// in a pair). Returns that step where `n` breaks it: worth a remark, not a fault.
    pub fn coarser_n_step(&self, issue: Issue) -> Option<u32> {
        let step = match (issue.cta_pair, self.m) {
            (true, _) => 32,
            (false, 128) => 16,
            _ => 8,
        };
        (!issue.ws && !self.n.is_multiple_of(step)).then_some(step)
    }
}
