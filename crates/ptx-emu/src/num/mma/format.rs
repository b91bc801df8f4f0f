//! Element formats of A and B.

/// Element formats of A and B. Elements are raw bits in the low end of a `u32` (tf32: a full word, its low 13
/// bits ignored; 6- and 4-bit formats: the low bits, the rest ignored).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// f32 without its low 13 bits.
    Tf32,
    /// 4 exponent, 3 fraction bits, no infinity.
    E4m3,
    /// 5 exponent, 2 fraction bits.
    E5m2,
    /// 2 exponent, 1 fraction bit, finite only.
    E2m1,
    /// 2 exponent, 3 fraction bits, finite only.
    E2m3,
    /// 3 exponent, 2 fraction bits, finite only.
    E3m2,
}

/// Where the fields of a format are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    /// Position of the sign.
    pub sign: u32,
    /// Position of the exponent in the raw word.
    pub man: u32,
    /// Bits below the fraction that do not count (tf32).
    pub unused: u32,
    pub bias: i32,
    /// Magnitudes from here on are infinity (this very one, where the format has it) or NaN.
    pub special: u32,
    pub infinity: bool,
}

impl Format {
    pub(super) const fn fields(self) -> Fields {
        match self {
            Format::F16 => Fields { sign: 15, man: 10, unused: 0, bias: 15, special: 0x7c00, infinity: true },
            Format::Bf16 => {
                Fields { sign: 15, man: 7, unused: 0, bias: 127, special: 0x7f80, infinity: true }
            }
            Format::Tf32 => {
                Fields { sign: 31, man: 23, unused: 13, bias: 127, special: 0x7f80_0000, infinity: true }
            }
            Format::E4m3 => Fields { sign: 7, man: 3, unused: 0, bias: 7, special: 0x7f, infinity: false },
            Format::E5m2 => Fields { sign: 7, man: 2, unused: 0, bias: 15, special: 0x7c, infinity: true },
            Format::E2m1 => {
                Fields { sign: 3, man: 1, unused: 0, bias: 1, special: u32::MAX, infinity: false }
            }
            Format::E2m3 => {
                Fields { sign: 5, man: 3, unused: 0, bias: 1, special: u32::MAX, infinity: false }
            }
            Format::E3m2 => {
                Fields { sign: 5, man: 2, unused: 0, bias: 3, special: u32::MAX, infinity: false }
            }
        }
    }
}

impl Fields {
    /// The magnitude bits that count.
    #[inline(always)]
    pub fn magnitude(self, raw: u32) -> u32 {
        raw & ((1u32 << self.sign) - 1) & (u32::MAX << self.unused)
    }
}
