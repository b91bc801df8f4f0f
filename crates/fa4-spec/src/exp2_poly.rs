//! The polynomial by which kernels replace ex2.approx for a share of the elements, step by step as they compute it, and
//! how far it is from 2^x. `tools/fit_exp2.py` fits the coefficients.

/// Coefficients of f, f², f³, f⁴; the constant is 1.
pub const COEFFICIENTS: [f32; 4] = [
    f32::from_bits(0x3F31_6B63),
    f32::from_bits(0x3E77_122A),
    f32::from_bits(0x3D55_FC2A),
    f32::from_bits(0x3C5B_FBB7),
];

/// Largest relative error over every fraction and every x > −126, rounding included.
pub const MAX_RELATIVE_ERROR: f64 = 3.1e-6;

/// 2^x as a kernel computes it: ⌊x⌋ by adding 1.5·2^23 towards −∞, p(x − ⌊x⌋) by fused multiply-adds, ⌊x⌋ added to the
/// exponent field. x ≤ 127.
pub fn exp2_poly(x: f32) -> f32 {
    let x = x.max(-127.0);
    let n = x.floor();
    let f = x - n;
    let [c1, c2, c3, c4] = COEFFICIENTS;
    let p = c4.mul_add(f, c3).mul_add(f, c2).mul_add(f, c1).mul_add(f, 1.0);
    f32::from_bits(p.to_bits().wrapping_add((n as i32 as u32) << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 2^23 fractions of x in [0, 1), and of x in (−1, 0] where spacing is finer near 0.
    #[test]
    fn error_over_every_fraction() {
        let mut worst = 0f64;
        for i in 0..1u32 << 23 {
            let f = i as f32 / (1u32 << 23) as f32;
            for x in [f, -f] {
                worst = worst.max((f64::from(exp2_poly(x)) / f64::from(x).exp2() - 1.0).abs());
            }
        }
        assert!(worst <= MAX_RELATIVE_ERROR, "{worst:e}");
        assert!(worst > 0.9 * MAX_RELATIVE_ERROR, "the bound has slack: {worst:e}");
    }

    #[test]
    fn exponents_and_ends() {
        for n in -126..=127 {
            assert_eq!(exp2_poly(n as f32), (n as f32).exp2());
            let x = n as f32 - 0.3;
            if n > -126 {
                assert!((f64::from(exp2_poly(x)) / f64::from(x).exp2() - 1.0).abs() <= MAX_RELATIVE_ERROR);
            }
        }
        for x in [-127.0, -200.0, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp2_poly(x).to_bits(), 0, "{x}");
        }
        // Just below an integer the fraction rounds to 1.
        assert_eq!(exp2_poly(-f32::MIN_POSITIVE), exp2_poly(-f32::EPSILON / 8.0));
    }

    /// The kernels' header has the same coefficients.
    #[test]
    fn header_agrees() {
        let header = include_str!("../../fa4-kernels/cuda/attn/exp2_poly.cuh");
        for (i, c) in COEFFICIENTS.iter().enumerate() {
            let bits = c.to_bits();
            let (exponent, mantissa) = ((bits >> 23) as i32 - 127, (bits & 0x7F_FFFF) << 1);
            let text = format!("kExp2C{} = 0x1.{mantissa:06x}p{exponent}f;", i + 1);
            assert!(header.contains(&text), "{text}");
        }
    }
}
