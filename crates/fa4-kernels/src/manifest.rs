//! What the CUDA sources compile to: one row per entry function.

use crate::arch::Arch;

/// One compiled variant of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kernel: its file name without extension.
    pub kernel: &'static str,
    /// What distinguishes this variant from the kernel's others.
    pub variant: &'static str,
    /// Name of the entry function.
    pub entry: &'static str,
    /// Source file, relative to the `cuda/` folder.
    pub source: &'static str,
    /// Architectures to compile for.
    pub archs: &'static [Arch],
    /// Macros: name and value.
    pub defines: &'static [(&'static str, &'static str)],
    /// What the variant computes.
    pub problem: Problem,
}

/// The part of an attention problem that is fixed when a variant is compiled; everything else is a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Element type of Q, K, V and O.
    pub dtype: Dtype,
    /// Elements in a row of Q and K.
    pub head_dim_qk: u32,
    /// Elements in a row of V and O.
    pub head_dim_v: u32,
    /// Which keys a query sees.
    pub mask: Mask,
    /// Query rows per CTA: the grid is `⌈seqlen_q / rows_per_cta⌉ × num_heads_q × batch`.
    pub rows_per_cta: u32,
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
}

/// Masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mask {
    /// Every query sees every key.
    Full,
    /// Query `i` sees the keys `0 ..= i + seqlen_k − seqlen_q` (aligned bottom-right).
    Causal,
}

impl Row {
    /// `kernel/variant`, as tables and filters spell it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.kernel, self.variant)
    }
}

const fn fwd_sm100(variant: &'static str, entry: &'static str, mask: Mask) -> Row {
    Row {
        kernel: "fwd_sm100",
        variant,
        entry,
        source: "kernels/fwd_sm100.cu",
        archs: &[Arch::Sm100a, Arch::Sm103a],
        defines: &[],
        problem: Problem { dtype: Dtype::Bf16, head_dim_qk: 128, head_dim_v: 128, mask, rows_per_cta: 256 },
    }
}

/// Every variant of every kernel.
pub const ROWS: &[Row] = &[
    fwd_sm100("hd128_bf16_full", "fwd_sm100_hd128_bf16_full", Mask::Full),
    fwd_sm100("hd128_bf16_causal", "fwd_sm100_hd128_bf16_causal", Mask::Causal),
];

/// The row whose entry function is `entry`.
pub fn by_entry(entry: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.entry == entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn sources_exist_and_define_their_entries() {
        let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
        for row in ROWS {
            let text = std::fs::read_to_string(cuda.join(row.source)).expect(row.source);
            assert!(text.contains(&format!(" {}(", row.entry)), "{} lacks {}", row.source, row.entry);
        }
    }

    #[test]
    fn entries_and_names_are_unique() {
        for (i, row) in ROWS.iter().enumerate() {
            assert_eq!(by_entry(row.entry), Some(row));
            assert!(ROWS[..i].iter().all(|other| other.name() != row.name()), "{}", row.name());
        }
    }
}
