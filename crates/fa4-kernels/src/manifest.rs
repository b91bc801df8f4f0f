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

impl Row {
    /// Whether CTAs of any number deal the tiles out among themselves, so that one for each SM is enough. Else the grid
    /// has one for each tile.
    pub fn persistent(&self) -> bool {
        self.kernel == "fwd_sm90"
    }
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
    /// Query rows per CTA: the grid has `⌈seqlen_q / rows_per_cta⌉ · num_heads_q · batch` CTAs, unless heads are packed.
    pub rows_per_cta: u32,
    /// Rows of a tile that query heads of one K/V head may share; `None`: a tile belongs to one head.
    pub packs_rows: Option<u32>,
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    Fp16,
}

/// Masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mask {
    /// Every query sees every key.
    Full,
    /// Query `i` sees the keys `0 ..= i + seqlen_k − seqlen_q` (aligned bottom-right).
    Causal,
    /// A sliding window with any bounds, a softcap and sinks, each where the parameters ask for it.
    General,
}

impl Row {
    /// `kernel/variant`, as tables and filters spell it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.kernel, self.variant)
    }
}

/// One entry of `fwd_sm100.cu`. The rows of a head dim and dtype have the same macros and come out of one compilation.
macro_rules! fwd_sm100 {
    ($head_dim:literal, $dtype_name:literal, $dtype:ident, $mask_name:literal, $mask:ident) => {
        Row {
            kernel: "fwd_sm100",
            variant: concat!("hd", $head_dim, "_", $dtype_name, "_", $mask_name),
            entry: concat!("fwd_sm100_hd", $head_dim, "_", $dtype_name, "_", $mask_name),
            source: "kernels/fwd_sm100.cu",
            archs: &[Arch::Sm100a, Arch::Sm103a],
            defines: &[("FWD_HEAD_DIM", stringify!($head_dim)), ("FWD_DTYPE", $dtype_name)],
            problem: Problem {
                dtype: Dtype::$dtype,
                head_dim_qk: $head_dim,
                head_dim_v: $head_dim,
                mask: Mask::$mask,
                rows_per_cta: 256,
                packs_rows: Some(128),
            },
        }
    };
}

/// One entry of `fwd_sm90.cu`, which is compiled once per row; the tile of a CTA is 64 rows a warpgroup.
macro_rules! fwd_sm90 {
    ($head_dim:literal, $rows_per_cta:literal, $dtype_name:literal, $dtype:ident, $mask_name:literal, $mask:ident) => {
        Row {
            kernel: "fwd_sm90",
            variant: concat!("hd", $head_dim, "_", $dtype_name, "_", $mask_name),
            entry: concat!("fwd_sm90_hd", $head_dim, "_", $dtype_name, "_", $mask_name),
            source: "kernels/fwd_sm90.cu",
            archs: &[Arch::Sm90a],
            defines: &[
                ("FWD_HEAD_DIM", stringify!($head_dim)),
                ("FWD_DTYPE", $dtype_name),
                ("FWD_MASK", $mask_name),
            ],
            problem: Problem {
                dtype: Dtype::$dtype,
                head_dim_qk: $head_dim,
                head_dim_v: $head_dim,
                mask: Mask::$mask,
                rows_per_cta: $rows_per_cta,
                packs_rows: None,
            },
        }
    };
}

/// Every variant of every kernel. The router takes the first that serves a problem: special masks before the general one.
pub const ROWS: &[Row] = &[
    fwd_sm100!(128, "bf16", Bf16, "full", Full),
    fwd_sm100!(128, "bf16", Bf16, "causal", Causal),
    fwd_sm100!(128, "bf16", Bf16, "general", General),
    fwd_sm100!(128, "fp16", Fp16, "full", Full),
    fwd_sm100!(128, "fp16", Fp16, "causal", Causal),
    fwd_sm100!(128, "fp16", Fp16, "general", General),
    fwd_sm100!(96, "bf16", Bf16, "full", Full),
    fwd_sm100!(96, "bf16", Bf16, "causal", Causal),
    fwd_sm100!(96, "bf16", Bf16, "general", General),
    fwd_sm100!(96, "fp16", Fp16, "full", Full),
    fwd_sm100!(96, "fp16", Fp16, "causal", Causal),
    fwd_sm100!(96, "fp16", Fp16, "general", General),
    fwd_sm100!(64, "bf16", Bf16, "full", Full),
    fwd_sm100!(64, "bf16", Bf16, "causal", Causal),
    fwd_sm100!(64, "bf16", Bf16, "general", General),
    fwd_sm100!(64, "fp16", Fp16, "full", Full),
    fwd_sm100!(64, "fp16", Fp16, "causal", Causal),
    fwd_sm100!(64, "fp16", Fp16, "general", General),
    fwd_sm90!(128, 128, "bf16", Bf16, "full", Full),
    fwd_sm90!(128, 128, "bf16", Bf16, "causal", Causal),
    fwd_sm90!(128, 128, "bf16", Bf16, "general", General),
    fwd_sm90!(128, 128, "fp16", Fp16, "full", Full),
    fwd_sm90!(128, 128, "fp16", Fp16, "causal", Causal),
    fwd_sm90!(128, 128, "fp16", Fp16, "general", General),
    fwd_sm90!(96, 128, "bf16", Bf16, "full", Full),
    fwd_sm90!(96, 128, "bf16", Bf16, "causal", Causal),
    fwd_sm90!(96, 128, "bf16", Bf16, "general", General),
    fwd_sm90!(96, 128, "fp16", Fp16, "full", Full),
    fwd_sm90!(96, 128, "fp16", Fp16, "causal", Causal),
    fwd_sm90!(96, 128, "fp16", Fp16, "general", General),
    fwd_sm90!(64, 192, "bf16", Bf16, "full", Full),
    fwd_sm90!(64, 192, "bf16", Bf16, "causal", Causal),
    fwd_sm90!(64, 192, "bf16", Bf16, "general", General),
    fwd_sm90!(64, 192, "fp16", Fp16, "full", Full),
    fwd_sm90!(64, 192, "fp16", Fp16, "causal", Causal),
    fwd_sm90!(64, 192, "fp16", Fp16, "general", General),
    fwd_sm90!(256, 128, "bf16", Bf16, "full", Full),
    fwd_sm90!(256, 128, "bf16", Bf16, "causal", Causal),
    fwd_sm90!(256, 128, "bf16", Bf16, "general", General),
    fwd_sm90!(256, 128, "fp16", Fp16, "full", Full),
    fwd_sm90!(256, 128, "fp16", Fp16, "causal", Causal),
    fwd_sm90!(256, 128, "fp16", Fp16, "general", General),
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
            // Spelled out, or put together by a macro from the variant's last word.
            let (spelled, word) = (format!(" {}(", row.entry), row.variant.rsplit('_').next().unwrap());
            let by_macro = format!("_ENTRY({word},");
            let by_define = "(FWD_HEAD_DIM, FWD_DTYPE, FWD_MASK)(";
            let found =
                [spelled.as_str(), by_macro.as_str(), by_define].iter().any(|name| text.contains(name));
            assert!(found, "{} lacks {}", row.source, row.entry);
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
