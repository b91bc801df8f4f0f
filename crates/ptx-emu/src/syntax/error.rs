//! The one error of the front end: where, what was found, what was expected, what to do.

use super::source::Source;
use std::fmt;

/// Why a PTX text could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// File name as given to the parser.
    pub file: String,
    /// 1-based line.
    pub line: u32,
    /// 1-based column in characters.
    pub column: u32,
    /// One sentence: what is wrong, or what was expected and what was found.
    pub message: String,
    /// What to do about it, where that is known.
    pub help: Option<String>,
    excerpt: String,
    caret: u32,
}

impl SyntaxError {
    /// An error at byte offset `at` of `source`.
    pub fn new(source: Source<'_>, at: usize, message: impl Into<String>) -> Self {
        let e = source.excerpt(at);
        SyntaxError {
            file: source.name.to_string(),
            line: e.line,
            column: e.column,
            message: shortened(message.into()),
            help: None,
            excerpt: e.text,
            caret: e.caret,
        }
    }

    /// The same error with advice.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(shortened(help.into()));
        self
    }

    /// The same error with "did you mean", when a near name exists.
    pub fn near(mut self, near: Option<&str>) -> Self {
        if let Some(n) = near {
            self.help = Some(format!("did you mean `{n}`?"));
        }
        self
    }
}

impl std::error::Error for SyntaxError {}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let pad = " ".repeat(number.len());
        writeln!(f, "error: {}", self.message)?;
        writeln!(f, "{pad}--> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(f, "{pad} |")?;
        writeln!(f, "{}", format!("{number} | {}", self.excerpt).trim_end())?;
        write!(f, "{pad} | {}^", " ".repeat(self.caret as usize))?;
        if let Some(help) = &self.help {
            write!(f, "\n{pad} = help: {help}")?;
        }
        Ok(())
    }
}

/// The candidate with the smallest edit distance to `name`, if it is close enough to be a slip of the pen.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 48;
    if name.len() > LONGEST {
        return None;
    }
    let limit = (name.len() / 4).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for c in candidates {
        if c.len().abs_diff(name.len()) > limit || c == name {
            continue;
        }
        let d = edit_distance(name.as_bytes(), c.as_bytes());
        // Ties go to the name that sorts first, so that the message never depends on hash order.
        if d <= limit && best.is_none_or(|(bd, bc)| (d, c) < (bd, bc)) {
            best = Some((d, c));
        }
    }
    best.map(|(_, c)| c)
}

/// Levenshtein distance.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A text of any origin cut to what a reader can take in: it may quote names of any length.
fn shortened(mut text: String) -> String {
    const MOST: usize = 1_200;
    if let Some((cut, _)) = text.char_indices().nth(MOST) {
        text.truncate(cut);
        text += "...";
    }
    text
}

/// `name` cut to a length that fits a message.
pub(super) fn shown(name: &str) -> String {
    const MOST: usize = 60;
    match name.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}...", &name[..cut]),
        None => name.to_string(),
    }
}
