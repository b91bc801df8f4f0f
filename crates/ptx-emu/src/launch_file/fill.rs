//! Contents of buffers, generated.
//!
//! `randn` is a counter-based generator, so that any element can be computed alone and NumPy can repeat it:
//!
//! ```python
//! def z(seed, k):                      # splitmix64, k = 0, 1, 2, ... (numpy uint64, wrapping)
//!     x = seed + (k + 1) * 0x9E3779B97F4A7C15
//!     x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
//!     x = (x ^ (x >> 27)) * 0x94D049BB133111EB
//!     return x ^ (x >> 31)
//!
//! u = ((z(seed, 2 * i) >> 11) + 1) / 2**53       # in (0, 1]
//! v = (z(seed, 2 * i + 1) >> 11) / 2**53         # in [0, 1)
//! x = mean + scale * sqrt(-2 * log(u)) * cos(2 * pi * v)
//! ```
//!
//! for element `i` in C order, in f64, then rounded to the element type. (`log` and `cos` of two libraries may
//! differ in the last bit of f64; after rounding to 8 to 32 bits that is seen about never.)

use super::dtype::DType;

/// The k-th output of splitmix64 from `seed`.
pub fn splitmix64(seed: u64, k: u64) -> u64 {
    let x = seed.wrapping_add(k.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Element `i` of the standard normal sequence of `seed`.
pub fn normal(seed: u64, i: u64) -> f64 {
    let unit = 1.0 / (1u64 << 53) as f64;
    let u = ((splitmix64(seed, 2 * i) >> 11) + 1) as f64 * unit;
    let v = (splitmix64(seed, 2 * i + 1) >> 11) as f64 * unit;
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// `count` normal numbers of a floating type.
pub fn randn(ty: DType, count: u64, seed: u64, mean: f64, scale: f64) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity((count * ty.bytes()) as usize);
    for i in 0..count {
        ty.put_float(mean + scale * normal(seed, i), &mut out)?;
    }
    Some(out)
}

/// 0, 1, 2, …: integers wrap, floats round.
pub fn iota(ty: DType, count: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity((count * ty.bytes()) as usize);
    for i in 0..count {
        match ty.range() {
            Some(_) => out.extend(&i.to_le_bytes()[..ty.bytes() as usize]),
            None => drop(ty.put_float(i as f64, &mut out)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_reference() {
        // Published first outputs for seed 1234567.
        let expected: [u64; 3] = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!([0, 1, 2].map(|k| splitmix64(1234567, k)), expected);
    }

    #[test]
    fn moments() {
        let n = 100_000;
        let (mut sum, mut squares, mut fourth) = (0.0, 0.0, 0.0);
        for i in 0..n {
            let x = normal(7, i);
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        let n = n as f64;
        assert!((sum / n).abs() < 0.02);
        assert!((squares / n - 1.0).abs() < 0.02);
        assert!((fourth / n - 3.0).abs() < 0.15);
    }
}
