//! The fields of a launch file, as serde reads them; unknown fields are errors everywhere.

use super::dtype::DType;
use crate::launch;
use serde::Deserialize;
use toml::Spanned;

/// A field that was taken out of the table before serde reads it; it stands here so that the list of allowed
/// fields in serde's message is complete.
type Apart = Option<serde::de::IgnoredAny>;

/// The top level, without `buffer` and `param`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Top {
    pub ptx: String,
    pub entry: Option<String>,
    pub grid: Spanned<Vec<u32>>,
    pub block: Spanned<Vec<u32>>,
    pub cluster: Option<Spanned<Vec<u32>>>,
    #[serde(default)]
    pub dynamic_smem: u32,
    #[serde(default)]
    pub annotations: Annotations,
    #[serde(rename = "buffer")]
    _buffer: Apart,
    #[serde(rename = "param")]
    _param: Apart,
}

/// What kind of parameter or field.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Scalar,
    Buffer,
    Raw,
    TensorMap,
    Struct,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scalar {
    #[serde(rename = "type")]
    pub ty: DType,
    pub value: Spanned<toml::Value>,
}

/// A buffer with its contents: `[[buffer]]`, or `kind = "buffer"` with a dtype. `init` is read apart.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    pub name: Spanned<String>,
    pub dtype: DType,
    pub shape: Spanned<Vec<u64>>,
    pub output: Option<String>,
    pub align: Option<Spanned<u64>>,
    #[serde(rename = "init")]
    _init: Apart,
    #[serde(rename = "tensor_map")]
    _tensor_map: Apart,
}

/// `[[buffer]]` that holds a tensor map. The map is read apart.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapBuffer {
    pub name: Spanned<String>,
    #[serde(rename = "tensor_map")]
    _tensor_map: Apart,
}

/// `kind = "buffer"` that names a declared buffer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferReference {
    pub name: Spanned<String>,
    #[serde(default)]
    pub addend: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub bytes: Spanned<String>,
    #[serde(default)]
    pub patches: Vec<Spanned<RawPatch>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPatch {
    pub offset: u64,
    pub buffer: Spanned<String>,
    #[serde(default)]
    pub addend: i64,
}

/// Arguments of a tensor map; all lists innermost dimension first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMap {
    pub buffer: Spanned<String>,
    #[serde(default)]
    pub addend: i64,
    pub dtype: MapType,
    pub dims: Vec<u64>,
    /// Bytes, of dimensions 1 and up.
    #[serde(default)]
    pub strides: Vec<u64>,
    #[serde(rename = "box")]
    pub boxes: Vec<u32>,
    pub element_strides: Option<Vec<u32>>,
    #[serde(default)]
    pub swizzle: Swizzle,
    #[serde(default)]
    pub interleave: Interleave,
    #[serde(default)]
    pub fill: Fill,
    #[serde(default)]
    pub l2: L2,
}

/// Element types of tensor maps; fp8 counts as u8.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapType {
    #[serde(alias = "e4m3", alias = "e5m2", alias = "i8")]
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F32Ftz,
    F64,
    Tf32,
    Tf32Ftz,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub enum Swizzle {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "32B")]
    B32,
    #[serde(rename = "64B")]
    B64,
    #[serde(rename = "128B")]
    B128,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub enum Interleave {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "16B")]
    B16,
    #[serde(rename = "32B")]
    B32,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub enum Fill {
    #[default]
    #[serde(rename = "zeros")]
    Zeros,
    #[serde(rename = "nan")]
    Nan,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub enum L2 {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "64B")]
    B64,
    #[serde(rename = "128B")]
    B128,
    #[serde(rename = "256B")]
    B256,
}

/// `kind = "struct"` without its fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Struct {
    pub size: Spanned<u64>,
    #[serde(rename = "fields")]
    _fields: Apart,
}

/// `init = { … }`: exactly one of randn, file, fill, hex, raw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Init {
    pub randn: Option<u64>,
    pub mean: Option<f64>,
    pub scale: Option<f64>,
    pub file: Option<String>,
    pub fill: Option<Spanned<toml::Value>>,
    pub hex: Option<String>,
    pub raw: Option<String>,
}

/// `[annotations]`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Annotations {
    pub roles: Vec<Role>,
    pub barriers: Vec<Barrier>,
    pub shared: Vec<Region>,
    pub tmem: Vec<Region>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub name: String,
    pub first_warp: u32,
    pub warps: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Barrier {
    pub name: String,
    pub offset: u32,
    pub stages: u32,
    #[serde(default)]
    pub arrivers: Vec<String>,
    #[serde(default)]
    pub waiters: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub name: String,
    pub start: u32,
    pub len: u32,
}

impl From<Region> for launch::RegionName {
    fn from(r: Region) -> Self {
        launch::RegionName { name: r.name, start: r.start, len: r.len }
    }
}

impl From<Annotations> for launch::Annotations {
    fn from(a: Annotations) -> Self {
        let role = |r: Role| launch::RoleName { name: r.name, first_warp: r.first_warp, warps: r.warps };
        let barrier = |b: Barrier| launch::BarrierName {
            name: b.name,
            offset: b.offset,
            stages: b.stages,
            arrivers: b.arrivers,
            waiters: b.waiters,
        };
        launch::Annotations {
            roles: a.roles.into_iter().map(role).collect(),
            barriers: a.barriers.into_iter().map(barrier).collect(),
            shared: a.shared.into_iter().map(Into::into).collect(),
            tmem: a.tmem.into_iter().map(Into::into).collect(),
        }
    }
}
