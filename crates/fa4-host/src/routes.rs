//! Which kernel serves which problem, and for the rest: why none does.

use fa4_kernels::arch::Arch;
use fa4_spec::problem::{AttnProblem, DType, MaskKind};

use crate::error::HostError;

/// One entry function with what it serves and how it is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The kernel: its source is `kernels/<kernel>.cu`.
    pub kernel: &'static str,
    /// Entry function.
    pub entry: &'static str,
    /// Architecture it is written for.
    pub arch: Arch,
    /// Storage of q, k, v and O.
    pub dtype: DType,
    /// head_dim of q, k, v and O.
    pub head_dim: u64,
    /// Mask.
    pub mask: MaskKind,
    /// Query rows that one CTA works on.
    pub cta_rows: u64,
    /// Keys of one K/V block.
    pub tile_n: u64,
    /// Slots of the K/V ring; K and V blocks take one each.
    pub kv_stages: u64,
    /// Threads of a CTA.
    pub threads: u32,
}

const FWD_SM100: Route = Route {
    kernel: "fwd_sm100",
    entry: "fwd_sm100_hd128_bf16_full",
    arch: Arch::Sm100a,
    dtype: DType::Bf16,
    head_dim: 128,
    mask: MaskKind::Full,
    cta_rows: 256,
    tile_n: 128,
    kv_stages: 3,
    threads: 512,
};

/// Every route, in order of preference.
pub const ROUTES: [Route; 2] =
    [FWD_SM100, Route { entry: "fwd_sm100_hd128_bf16_causal", mask: MaskKind::Causal, ..FWD_SM100 }];

/// The route of a dense problem.
pub fn route(p: &AttnProblem) -> Result<&'static Route, HostError> {
    p.validate()?;
    let kernel = FWD_SM100.kernel;
    let no = |what, given: String, allowed: &str, advice| {
        Err(HostError::Unsupported { what, given, kernel, allowed: allowed.to_string(), advice })
    };
    for (what, dim) in [("head_dim_qk", p.head_dim_qk), ("head_dim_v", p.head_dim_v)] {
        if dim != 128 {
            return no(what, dim.to_string(), "128", "Other head dims need a kernel of their own.");
        }
    }
    for (what, dtype) in [("q_dtype", p.q_dtype), ("kv_dtype", p.kv_dtype)] {
        if dtype != DType::Bf16 {
            return no(what, dtype.to_string(), "bf16", "Convert the tensors to bf16.");
        }
    }
    if p.sink {
        return no("sink", "1".into(), "0", "Attention sinks are not served yet.");
    }
    if p.softcap != 0.0 {
        return no("softcap", p.softcap.to_string(), "0", "Logit soft caps are not served yet.");
    }
    let kind = p.mask.kind(p.seqlen_q, p.seqlen_k);
    match ROUTES.iter().find(|r| r.mask == kind) {
        Some(route) => Ok(route),
        None => no("mask", p.mask.to_string(), "full, causal", "Sliding windows are not served yet."),
    }
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
        assert_eq!(route(&AttnProblem { mask, ..problem() }).unwrap().mask, MaskKind::Causal);
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
        assert!(no(AttnProblem { mask, ..problem() }).contains("mask is window(1, 0)"));
        assert!(no(AttnProblem { num_heads_kv: 3, ..problem() }).contains("must divide"));
    }
}
