use fa4_kernels::kernel_info::SmemRegion;
use fa4_spec::{DType, Mask};

use super::*;

fn problem() -> AttnProblem {
    AttnProblem::dense(3, (500, 129), (6, 2), 128, Mask::CAUSAL, DType::Bf16)
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
    assert_eq!(plan.packing.heads_per_tile, 1);
    let map = |address, seqlen, heads: u64| TensorMapArgs {
        dtype: DType::Bf16,
        address,
        dims: [128, seqlen, heads, 3],
        strides_bytes: [heads * 256, 256, seqlen * heads * 256],
        box_dims: [64, 128, 1, 1],
        swizzle: Swizzle::B128,
        fill: Fill::Zero,
    };
    assert_eq!(x.q_map, map(0x1000_0000, 500, 6));
    assert_eq!(x.k_map, map(0x2000_0000, 129, 2));
    assert_eq!(x.v_map, map(0x3000_0000, 129, 2));
    assert_eq!(x.o_map, map(0x4000_0000, 500, 6));
    assert_eq!((x.lse, x.lse_batch_stride, x.lse_head_stride, x.lse_row_stride), (0x5000_0000, 3000, 500, 1));
    assert_eq!((x.seqlen_q, x.seqlen_k, x.num_heads_q, x.qhead_per_kvhead, x.batch), (500, 129, 6, 3, 3));
    assert_eq!((x.heads_per_tile, x.rows_per_head, x.head_groups, x.m_blocks), (1, 128, 6, 2));
    // log2(e) / √128 = 1.442695041 / 11.313708499.
    assert!((x.scale_log2 - 0.127_517_43).abs() < 1e-8);
    assert_eq!(x.rescale_threshold, 8.0);
    assert_eq!((x.sinks, x.softcap_rate, x.window_left, x.window_right), (0, 0.0, -1, 0));
    // 129 keys of 512 bytes: all 18 heads fit into L2.
    assert_eq!(x.groups_per_section, 18);
}

/// Three heads of 42 rows a tile: one CTA of two tiles for 84 queries, and every number that says so.
#[test]
fn golden_packed_plan() {
    let p = AttnProblem { seqlen_q: 84, ..problem() };
    let plan = plan(&p, &tensors(&p), 8.0).unwrap().unwrap();
    assert_eq!((plan.row.entry, plan.grid), ("fwd_sm100_hd128_bf16_causal", [6, 1, 1]));
    let x = &plan.params;
    assert_eq!((x.heads_per_tile, x.rows_per_head, x.head_groups, x.m_blocks), (3, 42, 2, 1));
    assert_eq!((x.num_heads_q, x.qhead_per_kvhead, x.groups_per_section), (6, 3, 6));
    let stage =
        |name: &str| SmemRegion { name: name.into(), bytes: 128 * 256, align: 1024, stages: 2, offset: 0 };
    let smem = vec![stage("Q"), stage("KV")];
    let info = KernelInfo { roles: vec![], smem, tmem: vec![], barriers: vec![], params: vec![] };
    let x = plan.params_for(&info).unwrap();
    assert_eq!((x.q_map.box_dims, x.o_map.box_dims), ([64, 42, 3, 1], [64, 42, 3, 1]));
    assert_eq!(x.q_map.dims, [128, 84, 6, 3]);
    assert_eq!((x.k_map.box_dims, x.v_map.box_dims), ([64, 128, 1, 1], [64, 128, 1, 1]));
    let mut short = info.clone();
    short.smem[0].bytes = 64 * 256;
    let text = plan.params_for(&short).unwrap_err().to_string();
    assert!(text.contains("64 rows, planned for 3 heads of 42"), "{text}");
}

/// Batches beyond the 65535 of a grid's y and z, and a score matrix of more than 2^31 elements: only x is used, and no
/// product of lengths is formed.
#[test]
fn large_grids_use_one_dimension() {
    let grid = |batch, sq, sk| {
        let p = AttnProblem { batch, seqlen_q: sq, seqlen_k: sk, ..problem() };
        let x = plan(&p, &tensors(&p), 8.0).unwrap().unwrap();
        (x.grid, x.params.groups_per_section)
    };
    // One row of three heads: two CTAs a batch entry. K and V of 6144 heads have 48 MiB.
    assert_eq!(grid(70_000, 1, 16), ([140_000, 1, 1], 6144));
    // 46341² > 2^31; 182 row blocks of six heads. K and V of a head are 24 MB: two heads, of three query heads each.
    assert_eq!(grid(1, 46_341, 46_341), ([1092, 1, 1], 12 / 2));
    // Three heads of 42 rows: two CTAs for each K/V head.
    assert_eq!(grid(1, 128, 1 << 22).0, [4, 1, 1]);
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
    assert_eq!(of(false, Some(127), Some(498)), (127, 498));
    assert_eq!(of(false, Some(128), Some(499)), (-1, -1));
    assert_eq!(of(false, None, None), (-1, -1));
    assert_eq!(of(false, None, Some(0)), (-1, 0));
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

/// The stride of a dimension of one entry leads nowhere.
#[test]
fn strides_of_single_entries_do_not_matter() {
    let p = AttnProblem { batch: 1, ..problem() };
    let mut t = tensors(&p);
    t.q.layout.stride_batch = 7;
    t.o.layout.stride_batch = 0;
    let x = plan(&p, &t, 8.0).unwrap().unwrap().params;
    assert_eq!((x.q_map.strides_bytes[2], x.o_map.strides_bytes[2]), (256, 256));
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
    assert!(no(|t| t.k.layout.stride_seq = -512i64 as u64).contains("k: stride_seq is -512 elements"));
    let text = no(|t| t.o.layout.stride_head = 0);
    assert!(text.contains("o: stride_head is 0 elements for 6 entries; it must be at least 128."), "{text}");
    assert!(no(|t| t.o.layout.stride_seq = 64).contains("o: stride_seq is 64 elements for 500 entries"));
    let text = no(|t| t.lse.as_mut().unwrap().stride_head = -500i64 as u64);
    assert!(text.contains("lse: strides (batch, row, head) is [3000, 1, -500] elements"), "{text}");
    assert!(no(|t| t.lse.as_mut().unwrap().stride_row = 0).contains("lse: stride_row is 0 elements"));
    let text = no(|t| t.o.layout.stride_batch = 1 << 39);
    assert!(text.contains("o: stride_batch") && text.contains("below"), "{text}");
    assert!(no(|t| t.k.layout.stride_head = u64::MAX).contains("k: stride_head"));
    assert!(no(|t| t.lse.as_mut().unwrap().address += 2).contains("lse: address"));
    let many = AttnProblem { batch: 1 << 28, ..p.clone() };
    let text = plan(&many, &tensors(&p), 8.0).unwrap_err().to_string();
    assert!(
        text.contains("num_heads_q · batch) is 3221225472; fwd_sm100 takes at most 2147483647"),
        "{text}"
    );
    let text = plan(&p, &tensors(&p), f32::NAN).unwrap_err().to_string();
    assert!(text.contains("rescale_threshold is NaN"), "{text}");
    let half = AttnProblem { q_dtype: DType::F16, kv_dtype: DType::F16, ..p.clone() };
    let text = plan(&half, &tensors(&p), 16.0).unwrap_err().to_string();
    assert!(text.contains("rescale_threshold is 16; fwd_sm100 takes 0 to 15 in fp16"), "{text}");
}

/// Factors that f32 would make infinite or flush to 0 are refused, not run as another problem.
#[test]
fn factors_are_f32s() {
    let no = |scale, softcap| {
        let p = AttnProblem { scale, softcap, ..problem() };
        plan(&p, &tensors(&p), 8.0).unwrap_err().to_string()
    };
    assert!(no(Some(1e300), 0.0).contains("scale is 1e300; fwd_sm100 takes factors that f32 holds"));
    assert!(no(Some(1e-60), 0.0).contains("pass None for 1/√head_dim"));
    assert!(no(None, 1e30).contains("softcap is 1e30; fwd_sm100 takes 0 (none) to 1024"));
    assert!(no(Some(1e30), 1e-30).contains("0 is no cap"));
    assert!(no(Some(f64::NAN), 0.0).contains("scale = NaN: must be finite and > 0"));
}

#[test]
fn outputs_are_every_row_and_nothing_else() {
    let p = problem();
    let mut t = tensors(&p);
    // Dense: one range each.
    let o_bytes = 3 * 500 * 6 * 256;
    assert_eq!(output_ranges(&p, &t), [(0x4000_0000, o_bytes), (0x5000_0000, 3 * 6 * 500 * 4)]);
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
