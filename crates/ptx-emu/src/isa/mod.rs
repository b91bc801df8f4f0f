//! Instructions: decoding of opcodes into lane-vector operations and their semantics.

pub mod alu;
pub mod operands;
pub mod regs;
