//! Tensors as the bytes of their buffers, and back.

use fa4_spec::qdist::{Inputs, Placed};
use fa4_spec::tensor::{Layout, rows};

/// Bytes of an element: 16-bit formats only.
const ELEM: usize = 2;

/// A case's input buffers, as every copy of them in device memory is to be filled.
pub struct Bytes {
    /// Name and content.
    pub buffers: Vec<(&'static str, Vec<u8>)>,
    /// f32, one per query head.
    pub sinks: Option<Vec<u8>>,
}

impl Bytes {
    /// The buffers of `inputs`, gaps included.
    pub fn of(inputs: &Inputs) -> Self {
        let mut buffers: Vec<(&'static str, Vec<u8>)> = Vec::new();
        for buffer in &inputs.buffers {
            let mut image = vec![0; buffer.bytes as usize];
            if let Some(background) = buffer.background {
                image.chunks_exact_mut(ELEM).for_each(|to| to.copy_from_slice(&background.to_le_bytes()));
            }
            buffers.push((buffer.name, image));
        }
        for placed in [&inputs.q, &inputs.k, &inputs.v] {
            scatter(&mut buffers[placed.buffer].1, placed);
        }
        let sinks = inputs.sinks.as_ref().map(|sinks| sinks.iter().flat_map(|x| x.to_le_bytes()).collect());
        Bytes { buffers, sinks }
    }
}

fn scatter(image: &mut [u8], placed: &Placed) {
    let tensor = &placed.tensor;
    let put = |to: &mut [u8], from: &[u16]| {
        to.chunks_exact_mut(ELEM).zip(from).for_each(|(to, bits)| to.copy_from_slice(&bits.to_le_bytes()));
    };
    if placed.layout == Layout::bshd(tensor.shape) {
        return put(&mut image[..ELEM * tensor.bits.len()], &tensor.bits);
    }
    let [batch, seqlen, heads, dim] = tensor.shape;
    for (b, s, h) in rows(batch, seqlen, heads) {
        let at = placed.layout.row_offset(ELEM as u64, b, s, h) as usize;
        put(&mut image[at..at + ELEM * dim], tensor.row(b, s, h));
    }
}

/// The elements of a tensor of `shape` out of its buffer, dense in logical order.
pub fn gather(image: &[u8], layout: &Layout, shape: [usize; 4]) -> Vec<u16> {
    let take = |from: &[u8]| -> Vec<u16> {
        from.chunks_exact(ELEM).map(|x| u16::from_le_bytes([x[0], x[1]])).collect()
    };
    if *layout == Layout::bshd(shape) {
        return take(image);
    }
    let [batch, seqlen, heads, dim] = shape;
    let row = |(b, s, h)| {
        let at = layout.row_offset(ELEM as u64, b, s, h) as usize;
        take(&image[at..at + ELEM * dim])
    };
    rows(batch, seqlen, heads).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use fa4_spec::qdist::{QDist, inputs};
    use fa4_spec::{AttnProblem, Case, DType, Mask};

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
            let bytes = Bytes::of(&inputs);
            for placed in [&inputs.q, &inputs.k, &inputs.v] {
                let image = &bytes.buffers[placed.buffer].1;
                assert_eq!(gather(image, &placed.layout, placed.tensor.shape), placed.tensor.bits, "{qdist}");
            }
            if qdist == QDist::InfFreeNanInPadding {
                let last = &bytes.buffers[0].1;
                assert_eq!(last[last.len() - 2..], 0x7fc0u16.to_le_bytes());
            }
        }
    }
}
