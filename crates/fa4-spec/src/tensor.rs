//! Host tensors: logical values of shape (batch, seqlen, head, dim) in their storage bits, and a layout
//! that says where each row lies in a buffer. Values are kept dense in logical order; strides and offsets
//! describe the buffer only, so a view with strides of gigabytes costs no memory here.

use rayon::prelude::*;

use crate::problem::DType;

/// Significand bits after the hidden one, smallest normal exponent, exponent bias.
const fn format(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::Bf16 => (7, -126, 127),
        DType::F16 => (10, -14, 15),
        DType::E4m3 => (3, -6, 7),
    }
}

/// Unit in the last place of `dtype` at |x| (the distance of neighbours in x's binade, gradual underflow
/// included).
pub fn ulp(dtype: DType, x: f64) -> f64 {
    let (fraction_bits, min_exponent, _) = format(dtype);
    let exponent = if x == 0.0 { min_exponent } else { exponent(x).max(min_exponent) };
    2f64.powi(exponent - fraction_bits)
}

/// Unit roundoff: half an ulp of 1.
pub fn unit_roundoff(dtype: DType) -> f64 {
    0.5 * ulp(dtype, 1.0)
}

/// floor(log2 |x|) of a finite non-zero f64.
fn exponent(x: f64) -> i32 {
    match ((x.to_bits() >> 52) & 0x7ff) as i32 {
        0 => -1023,
        biased => biased - 1023,
    }
}

/// Rounds to nearest even; beyond the largest finite value gives infinity (16-bit formats only).
///
/// Normal values, nearly all that there are, go by integers: a problem has up to 10^9 elements. Fraction and exponent of
/// an f64 are one number, so that half a quantum (less one where the kept part is even) added to it carries as rounding
/// must; then the exponent's bias is exchanged.
pub fn encode(dtype: DType, x: f64) -> u16 {
    let (fraction_bits, min_exponent, bias) = format(dtype);
    let magnitude = x.to_bits() & !(1 << 63);
    let exponent = (magnitude >> 52) as i32 - 1023;
    if exponent < min_exponent || exponent > bias {
        return encode_any(dtype, x);
    }
    let dropped = 52 - fraction_bits;
    let half_even = (1u64 << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
    // The carry out of the largest finite value gives the pattern of infinity.
    let kept = (magnitude + half_even) >> dropped;
    let sign = ((x.to_bits() >> 63) as u16) << 15;
    sign | (kept - (((1023 - bias) as u64) << fraction_bits)) as u16
}

/// [`encode`] of everything: by counting quanta.
fn encode_any(dtype: DType, x: f64) -> u16 {
    let (fraction_bits, min_exponent, bias) = format(dtype);
    let exponent_bits = 15 - fraction_bits;
    let sign = ((x.to_bits() >> 63) as u16) << 15;
    let infinity = (((1u32 << exponent_bits) - 1) << fraction_bits) as u16;
    if x.is_nan() {
        return sign | infinity | 1 << (fraction_bits - 1);
    }
    // Counting quanta from zero makes the carry into the exponent and the subnormals come out by themselves.
    let quantum = ulp(dtype, x);
    let base = ((quantum.log2() as i32 + fraction_bits - min_exponent) as i64) << fraction_bits;
    let quanta = if x.is_infinite() { i64::MAX / 2 } else { (x.abs() / quantum).round_ties_even() as i64 };
    debug_assert_eq!(min_exponent, 1 - bias);
    sign | (base + quanta).min(i64::from(infinity)) as u16
}

/// The exact value of storage bits (16-bit formats).
pub fn decode(dtype: DType, bits: u16) -> f64 {
    let (fraction_bits, min_exponent, _) = format(dtype);
    let exponent_bits = 15 - fraction_bits;
    let biased = i32::from((bits & 0x7fff) >> fraction_bits);
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1));
    let magnitude = if biased == (1 << exponent_bits) - 1 {
        if fraction == 0.0 { f64::INFINITY } else { f64::NAN }
    } else if biased == 0 {
        fraction * 2f64.powi(min_exponent - fraction_bits)
    } else {
        (1.0 + fraction * 2f64.powi(-fraction_bits)) * 2f64.powi(biased - 1 + min_exponent)
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Values of shape (batch, seqlen, head, dim), dense in that order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Storage format; 16 bits wide.
    pub dtype: DType,
    /// Batch, seqlen, heads, head_dim.
    pub shape: [usize; 4],
    /// Storage bits, dim fastest.
    pub bits: Vec<u16>,
}

impl Tensor {
    /// Rounds `value(batch, token, head, dim)` into `dtype`, on every core: large problems have 10^8 elements.
    pub fn from_fn(
        dtype: DType,
        shape: [usize; 4],
        value: impl Fn(usize, usize, usize, usize) -> f64 + Sync,
    ) -> Self {
        let [_, seqlen, heads, dim] = shape;
        let mut bits = vec![0; shape.iter().product()];
        bits.par_chunks_mut(dim.max(1)).enumerate().for_each(|(row, chunk)| {
            let (b, s, h) = (row / (heads * seqlen), row / heads % seqlen, row % heads);
            chunk.iter_mut().enumerate().for_each(|(d, bits)| *bits = encode(dtype, value(b, s, h, d)));
        });
        Tensor { dtype, shape, bits }
    }

    /// The vector at (batch, token, head).
    pub fn row(&self, b: usize, s: usize, h: usize) -> &[u16] {
        let [_, seqlen, heads, dim] = self.shape;
        let start = ((b * seqlen + s) * heads + h) * dim;
        &self.bits[start..start + dim]
    }

    /// The vector at (batch, token, head), decoded.
    pub fn row_f64(&self, b: usize, s: usize, h: usize) -> Vec<f64> {
        self.row(b, s, h).iter().map(|&bits| decode(self.dtype, bits)).collect()
    }

    /// Largest |element|; 0 for an empty tensor, NaN ignored.
    pub fn max_abs(&self) -> f64 {
        // Without their sign, the bits of larger values are larger; those of NaN are beyond infinity's.
        let infinity = encode(self.dtype, f64::INFINITY);
        let magnitude = |bits: &u16| match bits & 0x7fff {
            nan if nan > infinity => 0,
            magnitude => magnitude,
        };
        let largest = |chunk: &[u16]| chunk.iter().map(magnitude).max().unwrap_or(0);
        let bits = self.bits.par_chunks(1 << 16).map(largest).max();
        decode(self.dtype, bits.unwrap_or(0))
    }
}

/// Every (batch, token, head), head fastest.
pub fn rows(batch: usize, seqlen: usize, heads: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batch).flat_map(move |b| (0..seqlen).flat_map(move |s| (0..heads).map(move |h| (b, s, h))))
}

/// Where a tensor's rows lie: byte offset of the first element and strides in elements. The last dim is
/// contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Bytes from the start of the buffer to element (0, 0, 0, 0).
    pub offset_bytes: u64,
    /// Elements from one batch entry to the next; 0 broadcasts.
    pub stride_batch: u64,
    /// Elements from one token to the next.
    pub stride_seq: u64,
    /// Elements from one head to the next.
    pub stride_head: u64,
}

impl Layout {
    /// (batch, seqlen, head, dim) memory.
    pub fn bshd(shape: [usize; 4]) -> Self {
        let [_, seqlen, heads, dim] = shape.map(|x| x as u64);
        let stride_seq = heads * dim;
        Layout { offset_bytes: 0, stride_batch: seqlen * stride_seq, stride_seq, stride_head: dim }
    }

    /// (batch, head, seqlen, dim) memory.
    pub fn bhsd(shape: [usize; 4]) -> Self {
        let [_, seqlen, heads, dim] = shape.map(|x| x as u64);
        let stride_head = seqlen * dim;
        Layout { offset_bytes: 0, stride_batch: heads * stride_head, stride_seq: dim, stride_head }
    }

    /// Byte offset of the row at (batch, token, head).
    pub fn row_offset(&self, elem_bytes: u64, b: usize, s: usize, h: usize) -> u64 {
        let elems = b as u64 * self.stride_batch + s as u64 * self.stride_seq + h as u64 * self.stride_head;
        self.offset_bytes + elems * elem_bytes
    }

    /// Bytes from the start of the buffer to the end of the last element; the offset alone for an empty shape.
    pub fn extent_bytes(&self, elem_bytes: u64, shape: [usize; 4]) -> u64 {
        if shape.contains(&0) {
            return self.offset_bytes;
        }
        let [b, s, h, d] = shape;
        self.row_offset(elem_bytes, b - 1, s - 1, h - 1) + d as u64 * elem_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_pattern_survives_a_round_trip() {
        for dtype in [DType::Bf16, DType::F16] {
            for bits in 0..=u16::MAX {
                let value = decode(dtype, bits);
                if value.is_nan() {
                    assert!(decode(dtype, encode(dtype, value)).is_nan());
                } else {
                    assert_eq!(encode(dtype, value), bits, "{dtype} {bits:#06x} = {value}");
                }
            }
        }
    }

    /// The short way by integers agrees with counting quanta, at ties, carries and both ends most of all.
    #[test]
    fn both_ways_to_encode_agree() {
        for dtype in [DType::Bf16, DType::F16] {
            for bits in 0..0x7fffu16 {
                let (low, high) = (decode(dtype, bits), decode(dtype, bits + 1));
                if !high.is_finite() {
                    continue;
                }
                let middle = low + (high - low) / 2.0;
                for x in [low, middle, middle.next_down(), middle.next_up(), high.next_down()] {
                    for x in [x, -x] {
                        assert_eq!(encode(dtype, x), encode_any(dtype, x), "{dtype} {x:e}");
                    }
                }
            }
            for x in [f64::INFINITY, f64::MAX, 65519.9, 65520.0, 3.3895e38, 3.3961e38, 3.4e38, 1e-300, 0.0] {
                assert_eq!(encode(dtype, x), encode_any(dtype, x), "{dtype} {x:e}");
                assert_eq!(encode(dtype, -x), encode_any(dtype, -x), "{dtype} -{x:e}");
            }
        }
    }

    #[test]
    fn the_largest_magnitude_ignores_nan() {
        let tensor = |bits: Vec<u16>| Tensor { dtype: DType::Bf16, shape: [1, 1, 1, bits.len()], bits };
        assert_eq!(tensor(vec![0x3f80, 0xc040, 0x7fc0, 0xffc1]).max_abs(), 3.0);
        assert_eq!(tensor(vec![0x7fc0]).max_abs(), 0.0);
        assert_eq!(tensor(Vec::new()).max_abs(), 0.0);
        assert_eq!(tensor(vec![0xff80, 0x3f80]).max_abs(), f64::INFINITY);
    }

    /// bf16 is the upper half of f32: an independent definition of both directions.
    #[test]
    fn bf16_agrees_with_f32() {
        for i in 0..200_000u32 {
            let f = f32::from_bits(i.wrapping_mul(0x9E37_79B1));
            if f.is_nan() {
                continue;
            }
            let bits = f.to_bits();
            let rounded = ((u64::from(bits) + 0x7fff + u64::from((bits >> 16) & 1)) >> 16) as u16;
            assert_eq!(encode(DType::Bf16, f64::from(f)), rounded, "{f:e}");
            assert_eq!(decode(DType::Bf16, rounded), f64::from(f32::from_bits(u32::from(rounded) << 16)));
        }
    }

    #[test]
    fn f16_known_values() {
        for (value, bits) in [
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65504.0, 0x7bff),
            (65520.0, 0x7c00),
            (65519.0, 0x7bff),
            (2f64.powi(-24), 0x0001),
            (2f64.powi(-25), 0x0000),
            (1.5 * 2f64.powi(-25), 0x0001),
            (f64::INFINITY, 0x7c00),
        ] {
            assert_eq!(encode(DType::F16, value), bits, "{value}");
        }
    }

    #[test]
    fn ulps() {
        assert_eq!(ulp(DType::Bf16, 1.0), 2f64.powi(-7));
        assert_eq!(ulp(DType::Bf16, 1.99), 2f64.powi(-7));
        assert_eq!(ulp(DType::Bf16, 0.0), 2f64.powi(-133));
        assert_eq!(ulp(DType::F16, 3.0), 2f64.powi(-9));
        assert_eq!(unit_roundoff(DType::F16), 2f64.powi(-11));
        assert_eq!(unit_roundoff(DType::Bf16), 2f64.powi(-8));
    }

    #[test]
    fn layouts_place_rows() {
        let shape = [2, 3, 4, 8];
        let dense = Layout::bshd(shape);
        assert_eq!(dense.row_offset(2, 1, 2, 3), 2 * (((3 + 2) * 4 + 3) * 8));
        assert_eq!(dense.extent_bytes(2, shape), 2 * 2 * 3 * 4 * 8);
        let transposed = Layout::bhsd(shape);
        assert_eq!(transposed.row_offset(2, 1, 2, 3), 2 * (((4 + 3) * 3 + 2) * 8));
        assert_eq!(transposed.extent_bytes(2, shape), dense.extent_bytes(2, shape));
        assert_eq!(dense.extent_bytes(2, [2, 0, 4, 8]), 0);
    }
}
