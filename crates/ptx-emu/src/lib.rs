//! A PTX emulator that judges: it runs compiled PTX with every asynchronous operation as an actor of its own
//! and reports missing waits, undefined values and broken barrier protocols.

pub mod coverage;
pub mod explain;
pub mod fault;
pub mod isa;
pub mod launch;
pub mod launch_file;
pub mod machine;
pub mod mutation;
pub mod npy;
pub mod num;
pub mod render;
pub mod syntax;
pub mod tma;
pub mod trace;

pub use fault::{Code, Fault, Level, Site};
pub use launch::{Annotations, BarrierName, Checks, Counters, Launch, Options, RegionName, Report, RoleName};
pub use launch::{Schedule, Verdict};
pub use machine::global::{GlobalMemory, Initial};
pub use machine::run;
pub use syntax::ast::Module;
