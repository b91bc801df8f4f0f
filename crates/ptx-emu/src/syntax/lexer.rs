//! PTX text to tokens, byte by byte.
//!
//! The lexer holds no lookahead of its own: after [`Lexer::advance`] its position is the end of that token, so the
//! parser can ask it to extend an identifier over the dots of an opcode or of a special register.

use super::error::{SyntaxError, shown};
use super::source::Source;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `foo`, `$L__BB0_1`, `%r1`, `_`.
    Ident,
    /// `.reg`, `.b32`.
    Directive,
    /// Integer literal, two's complement in 64 bits.
    Int(i64),
    /// `0f` literal.
    F32(u32),
    /// `0d` or decimal floating literal.
    F64(u64),
    /// String, quotes included in the token's range.
    Str,
    /// One character.
    Punct(u8),
    /// End of the text.
    Eof,
}

/// A token: its kind, byte range and 1-based line.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
    /// 1-based line.
    pub line: u32,
}

/// A `// cover: NAME` comment that the lexer passed.
#[derive(Clone, Copy, Debug)]
pub struct Marker<'a> {
    /// NAME.
    pub name: &'a str,
    /// 1-based line.
    pub line: u32,
}

/// Reads tokens off a [`Source`].
pub struct Lexer<'a> {
    /// The text.
    pub source: Source<'a>,
    bytes: &'a [u8],
    pos: usize,
    line: u32,
    /// Coverage markers passed since the parser last took them.
    pub markers: Vec<Marker<'a>>,
}

impl<'a> Lexer<'a> {
    /// A lexer at the start of `source`.
    pub fn new(source: Source<'a>) -> Self {
        Lexer { source, bytes: source.text.as_bytes(), pos: 0, line: 1, markers: Vec::new() }
    }

    /// An error at byte offset `at`.
    pub fn error(&self, at: usize, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.source, at, message)
    }

    /// Text of a token.
    pub fn text(&self, t: Token) -> &'a str {
        &self.source.text[t.start..t.end]
    }

    fn at(&self, i: usize) -> u8 {
        self.bytes.get(i).copied().unwrap_or(0)
    }

    /// The next token.
    pub fn advance(&mut self) -> Result<Token, SyntaxError> {
        self.skip_blank()?;
        let (start, line) = (self.pos, self.line);
        let Some(&b) = self.bytes.get(start) else {
            return Ok(Token { kind: Kind::Eof, start, end: start, line });
        };
        let kind = match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' => {
                self.pos = self.word_end(start + 1);
                Kind::Ident
            }
            b'%' if is_word(self.at(start + 1)) => {
                self.pos = self.word_end(start + 1);
                Kind::Ident
            }
            b'.' if is_word(self.at(start + 1)) && !self.at(start + 1).is_ascii_digit() => {
                self.pos = self.word_end(start + 1);
                Kind::Directive
            }
            b'0'..=b'9' => self.number(start)?,
            b'"' => self.string(start)?,
            b',' | b';' | b':' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b'@' | b'!'
            | b'|' | b'+' | b'-' | b'=' | b'~' | b'%' | b'.' | b'*' | b'/' => {
                self.pos = start + 1;
                Kind::Punct(b)
            }
            _ => {
                let c = self.source.text[start..].chars().next().unwrap_or('\u{fffd}');
                return Err(self.error(start, format!("unexpected character `{}`", c.escape_debug())));
            }
        };
        Ok(Token { kind, start, end: self.pos, line })
    }

    /// Extends an identifier that was just read over `.word` and `::word`, as opcodes and `%tid.x` are spelled.
    pub fn extend_dotted(&mut self, t: &mut Token) {
        loop {
            let after = match (self.at(self.pos), self.at(self.pos + 1)) {
                (b'.', _) => self.pos + 1,
                (b':', b':') => self.pos + 2,
                _ => break,
            };
            if !is_word(self.at(after)) {
                break;
            }
            self.pos = self.word_end(after);
        }
        t.end = self.pos;
    }

    /// True when the token that was just read is followed by a single colon.
    pub fn colon_follows(&self) -> bool {
        let mut i = self.pos;
        while matches!(self.at(i), b' ' | b'\t') {
            i += 1;
        }
        self.at(i) == b':' && self.at(i + 1) != b':'
    }

    /// Skips the rest of the line.
    pub fn skip_line(&mut self) {
        self.pos +=
            self.bytes[self.pos..].iter().position(|&b| b == b'\n').unwrap_or(self.bytes.len() - self.pos);
    }

    fn word_end(&self, mut i: usize) -> usize {
        while is_word(self.at(i)) {
            i += 1;
        }
        i
    }

    fn skip_blank(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.at(self.pos) {
                b'\n' => {
                    self.line += 1;
                    self.pos += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0c => self.pos += 1,
                b'/' if self.at(self.pos + 1) == b'/' => {
                    let start = self.pos;
                    self.skip_line();
                    if let Some(name) = cover_marker(&self.source.text[start..self.pos]) {
                        self.markers.push(Marker { name, line: self.line });
                    }
                }
                b'/' if self.at(self.pos + 1) == b'*' => {
                    let start = self.pos;
                    let Some(len) = self.source.text[start + 2..].find("*/") else {
                        return Err(self.error(start, "this comment is never closed by `*/`"));
                    };
                    let end = start + 2 + len + 2;
                    self.line += self.bytes[start..end].iter().filter(|&&b| b == b'\n').count() as u32;
                    self.pos = end;
                }
                _ => return Ok(()),
            }
        }
    }

    fn string(&mut self, start: usize) -> Result<Kind, SyntaxError> {
        let mut i = start + 1;
        loop {
            match self.bytes.get(i) {
                Some(b'"') => break,
                Some(b'\\') => i += 2,
                Some(b'\n') | None => return Err(self.error(start, "this string is never closed by `\"`")),
                Some(_) => i += 1,
            }
        }
        self.pos = i + 1;
        Ok(Kind::Str)
    }

    fn number(&mut self, start: usize) -> Result<Kind, SyntaxError> {
        let prefix = self.at(start + 1).to_ascii_lowercase();
        if self.at(start) == b'0' && matches!(prefix, b'x' | b'b' | b'f' | b'd') {
            self.pos = self.word_end(start + 2);
            let digits = &self.source.text[start + 2..self.pos];
            return match prefix {
                b'x' => self.integer(start, digits, 16),
                b'b' => self.integer(start, digits, 2),
                b'f' => match (digits.len(), u32::from_str_radix(digits, 16)) {
                    (8, Ok(bits)) => Ok(Kind::F32(bits)),
                    _ => Err(self.bad_number(start, "`0f` and exactly 8 hexadecimal digits")),
                },
                _ => match (digits.len(), u64::from_str_radix(digits, 16)) {
                    (16, Ok(bits)) => Ok(Kind::F64(bits)),
                    _ => Err(self.bad_number(start, "`0d` and exactly 16 hexadecimal digits")),
                },
            };
        }
        let mut i = start;
        while self.at(i).is_ascii_digit() {
            i += 1;
        }
        let fraction = self.at(i) == b'.' && self.at(i + 1).is_ascii_digit()
            || self.at(i) == b'.' && !is_word(self.at(i + 1));
        if fraction || matches!(self.at(i), b'e' | b'E') {
            if fraction {
                i += 1;
                while self.at(i).is_ascii_digit() {
                    i += 1;
                }
            }
            if matches!(self.at(i), b'e' | b'E') {
                i += 1;
                if matches!(self.at(i), b'+' | b'-') {
                    i += 1;
                }
            }
            self.pos = self.word_end(i);
            return match self.source.text[start..self.pos].parse::<f64>() {
                Ok(v) => Ok(Kind::F64(v.to_bits())),
                Err(_) => Err(self.bad_number(start, "digits, a point, digits and perhaps an exponent")),
            };
        }
        self.pos = self.word_end(i);
        let digits = &self.source.text[start..self.pos];
        let octal = digits.len() > 1 && digits.starts_with('0') && self.at(start + 1).is_ascii_digit();
        self.integer(start, digits, if octal { 8 } else { 10 })
    }

    fn integer(&mut self, start: usize, digits: &str, radix: u32) -> Result<Kind, SyntaxError> {
        let digits = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
        match u64::from_str_radix(digits, radix) {
            Ok(v) => Ok(Kind::Int(v as i64)),
            Err(_) if !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)) => Err(self.error(
                start,
                format!("`{}` does not fit in 64 bits", shown(&self.source.text[start..self.pos])),
            )),
            Err(_) => Err(self.bad_number(
                start,
                match radix {
                    16 => "`0x` and hexadecimal digits",
                    2 => "`0b` and binary digits",
                    8 => "octal digits after the leading 0",
                    _ => "decimal digits",
                },
            )),
        }
    }

    fn bad_number(&self, start: usize, expected: &str) -> SyntaxError {
        let found = shown(&self.source.text[start..self.pos]);
        self.error(start, format!("`{found}` is not a number: expected {expected}"))
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$'
}

/// NAME of a `// cover: NAME` comment.
fn cover_marker(comment: &str) -> Option<&str> {
    let name = comment.trim_start_matches('/').trim().strip_prefix("cover:")?.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (!name.is_empty() && name.chars().all(allowed)).then_some(name)
}
