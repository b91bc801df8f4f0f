//! A named text, and positions in it turned into lines, columns and excerpts for messages; and the way from an
//! instruction back to the `.cu` source.

use super::ast::{Module, Span};

/// PTX text with the name it is called by in messages.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// File name as the user gave it.
    pub name: &'a str,
    /// Whole text.
    pub text: &'a str,
}

/// A position as people read it, with the part of the line around it.
pub struct Excerpt {
    /// 1-based line.
    pub line: u32,
    /// 1-based column, counted in characters.
    pub column: u32,
    /// The line, cut to a window around the position, control characters replaced.
    pub text: String,
    /// How many characters of `text` stand before the position.
    pub caret: u32,
}

/// A place in the source that the PTX was compiled from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'m> {
    /// Path as the compiler wrote it; `None` when no `.file` gives the number a path.
    pub file: Option<&'m str>,
    /// 1-based line.
    pub line: u32,
    /// 1-based column; 0 = unknown.
    pub column: u32,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.unwrap_or("(unnamed file)"), self.line)?;
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

/// Where an instruction comes from: the innermost place first (the body of an inlined wrapper), then the call
/// site it was inlined at, and so on out to the kernel's own text. Empty without `-lineinfo`.
pub fn places(module: &Module, span: Span) -> Vec<Place<'_>> {
    let mut chain = Vec::new();
    let mut at = span.loc;
    // A location is interned after the call site it names, so indices fall and the walk ends.
    while let Some(loc) = (at as usize).checked_sub(1).and_then(|i| module.locs.get(i)) {
        let file = module.files.iter().find(|(n, _)| *n == loc.file).map(|(_, path)| path.as_str());
        chain.push(Place { file, line: loc.line, column: loc.column });
        if loc.inlined_at >= at {
            break;
        }
        at = loc.inlined_at;
    }
    chain
}

/// Characters shown before and after the position; a line of an initialiser may hold 100 KB.
const BEFORE: usize = 70;
const AFTER: usize = 70;

impl Source<'_> {
    /// Line, column and excerpt of byte offset `at` (clamped to the text). Walks the text once, so it is meant
    /// for errors only.
    pub fn excerpt(&self, at: usize) -> Excerpt {
        let bytes = self.text.as_bytes();
        let mut at = at.min(bytes.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let start = bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let end = bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| at + i);
        let line = 1 + bytes[..start].iter().filter(|&&b| b == b'\n').count();
        let (before, after) = (&self.text[start..at], self.text[at..end].trim_end());

        let column = 1 + before.chars().count();
        let shown_before = column.saturating_sub(1).min(BEFORE);
        let cut_left = column - 1 > BEFORE;
        let mut text = String::new();
        if cut_left {
            text.push_str("...");
        }
        text.extend(before.chars().skip(column - 1 - shown_before).map(printable));
        let caret = text.chars().count();
        text.extend(after.chars().take(AFTER).map(printable));
        if after.chars().nth(AFTER).is_some() {
            text.push_str("...");
        }
        Excerpt { line: line as u32, column: column as u32, text, caret: caret as u32 }
    }
}

/// One character in, one out, so that the caret stays below its column.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}
