//! The instruction descriptor of tcgen05.mma with block scales: kinds mxf8f6f4, mxf4 and mxf4nvf4.

use super::idesc::{AccType, IdescError, InputType, InstrDesc, Issue};

/// `.kind::` with block scales.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScaledKind {
    /// 8-, 6- and 4-bit floats in 8-bit slots, a ue8m0 factor for 32 elements.
    Mxf8f6f4,
    /// e2m1, two in a byte, a ue8m0 factor for 32 elements.
    Mxf4,
    /// e2m1, two in a byte, ue8m0 or ue4m3 factors for 16 or 32 elements.
    Mxf4nvf4,
}

impl ScaledKind {
    /// From the modifier after `kind::`.
    pub fn from_modifier(m: &str) -> Option<ScaledKind> {
        Some(match m {
            "mxf8f6f4" => ScaledKind::Mxf8f6f4,
            "mxf4" => ScaledKind::Mxf4,
            "mxf4nvf4" => ScaledKind::Mxf4nvf4,
            _ => return None,
        })
    }

    /// K of one instruction.
    pub fn k(self) -> u32 {
        if self == ScaledKind::Mxf8f6f4 { 32 } else { 64 }
    }

    /// Factors of one row in an instruction: `.scale_vec::NX`, or the block size, or the kind's default.
    pub fn factors(self, modifier: Option<&str>) -> Option<u32> {
        let n = match modifier {
            Some("scale_vec::1X") => 1,
            Some("scale_vec::2X") => 2,
            Some("scale_vec::4X") => 4,
            Some("block16") => self.k() / 16,
            Some("block32") => self.k() / 32,
            None if self != ScaledKind::Mxf4nvf4 => self.k() / 32,
            _ => return None,
        };
        let legal = match self {
            ScaledKind::Mxf8f6f4 => n == 1,
            ScaledKind::Mxf4 => n == 2,
            ScaledKind::Mxf4nvf4 => n == 2 || n == 4,
        };
        legal.then_some(n)
    }
}

/// What the descriptor says of the factors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scales {
    /// ue8m0 (powers of two); else ue4m3.
    pub ue8m0: bool,
    /// First byte of A's factors in their cells.
    pub a_id: u32,
    /// First byte of B's factors in their cells.
    pub b_id: u32,
}

/// Decodes and validates `bits` for `kind` with `factors` of a row.
pub fn decode(
    bits: u32,
    kind: ScaledKind,
    factors: u32,
    issue: Issue,
) -> Result<(InstrDesc, Scales), IdescError> {
    let get = |at: u32, len: u32| bits >> at & ((1 << len) - 1);
    let err = |field, value, allowed: &str| Err(IdescError { bits, field, value, allowed: allowed.into() });
    let four_bit = kind != ScaledKind::Mxf8f6f4;
    for (field, at, len) in
        [("bits 0..=3", 0, 4), ("bit 6", 6, 1), ("bits 24..=26", 24, 3), ("bit 31", 31, 1)]
    {
        if get(at, len) != 0 {
            return err(field, get(at, len), "0 (dense matrices of K = 32 or 64)");
        }
    }
    let input = |field, code| match (four_bit, code) {
        (true, 1) => Ok(InputType::E2m1),
        (true, value) => Err(IdescError { bits, field, value, allowed: "1 (E2M1)".into() }),
        (false, 0) => Ok(InputType::E4m3),
        (false, 1) => Ok(InputType::E5m2),
        (false, 3) => Ok(InputType::E2m3),
        (false, 4) => Ok(InputType::E3m2),
        (false, 5) => Ok(InputType::E2m1),
        (false, value) => {
            let allowed = "0 (E4M3), 1 (E5M2), 3 (E2M3), 4 (E3M2), 5 (E2M1)".into();
            Err(IdescError { bits, field, value, allowed })
        }
    };
    let a = input("A type", get(7, 3))?;
    let b = input("B type", if four_bit { get(10, 2) } else { get(10, 3) })?;
    if four_bit && get(15, 2) != 0 {
        return err("transpose A/B", get(15, 2), "0 (4-bit matrices are K-major)");
    }
    let ue8m0 = get(23, 1) != 0;
    if !ue8m0 && (kind != ScaledKind::Mxf4nvf4 || factors != 4) {
        return err("scale type", 0, "1 (UE8M0); UE4M3 is for kind::mxf4nvf4 with 16 elements to a factor");
    }
    let (a_id, b_id) = (get(29, 2), get(4, 2));
    for (field, id) in [("SFA_ID", a_id), ("SFB_ID", b_id)] {
        if id % factors != 0 || id + factors > 4 {
            return err(field, id, &format!("a multiple of the {factors} factors of a row, below 4"));
        }
    }
    let (m, n) = (get(27, 2) << 7, get(17, 6) << 3);
    let step = if issue.cta_pair { 16 } else { 8 };
    if !(m == 128 || m == 256 && issue.cta_pair) {
        return err("M", m, if issue.cta_pair { "128 or 256" } else { "128" });
    }
    if n < step || n > 256 || !n.is_multiple_of(step) {
        return err("N", n, &format!("{step}..=256 in steps of {step}"));
    }
    let desc = InstrDesc {
        d: AccType::F32,
        a,
        b,
        negate_a: get(13, 1) != 0,
        negate_b: get(14, 1) != 0,
        transpose_a: get(15, 1) != 0,
        transpose_b: get(16, 1) != 0,
        saturate: false,
        m,
        n,
        max_shift: 0,
    };
    Ok((desc, Scales { ue8m0, a_id, b_id }))
}
