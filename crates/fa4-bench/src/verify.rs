//! Judging before timing: outputs against the f64 oracle, with the gate's bounds.
//!
//! The whole truth of a long problem would take hours, so that for those some rows of O are judged: the same few query
//! tokens for every contestant, spread over batch and heads, block edges and ends among them. What the rows in between
//! could hide is the gate's business, which judges every element of smaller cases of the same kernels; every element
//! is looked at for NaN and infinities here, too.

use std::borrow::Cow;

use fa4_refs::RowAt;
use fa4_spec::oracle::{self, Reference};
use fa4_spec::qdist::Inputs;
use fa4_spec::tensor::{Tensor, decode};
use fa4_spec::tolerance::{Bounds, judge};
use fa4_spec::{AttnProblem, Case, exp2_poly};

use crate::record::Judged;
use crate::runner::Answer;

/// Blocks of S up to which every row is judged: some seconds on one core.
const WHOLE_BLOCKS: u64 = 256;
/// Most heads (batch × KV heads) of which rows are sampled.
const HEADS: usize = 16;
/// Multiply-adds of sampled rows in all: some seconds on one core.
const SAMPLED_WORK: u64 = 1 << 31;
/// Fewest and most sampled rows of a head.
const ROWS: (u64, u64) = (8, 64);

/// What every contestant's output is held against.
pub struct Truth {
    problem: AttnProblem,
    reference: Reference,
    bounds: Bounds,
    /// The (batch, token, head) of the reference's rows; `None`: all.
    sampled: Option<Vec<RowAt>>,
}

impl Truth {
    /// Asks the oracle about `case`.
    pub fn of(case: &Case, inputs: &Inputs) -> Self {
        let problem = case.problem.clone();
        // K and V that repeat over the batch are stored once; the oracle wants them whole.
        let batch = problem.batch as usize;
        let repeat = |x: &'_ Tensor| -> Option<Tensor> {
            let shape = [batch, x.shape[1], x.shape[2], x.shape[3]];
            (x.shape[0] != batch).then(|| Tensor { shape, bits: x.bits.repeat(batch), ..*x })
        };
        let whole = |x| repeat(x).map_or(Cow::Borrowed(x), Cow::Owned);
        let (q, k, v) = (&inputs.q.tensor, whole(&inputs.k.tensor), whole(&inputs.v.tensor));
        let sinks: Option<Vec<f64>> =
            inputs.sinks.as_ref().map(|s| s.iter().map(|&x| f64::from(x)).collect());
        let sampled = judged_rows(case);
        let reference = match &sampled {
            None => oracle::attention(&problem, q, &k, &v, sinks.as_deref()),
            Some(rows) => oracle::attention_rows(&problem, (q, &k, &v), sinks.as_deref(), rows),
        };
        let error = exp2_poly::MAX_RELATIVE_ERROR;
        let bounds = Bounds::new(&problem, &reference, case.qdist.is_independent(), error);
        Truth { problem, reference, bounds, sampled }
    }

    /// Rows of O that an answer must hold; `None`: all.
    pub fn rows(&self) -> Option<&[RowAt]> {
        self.sampled.as_deref()
    }

    /// The verdict on an output; an empty LSE is not judged.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn judge(&self, output: &Answer) -> Result<Judged, String> {
        let p = &self.problem;
        let total = p.batch * p.seqlen_q * p.num_heads_q;
        let judged = self.sampled.as_ref().map_or(total, |rows| rows.len() as u64);
        if output.o.len() as u64 != judged * p.head_dim_v {
            let wanted = judged * p.head_dim_v;
            return Err(format!("O has {} elements, {wanted} belong to the rows", output.o.len()));
        }
        if !output.lse.is_empty() && output.lse.len() as u64 != total {
            return Err(format!("LSE has {} elements, the problem has {total}", output.lse.len()));
        }
        let with_lse = !output.lse.is_empty();
        let (problem, o, lse) = match &self.sampled {
            None => (p.clone(), &output.o, Cow::Borrowed(&output.lse)),
            Some(rows) => {
                self.finite(output)?;
                let (o, lse) = (&output.o, Cow::Owned(self.lse_of(output, rows)));
                let one_head =
                    AttnProblem { batch: 1, seqlen_q: rows.len() as u64, num_heads_q: 1, ..p.clone() };
                (one_head, o, lse)
            }
        };
        let lse = match with_lse {
            true => lse,
            false => Cow::Owned(self.reference.lse.iter().map(|x| *x as f32).collect()),
        };
        let judgement =
            judge(&problem, &self.bounds, &self.reference, o, &lse).map_err(|wrong| match &self.sampled {
                None => wrong.to_string(),
                Some(rows) => format!(
                    "{wrong} (`query` counts the {} sampled rows, from (batch, token, head) {:?} to {:?})",
                    rows.len(),
                    rows[0],
                    rows[rows.len() - 1]
                ),
            })?;
        let (mut o_abs, mut o_rel) = (0f64, 0f64);
        for (&bits, want) in o.iter().zip(&self.reference.o) {
            let error = (decode(p.q_dtype, bits) - want).abs();
            o_abs = o_abs.max(error);
            o_rel = if *want == 0.0 { o_rel } else { o_rel.max(error / want.abs()) };
        }
        Ok(Judged {
            o_abs,
            o_rel,
            o_ratio: judgement.o.ratio,
            lse_ratio: with_lse.then_some(judgement.lse.ratio),
            rows: judged,
            of: total,
        })
    }

    fn lse_of(&self, output: &Answer, rows: &[RowAt]) -> Vec<f32> {
        let [seqlen, heads] = [self.problem.seqlen_q, self.problem.num_heads_q].map(|n| n as usize);
        let lse = rows.iter().filter(|_| !output.lse.is_empty());
        lse.map(|&(b, s, h)| output.lse[(b * heads + h) * seqlen + s]).collect()
    }

    /// Inputs are finite, and a row without keys is 0: O is finite everywhere, LSE at most −∞.
    fn finite(&self, output: &Answer) -> Result<(), String> {
        let p = &self.problem;
        let [seqlen, heads, dim] = [p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
        if let Some(at) = output.not_finite {
            let (row, at) = (at as usize / dim, at as usize % dim);
            let place = (row / (heads * seqlen), row / heads % seqlen, row % heads, at);
            return Err(format!("O is not finite at (batch, token, head, dim) {place:?}"));
        }
        match output.lse.iter().position(|x| x.is_nan() || *x == f32::INFINITY) {
            Some(at) => {
                let place = (at / (heads * seqlen), at % seqlen, at / seqlen % heads);
                Err(format!("LSE is {} at (batch, token, head) {place:?}", output.lse[at]))
            }
            None => Ok(()),
        }
    }
}

/// Rows of O that are judged of `case`; `None`: all.
pub fn judged_rows(case: &Case) -> Option<Vec<RowAt>> {
    (case.cost() > WHOLE_BLOCKS).then(|| sample(&case.problem))
}

/// `rows` of a dense O.
pub fn gather(p: &AttnProblem, o: &[u16], rows: &[RowAt]) -> Vec<u16> {
    let [seqlen, heads, dim] = [p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    let row = |&(b, s, h): &RowAt| {
        let at = ((b * seqlen + s) * heads + h) * dim;
        o[at..at + dim].iter().copied()
    };
    rows.iter().flat_map(row).collect()
}

/// Rows to judge: of at most [`HEADS`] heads, first and last among them, the first and last tokens, those at the edges of
/// 64- and 128-row tiles, and a fixed pseudo-random choice.
fn sample(p: &AttnProblem) -> Vec<RowAt> {
    let (heads, group, tokens) = (p.num_heads_q as usize, p.qhead_per_kvhead() as usize, p.seqlen_q);
    let kv_heads = p.batch as usize * heads / group;
    let picked = kv_heads.min(HEADS);
    let per_row = p.seqlen_k.max(1) * (p.head_dim_qk + p.head_dim_v);
    let count = (SAMPLED_WORK / per_row / picked.max(1) as u64).clamp(ROWS.0, ROWS.1).min(tokens);
    let mut rows = Vec::new();
    for n in 0..picked {
        let kv_head = if picked == 1 { 0 } else { n * (kv_heads - 1) / (picked - 1) };
        let (b, first) = (kv_head / (heads / group), kv_head % (heads / group) * group);
        let edges = [0, tokens - 1, 63, 64, 127, 128, tokens / 2, tokens.saturating_sub(129)];
        let random = (0..).map(|i| mix((kv_head as u64) << 32 | i) % tokens);
        let mut chosen: Vec<u64> = Vec::new();
        for token in edges.into_iter().chain(random).filter(|t| *t < tokens) {
            if !chosen.contains(&token) {
                chosen.push(token);
            }
            if chosen.len() as u64 == count {
                break;
            }
        }
        rows.extend(chosen.into_iter().enumerate().map(|(i, t)| (b, t as usize, first + (i + n) % group)));
    }
    rows
}

/// SplitMix64's output function.
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use fa4_spec::tensor::encode;
    use fa4_spec::{DType, Mask, qdist};

    use super::*;

    fn case(sizes: (u64, u64), heads: (u64, u64)) -> Case {
        let problem = AttnProblem::dense(2, sizes, heads, 64, Mask::CAUSAL, DType::Bf16);
        Case::dense("x", problem, 7)
    }

    /// The oracle's own answer, rounded.
    fn right(case: &Case, inputs: &Inputs) -> Answer {
        let tensors = (&inputs.q.tensor, &inputs.k.tensor, &inputs.v.tensor);
        let truth = oracle::attention(&case.problem, tensors.0, tensors.1, tensors.2, None);
        let o = truth.o.iter().map(|&x| encode(DType::Bf16, x)).collect();
        let lse = truth.lse.iter().map(|&x| x as f32).collect();
        Answer { o, lse, not_finite: None }
    }

    #[test]
    fn small_problems_are_judged_whole() {
        let case = case((40, 70), (4, 2));
        let inputs = qdist::inputs(&case).unwrap();
        let (truth, output) = (Truth::of(&case, &inputs), right(&case, &inputs));
        let judged = truth.judge(&output).unwrap();
        assert!(judged.o_ratio <= 1.0 && judged.lse_ratio.unwrap() <= 1.0);
        assert_eq!((judged.rows, judged.of), (320, 320));
        let mut wrong = output.clone();
        wrong.o[1234] ^= 0x0100;
        assert!(truth.judge(&wrong).unwrap_err().contains("O is"));
        let without_lse = Answer { lse: Vec::new(), ..output.clone() };
        assert_eq!(truth.judge(&without_lse).unwrap().lse_ratio, None);
        let short = Answer { o: output.o[1..].to_vec(), ..output };
        assert!(truth.judge(&short).unwrap_err().contains("20479 elements"));
    }

    /// A wrong element in a sampled row is found and one NaN anywhere is.
    #[test]
    fn long_problems_are_sampled() {
        let case = case((700, 1500), (8, 2));
        assert!(case.cost() > WHOLE_BLOCKS);
        let inputs = qdist::inputs(&case).unwrap();
        let (truth, whole) = (Truth::of(&case, &inputs), right(&case, &inputs));
        assert!(truth.judge(&whole).unwrap_err().contains("belong to the rows"));
        let rows = truth.rows().unwrap();
        let output = Answer { o: gather(&case.problem, &whole.o, rows), ..whole };
        let judged = truth.judge(&output).unwrap();
        assert!(judged.o_ratio <= 1.0 && judged.rows < judged.of, "{judged:?}");
        let mut wrong = output.clone();
        wrong.o[3 * 64 + 9] ^= 0x0200;
        assert!(truth.judge(&wrong).unwrap_err().contains("sampled rows"));
        let nan = Answer { not_finite: Some(2 * 700 * 8 * 64 - 1), ..output };
        assert!(
            truth
                .judge(&nan)
                .unwrap_err()
                .contains("not finite at (batch, token, head, dim) (1, 699, 7, 63)")
        );
    }

    #[test]
    fn samples_cover_heads_and_ends() {
        let p = AttnProblem::dense(2, (16384, 16384), (16, 4), 128, Mask::FULL, DType::Bf16);
        let rows = sample(&p);
        assert!((64..=1024).contains(&rows.len()));
        for wanted in [0, 16383, 63, 64] {
            assert!(rows.iter().any(|r| r.1 == wanted), "{wanted}");
        }
        for h in 0..16 {
            assert!(rows.iter().any(|r| r.2 == h), "head {h}");
        }
        assert_eq!(rows, sample(&p));
        let mut unique = rows.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), rows.len());
    }
}
