//! The 128-byte tensor map as the hardware reads it.
//!
//! | bits (little-endian) | field |
//! |---|---|
//! | 0–63 | global address (57 bits count; bits 57–63 are ignored) |
//! | 64 | must be 0; 65–67 ignored |
//! | 68–70 | rank − 1 |
//! | 71–74 | element type, in the numbering of `tensormap.replace` up to 10 |
//! | 75–76 / 77–78 | interleave / swizzle |
//! | 79 / 80 | fill with NaN / round loads to tf32 (element types f32 and f32.ftz) |
//! | 81–82 | L2 promotion |
//! | 96–223 / 224–239 | four strides / 16: low 32 bits each, then bits 35:32 as nibbles |
//! | 256–415 | five dimensions − 1 |
//! | 416–430 | five 3-bit element strides − 1 |
//! | 440–479 | five box dimensions − 1 |
//!
//! Everything else is ignored by the hardware. The layout and what faults were read off an H200 by encoding
//! 1432 maps and flipping bits; the recorded cases are tests.

use super::swizzle::Swizzle;
use thiserror::Error;

/// Element type of a tensor map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ElemType {
    /// 8-bit (also fp8).
    U8,
    /// 16-bit unsigned.
    U16,
    /// 32-bit unsigned.
    U32,
    /// 32-bit signed.
    S32,
    /// 64-bit unsigned.
    U64,
    /// 64-bit signed.
    S64,
    /// Half.
    F16,
    /// Single.
    F32,
    /// Single; reductions flush subnormals.
    F32Ftz,
    /// Double.
    F64,
    /// bfloat16.
    BF16,
    /// Single in memory, rounded to tf32 by loads.
    Tf32,
    /// As [`ElemType::Tf32`]; no difference was seen.
    Tf32Ftz,
}

use ElemType::*;

impl ElemType {
    /// All types in `tensormap.replace.elemtype` order.
    pub const ALL: [ElemType; 13] = [U8, U16, U32, S32, U64, S64, F16, F32, F32Ftz, F64, BF16, Tf32, Tf32Ftz];

    /// From the immediate of `tensormap.replace.elemtype` (0..=12; 13..=15 are packed 4- and 6-bit types).
    pub fn from_ptx(n: u32) -> Option<ElemType> {
        ElemType::ALL.get(n as usize).copied()
    }

    /// From `CUtensorMapDataType`, which differs from PTX's numbering at 8..=10.
    pub fn from_host(n: u32) -> Option<ElemType> {
        match n {
            8 => Some(F64),
            9 => Some(BF16),
            10 => Some(F32Ftz),
            n => ElemType::from_ptx(n),
        }
    }

    /// Number in `CUtensorMapDataType`.
    pub fn host(self) -> u32 {
        match self {
            F64 => 8,
            BF16 => 9,
            F32Ftz => 10,
            other => other as u32,
        }
    }

    /// Bits 71–74 and bit 80 of the map.
    pub(super) fn bits(self) -> (u32, u32) {
        match self {
            Tf32 => (F32 as u32, 1),
            Tf32Ftz => (F32Ftz as u32, 1),
            other => (other as u32, 0),
        }
    }

    /// Size in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            U8 => 1,
            U16 | F16 | BF16 => 2,
            U32 | S32 | F32 | F32Ftz | Tf32 | Tf32Ftz => 4,
            U64 | S64 | F64 => 8,
        }
    }

    /// Whether NaN fill is allowed.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | F32 | F32Ftz | F64 | BF16 | Tf32 | Tf32Ftz)
    }
}

/// Interleaved layouts: the innermost dimension counts slots instead of elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interleave {
    /// Dense.
    None,
    /// 16-byte slots.
    B16,
    /// 32-byte slots.
    B32,
}

/// A decoded tensor map. Arrays are indexed by dimension, innermost first; entries from `rank` on are neutral.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// Address of the tensor's first byte.
    pub address: u64,
    /// Number of dimensions, 1..=5.
    pub rank: usize,
    /// Element type.
    pub elem: ElemType,
    /// Interleaved layout.
    pub interleave: Interleave,
    /// Swizzle of the shared-memory box.
    pub swizzle: Swizzle,
    /// Fill out-of-bounds elements with NaN instead of zero.
    pub nan_fill: bool,
    /// L2 promotion 0..=3 (no effect on results).
    pub l2_promotion: u8,
    /// Sizes in elements, 1..=2^32 (slots in dimension 0 when interleaved).
    pub dims: [u64; 5],
    /// Strides in bytes; `strides[0]` is the element (or slot) size.
    pub strides: [u64; 5],
    /// Box sizes, 1..=256.
    pub boxes: [u32; 5],
    /// Element strides, 1..=8.
    pub elem_strides: [u32; 5],
}

/// Why the hardware refuses a tensor map (CUDA_ERROR_ILLEGAL_INSTRUCTION).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// Bit 64.
    #[error("bit 64 of the tensor map is set; is this address really a tensor map?")]
    ReservedBit,
    /// Rank field above 5.
    #[error("tensor map rank {0} is outside 1..=5")]
    Rank(u32),
    /// Element type codes 11..=15.
    #[error("tensor map element type {0} is outside 0..=10 (packed 4- and 6-bit types are not supported)")]
    ElementType(u32),
    /// Interleave code 3.
    #[error("tensor map interleave 3 is illegal; allowed are 0 (none), 1 (16B) and 2 (32B)")]
    Interleave,
    /// Interleaved layouts need three dimensions.
    #[error("an interleaved tensor map needs rank 3 or more, this one has rank {0}")]
    InterleaveRank(usize),
    /// NaN fill of an integer type.
    #[error("the tensor map asks for NaN fill, but its element type is {0:?}; use zero fill")]
    NanFill(ElemType),
    /// tf32 bit on another type than f32.
    #[error("the tensor map's tf32 bit is set, but its element type code is {0}; only f32 and f32.ftz round")]
    Tf32(u32),
    /// Box row not a multiple of 16 bytes.
    #[error("the box's inner dimension is {0} bytes, which is no multiple of 16")]
    InnerBytes(u32),
    /// Box row wider than the swizzle span.
    #[error("the box's inner dimension is {bytes} bytes, more than the {span} bytes of its swizzle mode")]
    InnerSpan {
        /// Bytes of a box row.
        bytes: u32,
        /// Span of the swizzle mode.
        span: u32,
    },
    /// A box that no shared memory holds.
    #[error("the box is {0} bytes, more than any CTA's shared memory")]
    BoxBytes(u64),
}

/// No SM has more shared memory; the driver refuses boxes above 228 KiB.
const SMEM_BYTES: u64 = 256 << 10;

/// Reads the little-endian u32 at byte `at`.
pub(super) fn word(map: &[u8; 128], at: usize) -> u32 {
    u32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]])
}

impl TensorMap {
    /// Reads a tensor map as the hardware does: ignores what it ignores, refuses what makes it fault.
    pub fn decode(map: &[u8; 128]) -> Result<TensorMap, MapError> {
        let head = word(map, 8);
        if head & 1 != 0 {
            return Err(MapError::ReservedBit);
        }
        let rank = (head >> 4 & 7) + 1;
        if rank > 5 {
            return Err(MapError::Rank(rank));
        }
        let rank = rank as usize;
        let code = head >> 7 & 15;
        let elem = match (code, head >> 16 & 1) {
            (7, 1) => Tf32,
            (8, 1) => Tf32Ftz,
            (11.., _) => return Err(MapError::ElementType(code)),
            (_, 1) => return Err(MapError::Tf32(code)),
            (c, _) => ElemType::ALL[c as usize],
        };
        let interleave = match head >> 11 & 3 {
            0 => Interleave::None,
            1 => Interleave::B16,
            2 => Interleave::B32,
            _ => return Err(MapError::Interleave),
        };
        let swizzle = match head >> 13 & 3 {
            0 => Swizzle::None,
            1 => Swizzle::B32,
            2 => Swizzle::B64,
            _ => Swizzle::B128,
        };
        let nan_fill = head >> 15 & 1 != 0;
        if nan_fill && !elem.is_float() {
            return Err(MapError::NanFill(elem));
        }
        if interleave != Interleave::None && rank < 3 {
            return Err(MapError::InterleaveRank(rank));
        }

        let address = u64::from(word(map, 0)) | u64::from(word(map, 4) & 0x01ff_ffff) << 32;
        let mut m = TensorMap {
            address,
            rank,
            elem,
            interleave,
            swizzle,
            nan_fill,
            l2_promotion: (head >> 17 & 3) as u8,
            dims: [1; 5],
            strides: [0; 5],
            boxes: [1; 5],
            elem_strides: [1; 5],
        };
        let elem_strides = word(map, 52);
        for j in 0..rank {
            m.dims[j] = u64::from(word(map, 32 + 4 * j)) + 1;
            m.boxes[j] = u32::from(map[55 + j]) + 1;
            m.elem_strides[j] = (elem_strides >> (3 * j) & 7) + 1;
        }
        m.strides[0] = u64::from(m.unit());
        let high = word(map, 28);
        for j in 1..rank {
            let nibble = u64::from(high >> (4 * (j - 1)) & 15);
            m.strides[j] = (nibble << 32 | u64::from(word(map, 12 + 4 * (j - 1)))) * 16;
        }

        let inner = m.boxes[0] * elem.bytes();
        if !inner.is_multiple_of(16) {
            return Err(MapError::InnerBytes(inner));
        }
        if let Some(span) = swizzle.span()
            && interleave == Interleave::None
            && inner > span
        {
            return Err(MapError::InnerSpan { bytes: inner, span });
        }
        let outer = (1..rank).map(|j| u64::from(m.boxes[j].div_ceil(m.elem_strides[j])));
        let bytes = outer.fold(u64::from(inner), |v, n| v * n);
        if bytes > SMEM_BYTES {
            return Err(MapError::BoxBytes(bytes));
        }
        Ok(m)
    }

    /// Bytes of one step in dimension 0: an element, or a 16- or 32-byte slot when interleaved.
    pub fn unit(&self) -> u32 {
        match self.interleave {
            Interleave::None => self.elem.bytes(),
            Interleave::B16 => 16,
            Interleave::B32 => 32,
        }
    }

    /// The bytes that stand in for 16 bytes outside the tensor: zeros, or the hardware's NaN (0x7ff7 in every
    /// 16-bit unit, for all float types).
    pub fn fill(&self) -> [u8; 16] {
        if self.nan_fill { std::array::from_fn(|i| if i % 2 == 0 { 0xf7 } else { 0x7f }) } else { [0; 16] }
    }
}
