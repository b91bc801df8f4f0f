//! What is mutated, and the small case that a mutant must fail on.

use fa4_kernels::manifest::{self, ROWS, Row};
use fa4_spec::{AttnProblem, Case, DType, Mask};

use crate::error::GateError;

/// A variant with its case.
#[derive(Debug, Clone)]
pub struct Target {
    /// The variant.
    pub row: &'static Row,
    /// Query tokens, key tokens and heads of each case; a later one for what the first does not reach or show.
    pub sizes: &'static [(u64, u64, u64)],
    /// CTAs, where the kernel's grid may be smaller than its tiles: one CTA then works on several.
    pub grid: Option<u32>,
}

/// An entry, its cases, CTAs.
type Cases = (&'static str, &'static [(u64, u64, u64)], Option<u32>);

/// Small, and yet: in the first case every ring wraps at least twice (a slot's third use is the first of a parity for the
/// second time), both tiles of a CTA exist, the last tile and the last block are partial. One mask of each kind. The
/// others reach what the first does not: whole blocks only, one tile only, rows or tiles without a key,
/// many short tiles in a row (where the K/V ring does not hide a missing wait for Q's slot). With τ = 0 every
/// block rescales O.
const CASES: &[Cases] = &[
    ("fwd_sm100_hd128_bf16_causal", &[(200, 600, 1), (256, 128, 1)], None),
    ("fwd_sm100_hd64_bf16_full", &[(200, 700, 1), (256, 128, 1)], None),
    ("fwd_sm90_hd128_bf16_full", &[(300, 500, 1), (64, 384, 3), (100, 90, 7), (100, 0, 1)], Some(1)),
    (
        "fwd_sm90_hd64_bf16_causal",
        &[(500, 500, 1), (400, 200, 1), (200, 300, 3), (128, 640, 1), (100, 90, 7)],
        Some(1),
    ),
];

/// The targets of a kernel.
///
/// # Errors
/// [`GateError::Flag`] where there is no such kernel, or none of its variants has a case here.
pub fn of(kernel: &str) -> Result<Vec<Target>, GateError> {
    let targets: Vec<Target> = CASES
        .iter()
        .filter_map(|(entry, sizes, grid)| {
            let row = ROWS.iter().find(|row| row.entry == *entry && row.kernel == kernel)?;
            Some(Target { row, sizes, grid: *grid })
        })
        .collect();
    if targets.is_empty() {
        let known: Vec<&str> =
            manifest::kernels().into_iter().filter(|k| CASES.iter().any(|c| c.0.starts_with(k))).collect();
        let what =
            format!("no such kernel, or none of its variants has a case; allowed: {}", known.join(", "));
        return Err(GateError::Flag { flag: "KERNEL", value: kernel.to_string(), what });
    }
    Ok(targets)
}

impl Target {
    /// `hd128_bf16_causal`.
    pub fn name(&self) -> String {
        self.row.variant.to_string()
    }

    /// The cases. The first has one head, so that a neighbouring head lies outside the tensor.
    pub fn cases(&self) -> Vec<Case> {
        let mask = if self.row.variant.ends_with("causal") { Mask::CAUSAL } else { Mask::FULL };
        let head_dim = u64::from(self.row.problem.head_dim_qk);
        let case = |&(seqlen_q, seqlen_k, heads): &(u64, u64, u64)| {
            let problem =
                AttnProblem::dense(1, (seqlen_q, seqlen_k), (heads, 1), head_dim, mask, DType::Bf16);
            let case = Case::dense(format!("mutate_q{seqlen_q}_k{seqlen_k}_h{heads}"), problem, 1);
            Case { tau: Some(0.0), ..case }
        };
        self.sizes.iter().map(case).collect()
    }
}
