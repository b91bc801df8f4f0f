//! f64 references and how far a right kernel may be from them.
//!
//! Every bound is a worst case over the kernel's roundings, to first order, times [`SECOND_ORDER`]. They are written per
//! output element, so they are tight where the data is benign: a dropped term or a wrong row exceeds them many times over.

use std::f64::consts::{LN_2, LOG2_E};

use super::format::{Format, exp2i};

/// Stands for products of two errors, all of which are below 1 %.
const SECOND_ORDER: f64 = 1.01;

/// Largest relative error of one f32 rounding.
const F32_ROUNDING: f64 = 1.0 / (1u32 << 24) as f64;

/// Relative error of `ex2.approx.f32` and of `div.full.f32` (2 ulp; PTX ISA).
const TWO_ULP: f64 = 4.0 * F32_ROUNDING;

/// Values and bounds of an output matrix.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Elements per row.
    pub columns: usize,
    /// Exact values, row-major.
    pub value: Vec<f64>,
    /// Largest error of a right kernel, the output's own rounding included.
    pub bound: Vec<f64>,
}

impl Expected {
    fn new(columns: usize, capacity: usize) -> Self {
        Self { columns, value: Vec::with_capacity(capacity), bound: Vec::with_capacity(capacity) }
    }

    /// Adds an element whose value before the final rounding to `format` is within `error` of `value`.
    fn push(&mut self, value: f64, error: f64, format: Format) {
        let error = error * SECOND_ORDER;
        self.value.push(value);
        self.bound.push(error + format.ulp(value.abs() + error) / 2.0);
    }
}

/// One matrix-unit instruction: a sum of `depth` products and the accumulator in fixed point.
///
/// Fitted on Hopper, where it is exact for millions of dot products: every term is truncated to `bits` fraction bits below
/// the largest term's exponent, and the sum to `result_bits` fraction bits. On Blackwell it is presumed to be no worse.
#[derive(Clone, Copy, Debug)]
pub struct MatrixUnit {
    /// Products per instruction.
    pub depth: usize,
    /// Fraction bits of the fixed-point terms.
    pub bits: i32,
    /// Fraction bits of the f32 result that are kept.
    pub result_bits: i32,
}

impl MatrixUnit {
    /// f16 and bf16 operands.
    pub const F16: Self = Self { depth: 16, bits: 25, result_bits: 23 };
    /// f32 operands, low 13 bits ignored.
    pub const TF32: Self = Self { depth: 8, bits: 25, result_bits: 23 };
    /// e4m3 operands with block scales; presumed to keep as much as f16.
    pub const MXF8: Self = Self { depth: 32, bits: 25, result_bits: 23 };
    /// e4m3 and e5m2 operands.
    pub const F8: Self = Self { depth: 32, bits: 13, result_bits: 13 };

    /// Exact dot product of `a` and `b` and a bound on the error of computing it from zero by consecutive instructions.
    ///
    /// A term of magnitude t in [2^e, 2^(e+2)) loses less than 2^-bits · 2^emax ≤ 2^-bits · max t, and the sum is truncated.
    pub fn dot(self, a: &[f64], b: &[f64]) -> (f64, f64) {
        let (mut sum, mut error) = (0.0f64, 0.0f64);
        for (a, b) in a.chunks(self.depth).zip(b.chunks(self.depth)) {
            let mut largest = sum.abs() + error;
            for (a, b) in a.iter().zip(b) {
                largest = largest.max((a * b).abs());
                sum += a * b;
            }
            error += self.step(largest, sum.abs() + error);
        }
        (sum, error)
    }

    /// Error added by one instruction whose largest term is `largest` and whose result is at most `result`.
    fn step(self, largest: f64, result: f64) -> f64 {
        (self.depth + 1) as f64 * exp2i(-self.bits) * largest + exp2i(-self.result_bits) * result
    }
}

/// C = A · Bᵀ for A [m, k] and B [n, k], summed by `unit` and rounded to `output`.
pub fn matmul(a: &[f64], b: &[f64], [m, n, k]: [usize; 3], unit: MatrixUnit, output: Format) -> Expected {
    let mut expected = Expected::new(n, m * n);
    for a in a.chunks(k) {
        for b in b.chunks(k) {
            let (sum, error) = unit.dot(a, b);
            expected.push(sum, error, output);
        }
    }
    expected
}

/// y + (t\[index\] + x) in f32, of rows of `columns`: the inner sum is rounded, then the outer.
pub fn gather_add(x: &[f64], t: &[f64], index: &[usize], y: &[f64], columns: usize) -> Expected {
    let mut expected = Expected::new(columns, x.len());
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        let inner = t[index[i / columns] * columns + i % columns] + x;
        expected.push(inner + y, Format::F32.ulp(inner) / 2.0, Format::F32);
    }
    expected
}

/// Row-wise softmax of a dense matrix with `n` columns, in f32.
pub fn softmax(x: &[f64], n: usize) -> Expected {
    let mut expected = Expected::new(n, x.len());
    // A thread adds up to 8 elements of a row of at most 1024, then 128 threads add theirs in a tree.
    let sum_error = 15.0 * F32_ROUNDING;
    for row in x.chunks(n) {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weight: Vec<f64> = row.iter().map(|x| (x - max).exp()).collect();
        let sum: f64 = weight.iter().sum();
        // x − max, log2(e) and their product are each rounded before `ex2.approx`.
        let weight_error = |x: f64| 3.0 * F32_ROUNDING * (x - max).abs() + TWO_ULP;
        let mean_error: f64 = row.iter().zip(&weight).map(|(&x, w)| w / sum * weight_error(x)).sum();
        for (&x, w) in row.iter().zip(&weight) {
            let y = w / sum;
            let relative = weight_error(x) + mean_error + sum_error + TWO_ULP;
            // A weight or quotient below the normal range may be flushed.
            expected.push(y, y * relative + 2.0 * exp2i(-126), Format::F32);
        }
    }
    expected
}

/// Self-attention of `heads` independent heads.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Batch times heads.
    pub heads: usize,
    /// Rows per head.
    pub s: usize,
    /// Head dimension.
    pub d: usize,
    /// Whether key j is hidden from query i < j.
    pub causal: bool,
    /// Factor on the scores.
    pub sm_scale: f64,
    /// Query rows per program, keys per step of the online softmax.
    pub tile: (usize, usize),
    /// Format of P and O.
    pub format: Format,
}

/// O [heads · s, d] and the log2-domain LSE [heads, s] of online-softmax attention on dense [heads · s, d] inputs.
///
/// Let w_j be the exact weights of a row (summing to 1), A_d = Σ w_j |v_jd|, B_d² = Σ w_j² v_jd², u the unit roundoff of P.
///
/// * A score s_j is off by the matrix unit's error δ_j; in the log2 domain t_j = scale · s_j has three more roundings
///   (log2 e, the scale, the product), t_j − m one. So the weight's relative error is
///   ln 2 · (scale · δ_j + 3·2^-24·|t_j| + 2·2^-24·|t_j − m|) + 2^-22, plus 2^-22 for each block's correction factor, whose own
///   arguments m_old − m_new telescope to at most |t_j − m| in all. Errors of m cancel: the same m is used throughout.
/// * P is rounded to `format`: worst case u · A_d; for independent inputs a sum of independent roundings, each of standard
///   deviation at most 0.41 u, so seven of those, 7 · 0.41 · u · B_d. The smaller of the two is used.
/// * PV adds one matrix-unit step per 16 keys, each of at most A_d, and one rounding per block's rescale.
/// * The row sum adds a block's keys and one rescale and one addition per block.
/// * O is divided by it (`div.full`, 2 ulp) and rounded.
pub fn attention(q: &[f64], k: &[f64], v: &[f64], problem: &Attention) -> (Expected, Expected) {
    let &Attention { heads, s, d, causal, sm_scale, tile: (block_m, block_n), format } = problem;
    let mut o = Expected::new(d, heads * s * d);
    let mut lse = Expected::new(s, heads * s);
    let scale = sm_scale * LOG2_E;
    let unit = MatrixUnit::F16;
    let roundoff = format.ulp(1.0) / 2.0;
    for head in 0..heads {
        let of_head = |x: &'_ [f64]| x[head * s * d..][..s * d].to_vec();
        let (q, k, v) = (of_head(q), of_head(k), of_head(v));
        for (i, q) in q.chunks(d).enumerate() {
            let keys = if causal { i + 1 } else { s };
            let end = if causal { (i / block_m + 1) * block_m } else { s };
            let blocks = end.div_ceil(block_n) as f64;

            let scores: Vec<(f64, f64)> = k.chunks(d).take(keys).map(|k| unit.dot(q, k)).collect();
            let max = scores.iter().map(|(s, _)| s * scale).fold(f64::NEG_INFINITY, f64::max);
            let mut weight: Vec<f64> = scores.iter().map(|(s, _)| (s * scale - max).exp2()).collect();
            let sum: f64 = weight.iter().sum();
            weight.iter_mut().for_each(|w| *w /= sum);
            let weight_error: Vec<f64> = scores
                .iter()
                .map(|&(s, delta)| {
                    let t = s * scale;
                    let argument = scale * delta + F32_ROUNDING * (3.0 * t.abs() + 2.0 * (t - max).abs());
                    LN_2 * argument + TWO_ULP * (1.0 + blocks)
                })
                .collect();

            let mean_error: f64 = weight.iter().zip(&weight_error).map(|(w, e)| w * e).sum();
            let sum_error = mean_error + (block_n as f64 + 2.0 * blocks) * F32_ROUNDING;
            let steps = blocks * (block_n / unit.depth) as f64;
            let whole_row = unit.step(1.0, 1.0) * steps + F32_ROUNDING * blocks + sum_error + TWO_ULP;
            // Per column: value, A_d, B_d² and the sum of w_j |v_jd| ε_j.
            let mut columns = vec![[0.0f64; 4]; d];
            for ((w, e), v) in weight.iter().zip(&weight_error).zip(v.chunks(d)) {
                for (column, v) in columns.iter_mut().zip(v) {
                    let term = w * v;
                    let size = term.abs();
                    column[0] += term;
                    column[1] += size;
                    column[2] += term * term;
                    column[3] += size * e;
                }
            }
            for [value, magnitude, square, weighted] in columns {
                let rounding_p = roundoff * magnitude.min(7.0 * 0.41 * f64::sqrt(square));
                o.push(value, rounding_p + weighted + whole_row * magnitude, format);
            }

            let log_sum = sum.log2();
            // `log2f` is good to 2 ulp; the final addition rounds once.
            let error = sum_error / LN_2 + TWO_ULP * log_sum.max(1.0) + F32_ROUNDING * max.abs();
            lse.push(max + log_sum, error, Format::F32);
        }
    }
    (o, lse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed_matmul() {
        // A = [1 2; 3 4], B = [5 6; 7 8]: A·Bᵀ = [17 23; 39 53].
        let c =
            matmul(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], [2, 2, 2], MatrixUnit::F16, Format::Bf16);
        assert_eq!(c.value, [17.0, 23.0, 39.0, 53.0]);
        // Near 17 bf16's values are 1/8 apart.
        assert!(c.bound[0] > 0.0625 && c.bound[0] < 0.0626, "{}", c.bound[0]);
    }

    #[test]
    fn hand_computed_softmax() {
        let y = softmax(&[0.0, 3f64.ln(), 5.0, 5.0], 2);
        for (y, want) in y.value.iter().zip([0.25, 0.75, 0.5, 0.5]) {
            assert!((y - want).abs() < 1e-15, "{y} {want}");
        }
        assert!(y.bound.iter().all(|b| *b < 2e-6));
    }

    /// Scores ln 1 and ln 3 over values (0, 4) and (8, 0): weights ¼ and ¾.
    #[test]
    fn hand_computed_attention() {
        let problem = Attention {
            heads: 1,
            s: 2,
            d: 2,
            causal: false,
            sm_scale: 1.0,
            tile: (2, 2),
            format: Format::Bf16,
        };
        let q = [1.0, 0.0, 0.0, 1.0];
        let k = [0.0, 0.0, 3f64.ln(), 0.0];
        let v = [0.0, 4.0, 8.0, 0.0];
        let (o, lse) = attention(&q, &k, &v, &problem);
        for (o, want) in o.value.iter().zip([6.0, 1.0, 4.0, 2.0]) {
            assert!((o - want).abs() < 1e-14, "{o} {want}");
        }
        assert!((lse.value[0] - 2.0).abs() < 1e-14 && (lse.value[1] - 1.0).abs() < 1e-14);
        let (o, lse) = attention(&q, &k, &v, &Attention { causal: true, ..problem });
        for (o, want) in o.value.iter().zip([0.0, 4.0, 4.0, 2.0]) {
            assert!((o - want).abs() < 1e-14, "{o} {want}");
        }
        assert!(lse.value[0].abs() < 1e-14 && (lse.value[1] - 1.0).abs() < 1e-14);
    }
}
