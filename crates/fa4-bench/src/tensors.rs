//! Tensors out of the bytes of their buffers.

use fa4_refs::RowAt;
use fa4_spec::DType;
use fa4_spec::tensor::{Layout, encode, rows};
use rayon::prelude::*;

/// Bytes of an element: 16-bit formats only.
const ELEM: usize = 2;

/// Index of the first element of 16-bit `dtype` in `image` that is NaN or infinite.
pub fn first_not_finite(image: &[u8], dtype: DType) -> Option<u64> {
    // All ones in the exponent: quicker than decoding 10^8 elements.
    let exponent = encode(dtype, f64::INFINITY);
    let is_odd = |x: &[u8]| u16::from_le_bytes([x[0], x[1]]) & exponent == exponent;
    let chunk = 1 << 20;
    let found = image.par_chunks(ELEM * chunk).enumerate().filter_map(|(at, part)| {
        // Without a branch an element this runs as fast as memory.
        let any = part.chunks_exact(ELEM).fold(false, |any, x| any | is_odd(x));
        any.then(|| part.chunks_exact(ELEM).position(is_odd).map(|i| (at * chunk + i) as u64))?
    });
    found.find_first(|_| true)
}

/// The elements of one row of a tensor of `shape` out of its buffer.
pub fn row(image: &[u8], layout: &Layout, [_, _, _, dim]: [usize; 4], (b, s, h): RowAt) -> Vec<u16> {
    let at = layout.row_offset(ELEM as u64, b, s, h) as usize;
    image[at..at + ELEM * dim].chunks_exact(ELEM).map(|x| u16::from_le_bytes([x[0], x[1]])).collect()
}

/// The elements of a tensor of `shape` out of its buffer, dense in logical order.
pub fn gather(image: &[u8], layout: &Layout, shape: [usize; 4]) -> Vec<u16> {
    if *layout == Layout::bshd(shape) {
        return image.par_chunks_exact(ELEM).map(|x| u16::from_le_bytes([x[0], x[1]])).collect();
    }
    let [batch, seqlen, heads, _] = shape;
    rows(batch, seqlen, heads).flat_map(|at| row(image, layout, shape, at)).collect()
}

#[cfg(test)]
mod tests {
    use fa4_spec::qdist::{QDist, inputs};
    use fa4_spec::{AttnProblem, Case, Mask};

    use super::*;

    /// Whatever the view, what is placed is found again at its strides, and gaps hold the background.
    #[test]
    fn views_round_trip() {
        for qdist in [
            QDist::Randn,
            QDist::BhsdTransposedView,
            QDist::PackedQkvInterleavedView,
            QDist::KvExpandStride0Batch,
            QDist::Offset16BAlignedNot128B,
            QDist::InfFreeNanInPadding,
        ] {
            let p = AttnProblem::dense(2, (5, 5), (4, 2), 8, Mask::FULL, DType::Bf16);
            let inputs = inputs(&Case { qdist, ..Case::dense("x", p, 3) }).unwrap();
            let images = fa4_refs::files::images(&inputs);
            for placed in [&inputs.q, &inputs.k, &inputs.v] {
                let image = &images[placed.buffer];
                assert_eq!(gather(image, &placed.layout, placed.tensor.shape), placed.tensor.bits, "{qdist}");
            }
            if qdist == QDist::InfFreeNanInPadding {
                let last = &images[0];
                assert_eq!(last[last.len() - 2..], 0x7fc0u16.to_le_bytes());
            }
        }
    }

    #[test]
    fn the_first_odd_element_is_found() {
        let mut image = vec![0u8; ELEM * 3_000_000];
        for dtype in [DType::Bf16, DType::F16] {
            assert_eq!(first_not_finite(&image, dtype), None);
        }
        let mut put = |at: usize, bits: u16| image[ELEM * at..][..ELEM].copy_from_slice(&bits.to_le_bytes());
        // The largest finite numbers, then an infinity and a NaN of bf16.
        put(5, 0x7f7f);
        put(2_500_000, 0xff80);
        put(2_700_000, 0x7fc0);
        assert_eq!(first_not_finite(&image, DType::Bf16), Some(2_500_000));
        assert_eq!(first_not_finite(&image, DType::F16), Some(5), "0x7f7f is a NaN of fp16");
    }
}
