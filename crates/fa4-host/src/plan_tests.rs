use fa4_spec::{DType, Mask};

use super::*;

fn problem() -> AttnProblem {
    AttnProblem::dense(3, (257, 129), (6, 2), 128, Mask::CAUSAL, DType::Bf16)
}

fn tensors(p: &AttnProblem) -> Tensors {
    let sizes = [p.batch, p.seqlen_q, p.num_heads_q, 128].map(|n| n as usize);
    let kv_sizes = [p.batch, p.seqlen_k, p.num_heads_kv, 128].map(|n| n as usize);
    let at = |buffer, shape| TensorRef { buffer, layout: Layout::bshd(shape) };
    Tensors {
        q: at(0x1000_0000, sizes),
        k: at(0x2000_0000, kv_sizes),
        v: at(0x3000_0000, kv_sizes),
        o: at(0x4000_0000, sizes),
        lse: Some(LseRef::dense(0x5000_0000, p)),
        sinks: None,
    }
}

/// A whole plan, field by field, against numbers worked out by hand.
#[test]
fn golden_plan() {
    let p = problem();
    let plan = plan(&p, &tensors(&p), 8.0).unwrap().unwrap();
    assert_eq!((plan.row.entry, plan.grid), ("fwd_sm100_hd128_bf16_causal", [36, 1, 1]));
    assert_eq!(plan.cluster, [1, 1, 1]);
    let x = &plan.params;
    let map = |address, seqlen, heads: u64| TensorMapArgs {
        dtype: DType::Bf16,
        address,
        dims: [128, seqlen, heads, 3],
        strides_bytes: [heads * 256, 256, seqlen * heads * 256],
        box_dims: [64, 128, 1, 1],
        swizzle: Swizzle::B128,
        fill: Fill::Zero,
    };
    assert_eq!(x.q_map, map(0x1000_0000, 257, 6));
    assert_eq!(x.k_map, map(0x2000_0000, 129, 2));
    assert_eq!(x.v_map, map(0x3000_0000, 129, 2));
    assert_eq!(x.o_map, map(0x4000_0000, 257, 6));
    assert_eq!((x.lse, x.lse_batch_stride, x.lse_head_stride, x.lse_row_stride), (0x5000_0000, 1542, 257, 1));
    assert_eq!((x.seqlen_q, x.seqlen_k, x.num_heads_q, x.qhead_per_kvhead, x.batch), (257, 129, 6, 3, 3));
    // log2(e) / √128 = 1.442695041 / 11.313708499.
    assert!((x.scale_log2 - 0.127_517_43).abs() < 1e-8);
    assert_eq!(x.rescale_threshold, 8.0);
    assert_eq!((x.sinks, x.softcap_rate, x.window_left, x.window_right), (0, 0.0, -1, 0));
    // 129 keys of 512 bytes: all 18 heads fit into L2.
    assert_eq!(x.groups_per_section, 18);
}

/// Bounds that hide nothing are −1; causal is a right bound of 0.
#[test]
fn windows_are_normalised() {
    let p = problem();
    let of = |causal, window_left, window_right| {
        let mask = Mask { causal, window_left, window_right };
        let x = plan(&AttnProblem { mask, ..p.clone() }, &tensors(&p), 8.0).unwrap().unwrap().params;
        (x.window_left, x.window_right)
    };
    assert_eq!(of(false, Some(127), Some(255)), (127, 255));
    assert_eq!(of(false, Some(128), Some(256)), (-1, -1));
    assert_eq!(of(true, Some(3), Some(9)), (3, 0));
    assert_eq!(of(false, Some(u64::MAX), None), (-1, -1));
}

#[test]
fn softcap_and_sinks_reach_the_kernel() {
    let p = AttnProblem { softcap: 50.0, sink: true, ..problem() };
    let t = Tensors { sinks: Some(0x6000_0000), ..tensors(&p) };
    let x = plan(&p, &t, 8.0).unwrap().unwrap().params;
    assert_eq!(x.sinks, 0x6000_0000);
    // 50 log2 e, and 2 log2 e / (50 √128).
    assert!((x.scale_log2 - 72.134_75).abs() < 1e-4);
    assert!((x.softcap_rate - 0.005_100_697).abs() < 1e-8);
    let text = plan(&p, &Tensors { sinks: None, ..t }, 8.0).unwrap_err().to_string();
    assert!(text.contains("sinks: address is absent"), "{text}");
    let text = plan(&problem(), &t, 8.0).unwrap_err().to_string();
    assert!(text.contains("absent where the problem has no sinks"), "{text}");
}

/// K and V of a long head fill the share of L2: sections of one group.
#[test]
fn sections_hold_whole_groups() {
    let p = AttnProblem { seqlen_k: 1 << 20, ..problem() };
    assert_eq!(plan(&p, &tensors(&p), 8.0).unwrap().unwrap().params.groups_per_section, 3);
}

/// Strides and offsets are the caller's, to the byte.
#[test]
fn views_reach_the_kernel_unchanged() {
    let p = problem();
    let mut t = tensors(&p);
    t.k.layout = Layout { offset_bytes: 48, stride_batch: 0, stride_seq: 4096, stride_head: 256 };
    let k = plan(&p, &t, 0.0).unwrap().unwrap().params.k_map;
    assert_eq!((k.address, k.strides_bytes), (0x2000_0030, [8192, 512, 0]));
}

#[test]
fn without_outputs_nothing_is_launched() {
    for p in [AttnProblem { batch: 0, ..problem() }, AttnProblem { seqlen_q: 0, ..problem() }] {
        assert_eq!(plan(&p, &tensors(&p), 8.0).unwrap(), None);
    }
}

/// The kernel writes O = 0 and LSE = −∞ itself; a tensor map of at least one row exists but is never used.
#[test]
fn without_keys_the_kernel_still_runs() {
    let p = AttnProblem { seqlen_k: 0, ..problem() };
    let x = plan(&p, &tensors(&p), 8.0).unwrap().unwrap().params;
    assert_eq!((x.seqlen_k, x.k_map.dims[1]), (0, 1));
}

#[test]
fn refusals_name_tensor_and_remedy() {
    let p = problem();
    let no = |change: fn(&mut Tensors)| {
        let mut t = tensors(&p);
        change(&mut t);
        plan(&p, &t, 8.0).unwrap_err().to_string()
    };
    let text = no(|t| t.v.layout.stride_seq = 257);
    assert!(text.contains("v: stride_seq is 257 elements; it must be a multiple of 8 elements"), "{text}");
    assert!(text.contains("pad the rows"), "{text}");
    let text = no(|t| t.q.buffer += 8);
    assert!(text.contains("q: address is 0x10000008; it must be a multiple of 16"), "{text}");
    let text = no(|t| t.o.layout.stride_batch = 1 << 39);
    assert!(text.contains("o: stride_batch") && text.contains("below"), "{text}");
    assert!(no(|t| t.k.layout.stride_head = u64::MAX).contains("k: stride_head"));
    assert!(no(|t| t.lse.as_mut().unwrap().address += 2).contains("lse: address"));
    let many = AttnProblem { batch: 1 << 28, ..p.clone() };
    let text = plan(&many, &tensors(&p), 8.0).unwrap_err().to_string();
    assert!(text.contains("num_heads_q · batch is 3221225472; fwd_sm100 takes at most 2147483647"), "{text}");
    let text = plan(&p, &tensors(&p), f32::NAN).unwrap_err().to_string();
    assert!(text.contains("rescale_threshold is NaN"), "{text}");
    let half = AttnProblem { q_dtype: DType::F16, kv_dtype: DType::F16, ..p.clone() };
    let text = plan(&half, &tensors(&p), 16.0).unwrap_err().to_string();
    assert!(text.contains("rescale_threshold is 16; fwd_sm100 takes 0 to 15 in fp16"), "{text}");
}

#[test]
fn outputs_are_every_row_and_nothing_else() {
    let p = problem();
    let mut t = tensors(&p);
    // Dense: one range each.
    let o_bytes = 3 * 257 * 6 * 256;
    assert_eq!(output_ranges(&p, &t), [(0x4000_0000, o_bytes), (0x5000_0000, 3 * 6 * 257 * 4)]);
    // A gap after each batch entry: three ranges.
    t.o.layout.stride_batch += 128;
    t.lse = None;
    let ranges = output_ranges(&p, &t);
    assert_eq!(ranges.iter().map(|r| r.1).collect::<Vec<_>>(), [o_bytes / 3; 3]);
    assert_eq!(ranges[1].0, 0x4000_0000 + o_bytes / 3 + 256);
}

/// Boxes are as tall as a stage of the kernel's shared memory: 64 rows of Q and 176 of K and V at head_dim 128.
#[test]
fn boxes_are_the_kernels_own() {
    use fa4_kernels::kernel_info::SmemRegion;
    let p = problem();
    let plan = plan(&p, &tensors(&p), 8.0).unwrap().unwrap();
    let region =
        |name: &str, bytes| SmemRegion { name: name.into(), bytes, align: 1024, stages: 2, offset: 0 };
    let info = |smem| KernelInfo { roles: vec![], smem, tmem: vec![], barriers: vec![], params: vec![] };
    let params = plan.params_for(&info(vec![region("Q", 64 * 256), region("KV", 176 * 256)])).unwrap();
    let rows = [&params.q_map, &params.k_map, &params.v_map, &params.o_map].map(|map| map.box_dims[1]);
    assert_eq!(rows, [64, 176, 176, 64]);
    assert_eq!(params.q_map.box_dims, [64, 64, 1, 1]);
    let text = |smem| plan.params_for(&info(smem)).unwrap_err().to_string();
    assert!(text(vec![region("Q", 64 * 256)]).contains("no region `KV`"));
    assert!(text(vec![region("Q", 100), region("KV", 256)]).contains("no 1 to 256 rows of 256"));
}
