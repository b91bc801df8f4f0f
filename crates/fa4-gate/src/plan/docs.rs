//! The generated parts of `docs/kernels/`.
