//! A PTX emulator that judges: it runs compiled PTX with every asynchronous operation as an actor of its own
//! and reports missing waits, undefined values and broken barrier protocols.

pub mod isa;
pub mod num;
pub mod syntax;
pub mod tma;
