//! The CUDA sources (`cuda/`) and the table of what they compile to.

pub mod arch;
pub mod kernel_info;
pub mod manifest;
