//! Which problems FlashAttention-4 is asked to solve.
//!
//! One small problem has whole tiles, one is ragged at both ends with heads in groups, one is long enough that every ring
//! wraps. Which of its kernels serves a problem is FlashAttention's own choice; `full` at head_dim 128 is the one that
//! pairs CTAs.

use fa4_spec::{AttnProblem, Case, DType, Mask};
use serde_json::{Value, json};

/// The GPU that kernels are compiled for.
pub const ARCH: &str = "sm_100a";
/// Its number of SMs, which sizes persistent grids.
pub const SM_COUNT: u32 = 148;

/// A problem and the family of kernels it is meant to reach.
#[derive(Debug, Clone)]
pub struct Fa4Case {
    /// Family, as in tables: `hd128_causal`.
    pub kernel: &'static str,
    /// Sizes and data.
    pub case: Case,
}

impl Fa4Case {
    /// Name of the case's files: `hd128_causal_b1_sq256_…`.
    pub fn name(&self) -> String {
        format!("{}_{}", self.kernel, self.case.id)
    }

    /// What `capture.py` needs to know.
    pub fn request(&self) -> Value {
        let p = &self.case.problem;
        let mut options = serde_json::Map::new();
        if p.mask.causal {
            options.insert("causal".into(), true.into());
        }
        for (side, bound) in [("left", p.mask.window_left), ("right", p.mask.window_right)] {
            if let Some(bound) = bound {
                options.insert(format!("window_size_{side}"), bound.into());
            }
        }
        if p.softcap > 0.0 {
            options.insert("softcap".into(), p.softcap.into());
        }
        json!({
            "name": self.name(), "dtype": p.q_dtype.name(), "batch": p.batch,
            "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k, "heads_q": p.num_heads_q, "heads_kv": p.num_heads_kv,
            "head_dim_qk": p.head_dim_qk, "head_dim_v": p.head_dim_v, "options": options,
        })
    }
}

/// All cases, the plainest kernel first.
pub fn cases(seed: u64) -> Vec<Fa4Case> {
    let window = Mask { causal: false, window_left: Some(100), window_right: Some(20) };
    // Kernel, head dims of QK and V, mask, storage.
    let kernels = [
        ("hd128_causal", (128, 128), Mask::CAUSAL, DType::Bf16),
        ("hd128_full", (128, 128), Mask::FULL, DType::Bf16),
        ("hd64_causal", (64, 64), Mask::CAUSAL, DType::Bf16),
        ("hd64_full", (64, 64), Mask::FULL, DType::Bf16),
        ("hd128_causal_fp16", (128, 128), Mask::CAUSAL, DType::F16),
        ("hd128_window", (128, 128), window, DType::Bf16),
        ("hd192_128_causal", (192, 128), Mask::CAUSAL, DType::Bf16),
    ];
    // Batch, sequence lengths of Q and K, heads of Q and K.
    let sizes = [(1, (256, 256), (1, 1)), (2, (300, 420), (4, 2)), (1, (512, 1024), (2, 2))];
    let mut cases = Vec::new();
    for (kernel, (head_dim_qk, head_dim_v), mask, dtype) in kernels {
        for (batch, (seqlen_q, seqlen_k), heads) in sizes {
            let problem = AttnProblem {
                head_dim_v,
                ..AttnProblem::dense(batch, (seqlen_q, seqlen_k), heads, head_dim_qk, mask, dtype)
            };
            let id = format!("b{batch}_sq{seqlen_q}_sk{seqlen_k}_h{}_{}", heads.0, heads.1);
            cases.push(Fa4Case { kernel, case: Case::dense(id, problem, seed) });
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_problems_valid() {
        let cases = cases(1);
        let names: std::collections::BTreeSet<String> = cases.iter().map(Fa4Case::name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|c| c.case.problem.validate().is_ok()));
    }

    #[test]
    fn requests_say_what_the_problem_says() {
        let of = |kernel: &str| {
            let case = cases(1).into_iter().find(|c| c.kernel == kernel).unwrap();
            case.request()["options"].to_string()
        };
        assert_eq!(of("hd128_full"), "{}");
        assert_eq!(of("hd128_causal"), r#"{"causal":true}"#);
        assert_eq!(of("hd128_window"), r#"{"window_size_left":100,"window_size_right":20}"#);
    }
}
