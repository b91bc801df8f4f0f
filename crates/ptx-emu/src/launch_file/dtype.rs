//! Element types of a launch file and numbers as their bytes.

use crate::npy::NpyType;
use serde::Deserialize;

/// Element type of a buffer or type of a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// fp8 with 4 exponent and 3 mantissa bits (e4m3fn: no infinity).
    E4m3,
    /// fp8 with 5 exponent and 2 mantissa bits.
    E5m2,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
}

use DType::*;

/// A small float format: exponent bits, mantissa bits, largest finite pattern, what overflow gives, NaN.
struct Format {
    exponent: i32,
    mantissa: i32,
    largest: u64,
    overflow: u64,
    nan: u64,
}

impl DType {
    /// Size of an element in bytes.
    pub fn bytes(self) -> u64 {
        self.npy().bytes() as u64
    }

    /// Name in a launch file.
    pub fn name(self) -> &'static str {
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            U64 => "u64",
            I64 => "i64",
            E4m3 => "e4m3",
            E5m2 => "e5m2",
            F16 => "f16",
            Bf16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// How `.npy` files store it: bf16 as u16, fp8 as u8.
    pub fn npy(self) -> NpyType {
        match self {
            U8 | E4m3 | E5m2 => NpyType::U8,
            I8 => NpyType::I8,
            U16 | Bf16 => NpyType::U16,
            I16 => NpyType::I16,
            U32 => NpyType::U32,
            I32 => NpyType::I32,
            U64 => NpyType::U64,
            I64 => NpyType::I64,
            F16 => NpyType::F16,
            F32 => NpyType::F32,
            F64 => NpyType::F64,
        }
    }

    /// True for the floating types.
    pub fn is_float(self) -> bool {
        matches!(self, E4m3 | E5m2 | F16 | Bf16 | F32 | F64)
    }

    /// Smallest and largest value of an integer type.
    pub fn range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.bytes() as u32;
        match self {
            U8 | U16 | U32 | U64 => Some((0, (1 << bits) - 1)),
            I8 | I16 | I32 | I64 => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            _ => None,
        }
    }

    /// Appends an integer; `None` when an integer type cannot hold it. Float types round it.
    pub fn put_integer(self, v: i128, out: &mut Vec<u8>) -> Option<()> {
        match self.range() {
            Some((least, most)) if v < least || v > most => None,
            Some(_) => {
                out.extend(&v.to_le_bytes()[..self.bytes() as usize]);
                Some(())
            }
            None => self.put_float(v as f64, out),
        }
    }

    /// Appends a float, rounded to nearest even; fp8 saturates, the other types overflow to infinity. `None` for
    /// integer types.
    pub fn put_float(self, v: f64, out: &mut Vec<u8>) -> Option<()> {
        let format = match self {
            F64 => {
                out.extend(v.to_le_bytes());
                return Some(());
            }
            F32 => {
                out.extend((v as f32).to_le_bytes());
                return Some(());
            }
            F16 => Format { exponent: 5, mantissa: 10, largest: 0x7bff, overflow: 0x7c00, nan: 0x7e00 },
            Bf16 => Format { exponent: 8, mantissa: 7, largest: 0x7f7f, overflow: 0x7f80, nan: 0x7fc0 },
            E4m3 => Format { exponent: 4, mantissa: 3, largest: 0x7e, overflow: 0x7e, nan: 0x7f },
            E5m2 => Format { exponent: 5, mantissa: 2, largest: 0x7b, overflow: 0x7b, nan: 0x7f },
            _ => return None,
        };
        out.extend(&format.encode(v).to_le_bytes()[..self.bytes() as usize]);
        Some(())
    }
}

impl Format {
    /// The pattern nearest to `v`, ties to even.
    fn encode(&self, v: f64) -> u64 {
        let sign = u64::from(v.is_sign_negative()) << (self.exponent + self.mantissa);
        if v.is_nan() {
            return self.nan;
        }
        let v = v.abs();
        let smallest = 2 - (1 << (self.exponent - 1));
        // The exponent of f64 is read off its bits; below 2^smallest the spacing stays that of the subnormals.
        let exponent = ((v.to_bits() >> 52) as i32 - 1023).max(smallest);
        let exponent = exponent.min(1 << self.exponent);
        let spacing = 2f64.powi(exponent - self.mantissa);
        // Exact: a division by a power of two. The leading one adds 1 to the exponent field.
        let steps = (v / spacing).round_ties_even().min(2f64.powi(self.mantissa + 2)) as u64;
        let bits = (((exponent - smallest) as u64) << self.mantissa) + steps;
        sign | if bits > self.largest { self.overflow } else { bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(ty: DType, v: f64) -> u64 {
        let mut out = Vec::new();
        ty.put_float(v, &mut out).unwrap();
        out.resize(8, 0);
        u64::from_le_bytes(out.try_into().unwrap())
    }

    /// The value of a pattern, from the definition of the format.
    fn value(bits: u64, exponent: i32, mantissa: i32) -> f64 {
        let e = (bits >> mantissa) as i32 & ((1 << exponent) - 1);
        let m = (bits & ((1 << mantissa) - 1)) as f64 / f64::from(1 << mantissa);
        let bias = (1 << (exponent - 1)) - 1;
        if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e - bias) }
    }

    #[test]
    fn every_pattern_and_every_midpoint_rounds_as_defined() {
        for (ty, e, m, largest) in
            [(F16, 5, 10, 0x7bffu64), (Bf16, 8, 7, 0x7f7f), (E4m3, 4, 3, 0x7e), (E5m2, 5, 2, 0x7b)]
        {
            let sign = 1 << (e + m);
            for b in 0..largest {
                let (x, y) = (value(b, e, m), value(b + 1, e, m));
                assert_eq!(bits(ty, x), b);
                assert_eq!(bits(ty, -x), b | sign);
                let middle = (x + y) / 2.0;
                assert_eq!(bits(ty, middle), b + (b & 1), "{ty:?} between {b:#x} and its successor");
                assert_eq!(bits(ty, middle * (1.0 - 1e-15)), b);
                assert_eq!(bits(ty, middle * (1.0 + 1e-15)), b + 1);
            }
        }
    }

    #[test]
    fn overflow() {
        assert_eq!(bits(F16, 65519.0), 0x7bff);
        assert_eq!(bits(F16, 65520.0), 0x7c00);
        assert_eq!(bits(Bf16, f64::INFINITY), 0x7f80);
        assert_eq!(bits(Bf16, 1e300), 0x7f80);
        assert_eq!(bits(E4m3, 1e9), 0x7e);
        assert_eq!(bits(E5m2, f64::NEG_INFINITY), 0xfb);
        assert_eq!(bits(E4m3, f64::NAN), 0x7f);
    }
}
