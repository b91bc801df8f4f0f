//! From a problem and its tensors to a launch. Pure: the same arguments give the same plan on every machine.

use fa4_kernels::kernel_info::KernelInfo;
use fa4_kernels::manifest::Row;
use fa4_spec::problem::{AttnProblem, DType};
use fa4_spec::tensor::{Layout, rows};

use crate::error::HostError;
use crate::packing::Packing;
use crate::params::AttnParams;
use crate::routes::{dtype_of, route};
use crate::tensor_map::{Fill, Swizzle, TensorMapArgs};

/// A tensor in device memory: address of its buffer, and where rows lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorRef {
    /// Device address of the buffer; the layout's offset is added.
    pub buffer: u64,
    /// Offset and strides, the caller's own.
    pub layout: Layout,
}

impl TensorRef {
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.buffer.saturating_add(self.layout.offset_bytes)
    }
}

/// Where the LSE goes: f32, strides in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LseRef {
    /// Device address; 4-byte aligned.
    pub address: u64,
    /// Elements between batch entries.
    pub stride_batch: u64,
    /// Elements between heads.
    pub stride_head: u64,
    /// Elements between query rows.
    pub stride_row: u64,
}

impl LseRef {
    /// Dense (batch, head, seqlen_q).
    pub fn dense(address: u64, p: &AttnProblem) -> Self {
        let stride_head = p.seqlen_q;
        LseRef { address, stride_batch: p.num_heads_q * stride_head, stride_head, stride_row: 1 }
    }
}

/// The tensors of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensors {
    /// Queries.
    pub q: TensorRef,
    /// Keys.
    pub k: TensorRef,
    /// Values.
    pub v: TensorRef,
    /// Output.
    pub o: TensorRef,
    /// Log-sum-exp; `None`: not wanted.
    pub lse: Option<LseRef>,
    /// Device address of one natural logit per query head (f32), where the problem has sinks.
    pub sinks: Option<u64>,
}

/// Everything about a launch but what the compiled kernel says itself (threads, shared memory, parameter offsets, rows of
/// a box: [`LaunchPlan::params_for`]) and the opaque form of its tensor maps.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchPlan {
    /// The compiled variant.
    pub row: &'static Row,
    /// CTAs, one for each tile; [`LaunchPlan::grid_on`] says how many a device gets.
    pub grid: [u32; 3],
    /// CTAs of a cluster.
    pub cluster: [u32; 3],
    /// Query heads that share a tile.
    pub packing: Packing,
    /// Parameters.
    pub params: AttnParams,
}

/// Default rescale threshold τ: O is rescaled when a row maximum grew by more than 2^8. P ≤ 2^8 then, far from
/// overflow in f32, and typical data rescales almost never after the first block.
pub const DEFAULT_TAU: f32 = 8.0;

/// Largest τ: P ≤ 2^τ must stay finite in its storage format, and O = Σ P·V in f32.
const MAX_TAU_FP16: f32 = 15.0;
/// The same for bf16, whose range is that of f32.
const MAX_TAU_BF16: f32 = 64.0;

/// Columns of a tensor-map box: 128 bytes of a 16-bit type, one swizzle span.
const BOX_COLS: u32 = 64;
/// Bytes of a box's row.
const BOX_ROW_BYTES: u32 = 128;
/// Rows of a tensor-map box before the kernel's tables are known.
const BOX_ROWS: u32 = 128;
/// Largest softcap: tanh is computed to 2^-21, a score to 2^-11 then, as fine as 16-bit inputs are.
const MAX_SOFTCAP: f64 = 1024.0;
/// Most elements from the first of the LSE to its last.
const MAX_LSE_ELEMS: u128 = 1 << 46;
/// Most CTAs of a grid dimension x.
const MAX_CTAS: u64 = i32::MAX as u64;
/// K and V of the heads that are worked on together should lie in L2: this much of its 126 MB, which Q, O and the heads
/// on either side share.
const L2_SHARE_BYTES: u64 = 48 << 20;

impl LaunchPlan {
    /// CTAs on a device of so many SMs: a persistent kernel gets at most one CTA for each, since each uses a whole SM.
    pub fn grid_on(&self, sms: Option<u32>) -> [u32; 3] {
        let [x, y, z] = self.grid;
        match sms {
            Some(sms) if self.row.persistent() => [x.min(sms.max(1)), y, z],
            _ => [x, y, z],
        }
    }

    /// The parameters with boxes as tall as one stage of the kernel's own shared memory: its region `Q` for q and O, `KV`
    /// for k and v. A stage holds whole panels of 64 columns. Where heads are packed, the boxes of q and O hold as many
    /// rows of each as the plan says.
    ///
    /// # Errors
    /// [`HostError::Abi`] where the kernel has no such region, one that no box fills, or one that the packed heads do not
    /// fit.
    pub fn params_for(&self, info: &KernelInfo) -> Result<AttnParams, HostError> {
        let mut params = self.params.clone();
        let rows = |region: &str, head_dim: u32| {
            let abi = |what: String| HostError::Abi { kernel: self.row.entry.to_string(), what };
            let stage = info.smem.iter().find(|r| r.name == region).map(|r| r.bytes);
            let stage = stage.ok_or_else(|| abi(format!("its shared memory has no region `{region}`")))?;
            let row_bytes = head_dim.div_ceil(BOX_COLS) * BOX_ROW_BYTES;
            let (rows, rest) = (stage / row_bytes, stage % row_bytes);
            match (1..=256).contains(&rows) && rest == 0 {
                true => Ok(rows),
                false => Err(abi(format!(
                    "a stage of `{region}` has {stage} bytes, no 1 to 256 rows of {row_bytes}"
                ))),
            }
        };
        let problem = &self.row.problem;
        params.k_map.box_dims[1] = rows("KV", problem.head_dim_qk)?;
        params.v_map.box_dims[1] = rows("KV", problem.head_dim_v)?;
        let Packing { heads_per_tile, rows_per_head, .. } = self.packing;
        for (map, head_dim) in
            [(&mut params.q_map, problem.head_dim_qk), (&mut params.o_map, problem.head_dim_v)]
        {
            let tile_rows = rows("Q", head_dim)?;
            map.box_dims[1] = if heads_per_tile == 1 { tile_rows } else { rows_per_head };
            map.box_dims[2] = heads_per_tile;
            if heads_per_tile > 1 && tile_rows / heads_per_tile != rows_per_head {
                let kernel = self.row.entry.to_string();
                let what = format!(
                    "a stage of `Q` has {tile_rows} rows, planned for {heads_per_tile} heads of {rows_per_head}"
                );
                return Err(HostError::Abi { kernel, what });
            }
        }
        Ok(params)
    }
}
/// Size of one LSE.
pub const LSE_BYTES: u64 = 4;

/// Plans the forward pass. `None`: O and LSE have no elements, there is nothing to launch. A problem without keys is
/// launched: the kernel itself writes O = 0 and LSE = −∞.
pub fn plan(p: &AttnProblem, tensors: &Tensors, tau: f32) -> Result<Option<LaunchPlan>, HostError> {
    plan_row(route(p)?, p, tensors, tau)
}

/// The same with a given variant, which must serve the problem ([`crate::routes::route_among`]).
pub fn plan_row(
    row: &'static Row,
    p: &AttnProblem,
    tensors: &Tensors,
    tau: f32,
) -> Result<Option<LaunchPlan>, HostError> {
    let max_tau = if dtype_of(row) == DType::F16 { MAX_TAU_FP16 } else { MAX_TAU_BF16 };
    if !(0.0..=max_tau).contains(&tau) {
        return Err(HostError::Unsupported {
            what: "rescale_threshold",
            given: tau.to_string(),
            kernel: row.kernel,
            allowed: format!("0 to {max_tau} in {}", dtype_of(row)),
            advice: "8 is the default, 0 rescales at every rise of a row maximum.",
        });
    }
    if p.batch == 0 || p.seqlen_q == 0 {
        return Ok(None);
    }
    let packing = Packing::choose(p, row);
    check_sizes(p, row, &packing)?;
    check_factors(p, row)?;
    let o = &tensors.o.layout;
    check_output("o", [o.stride_batch, o.stride_seq, o.stride_head], p.head_dim_v, p)?;
    let q_sizes = (p.seqlen_q, p.num_heads_q);
    let kv_sizes = (p.seqlen_k, p.num_heads_kv);
    let map = |name, tensor, sizes| tensor_map(name, tensor, sizes, p, row);
    let lse = tensors.lse.map(|lse| check_lse(&lse, p)).transpose()?;
    let lse_stride = |f: fn(LseRef) -> u64| lse.map_or(0, f) as i64;
    let (window_left, window_right) = window(p);
    let (scale_log2, softcap_rate) = factors(p);
    Ok(Some(LaunchPlan {
        row,
        grid: [packing.ctas(p) as u32, 1, 1],
        cluster: [1, 1, 1],
        packing,
        params: AttnParams {
            q_map: map("q", &tensors.q, q_sizes)?,
            k_map: map("k", &tensors.k, kv_sizes)?,
            v_map: map("v", &tensors.v, kv_sizes)?,
            o_map: map("o", &tensors.o, q_sizes)?,
            lse: lse.map_or(0, |lse| lse.address),
            sinks: check_sinks(p, tensors.sinks)?,
            lse_batch_stride: lse_stride(|lse| lse.stride_batch),
            lse_head_stride: lse_stride(|lse| lse.stride_head),
            lse_row_stride: lse_stride(|lse| lse.stride_row),
            seqlen_q: p.seqlen_q as u32,
            seqlen_k: p.seqlen_k as u32,
            num_heads_q: p.num_heads_q as u32,
            qhead_per_kvhead: p.qhead_per_kvhead() as u32,
            batch: p.batch as u32,
            window_left,
            window_right,
            groups_per_section: groups_per_section(p, &packing),
            softcap_rate,
            scale_log2,
            rescale_threshold: tau,
            heads_per_tile: packing.heads_per_tile,
            rows_per_head: packing.rows_per_head,
            head_groups: packing.head_groups(p) as u32,
            m_blocks: packing.m_blocks(p) as u32,
        },
    }))
}

/// The window as the kernel takes it: −1 on a side that hides nothing, so that sums of row numbers, lengths and bounds
/// stay within 32 bits.
fn window(p: &AttnProblem) -> (i32, i32) {
    let right = if p.mask.causal { Some(0) } else { p.mask.window_right };
    let bound =
        |keys: Option<u64>, len: u64| keys.filter(|k| k.saturating_add(1) < len).map_or(-1, |k| k as i32);
    (bound(p.mask.window_left, p.seqlen_k), bound(right, p.seqlen_q))
}

/// scale_log2 and softcap_rate, in log2 units: scale·s·log2 e, or
/// softcap·log2 e · tanh(scale·s / softcap) = softcap·log2 e · (1 − 2 / (1 + 2^(rate·s))).
fn factors(p: &AttnProblem) -> (f32, f32) {
    let log2_e = std::f64::consts::LOG2_E;
    let (scale, rate) = match p.softcap {
        0.0 => (p.softmax_scale(), 0.0),
        cap => (cap, 2.0 * log2_e * p.softmax_scale() / cap),
    };
    ((scale * log2_e) as f32, rate as f32)
}

/// The kernel's factors are f32, and a subnormal one counts as 0 there.
fn check_factors(p: &AttnProblem, row: &Row) -> Result<(), HostError> {
    let (scale_log2, rate) = factors(p);
    let error = |what, given: f64, advice| {
        let allowed = "factors that f32 holds as normal numbers".into();
        Err(HostError::Unsupported { what, given: format!("{given:e}"), kernel: row.kernel, allowed, advice })
    };
    match p.softcap {
        0.0 if !scale_log2.is_normal() => {
            error("scale", p.softmax_scale(), "Scale q or k instead, or pass None for 1/√head_dim.")
        }
        0.0 => Ok(()),
        cap if cap > MAX_SOFTCAP => Err(HostError::Unsupported {
            what: "softcap",
            given: format!("{cap:e}"),
            kernel: row.kernel,
            allowed: format!("0 (none) to {MAX_SOFTCAP}"),
            advice: "A score is right to softcap · 2^-21; pass 0 where no score comes near so large a cap.",
        }),
        cap if !(scale_log2.is_normal() && rate.is_normal()) => error(
            "softcap",
            cap,
            "The cap and scale / cap must both lie between 1e-37 and 1e37; 0 is no cap.",
        ),
        _ => Ok(()),
    }
}

/// As many whole groups of query heads as have their K and V in L2 together; those of one K/V head at least.
fn groups_per_section(p: &AttnProblem, packing: &Packing) -> u32 {
    let kv_head_bytes = p.seqlen_k * (p.head_dim_qk + p.head_dim_v) * p.kv_dtype.bytes();
    let kv_heads = (L2_SHARE_BYTES / kv_head_bytes.max(1)).max(1);
    let groups_per_kvhead = p.qhead_per_kvhead() / u64::from(packing.heads_per_tile);
    (kv_heads.saturating_mul(groups_per_kvhead)).min(packing.head_groups(p) * p.batch) as u32
}

fn check_sinks(p: &AttnProblem, sinks: Option<u64>) -> Result<u64, HostError> {
    let error = |given: String, allowed: &str, advice| HostError::Tensor {
        tensor: "sinks",
        what: "address",
        given,
        allowed: allowed.into(),
        advice,
    };
    match (p.sink, sinks) {
        (false, None) => Ok(0),
        (true, Some(at)) if at != 0 && at.is_multiple_of(4) => Ok(at),
        (true, Some(at)) => {
            let advice = "Pass an f32 array with one logit per query head.";
            Err(error(format!("{at:#x}"), "a multiple of 4 bytes and not 0", advice))
        }
        (true, None) => {
            let advice =
                "Pass an f32 array with one logit per query head, or set the problem's sink to false.";
            Err(error("absent".into(), "given where the problem has sinks", advice))
        }
        (false, Some(at)) => {
            let advice = "Set the problem's sink to true, or pass None.";
            Err(error(format!("{at:#x}"), "absent where the problem has no sinks", advice))
        }
    }
}

/// The ranges (address, bytes) that a forward pass writes: O and LSE, neighbouring rows joined.
pub fn output_ranges(p: &AttnProblem, tensors: &Tensors) -> Vec<(u64, u64)> {
    let [batch, seqlen, heads] = [p.batch, p.seqlen_q, p.num_heads_q].map(|n| n as usize);
    let elem_bytes = p.q_dtype.bytes();
    let mut ranges = Vec::new();
    for (b, s, h) in rows(batch, seqlen, heads) {
        let start = tensors.o.buffer + tensors.o.layout.row_offset(elem_bytes, b, s, h);
        ranges.push((start, p.head_dim_v * elem_bytes));
        if let Some(lse) = &tensors.lse {
            let [b, s, h] = [b, s, h].map(|n| n as u64);
            let at = b * lse.stride_batch + h * lse.stride_head + s * lse.stride_row;
            ranges.push((lse.address + at * LSE_BYTES, LSE_BYTES));
        }
    }
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joined = last.0 + last.1 == next.0;
        last.1 += if joined { next.1 } else { 0 };
        joined
    });
    ranges
}

/// Row numbers are 32-bit in the kernel, and so is the number of a CTA.
fn check_sizes(p: &AttnProblem, row: &Row, packing: &Packing) -> Result<(), HostError> {
    let max_seqlen = i32::MAX as u64 - u64::from(row.problem.rows_per_cta);
    for (what, given, max) in [
        ("seqlen_q", p.seqlen_q, max_seqlen),
        ("seqlen_k", p.seqlen_k, max_seqlen),
        ("num_heads_q", p.num_heads_q, u64::from(u32::MAX)),
        ("number of CTAs (seqlen_q / query rows of a CTA · num_heads_q · batch)", packing.ctas(p), MAX_CTAS),
    ] {
        if given > max {
            return Err(HostError::Unsupported {
                what,
                given: given.to_string(),
                kernel: row.kernel,
                allowed: format!("at most {max}"),
                advice: "Split the problem into several launches.",
            });
        }
    }
    Ok(())
}

/// An output's rows must not lie on each other: strides (name, elements) of 0 are for dimensions of one entry. Batch, row
/// and head in this order.
fn check_output(
    tensor: &'static str,
    strides: [u64; 3],
    least: u64,
    p: &AttnProblem,
) -> Result<(), HostError> {
    let names = ["stride_batch", if tensor == "lse" { "stride_row" } else { "stride_seq" }, "stride_head"];
    let sizes = [p.batch, p.seqlen_q, p.num_heads_q];
    for ((what, stride), size) in names.into_iter().zip(strides).zip(sizes) {
        if stride < least && size > 1 {
            return Err(HostError::Tensor {
                tensor,
                what,
                given: format!("{stride} elements for {size} entries"),
                allowed: format!("at least {least}"),
                advice: "Only inputs may lie on each other: give every output row a place of its own.",
            });
        }
    }
    Ok(())
}

fn check_lse(lse: &LseRef, p: &AttnProblem) -> Result<LseRef, HostError> {
    let strides = [lse.stride_batch, lse.stride_row, lse.stride_head];
    check_output("lse", strides, 1, p)?;
    let reach = |(stride, size): (u64, u64)| u128::from(stride) * u128::from(size.saturating_sub(1));
    let last: u128 = strides.into_iter().zip([p.batch, p.seqlen_q, p.num_heads_q]).map(reach).sum();
    if last >= MAX_LSE_ELEMS {
        return Err(HostError::Tensor {
            tensor: "lse",
            what: "strides (batch, row, head)",
            given: format!("{:?} elements", strides.map(|stride| stride as i64)),
            allowed: format!("at least 0 and such that the last element is one of the first {MAX_LSE_ELEMS}"),
            advice: "Store the rows in rising order, in a tensor of their own.",
        });
    }
    if lse.address == 0 || !lse.address.is_multiple_of(4) {
        return Err(HostError::Tensor {
            tensor: "lse",
            what: "address",
            given: format!("{:#x}", lse.address),
            allowed: "a multiple of 4 bytes and not 0".into(),
            advice: "Pass None where no LSE is wanted.",
        });
    }
    Ok(*lse)
}

/// (head_dim, seqlen, head, batch) with box (64, 128, 1, 1): the sequence is a dimension of its own, so that a tile past
/// its end reads zeros and writes nothing and never meets the neighbouring head or batch entry.
fn tensor_map(
    tensor: &'static str,
    at: &TensorRef,
    (seqlen, heads): (u64, u64),
    p: &AttnProblem,
    row: &Row,
) -> Result<TensorMapArgs, HostError> {
    let address = at.address();
    if !address.is_multiple_of(16) || address == 0 {
        return Err(HostError::Tensor {
            tensor,
            what: "address",
            given: format!("{address:#x}"),
            allowed: "a multiple of 16 bytes and not 0".into(),
            advice: "Tensor copies need it: allocate with an aligned allocator or slice at multiples of 8 elements.",
        });
    }
    let elem_bytes = dtype_of(row).bytes();
    let l = &at.layout;
    let mut strides_bytes = [0; 3];
    let strides = [
        ("stride_seq", l.stride_seq, seqlen),
        ("stride_head", l.stride_head, heads),
        ("stride_batch", l.stride_batch, p.batch),
    ];
    for (slot, (what, elems, size)) in strides_bytes.iter_mut().zip(strides) {
        // From one entry to no other, any number will do: frameworks leave odd ones there.
        let elems = if size <= 1 { u64::from(row.problem.head_dim_qk) } else { elems };
        let bytes = elems.checked_mul(elem_bytes).filter(|b| b.is_multiple_of(16) && *b < 1 << 40);
        *slot = bytes.ok_or_else(|| HostError::Tensor {
            tensor,
            what,
            // What does not fit into i64 was negative before somebody made it unsigned.
            given: format!("{} elements", elems as i64),
            allowed: format!(
                "a multiple of {} elements, from 0 to below {}",
                16 / elem_bytes,
                (1u64 << 40) / elem_bytes
            ),
            advice: "Tensor copies need strides of whole 16 bytes: pad the rows; negative strides need a copy.",
        })?;
    }
    Ok(TensorMapArgs {
        dtype: dtype_of(row),
        address,
        // A map cannot have an empty dimension. Without keys the kernel loads no K or V, so that the row is never read.
        dims: [u64::from(row.problem.head_dim_qk), seqlen.max(1), heads, p.batch],
        strides_bytes,
        box_dims: [BOX_COLS, BOX_ROWS, 1, 1],
        swizzle: Swizzle::B128,
        fill: Fill::Zero,
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
