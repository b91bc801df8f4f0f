//! The tensor memory accelerator as pure functions: what a tensor map says, which bytes a box moves, and what
//! a reduction makes of them. Nothing here knows of threads, barriers or memories.

pub mod encode;
pub mod reduce;
pub mod replace;
pub mod swizzle;
pub mod tensor_map;
pub mod tile;

pub use encode::{EncodeArgs, EncodeError, encode};
pub use reduce::{NumType, ReduceOp, reduce};
pub use replace::{Field, ReplaceError, replace};
pub use swizzle::{Swizzle, swz};
pub use tensor_map::{ElemType, Interleave, MapError, TensorMap};
pub use tile::{Chunk, TmaFault, bulk_check, convert_load, gather4_chunks, load_chunks, scatter4_chunks};
pub use tile::{load_bytes, store_chunks};
