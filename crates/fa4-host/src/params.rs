//! The kernel's parameter struct as bytes: the twin of `attn/params.cuh`, without a second copy of its layout. Every
//! field goes where the compiled kernel's own table says, and a field too many or too few on either side is an error.

use fa4_kernels::kernel_info::{KernelInfo, Param};

use crate::error::{DeviceError, HostError};
use crate::tensor_map::TensorMapArgs;

/// Bytes of an encoded tensor map.
pub const TENSOR_MAP_BYTES: usize = 128;

/// Parameters of an attention kernel by name.
#[derive(Debug, Clone, PartialEq)]
pub struct AttnParams {
    /// Tensor map of q.
    pub q_map: TensorMapArgs,
    /// Tensor map of k.
    pub k_map: TensorMapArgs,
    /// Tensor map of v.
    pub v_map: TensorMapArgs,
    /// Tensor map of O.
    pub o_map: TensorMapArgs,
    /// Device address of the LSE (natural logarithm, f32); 0: not wanted.
    pub lse: u64,
    /// Device address of one natural logit per query head (f32); 0: none.
    pub sinks: u64,
    /// Elements between batch entries of the LSE.
    pub lse_batch_stride: i64,
    /// Elements between heads of the LSE.
    pub lse_head_stride: i64,
    /// Elements between rows of the LSE.
    pub lse_row_stride: i64,
    /// Query tokens.
    pub seqlen_q: u32,
    /// Key tokens.
    pub seqlen_k: u32,
    /// Query heads.
    pub num_heads_q: u32,
    /// Query heads per key/value head.
    pub qhead_per_kvhead: u32,
    /// Batch entries.
    pub batch: u32,
    /// Keys visible to the left of a query's own; −1: all.
    pub window_left: i32,
    /// Keys visible to the right of a query's own; −1: all.
    pub window_right: i32,
    /// Head groups, over all batch entries, whose CTAs are dealt longest first together.
    pub groups_per_section: u32,
    /// 2 log2 e · scale / softcap; 0: no softcap.
    pub softcap_rate: f32,
    /// Softmax scale × log2 e; with a softcap, softcap × log2 e.
    pub scale_log2: f32,
    /// τ, log2 units.
    pub rescale_threshold: f32,
    /// Query heads of one K/V head in a tile, a head group.
    pub heads_per_tile: u32,
    /// Query rows of each of them in a tile.
    pub rows_per_head: u32,
    /// Head groups of a batch entry.
    pub head_groups: u32,
    /// CTAs of a head group.
    pub m_blocks: u32,
}

impl AttnParams {
    /// The struct's bytes in the layout that `info`, the kernel's own tables, declares. `encode` turns tensor maps into
    /// their opaque form.
    pub fn to_bytes(
        &self,
        entry: &str,
        info: &KernelInfo,
        mut encode: impl FnMut(&TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError>,
    ) -> Result<Vec<u8>, HostError> {
        let fields: [(&str, Vec<u8>); 24] = [
            ("q_map", encode(&self.q_map)?.to_vec()),
            ("k_map", encode(&self.k_map)?.to_vec()),
            ("v_map", encode(&self.v_map)?.to_vec()),
            ("o_map", encode(&self.o_map)?.to_vec()),
            ("lse", self.lse.to_le_bytes().into()),
            ("sinks", self.sinks.to_le_bytes().into()),
            ("lse_batch_stride", self.lse_batch_stride.to_le_bytes().into()),
            ("lse_head_stride", self.lse_head_stride.to_le_bytes().into()),
            ("lse_row_stride", self.lse_row_stride.to_le_bytes().into()),
            ("seqlen_q", self.seqlen_q.to_le_bytes().into()),
            ("seqlen_k", self.seqlen_k.to_le_bytes().into()),
            ("num_heads_q", self.num_heads_q.to_le_bytes().into()),
            ("qhead_per_kvhead", self.qhead_per_kvhead.to_le_bytes().into()),
            ("batch", self.batch.to_le_bytes().into()),
            ("window_left", self.window_left.to_le_bytes().into()),
            ("window_right", self.window_right.to_le_bytes().into()),
            ("groups_per_section", self.groups_per_section.to_le_bytes().into()),
            ("softcap_rate", self.softcap_rate.to_le_bytes().into()),
            ("scale_log2", self.scale_log2.to_le_bytes().into()),
            ("rescale_threshold", self.rescale_threshold.to_le_bytes().into()),
            ("heads_per_tile", self.heads_per_tile.to_le_bytes().into()),
            ("rows_per_head", self.rows_per_head.to_le_bytes().into()),
            ("head_groups", self.head_groups.to_le_bytes().into()),
            ("m_blocks", self.m_blocks.to_le_bytes().into()),
        ];
        pack(entry, &info.params, &fields)
    }
}

/// Alignment of the parameter struct: a tensor map's.
const ALIGN: usize = 128;

/// Places each field where the kernel expects it; the size is rounded up as the compiler does for a struct that holds a
/// tensor map.
///
/// # Errors
/// [`HostError::Abi`]: a field is unknown here or there, or has another size.
pub fn pack(entry: &str, fields: &[Param], values: &[(&str, Vec<u8>)]) -> Result<Vec<u8>, HostError> {
    let abi = |what: String| HostError::Abi { kernel: entry.to_string(), what };
    if let Some(field) = fields.iter().find(|f| values.iter().all(|(name, _)| *name != f.name)) {
        return Err(abi(format!("its parameter `{}` is unknown here", field.name)));
    }
    let end = |f: &Param| f.offset as usize + f.bytes as usize;
    let size = fields.iter().map(end).max().unwrap_or(0).next_multiple_of(ALIGN);
    let mut bytes = vec![0; size];
    for (name, value) in values {
        let field = fields.iter().find(|f| f.name == *name);
        let field = field.ok_or_else(|| abi(format!("it has no parameter `{name}`")))?;
        if field.bytes as usize != value.len() {
            return Err(abi(format!(
                "its parameter `{name}` has {} bytes, here {}",
                field.bytes,
                value.len()
            )));
        }
        bytes[field.offset as usize..end(field)].copy_from_slice(value);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: u32, bytes: u32) -> Param {
        Param { name: name.into(), offset, bytes }
    }

    /// Offsets are the kernel's, whatever the order here; gaps are zero.
    #[test]
    fn fields_go_where_the_kernel_says() {
        let fields = [field("b", 0, 4), field("a", 8, 8)];
        let bytes = pack("k", &fields, &[("a", vec![1; 8]), ("b", vec![2; 4])]).unwrap();
        assert_eq!(bytes.len(), 128);
        assert_eq!(bytes[..16], [2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn disagreement_is_an_error() {
        let text =
            |fields: &[Param], values: &[(&str, Vec<u8>)]| pack("k", fields, values).unwrap_err().to_string();
        assert!(text(&[field("new", 0, 4)], &[]).contains("`new` is unknown here"));
        assert!(text(&[], &[("old", vec![0; 4])]).contains("no parameter `old`"));
        assert!(text(&[field("x", 0, 8)], &[("x", vec![0; 4])]).contains("has 8 bytes, here 4"));
    }
}
