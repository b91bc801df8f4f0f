//! Tensor maps, encoded by the driver.
//!
//! # Safety argument
//! Every array passed has the rank's length (one less for the strides) and outlives the call; the output is a local of
//! the driver's own type. The tensor's address is stored, not followed.
#![allow(unsafe_code)]

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as OutOfBounds,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as L2Promotion,
    CUtensorMapSwizzle as DriverSwizzle,
};
use fa4_spec::problem::DType;

use super::gpu::Gpu;
use crate::error::DeviceError;
use crate::params::TENSOR_MAP_BYTES;
use crate::tensor_map::{Fill, Swizzle, TensorMapArgs};

/// The driver's 128 opaque bytes for `args`.
pub(super) fn encode(gpu: &Gpu, args: &TensorMapArgs) -> Result<[u8; TENSOR_MAP_BYTES], DeviceError> {
    let api = gpu.enter()?;
    let dtype = match args.dtype {
        DType::Bf16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::E4m3 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    let swizzle = match args.swizzle {
        Swizzle::None => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B128 => DriverSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let fill = match args.fill {
        Fill::Zero => OutOfBounds::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Fill::Nan => OutOfBounds::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    let element_strides = [1u32; 4];
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: four dimensions, three strides, as the module's argument says.
    let status = unsafe {
        (api.cuTensorMapEncodeTiled)(
            &mut map,
            dtype,
            args.dims.len() as u32,
            args.address as *mut std::ffi::c_void,
            args.dims.as_ptr(),
            args.strides_bytes.as_ptr(),
            args.box_dims.as_ptr(),
            element_strides.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            L2Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            fill,
        )
    };
    gpu.check("cuTensorMapEncodeTiled", status).map_err(|error| {
        DeviceError::TensorMap(format!(
            "{error}: {} dims {:?}, strides {:?} bytes, box {:?} at {:#x}",
            args.dtype, args.dims, args.strides_bytes, args.box_dims, args.address
        ))
    })?;
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}
