//! Reads the recorded answers of an H200 that lie beside this file.

use std::path::Path;

use serde_json::Value;

/// All records of a file but its `meta` line.
pub fn records(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/silicon").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parse = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{file}: {e}"));
    text.lines().skip(1).map(parse).collect()
}

/// Decodes a base64 string field.
pub fn bytes(v: &Value) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64: {c}"),
    };
    let s = v.as_str().expect("a base64 string").trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(s.len() * 3 / 4);
    for group in s.chunks(4) {
        let word = group.iter().fold(0u32, |w, &c| w << 6 | u32::from(digit(c))) << (6 * (4 - group.len()));
        out.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    out
}

/// Decodes a base64 array of little-endian words of `size` bytes.
pub fn words(v: &Value, size: usize) -> Vec<u32> {
    let word = |c: &[u8]| c.iter().rev().fold(0, |w, &b| w << 8 | u32::from(b));
    bytes(v).chunks(size).map(word).collect()
}

/// CRC-32 as in zlib, eight bits at a time.
#[allow(dead_code)]
pub struct Crc([u32; 256]);

#[allow(dead_code)]
impl Crc {
    pub fn new() -> Crc {
        let mut t = [0; 256];
        for (i, slot) in t.iter_mut().enumerate() {
            *slot = (0..8).fold(i as u32, |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 });
        }
        Crc(t)
    }
    pub fn of(&self, bytes: impl IntoIterator<Item = u8>) -> u32 {
        !bytes.into_iter().fold(!0, |c, b| self.0[((c ^ u32::from(b)) & 255) as usize] ^ c >> 8)
    }
}
