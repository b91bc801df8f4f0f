//! Helpers of the tests that compare with recorded silicon.
#![allow(dead_code)] // each test binary uses a part

use serde_json::Value;

/// The records of a `.jsonl` file of `tests/silicon`, its meta line removed.
pub fn records(name: &str) -> Vec<Value> {
    let path = format!("{}/tests/silicon/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let parse = |l: &str| serde_json::from_str::<Value>(l).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(parse).filter(|v| v.get("meta").is_none()).collect()
}

/// CRC-32 as zlib computes it.
pub fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |c, _| if c & 1 != 0 { 0xedb8_8320 ^ c >> 1 } else { c >> 1 })
    });
    !bytes.iter().fold(!0, |c, &b| table[((c ^ u32::from(b)) & 0xff) as usize] ^ c >> 8)
}

/// Standard base64.
pub fn base64(s: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(s.len() * 3 / 4);
    let (mut acc, mut bits) = (0u32, 0);
    for c in s.bytes().filter(|&c| c != b'=') {
        let v = ALPHABET.iter().position(|&a| a == c).expect("a base64 digit") as u32;
        (acc, bits) = (acc << 6 | v, bits + 6);
        if bits >= 8 {
            bits -= 8;
            out.push((acc >> bits) as u8);
        }
    }
    out
}

/// A hexadecimal number.
pub fn hex(v: &Value) -> u64 {
    u64::from_str_radix(v.as_str().expect("a hex string"), 16).expect("hex digits")
}

/// A list of integers.
pub fn ints(v: &Value) -> Vec<i64> {
    v.as_array().expect("a list").iter().map(|x| x.as_i64().expect("an integer")).collect()
}

/// The pseudo-random words of the probes: splitmix64 with seed 33 (low half first), the first words replaced
/// by special values.
pub fn random_words(count: usize, specials: &[u32]) -> Vec<u32> {
    let mut words: Vec<u32> = (1..=count as u64 / 2)
        .flat_map(|i| {
            let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(33);
            let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            let z = z ^ z >> 31;
            [z as u32, (z >> 32) as u32]
        })
        .collect();
    words[..specials.len()].copy_from_slice(specials);
    words
}

/// Little-endian bytes.
pub fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
