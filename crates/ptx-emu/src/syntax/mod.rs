//! From PTX text to a resolved tree: lexer, parser, scopes, source locations.

pub mod ast;
mod error;
mod lexer;
mod parser;
mod print;
mod source;

pub use error::SyntaxError;
pub use parser::{parse, parse_bytes};
pub use print::print;
pub(crate) use source::Source;
pub use source::{Place, places};
