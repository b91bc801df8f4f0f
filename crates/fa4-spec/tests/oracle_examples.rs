//! Hand-computed examples that guard the oracle: three per feature. Numbers are literals, worked out with a table
//! of exponentials; nothing here uses the oracle's own formulas.
//!
//! softmax(0, 1) = (0.268941421369995, 0.731058578630005), ln(1 + e) = 1.313261687518223,
//! softmax(0, 1, 2) = (0.090030573170380, 0.244728471054798, 0.665240955774822), LSE(0, 1, 2) = 2.407605964444380.

use fa4_spec::oracle::{Reference, attention, attention_rows};
use fa4_spec::tensor::Tensor;
use fa4_spec::{AttnProblem, DType, Mask};

const P0: f64 = 0.268_941_421_369_995_1;
const P1: f64 = 0.731_058_578_630_004_9;
const LN_1_E: f64 = 1.313_261_687_518_222_8;
const P012: [f64; 3] = [0.090_030_573_170_380_46, 0.244_728_471_054_797_64, 0.665_240_955_774_821_8];
const LSE_012: f64 = 2.407_605_964_444_380_6;
const LN_2: f64 = std::f64::consts::LN_2;
const LN_3: f64 = 1.098_612_288_668_109_8;

/// One batch entry, head_dim 1 (scale 1), one head: q·k = q_i·k_j, v is a number.
fn scalars(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    change: impl Fn(&mut AttnProblem),
    sink: Option<f64>,
) -> Reference {
    let mut p = AttnProblem::dense(1, (q.len() as u64, k.len() as u64), (1, 1), 1, Mask::FULL, DType::Bf16);
    change(&mut p);
    p.sink = sink.is_some();
    let tensor = |x: &[f64]| Tensor::from_fn(DType::Bf16, [1, x.len(), 1, 1], |_, s, _, _| x[s]);
    attention(&p, &tensor(q), &tensor(k), &tensor(v), sink.as_ref().map(std::slice::from_ref))
}

#[track_caller]
fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!(g == w || (g - w).abs() < 1e-12 * w.abs().max(1.0), "{got:?} instead of {want:?}");
    }
}

fn causal(p: &mut AttnProblem) {
    p.mask = Mask::CAUSAL;
}

fn window(left: i64, right: i64) -> impl Fn(&mut AttnProblem) {
    let bound = |w: i64| u64::try_from(w).ok();
    move |p| p.mask = Mask { causal: false, window_left: bound(left), window_right: bound(right) }
}

#[test]
fn softmax_and_lse() {
    let equal = scalars(&[0.0], &[5.0, -3.0], &[1.0, 4.0], |_| (), None);
    close(&equal.o, &[2.5]);
    close(&equal.lse, &[LN_2]);
    let two = scalars(&[1.0], &[0.0, 1.0], &[10.0, 20.0], |_| (), None);
    close(&two.o, &[10.0 * P0 + 20.0 * P1]);
    close(&two.lse, &[LN_1_E]);
    // Logits 100, 101, 102: the same weights, and an LSE 100 above.
    let shifted = scalars(&[1.0], &[100.0, 101.0, 102.0], &[1.0, 0.0, 3.0], |_| (), None);
    close(&shifted.o, &[P012[0] + 3.0 * P012[2]]);
    close(&shifted.lse, &[100.0 + LSE_012]);
}

#[test]
fn scale() {
    // head_dim 4, all ones: q·k = 4, scale 1/√4 gives 2; the other key gives 0. softmax(2, 0) = e²/(e² + 1).
    let p = AttnProblem::dense(1, (1, 2), (1, 1), 4, Mask::FULL, DType::Bf16);
    let q = Tensor::from_fn(DType::Bf16, [1, 1, 1, 4], |_, _, _, _| 1.0);
    let k = Tensor::from_fn(DType::Bf16, [1, 2, 1, 4], |_, s, _, _| [1.0, 0.0][s]);
    let r = attention(&p, &q, &k, &k, None);
    close(&r.o, &[0.880_797_077_977_882_4; 4]);
    close(&r.lse, &[2.126_928_011_042_972_5]);
    // A scale given: ½·(0, 2) = (0, 1); 3·(0, 0) = (0, 0).
    let half = scalars(&[1.0], &[0.0, 2.0], &[0.0, 1.0], |p| p.scale = Some(0.5), None);
    close(&half.o, &[P1]);
    let zero = scalars(&[3.0], &[0.0, 0.0], &[0.0, 1.0], |p| p.scale = Some(3.0), None);
    close(&zero.o, &[0.5]);
}

#[test]
fn causal_is_bottom_right_aligned() {
    // Square: row i sees keys 0..=i.
    let square = scalars(&[1.0; 3], &[0.0, 1.0, 2.0], &[1.0, 0.0, 0.0], causal, None);
    close(&square.o, &[1.0, P0, P012[0]]);
    close(&square.lse, &[0.0, LN_1_E, LSE_012]);
    // Two queries on three keys: the first sees two, the last all.
    let wide = scalars(&[1.0; 2], &[0.0, 1.0, 2.0], &[0.0, 0.0, 1.0], causal, None);
    close(&wide.o, &[0.0, P012[2]]);
    // Three queries on two keys: the first sees none.
    let tall = scalars(&[1.0; 3], &[0.0, 1.0], &[8.0, 16.0], causal, None);
    close(&tall.o, &[0.0, 8.0, 8.0 * P0 + 16.0 * P1]);
    close(&tall.lse, &[f64::NEG_INFINITY, 0.0, LN_1_E]);
}

#[test]
fn rows_without_keys_are_zero_and_minus_infinity() {
    let none = scalars(&[1.0; 2], &[], &[], |_| (), None);
    close(&none.o, &[0.0, 0.0]);
    close(&none.lse, &[f64::NEG_INFINITY; 2]);
    let causal_none = scalars(&[1.0; 4], &[7.0], &[5.0], causal, None);
    close(&causal_none.o, &[0.0, 0.0, 0.0, 5.0]);
    // A window that lies left of every key: queries 0 and 1 sit on keys −2 and −1.
    let windowed = scalars(&[1.0; 3], &[4.0], &[5.0], window(1, 0), None);
    close(&windowed.o, &[0.0, 0.0, 5.0]);
    close(&windowed.lse, &[f64::NEG_INFINITY, f64::NEG_INFINITY, 4.0]);
}

#[test]
fn windows() {
    // (0, 0): each query sees its own key alone.
    let own = scalars(&[1.0; 3], &[0.0, 1.0, 2.0], &[5.0, 6.0, 7.0], window(0, 0), None);
    close(&own.o, &[5.0, 6.0, 7.0]);
    close(&own.lse, &[0.0, 1.0, 2.0]);
    // (1, 0): its own and the one before.
    let left = scalars(&[1.0; 3], &[0.0, 1.0, 2.0], &[0.0, 0.0, 1.0], window(1, 0), None);
    close(&left.o, &[0.0, 0.0, P1]);
    close(&left.lse, &[0.0, LN_1_E, 1.0 + LN_1_E]);
    // (−1, 1) on two queries and three keys: query 0 sits on key 1 and sees all three, so does query 1.
    let right = scalars(&[1.0; 2], &[0.0, 1.0, 2.0], &[0.0, 0.0, 1.0], window(-1, 1), None);
    close(&right.o, &[P012[2], P012[2]]);
    // (0, 1), square: query 0 sees keys 0 and 1, query 2 its own alone.
    let forward = scalars(&[1.0; 3], &[0.0, 1.0, 2.0], &[1.0, 0.0, 9.0], window(0, 1), None);
    close(&forward.o, &[P0, 9.0 * P1, 9.0]);
}

#[test]
fn minus_one_zero_is_causal() {
    for (q, k) in [(3, 3), (2, 5), (5, 2)] {
        let keys: Vec<f64> = (0..k).map(f64::from).collect();
        let queries = vec![1.0; q];
        let windowed = scalars(&queries, &keys, &keys, window(-1, 0), None);
        assert_eq!(windowed, scalars(&queries, &keys, &keys, causal, None));
    }
}

#[test]
fn grouped_heads() {
    // Value of key/value head h is 10·(h + 1), one key each, so O names the head that was read.
    let heads_read = |hq: u64, hkv: u64| {
        let p = AttnProblem::dense(1, (1, 1), (hq, hkv), 1, Mask::FULL, DType::Bf16);
        let q = Tensor::from_fn(DType::Bf16, [1, 1, hq as usize, 1], |_, _, _, _| 1.0);
        let kv = Tensor::from_fn(DType::Bf16, [1, 1, hkv as usize, 1], |_, _, h, _| 10.0 * (h + 1) as f64);
        attention(&p, &q, &kv, &kv, None).o
    };
    close(&heads_read(4, 2), &[10.0, 10.0, 20.0, 20.0]);
    close(&heads_read(3, 3), &[10.0, 20.0, 30.0]);
    close(&heads_read(5, 1), &[10.0; 5]);
}

#[test]
fn batch_entries_and_tokens_are_not_mixed() {
    let p = AttnProblem::dense(2, (2, 1), (2, 1), 1, Mask::FULL, DType::Bf16);
    let q = Tensor::from_fn(DType::Bf16, [2, 2, 2, 1], |b, s, h, _| (4 * b + 2 * s + h) as f64);
    let k = Tensor::from_fn(DType::Bf16, [2, 1, 1, 1], |b, _, _, _| (b + 1) as f64);
    let v = Tensor::from_fn(DType::Bf16, [2, 1, 1, 1], |b, _, _, _| 3.0 + b as f64);
    let r = attention(&p, &q, &k, &v, None);
    close(&r.o, &[3.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0, 4.0]);
    // LSE is (batch, head, token): the logit itself, q·k.
    close(&r.lse, &[0.0, 2.0, 1.0, 3.0, 8.0, 12.0, 10.0, 14.0]);
}

#[test]
fn sinks_join_the_denominator_once() {
    // One key with logit 1, sink 0: weight e/(1 + e).
    let one = scalars(&[1.0], &[1.0], &[2.0], |_| (), Some(0.0));
    close(&one.o, &[2.0 * P1]);
    close(&one.lse, &[LN_1_E]);
    // Two equal keys and an equal sink: a third each.
    let thirds = scalars(&[0.0], &[1.0, 1.0], &[3.0, 6.0], |_| (), Some(0.0));
    close(&thirds.o, &[3.0]);
    close(&thirds.lse, &[LN_3]);
    // A sink far above takes everything; one far below nothing.
    let above = scalars(&[1.0], &[1.0], &[2.0], |_| (), Some(1001.0));
    close(&above.o, &[0.0]);
    close(&above.lse, &[1001.0]);
    let below = scalars(&[1.0], &[1.0], &[2.0], |_| (), Some(-1000.0));
    close(&below.o, &[2.0]);
}

#[test]
fn softcap_bounds_logits() {
    // tanh(1) = 0.761594155955765: cap 1 on logits (0, 1) leaves (0, tanh 1); e^0.761594 = 2.141688.
    let one = scalars(&[1.0], &[0.0, 1.0], &[0.0, 1.0], |p| p.softcap = 1.0, None);
    close(&one.lse, &[1.144_760_134_749_48]);
    // cap 2, logit 4: 2·tanh 2 = 1.928055160151634 is the LSE of a single key.
    let two = scalars(&[1.0], &[4.0], &[1.0], |p| p.softcap = 2.0, None);
    close(&two.lse, &[1.928_055_160_151_634]);
    // Far beyond the cap both logits are the cap.
    let flat = scalars(&[1.0], &[1000.0, 2000.0], &[0.0, 1.0], |p| p.softcap = 3.0, None);
    close(&flat.o, &[0.5]);
    close(&flat.lse, &[3.0 + LN_2]);
}

#[test]
fn terms_of_the_bounds() {
    // Weights ½, ½ on values 3 and −1: A = 2, B = √(2.25 + 0.25), l0 = 2, Σ|v|/l0 = 2.
    let r = scalars(&[0.0], &[7.0, -2.0], &[3.0, -1.0], |_| (), None);
    close(&r.weighted_abs, &[2.0]);
    close(&r.weighted_norm, &[1.581_138_830_084_189_8]);
    close(&r.abs_over_l0, &[2.0]);
    // max|q|·max|k| and the largest visible |q·k|: with a causal mask query 0 does not see key 1.
    let r = scalars(&[-3.0, 1.0], &[2.0, 5.0], &[1.0, 1.0], causal, None);
    assert_eq!((r.max_q_max_k, r.max_dot), (15.0, 6.0));
    let r = scalars(&[-3.0, 1.0], &[2.0, 5.0], &[1.0, 1.0], |_| (), None);
    assert_eq!(r.max_dot, 15.0);
}

/// The truth of some rows is the whole truth's, in the order asked for: under a window, sinks and grouped heads.
#[test]
fn some_rows_are_rows_of_the_whole() {
    let mask = Mask { causal: false, window_left: Some(5), window_right: Some(1) };
    let mut p = AttnProblem::dense(2, (7, 11), (4, 2), 3, mask, DType::Bf16);
    p.sink = true;
    let tensor = |shape: [usize; 4], salt: f64| {
        Tensor::from_fn(DType::Bf16, shape, |b, s, h, d| {
            ((7 * b + 3 * s + 5 * h + d) as f64 * 0.37 + salt).sin()
        })
    };
    let (q, k, v) = (tensor([2, 7, 4, 3], 0.0), tensor([2, 11, 2, 3], 1.0), tensor([2, 11, 2, 3], 2.0));
    let sinks = [0.5, -1.0, 0.0, 2.0];
    let whole = attention(&p, &q, &k, &v, Some(&sinks));
    let wanted = [(1, 6, 3), (0, 0, 0), (1, 2, 1), (0, 5, 2)];
    let some = attention_rows(&p, (&q, &k, &v), Some(&sinks), &wanted);
    for (at, (b, i, h)) in wanted.into_iter().enumerate() {
        let row = ((b * 7 + i) * 4 + h) * 3;
        assert_eq!(some.o[3 * at..3 * at + 3], whole.o[row..row + 3]);
        assert_eq!(some.weighted_norm[3 * at..3 * at + 3], whole.weighted_norm[row..row + 3]);
        assert_eq!(some.lse[at], whole.lse[(b * 4 + h) * 7 + i]);
    }
    assert!(some.max_dot <= whole.max_dot && some.max_q_max_k == whole.max_q_max_k);
}
