//! A seeded generator, and damage to a text.

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n; 0 for n = 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Numbers at which something overflows, wraps or is refused. None lies where a launch file would rightly ask for
/// gigabytes.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "31",
    "32",
    "33",
    "63",
    "64",
    "65",
    "127",
    "128",
    "255",
    "256",
    "257",
    "512",
    "0x7fffffff",
    "0x80000000",
    "0xffffffff",
    "0xfffffff0",
    "0x10000000000",
    "1099511627777",
    "9223372036854775807",
    "0x8000000000000000",
    "18446744073709551615",
    "0xffffffffffffffff",
    "18446744073709551616",
    "0f7F800000",
    "0f7FC00000",
    "0d7FF0000000000000",
    "1e308",
    "0x",
];

/// Words that are right somewhere, and mostly not here.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    ",",
    ";",
    ":",
    "@",
    "!",
    "|",
    "+",
    "-",
    "=",
    ".",
    "%",
    "\"",
    "/*",
    ".b128",
    ".b8",
    ".f64",
    ".pred",
    ".v4",
    ".aligned",
    ".sync",
    ".shared::cluster",
    ".cta_group::2",
    ".ws",
    "%tid.x",
    "%clock64",
    "%laneid",
    "%r0",
    "_",
    "ret",
    "trap",
    "exit",
    "bra",
    "call",
    "é",
    "\u{0}",
    "mbarrier.init.shared::cta.b64",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32",
];

/// Byte ranges of the tokens of a text: words with their dots, or single characters.
fn tokens(text: &[u8]) -> Vec<(usize, usize)> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%' | b'.' | b':');
    let (mut out, mut i) = (Vec::new(), 0);
    while i < text.len() {
        let start = i;
        i += 1;
        if word(text[start]) {
            while i < text.len() && word(text[i]) {
                i += 1;
            }
        }
        if !text[start].is_ascii_whitespace() {
            out.push((start, i));
        }
    }
    out
}

/// Byte ranges of the lines, line feeds included.
fn lines(text: &[u8]) -> Vec<(usize, usize)> {
    let (mut out, mut start) = (Vec::new(), 0);
    for (i, _) in text.iter().enumerate().filter(|(_, b)| **b == b'\n') {
        out.push((start, i + 1));
        start = i + 1;
    }
    out.push((start, text.len()));
    out
}

/// One to three wounds.
pub fn damage(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut text = text.to_vec();
    for _ in 0..1 + random.below(3) {
        wound(&mut text, random);
    }
    text
}

fn wound(text: &mut Vec<u8>, random: &mut Random) {
    let spans = if random.below(2) == 0 { tokens(text) } else { lines(text) };
    if spans.is_empty() {
        return;
    }
    let (a, b) = (spans[random.below(spans.len())], spans[random.below(spans.len())]);
    let piece = |(start, end): (usize, usize)| text[start..end].to_vec();
    match random.below(24) {
        0..4 => drop(text.drain(a.0..a.1)),
        // A blank before it: digits must not join to a size that is rightly asked for, and large.
        4..7 => drop(text.splice(a.1..a.1, [b" ", &*piece(a)].concat())),
        7..10 => drop(text.splice(a.0..a.1, piece(b))),
        10..13 => {
            let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
            let (x, y) = (piece(first), piece(second));
            if first.1 <= second.0 {
                text.splice(second.0..second.1, x);
                text.splice(first.0..first.1, y);
            }
        }
        13..18 => {
            let tokens = tokens(text);
            let numbers: Vec<_> = tokens.iter().filter(|t| text[t.0].is_ascii_digit()).collect();
            if let Some(&&(start, end)) = numbers.get(random.below(numbers.len())) {
                text.splice(start..end, NUMBERS[random.below(NUMBERS.len())].bytes());
            }
        }
        18..20 => drop(text.splice(a.0..a.0, WORDS[random.below(WORDS.len())].bytes())),
        20 => modifier(text, random),
        21 => {
            let n = random.below(2_000);
            let bracket = b"{[(<-"[random.below(5)];
            text.splice(a.0..a.0, std::iter::repeat_n(bracket, n));
        }
        22 => match random.below(3) {
            0 => text.truncate(a.0),
            1 => drop(text.splice(a.0..a.0, std::iter::repeat_n(b'x', 70_000))),
            _ => drop(text.splice(a.0..a.0, [0xff, 0xc0])),
        },
        _ => modifier(text, random),
    }
}

/// Moves one `.modifier` of an opcode to another place.
fn modifier(text: &mut Vec<u8>, random: &mut Random) {
    let dots: Vec<usize> = (0..text.len()).filter(|&i| text[i] == b'.').collect();
    let end = |i: usize| {
        text[i + 1..].iter().position(|b| !b.is_ascii_alphanumeric()).map_or(text.len(), |n| i + 1 + n)
    };
    if dots.is_empty() {
        return;
    }
    let (a, b) = (dots[random.below(dots.len())], dots[random.below(dots.len())]);
    let taken = text[b..end(b)].to_vec();
    let to = end(a);
    text.splice(a..to, taken);
}
