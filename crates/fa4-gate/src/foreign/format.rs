//! Number formats of the kernels' tensors, encoded and decoded without help from the emulator that is on trial.

/// A floating-point storage format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// bfloat16: 8 exponent bits, 7 fraction bits.
    Bf16,
    /// IEEE half: 5 exponent bits, 10 fraction bits.
    F16,
    /// FP8 e4m3 ("fn": no infinities, one NaN): 4 exponent bits, 3 fraction bits.
    E4m3,
    /// IEEE single.
    F32,
}

impl Format {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::E4m3 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// (fraction bits, exponent bias).
    fn shape(self) -> (i32, i32) {
        match self {
            Self::Bf16 => (7, 127),
            Self::F16 => (10, 15),
            Self::E4m3 => (3, 7),
            Self::F32 => (23, 127),
        }
    }

    /// Distance between neighbouring values of this format around `x`, subnormals included.
    pub fn ulp(self, x: f64) -> f64 {
        let (fraction, bias) = self.shape();
        exp2i(exponent(x).max(1 - bias) - fraction)
    }

    /// The nearest value's bits, ties to even. `x` must be finite and, rounded, within the format's finite range.
    pub fn encode(self, x: f64) -> u32 {
        let (fraction, bias) = self.shape();
        let e = exponent(x).max(1 - bias);
        let significand = (x.abs() / exp2i(e - fraction)).round_ties_even() as u32;
        // A normal significand's leading one adds the missing 1 to the exponent field; a carry out of it adds another.
        let magnitude = (((e + bias - 1) as u32) << fraction) + significand;
        let sign = u32::from(x.is_sign_negative()) << (self.bytes() * 8 - 1);
        sign | magnitude
    }

    /// The value of `bits`; NaN and infinities are kept.
    pub fn decode(self, bits: u32) -> f64 {
        let (fraction, bias) = self.shape();
        let sign_bit = self.bytes() as u32 * 8 - 1;
        let magnitude = bits & ((1 << sign_bit) - 1);
        let field = (magnitude >> fraction) as i32;
        let low = magnitude & ((1 << fraction) - 1);
        let top_field = (1 << (sign_bit as i32 - fraction)) - 1;
        let value = if self == Self::E4m3 && magnitude == 0x7f {
            f64::NAN
        } else if self != Self::E4m3 && field == top_field {
            if low == 0 { f64::INFINITY } else { f64::NAN }
        } else if field == 0 {
            f64::from(low) * exp2i(1 - bias - fraction)
        } else {
            f64::from(low | (1 << fraction)) * exp2i(field - bias - fraction)
        };
        if bits >> sign_bit & 1 == 1 { -value } else { value }
    }

    /// Rounds `x` to this format.
    pub fn round(self, x: f64) -> f64 {
        self.decode(self.encode(x))
    }

    /// Little-endian bytes of `values`, each rounded to nearest even.
    pub fn to_bytes(self, values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|&x| self.encode(x).to_le_bytes().into_iter().take(self.bytes())).collect()
    }

    /// Decodes little-endian bytes; a trailing partial element is dropped.
    pub fn from_bytes(self, bytes: &[u8]) -> Vec<f64> {
        bytes
            .chunks_exact(self.bytes())
            .map(|chunk| self.decode(chunk.iter().rev().fold(0, |bits, &b| bits << 8 | u32::from(b))))
            .collect()
    }
}

/// 2^e as f64, for e within f64's normal range.
pub fn exp2i(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// floor(log2 |x|); very small (below every format's range) for 0 and f64 subnormals.
fn exponent(x: f64) -> i32 {
    (x.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_a_round_trip() {
        for format in [Format::Bf16, Format::F16, Format::E4m3] {
            for bits in 0..1u32 << (8 * format.bytes()) {
                let value = format.decode(bits);
                if value.is_finite() {
                    assert_eq!(format.encode(value), bits, "{format:?} {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn f32_agrees_with_the_language() {
        for bits in [0, 1, 0x007f_ffff, 0x0080_0000, 0x3f80_0001, 0x7f7f_ffff, 0x8000_0000, 0xc2f6_e979] {
            assert_eq!(Format::F32.decode(bits), f64::from(f32::from_bits(bits)));
        }
        for x in [0.1, -1.0 / 3.0, 1e-40, 1.999_999_99, 16_777_217.0] {
            assert_eq!(Format::F32.encode(x), (x as f32).to_bits());
        }
    }

    #[test]
    fn rounds_to_nearest_even() {
        // bf16 has 7 fraction bits: 1 + 2^-8 lies half way and goes down to even, 1 + 3·2^-8 goes up.
        assert_eq!(Format::Bf16.round(1.0 + exp2i(-8)), 1.0);
        assert_eq!(Format::Bf16.round(1.0 + 3.0 * exp2i(-8)), 1.0 + exp2i(-6));
        assert_eq!(Format::Bf16.round(-1.999), -2.0);
        assert_eq!(Format::E4m3.round(448.0), 448.0);
        assert_eq!(Format::E4m3.round(0.001), exp2i(-9));
        assert_eq!(Format::F16.ulp(1.5), exp2i(-10));
        assert_eq!(Format::F16.ulp(0.0), exp2i(-24));
    }
}
