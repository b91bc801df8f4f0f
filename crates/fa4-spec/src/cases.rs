//! Rows made into runnable cases: the smoke set, the products that edge rows do not span, runs with rescale
//! threshold 0, and the reductions that make a row small enough for an emulator without losing what it tests.

use crate::problem::{AttnProblem, DType, Mask};
use crate::qdist::QDist;
use crate::sets::{BatchLayout, Expect, Row, Segments};

/// One run: a problem, how its data is made and how its output is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The row's id, with a suffix where one row gives several cases.
    pub id: String,
    /// Sizes to run, after reduction.
    pub problem: AttnProblem,
    /// Memory layout of the batch.
    pub layout: BatchLayout,
    /// Lengths of mixed batches.
    pub segments: Vec<Segments>,
    /// How the data is made.
    pub qdist: QDist,
    /// How the output is judged.
    pub expect: Expect,
    /// Rescale threshold τ in log2 units; `None` is the kernel's own default.
    pub tau: Option<f32>,
    /// How the row was reduced, in words; `None` if it was not.
    pub scale: Option<String>,
    /// The full problem, where its addresses are to be kept by strides.
    pub spread: Option<AttnProblem>,
    /// Seed of the data.
    pub seed: u64,
}

impl Case {
    /// The row as it stands.
    pub fn from_row(row: &Row, seed: u64) -> Self {
        Case {
            id: row.id.clone(),
            problem: row.problem.clone(),
            layout: row.layout,
            segments: row.segments.clone(),
            qdist: row.qdist,
            expect: row.expect,
            tau: None,
            scale: None,
            spread: None,
            seed,
        }
    }

    /// A dense bf16 randn case of our own.
    pub fn dense(id: impl Into<String>, problem: AttnProblem, seed: u64) -> Self {
        Case {
            id: id.into(),
            problem,
            layout: BatchLayout::Dense,
            segments: Vec::new(),
            qdist: QDist::Randn,
            expect: Expect::Match,
            tau: None,
            scale: None,
            spread: None,
            seed,
        }
    }

    /// The same case with rescale threshold 0: every rise of the running maximum rescales.
    pub fn with_tau_zero(&self) -> Self {
        Case { id: format!("{}_tau0", self.id), tau: Some(0.0), ..self.clone() }
    }

    /// The same case in fp16, which every dense bf16 row is to be run in as well.
    pub fn as_fp16(&self) -> Option<Self> {
        let p = &self.problem;
        if self.layout != BatchLayout::Dense || p.q_dtype != DType::Bf16 || p.kv_dtype != DType::Bf16 {
            return None;
        }
        let problem = AttnProblem { q_dtype: DType::F16, kv_dtype: DType::F16, ..p.clone() };
        Some(Case { id: format!("{}_fp16", self.id), problem, ..self.clone() })
    }

    /// Work in units of one 128 × 128 block of S per head, at least one per head and 128 query rows: what a run costs,
    /// for ordering and progress.
    pub fn cost(&self) -> u64 {
        let p = &self.problem;
        let (q_blocks, k_blocks) = (p.seqlen_q.div_ceil(BLOCK), p.seqlen_k.div_ceil(BLOCK).max(1));
        let blocks = match p.mask.causal || p.mask.window_right == Some(0) {
            false => q_blocks * k_blocks,
            true => (0..q_blocks)
                .map(|block| ((block + 1) * BLOCK + p.seqlen_k).saturating_sub(p.seqlen_q))
                .map(|keys| keys.div_ceil(BLOCK).clamp(1, k_blocks))
                .sum(),
        };
        p.batch * p.num_heads_q * blocks
    }
}

/// Rows of a query block and keys of a key block in the reductions.
const BLOCK: u64 = 128;
/// Cases of no more blocks are left as they are: seven K/V heads of one row block and two key blocks.
const SMALL_BLOCKS: u64 = 28;
/// A CTA works on this many query blocks; removing whole CTAs keeps which of its tiles exist.
const CTA_ROWS: u64 = 2 * BLOCK;

/// Reduces a case for the emulator, unless it is small already. Only these are allowed, since they keep what a row tests: batch and heads are
/// divided (ratio kept, at least 2 remain of what was at least 2), and whole 128-blocks of tokens are removed while
/// `least_blocks` key blocks remain (a kernel's ring depth plus two), so that tails, alignment of the diagonal and ring
/// wraps stay. `match_sampled` rows keep their addresses: strides spread the smaller tensors over the full extent.
pub fn reduce(case: &Case, least_blocks: u64) -> Case {
    let full = &case.problem;
    if is_small(full) && case.expect != Expect::MatchSampled {
        return case.clone();
    }
    let mut p = full.clone();
    p.batch = full.batch.min(2);
    p.num_heads_kv = full.num_heads_kv.min(2);
    p.num_heads_q = p.num_heads_kv * full.qhead_per_kvhead();
    if !has_window(full.mask) {
        (p.seqlen_q, p.seqlen_k) = reduce_seqlens((full.seqlen_q, full.seqlen_k), least_blocks);
    }
    if p == *full {
        return case.clone();
    }
    let mut scale = Vec::new();
    for (name, from, to) in [
        ("b", full.batch, p.batch),
        ("hq", full.num_heads_q, p.num_heads_q),
        ("hkv", full.num_heads_kv, p.num_heads_kv),
        ("sq", full.seqlen_q, p.seqlen_q),
        ("sk", full.seqlen_k, p.seqlen_k),
    ] {
        if from != to {
            scale.push(format!("{name} {from}→{to}"));
        }
    }
    let spread = (case.expect == Expect::MatchSampled).then(|| full.clone());
    if spread.is_some() {
        scale.push("addresses kept by strides".to_string());
    }
    Case { problem: p, scale: Some(scale.join(", ")), spread, ..case.clone() }
}

/// Counted without the mask and with a block where there is none: an empty q does not make a long k small.
fn is_small(p: &AttnProblem) -> bool {
    let blocks = |len: u64| len.div_ceil(BLOCK).max(1);
    let all = [p.num_heads_q, blocks(p.seqlen_q), blocks(p.seqlen_k)];
    all.into_iter().fold(p.batch.max(1), u64::saturating_mul) <= SMALL_BLOCKS
}

fn has_window(mask: Mask) -> bool {
    mask.window_left.is_some() || mask.window_right.is_some_and(|right| right > 0)
}

/// First the same number of whole CTAs' rows from both lengths, which keeps their difference; then key blocks alone
/// while more keys than queries remain; then CTAs' rows alone while more queries than keys remain.
fn reduce_seqlens((mut sq, mut sk): (u64, u64), least_blocks: u64) -> (u64, u64) {
    let enough_keys = |sk: u64| sk.div_ceil(BLOCK) >= least_blocks;
    let enough_rows = |sq: u64| sq > CTA_ROWS;
    let less = |n: u64, by: u64| n.checked_sub(by);
    while let (Some(q), Some(k)) = (less(sq, CTA_ROWS), less(sk, CTA_ROWS)) {
        if !(enough_rows(q) && enough_keys(k)) {
            break;
        }
        (sq, sk) = (q, k);
    }
    while let Some(k) = less(sk, BLOCK).filter(|&k| sk > sq && k > sq && enough_keys(k)) {
        sk = k;
    }
    while let Some(q) = less(sq, CTA_ROWS).filter(|&q| sq > sk && q > sk && enough_rows(q)) {
        sq = q;
    }
    (sq, sk)
}

/// A handful of cases for a verdict in seconds: both masks, tails, grouped heads, unequal lengths, an empty row, a
/// moving maximum with and without forced rescale.
pub fn smoke(seed: u64) -> Vec<Case> {
    let bf16 =
        |id: &str, b, s, h, mask| Case::dense(id, AttnProblem::dense(b, s, h, 128, mask, DType::Bf16), seed);
    // A kernel that walks the keys from the last to the first meets the largest logit last.
    let falling = |mask: Mask| Case {
        qdist: QDist::MaxFirstKey,
        ..bf16(&format!("smoke_q128_k385_h2kv1_{mask}_max_first_key"), 1, (128, 385), (2, 1), mask)
    };
    let rising = Case {
        qdist: QDist::MonotoneUp,
        ..bf16("smoke_q128_k513_h2kv1_nc_monotone_up", 1, (128, 513), (2, 1), Mask::FULL)
    };
    let window = Mask { causal: false, window_left: Some(150), window_right: Some(0) };
    let mut general = bf16("smoke_q129_k385_h2kv1_window_sink_softcap", 1, (129, 385), (2, 1), window);
    (general.problem.sink, general.problem.softcap) = (true, 3.0);
    vec![
        general,
        bf16("smoke_q129_k257_h2kv1_c", 1, (129, 257), (2, 1), Mask::CAUSAL),
        bf16("smoke_q257_k129_h2kv2_c", 1, (257, 129), (2, 2), Mask::CAUSAL),
        bf16("smoke_q200_k200_h4kv2_nc", 1, (200, 200), (4, 2), Mask::FULL),
        bf16("smoke_q1_k1_h2kv1_nc", 2, (1, 1), (2, 1), Mask::FULL),
        falling(Mask::FULL),
        falling(Mask::CAUSAL),
        rising.with_tau_zero(),
        rising,
    ]
}

/// Head ratio × mask × tails, in the smallest sizes that show each.
pub fn products(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (hq, hkv) in [(2, 2), (6, 2), (5, 1), (14, 2)] {
        // Many heads make a case long; the batch index is tested by the others.
        let batch = if hq > 6 { 1 } else { 2 };
        for mask in [Mask::FULL, Mask::CAUSAL] {
            for (sq, sk) in [(1, 130), (127, 127), (130, 257), (257, 255)] {
                let suffix = if mask.causal { "c" } else { "nc" };
                let id = format!("product_b{batch}_q{sq}_k{sk}_h{hq}kv{hkv}_d128_{suffix}");
                let problem = AttnProblem::dense(batch, (sq, sk), (hq, hkv), 128, mask, DType::Bf16);
                cases.push(Case::dense(id, problem, seed));
            }
        }
    }
    cases
}

/// Runs with τ = 0, where every rise of the running maximum rescales O: random data never does at the default. And runs
/// at the default τ on data that rises far enough, whichever way a kernel walks the keys.
pub fn rescales(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (qdist, sizes, mask) in [
        (QDist::Randn, (300, 650), Mask::CAUSAL),
        (QDist::Randn, (130, 770), Mask::FULL),
        (QDist::MonotoneUp, (257, 769), Mask::CAUSAL),
        (QDist::MaxLastKey, (128, 640), Mask::FULL),
        (QDist::MaxFirstKey, (128, 640), Mask::FULL),
        (QDist::MaxFirstKey, (300, 650), Mask::CAUSAL),
    ] {
        let id = format!("rescale_q{}_k{}_h2kv1_d128_{mask}_{qdist}", sizes.0, sizes.1);
        let problem = AttnProblem::dense(1, sizes, (2, 1), 128, mask, DType::Bf16);
        let case = Case { qdist, ..Case::dense(id, problem, seed) };
        cases.push(case.with_tau_zero());
        if qdist != QDist::Randn {
            cases.push(case);
        }
    }
    cases
}

/// Windows, sinks and softcaps, alone and together, in every head dim and both 16-bit dtypes; and for the head dims other
/// than 128, whose edge rows are few, a rescale and a long row under each mask.
pub fn features(seed: u64) -> Vec<Case> {
    let window = |left, right| Mask { causal: false, window_left: left, window_right: right };
    let mut cases = Vec::new();
    for dtype in [DType::Bf16, DType::F16] {
        for head_dim in [64, 96, 128, 256] {
            let mut add =
                |what: &str, sizes: (u64, u64), mask: Mask, qdist, change: &dyn Fn(&mut AttnProblem)| {
                    let mut problem = AttnProblem::dense(1, sizes, (2, 1), head_dim, mask, dtype);
                    change(&mut problem);
                    let heads = problem.num_heads_q;
                    let id =
                        format!("feature_{what}_q{}_k{}_h{heads}kv1_d{head_dim}_{dtype}", sizes.0, sizes.1);
                    cases.push(Case { qdist, ..Case::dense(id, problem, seed) });
                };
            let none = |_: &mut AttnProblem| ();
            // A long row: every ring wraps twice, blocks are skipped on both sides, both edges cut blocks.
            add("window_both", (384, 1100), window(Some(200), Some(64)), QDist::Randn, &none);
            add("window_left", (130, 900), window(Some(700), Some(0)), QDist::MaxFirstKey, &none);
            add("window_right_only", (300, 200), window(None, Some(70)), QDist::Randn, &none);
            add("window_self", (257, 129), window(Some(0), Some(0)), QDist::Randn, &none);
            add("sink", (130, 257), Mask::CAUSAL, QDist::Randn, &|p| p.sink = true);
            add("sink_pm60", (200, 130), Mask::CAUSAL, QDist::SinkPm60, &|p| p.sink = true);
            add("softcap", (130, 257), Mask::FULL, QDist::Randn, &|p| p.softcap = 2.0);
            add("softcap_large_logits", (64, 300), Mask::CAUSAL, QDist::QStd100, &|p| p.softcap = 50.0);
            add("all", (257, 600), window(Some(300), Some(0)), QDist::MonotoneUp, &|p| {
                (p.sink, p.softcap, p.scale) = (true, 30.0, Some(0.2));
            });
            add("scale", (130, 130), Mask::CAUSAL, QDist::Randn, &|p| p.scale = Some(0.3));
            if head_dim != 128 || dtype == DType::F16 {
                for mask in [Mask::FULL, Mask::CAUSAL] {
                    add(&format!("rescale_{mask}"), (300, 650), mask, QDist::MaxFirstKey, &none);
                    add(&format!("tails_{mask}"), (130, 257), mask, QDist::Randn, &none);
                }
                add("empty_rows", (300, 130), Mask::CAUSAL, QDist::Randn, &none);
            }
            // Three heads packed into a tile of 126 rows.
            let three = |p: &mut AttnProblem| p.num_heads_q = 3;
            add("packed_nc", (30, 140), Mask::FULL, QDist::Randn, &three);
            add("packed_c", (43, 140), Mask::CAUSAL, QDist::Randn, &three);
            add("packed_window", (50, 300), window(Some(99), Some(0)), QDist::Randn, &three);
        }
    }
    let rescaled: Vec<Case> =
        cases.iter().filter(|c| c.id.contains("window_both")).map(Case::with_tau_zero).collect();
    cases.extend(rescaled);
    cases
}

/// Few query rows of many heads: problems where a kernel may pack the query heads of one K/V head into a tile. Every ratio
/// that matters, powers of two or not, with as many rows as fill a tile of 128 rows, two of them, and one row more; up to
/// ratios that leave half of a tile over or do not fit into one.
pub fn packed(seed: u64) -> Vec<Case> {
    let window = Mask { causal: false, window_left: Some(40), window_right: Some(9) };
    let mut cases = Vec::new();
    for (batch, heads, seqlens, masks) in [
        (1, (2, 1), (64, 130), "c"),
        (2, (4, 2), (65, 64), "w"),
        (1, (2, 1), (128, 200), "n"),
        (1, (3, 1), (42, 128), "nc"),
        (2, (6, 2), (43, 300), "cw"),
        (1, (3, 1), (85, 85), "cw"),
        (1, (4, 1), (32, 129), "n"),
        (2, (8, 2), (63, 31), "cw"),
        (1, (5, 1), (25, 130), "nw"),
        (1, (10, 2), (51, 260), "c"),
        (2, (6, 1), (22, 257), "cw"),
        (1, (7, 1), (18, 18), "c"),
        (1, (14, 2), (37, 190), "nw"),
        (2, (8, 1), (1, 385), "nc"),
        (1, (16, 2), (17, 127), "cw"),
        (1, (8, 1), (200, 200), "cw"),
        (1, (12, 1), (10, 140), "n"),
        (2, (24, 2), (21, 100), "cw"),
        (1, (16, 1), (9, 130), "c"),
        (1, (32, 1), (5, 129), "w"),
        (1, (48, 1), (5, 70), "c"),
        (1, (71, 1), (2, 130), "cw"),
        (1, (96, 1), (1, 200), "n"),
        (1, (128, 1), (2, 64), "c"),
        (1, (256, 1), (1, 129), "w"),
        (1, (131, 1), (1, 40), "c"),
    ] {
        for letter in masks.chars() {
            let (mask, name) = match letter {
                'n' => (Mask::FULL, "nc"),
                'c' => (Mask::CAUSAL, "c"),
                _ => (window, "window_sink"),
            };
            let problem = AttnProblem {
                sink: letter == 'w',
                ..AttnProblem::dense(batch, seqlens, heads, 128, mask, DType::Bf16)
            };
            let ((sq, sk), (hq, hkv)) = (seqlens, heads);
            cases.push(Case::dense(
                format!("packed_b{batch}_q{sq}_k{sk}_h{hq}kv{hkv}_d128_{name}"),
                problem,
                seed,
            ));
        }
    }
    // Far-apart rows: neighbours in a tile that are no neighbours in memory. And rescales, by the row and by the head.
    let of = |what: &str, mask, qdist| Case {
        qdist,
        ..Case::dense(
            format!("packed_{what}_q20_k300_h6kv2_d128"),
            AttnProblem::dense(2, (20, 300), (6, 2), 128, mask, DType::Bf16),
            seed,
        )
    };
    cases.push(of("bhsd", Mask::CAUSAL, QDist::BhsdTransposedView));
    cases.push(of("offset", Mask::FULL, QDist::Offset16BAlignedNot128B));
    cases.push(of("stride0", Mask::CAUSAL, QDist::KvExpandStride0Batch));
    cases.push(of("max_first_key", Mask::FULL, QDist::MaxFirstKey));
    cases.push(of("monotone_up", Mask::CAUSAL, QDist::MonotoneUp).with_tau_zero());
    cases
}

/// Public bugs of dense prefill that the edge set has no row for: counts of K/V heads below 8, a window of −1 on either
/// side beside causal, lengths around a tile's border.
pub fn bugs(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |id: String, problem: AttnProblem| cases.push(Case::dense(id, problem, seed));
    for hkv in 1..=7 {
        let problem = AttnProblem::dense(1, (40, 130), (2 * hkv, hkv), 128, Mask::CAUSAL, DType::Bf16);
        add(format!("bug33_kv_heads_q40_k130_h{}kv{hkv}_d128_c", 2 * hkv), problem);
    }
    for rows in [255, 256, 383, 384, 385] {
        let problem = AttnProblem::dense(1, (rows, rows), (1, 1), 128, Mask::CAUSAL, DType::Bf16);
        add(format!("bug35_m_boundary_q{rows}_k{rows}_h1kv1_d128_c"), problem);
    }
    let window = |left, right| Mask { causal: false, window_left: left, window_right: right };
    for (name, mask) in [
        ("bug08_window_m1_0", window(None, Some(0))),
        ("bug08_causal_window_m1_m1", Mask::CAUSAL),
        ("bug09_window_m1_m1", window(None, None)),
        ("bug11_window_64_0", window(Some(64), Some(0))),
    ] {
        let problem = AttnProblem::dense(1, (200, 200), (2, 2), 128, mask, DType::Bf16);
        add(format!("{name}_q200_k200_h2kv2_d128"), problem.clone());
        // A sink sends the same mask to the kernel of windows.
        add(format!("{name}_q200_k200_h2kv2_d128_sink"), AttnProblem { sink: true, ..problem });
    }
    add(
        "bug28_q64_k64_h2kv2_d128".into(),
        AttnProblem::dense(2, (64, 64), (2, 2), 128, Mask::FULL, DType::Bf16),
    );
    add(
        "bug05_empty_tiles_q600_k20_h1kv1_d128_c".into(),
        AttnProblem::dense(1, (600, 20), (1, 1), 128, Mask::CAUSAL, DType::Bf16),
    );
    for (name, qdist) in [("bug17", QDist::QStd100), ("bug37", QDist::KvExpandStride0Batch)] {
        let problem = AttnProblem::dense(2, (130, 200), (2, 2), 128, Mask::CAUSAL, DType::Bf16);
        let id = format!("{name}_q130_k200_h2kv2_d128_c_{qdist}");
        cases.push(Case { qdist, ..Case::dense(id, problem, seed) });
    }
    // More than 2^31 scores, and batches that no y or z of a grid can count: the addresses are kept by strides.
    for (id, batch, seqlens, heads) in [
        ("bug27_q46341_k46341_h2kv1_d128_c", 1, (46341, 46341), (2, 1)),
        ("bug25_b65536_q1_k16_h8kv1_d128_c", 65536, (1, 16), (8, 1)),
        ("bug25_b70000_q17_k16_h8kv1_d128_c", 70000, (17, 16), (8, 1)),
    ] {
        let problem = AttnProblem::dense(batch, seqlens, heads, 128, Mask::CAUSAL, DType::Bf16);
        cases.push(Case { expect: Expect::MatchSampled, ..Case::dense(id, problem, seed) });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(b: u64, s: (u64, u64), h: (u64, u64), mask: Mask) -> Case {
        Case::dense("x", AttnProblem::dense(b, s, h, 128, mask, DType::Bf16), 1)
    }

    #[test]
    fn small_cases_are_left_alone() {
        for c in smoke(1).iter().chain(&products(1)).chain(&rescales(1)).chain(&features(1)).chain(&packed(1))
        {
            let reduced = reduce(c, 5);
            assert_eq!(reduced.problem.seqlen_q % 128, c.problem.seqlen_q % 128);
            assert_eq!(reduced.problem.qhead_per_kvhead(), c.problem.qhead_per_kvhead());
            assert!(reduced == *c || reduced.scale.is_some());
        }
    }

    /// What a reduction must keep, over many sizes: ratio, tails, the block alignment of the diagonal, who is longer,
    /// enough key blocks.
    #[test]
    fn reductions_keep_what_rows_test() {
        for sq in [0, 1, 64, 128, 257, 512, 1000, 1023, 1024, 1025, 8192] {
            for sk in [0, 1, 113, 128, 513, 640, 1023, 1024, 1025, 2176, 65536, 4_194_304] {
                for least in [4, 5, 7] {
                    let full = case(3, (sq, sk), (28, 4), Mask::CAUSAL);
                    let p = reduce(&full, least).problem;
                    assert_eq!(p.qhead_per_kvhead(), 7);
                    assert_eq!((p.batch, p.num_heads_kv), (2, 2));
                    assert!(p.seqlen_q <= sq && (sq - p.seqlen_q).is_multiple_of(256));
                    assert!(p.seqlen_k <= sk && (sk - p.seqlen_k).is_multiple_of(128));
                    assert_eq!(sq.cmp(&sk), p.seqlen_q.cmp(&p.seqlen_k), "{sq} {sk} → {p:?}");
                    assert!(p.seqlen_k.div_ceil(128) >= least.min(sk.div_ceil(128)));
                    assert_eq!(p.seqlen_q > 256, sq > 256);
                }
            }
        }
    }

    /// Few heads stay as many as they are, but not where that makes a tensor long.
    #[test]
    fn small_is_small_in_every_tensor() {
        let seven = case(1, (40, 130), (14, 7), Mask::CAUSAL);
        assert_eq!(reduce(&seven, 5), seven);
        let long_k = case(65_536, (0, 4096), (1, 1), Mask::FULL);
        assert_eq!(reduce(&long_k, 5).problem.batch, 2);
    }

    #[test]
    fn a_reduction_says_what_it_did() {
        let reduced = reduce(&case(2, (1024, 2176), (96, 8), Mask::FULL), 5);
        assert_eq!(reduced.scale.as_deref(), Some("hq 96→24, hkv 8→2, sq 1024→512, sk 2176→640"));
        assert_eq!(reduced.spread, None);
    }

    #[test]
    fn overflow_rows_are_spread() {
        let mut overflow = case(10000, (64, 64), (32, 32), Mask::CAUSAL);
        overflow.expect = Expect::MatchSampled;
        let reduced = reduce(&overflow, 5);
        assert_eq!(reduced.spread.as_ref(), Some(&overflow.problem));
        assert!(reduced.scale.unwrap().contains("addresses kept"));
    }

    #[test]
    fn cost_counts_blocks() {
        assert_eq!(case(1, (256, 512), (2, 1), Mask::FULL).cost(), 2 * 2 * 4);
        assert_eq!(case(1, (256, 256), (1, 1), Mask::CAUSAL).cost(), 1 + 2);
        assert_eq!(case(0, (256, 256), (1, 1), Mask::CAUSAL).cost(), 0);
    }

    #[test]
    fn fp16_twins_exist_for_dense_bf16_only() {
        let bf16 = case(1, (4, 4), (2, 1), Mask::FULL);
        assert_eq!(bf16.as_fp16().unwrap().problem.q_dtype, DType::F16);
        assert!(bf16.as_fp16().unwrap().as_fp16().is_none());
        assert!(Case { layout: BatchLayout::Varlen, ..bf16 }.as_fp16().is_none());
    }
}
