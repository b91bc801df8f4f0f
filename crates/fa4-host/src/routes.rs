//! Which kernel serves which problem, and for the rest: why none does.

use fa4_kernels::manifest::{self, ROWS, Row};
use fa4_spec::problem::{AttnProblem, DType, MaskKind};

use crate::error::HostError;

/// The storage format of a compiled variant in this crate's words.
pub fn dtype_of(row: &Row) -> DType {
    match row.problem.dtype {
        manifest::Dtype::Bf16 => DType::Bf16,
    }
}

/// The mask of a compiled variant in this crate's words.
pub fn mask_of(row: &Row) -> MaskKind {
    match row.problem.mask {
        manifest::Mask::Full => MaskKind::Full,
        manifest::Mask::Causal => MaskKind::Causal,
    }
}

/// The compiled variant that serves a dense problem: the first of `rows` that fits. Where none does, the error names the
/// first property that none of the rows has.
pub fn route_among(p: &AttnProblem, rows: &'static [Row]) -> Result<&'static Row, HostError> {
    p.validate()?;
    let mut left: Vec<&'static Row> = rows.iter().collect();
    let dim = |d: u32| d.to_string();
    let head_dim = "Other head dims need a kernel of their own.";
    let bf16 = "Convert the tensors.";
    let kind = p.mask.kind(p.seqlen_q, p.seqlen_k);
    keep(&mut left, "head_dim_qk", p.head_dim_qk.to_string(), |r| dim(r.problem.head_dim_qk), head_dim)?;
    keep(&mut left, "head_dim_v", p.head_dim_v.to_string(), |r| dim(r.problem.head_dim_v), head_dim)?;
    keep(&mut left, "q_dtype", p.q_dtype.to_string(), |r| dtype_of(r).to_string(), bf16)?;
    keep(&mut left, "kv_dtype", p.kv_dtype.to_string(), |r| dtype_of(r).to_string(), bf16)?;
    keep(&mut left, "sink", u8::from(p.sink).to_string(), |_| "0".into(), "Sinks are not served yet.")?;
    keep(&mut left, "softcap", p.softcap.to_string(), |_| "0".into(), "Soft caps are not served yet.")?;
    let name = |kind: MaskKind| match kind {
        MaskKind::Full => "full".to_string(),
        MaskKind::Causal => "causal".to_string(),
        MaskKind::Window => p.mask.to_string(),
    };
    keep(&mut left, "mask", name(kind), |r| name(mask_of(r)), "Sliding windows are not served yet.")?;
    Ok(left[0])
}

/// The compiled variant that serves a dense problem.
pub fn route(p: &AttnProblem) -> Result<&'static Row, HostError> {
    route_among(p, ROWS)
}

/// Drops the rows whose property differs; an error if none is left.
fn keep(
    rows: &mut Vec<&'static Row>,
    what: &'static str,
    given: String,
    property: impl Fn(&Row) -> String,
    advice: &'static str,
) -> Result<(), HostError> {
    let mut allowed: Vec<String> = rows.iter().map(|r| property(r)).collect();
    let kernel = rows.first().map_or("no kernel", |r| r.kernel);
    rows.retain(|r| property(r) == given);
    if !rows.is_empty() {
        return Ok(());
    }
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
    }

    #[test]
    fn refusals_say_what_was_given_and_what_is_allowed() {
        let no = |p: AttnProblem| route(&p).unwrap_err().to_string();
        let text = no(AttnProblem { head_dim_qk: 96, ..problem() });
        assert!(text.contains("head_dim_qk is 96; fwd_sm100 takes 128"), "{text}");
        assert!(no(AttnProblem { kv_dtype: DType::F16, ..problem() }).contains("kv_dtype is fp16"));
        assert!(no(AttnProblem { sink: true, ..problem() }).contains("sink"));
        assert!(no(AttnProblem { softcap: 50.0, ..problem() }).contains("softcap is 50"));
        let mask = Mask { causal: false, window_left: Some(1), window_right: Some(0) };
        let text = no(AttnProblem { mask, ..problem() });
        assert!(text.contains("mask is window(1, 0); fwd_sm100 takes full, causal"), "{text}");
        assert!(no(AttnProblem { num_heads_kv: 3, ..problem() }).contains("must divide"));
        assert!(matches!(route_among(&problem(), &[]), Err(HostError::Unsupported { .. })));
    }
}
