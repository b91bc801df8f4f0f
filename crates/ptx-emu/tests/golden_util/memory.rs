//! Global memory and the parameter buffer of a test, and the comparison of its outputs.

use super::case::{Header, Param};
use super::expr::Formula;
use ptx_emu::GlobalMemory;
use ptx_emu::launch_file::DType;
use ptx_emu::syntax::ast::Function;
use ptx_emu::tma::ElemType;
use ptx_emu::tma::encode::{EncodeArgs, encode};
use serde::Deserialize;
use std::collections::BTreeMap;

type Res<T> = Result<T, String>;

/// A buffer in global memory.
pub struct Buffer {
    name: String,
    ty: DType,
    addr: u64,
    expect: Option<Vec<u8>>,
}

/// Initial and expected bytes of every buffer, computed once for all runs of a revision.
pub struct Images(BTreeMap<String, Image>);

struct Image {
    ty: DType,
    len: usize,
    init: Option<Vec<u8>>,
    expect: Option<Vec<u8>>,
}

/// What a launch needs besides the module.
pub struct Memory {
    pub gmem: GlobalMemory,
    pub params: Vec<u8>,
    pub buffers: Vec<Buffer>,
}

/// `u32[32]`.
fn shape(text: &str) -> Res<(DType, usize)> {
    let bad = || format!("`{text}` is not of the form u32[32]");
    let (ty, n) = text.strip_suffix(']').and_then(|t| t.split_once('[')).ok_or_else(bad)?;
    let ty = DType::deserialize(toml::Value::String(ty.into())).map_err(|_| bad())?;
    Ok((ty, n.parse().map_err(|_| bad())?))
}

/// Bytes of `n` values: a formula of `i`, or a list.
fn bytes(ty: DType, n: usize, v: &toml::Value) -> Res<Vec<u8>> {
    let mut out = Vec::new();
    let too_big = || format!("a value does not fit {}", ty.name());
    match v {
        toml::Value::String(s) => {
            let f = Formula::parse(s)?;
            for i in 0..n {
                ty.put_integer(i128::from(f.at(i as i64)?), &mut out).ok_or_else(too_big)?;
            }
        }
        toml::Value::Array(a) if a.len() == n => {
            for x in a {
                match x {
                    toml::Value::Integer(x) => ty.put_integer(i128::from(*x), &mut out),
                    toml::Value::Float(x) => ty.put_float(*x, &mut out),
                    _ => None,
                }
                .ok_or_else(too_big)?;
            }
        }
        toml::Value::Array(a) => return Err(format!("{} values for {n} elements", a.len())),
        _ => return Err("values are a formula or a list".into()),
    }
    Ok(out)
}

fn elem(ty: DType) -> Res<ElemType> {
    Ok(match ty {
        DType::U8 | DType::E4m3 | DType::E5m2 => ElemType::U8,
        DType::U16 => ElemType::U16,
        DType::U32 => ElemType::U32,
        DType::I32 => ElemType::S32,
        DType::U64 => ElemType::U64,
        DType::I64 => ElemType::S64,
        DType::F16 => ElemType::F16,
        DType::Bf16 => ElemType::BF16,
        DType::F32 => ElemType::F32,
        DType::F64 => ElemType::F64,
        _ => return Err(format!("no tensor map of {}", ty.name())),
    })
}

fn tensor_map(p: &Param, of: &Buffer) -> Res<[u8; 128]> {
    let mut strides = p.strides.clone();
    let mut dense = of.ty.bytes();
    for d in p.dims.iter().take(p.dims.len().saturating_sub(1)) {
        dense *= d;
        if p.strides.is_empty() {
            strides.push(dense);
        }
    }
    if p.strides.is_empty() {
        strides.truncate(p.dims.len().saturating_sub(1));
    }
    let mut a = EncodeArgs::new(elem(of.ty)?, of.addr, &p.dims, &strides, &p.boxes);
    a.swizzle = p.swizzle;
    a.oob_fill = u32::from(p.nan_fill);
    if !p.element_strides.is_empty() {
        a.element_strides = p.element_strides.clone();
    }
    encode(&a).map_err(|e| e.to_string())
}

impl Images {
    /// Evaluates the formulas of a header.
    pub fn new(h: &Header) -> Res<Images> {
        let mut images = BTreeMap::new();
        for (name, p) in h.param.iter().chain(&h.buffer) {
            let Some(text) = &p.ptr else { continue };
            let (ty, len) = shape(text)?;
            if p.init.is_none() && p.expect.is_none() {
                return Err(format!("buffer `{name}` has neither init nor expect"));
            }
            let eval = |what: &str, v: &Option<toml::Value>| {
                let image = v.as_ref().map(|v| bytes(ty, len, v)).transpose();
                image.map_err(|e| format!("{what} of `{name}`: {e}"))
            };
            let init = p.init.clone().filter(|v| v.as_str() != Some("undefined"));
            let image = Image { ty, len, init: eval("init", &init)?, expect: eval("expect", &p.expect)? };
            if images.insert(name.clone(), image).is_some() {
                return Err(format!("two buffers `{name}`"));
            }
        }
        Ok(Images(images))
    }
}

impl Memory {
    /// Allocates what the header declares and lays out the parameters of `f`.
    pub fn new(h: &Header, images: &Images, f: &Function) -> Res<Memory> {
        let mut m = Memory { gmem: GlobalMemory::new(), params: vec![], buffers: vec![] };
        for (name, image) in &images.0 {
            let addr = m.gmem.alloc(name, image.len as u64 * image.ty.bytes(), 256);
            if let Some(data) = &image.init {
                m.gmem.write(addr, data).map_err(|e| e.to_string())?;
            }
            let expect = image.expect.clone();
            m.buffers.push(Buffer { name: name.clone(), ty: image.ty, addr, expect });
        }
        if let Some(name) = h.param.keys().find(|n| !f.params.iter().any(|p| p.name == **n)) {
            return Err(format!("the kernel has no parameter `{name}`"));
        }
        for p in &f.params {
            let Some(spec) = h.param.get(&p.name) else {
                return Err(format!("the header says nothing of parameter `{}`", p.name));
            };
            let data = m.param(&p.name, spec, p.size as usize)?;
            let Some(data) = data.get(..p.size as usize) else {
                return Err(format!(
                    "parameter `{}` has {} bytes, the header gives {}",
                    p.name,
                    p.size,
                    data.len()
                ));
            };
            m.params.resize(p.offset as usize, 0);
            m.params.extend(data);
        }
        Ok(m)
    }

    fn param(&mut self, name: &str, p: &Param, size: usize) -> Res<Vec<u8>> {
        let word = |v: u64| v.to_le_bytes()[..size.min(8)].to_vec();
        if let Some(of) = &p.map {
            let b = self.buffers.iter().find(|b| b.name == *of);
            let map = tensor_map(p, b.ok_or_else(|| format!("map of unknown buffer `{of}`"))?)?;
            if !p.global {
                return Ok(map.to_vec());
            }
            let addr = self.gmem.alloc(name, 128, 256);
            self.gmem.write(addr, &map).map_err(|e| e.to_string())?;
            return Ok(word(addr));
        }
        match (p.value, self.buffers.iter().find(|b| b.name == name)) {
            (Some(v), None) => Ok(word(v as u64)),
            (None, Some(b)) => Ok(word(b.addr)),
            _ => Err(format!("parameter `{name}` needs one of value, ptr, map")),
        }
    }

    /// Ranges of the declared outputs.
    pub fn outputs(&self) -> Vec<(u64, u64)> {
        self.buffers.iter().filter_map(|b| Some((b.addr, b.expect.as_ref()?.len() as u64))).collect()
    }

    /// The first output element that differs from its expectation, in words.
    pub fn difference(&self) -> Option<String> {
        self.buffers.iter().find_map(|b| {
            let want = b.expect.as_ref()?;
            let got = self.gmem.read(b.addr, want.len()).ok()?;
            let n = b.ty.bytes() as usize;
            let i = (0..want.len() / n).find(|i| got[i * n..][..n] != want[i * n..][..n])?;
            let hex = |v: &[u8]| v[i * n..][..n].iter().rev().map(|x| format!("{x:02x}")).collect::<String>();
            Some(format!("{}[{i}] is 0x{}, expected 0x{} ({})", b.name, hex(&got), hex(want), b.ty.name()))
        })
    }
}
