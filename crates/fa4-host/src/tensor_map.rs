//! Tensor maps as plain data. Encoding to the 128 opaque bytes is the device's business: the driver does it for a
//! GPU, the emulator's model of the driver does it for the emulator.

use fa4_spec::problem::DType;

/// Swizzle pattern of a box in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swizzle {
    /// Rows as they are.
    None,
    /// 16-byte chunks permuted within 128-byte rows, period 8 rows.
    B128,
}

/// What a load reads outside the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zero,
    /// NaN with a special pattern.
    Nan,
}

/// Arguments of a tiled tensor map, innermost dimension first; element strides are 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMapArgs {
    /// Element type.
    pub dtype: DType,
    /// Device address of the first element; 16-byte aligned.
    pub address: u64,
    /// Elements in each dimension.
    pub dims: [u64; 4],
    /// Bytes from one index to the next in dimensions 1, 2, 3; multiples of 16 below 2^40.
    pub strides_bytes: [u64; 3],
    /// Elements of a box in each dimension.
    pub box_dims: [u32; 4],
    /// Swizzle in shared memory.
    pub swizzle: Swizzle,
    /// What loads read outside the tensor.
    pub fill: Fill,
}
