//! The XOR patterns that TMA, wgmma and tcgen05 apply to shared-memory byte addresses.
//!
//! Every pattern acts on the absolute address in the CTA's shared window, never on an offset from the tile:
//! a TMA destination and a matrix descriptor with the same mode therefore agree without further agreement.
//! The 16-byte-atom modes 32B, 64B and 128B are confirmed on silicon (wgmma descriptors and TMA, both ways);
//! the other atoms exist only on sm_100 and follow the manual's tables.

/// Swizzle mode: span of the pattern and size of the atom that moves as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Swizzle {
    /// Addresses stay as they are.
    None,
    /// 32-byte span, 16-byte atom: bit 4 ^= bit 7.
    B32,
    /// 64-byte span, 16-byte atom: bits 5:4 ^= bits 8:7.
    B64,
    /// 128-byte span, 16-byte atom: bits 6:4 ^= bits 9:7.
    B128,
    /// 128-byte span, 32-byte atom (sm_100): bits 6:5 ^= bits 8:7.
    B128Atom32,
    /// As [`Swizzle::B128Atom32`], and the 8-byte halves of each 16 bytes change places on odd 128-byte lines.
    B128Atom32Flip8,
    /// 128-byte span, 64-byte atom (sm_100): bit 6 ^= bit 7.
    B128Atom64,
    /// 96-byte rows (sm_103a): bit 4 ^= bit 7.
    B96,
}

impl Swizzle {
    /// Bytes of one row of the pattern; also the pitch at which TMA lays out box rows. `None` for
    /// [`Swizzle::None`], where rows are tight.
    pub const fn span(self) -> Option<u32> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B96 => Some(96),
            Swizzle::B128 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 | Swizzle::B128Atom64 => Some(128),
        }
    }

    /// Bytes after which the pattern repeats; a tile that starts at a multiple of it starts at phase 0.
    pub const fn repeat(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 | Swizzle::B96 | Swizzle::B128Atom64 => 256,
            Swizzle::B64 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 => 512,
            Swizzle::B128 => 1024,
        }
    }

    /// The pattern as numbers, for loops over many addresses.
    #[inline]
    pub const fn pattern(self) -> Pattern {
        let (mask, shift, flip) = match self {
            Swizzle::None => (0, 4, 0),
            Swizzle::B32 | Swizzle::B96 => (1, 4, 0),
            Swizzle::B64 => (3, 4, 0),
            Swizzle::B128 => (7, 4, 0),
            Swizzle::B128Atom32 => (3, 5, 0),
            Swizzle::B128Atom32Flip8 => (3, 5, 1),
            Swizzle::B128Atom64 => (1, 6, 0),
        };
        Pattern { mask, shift, flip }
    }

    /// The swizzled address of byte `addr`.
    #[inline]
    pub const fn swz(self, addr: u32) -> u32 {
        self.pattern().apply(addr, 0)
    }

    /// Largest run of bytes that stays contiguous under the pattern.
    pub const fn atom(self) -> u32 {
        match self {
            Swizzle::B128Atom32Flip8 => 8,
            Swizzle::B128Atom32 => 32,
            Swizzle::B128Atom64 => 64,
            _ => 16,
        }
    }
}

/// A swizzle mode as numbers: the row phase (address bits 7 and up) under `mask` is XORed in at `shift`, its
/// lowest bit under `flip` at bit 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    mask: u32,
    shift: u32,
    flip: u32,
}

impl Pattern {
    /// The swizzled address of byte `addr` under a descriptor's matrix base offset (0 for TMA), which is
    /// *subtracted* from the row phase (measured on an H200: adding, XORing or ignoring it all disagree).
    #[inline]
    pub const fn apply(self, addr: u32, base_offset: u32) -> u32 {
        let phase = (addr >> 7).wrapping_sub(base_offset);
        addr ^ (phase & self.mask) << self.shift ^ (phase & self.flip) << 3
    }
}

/// The swizzled address of byte `addr` of the shared window: [`Swizzle::swz`] as a function.
#[inline]
pub const fn swz(addr: u32, mode: Swizzle) -> u32 {
    mode.swz(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Swizzle; 8] = [
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
        Swizzle::B96,
    ];

    #[test]
    fn every_mode_is_an_involution_that_keeps_atoms_and_lines_together() {
        for m in ALL {
            for a in 0..4096 {
                let s = m.swz(a);
                assert_eq!(m.swz(s), a, "{m:?} at {a}");
                assert_eq!(s >> 7, a >> 7, "{m:?} leaves the 128-byte line at {a}");
                let atom = m.atom() - 1;
                assert_eq!(s & atom, a & atom, "{m:?} breaks an atom at {a}");
                assert_eq!(m.swz(a + m.repeat()), s + m.repeat(), "{m:?} does not repeat at {a}");
            }
        }
    }

    #[test]
    fn base_offset_restarts_the_pattern() {
        // A pattern that starts at line 5 with base offset 5 looks like one that starts at line 0.
        for m in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            for a in 0..1024 {
                assert_eq!(m.pattern().apply(5 * 128 + a, 5) - 5 * 128, m.swz(a));
            }
        }
    }
}
