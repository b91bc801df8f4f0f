//! Products whose operands carry scale factors (tcgen05.mma kinds mxf8f6f4, mxf4, mxf4nvf4).
//!
//! What the hardware does with the last bits is not recorded anywhere that we know of. Here every product with its two
//! factors is exact, and the sum is made as without factors: each term is truncated toward zero to a multiple of
//! 2^(emax − 25), emax the largest exponent of all terms and C, and the result to 23 fraction bits.

use super::Format;

impl Format {
    /// The value of an element.
    pub fn value(self, raw: u32) -> f64 {
        let f = self.fields();
        let mag = f.magnitude(raw);
        if mag >= f.special {
            return if mag == f.special && f.infinity {
                if raw >> f.sign & 1 != 0 { f64::NEG_INFINITY } else { f64::INFINITY }
            } else {
                f64::NAN
            };
        }
        let (e, m) = (mag >> f.man, mag & ((1 << f.man) - 1));
        let scale = |x: u32, e: i32| f64::from(x) * power(e - f.man as i32);
        let v = if e == 0 { scale(m, 1 - f.bias) } else { scale(m | 1 << f.man, e as i32 - f.bias) };
        if raw >> f.sign & 1 != 0 { -v } else { v }
    }
}

/// 2^e, e in −1022..=1023.
fn power(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// A ue8m0 factor: 2^(x − 127), 255 is NaN.
pub fn ue8m0(x: u8) -> f64 {
    if x == 0xff { f64::NAN } else { power(i32::from(x) - 127) }
}

/// A ue4m3 factor: e4m3 without its sign.
pub fn ue4m3(x: u8) -> f64 {
    Format::E4m3.value(u32::from(x & 0x7f))
}

/// Fraction bits of a term, relative to the largest exponent.
const N: i32 = 25;

/// One element: a row of A times a row of B, both with their factors multiplied in, plus C (f32 bits).
pub fn dot(a: &[f64], b: &[f64], c: u32) -> u32 {
    let c = f64::from(f32::from_bits(c));
    let mut top = exponent(c);
    let mut special = !c.is_finite();
    for (x, y) in a.iter().zip(b) {
        let t = x * y;
        special |= !t.is_finite();
        top = top.max(exponent(t));
    }
    if special {
        let sum = a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>() + c;
        return if sum.is_nan() { 0x7fff_ffff } else { (sum as f32).to_bits() };
    }
    let unit = power((N - top).clamp(-1000, 1000));
    let sum: f64 = a.iter().zip(b).map(|(x, y)| (x * y * unit).trunc()).sum::<f64>() + (c * unit).trunc();
    let value = sum / unit;
    // Truncation to 23 fraction bits; +0 for zero.
    let cut = f64::from_bits(value.to_bits() & !((1 << 29) - 1));
    (cut as f32 + 0.0).to_bits()
}

fn exponent(x: f64) -> i32 {
    if x == 0.0 { -133 } else { (x.to_bits() >> 52 & 0x7ff) as i32 - 1023 }
}
