//! Which kernel serves which problem, and for the rest: why none does.

use fa4_kernels::arch::Arch;
use fa4_kernels::manifest::{self, ROWS, Row};
use fa4_spec::problem::{AttnProblem, DType, MaskKind};

use crate::error::HostError;

/// The storage format of a compiled variant in this crate's words.
pub fn dtype_of(row: &Row) -> DType {
    match row.problem.dtype {
        manifest::Dtype::Bf16 => DType::Bf16,
        manifest::Dtype::Fp16 => DType::F16,
    }
}

/// Whether a compiled variant serves a mask, sinks and softcap.
fn serves_logits(row: &Row, p: &AttnProblem) -> bool {
    let plain = !p.sink && p.softcap == 0.0;
    match (row.problem.mask, p.mask.kind(p.seqlen_q, p.seqlen_k)) {
        (manifest::Mask::Full, MaskKind::Full) | (manifest::Mask::Causal, MaskKind::Causal) => plain,
        (manifest::Mask::General, _) => true,
        _ => false,
    }
}

/// The compiled variant that serves a dense problem: the first of `rows` that fits. Where none does, the error names the
/// first property that none of the rows has.
pub fn route_among(
    p: &AttnProblem,
    rows: impl IntoIterator<Item = &'static Row>,
) -> Result<&'static Row, HostError> {
    p.validate()?;
    let mut left: Vec<&'static Row> = rows.into_iter().collect();
    let dim = |d: u32| d.to_string();
    let head_dim = "Pad the rows with zeros to a head dim that is taken, and give the scale of the true one.";
    let dtype = "Convert the tensors; q, k and v must have one type.";
    keep(&mut left, "head_dim_qk", p.head_dim_qk.to_string(), |r| dim(r.problem.head_dim_qk), head_dim)?;
    keep(&mut left, "head_dim_v", p.head_dim_v.to_string(), |r| dim(r.problem.head_dim_v), head_dim)?;
    keep(&mut left, "q_dtype", p.q_dtype.to_string(), |r| dtype_of(r).to_string(), dtype)?;
    keep(&mut left, "kv_dtype", p.kv_dtype.to_string(), |r| dtype_of(r).to_string(), dtype)?;
    let kernel = left[0].kernel;
    left.into_iter().find(|row| serves_logits(row, p)).ok_or_else(|| HostError::Unsupported {
        what: "mask",
        given: p.mask.to_string(),
        kernel,
        allowed: "full and causal masks without sinks and softcap".into(),
        advice: "Use a build with the general variant.",
    })
}

/// The compiled variant that serves a dense problem on GPUs of architecture `arch`.
pub fn route_on(p: &AttnProblem, arch: Arch) -> Result<&'static Row, HostError> {
    route_among(p, ROWS.iter().filter(|row| row.archs.contains(&arch)))
}

/// The compiled variant that serves a dense problem, on whatever GPU: the first in the manifest's order.
pub fn route(p: &AttnProblem) -> Result<&'static Row, HostError> {
    route_among(p, ROWS)
}

/// Drops the rows whose property differs; an error if none is left, which speaks of the first row's kernel.
fn keep(
    rows: &mut Vec<&'static Row>,
    what: &'static str,
    given: String,
    property: impl Fn(&Row) -> String,
    advice: &'static str,
) -> Result<(), HostError> {
    let kernel = rows.first().map_or("no kernel", |r| r.kernel);
    let mut allowed: Vec<String> = rows.iter().filter(|r| r.kernel == kernel).map(|r| property(r)).collect();
    rows.retain(|r| property(r) == given);
    if !rows.is_empty() {
        return Ok(());
    }
    allowed.sort_by_key(|text| (text.len(), text.clone())); // numbers by size
    allowed.dedup();
    Err(HostError::Unsupported { what, given, kernel, allowed: allowed.join(", "), advice })
}

#[cfg(test)]
mod tests {
    use fa4_spec::Mask;

    use super::*;

    fn problem() -> AttnProblem {
        AttnProblem::dense(1, (4, 4), (4, 2), 128, Mask::FULL, DType::Bf16)
    }

    #[test]
    fn masks_choose_the_entry() {
        assert_eq!(route(&problem()).unwrap().entry, "fwd_sm100_hd128_bf16_full");
        let causal = AttnProblem { mask: Mask::CAUSAL, ..problem() };
        assert_eq!(route(&causal).unwrap().entry, "fwd_sm100_hd128_bf16_causal");
        // A window that hides nothing but the future is causal.
        let mask = Mask { causal: false, window_left: Some(4096), window_right: Some(0) };
        assert_eq!(route(&AttnProblem { mask, ..problem() }).unwrap().entry, "fwd_sm100_hd128_bf16_causal");
        let mask = Mask { causal: false, window_left: Some(1), window_right: Some(0) };
        for general in [
            AttnProblem { mask, ..problem() },
            AttnProblem { sink: true, ..problem() },
            AttnProblem { softcap: 50.0, mask: Mask::CAUSAL, ..problem() },
        ] {
            assert_eq!(route(&general).unwrap().entry, "fwd_sm100_hd128_bf16_general");
        }
    }

    #[test]
    fn sizes_and_types_choose_the_compilation() {
        for (head_dim, dtype, entry) in [
            (64, DType::Bf16, "fwd_sm100_hd64_bf16_full"),
            (96, DType::F16, "fwd_sm100_hd96_fp16_full"),
            (128, DType::F16, "fwd_sm100_hd128_fp16_full"),
        ] {
            let p = AttnProblem::dense(1, (4, 4), (4, 2), head_dim, Mask::FULL, dtype);
            assert_eq!(route(&p).unwrap().entry, entry);
        }
    }

    #[test]
    fn refusals_say_what_was_given_and_what_is_allowed() {
        let no = |p: AttnProblem| route_on(&p, Arch::Sm100a).unwrap_err().to_string();
        let text = no(AttnProblem { head_dim_qk: 256, ..problem() });
        assert!(text.contains("head_dim_qk is 256; fwd_sm100 takes 64, 96, 128"), "{text}");
        let text = route(&AttnProblem { head_dim_qk: 80, ..problem() }).unwrap_err().to_string();
        assert!(text.contains("head_dim_qk is 80; fwd_sm100 takes 64, 96, 128. Pad"), "{text}");
        let text = no(AttnProblem { head_dim_v: 64, ..problem() });
        assert!(text.contains("head_dim_v is 64; fwd_sm100 takes 128"), "{text}");
        assert!(no(AttnProblem { q_dtype: DType::E4m3, ..problem() }).contains("q_dtype is fp8_e4m3"));
        let text = no(AttnProblem { kv_dtype: DType::F16, ..problem() });
        assert!(text.contains("kv_dtype is fp16; fwd_sm100 takes bf16"), "{text}");
        assert!(no(AttnProblem { num_heads_kv: 3, ..problem() }).contains("must divide"));
        assert!(matches!(route_among(&problem(), &[]), Err(HostError::Unsupported { .. })));
        let without_general: &'static [Row] = &ROWS[..2];
        let capped = AttnProblem { softcap: 30.0, ..problem() };
        assert!(route_among(&capped, without_general).unwrap_err().to_string().contains("mask is full"));
    }
}
