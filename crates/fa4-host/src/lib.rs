//! The launcher: `problem → plan → launch`.
//!
//! - [`routes`]: which kernel serves a problem, and why not.
//! - [`plan`]: problem and tensors to grid, block, shared memory, tensor maps and parameters. Pure.
//! - [`params`]: the parameter struct's bytes, by the offsets that the kernel itself exports.
//! - [`tensor_map`]: tensor maps as plain data.
//! - [`device`]: what a machine must offer; [`cuda`]: a GPU as one; [`emu`]: the emulator as one.
//! - [`attention`]: the forward pass on a device.
//!
//! Pointers and strides that reach a kernel are the caller's: nothing here copies, pads or zeroes a tensor.

pub mod attention;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
#[cfg(feature = "emu")]
pub mod emu;
pub mod error;
pub mod packing;
pub mod params;
pub mod plan;
pub mod routes;
pub mod tensor_map;

pub use attention::forward;
pub use device::{Device, KernelLaunch};
pub use error::HostError;
pub use plan::{LaunchPlan, TensorRef, Tensors};
pub use routes::route;
