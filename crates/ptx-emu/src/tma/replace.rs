//! `tensormap.replace`: edits one field of a tensor map in memory, in PTX's numbering.

use super::tensor_map::{ElemType, word};
use thiserror::Error;

/// Field of `tensormap.replace.tile`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    /// `.global_address` (b64).
    GlobalAddress,
    /// `.rank`: rank − 1.
    Rank,
    /// `.box_dim` with an ordinal.
    BoxDim,
    /// `.global_dim` with an ordinal.
    GlobalDim,
    /// `.global_stride` with an ordinal (0 = dimension 1), in bytes (b64).
    GlobalStride,
    /// `.element_stride` with an ordinal.
    ElementStride,
    /// `.elemtype` (immediate).
    ElemType,
    /// `.interleave_layout` (immediate).
    InterleaveLayout,
    /// `.swizzle_mode` (immediate).
    SwizzleMode,
    /// `.swizzle_atomicity` (immediate).
    SwizzleAtomicity,
    /// `.fill_mode` (immediate).
    FillMode,
}

impl Field {
    /// From the modifier, without its dot.
    pub fn from_modifier(m: &str) -> Option<Field> {
        Some(match m {
            "global_address" => Field::GlobalAddress,
            "rank" => Field::Rank,
            "box_dim" => Field::BoxDim,
            "global_dim" => Field::GlobalDim,
            "global_stride" => Field::GlobalStride,
            "element_stride" => Field::ElementStride,
            "elemtype" => Field::ElemType,
            "interleave_layout" => Field::InterleaveLayout,
            "swizzle_mode" => Field::SwizzleMode,
            "swizzle_atomicity" => Field::SwizzleAtomicity,
            "fill_mode" => Field::FillMode,
            _ => return None,
        })
    }
}

/// Why a field cannot take a value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ReplaceError {
    /// A value the field cannot hold.
    #[error("tensormap.replace of {field:?}: {value} is not allowed; allowed is {allowed}")]
    Value {
        /// The field.
        field: Field,
        /// The value.
        value: u64,
        /// What may stand there.
        allowed: &'static str,
    },
    /// An ordinal past the last dimension.
    #[error("tensormap.replace of {field:?}: ordinal {ordinal} is outside 0..={last}")]
    Ordinal {
        /// The field.
        field: Field,
        /// The ordinal.
        ordinal: u32,
        /// The largest.
        last: u32,
    },
    /// Legal PTX whose place in the map is not known.
    #[error("tensormap.replace of {field:?}: value {value} ({what}) is not supported")]
    Unsupported {
        /// The field.
        field: Field,
        /// The value.
        value: u64,
        /// What it means.
        what: &'static str,
    },
}

/// Writes `value` into `field` (dimension `ordinal` where the field has one, else 0).
pub fn replace(map: &mut [u8; 128], field: Field, ordinal: u32, value: u64) -> Result<(), ReplaceError> {
    let last = match field {
        Field::BoxDim | Field::GlobalDim | Field::ElementStride => 4,
        Field::GlobalStride => 3,
        _ => 0,
    };
    if ordinal > last {
        return Err(ReplaceError::Ordinal { field, ordinal, last });
    }
    let within =
        |ok: bool, allowed| if ok { Ok(()) } else { Err(ReplaceError::Value { field, value, allowed }) };
    let unsupported = |what| Err(ReplaceError::Unsupported { field, value, what });
    let j = ordinal as usize;
    match field {
        Field::GlobalAddress => {
            within(value.is_multiple_of(16), "a multiple of 16")?;
            map[..8].copy_from_slice(&value.to_le_bytes());
        }
        Field::Rank => {
            within(value <= 4, "0..=4 (the rank minus 1)")?;
            put_bits(map, 68, 3, value);
        }
        Field::BoxDim => {
            within((1..=256).contains(&value), "1..=256")?;
            map[55 + j] = (value - 1) as u8;
        }
        Field::GlobalDim => {
            within((1..1 << 32).contains(&value), "1..2^32")?;
            put_bits(map, 256 + 32 * j, 32, value - 1);
        }
        Field::GlobalStride => {
            within(value.is_multiple_of(16) && value < 1 << 40, "a multiple of 16 below 2^40")?;
            put_bits(map, 96 + 32 * j, 32, value >> 4 & 0xffff_ffff);
            put_bits(map, 224 + 4 * j, 4, value >> 36);
        }
        Field::ElementStride => {
            within((1..=8).contains(&value), "1..=8")?;
            put_bits(map, 416 + 3 * j, 3, value - 1);
        }
        Field::ElemType => {
            within(value <= 15, "0..=15")?;
            let Some(elem) = ElemType::from_ptx(value as u32) else {
                return unsupported("a packed 4- or 6-bit type");
            };
            let (code, tf32) = elem.bits();
            put_bits(map, 71, 4, u64::from(code));
            put_bits(map, 80, 1, u64::from(tf32));
        }
        Field::InterleaveLayout => {
            within(value <= 2, "0 (none), 1 (16B), 2 (32B)")?;
            put_bits(map, 75, 2, value);
        }
        Field::SwizzleMode => {
            within(value <= 4, "0..=4")?;
            if value == 4 {
                return unsupported("96B, sm_103a only");
            }
            put_bits(map, 77, 2, value);
        }
        Field::SwizzleAtomicity => {
            within(value <= 3, "0..=3")?;
            if value != 0 {
                return unsupported("an atom other than 16B, whose place in the map is unknown");
            }
        }
        Field::FillMode => {
            within(value <= 1, "0 (zero), 1 (NaN)")?;
            put_bits(map, 79, 1, value);
        }
    }
    Ok(())
}

/// Sets `len` bits from bit `at`; the run must lie within one aligned 32-bit word.
fn put_bits(map: &mut [u8; 128], at: usize, len: usize, value: u64) {
    let (byte, shift) = (at / 32 * 4, at % 32);
    let mask = (((1u64 << len) - 1) << shift) as u32;
    let w = word(map, byte) & !mask | (value as u32) << shift & mask;
    map[byte..byte + 4].copy_from_slice(&w.to_le_bytes());
}
