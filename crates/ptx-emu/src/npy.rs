//! NumPy's `.npy` files: little-endian numbers in C order, format versions 1 to 3.
//!
//! Types that NumPy does not have (bf16, fp8) are stored as u16 and u8; what they mean is said by whoever names
//! the file.

use std::fmt;
use thiserror::Error;

/// Element types of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NpyType {
    /// `|u1`
    U8,
    /// `|i1`
    I8,
    /// `<u2`
    U16,
    /// `<i2`
    I16,
    /// `<u4`
    U32,
    /// `<i4`
    I32,
    /// `<u8`
    U64,
    /// `<i8`
    I64,
    /// `<f2`
    F16,
    /// `<f4`
    F32,
    /// `<f8`
    F64,
}

use NpyType::*;

impl NpyType {
    /// All types.
    pub const ALL: [NpyType; 11] = [U8, I8, U16, I16, U32, I32, U64, I64, F16, F32, F64];

    /// NumPy's spelling.
    pub fn descr(self) -> &'static str {
        match self {
            U8 => "|u1",
            I8 => "|i1",
            U16 => "<u2",
            I16 => "<i2",
            U32 => "<u4",
            I32 => "<i4",
            U64 => "<u8",
            I64 => "<i8",
            F16 => "<f2",
            F32 => "<f4",
            F64 => "<f8",
        }
    }

    /// Size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            U8 | I8 => 1,
            U16 | I16 | F16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
        }
    }
}

impl fmt::Display for NpyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.descr())
    }
}

/// An array: `data` holds its elements in C order, little-endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// Element type.
    pub ty: NpyType,
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Elements.
    pub data: Vec<u8>,
}

/// Why bytes are not a `.npy` file that can be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NpyError {
    /// The magic bytes are missing.
    #[error("not a .npy file: it does not begin with \\x93NUMPY")]
    Magic,
    /// A format version other than 1, 2, 3.
    #[error("format version {0}.{1} of .npy is unknown; allowed are 1.0, 2.0 and 3.0")]
    Version(u8, u8),
    /// The header or the data end early.
    #[error("the file is cut off: {what} needs {needed} bytes, {found} are there")]
    Short {
        /// Header or data.
        what: &'static str,
        /// Bytes needed.
        needed: u64,
        /// Bytes found.
        found: u64,
    },
    /// More data than the shape holds.
    #[error("{0} bytes follow the data; the header's shape does not fit the file")]
    Long(u64),
    /// The header is not the dictionary that NumPy writes.
    #[error("the header is not the dictionary that NumPy writes ({0}): {1}")]
    Header(&'static str, String),
    /// An element type that is not supported.
    #[error(
        "element type {0} is not supported; allowed are |u1 |i1 <u2 <i2 <u4 <i4 <u8 <i8 <f2 <f4 <f8 \
         (store bf16 as <u2 and fp8 as |u1)"
    )]
    Type(String),
    /// Fortran order.
    #[error("the array is in Fortran order; save numpy.ascontiguousarray(x) instead")]
    Fortran,
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a file.
///
/// # Errors
/// When the bytes are no `.npy` file, or hold what is not supported.
pub fn read(bytes: &[u8]) -> Result<Array, NpyError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
    let short = |what, needed: usize, found: usize| NpyError::Short {
        what,
        needed: needed as u64,
        found: found as u64,
    };
    let (&[major, minor], rest) = rest.split_first_chunk().ok_or(short("the version", 2, rest.len()))?;
    let (len, rest) = match (major, minor) {
        (1, 0) => match rest.split_first_chunk::<2>() {
            Some((n, rest)) => (usize::from(u16::from_le_bytes(*n)), rest),
            None => return Err(short("the header's length", 2, rest.len())),
        },
        (2 | 3, 0) => match rest.split_first_chunk::<4>() {
            Some((n, rest)) => (u32::from_le_bytes(*n) as usize, rest),
            None => return Err(short("the header's length", 4, rest.len())),
        },
        _ => return Err(NpyError::Version(major, minor)),
    };
    if rest.len() < len {
        return Err(short("the header", len, rest.len()));
    }
    let (header, data) = rest.split_at(len);
    let (ty, shape) = parse_header(&String::from_utf8_lossy(header))?;
    let needed = shape.iter().try_fold(ty.bytes() as u64, |n, &d| n.checked_mul(d)).unwrap_or(u64::MAX);
    let found = data.len() as u64;
    if found < needed {
        return Err(NpyError::Short { what: "the data", needed, found });
    }
    if found > needed {
        return Err(NpyError::Long(found - needed));
    }
    Ok(Array { ty, shape, data: data.to_vec() })
}

/// Writes a file (version 1.0, or 2.0 where the header is too long for it), byte for byte as NumPy does.
pub fn write(array: &Array) -> Vec<u8> {
    let mut shape = array.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    if array.shape.len() == 1 {
        shape.push(',');
    }
    let mut header =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}", array.ty.descr());
    // Data begins at a multiple of 64; the header ends with a line feed.
    let long = header.len() + 64 > usize::from(u16::MAX);
    let before = MAGIC.len() + 2 + if long { 4 } else { 2 };
    let padded = (before + header.len() + 1).next_multiple_of(64) - before;
    header.extend(std::iter::repeat_n(' ', padded - header.len() - 1));
    header.push('\n');

    let mut out = Vec::with_capacity(before + header.len() + array.data.len());
    out.extend(MAGIC);
    if long {
        out.extend([2, 0]);
        out.extend((header.len() as u32).to_le_bytes());
    } else {
        out.extend([1, 0]);
        out.extend((header.len() as u16).to_le_bytes());
    }
    out.extend(header.as_bytes());
    out.extend(&array.data);
    out
}

/// The value after `'key':`, up to where it ends.
fn value<'a>(header: &'a str, key: &'static str) -> Result<&'a str, NpyError> {
    let missing = || NpyError::Header(key, header.trim().chars().take(120).collect());
    let quoted = [format!("'{key}'"), format!("\"{key}\"")];
    let at = quoted.iter().find_map(|q| header.find(q.as_str()).map(|i| i + q.len())).ok_or_else(missing)?;
    let rest = header[at..].trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start();
    let end = match rest.chars().next() {
        Some('(') => rest.find(')').map(|i| i + 1),
        Some(q @ ('\'' | '"')) => rest[1..].find(q).map(|i| i + 2),
        // A list: a structured type.
        Some('[') => rest.find(']').map(|i| i + 1),
        _ => rest.find([',', '}']),
    };
    Ok(&rest[..end.ok_or_else(missing)?])
}

fn parse_header(header: &str) -> Result<(NpyType, Vec<u64>), NpyError> {
    let descr = value(header, "descr")?;
    let plain = descr.trim_matches(['\'', '"']);
    let ty = NpyType::ALL
        .into_iter()
        // Byte order means nothing for one byte.
        .find(|t| {
            t.descr() == plain
                || (t.bytes() == 1 && t.descr()[1..] == *plain.trim_start_matches(['<', '>', '=']))
        })
        .ok_or_else(|| NpyError::Type(descr.to_string()))?;
    match value(header, "fortran_order")?.trim() {
        "False" => {}
        "True" => return Err(NpyError::Fortran),
        other => return Err(NpyError::Header("fortran_order", other.to_string())),
    }
    let shape = value(header, "shape")?;
    let bad = || NpyError::Header("shape", shape.to_string());
    let inner = shape.strip_prefix('(').and_then(|s| s.strip_suffix(')')).ok_or_else(bad)?;
    let extents = inner.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape = extents.map(|s| s.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
    Ok((ty, shape))
}
