//! Findings and traces in forms for people and their tools.

mod text;
mod trace;

pub use text::{Context, ReadLine, verdict};
pub use trace::{chrome, json_lines};
