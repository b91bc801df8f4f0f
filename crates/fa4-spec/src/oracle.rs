//! The truth: naive attention in f64 with no rounding and no tricks. Keep it so: whoever judges kernels must
//! be checkable by eye. Besides O and LSE one pass yields the sums that the error bounds need.

use rayon::prelude::*;

use crate::problem::{AttnProblem, Mask};
use crate::tensor::Tensor;

/// What a right kernel's output is compared with. Arrays are (batch, seqlen_q, head, dim) and, for
/// [`Reference::lse`], (batch, head, seqlen_q).
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Σ w_j·v_j; 0 in a row with no visible key.
    pub o: Vec<f64>,
    /// ln Σ exp(s_j), the sink included; −∞ in a row with no visible key.
    pub lse: Vec<f64>,
    /// A = Σ w_j·|v_j|.
    pub weighted_abs: Vec<f64>,
    /// B = sqrt(Σ w_j²·v_j²).
    pub weighted_norm: Vec<f64>,
    /// Σ |v_j| / l0 with l0 = Σ exp(s_j − max s), over visible keys.
    pub abs_over_l0: Vec<f64>,
    /// max|q|·max|k|, elements.
    pub max_q_max_k: f64,
    /// max |q·k| over visible pairs.
    pub max_dot: f64,
}

/// The one mask predicate, bottom-right aligned: may query `i` of `seqlen_q` see key `j` of `seqlen_k`?
fn visible(mask: Mask, i: usize, j: usize, seqlen_q: usize, seqlen_k: usize) -> bool {
    let delta = (j as i64 + seqlen_q as i64) - (i as i64 + seqlen_k as i64);
    let within = |bound: Option<u64>, reach: i64| bound.is_none_or(|b| reach <= 0 || reach as u64 <= b);
    (!mask.causal || delta <= 0) && within(mask.window_left, -delta) && within(mask.window_right, delta)
}

/// One row: everything that [`Reference`] holds for a (batch, token, head).
struct RowResult {
    lse: f64,
    max_dot: f64,
    /// Per dim: O, A, B, Σ|v|/l0.
    sums: [Vec<f64>; 4],
}

/// `k_dims[d][j]` and `values[j][d]` belong to the row's key/value head.
fn row(
    p: &AttnProblem,
    i: usize,
    q: &[f64],
    k_dims: &[Vec<f64>],
    values: &[Vec<f64>],
    sink: Option<f64>,
) -> RowResult {
    let (sq, sk) = (p.seqlen_q as usize, p.seqlen_k as usize);
    let mut dots = vec![0.0; sk];
    for (q, k) in q.iter().zip(k_dims) {
        dots.iter_mut().zip(k).for_each(|(dot, k)| *dot += q * k);
    }
    let keys: Vec<usize> = (0..sk).filter(|&j| visible(p.mask, i, j, sq, sk)).collect();
    let logit = |j: usize| match p.softmax_scale() * dots[j] {
        s if p.softcap > 0.0 => p.softcap * (s / p.softcap).tanh(),
        s => s,
    };
    let mut sums = [(); 4].map(|()| vec![0.0; p.head_dim_v as usize]);
    if keys.is_empty() {
        return RowResult { lse: f64::NEG_INFINITY, max_dot: 0.0, sums };
    }
    let max = keys.iter().map(|&j| logit(j)).chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let max_key = keys.iter().map(|&j| logit(j)).fold(f64::NEG_INFINITY, f64::max);
    let l0: f64 = keys.iter().map(|&j| (logit(j) - max_key).exp()).sum();
    let denominator = keys.iter().map(|&j| logit(j)).chain(sink).map(|s| (s - max).exp()).sum::<f64>();
    for &j in &keys {
        let w = (logit(j) - max).exp() / denominator;
        let [o, a, b, abs] = &mut sums;
        for (d, &v) in values[j].iter().enumerate() {
            o[d] += w * v;
            a[d] += w * v.abs();
            b[d] += (w * v) * (w * v);
            abs[d] += v.abs() / l0;
        }
    }
    sums[2].iter_mut().for_each(|b| *b = b.sqrt());
    let max_dot = keys.iter().map(|&j| dots[j].abs()).fold(0.0, f64::max);
    RowResult { lse: max + denominator.ln(), max_dot, sums }
}

/// Attention of `q`, `k`, `v` (shapes as in `p`); `sinks` holds one logit per query head iff `p.sink`.
/// Query head h reads key/value head ⌊h / qhead_per_kvhead⌋.
pub fn attention(p: &AttnProblem, q: &Tensor, k: &Tensor, v: &Tensor, sinks: Option<&[f64]>) -> Reference {
    let [batch, sq, sk, heads] = [p.batch, p.seqlen_q, p.seqlen_k, p.num_heads_q].map(|n| n as usize);
    let (dim, group) = (p.head_dim_v as usize, p.qhead_per_kvhead() as usize);
    let elems = batch * sq * heads * dim;
    let [mut o, mut weighted_abs, mut weighted_norm, mut abs_over_l0] = [(); 4].map(|()| vec![0.0; elems]);
    let mut lse = vec![0.0; batch * heads * sq];
    let mut max_dot = 0f64;
    for b in 0..batch {
        for kv_head in 0..heads / group {
            let keys: Vec<_> = (0..sk).map(|j| k.row_f64(b, j, kv_head)).collect();
            let k_dims: Vec<Vec<f64>> =
                (0..p.head_dim_qk as usize).map(|d| keys.iter().map(|key| key[d]).collect()).collect();
            let values: Vec<_> = (0..sk).map(|j| v.row_f64(b, j, kv_head)).collect();
            let rows: Vec<(usize, usize)> =
                (0..group).flat_map(|g| (0..sq).map(move |i| (kv_head * group + g, i))).collect();
            let results: Vec<RowResult> = rows
                .par_iter()
                .map(|&(h, i)| row(p, i, &q.row_f64(b, i, h), &k_dims, &values, sinks.map(|s| s[h])))
                .collect();
            for (&(h, i), result) in rows.iter().zip(&results) {
                let at = ((b * sq + i) * heads + h) * dim;
                let outs = [&mut o, &mut weighted_abs, &mut weighted_norm, &mut abs_over_l0];
                outs.into_iter().zip(&result.sums).for_each(|(out, s)| out[at..at + dim].copy_from_slice(s));
                lse[(b * heads + h) * sq + i] = result.lse;
                max_dot = max_dot.max(result.max_dot);
            }
        }
    }
    let max_q_max_k = q.max_abs() * k.max_abs();
    Reference { o, lse, weighted_abs, weighted_norm, abs_over_l0, max_q_max_k, max_dot }
}

/// The same for the given (batch, token, query head) only, in their order: O and the sums are (row, dim), LSE is (row).
/// `max_dot` is over these rows. For problems whose whole truth would take hours.
pub fn attention_rows(
    p: &AttnProblem,
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    sinks: Option<&[f64]>,
    wanted: &[(usize, usize, usize)],
) -> Reference {
    let (sk, group) = (p.seqlen_k as usize, p.qhead_per_kvhead() as usize);
    let mut heads: Vec<(usize, usize)> = wanted.iter().map(|&(b, _, h)| (b, h / group)).collect();
    heads.sort_unstable();
    heads.dedup();
    let of_head = |&(b, kv_head): &(usize, usize)| -> Vec<(usize, RowResult)> {
        let keys: Vec<_> = (0..sk).map(|j| k.row_f64(b, j, kv_head)).collect();
        let k_dims: Vec<Vec<f64>> =
            (0..p.head_dim_qk as usize).map(|d| keys.iter().map(|key| key[d]).collect()).collect();
        let values: Vec<_> = (0..sk).map(|j| v.row_f64(b, j, kv_head)).collect();
        // Few heads must not leave cores idle.
        let here = wanted.par_iter().enumerate().filter(|(_, w)| (w.0, w.2 / group) == (b, kv_head));
        here.map(|(at, &(b, i, h))| {
            (at, row(p, i, &q.row_f64(b, i, h), &k_dims, &values, sinks.map(|s| s[h])))
        })
        .collect()
    };
    let mut results: Vec<_> = heads.par_iter().flat_map_iter(of_head).collect();
    results.sort_by_key(|(at, _)| *at);
    let [o, weighted_abs, weighted_norm, abs_over_l0] =
        [0, 1, 2, 3].map(|i| results.iter().flat_map(|(_, r)| r.sums[i].iter().copied()).collect());
    let lse = results.iter().map(|(_, r)| r.lse).collect();
    let max_dot = results.iter().map(|(_, r)| r.max_dot).fold(0.0, f64::max);
    Reference {
        o,
        lse,
        weighted_abs,
        weighted_norm,
        abs_over_l0,
        max_q_max_k: q.max_abs() * k.max_abs(),
        max_dot,
    }
}
