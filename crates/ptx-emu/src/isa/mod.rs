//! Instructions: decoding of opcodes into lane-vector operations and their semantics.

pub mod alu;
pub mod elect;
pub mod fragments;
pub mod idesc;
pub mod idesc_scaled;
pub mod mbarrier;
pub mod operands;
pub mod regs;
pub mod smem_desc;
pub mod tcgen05_layout;
