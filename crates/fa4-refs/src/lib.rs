//! Other people's kernels at arm's length. A [`Reference`] says what it supports, runs a problem on the bytes that our
//! kernels get, hands back O for the same oracle, and times itself; it lives in a child process, so that a hang or a
//! crash is an error value here and nothing worse.
//!
//! - [`reference`]: the trait and what goes through it; [`error`]: how a reference may fail, as a row's status.
//! - [`catalog`]: who there is, and what each one calls; the adapters are Python files in `py/`.
//! - [`bridge`]: a child per device that serves any number of references; [`protocol`]: what is said to it;
//!   [`child`]: the process, its pipes, deadlines and end.
//! - [`files`]: inputs and outputs as raw files.
//!
//! The program `fa4-fake-ref` speaks the same protocol without Python or GPU and misbehaves on demand.

pub mod bridge;
pub mod catalog;
pub mod child;
pub mod error;
pub mod files;
pub mod protocol;
pub mod reference;

pub use bridge::{Bridge, BridgedReference, Deadlines, Launch};
pub use error::{RefError, Status};
pub use files::InputFiles;
pub use protocol::{Route, TimeMode, TimeRequest, Timing};
pub use reference::{Output, Prepared, Reference, RowAt};
