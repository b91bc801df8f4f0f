//! Judges kernels.

pub mod foreign;
