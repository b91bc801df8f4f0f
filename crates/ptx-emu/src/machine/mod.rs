//! The machine: grid, CTAs, warps, memories, asynchronous operations and the scheduler.

pub mod cfg;
mod clc;
mod cluster;
pub mod cta;
pub mod decode;
mod decode_async;
mod decode_cluster;
mod decode_mma;
mod exec;
mod exec_atomic;
mod exec_bulk;
mod exec_cluster;
mod exec_mem;
mod exec_mma;
mod exec_mma_sync;
mod exec_sync;
mod exec_tmem;
mod exec_warp;
mod exec_wgmma;
pub mod global;
pub mod inst;
mod land;
mod land_mma;
mod lease;
mod names;
pub mod ops;
mod pair;
pub mod predict;
mod proxy;
mod run;
mod sched;
mod setup;
pub mod shared;
pub mod tmem;
pub mod wgmma;

pub use run::run;
