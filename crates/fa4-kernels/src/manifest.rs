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
    /// IEEE half.
    F16,
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

/// A variant of `fwd_sm90`, which is compiled once per variant: head_dim, query rows per CTA, then type and mask in the
/// words of names, of the source and of this module.
macro_rules! fwd_sm90 {
    ($dim:literal, $rows:literal, $dtype:literal $half:literal $Dtype:ident, $mask:literal $Mask:ident) => {
        Row {
            kernel: "fwd_sm90",
            variant: concat!("hd", $dim, "_", $dtype, "_", $mask),
            entry: concat!("fwd_sm90_hd", $dim, "_", $dtype, "_", $mask),
            source: "kernels/fwd_sm90.cu",
            archs: &[Arch::Sm90a],
            defines: &[
                ("FA4_ENTRY", concat!("fwd_sm90_hd", $dim, "_", $dtype, "_", $mask)),
                ("FA4_HEAD_DIM", stringify!($dim)),
                ("FA4_HALF", $half),
                ("FA4_MASK", concat!("k", stringify!($Mask))),
            ],
            problem: Problem {
                dtype: Dtype::$Dtype,
                head_dim_qk: $dim,
                head_dim_v: $dim,
                mask: Mask::$Mask,
                rows_per_cta: $rows,
            },
        }
    };
}

/// Every variant of every kernel.
pub const ROWS: &[Row] = &[
    fwd_sm100("hd128_bf16_full", "fwd_sm100_hd128_bf16_full", Mask::Full),
    fwd_sm100("hd128_bf16_causal", "fwd_sm100_hd128_bf16_causal", Mask::Causal),
    fwd_sm90!(64, 192, "bf16" "kBf16" Bf16, "full" Full),
    fwd_sm90!(64, 192, "bf16" "kBf16" Bf16, "causal" Causal),
    fwd_sm90!(64, 192, "fp16" "kF16" F16, "full" Full),
    fwd_sm90!(64, 192, "fp16" "kF16" F16, "causal" Causal),
    fwd_sm90!(96, 128, "bf16" "kBf16" Bf16, "full" Full),
    fwd_sm90!(96, 128, "bf16" "kBf16" Bf16, "causal" Causal),
    fwd_sm90!(96, 128, "fp16" "kF16" F16, "full" Full),
    fwd_sm90!(96, 128, "fp16" "kF16" F16, "causal" Causal),
    fwd_sm90!(128, 128, "bf16" "kBf16" Bf16, "full" Full),
    fwd_sm90!(128, 128, "bf16" "kBf16" Bf16, "causal" Causal),
    fwd_sm90!(128, 128, "fp16" "kF16" F16, "full" Full),
    fwd_sm90!(128, 128, "fp16" "kF16" F16, "causal" Causal),
    fwd_sm90!(256, 128, "bf16" "kBf16" Bf16, "full" Full),
    fwd_sm90!(256, 128, "bf16" "kBf16" Bf16, "causal" Causal),
    fwd_sm90!(256, 128, "fp16" "kF16" F16, "full" Full),
    fwd_sm90!(256, 128, "fp16" "kF16" F16, "causal" Causal),
];

/// The names of the kernels, in the table's order.
pub fn kernels() -> Vec<&'static str> {
    let mut names: Vec<_> = ROWS.iter().map(|row| row.kernel).collect();
    names.dedup();
    names
}

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
            // The entry's name, or the macro that becomes it.
            let defined = row.defines.iter().find(|(_, value)| *value == row.entry);
            let name = defined.map_or(row.entry, |(name, _)| *name);
            assert!(text.contains(&format!(" {name}(")), "{} lacks {name}", row.source);
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
