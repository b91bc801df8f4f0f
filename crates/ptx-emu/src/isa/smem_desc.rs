//! Shared-memory matrix descriptors of wgmma and tcgen05: fields, and the address of every element.
//!
//! Element addresses are `swz(start + linear offset)`, the XOR acting on the absolute shared-window address with
//! the base offset subtracted from its row phase. All of it is measured for wgmma (736 recorded descriptors);
//! tcgen05 uses the same forms plus the 32-byte-atom mode.

use crate::tma::swizzle::Swizzle;
use thiserror::Error;

/// A decoded descriptor. Addresses and offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SmemDesc {
    /// Start address in the shared window.
    pub start: u32,
    /// Leading-dimension byte offset.
    pub lbo: u32,
    /// Stride-dimension byte offset.
    pub sbo: u32,
    /// Matrix base offset, 0..=7.
    pub base_offset: u32,
    /// Swizzle mode.
    pub swizzle: Swizzle,
}

/// Which index is contiguous in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Major {
    /// K (rows of A, columns of B).
    K,
    /// M or N (the transpose bit is set).
    Mn,
}

/// Why a descriptor is illegal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DescError {
    /// Bits 48:46 of a tcgen05 descriptor.
    #[error(
        "bits 48:46 of the tcgen05 matrix descriptor 0x{desc:016x} are {value}; they must be 1 (0 marks a \
         wgmma descriptor)"
    )]
    Constant {
        /// The descriptor.
        desc: u64,
        /// What stands there.
        value: u32,
    },
    /// Bit 52 asks for absolute leading-dimension addresses.
    #[error("bit 52 of the matrix descriptor 0x{0:016x} (absolute LBO) is set; it exists on sm_103a only")]
    AbsoluteLbo(u64),
    /// Bits 60:53.
    #[error("bits 60:53 of the tcgen05 matrix descriptor 0x{0:016x} are not zero")]
    Reserved(u64),
    /// Swizzle code without a meaning.
    #[error(
        "swizzle code {code} in bits 63:61 of the matrix descriptor 0x{desc:016x}; allowed are 0 (none), \
         1 (128B, 32B atom), 2 (128B), 4 (64B), 6 (32B)"
    )]
    Swizzle {
        /// The descriptor.
        desc: u64,
        /// The code.
        code: u32,
    },
    /// A combination of element width, major-ness and swizzle that the matrix unit does not read.
    #[error("{bits}-bit elements cannot be read {major:?}-major with swizzle {swizzle:?}; {allowed}")]
    Layout {
        /// Element width.
        bits: u32,
        /// Major-ness.
        major: Major,
        /// Swizzle mode.
        swizzle: Swizzle,
        /// What can.
        allowed: &'static str,
    },
}

/// A 14-bit field of 16-byte units.
fn field(desc: u64, at: u32) -> u32 {
    ((desc >> at) as u32 & 0x3fff) << 4
}

impl SmemDesc {
    /// Decodes a tcgen05 descriptor.
    pub fn tcgen05(desc: u64) -> Result<SmemDesc, DescError> {
        let value = (desc >> 46) as u32 & 7;
        if value != 1 {
            return Err(DescError::Constant { desc, value });
        }
        if desc >> 52 & 1 != 0 {
            return Err(DescError::AbsoluteLbo(desc));
        }
        if desc >> 53 & 0xff != 0 {
            return Err(DescError::Reserved(desc));
        }
        let swizzle = match (desc >> 61) as u32 {
            0 => Swizzle::None,
            1 => Swizzle::B128Atom32,
            2 => Swizzle::B128,
            4 => Swizzle::B64,
            6 => Swizzle::B32,
            code => return Err(DescError::Swizzle { desc, code }),
        };
        Ok(SmemDesc::with(desc, swizzle))
    }

    /// Decodes a wgmma descriptor. Every value is legal: the hardware ignores the reserved bits.
    pub fn wgmma(desc: u64) -> SmemDesc {
        let swizzle = match desc >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::B128,
            2 => Swizzle::B64,
            _ => Swizzle::B32,
        };
        SmemDesc::with(desc, swizzle)
    }

    fn with(desc: u64, swizzle: Swizzle) -> SmemDesc {
        SmemDesc {
            start: field(desc, 0),
            lbo: field(desc, 16),
            sbo: field(desc, 32),
            base_offset: (desc >> 49) as u32 & 7,
            swizzle,
        }
    }

    /// The final address of the byte at `linear` from the start.
    #[inline]
    pub fn at(&self, linear: u32) -> u32 {
        self.swizzle.pattern().apply(self.start.wrapping_add(linear), self.base_offset)
    }

    /// Linear offset contributed by row (M or N index) `row`; elements have `bits` bits.
    fn row_offset(&self, major: Major, bits: u32, row: u32) -> u32 {
        let mb = row * bits / 8;
        match (major, self.swizzle.span()) {
            (Major::K, None) => row % 8 * 16 + row / 8 * self.sbo,
            (Major::K, Some(s)) => row % 8 * s + row / 8 * self.sbo,
            (Major::Mn, None) => mb % 16 + mb / 16 * self.sbo,
            (Major::Mn, Some(s)) => mb % s + mb / s * self.lbo,
        }
    }

    /// Linear offset contributed by K index `k`.
    fn k_offset(&self, major: Major, bits: u32, k: u32) -> u32 {
        let kb = k * bits / 8;
        match (major, self.swizzle) {
            (Major::K, Swizzle::None) => kb / 16 * self.lbo + kb % 16,
            (Major::K, _) => kb,
            (Major::Mn, Swizzle::None) => k % 8 * 16 + k / 8 * self.lbo,
            (Major::Mn, Swizzle::B128Atom32) => k % 4 * 128 + k / 4 * self.sbo,
            (Major::Mn, s) => k % 8 * s.span().unwrap_or(16) + k / 8 * self.sbo,
        }
    }

    fn check_layout(&self, major: Major, bits: u32) -> Result<(), DescError> {
        let atom32 = self.swizzle == Swizzle::B128Atom32;
        let allowed = match (major, bits) {
            (Major::K, 4 | 8 | 16 | 32) => return Ok(()),
            (Major::Mn, 8 | 16) if !atom32 => return Ok(()),
            (Major::Mn, 32) if atom32 => return Ok(()),
            (Major::Mn, 32) => "32-bit MN-major needs 128B with the 32B atom",
            (Major::Mn, 8 | 16) => "the 32B atom is for 32-bit elements",
            (Major::Mn, 4) => "4-bit elements are K-major only",
            _ => "elements have 4, 8, 16 or 32 bits",
        };
        Err(DescError::Layout { bits, major, swizzle: self.swizzle, allowed })
    }
}

/// Absolute shared-window byte addresses of the elements of a `rows` x `k` operand, row-major (`out[row * k +
/// kk]`). `bits` is the width of an element's slot in memory: 8 for the padded 4- and 6-bit forms, 4 for dense
/// fp4 (two elements then share an address, the even one in the low nibble). Clears `out` first.
pub fn element_addrs(
    desc: &SmemDesc,
    major: Major,
    bits: u32,
    rows: u32,
    k: u32,
    out: &mut Vec<u32>,
) -> Result<(), DescError> {
    desc.check_layout(major, bits)?;
    // The linear offset is a sum of a part in the row and a part in k, whatever the layout.
    let ks: Vec<u32> = (0..k).map(|k| desc.k_offset(major, bits, k)).collect();
    let pattern = desc.swizzle.pattern();
    out.clear();
    out.reserve((rows * k) as usize);
    for r in 0..rows {
        let row = desc.start.wrapping_add(desc.row_offset(major, bits, r));
        out.extend(ks.iter().map(|&k| pattern.apply(row.wrapping_add(k), desc.base_offset)));
    }
    Ok(())
}
