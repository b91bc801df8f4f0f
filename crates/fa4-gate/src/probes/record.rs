//! Recorded probes: how each is launched, the inputs that it reads, and the words that an H200 wrote.

use std::path::Path;

use ptx_emu::tma::encode::{EncodeArgs, encode};
use ptx_emu::tma::tensor_map::ElemType;
use serde::Deserialize;

use crate::error::GateError;

/// One line of `probes_sm90.jsonl`.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    /// Entry function.
    pub probe: String,
    /// PTX file.
    pub file: String,
    /// How input words are drawn.
    pub fill: Fill,
    /// Seed of the inputs.
    pub seed: u64,
    /// CTAs.
    pub grid: u32,
    /// Threads of a CTA.
    pub block: u32,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// 32-bit words of input.
    pub in_words: u64,
    /// 32-bit words of output.
    pub out_words: u64,
    /// A tensor map over one of the buffers.
    pub map: Option<Map>,
    /// The output's bytes; none where the probe did not end.
    #[serde(default, deserialize_with = "base64")]
    pub out: Option<Vec<u8>>,
}

/// A tiled tensor map without swizzle.
#[derive(Debug, Clone, Deserialize)]
pub struct Map {
    /// `in` or `out`.
    over: Over,
    /// `CUtensorMapDataType`.
    #[serde(rename = "type")]
    data_type: u32,
    dims: Vec<u64>,
    strides: Vec<u64>,
    #[serde(rename = "box")]
    box_dims: Vec<u32>,
}

/// Which buffer a map describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Over {
    In,
    Out,
}

/// How an input word is drawn from 64 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Any bits.
    Bits,
    /// Two f16 numbers.
    F16,
    /// Two bf16 numbers.
    Bf16,
    /// An f32 number.
    F32,
    /// The high word of an f64 number, which also serves as a low word.
    F64,
}

/// Reads the records; the first line says where they come from.
///
/// # Errors
/// [`GateError::File`], [`GateError::Probe`] with the line.
pub fn read(path: &Path) -> Result<Vec<Record>, GateError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| GateError::File { path: path.to_path_buf(), source })?;
    let parse = |(line, text): (usize, &str)| {
        serde_json::from_str(text).map_err(|e| GateError::Probe {
            file: format!("{}:{}", path.display(), line + 1),
            what: e.to_string(),
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.starts_with("{\"meta\"")).map(parse).collect()
}

impl Record {
    /// The words that the probe reads. The same stream as the recording script's `inputs`.
    pub fn inputs(&self) -> Vec<u32> {
        (0..self.in_words).map(|i| self.fill.word(splitmix(self.seed, i))).collect()
    }

    /// The parameter block.
    ///
    /// # Errors
    /// Why the recorded tensor map cannot be encoded.
    pub fn params(&self, input: u64, output: u64) -> Result<Vec<u8>, String> {
        let mut params = [input.to_le_bytes(), output.to_le_bytes()].concat();
        if let Some(map) = &self.map {
            let elem = ElemType::from_host(map.data_type)
                .ok_or_else(|| format!("{}: no element type {}", self.probe, map.data_type))?;
            let base = if map.over == Over::In { input } else { output };
            // The emulator's own encoding, which recorded maps of the driver are held against bit by bit: it has every type.
            let args = EncodeArgs::new(elem, base, &map.dims, &map.strides, &map.box_dims);
            params.resize(64, 0);
            params.extend(encode(&args).map_err(|e| format!("{}: {e}", self.probe))?);
        }
        Ok(params)
    }
}

/// Element `i` of the splitmix64 stream of a seed.
fn splitmix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A number format: special values, mantissa bits, bias, mask of exponents drawn, sign bit.
struct Format {
    special: [u32; 16],
    mantissa: u32,
    bias: u32,
    spread: u32,
    sign: u32,
}

#[rustfmt::skip]
const F16: Format = Format {
    special: [0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfd01, 0x3c00, 0xbc00, 0x3555, 0x0200],
    mantissa: 10, bias: 15, spread: 7, sign: 1 << 15,
};
#[rustfmt::skip]
const BF16: Format = Format {
    special: [0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffa1, 0x3f80, 0xbf80, 0x3eab, 0x0040],
    mantissa: 7, bias: 127, spread: 7, sign: 1 << 15,
};
#[rustfmt::skip]
const F32: Format = Format {
    special: [
        0, 0x8000_0000, 1, 0x8000_0001, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0xff7f_ffff,
        0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffa0_0001, 0x3f80_0000, 0xbf80_0000, 0x8040_0000, 0x0040_0000,
    ],
    mantissa: 23, bias: 127, spread: 15, sign: 1 << 31,
};
#[rustfmt::skip]
const F64: Format = Format {
    special: [
        0, 0, 0, 0, 0x8000_0000, 0x8000_0000, 1, 0x000f_ffff,
        0x0010_0000, 0x7fef_ffff, 0xffef_ffff, 0x7ff0_0000, 0xfff0_0000, 0x7ff8_0000, 0x3ff0_0000, 0xbff0_0000,
    ],
    mantissa: 20, bias: 1023, spread: 15, sign: 1 << 31,
};

impl Format {
    /// A quarter special values, a quarter any bits, half of them near 1.
    fn number(&self, raw: u32, choice: u32) -> u32 {
        match choice & 3 {
            0 => self.special[(choice >> 2 & 15) as usize],
            1 => raw,
            _ => {
                let exponent = self.bias - 4 + (choice >> 2 & self.spread);
                raw & (self.sign | ((1 << self.mantissa) - 1)) | exponent << self.mantissa
            }
        }
    }
}

impl Fill {
    fn word(self, z: u64) -> u32 {
        let (lo, hi) = (z as u32, (z >> 32) as u32);
        let pair = |f: Format| f.number(lo & 0xffff, hi & 0xffff) | f.number(lo >> 16, hi >> 16) << 16;
        match self {
            Fill::Bits => lo,
            Fill::F16 => pair(F16),
            Fill::Bf16 => pair(BF16),
            Fill::F32 => F32.number(lo, hi),
            Fill::F64 => F64.number(lo, hi),
        }
    }
}

/// Standard base64.
fn base64<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    use serde::de::Error;
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.bytes().filter(|&c| c != b'=') {
        let digit = ALPHABET.iter().position(|&a| a == c);
        bits = bits << 6 | digit.ok_or_else(|| D::Error::custom("not base64"))? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Ok(Some(out))
}
