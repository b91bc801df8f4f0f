//! Times kernels against the field, judges before it times, writes and publishes results.
//!
//! - [`cli`]: tasks and flags; [`bench`]: a run from flags to exit code.
//! - [`plan`]: which rows; [`queue`]: rows to GPUs, a process each; [`worker`]: that process.
//! - [`measure`]: one row: data, truth, judging, timing, verdict; [`stages`]: where its wall time goes; [`verify`]: outputs
//!   against the oracle; [`timing`]: how times are taken; [`telemetry`]: clocks and power meanwhile; [`counts`]: FLOPs and
//!   bytes.
//! - [`runner`]: what a machine must offer; [`gpu`]: a GPU as one, with [`artifacts`]: built kernels in a folder, and
//!   [`refs`]: other people's kernels; [`tensors`]: bytes of buffers; [`mock`]: one for tests.
//! - [`record`]: what a row is on disk; [`folder`]: where rows lie; [`env`]: what a run rests on; [`paths`]: how paths are
//!   written down; [`stats`], [`caveats`], [`verdict`]: what the times say.
//! - [`results`]: folders joined, listed, reported, exported; [`render`] and [`plot`]: rows for people; [`rows`]: for scripts.

pub mod artifacts;
pub mod bench;
pub mod caveats;
pub mod cli;
pub mod counts;
pub mod env;
pub mod error;
pub mod fitness;
pub mod folder;
pub mod gpu;
pub mod measure;
pub mod mock;
pub mod paths;
pub mod plan;
pub mod plot;
pub mod publish;
pub mod queue;
pub mod record;
pub mod refs;
pub mod render;
pub mod results;
pub mod rows;
pub mod runner;
pub mod stages;
pub mod stats;
pub mod telemetry;
pub mod tensors;
pub mod timing;
pub mod verdict;
pub mod verify;
pub mod worker;
