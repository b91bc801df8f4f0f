//! Findings and traces in forms for people and their tools.

mod colour;
mod text;
mod trace;

pub use colour::{colour, wanted as colour_wanted};
pub use text::{Context, ReadLine, verdict};
pub use trace::{chrome, json_lines};
