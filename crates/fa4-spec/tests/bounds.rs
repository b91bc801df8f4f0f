//! The bounds against simulated kernels: a faithful one stays inside with room, wrong ones do not.

use fa4_spec::oracle::{Reference, attention};
use fa4_spec::qdist::{Inputs, QDist, inputs};
use fa4_spec::tensor::{encode, ulp};
use fa4_spec::tolerance::{Bounds, Mismatch, Wrong, judge};
use fa4_spec::{AttnProblem, Case, DType, Mask};

fn make(qdist: QDist, seqlens: (u64, u64), mask: Mask, dtype: DType) -> (Case, Inputs, Reference) {
    let problem = AttnProblem::dense(1, seqlens, (2, 1), 128, mask, dtype);
    let case = Case { qdist, ..Case::dense("x", problem, 3) };
    let x = inputs(&case).unwrap();
    let r = attention(&case.problem, &x.q.tensor, &x.k.tensor, &x.v.tensor, None);
    (case, x, r)
}

/// What a fused kernel does: f32 scores and weights, P rounded to storage, unrounded f32 sum, O rounded once. `hide` is a
/// key left out by mistake; `seen` is the number of keys that a row may see.
fn simulate(
    case: &Case,
    x: &Inputs,
    seen: impl Fn(usize) -> usize,
    hide: Option<usize>,
) -> (Vec<u16>, Vec<f32>) {
    let p = &case.problem;
    let (sq, heads) = (p.seqlen_q as usize, p.num_heads_q as usize);
    let scale = p.softmax_scale() as f32;
    let (mut o, mut lse) = (vec![0; sq * heads * 128], vec![0.0; heads * sq]);
    for (i, h) in (0..sq).flat_map(|i| (0..heads).map(move |h| (i, h))) {
        let q = x.q.tensor.row_f64(0, i, h);
        let keys: Vec<usize> = (0..seen(i)).filter(|j| Some(*j) != hide).collect();
        let s: Vec<f32> = keys
            .iter()
            .map(|&j| q.iter().zip(x.k.tensor.row_f64(0, j, 0)).map(|(a, b)| (a * b) as f32).sum::<f32>())
            .collect();
        let max = s.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = s.iter().map(|s| ((s - max) * scale).exp()).collect();
        let sum: f32 = weights.iter().sum();
        let mut acc = [0f32; 128];
        for (&j, &w) in keys.iter().zip(&weights) {
            let stored = fa4_spec::tensor::decode(p.q_dtype, encode(p.q_dtype, f64::from(w))) as f32;
            acc.iter_mut().zip(x.v.tensor.row_f64(0, j, 0)).for_each(|(a, v)| *a += stored * v as f32);
        }
        for (d, a) in acc.iter().enumerate() {
            o[(i * heads + h) * 128 + d] = encode(p.q_dtype, f64::from(a / sum));
        }
        lse[h * sq + i] = max * scale + sum.ln();
    }
    (o, lse)
}

#[test]
fn a_faithful_kernel_stays_inside() {
    for dtype in [DType::Bf16, DType::F16] {
        for (sq, sk) in [(16, 128), (8, 1024)] {
            let (case, x, r) = make(QDist::Randn, (sq, sk), Mask::FULL, dtype);
            let bounds = Bounds::new(&case.problem, &r, true, 0.0);
            assert!(!bounds.is_wide());
            let (o, lse) = simulate(&case, &x, |_| sk as usize, None);
            let j = judge(&case.problem, &bounds, &r, &o, &lse).unwrap();
            assert!(j.o.ratio > 0.05 && j.o.ratio < 0.9, "{dtype} {sk}: {:?}", j.o);
            assert!(j.lse.ratio < 0.5, "{:?}", j.lse);
        }
    }
}

#[test]
fn one_wrongly_masked_key_is_far_outside() {
    for sk in [128, 1024] {
        let (case, x, r) = make(QDist::Randn, (8, sk), Mask::FULL, DType::Bf16);
        let bounds = Bounds::new(&case.problem, &r, true, 0.0);
        let (o, lse) = simulate(&case, &x, |_| sk as usize, Some(sk as usize - 1));
        let error = judge(&case.problem, &bounds, &r, &o, &lse).unwrap_err();
        let [Mismatch::OutOfBounds { which: "O", worst, .. }, Mismatch::OutOfBounds { which: "LSE", .. }] =
            &error.0[..]
        else {
            panic!("{error}")
        };
        assert!(worst.ratio > 3.0, "sk {sk}: {}", worst.ratio);
    }
}

#[test]
fn causal_aligned_top_left_is_outside() {
    let (case, x, r) = make(QDist::Randn, (8, 64), Mask::CAUSAL, DType::Bf16);
    let bounds = Bounds::new(&case.problem, &r, true, 0.0);
    let (o, lse) = simulate(&case, &x, |i| i + 64 - 8 + 1, None);
    judge(&case.problem, &bounds, &r, &o, &lse).unwrap();
    let (o, lse) = simulate(&case, &x, |i| i + 1, None);
    judge(&case.problem, &bounds, &r, &o, &lse).unwrap_err();
}

#[test]
fn non_finite_positions_are_compared_as_sets() {
    let (case, x, r) = make(QDist::Randn, (3, 2), Mask::CAUSAL, DType::Bf16);
    let bounds = Bounds::new(&case.problem, &r, true, 0.0);
    let (mut o, mut lse) = simulate(&case, &x, |i| i, None);
    o[..256].fill(0);
    (lse[0], lse[3]) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    judge(&case.problem, &bounds, &r, &o, &lse).unwrap();
    let is_non_finite = |e: Wrong, name: &str| match &e.0[..] {
        [Mismatch::NonFinite { which, count: 1, .. }] => *which == name,
        _ => false,
    };
    lse[0] = f32::INFINITY;
    assert!(is_non_finite(judge(&case.problem, &bounds, &r, &o, &lse).unwrap_err(), "LSE"));
    lse[0] = -1e30;
    assert!(is_non_finite(judge(&case.problem, &bounds, &r, &o, &lse).unwrap_err(), "LSE"));
    lse[0] = f32::NEG_INFINITY;
    o[7] = 0x7fc0;
    let e = judge(&case.problem, &bounds, &r, &o, &lse).unwrap_err();
    assert!(e.to_string().contains("batch 0, query 0, head 0, dim 7: NaN instead of 0"), "{e}");
    assert!(is_non_finite(e, "O"));
}

#[test]
fn huge_logits_are_judged_by_their_winner() {
    let (case, x, r) = make(QDist::Pm448x1880, (8, 40), Mask::FULL, DType::Bf16);
    let bounds = Bounds::new(&case.problem, &r, false, 0.0);
    assert!(bounds.is_wide());
    let (o, lse) = simulate(&case, &x, |_| 40, None);
    assert!(judge(&case.problem, &bounds, &r, &o, &lse).unwrap().wide);
    // The value of another key in one row.
    let mut wrong = o.clone();
    let other = (0..40).map(|j| x.v.tensor.row(0, j, 0)).find(|v| *v != &o[256..384]).unwrap();
    wrong[256..384].copy_from_slice(other);
    let e = judge(&case.problem, &bounds, &r, &wrong, &lse).unwrap_err();
    assert!(matches!(e.0[..], [Mismatch::Winner { at: [0, 1, 0, 0], .. }]), "{e}");
}

#[test]
fn a_wrong_size_is_said() {
    let (case, _, r) = make(QDist::Zeros, (2, 2), Mask::FULL, DType::Bf16);
    let bounds = Bounds::new(&case.problem, &r, false, 0.0);
    let e = judge(&case.problem, &bounds, &r, &[0; 3], &[0.0; 4]).unwrap_err();
    // Both outputs are judged, so the LSE's own mistake follows.
    assert_eq!(e.0[0], Mismatch::Size { which: "O", got: 3, want: 512 });
}

/// The formulas, worked out once by hand for d = 128, scale 1/√128, sk = 256, Mqk = 20, Smax = 40, bf16.
#[test]
fn bounds_by_hand() {
    let p = AttnProblem::dense(1, (1, 256), (1, 1), 128, Mask::FULL, DType::Bf16);
    let r = Reference {
        o: vec![1.5],
        lse: vec![-8.0],
        weighted_abs: vec![2.0],
        weighted_norm: vec![0.125],
        abs_over_l0: vec![1.0],
        max_q_max_k: 20.0,
        max_dot: 40.0,
    };
    // 8·(17·40/33554432 + 40/8388608) = 8·(2.026558e-5 + 4.768372e-6) = 2.002716e-4.
    let bounds = Bounds::new(&p, &r, true, 0.0);
    assert!((bounds.delta_s - 2.002_716_1e-4).abs() < 1e-10, "{}", bounds.delta_s);
    // 2·0.0883883·2.002716e-4 + 9.536743e-7 + 1.192093e-7·1.45·0.0883883·40 + 16·1.192093e-7 = 3.887609e-5.
    assert!((bounds.epsilon - 3.887_609e-5).abs() < 1e-9, "{}", bounds.epsilon);
    // ½·2^-7 + 2.87·2^-8·0.125 + ε·2 is below ½·2^-7 + (2^-8 + ε)·2.
    let t2 = 0.003_906_25 + 2.87 * 0.003_906_25 * 0.125 + 2.0 * bounds.epsilon;
    assert!((bounds.o(&r, 0) - t2).abs() < 1e-12);
    let t1 = 0.003_906_25 + 2.0 * (0.003_906_25 + bounds.epsilon);
    assert!((Bounds::new(&p, &r, false, 0.0).o(&r, 0) - t1).abs() < 1e-12);
    // 1e-5 + 0.0883883·2.002716e-4 + 8·2^-22.
    assert!((bounds.lse(&r, 0) - 2.960_909e-5).abs() < 1e-9, "{}", bounds.lse(&r, 0));
    assert_eq!(ulp(DType::Bf16, 1.5), 0.007_812_5);
}
