//! FLOPs and bytes as counted.
//!
//! *Effective FLOPs*: 2·head_dim_qk for a score and 2·head_dim_v for its share of O, for every (query, key) pair that the
//! mask leaves, counted exactly: a window, unequal lengths and tails count as what they are, the softmax counts nothing.
//! Benchmarks of FlashAttention count 4·b·h·sq·sk·d instead, half of it under a causal mask and nothing less for a
//! window; the ratio of two kernels is the same under either rule.

use fa4_spec::AttnProblem;

use crate::record::Counts;

/// Bytes of one LSE.
const LSE_BYTES: u64 = 4;

/// What `p` takes.
pub fn counts(p: &AttnProblem) -> Counts {
    let heads = p.batch * p.num_heads_q;
    let pairs = heads * pairs(p);
    let dims = p.head_dim_qk + p.head_dim_v;
    let full = 2.0 * (heads * dims) as f64 * p.seqlen_q as f64 * p.seqlen_k as f64;
    let causal = p.mask.causal || p.mask.window_right == Some(0);
    let tokens = |seqlen: u64, heads: u64, dim: u64| p.batch * seqlen * heads * dim;
    let bytes = (tokens(p.seqlen_q, p.num_heads_q, dims)) * p.q_dtype.bytes()
        + tokens(p.seqlen_k, p.num_heads_kv, dims) * p.kv_dtype.bytes()
        + tokens(p.seqlen_q, p.num_heads_q, 1) * LSE_BYTES;
    Counts {
        pairs,
        flops: 2.0 * pairs as f64 * dims as f64,
        flops_convention: if causal { full / 2.0 } else { full },
        bytes,
    }
}

/// Visible pairs of one head: query i sits on key i + sk − sq and sees from there `window_left` keys to the left and
/// `window_right` to the right.
fn pairs(p: &AttnProblem) -> u64 {
    let (sq, sk) = (p.seqlen_q as i64, p.seqlen_k as i64);
    let right = if p.mask.causal { Some(0) } else { p.mask.window_right };
    let reach = |bound: Option<u64>| bound.map_or(i64::MAX / 4, |b| b.min(1 << 40) as i64);
    let (left, right) = (reach(p.mask.window_left), reach(right));
    let seen = |i: i64| {
        let own = i + sk - sq;
        ((own + right).min(sk - 1) - (own - left).max(0) + 1).max(0) as u64
    };
    (0..sq).map(seen).sum()
}

#[cfg(test)]
mod tests {
    use fa4_spec::{DType, Mask};

    use super::*;

    fn problem(sizes: (u64, u64), mask: Mask) -> AttnProblem {
        AttnProblem::dense(2, sizes, (4, 2), 8, mask, DType::Bf16)
    }

    #[test]
    fn pairs_by_hand() {
        let window = |left, right| Mask { causal: false, window_left: left, window_right: right };
        for (sizes, mask, per_head) in [
            ((3, 5), Mask::FULL, 15),
            ((4, 4), Mask::CAUSAL, 10),
            ((2, 5), Mask::CAUSAL, 4 + 5),
            ((5, 2), Mask::CAUSAL, 1 + 2),
            ((4, 4), window(Some(1), Some(0)), 1 + 2 + 2 + 2),
            ((4, 4), window(Some(0), Some(1)), 2 + 2 + 2 + 1),
            ((3, 0), Mask::FULL, 0),
            ((3, 3), window(None, Some(1)), 2 + 3 + 3),
        ] {
            let counts = counts(&problem(sizes, mask));
            assert_eq!(counts.pairs, 2 * 4 * per_head, "{sizes:?} {mask}");
            assert_eq!(counts.flops, (2 * 4 * per_head * 2 * 16) as f64);
        }
    }

    #[test]
    fn convention_and_bytes() {
        let full = counts(&problem((100, 200), Mask::FULL));
        assert_eq!(full.flops, full.flops_convention);
        assert_eq!(full.flops_convention, 4.0 * 2.0 * 4.0 * 100.0 * 200.0 * 8.0);
        let causal = counts(&problem((100, 200), Mask::CAUSAL));
        assert_eq!(causal.flops_convention, full.flops / 2.0);
        // q, O: 2·100·4·8·2 B each; k, v: 2·200·2·8·2 B each; LSE: 2·100·4·4 B.
        assert_eq!(full.bytes, 2 * 12800 + 2 * 12800 + 3200);
    }
}
