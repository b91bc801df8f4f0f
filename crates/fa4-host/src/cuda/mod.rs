//! NVIDIA GPUs as devices, through the CUDA driver, which is looked for at run time: this builds and starts without CUDA,
//! and says in one line what is missing.
//!
//! - [`gpu`]: what there is, and a GPU's context.
//! - [`module`]: cubins, chosen by architecture and held against the kernel's own tables.
//! - [`stream`]: the order of work, and time.
//! - [`launch`]: kernels and graphs of them.
//! - [`device`]: all of it behind [`crate::Device`].
//! - [`nvml`]: clock, power, temperature.
//!
//! All but `device` call into the driver and give their safety arguments; everything above is safe code.

mod api;
pub mod device;
pub mod gpu;
pub mod launch;
mod memory;
pub mod module;
pub mod nvml;
pub mod stream;
mod tensor_map;

pub use device::{CudaDevice, CudaGraph};
pub use gpu::{Gpu, GpuInfo, gpus};
pub use module::CudaModule;
