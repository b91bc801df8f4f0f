//! The committed Triton kernels and the cases that they are judged on.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::Error;
use super::format::Format;

/// Names and embeds the committed kernels, so that the gate runs from any directory.
macro_rules! committed {
    ($($target:literal: $($name:literal),* ;)*) => {
        &[$($((
            $name,
            include_str!(concat!("../../../../foreign/triton/", $target, "/", $name, ".ptx")),
            include_str!(concat!("../../../../foreign/triton/", $target, "/", $name, ".json")),
        )),*),*]
    };
}

/// (name, PTX, metadata), by target, simplest first. Triton specialises warps on Blackwell only.
const COMMITTED: &[(&str, &str, &str)] = committed![
    "sm_100a":
    "softmax_rows",
    "matmul_tma",
    "matmul_tma_ws",
    "matmul_device_maps",
    "matmul_device_maps_ws",
    "matmul_pointers",
    "matmul_persistent",
    "matmul_persistent_ws",
    "matmul_fp8",
    "matmul_tf32",
    "matmul_two_ctas",
    "matmul_pair",
    "matmul_pair_m128",
    "matmul_clc",
    "matmul_mxfp8",
    "gather_add",
    "attn_fwd_d64",
    "attn_fwd_d64_causal",
    "attn_fwd_d64_ws",
    "attn_fwd_d64_causal_ws",
    "attn_fwd_d128",
    "attn_fwd_d128_causal",
    "attn_fwd_d128_ws",
    "attn_fwd_d128_causal_ws";
    "sm_90a":
    "softmax_rows",
    "matmul_tma",
    "matmul_device_maps",
    "matmul_pointers",
    "matmul_persistent",
    "matmul_fp8",
    "matmul_tf32",
    "matmul_two_ctas",
    "attn_fwd_d64",
    "attn_fwd_d64_causal",
    "attn_fwd_d128",
    "attn_fwd_d128_causal";
];

/// What `compile.py` records beside the PTX; `foreign/triton/README.md` describes the launch convention.
#[derive(Clone, Debug, Deserialize)]
pub struct Meta {
    /// Name of the `.entry`.
    pub entry: String,
    /// Target architecture, `sm_100a` or `sm_90a`.
    pub target: String,
    /// Warps per CTA, warp specialisation counted in.
    pub num_warps: u32,
    /// CTAs per cluster, along x.
    pub num_ctas: u32,
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// Bytes of global scratch per CTA.
    pub global_scratch_size: u64,
    /// (parameter, Triton type) without constexprs.
    pub signature: Vec<(String, String)>,
    /// Compile-time constants.
    pub constexprs: BTreeMap<String, serde_json::Value>,
    /// One map per `tensordesc` of the signature, in order.
    pub tensor_maps: Vec<MapMeta>,
}

impl Meta {
    /// The integer constexpr `name`.
    pub fn constant(&self, name: &str) -> Option<usize> {
        self.constexprs.get(name)?.as_u64().map(|value| value as usize)
    }
}

/// How the compiler wants a host tensor map encoded.
#[derive(Clone, Debug, Deserialize)]
pub struct MapMeta {
    /// 0 none, 1 32B, 2 64B, 3 128B.
    pub swizzle: u8,
    /// Bytes per element.
    pub elem_size: u32,
    /// Numbered as in `tensormap.replace.elemtype`.
    pub elem_type: u8,
    /// Box, outermost dimension first.
    pub block_size: Vec<u32>,
}

/// A committed kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// File name without extension; the same for each target.
    pub name: &'static str,
    /// PTX text as Triton emitted it.
    pub ptx: &'static str,
    /// Launch metadata.
    pub meta: Meta,
}

impl Kernel {
    /// Target and name, e.g. `sm_90a/matmul_tma`: unique among the committed kernels.
    pub fn id(&self) -> String {
        format!("{}/{}", self.meta.target, self.name)
    }
}

/// All committed kernels, by target, simplest first.
///
/// # Errors
/// [`Error::Metadata`] where a `.json` does not parse.
pub fn kernels() -> Result<Vec<Kernel>, Error> {
    COMMITTED
        .iter()
        .map(|&(name, ptx, json)| {
            let meta = serde_json::from_str(json)
                .map_err(|e| Error::Metadata { kernel: name.into(), reason: e.to_string() })?;
            Ok(Kernel { name, ptx, meta })
        })
        .collect()
}

/// What a case computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// C[m, n] = A[m, k] · B[n, k]ᵀ.
    Matmul {
        /// Rows of A and C.
        m: usize,
        /// Rows of B, columns of C.
        n: usize,
        /// Columns of A and B.
        k: usize,
    },
    /// Softmax of each row's first `n` of `stride` elements.
    Softmax {
        /// Rows.
        rows: usize,
        /// Elements per row that count.
        n: usize,
        /// Elements from one row to the next.
        stride: usize,
    },
    /// Y[r] += X[r] + T[index r], 64 columns.
    GatherAdd {
        /// Rows of X and Y.
        rows: usize,
        /// Rows of T.
        table: usize,
    },
    /// Attention forward, self-attention of square shape.
    Attention {
        /// Batch times heads.
        heads: usize,
        /// Sequence length.
        s: usize,
        /// Head dimension.
        d: usize,
        /// Whether key j is hidden from query i < j.
        causal: bool,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Matmul { m, n, k } => write!(f, "m{m} n{n} k{k}"),
            Self::GatherAdd { rows, table } => write!(f, "{rows} rows of a table of {table}"),
            Self::Softmax { rows, n, stride } => write!(f, "{rows} rows of {n}, stride {stride}"),
            Self::Attention { heads, s, d, causal } => {
                write!(f, "h{heads} s{s} d{d}{}", if causal { " causal" } else { "" })
            }
        }
    }
}

/// How a matmul's programs find their tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileWalk {
    /// Program p owns tile p, rows first.
    Linear,
    /// Program (p, q) owns tile (p, q).
    TwoDimensional,
    /// This many programs share all tiles.
    Persistent(u32),
}

/// One problem for one kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The problem; its text form is the case's id.
    pub problem: Problem,
    /// Storage format of the inputs.
    pub input: Format,
    /// Storage format of the matrix output.
    pub output: Format,
    /// Tile order of matmuls.
    pub walk: TileWalk,
    /// Output tile (rows, columns) of matmuls, (query rows, keys per step) of attention.
    pub tile: (usize, usize),
    /// Seed of the data.
    pub seed: u64,
}

/// The cases of `kernel`: a full-tile one, a ragged one where TMA or masks must clip, and for matmuls a K so long that
/// every ring of shared-memory stages wraps.
pub fn cases(kernel: &Kernel) -> Vec<Case> {
    let name = kernel.name;
    let constant = |n: &str| kernel.meta.constant(n);
    let matmul =
        |sizes: [(usize, usize, usize); 3]| sizes.map(|(m, n, k)| Problem::Matmul { m, n, k }).to_vec();
    let (input, output) = match name {
        "matmul_fp8" => (Format::E4m3, Format::F16),
        "matmul_mxfp8" => (Format::E4m3, Format::F32),
        "matmul_tf32" | "softmax_rows" | "gather_add" => (Format::F32, Format::F32),
        _ => (Format::Bf16, Format::Bf16),
    };
    let walk = match constant("PROGRAMS") {
        Some(programs) => TileWalk::Persistent(programs as u32),
        None if matches!(name, "matmul_tf32" | "matmul_mxfp8") => TileWalk::TwoDimensional,
        None => TileWalk::Linear,
    };
    let problems = match name {
        "softmax_rows" => [(8, 1000, 1000), (3, 1024, 1040), (2, 5, 8)]
            .map(|(rows, n, stride)| Problem::Softmax { rows, n, stride })
            .to_vec(),
        "gather_add" => {
            [(64, 100), (32, 3), (40, 512)].map(|(rows, table)| Problem::GatherAdd { rows, table }).to_vec()
        }
        "matmul_fp8" => matmul([(256, 256, 384), (200, 144, 144), (128, 128, 1024)]),
        // The kernel masks nothing: whole tiles only.
        "matmul_mxfp8" => matmul([(256, 256, 256), (128, 256, 128), (128, 128, 1024)]),
        "matmul_tf32" => matmul([(256, 256, 96), (200, 144, 80), (128, 128, 256)]),
        // Nine tiles for four programs: some get two, one gets three.
        _ if matches!(walk, TileWalk::Persistent(_)) => {
            matmul([(384, 384, 192), (300, 272, 80), (256, 128, 512)])
        }
        _ if name.starts_with("matmul") => matmul([(256, 256, 192), (200, 144, 80), (128, 128, 512)]),
        _ => {
            let d = constant("D").unwrap_or(64);
            let causal = kernel.meta.constexprs.get("CAUSAL").is_some_and(|c| c.as_bool() == Some(true));
            [(1, 128), (2, if d == 64 { 256 } else { 384 }), (1, 512)]
                .map(|(heads, s)| Problem::Attention { heads, s, d, causal })
                .to_vec()
        }
    };
    let tile = (constant("BM").unwrap_or(1), constant("BN").unwrap_or(1));
    problems
        .into_iter()
        .zip(1..)
        .map(|(problem, seed)| Case { kernel: name, problem, input, output, walk, tile, seed })
        .collect()
}
