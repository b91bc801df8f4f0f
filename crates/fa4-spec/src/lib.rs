//! What attention is: problems, data, truth and error bounds. A leaf: no kernel, no GPU, no launcher is
//! visible from here, so a kernel cannot leak its bugs into what judges it.
//!
//! - [`problem`]: sizes, mask and dtypes of one attention problem, with validation.
//! - [`tensor`]: values in their storage format, and where they lie in a buffer (strides are the caller's).
//! - [`sets`]: the reader of scenario files; [`qdist`]: the data that their rows name.
//! - [`cases`]: rows made into runnable cases, with the few reductions that keep what a row tests.
//! - [`oracle`]: f64 attention; [`tolerance`]: how far from it a right kernel may be; [`exp2_poly`]: the error of one
//!   part of a kernel.

pub mod cases;
pub mod exp2_poly;
pub mod oracle;
pub mod problem;
pub mod qdist;
pub mod sets;
pub mod tensor;
pub mod tolerance;

pub use cases::Case;
pub use problem::{AttnProblem, DType, Mask};
pub use sets::Row;
