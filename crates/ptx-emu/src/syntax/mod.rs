//! From PTX text to a resolved tree: lexer, parser, scopes, source locations.

pub mod ast;
