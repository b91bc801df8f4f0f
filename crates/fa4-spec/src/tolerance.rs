//! How far from the f64 oracle a right kernel may be, and the verdict on one output.
//!
//! # Derivation
//!
//! A fused kernel computes `S` on the matrix unit, `P = exp2(scale_log2·S − m)` in f32, rounds P to the
//! 16-bit storage type, multiplies by V on the matrix unit with f32 accumulation, divides by the exact f32
//! sum of the unrounded P, and rounds O once.
//!
//! *Score error.* The fitted model of the matrix unit adds the products of one K = 16 step and the
//! accumulator in 25 fractional bits below the largest exponent among them, truncating each of the 17 terms:
//! an error of at most 17·2^-25·max(Mqk, Smax) per step, with Mqk = max|q|·max|k| bounding a product and
//! Smax = max|q·k| the accumulator; the f32 write-back truncates by at most 2^-23·Smax. d/16 steps give
//!
//! ΔS = (d/16)·(17·2^-25·max(Mqk, Smax) + 2^-23·Smax).
//!
//! *Weight error.* An error δ in a score moves a weight by the factor exp(scale·δ); numerator and
//! denominator both move, hence 2·scale·ΔS. ex2.approx and the division add 2^-20 with room; the product
//! scale_log2·S − m is rounded in f32 at magnitude ≤ 1.45·scale·Smax; the f32 row sum of sk terms, added in
//! at least sixteen independent chains and pairs, adds (sk/16)·2^-23:
//!
//! ε = 2·scale·ΔS + 2^-20 + 2^-23·1.45·scale·Smax + (sk/16)·2^-23 (+ the polynomial's error where exp2 is emulated).
//!
//! *Softcap.* softcap·tanh(scale·S/softcap) has a slope of at most scale, so that ΔS counts as before. tanh is computed
//! as 1 − 2/(1 + 2^y) by ex2.approx and rcp.approx. With t = 1/(1 + 2^y): the rounding of y and ex2.approx (2^-22) move
//! t by at most t(1 − t)·(2^-22 + 0.7·2^-24·|y|) ≤ 2^-24 + 2^-25, the rounding of 1 + 2^y and rcp.approx by
//! t·(2^-24 + 2^-23), and the result is rounded by 2^-25: tanh by at most 2^-21 in all, a score by softcap·2^-21, a
//! weight by twice that.
//!
//! *T1 (always).* Rounding P multiplies each w_j by 1 + θ_j, |θ_j| ≤ u, so O moves by at most
//! (u + ε)·Σ w_j|v_j| = (u + ε)·A; the last rounding adds ½ulp; P below the smallest normal fp16 rounds with an
//! absolute error η = 2^-25 before division by l0.
//!
//! *T2 (independent inputs).* The θ_j of randn inputs are independent with standard deviation ≤ 0.41·u (mean
//! square of a relative rounding error over a binade); their sum has standard deviation 0.41·u·B,
//! B = sqrt(Σ w_j²v_j²), and seven of those are allowed. Much sharper than T1 for long rows, where one wrongly
//! masked key would hide inside T1.
//!
//! *LSE.* ln of the sum: scale·ΔS (and the softcap's error) from the scores, 1e-5 for exp2, the sum and lg2.approx, the
//! polynomial's error, and f32 rounding of the result and of max·scale: 2^-22·|LSE|.

use std::fmt;

use thiserror::Error;

use crate::oracle::Reference;
use crate::problem::{AttnProblem, DType};
use crate::tensor::{decode, ulp, unit_roundoff};

/// Above this relative weight error (logits of ±1e5 and the like) single weights mean nothing any more.
const WIDE_EPSILON: f64 = 1.0 / 64.0;
/// Where ε is wide: ‖O − O64‖ over ‖O64‖ of one row. Another winning key is another v vector and moves a row by about
/// √2·‖O64‖.
const WINNER_DISTANCE: f64 = 0.25;

/// The case-wide terms of the bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Score error of the matrix unit.
    pub delta_s: f64,
    /// Relative error of a weight besides its rounding to storage.
    pub epsilon: f64,
    /// Unit roundoff of P.
    pub u: f64,
    /// Absolute rounding error of a subnormal P.
    pub eta: f64,
    /// Error of the LSE from scores and exp2: scale·ΔS, the softcap's and the polynomial's.
    pub delta_lse: f64,
    dtype: DType,
    independent: bool,
}

impl Bounds {
    /// Bounds for a case; `independent` says that inputs are randn or views of it, which T2 needs, and
    /// `exp2_error` is the relative error of the kernel's exp2 where a polynomial replaces the MUFU (else 0).
    pub fn new(p: &AttnProblem, reference: &Reference, independent: bool, exp2_error: f64) -> Self {
        let scale = p.softmax_scale();
        let (mqk, smax) = (reference.max_q_max_k, reference.max_dot);
        let steps = p.head_dim_qk as f64 / 16.0;
        let delta_s = steps * (17.0 * 2f64.powi(-25) * mqk.max(smax) + 2f64.powi(-23) * smax);
        let delta_cap = p.softcap * 2f64.powi(-21);
        let epsilon = 2.0 * scale * delta_s
            + 2.0 * delta_cap
            + 2f64.powi(-20)
            + 2f64.powi(-23) * 1.45 * scale * smax
            + p.seqlen_k as f64 / 16.0 * 2f64.powi(-23)
            + exp2_error;
        let eta = if p.q_dtype == DType::F16 { 2f64.powi(-25) } else { 0.0 };
        let delta_lse = scale * delta_s + delta_cap + exp2_error;
        Bounds {
            delta_s,
            epsilon,
            u: unit_roundoff(p.q_dtype),
            eta,
            delta_lse,
            dtype: p.q_dtype,
            independent,
        }
    }

    /// ε > 2^-6: only finiteness, the winning key and T1 are judged.
    pub fn is_wide(&self) -> bool {
        self.epsilon > WIDE_EPSILON
    }

    /// Largest allowed |O − O64| of element `i`: T1, and T2 too where inputs are independent.
    pub fn o(&self, reference: &Reference, i: usize) -> f64 {
        let a = reference.weighted_abs[i];
        let rounding = 0.5 * ulp(self.dtype, reference.o[i]) + self.eta * reference.abs_over_l0[i];
        let t1 = rounding + (self.u + self.epsilon) * a;
        if !self.independent || self.is_wide() {
            return t1;
        }
        t1.min(rounding + 7.0 * 0.41 * self.u * reference.weighted_norm[i] + self.epsilon * a)
    }

    /// Largest allowed |LSE − LSE64| of element `i`.
    pub fn lse(&self, reference: &Reference, i: usize) -> f64 {
        1e-5 + self.delta_lse + 2f64.powi(-22) * reference.lse[i].abs()
    }
}

/// The element that comes nearest to its bound, or exceeds it most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Worst {
    /// Error over bound; ≤ 1 is right.
    pub ratio: f64,
    /// (batch, query token, query head, dim); dim is 0 for LSE.
    pub at: [usize; 4],
    /// The kernel's value.
    pub got: f64,
    /// The oracle's value.
    pub want: f64,
    /// The bound on their distance.
    pub bound: f64,
}

/// What was found on an output that is within its bounds, and part of the message on one that is not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Worst element of O.
    pub o: Worst,
    /// Worst element of LSE.
    pub lse: Worst,
    /// ε was above 2^-6, so that only finiteness, the winning key and T1 were judged.
    pub wide: bool,
}

/// Everything that is wrong with an output: at most one thing about O and one about the LSE.
#[derive(Debug, Clone, PartialEq)]
pub struct Wrong(pub Vec<Mismatch>);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, m)| write!(f, "{}{m}", if i == 0 { "" } else { "; " }))
    }
}

impl std::error::Error for Wrong {}

/// One thing that is wrong with an output.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Mismatch {
    /// The output has another number of elements than the problem.
    #[error("{which} has {got} elements, the problem has {want}")]
    Size {
        /// `O` or `LSE`.
        which: &'static str,
        /// Elements given.
        got: usize,
        /// Elements of the problem.
        want: usize,
    },
    /// NaN or infinity where the oracle has none, or the other way round.
    #[error(
        "{which} differs from the oracle in {count} non-finite positions; first at batch {}, query {}, head {}, dim {}: \
         {got} instead of {want}", at[0], at[1], at[2], at[3]
    )]
    NonFinite {
        /// `O` or `LSE`.
        which: &'static str,
        /// How many positions.
        count: usize,
        /// The first of them.
        at: [usize; 4],
        /// The kernel's value there.
        got: f64,
        /// The oracle's value there.
        want: f64,
    },
    /// An error above its bound.
    #[error(
        "{which} is {:.4}× its bound at batch {}, query {}, head {}, dim {}: {:e} instead of {:e} ± {:.3e}; \
         {count} of {total} elements are out of bounds",
        worst.ratio, worst.at[0], worst.at[1], worst.at[2], worst.at[3], worst.got, worst.want, worst.bound
    )]
    OutOfBounds {
        /// `O` or `LSE`.
        which: &'static str,
        /// The worst element.
        worst: Worst,
        /// Elements above their bound.
        count: usize,
        /// Elements compared.
        total: usize,
    },
    /// With huge logits: a row that is not its winning key's value.
    #[error("O at batch {}, query {}, head {} is not the winning key's value: off by {distance:.3} of its norm", at[0], at[1], at[2])]
    Winner {
        /// The row.
        at: [usize; 4],
        /// ‖O − O64‖ / ‖O64‖.
        distance: f64,
    },
}

/// Compares an output with the oracle. `o` holds storage bits as (batch, seqlen_q, head, dim), `lse` is
/// (batch, head, seqlen_q).
pub fn judge(
    p: &AttnProblem,
    bounds: &Bounds,
    reference: &Reference,
    o: &[u16],
    lse: &[f32],
) -> Result<Judgement, Wrong> {
    let [sq, heads, dim] = [p.seqlen_q, p.num_heads_q, p.head_dim_v].map(|n| n as usize);
    let o: Vec<f64> = o.iter().map(|&bits| decode(p.q_dtype, bits)).collect();
    let lse: Vec<f64> = lse.iter().map(|&x| f64::from(x)).collect();
    let o_at = |i: usize| [i / (dim * heads * sq), i / (dim * heads) % sq, i / dim % heads, i % dim];
    let lse_at = |i: usize| [i / (sq * heads), i % sq, i / sq % heads, 0];
    let judged_o = same_non_finite("O", &o, &reference.o, o_at)
        .and_then(|()| if bounds.is_wide() { winning_keys(&o, &reference.o, dim, o_at) } else { Ok(()) })
        .and_then(|()| worst("O", &o, &reference.o, |i| bounds.o(reference, i), o_at));
    let judged_lse = same_non_finite("LSE", &lse, &reference.lse, lse_at)
        .and_then(|()| worst("LSE", &lse, &reference.lse, |i| bounds.lse(reference, i), lse_at));
    match (judged_o, judged_lse) {
        (Ok(o), Ok(lse)) => Ok(Judgement { o, lse, wide: bounds.is_wide() }),
        (o, lse) => Err(Wrong(o.err().into_iter().chain(lse.err()).collect())),
    }
}

/// Two values agree as members of {finite, NaN, +∞, −∞}.
fn same_class(a: f64, b: f64) -> bool {
    if a.is_finite() || b.is_finite() {
        a.is_finite() && b.is_finite()
    } else {
        a == b || a.is_nan() && b.is_nan()
    }
}

fn same_non_finite(
    which: &'static str,
    got: &[f64],
    want: &[f64],
    at: impl Fn(usize) -> [usize; 4],
) -> Result<(), Mismatch> {
    if got.len() != want.len() {
        return Err(Mismatch::Size { which, got: got.len(), want: want.len() });
    }
    let differing = |&i: &usize| !same_class(got[i], want[i]);
    match (0..got.len()).find(differing) {
        None => Ok(()),
        Some(first) => Err(Mismatch::NonFinite {
            which,
            count: (0..got.len()).filter(differing).count(),
            at: at(first),
            got: got[first],
            want: want[first],
        }),
    }
}

fn winning_keys(
    o: &[f64],
    want: &[f64],
    dim: usize,
    at: impl Fn(usize) -> [usize; 4],
) -> Result<(), Mismatch> {
    for (row, (o, want)) in o.chunks(dim).zip(want.chunks(dim)).enumerate() {
        let square = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>();
        let error = square(&mut o.iter().zip(want).map(|(a, b)| a - b)).sqrt();
        let norm = square(&mut want.iter().copied()).sqrt();
        if error > WINNER_DISTANCE * norm {
            return Err(Mismatch::Winner { at: at(row * dim), distance: error / norm });
        }
    }
    Ok(())
}

fn worst(
    which: &'static str,
    got: &[f64],
    want: &[f64],
    bound: impl Fn(usize) -> f64,
    at: impl Fn(usize) -> [usize; 4],
) -> Result<Worst, Mismatch> {
    let (mut worst, mut count) = (Worst::default(), 0);
    for i in (0..got.len()).filter(|&i| want[i].is_finite()) {
        let bound = bound(i);
        let ratio = (got[i] - want[i]).abs() / bound;
        count += usize::from(ratio > 1.0);
        if ratio > worst.ratio {
            worst = Worst { ratio, at: at(i), got: got[i], want: want[i], bound };
        }
    }
    if count == 0 { Ok(worst) } else { Err(Mismatch::OutOfBounds { which, worst, count, total: got.len() }) }
}
