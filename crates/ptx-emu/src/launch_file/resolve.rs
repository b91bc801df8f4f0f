//! TOML text to a [`ResolvedLaunch`].

use super::dtype::DType;
use super::resolved::*;
use super::{fill, schema};
use crate::npy;
use crate::syntax::{Source, SyntaxError};
use crate::tma::encode::{EncodeArgs, encode};
use crate::tma::tensor_map::ElemType;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Why a launch file cannot be used.
#[derive(Debug, Error)]
pub enum LaunchFileError {
    /// Something in the text.
    #[error(transparent)]
    Text(#[from] SyntaxError),
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Most bytes that the buffers of a file are filled with, all together; `zeros` and `poison` have no limit.
const MOST_BYTES: u64 = 1 << 32;
/// Strictest alignment of a buffer.
const MOST_ALIGN: u64 = 1 << 30;
/// Nesting of structs.
const DEEPEST: u32 = 8;

/// Reads a launch file.
///
/// # Errors
/// When it cannot be read or says something that cannot be.
pub fn read(path: &Path) -> Result<ResolvedLaunch, LaunchFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LaunchFileError::Io { path: path.to_path_buf(), source })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(parse(&path.to_string_lossy(), &text, folder)?)
}

/// Reads the text of a launch file called `name`, whose relative paths start at `folder`.
///
/// # Errors
/// When the text says something that cannot be, with its place.
pub fn parse(name: &str, text: &str, folder: &Path) -> Result<ResolvedLaunch, SyntaxError> {
    let mut r = Resolver {
        source: Source { name, text },
        folder,
        buffers: Vec::new(),
        by_name: HashMap::new(),
        filled: 0,
    };
    r.launch()
}

type Result_<T> = Result<T, SyntaxError>;
type Value<'t> = Spanned<DeValue<'t>>;

struct Resolver<'t> {
    source: Source<'t>,
    folder: &'t Path,
    buffers: Vec<Buffer>,
    by_name: HashMap<String, BufferId>,
    /// Bytes generated or read so far.
    filled: u64,
}

impl<'t> Resolver<'t> {
    fn error(&self, at: usize, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.source, at, message)
    }

    fn toml_error(&self, e: &toml::de::Error, fallback: usize) -> SyntaxError {
        let at = e.span().map_or(fallback, |s| s.start);
        self.error(at, e.message().lines().collect::<Vec<_>>().join("; "))
    }

    fn read<T: DeserializeOwned>(&self, table: DeTable<'t>, span: Range<usize>) -> Result_<T> {
        let value = Spanned::new(span.clone(), DeValue::Table(table));
        T::deserialize(ValueDeserializer::from(value)).map_err(|e| self.toml_error(&e, span.start))
    }

    fn read_value<T: DeserializeOwned>(&self, value: Value<'t>) -> Result_<T> {
        let start = value.span().start;
        T::deserialize(ValueDeserializer::from(value)).map_err(|e| self.toml_error(&e, start))
    }

    fn table(&self, value: Value<'t>, what: &str) -> Result_<(DeTable<'t>, Range<usize>)> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(t) => Ok((t, span)),
            _ => Err(self.error(span.start, format!("{what} must be a table, `{{ ... }}`"))),
        }
    }

    /// The elements of an optional array.
    fn list(&self, table: &mut DeTable<'t>, key: &str) -> Result_<Vec<Value<'t>>> {
        let Some(value) = table.remove(key) else { return Ok(Vec::new()) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Array(a) => Ok(a.into_iter().collect()),
            _ => Err(self.error(span.start, format!("`{key}` must be an array of tables, `[[{key}]]`"))),
        }
    }

    fn launch(&mut self) -> Result_<ResolvedLaunch> {
        let root = DeTable::parse(self.source.text).map_err(|e| self.toml_error(&e, 0))?;
        let span = root.span();
        let mut root = root.into_inner();
        let buffers = self.list(&mut root, "buffer")?;
        let params = self.list(&mut root, "param")?;
        let top: schema::Top = self.read(root, span)?;

        for b in buffers {
            let (table, span) = self.table(b, "a buffer")?;
            self.buffer(table, span)?;
        }
        let mut images = Vec::new();
        for p in params {
            let (table, span) = self.table(p, "a parameter")?;
            let (image, what) = self.item(table, span, 0)?;
            images.push(Param { image, what });
        }
        Ok(ResolvedLaunch {
            ptx: self.folder.join(top.ptx),
            entry: top.entry,
            grid: self.three(&top.grid, "grid", u32::MAX)?,
            block: self.three(&top.block, "block", 1024)?,
            cluster: top.cluster.map_or(Ok([1; 3]), |c| self.three(&c, "cluster", 16))?,
            dynamic_smem: top.dynamic_smem,
            buffers: std::mem::take(&mut self.buffers),
            params: images,
            annotations: top.annotations.into(),
        })
    }

    fn three(&self, list: &Spanned<Vec<u32>>, what: &str, most: u32) -> Result_<[u32; 3]> {
        let at = list.span().start;
        let given = list.get_ref();
        if given.is_empty() || given.len() > 3 || given.contains(&0) {
            return Err(self.error(at, format!("`{what}` must be one to three numbers above 0")));
        }
        let mut v = [1; 3];
        v[..given.len()].copy_from_slice(given);
        // Only the product is limited here; what the kernel's own directives ask is checked at launch.
        let product = v.iter().try_fold(1u32, |n, &x| n.checked_mul(x));
        if product.is_none_or(|n| n > most) {
            return Err(self.error(at, format!("`{what}` is {v:?}: the product may be at most {most}")));
        }
        Ok(v)
    }

    // ---- buffers ---------------------------------------------------------------------------------------------

    fn buffer(&mut self, mut table: DeTable<'t>, span: Range<usize>) -> Result_<BufferId> {
        if let Some(map) = table.remove("tensor_map") {
            let head: schema::MapBuffer = self.read(table, span)?;
            let image = self.tensor_map(self.read_value(map)?)?;
            let buffer = Buffer {
                name: head.name.get_ref().clone(),
                dtype: DType::U8,
                shape: vec![128],
                bytes: 128,
                align: 256,
                contents: Contents::Image(image),
                output: None,
            };
            return self.add(buffer, head.name.span().start);
        }
        let init = table.remove("init");
        let b: schema::Buffer = self.read(table, span)?;
        let at = b.shape.span().start;
        let shape = b.shape.into_inner();
        let count = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let bytes = count.and_then(|n| n.checked_mul(b.dtype.bytes())).filter(|&n| n <= 1 << 46);
        let Some(bytes) = bytes else {
            return Err(self.error(at, format!("the shape {shape:?} takes more than 64 TiB")));
        };
        // What is checked byte by byte and written to a file must fit a file.
        if b.output.is_some() && bytes > MOST_BYTES {
            let e = self.error(at, format!("an output of {bytes} bytes; at most {MOST_BYTES}"));
            return Err(e.help("leave `output` away, or make the buffer smaller"));
        }
        let align = match b.align {
            Some(a) if !a.get_ref().is_power_of_two() || *a.get_ref() > MOST_ALIGN => {
                let text = format!("`align` must be a power of two, at most {MOST_ALIGN}");
                return Err(self.error(a.span().start, text));
            }
            Some(a) => a.into_inner(),
            None => 256,
        };
        let contents = self.contents(init, b.dtype, &shape, bytes)?;
        let name_at = b.name.span().start;
        let buffer = Buffer {
            name: b.name.into_inner(),
            dtype: b.dtype,
            shape,
            bytes,
            align,
            contents,
            output: b.output.map(|o| self.folder.join(o)),
        };
        self.add(buffer, name_at)
    }

    fn add(&mut self, buffer: Buffer, at: usize) -> Result_<BufferId> {
        let id = self.buffers.len();
        if self.by_name.insert(buffer.name.clone(), id).is_some() {
            let e = self.error(at, format!("the buffer `{}` is declared twice", buffer.name));
            return Err(e.help("refer to a declared buffer by its name alone, without dtype and shape"));
        }
        self.buffers.push(buffer);
        Ok(id)
    }

    fn find(&self, name: &Spanned<String>) -> Result_<BufferId> {
        self.by_name.get(name.get_ref()).copied().ok_or_else(|| {
            let e = self.error(name.span().start, format!("no buffer is called `{}`", name.get_ref()));
            let mut known: Vec<_> = self.by_name.keys().map(|n| format!("`{n}`")).collect();
            known.sort();
            e.help(match known.is_empty() {
                true => "declare it with [[buffer]]".to_string(),
                false => format!("declared so far are {}", known.join(", ")),
            })
        })
    }

    fn contents(
        &mut self,
        init: Option<Value<'t>>,
        dtype: DType,
        shape: &[u64],
        bytes: u64,
    ) -> Result_<Contents> {
        let Some(init) = init else { return Ok(Contents::Poison) };
        let at = init.span().start;
        let count = bytes / dtype.bytes();
        let allowed = "allowed are \"poison\", \"zeros\", \"iota\" and a table with one of \
                       randn, fill, file, raw, hex";
        if let DeValue::String(word) = init.get_ref() {
            return match word.as_ref() {
                "poison" => Ok(Contents::Poison),
                "zeros" => Ok(Contents::Zeros),
                "iota" => {
                    self.limit(bytes, at)?;
                    Ok(Contents::Bytes(fill::iota(dtype, count)))
                }
                other => Err(self.error(at, format!("unknown init `{other}`: {allowed}"))),
            };
        }
        let i: schema::Init = self.read_value(init)?;
        let given = [i.randn.is_some(), i.fill.is_some(), i.file.is_some(), i.raw.is_some(), i.hex.is_some()];
        if given.iter().filter(|&&g| g).count() != 1 {
            return Err(self.error(at, format!("this init does not say what to do: {allowed}")));
        }
        if i.randn.is_none() && (i.mean.is_some() || i.scale.is_some()) {
            return Err(self.error(at, "`mean` and `scale` belong to `randn`"));
        }
        self.limit(bytes, at)?;
        if let Some(seed) = i.randn {
            let data = fill::randn(dtype, count, seed, i.mean.unwrap_or(0.0), i.scale.unwrap_or(1.0));
            return data.map(Contents::Bytes).ok_or_else(|| {
                self.error(at, format!("randn needs a floating type, not {}", dtype.name()))
                    .help("use e4m3, e5m2, f16, bf16, f32 or f64")
            });
        }
        if let Some(value) = i.fill {
            let one = self.number(dtype, &value)?;
            return Ok(Contents::Bytes(one.repeat(count as usize)));
        }
        let data = if let Some(hex) = i.hex {
            self.hex(&hex, at)?
        } else {
            let path = self.folder.join(i.file.as_ref().or(i.raw.as_ref()).map_or("", String::as_str));
            // A device, or a file of another size, is refused without reading all of it.
            let most = bytes + if i.file.is_some() { NPY_HEADER } else { 1 };
            let data =
                read_at_most(&path, most).map_err(|e| self.error(at, format!("{}: {e}", path.display())))?;
            if i.file.is_some() {
                let a = npy::read(&data).map_err(|e| self.error(at, format!("{}: {e}", path.display())))?;
                if a.ty != dtype.npy() || a.shape != shape {
                    let e = format!("{} holds {} {:?}", path.display(), a.ty, a.shape);
                    let wanted = format!("{} wants {} {shape:?}", dtype.name(), dtype.npy());
                    return Err(self.error(at, format!("{e}, but {wanted}")));
                }
                a.data
            } else {
                data
            }
        };
        if data.len() as u64 != bytes {
            return Err(self.error(at, format!("{} bytes are given, the buffer has {bytes}", data.len())));
        }
        Ok(Contents::Bytes(data))
    }

    fn limit(&mut self, bytes: u64, at: usize) -> Result_<()> {
        let all = self.filled.saturating_add(bytes);
        if all <= MOST_BYTES {
            self.filled = all;
            return Ok(());
        }
        let before = if self.filled > 0 { format!(", and {} before", self.filled) } else { String::new() };
        let text = format!("{bytes} bytes{before} are too many to fill; at most {MOST_BYTES} in all");
        let e = self.error(at, text);
        Err(e.help("use \"zeros\" or \"poison\", which cost nothing until touched"))
    }

    // ---- parameters and fields -------------------------------------------------------------------------------

    /// A parameter, or a field of a struct: its bytes and what to call it.
    fn item(&mut self, mut table: DeTable<'t>, span: Range<usize>, depth: u32) -> Result_<(Image, String)> {
        let Some(kind) = table.remove("kind") else {
            let e = self.error(span.start, "missing field `kind`");
            return Err(e.help("one of \"scalar\", \"buffer\", \"raw\", \"tensor_map\", \"struct\""));
        };
        let kind: schema::Kind = self.read_value(kind)?;
        match kind {
            schema::Kind::Scalar => {
                let s: schema::Scalar = self.read(table, span)?;
                let bytes = self.number(s.ty, &s.value)?;
                Ok((Image { bytes, ..Image::default() }, format!("scalar of type {}", s.ty.name())))
            }
            schema::Kind::Buffer => {
                let (id, addend) = if table.contains_key("dtype") || table.contains_key("shape") {
                    (self.buffer(table, span)?, 0)
                } else {
                    let r: schema::BufferReference = self.read(table, span)?;
                    (self.find(&r.name)?, r.addend)
                };
                let patches = vec![Patch { offset: 0, buffer: id, addend }];
                let what = format!("address of `{}`", self.buffers[id].name);
                Ok((Image { bytes: vec![0; 8], patches, maps: Vec::new() }, what))
            }
            schema::Kind::Raw => Ok((self.raw(self.read(table, span)?)?, "raw value".to_string())),
            schema::Kind::TensorMap => {
                Ok((self.tensor_map(self.read(table, span)?)?, "tensor map".to_string()))
            }
            schema::Kind::Struct => {
                if depth >= DEEPEST {
                    return Err(self.error(span.start, format!("more than {DEEPEST} nested structs")));
                }
                let fields = self.list(&mut table, "fields")?;
                let s: schema::Struct = self.read(table, span)?;
                Ok((self.structure(&s, fields, depth)?, "struct".to_string()))
            }
        }
    }

    fn structure(&mut self, s: &schema::Struct, fields: Vec<Value<'t>>, depth: u32) -> Result_<Image> {
        // The parameter space of a kernel holds 32,764 bytes.
        let size = *s.size.get_ref();
        if size > 32_764 {
            return Err(self.error(s.size.span().start, "a kernel's parameters take at most 32764 bytes"));
        }
        let mut image = Image { bytes: vec![0; size as usize], ..Image::default() };
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for field in fields {
            let (mut table, span) = self.table(field, "a field")?;
            let at = span.start;
            let Some(offset) = table.remove("offset") else {
                return Err(self.error(at, "missing field `offset`: where in the struct it stands, in bytes"));
            };
            let offset: u64 = self.read_value(offset)?;
            let (part, what) = self.item(table, span, depth + 1)?;
            let start = offset.min(size) as usize;
            let end = start + part.bytes.len();
            if offset > size || end > image.bytes.len() {
                let len = part.bytes.len();
                return Err(self.error(
                    at,
                    format!("{len} bytes at offset {offset} end outside the struct of {size} bytes"),
                ));
            }
            if taken.iter().any(|&(s, e)| start < e && s < end) {
                return Err(self.error(at, format!("the {what} at offset {offset} overlaps another field")));
            }
            taken.push((start, end));
            image.bytes[start..end].copy_from_slice(&part.bytes);
            image.patches.extend(part.patches.into_iter().map(|p| Patch { offset: p.offset + start, ..p }));
            image.maps.extend(part.maps.into_iter().map(|m| MapPatch { offset: m.offset + start, ..m }));
        }
        Ok(image)
    }

    fn raw(&self, r: schema::Raw) -> Result_<Image> {
        let bytes = self.hex(r.bytes.get_ref(), r.bytes.span().start)?;
        let mut patches = Vec::new();
        for p in r.patches {
            let at = p.span().start;
            let p = p.into_inner();
            if p.offset.checked_add(8).is_none_or(|end| end > bytes.len() as u64) {
                return Err(self.error(
                    at,
                    format!(
                        "an address at offset {} ends outside the {} bytes of this parameter",
                        p.offset,
                        bytes.len()
                    ),
                ));
            }
            let buffer = self.find(&p.buffer)?;
            patches.push(Patch { offset: p.offset as usize, buffer, addend: p.addend });
        }
        Ok(Image { bytes, patches, maps: Vec::new() })
    }

    fn tensor_map(&self, m: schema::TensorMap) -> Result_<Image> {
        let buffer = self.find(&m.buffer)?;
        let at = m.buffer.span().start;
        let rank = m.dims.len();
        let lists = [
            ("strides", m.strides.len(), rank.saturating_sub(1)),
            ("box", m.boxes.len(), rank),
            ("element_strides", m.element_strides.as_ref().map_or(rank, Vec::len), rank),
        ];
        for (name, given, wanted) in lists {
            if given != wanted {
                let e = self.error(at, format!("`{name}` has {given} entries; {rank} dims ask for {wanted}"));
                return Err(e);
            }
        }
        use schema::MapType as T;
        let elem = match m.dtype {
            T::U8 => ElemType::U8,
            T::U16 => ElemType::U16,
            T::U32 => ElemType::U32,
            T::I32 => ElemType::S32,
            T::U64 => ElemType::U64,
            T::I64 => ElemType::S64,
            T::F16 => ElemType::F16,
            T::Bf16 => ElemType::BF16,
            T::F32 => ElemType::F32,
            T::F32Ftz => ElemType::F32Ftz,
            T::F64 => ElemType::F64,
            T::Tf32 => ElemType::Tf32,
            T::Tf32Ftz => ElemType::Tf32Ftz,
        };
        let mut args = EncodeArgs::new(elem, 0, &m.dims, &m.strides, &m.boxes);
        args.swizzle = m.swizzle as u32;
        args.interleave = m.interleave as u32;
        args.oob_fill = m.fill as u32;
        args.l2_promotion = m.l2 as u32;
        args.element_strides = m.element_strides.unwrap_or_else(|| vec![1; rank]);
        // Everything but the address can be checked now, while the place in the file is known.
        encode(&args).map_err(|e| self.error(at, format!("this tensor map cannot be encoded: {e}")))?;
        let maps = vec![MapPatch { offset: 0, buffer, addend: m.addend, args }];
        Ok(Image { bytes: vec![0; 128], patches: Vec::new(), maps })
    }

    // ---- values ----------------------------------------------------------------------------------------------

    fn number(&self, ty: DType, value: &Spanned<toml::Value>) -> Result_<Vec<u8>> {
        let mut out = Vec::new();
        let done = match value.get_ref() {
            toml::Value::Integer(v) => ty.put_integer(i128::from(*v), &mut out),
            toml::Value::Boolean(v) => ty.put_integer(i128::from(*v), &mut out),
            toml::Value::Float(v) => ty.put_float(*v, &mut out),
            toml::Value::String(s) => match integer(s) {
                Some(v) => ty.put_integer(v, &mut out),
                None => s.parse().ok().and_then(|v: f64| ty.put_float(v, &mut out)),
            },
            _ => None,
        };
        if done.is_some() {
            return Ok(out);
        }
        let allowed = match ty.range() {
            Some((least, most)) => format!("an integer from {least} to {most}"),
            None => "a number".to_string(),
        };
        let e = format!("{} is no value of type {}: expected {allowed}", value.get_ref(), ty.name());
        Err(self.error(value.span().start, e))
    }

    fn hex(&self, text: &str, at: usize) -> Result_<Vec<u8>> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let value = |d: u8| (d as char).to_digit(16).map(|d| d as u8);
        let pairs = digits.chunks(2).map(|p| Some(value(p[0])? << 4 | value(*p.get(1)?)?));
        pairs.collect::<Option<_>>().ok_or_else(|| {
            self.error(at, "not bytes in hexadecimal: expected pairs of digits 0-9 a-f, spaces allowed")
        })
    }
}

/// An integer as TOML cannot spell it: up to 128 bits, `0x`, `0b`, with a sign.
fn integer(s: &str) -> Option<i128> {
    let (negative, s) = s.strip_prefix('-').map_or((false, s), |s| (true, s));
    let v = match (s.strip_prefix("0x"), s.strip_prefix("0b")) {
        (Some(hex), _) => i128::from_str_radix(hex, 16),
        (_, Some(binary)) => i128::from_str_radix(binary, 2),
        _ => s.parse(),
    };
    v.ok().map(|v| if negative { -v } else { v })
}

/// More than the header of any `.npy` file that has the shape of a buffer.
const NPY_HEADER: u64 = 1 << 20;

/// The first `most` bytes of a file.
fn read_at_most(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut data)?;
    Ok(data)
}
