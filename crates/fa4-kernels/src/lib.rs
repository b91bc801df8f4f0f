//! The CUDA sources (`cuda/`), the table of what they compile to, and their compilation.
//!
//! [`manifest::ROWS`] lists the variants. [`compile::Builder`] takes a [`compile::Job`] and answers with PTX (for the emulator and for reading), cubins
//! (for devices) and the resources that each entry function uses. The compiler is NVRTC, opened at run time from the
//! toolchain that `cargo xtask setup` prepared; no CUDA is needed to build this crate. [`manifest`] lists the kernels;
//! [`kernel_info`] reads the tables that a compiled kernel exports about itself.

pub mod arch;
pub mod compile;
pub mod diagnostics;
pub mod kernel_info;
pub mod manifest;
pub mod nvrtc;
pub mod sass;
pub mod sass_loops;
pub mod sass_mix;
pub mod source;
pub mod toolchain;
pub mod usage;
