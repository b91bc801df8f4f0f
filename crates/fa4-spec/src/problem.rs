//! One attention problem: sizes, mask, dtypes. Plain data with validation; nothing about kernels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Storage format of q, k, v and O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    /// bfloat16: 8 significand bits with the hidden one.
    #[serde(rename = "bf16")]
    Bf16,
    /// IEEE binary16: 11 significand bits with the hidden one.
    #[serde(rename = "fp16")]
    F16,
    /// OCP FP8 E4M3.
    #[serde(rename = "fp8_e4m3")]
    E4m3,
}

impl DType {
    /// Size of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::Bf16 | DType::F16 => 2,
            DType::E4m3 => 1,
        }
    }

    /// The name that scenario files use.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bf16 => "bf16",
            DType::F16 => "fp16",
            DType::E4m3 => "fp8_e4m3",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        [DType::Bf16, DType::F16, DType::E4m3].into_iter().find(|d| d.name() == s).ok_or(())
    }
}

/// Which keys a query sees, as given: `causal` and a window, both bottom-right aligned (query i sits on
/// key i + seqlen_k − seqlen_q). The rule itself lives in the oracle alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mask {
    /// No key to the right of the query's own.
    pub causal: bool,
    /// Keys visible to the left besides the query's own; `None` is unbounded.
    pub window_left: Option<u64>,
    /// Keys visible to the right besides the query's own; `None` is unbounded.
    pub window_right: Option<u64>,
}

/// A mask by what it does for given lengths, see [`Mask::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaskKind {
    /// Every key is visible.
    Full,
    /// Bottom-right aligned causal.
    Causal,
    /// Bounded on the left, or bounded on the right beyond the diagonal.
    Window,
}

impl Mask {
    /// Every key visible.
    pub const FULL: Mask = Mask { causal: false, window_left: None, window_right: None };
    /// Bottom-right aligned causal.
    pub const CAUSAL: Mask = Mask { causal: true, window_left: None, window_right: None };

    /// What the mask amounts to for these lengths: a window that no query's reach exceeds is none. The last
    /// query sees the first key iff `window_left ≥ seqlen_k − 1`; the first query sees the last key iff
    /// `window_right ≥ seqlen_q − 1`. A right bound of 0 stays causal even where it hides nothing.
    pub fn kind(self, seqlen_q: u64, seqlen_k: u64) -> MaskKind {
        let right = if self.causal { Some(0) } else { self.window_right };
        let left_hides = self.window_left.is_some_and(|left| left.saturating_add(1) < seqlen_k);
        match right {
            _ if left_hides => MaskKind::Window,
            Some(0) => MaskKind::Causal,
            Some(right) if right.saturating_add(1) < seqlen_q => MaskKind::Window,
            _ => MaskKind::Full,
        }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |w: Option<u64>| w.map_or("unbounded".to_string(), |w| w.to_string());
        match (self.causal, self.window_left, self.window_right) {
            (true, None, None) => f.write_str("causal"),
            (false, None, None) => f.write_str("full"),
            (causal, l, r) => {
                write!(f, "{}window({}, {})", if causal { "causal " } else { "" }, side(l), side(r))
            }
        }
    }
}

/// One dense attention problem, `O = softmax(mask(softcap(scale·q·kᵀ)))·v` per batch entry and query head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttnProblem {
    /// Independent problems of equal size; may be 0.
    pub batch: u64,
    /// Query tokens per batch entry; may be 0.
    pub seqlen_q: u64,
    /// Key tokens per batch entry; may be 0.
    pub seqlen_k: u64,
    /// Query heads.
    pub num_heads_q: u64,
    /// Key/value heads; divides `num_heads_q`.
    pub num_heads_kv: u64,
    /// Elements per q and k vector.
    pub head_dim_qk: u64,
    /// Elements per v and O vector.
    pub head_dim_v: u64,
    /// Visible keys.
    pub mask: Mask,
    /// One more logit per query head joins the denominator, once.
    pub sink: bool,
    /// `cap·tanh(x / cap)` on the scaled logits; 0 is none.
    pub softcap: f64,
    /// Factor on q·k; `None` is 1/√head_dim_qk.
    pub scale: Option<f64>,
    /// Storage of q and O.
    pub q_dtype: DType,
    /// Storage of k and v.
    pub kv_dtype: DType,
}

/// Why a problem makes no sense, whatever the kernel.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProblemError {
    /// A head count is zero or the ratio is not whole.
    #[error(
        "num_heads_q = {q} and num_heads_kv = {kv}: both must be ≥ 1 and num_heads_kv must divide num_heads_q; \
         change one of them"
    )]
    Heads {
        /// Query heads given.
        q: u64,
        /// Key/value heads given.
        kv: u64,
    },
    /// A head dimension is zero.
    #[error("{which} = 0: a head dimension must be ≥ 1; give the length of a row")]
    HeadDim {
        /// `head_dim_qk` or `head_dim_v`.
        which: &'static str,
    },
    /// Not a usable factor.
    #[error("{which} = {value}: must be finite and {allowed}; correct it or leave it at its default")]
    Factor {
        /// `softcap` or `scale`.
        which: &'static str,
        /// The value given.
        value: f64,
        /// What is allowed, in words.
        allowed: &'static str,
    },
    /// Sizes whose product leaves the address space.
    #[error("{which} has {elems} elements: more than 2^48 cannot be addressed; use smaller sizes")]
    TooLarge {
        /// Name of the tensor.
        which: &'static str,
        /// Its element count.
        elems: u128,
    },
}

impl AttnProblem {
    /// A dense problem with equal head dims, one dtype, default scale, no sink and no softcap.
    pub fn dense(
        batch: u64,
        seqlens: (u64, u64),
        heads: (u64, u64),
        head_dim: u64,
        mask: Mask,
        dtype: DType,
    ) -> Self {
        AttnProblem {
            batch,
            seqlen_q: seqlens.0,
            seqlen_k: seqlens.1,
            num_heads_q: heads.0,
            num_heads_kv: heads.1,
            head_dim_qk: head_dim,
            head_dim_v: head_dim,
            mask,
            sink: false,
            softcap: 0.0,
            scale: None,
            q_dtype: dtype,
            kv_dtype: dtype,
        }
    }

    /// The factor on q·k.
    pub fn softmax_scale(&self) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / (self.head_dim_qk as f64).sqrt())
    }

    /// Query heads that share one key/value head.
    pub fn qhead_per_kvhead(&self) -> u64 {
        self.num_heads_q / self.num_heads_kv.max(1)
    }

    /// Elements of O.
    pub fn output_elems(&self) -> u64 {
        self.batch * self.seqlen_q * self.num_heads_q * self.head_dim_v
    }

    /// Checks what no kernel could run.
    pub fn validate(&self) -> Result<(), ProblemError> {
        let (q, kv) = (self.num_heads_q, self.num_heads_kv);
        if q == 0 || kv == 0 || q % kv != 0 {
            return Err(ProblemError::Heads { q, kv });
        }
        for (which, d) in [("head_dim_qk", self.head_dim_qk), ("head_dim_v", self.head_dim_v)] {
            if d == 0 {
                return Err(ProblemError::HeadDim { which });
            }
        }
        if !(self.softcap.is_finite() && self.softcap >= 0.0) {
            let allowed = "≥ 0 (0 is none)";
            return Err(ProblemError::Factor { which: "softcap", value: self.softcap, allowed });
        }
        if let Some(value) = self.scale.filter(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(ProblemError::Factor { which: "scale", value, allowed: "> 0" });
        }
        let size = |s: u64, h: u64, d: u64| {
            [s, h, d].iter().try_fold(u128::from(self.batch), |n, &x| n.checked_mul(u128::from(x)))
        };
        for (which, elems) in [
            ("q", size(self.seqlen_q, q, self.head_dim_qk)),
            ("k", size(self.seqlen_k, kv, self.head_dim_qk)),
            ("v", size(self.seqlen_k, kv, self.head_dim_v)),
            ("O", size(self.seqlen_q, q, self.head_dim_v)),
        ] {
            match elems {
                Some(elems) if elems <= 1 << 48 => {}
                elems => return Err(ProblemError::TooLarge { which, elems: elems.unwrap_or(u128::MAX) }),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> AttnProblem {
        AttnProblem::dense(1, (4, 4), (4, 2), 128, Mask::FULL, DType::Bf16)
    }

    /// The kind agrees with counting visible keys, for every small mask and pair of lengths.
    #[test]
    fn kind_agrees_with_enumeration() {
        let bound = [None, Some(0), Some(1), Some(3), Some(9)];
        for (sq, sk) in [(1, 1), (1, 5), (4, 4), (3, 6), (6, 3)] {
            for causal in [false, true] {
                for (window_left, window_right) in bound.iter().flat_map(|l| bound.map(|r| (*l, r))) {
                    let mask = Mask { causal, window_left, window_right };
                    let (mut all, mut as_causal) = (true, true);
                    for (i, j) in (0..sq).flat_map(|i| (0..sk).map(move |j| (i, j))) {
                        let delta = j - (i + sk - sq);
                        let seen = (!causal || delta <= 0)
                            && window_left.is_none_or(|l| delta >= -(l as i64))
                            && window_right.is_none_or(|r| delta <= r as i64);
                        all &= seen;
                        as_causal &= seen == (delta <= 0);
                    }
                    match mask.kind(sq as u64, sk as u64) {
                        MaskKind::Full => assert!(all, "{mask} {sq} {sk}"),
                        MaskKind::Causal => assert!(as_causal, "{mask} {sq} {sk}"),
                        MaskKind::Window => assert!(!all, "{mask} {sq} {sk}"),
                    }
                }
            }
        }
    }

    #[test]
    fn bad_problems_say_what_is_allowed() {
        assert!(problem().validate().is_ok());
        let heads = AttnProblem { num_heads_kv: 3, ..problem() }.validate().unwrap_err();
        assert!(heads.to_string().contains("must divide num_heads_q"), "{heads}");
        let dim = AttnProblem { head_dim_v: 0, ..problem() }.validate().unwrap_err();
        assert_eq!(dim, ProblemError::HeadDim { which: "head_dim_v" });
        let cap = AttnProblem { softcap: f64::NAN, ..problem() }.validate().unwrap_err();
        assert!(cap.to_string().contains("≥ 0"), "{cap}");
        let large = AttnProblem { batch: u64::MAX, ..problem() }.validate().unwrap_err();
        assert!(large.to_string().contains("2^48"), "{large}");
    }

    #[test]
    fn empty_problems_are_valid() {
        assert!(AttnProblem { batch: 0, seqlen_k: 0, ..problem() }.validate().is_ok());
    }
}
