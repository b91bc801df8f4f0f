//! Judges kernels: `compile → run → compare → explain`.
//!
//! - [`cli`]: flags; [`gate`]: the whole run from flags to exit code.
//! - [`kernels`]: what to judge, compiled; [`select`]: which cases it is judged on.
//! - [`judge`]: one case on one device; [`session`]: all of them on all cores.
//! - [`foreign`]: strangers' kernels, the evidence for the emulator; [`foreign_section`]: their part of the gate.
//! - [`probes`]: single instructions, on a GPU and in the emulator, word by word.
//! - [`coverage`]: what keeps a green verdict honest; [`evidence`]: what the emulator's word is worth.
//! - [`plan`]: a kernel's tables, pictures and predicted schedule.
//! - [`pipeline`]: whether a kernel overlaps its engines, predicted.
//! - [`rows`] and [`table`]: the verdict for machines and for people.
//! - [`mutate`]: kernels broken one instruction at a time; what survives is redundant or a hole.
//! - [`twins`]: kernels broken on purpose, which must be caught.

pub mod cli;
pub mod coverage;
pub mod error;
pub mod evidence;
pub mod foreign;
pub mod foreign_section;
pub mod gate;
pub mod gpu;
pub mod judge;
pub mod kernels;
pub mod mutate;
pub mod pipeline;
pub mod plan;
pub mod pool;
pub mod probes;
pub mod rows;
pub mod select;
pub mod session;
pub mod table;
pub mod twins;
