use super::*;
use crate::oracle::attention;
use crate::problem::{AttnProblem, Mask};
use crate::sets::Expect;
use crate::tensor::rows;

fn case(qdist: QDist, sq: u64, sk: u64, mask: Mask) -> Case {
    let problem = AttnProblem::dense(2, (sq, sk), (4, 2), 128, mask, DType::Bf16);
    Case { qdist, ..Case::dense("x", problem, 7) }
}

fn all_values(t: &Tensor) -> Vec<f64> {
    t.bits.iter().map(|&bits| crate::tensor::decode(t.dtype, bits)).collect()
}

/// Scaled logits of (batch 0, head 0).
fn logits(case: &Case) -> Vec<Vec<f64>> {
    let x = inputs(case).unwrap();
    let dot = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>();
    let row = |i| (0..x.k.tensor.shape[1]).map(move |j| (i, j));
    (0..x.q.tensor.shape[1])
        .map(|i| {
            row(i)
                .map(|(i, j)| dot(x.q.tensor.row_f64(0, i, 0), x.k.tensor.row_f64(0, j, 0)))
                .map(|s| s * case.problem.softmax_scale())
                .collect()
        })
        .collect()
}

#[test]
fn randn_has_the_moments_of_a_normal_and_depends_on_the_seed() {
    let c = case(QDist::Randn, 200, 200, Mask::FULL);
    let x = inputs(&c).unwrap();
    for t in [&x.q.tensor, &x.k.tensor, &x.v.tensor] {
        let values = all_values(t);
        let n = values.len() as f64;
        let moment = |p: i32| values.iter().map(|v| v.powi(p)).sum::<f64>() / n;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03, "{} {}", moment(1), moment(2));
        assert!(moment(3).abs() < 0.1 && (moment(4) - 3.0).abs() < 0.15, "{} {}", moment(3), moment(4));
    }
    assert_ne!(x.q.tensor.bits, x.v.tensor.bits[..0].to_vec());
    let cross: f64 = all_values(&x.k.tensor).iter().zip(all_values(&x.v.tensor)).map(|(a, b)| a * b).sum();
    assert!((cross / x.k.tensor.bits.len() as f64).abs() < 0.02);
    assert_eq!(inputs(&c).unwrap(), x);
    assert_ne!(inputs(&Case { seed: 8, ..c }).unwrap(), x);
}

/// Whatever was made before, an element is what its seed, stream and index say.
#[test]
fn a_stock_changes_no_bytes() {
    let mut stock = Stock::default();
    for (sq, sk, seed, dtype) in
        [(3, 5, 7, DType::Bf16), (900, 700, 7, DType::Bf16), (40, 60, 7, DType::Bf16)]
            .into_iter()
            .chain([(40, 60, 8, DType::Bf16), (40, 60, 7, DType::F16)])
    {
        let problem = AttnProblem::dense(2, (sq, sk), (4, 2), 128, Mask::FULL, dtype);
        let c = Case { seed, ..Case::dense("x", problem, 7) };
        let x = inputs_from(&c, &mut stock).unwrap();
        let maker = Maker { case: &c, scale: 1.0, root_d: 1.0 };
        for (stream, t) in [(Stream::Q, &x.q.tensor), (Stream::K, &x.k.tensor), (Stream::V, &x.v.tensor)] {
            let value = |at: usize| encode(dtype, maker.randn(stream, at as u64));
            let at = [0, 1, t.bits.len() / 2, t.bits.len() - 1];
            assert!(at.iter().all(|&at| t.bits[at] == value(at)), "{stream:?} {sq} {sk}");
        }
        assert_eq!(x, inputs(&c).unwrap());
    }
}

#[test]
fn zeros_give_ln_of_the_visible_keys() {
    let c = case(QDist::Zeros, 3, 5, Mask::CAUSAL);
    let x = inputs(&c).unwrap();
    let r = attention(&c.problem, &x.q.tensor, &x.k.tensor, &x.v.tensor, None);
    for (lse, keys) in r.lse.iter().zip([3f64, 4.0, 5.0].iter().cycle()) {
        assert!((lse - keys.ln()).abs() < 1e-14);
    }
}

#[test]
fn constructed_logits_are_what_their_names_say() {
    let flat = |c: &Case| logits(c).concat();
    for s in flat(&case(QDist::Const120Neg, 3, 9, Mask::FULL)) {
        assert!((s + 120.0).abs() < 1.0, "{s}");
    }
    for row in logits(&case(QDist::AllEqual, 3, 9, Mask::FULL)) {
        assert!(row.iter().all(|&s| s == row[0]));
    }
    for row in logits(&case(QDist::MonotoneUp, 3, 600, Mask::FULL)) {
        assert!(row[0] == 0.0 && (row[599] - 60.0).abs() < 0.5, "{}", row[599]);
        assert!(row.windows(2).all(|w| w[0] <= w[1]));
    }
    let spread = flat(&case(QDist::QStd100, 20, 50, Mask::FULL));
    let std = (spread.iter().map(|s| s * s).sum::<f64>() / spread.len() as f64).sqrt();
    assert!((80.0..120.0).contains(&std), "{std}");
}

#[test]
fn extreme_keys_win() {
    for (qdist, winner) in
        [(QDist::MaxFirstKey, Some(0)), (QDist::MaxLastKey, Some(199)), (QDist::OneHotKey, None)]
    {
        for row in logits(&case(qdist, 20, 200, Mask::FULL)) {
            let best = (0..200).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            let denominator: f64 = row.iter().map(|s| (s - row[best]).exp()).sum();
            assert!(1.0 / denominator > 0.999, "{qdist}: {denominator}");
            assert!(winner.is_none_or(|w| w == best), "{qdist}: {best}");
        }
    }
}

#[test]
fn pm448x1880_is_exact_in_bf16() {
    let x = inputs(&case(QDist::Pm448x1880, 5, 5, Mask::FULL)).unwrap();
    assert!(all_values(&x.q.tensor).iter().all(|v| v.abs() == 448.0));
    assert!(all_values(&x.k.tensor).iter().all(|v| v.abs() == 1880.0));
    let positive = all_values(&x.q.tensor).iter().filter(|v| **v > 0.0).count() as f64;
    assert!((positive / x.q.tensor.bits.len() as f64 - 0.5).abs() < 0.05);
}

/// Byte offsets of every row of every input tensor, by buffer.
fn placed_rows(x: &Inputs) -> Vec<(usize, u64, u64)> {
    let mut all = Vec::new();
    for p in [&x.q, &x.k, &x.v] {
        let [b, s, h, d] = p.tensor.shape;
        let row_bytes = d as u64 * p.tensor.dtype.bytes();
        for (b, s, h) in rows(b, s, h) {
            all.push((p.buffer, p.layout.row_offset(2, b, s, h), row_bytes));
        }
    }
    all
}

/// In every layout: rows are 16 B aligned, within their buffer and never overlap.
#[test]
fn views_do_not_overlap_and_stay_in_bounds() {
    for &qdist in QDist::ALL {
        let c = case(qdist, 40, 40, Mask::CAUSAL);
        let Ok(x) = inputs(&c) else { continue };
        let mut all = placed_rows(&x);
        all.sort_unstable();
        for pair in all.windows(2) {
            assert!(pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1, "{qdist}: {pair:?}");
        }
        for (buffer, start, len) in all {
            assert!(start % 16 == 0 && start + len <= x.buffers[buffer].bytes, "{qdist}");
        }
    }
}

#[test]
fn views_are_the_layouts_they_name() {
    let x = |qdist| inputs(&case(qdist, 40, 40, Mask::CAUSAL)).unwrap();
    assert_eq!(x(QDist::BhsdTransposedView).q.layout.stride_seq, 128);
    assert_eq!(x(QDist::BhsdTransposedView).o.stride_head, 40 * 128);
    let packed = x(QDist::PackedQkvInterleavedView);
    assert_eq!(packed.buffers.len(), 1);
    assert_eq!([&packed.q, &packed.k, &packed.v].map(|p| p.layout.stride_seq), [8 * 128; 3]);
    assert_eq!([&packed.q, &packed.k, &packed.v].map(|p| p.layout.offset_bytes), [0, 4 * 256, 6 * 256]);
    assert_eq!(x(QDist::KvExpandStride0Batch).k.layout.stride_batch, 0);
    assert_eq!(x(QDist::Offset16BAlignedNot128B).v.layout.offset_bytes, 16);
    let poisoned = x(QDist::InfFreeNanInPadding);
    assert_eq!(poisoned.buffers[1].background, Some(0x7fc0));
    assert_eq!(poisoned.k.layout.stride_batch, (40 + 128) * 2 * 128);
    assert_eq!(poisoned.buffers[1].bytes, 2 * (40 + 128) * 2 * 128 * 2);
}

/// A reduced overflow row touches addresses beyond 2^31 elements although it has few rows.
#[test]
fn overflow_rows_keep_their_addresses() {
    let full = AttnProblem::dense(1, (128, 4_194_304), (1, 1), 128, Mask::CAUSAL, DType::Bf16);
    let row = Case { expect: Expect::MatchSampled, ..Case::dense("x", full, 1) };
    let reduced = crate::cases::reduce(&row, 5);
    assert_eq!(reduced.problem.seqlen_k, 640);
    let x = inputs(&reduced).unwrap();
    let last = x.k.layout.row_offset(2, 0, 639, 0);
    let full_last = 4_194_303u64 * 128 * 2;
    assert!(last <= full_last && full_last - last < 640 * 16, "{last} {full_last}");
    assert_eq!(x.q.layout, Layout::bshd(x.q.tensor.shape));

    let full = AttnProblem::dense(10000, (64, 64), (32, 32), 128, Mask::CAUSAL, DType::Bf16);
    let row = Case { expect: Expect::MatchSampled, ..Case::dense("x", full, 1) };
    let x = inputs(&crate::cases::reduce(&row, 5)).unwrap();
    assert_eq!(x.q.tensor.shape, [2, 64, 2, 128]);
    assert_eq!(x.o.row_offset(2, 1, 0, 0), 9999 * 64 * 32 * 128 * 2);
}

#[test]
fn what_cannot_be_made_says_so() {
    let base = case(QDist::Randn, 4, 4, Mask::FULL);
    let with = |change: fn(&mut Case)| {
        let mut c = base.clone();
        change(&mut c);
        inputs(&c).unwrap_err().to_string()
    };
    assert!(with(|c| c.layout = BatchLayout::Paged(16)).contains("paged16"));
    assert!(with(|c| c.qdist = QDist::SinkPm60).contains("sink_pm60"));
    assert!(with(|c| c.problem.kv_dtype = DType::E4m3).contains("fp8_e4m3"));
    assert!(
        with(|c| {
            c.qdist = QDist::PackedQkvInterleavedView;
            c.problem.seqlen_k = 5;
        })
        .contains("sq = sk")
    );
}

#[test]
fn empty_tensors_are_made() {
    for (b, sq, sk) in [(0, 128, 128), (1, 0, 128), (1, 128, 0), (1, 0, 0)] {
        let problem = AttnProblem::dense(b, (sq, sk), (4, 2), 128, Mask::FULL, DType::Bf16);
        for &qdist in QDist::ALL {
            let _ = inputs(&Case { qdist, ..Case::dense("x", problem.clone(), 1) });
        }
    }
}
