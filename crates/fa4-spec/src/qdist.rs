//! The data of a case: q, k, v by the names of `sets/README.md`, and how the tensors lie in their buffers.
//! Everything comes from one counter-based generator, so that an element depends on its seed and index
//! only.

use std::collections::HashMap;

use rayon::prelude::*;
use thiserror::Error;

use crate::cases::Case;
use crate::problem::DType;
use crate::sets::{BatchLayout, words};
use crate::tensor::{Layout, Tensor, encode};

words! {
    /// How data is made; definitions in `sets/README.md`.
    QDist {
        /// q, k, v ~ N(0, 1).
        Randn = "randn",
        /// q = k = 0.
        Zeros = "zeros",
        /// Every key the same vector.
        AllEqual = "all_equal",
        /// Every logit −120.
        Const120Neg = "const120neg",
        /// q ~ N(0, 100²).
        QStd100 = "q_std100",
        /// q = ±448, k = ±1880.
        Pm448x1880 = "pm448x1880",
        /// One key takes > 0.999 of the weight.
        OneHotKey = "one_hot_key",
        /// The first key is far ahead.
        MaxFirstKey = "max_first_key",
        /// The last key is far ahead.
        MaxLastKey = "max_last_key",
        /// Logits rise from 0 to 60 along the keys.
        MonotoneUp = "monotone_up",
        /// The same in fp8.
        RisingRowmax = "rising_rowmax",
        /// Sinks of ±60 by head.
        SinkPm60 = "sink_pm60",
        /// Pages outside the table hold NaN.
        NanInUnusedPages = "nan_in_unused_pages",
        /// Bytes that no query may read hold NaN.
        InfFreeNanInPadding = "inf_free_nan_in_padding",
        /// (B, H, S, D) memory seen as (B, S, H, D).
        BhsdTransposedView = "bhsd_transposed_view",
        /// q, k, v are slices of one packed tensor.
        PackedQkvInterleavedView = "packed_qkv_interleaved_view",
        /// K and V have batch stride 0.
        KvExpandStride0Batch = "kv_expand_stride0_batch",
        /// Base addresses are 16 B aligned only.
        Offset16BAlignedNot128B = "offset_16B_aligned_not_128B",
    }
}

impl QDist {
    /// randn or a view of it: the elements of q, k and v are independent, as bound T2 needs.
    pub fn is_independent(self) -> bool {
        use QDist::*;
        matches!(
            self,
            Randn
                | SinkPm60
                | NanInUnusedPages
                | InfFreeNanInPadding
                | BhsdTransposedView
                | PackedQkvInterleavedView
                | KvExpandStride0Batch
                | Offset16BAlignedNot128B
        )
    }
}

/// One allocation that tensors lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// For messages: `q`, `k`, `v`, `qkv`.
    pub name: &'static str,
    /// Size in bytes; may be far larger than what is touched.
    pub bytes: u64,
    /// What bytes outside the tensors hold: these storage bits, or nothing at all.
    pub background: Option<u16>,
}

/// A tensor in a buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The values. With batch stride 0 they repeat over the batch.
    pub tensor: Tensor,
    /// Where they lie.
    pub layout: Layout,
    /// Index into [`Inputs::buffers`].
    pub buffer: usize,
}

/// The inputs of a case, ready to be written into device memory, and the layout its output must have.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Allocations.
    pub buffers: Vec<Buffer>,
    /// Queries.
    pub q: Placed,
    /// Keys.
    pub k: Placed,
    /// Values.
    pub v: Placed,
    /// Layout of O in a buffer of its own.
    pub o: Layout,
    /// One logit per query head, where the problem has sinks.
    pub sinks: Option<Vec<f32>>,
}

/// Data that this generator does not make.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} is not supported yet; supported: {supported}")]
pub struct Unsupported {
    /// What the row asks for.
    pub what: String,
    /// What there is.
    pub supported: &'static str,
}

fn unsupported<T>(what: impl Into<String>, supported: &'static str) -> Result<T, Unsupported> {
    Err(Unsupported { what: what.into(), supported })
}

/// Says whether [`inputs`] can make this case's data, without making it.
pub fn supports(case: &Case) -> Result<(), Unsupported> {
    let p = &case.problem;
    if case.layout != BatchLayout::Dense {
        return unsupported(format!("layout {}", case.layout), "layout dense");
    }
    if !case.segments.is_empty() {
        return unsupported("a mixed batch (batch_spec)", "equal lengths");
    }
    for dtype in [p.q_dtype, p.kv_dtype] {
        if dtype == DType::E4m3 {
            return unsupported(format!("data in {dtype}"), "bf16, fp16");
        }
    }
    if case.qdist == QDist::SinkPm60 && !p.sink {
        return unsupported("qdist sink_pm60 without sinks", "sink 1");
    }
    if matches!(case.qdist, QDist::RisingRowmax | QDist::NanInUnusedPages) {
        return unsupported(format!("qdist {}", case.qdist), "every qdist of dense bf16 and fp16 rows");
    }
    if case.qdist == QDist::PackedQkvInterleavedView
        && (p.seqlen_q != p.seqlen_k || p.head_dim_qk != p.head_dim_v)
    {
        return unsupported("a packed q, k, v view of unequal lengths or head dims", "sq = sk and d = dv");
    }
    Ok(())
}

/// Elements of randn that were made before. They depend on seed and index alone, so that a tensor is the beginning of
/// every larger one; the rows of a set then cost a copy each.
#[derive(Debug, Default)]
pub struct Stock {
    made: HashMap<(Stream, u64, DType), Vec<u16>>,
}

/// Elements of a stream that are kept at most.
const STOCKED: usize = 1 << 30;

impl Stock {
    fn tensor(&mut self, maker: &Maker<'_>, stream: Stream, dtype: DType, shape: [usize; 4]) -> Tensor {
        let elems = shape.iter().product();
        if elems > STOCKED {
            return Tensor::from_fn(dtype, shape, |b, s, h, i| maker.randn(stream, index(shape, b, s, h, i)));
        }
        let made = self.made.entry((stream, maker.case.seed, dtype)).or_default();
        let first = made.len();
        if first < elems {
            made.resize(elems, 0);
            made[first..].par_chunks_mut(1 << 16).enumerate().for_each(|(chunk, bits)| {
                let first = (first + (chunk << 16)) as u64;
                let value = |i: usize| encode(dtype, maker.randn(stream, first + i as u64));
                bits.iter_mut().enumerate().for_each(|(i, bits)| *bits = value(i));
            });
        }
        // On every core, too: fresh memory costs more than the bytes.
        let mut bits = vec![0; elems];
        bits.par_chunks_mut(1 << 20).zip(made.par_chunks(1 << 20)).for_each(|(to, from)| {
            let count = to.len();
            to.copy_from_slice(&from[..count]);
        });
        Tensor { dtype, shape, bits }
    }
}

/// Makes the inputs of a case. The same case gives the same bytes on every machine.
pub fn inputs(case: &Case) -> Result<Inputs, Unsupported> {
    inputs_from(case, &mut Stock::default())
}

/// The same, with what earlier cases left in `stock`.
pub fn inputs_from(case: &Case, stock: &mut Stock) -> Result<Inputs, Unsupported> {
    supports(case)?;
    let p = &case.problem;
    let [batch, sq, sk, hq, hkv, d, dv] =
        [p.batch, p.seqlen_q, p.seqlen_k, p.num_heads_q, p.num_heads_kv, p.head_dim_qk, p.head_dim_v]
            .map(|n| n as usize);
    let kv_batch = if case.qdist == QDist::KvExpandStride0Batch { batch.min(1) } else { batch };
    let (q_shape, k_shape, v_shape) = ([batch, sq, hq, d], [kv_batch, sk, hkv, d], [kv_batch, sk, hkv, dv]);
    let maker = Maker { case, scale: p.softmax_scale(), root_d: (d as f64).sqrt() };
    let (q, k) = match case.qdist.is_independent() {
        true => (
            stock.tensor(&maker, Stream::Q, p.q_dtype, q_shape),
            stock.tensor(&maker, Stream::K, p.kv_dtype, k_shape),
        ),
        false => (
            Tensor::from_fn(p.q_dtype, q_shape, |b, s, h, i| maker.q(index(q_shape, b, s, h, i), i)),
            Tensor::from_fn(p.kv_dtype, k_shape, |b, s, h, i| {
                maker.k(index(k_shape, b, s, h, i), (b, s, h), i)
            }),
        ),
    };
    let v = stock.tensor(&maker, Stream::V, p.kv_dtype, v_shape);
    let sinks = p.sink.then(|| (0..hq as u64).map(|h| maker.sink(h) as f32).collect());
    Ok(Inputs { sinks, ..place(case, q, k, v) })
}

fn index([_, seqlen, heads, dim]: [usize; 4], b: usize, s: usize, h: usize, d: usize) -> u64 {
    (((b * seqlen + s) * heads + h) * dim + d) as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stream {
    Q = 1,
    K,
    V,
    Signs,
    QSigns,
    KSigns,
    HotKey,
    Sink,
}

/// Element formulas of one case.
struct Maker<'a> {
    case: &'a Case,
    scale: f64,
    root_d: f64,
}

impl Maker<'_> {
    fn bits(&self, stream: Stream, index: u64) -> u64 {
        mix(mix(self.case.seed ^ ((stream as u64) << 56)).wrapping_add(index))
    }

    /// Box–Muller on two counters of 53 bits.
    fn randn(&self, stream: Stream, index: u64) -> f64 {
        let unit = |bits: u64| ((bits >> 11) as f64 + 0.5) * 2f64.powi(-53);
        let (u, v) = (unit(self.bits(stream, 2 * index)), unit(self.bits(stream, 2 * index + 1)));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn sign(&self, stream: Stream, index: u64) -> f64 {
        if self.bits(stream, index) >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// Element `i` of the unit vector r.
    fn r(&self, i: usize) -> f64 {
        self.sign(Stream::Signs, i as u64) / self.root_d
    }

    fn q(&self, index: u64, i: usize) -> f64 {
        let randn = || self.randn(Stream::Q, index);
        match self.case.qdist {
            QDist::Zeros => 0.0,
            QDist::Const120Neg => (120.0 / self.scale).sqrt() * self.r(i),
            QDist::QStd100 => 100.0 * randn(),
            QDist::Pm448x1880 => 448.0 * self.sign(Stream::QSigns, index),
            QDist::OneHotKey => self.root_d * self.r(i) + 0.1 * randn(),
            QDist::MaxFirstKey | QDist::MaxLastKey => randn() + self.root_d * self.r(i),
            QDist::MonotoneUp | QDist::RisingRowmax => self.root_d * self.r(i),
            _ => randn(),
        }
    }

    fn k(&self, index: u64, (b, s, h): (usize, usize, usize), i: usize) -> f64 {
        let seqlen_k = self.case.problem.seqlen_k;
        let randn = || self.randn(Stream::K, index);
        // r·x adds x to the logit of a query √d·r.
        let logit = |x: f64| x * self.r(i) / (self.scale * self.root_d);
        match self.case.qdist {
            QDist::Zeros => 0.0,
            QDist::AllEqual => self.randn(Stream::K, i as u64),
            QDist::Const120Neg => -(120.0 / self.scale).sqrt() * self.r(i),
            QDist::Pm448x1880 => 1880.0 * self.sign(Stream::KSigns, index),
            QDist::OneHotKey if s as u64 == self.hot_key(b, h) => logit(40.0),
            QDist::OneHotKey => 0.1 * randn(),
            QDist::MaxFirstKey if s == 0 => randn() + logit(30.0),
            QDist::MaxLastKey if s as u64 == seqlen_k - 1 => randn() + logit(30.0),
            QDist::MonotoneUp | QDist::RisingRowmax => logit(60.0 * s as f64 / seqlen_k as f64),
            _ => randn(),
        }
    }

    /// randn + 2, which is neither lost in nor lost to the sum over a few hundred randn logits; or ±60 by head.
    fn sink(&self, head: u64) -> f64 {
        match self.case.qdist {
            QDist::SinkPm60 if head.is_multiple_of(2) => 60.0,
            QDist::SinkPm60 => -60.0,
            _ => 2.0 + self.randn(Stream::Sink, head),
        }
    }

    fn hot_key(&self, b: usize, h: usize) -> u64 {
        let head = b as u64 * self.case.problem.num_heads_kv + h as u64;
        self.bits(Stream::HotKey, head) % self.case.problem.seqlen_k
    }
}

/// SplitMix64's output function (Steele, Lea, Flood 2014): a bijection whose outputs on consecutive counters pass
/// statistical tests.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Tokens of NaN after each batch entry where padding is poisoned.
const PADDING_TOKENS: u64 = 128;

fn place(case: &Case, q: Tensor, k: Tensor, v: Tensor) -> Inputs {
    let p = &case.problem;
    let o_shape = [q.shape[0], q.shape[1], q.shape[2], v.shape[3]];
    let shapes = [q.shape, k.shape, v.shape, o_shape];
    let mut layouts = shapes.map(Layout::bshd);
    let mut background = None;
    match case.qdist {
        QDist::BhsdTransposedView => layouts = shapes.map(Layout::bhsd),
        QDist::KvExpandStride0Batch => layouts[1..3].iter_mut().for_each(|l| l.stride_batch = 0),
        QDist::Offset16BAlignedNot128B => layouts.iter_mut().for_each(|l| l.offset_bytes = 16),
        QDist::InfFreeNanInPadding => {
            background = Some(encode(p.kv_dtype, f64::NAN));
            layouts[..3].iter_mut().for_each(|l| l.stride_batch += PADDING_TOKENS * l.stride_seq);
        }
        QDist::PackedQkvInterleavedView => return packed(q, k, v, layouts[3]),
        _ => {}
    }
    if let Some(full) = &case.spread {
        let of_q = (full.batch, full.seqlen_q, full.num_heads_q);
        let of_kv = (full.batch, full.seqlen_k, full.num_heads_kv);
        layouts = [(0, of_q), (1, of_kv), (2, of_kv), (3, of_q)].map(|(i, full)| spread(shapes[i], full));
    }
    let mut buffers = Vec::new();
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, tensor)| {
        let buffer = buffers.len();
        let (layout, elem_bytes) = (layouts[buffer], tensor.dtype.bytes());
        let padding = if background.is_some() { PADDING_TOKENS * layout.stride_seq } else { 0 };
        let bytes = layout.extent_bytes(elem_bytes, tensor.shape) + padding * elem_bytes;
        buffers.push(Buffer { name, bytes, background });
        Placed { tensor, layout, buffer }
    });
    Inputs { buffers, q, k, v, o: layouts[3], sinks: None }
}

/// q, k and v as slices of one (batch, seqlen, hq + 2·hkv, dim) tensor.
fn packed(q: Tensor, k: Tensor, v: Tensor, o: Layout) -> Inputs {
    let [batch, seqlen, hq, dim] = q.shape;
    let (hkv, elem_bytes) = (k.shape[2], q.dtype.bytes());
    let whole_shape = [batch, seqlen, hq + 2 * hkv, dim];
    let whole = Layout::bshd(whole_shape);
    let slice = |first_head: usize, tensor: Tensor| {
        let offset_bytes = (first_head * dim) as u64 * elem_bytes;
        Placed { tensor, layout: Layout { offset_bytes, ..whole }, buffer: 0 }
    };
    let buffers =
        vec![Buffer { name: "qkv", bytes: whole.extent_bytes(elem_bytes, whole_shape), background: None }];
    Inputs { buffers, q: slice(0, q), k: slice(hq, k), v: slice(hq + hkv, v), o, sinks: None }
}

/// Strides that put the last row of a reduced tensor where the last row of the full (batch, seqlen, heads) tensor
/// lies, up to rounding down to 16 bytes: a case made to overflow 32-bit arithmetic keeps its addresses.
fn spread([batch, seqlen, heads, dim]: [usize; 4], full: (u64, u64, u64)) -> Layout {
    let (full_batch, full_seqlen, full_heads) = full;
    let dim = dim as u64;
    let token = full_heads.max(heads as u64) * dim;
    let entry = full_seqlen * token;
    let stride = |last: u64, steps: usize, least: u64| match steps {
        0 | 1 => least,
        steps => (last / (steps as u64 - 1) / 8 * 8).max(least),
    };
    Layout {
        offset_bytes: 0,
        stride_batch: stride(full_batch.saturating_sub(1) * entry, batch, entry),
        stride_seq: stride(full_seqlen.saturating_sub(1) * token, seqlen, token),
        stride_head: dim,
    }
}

#[cfg(test)]
#[path = "qdist_tests.rs"]
mod tests;
