//! Triton's launch convention: from named arguments to the kernel's parameter list.

use ptx_emu::tma::{ElemType, EncodeArgs, encode};

use super::Error;
use super::catalog::{Kernel, MapMeta};
use super::inputs::{Buffer, Setup};
use super::launch::Device;

/// Value of a named parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// `i32`.
    I32(i32),
    /// `fp32`.
    F32(f32),
    /// Buffer by index: its address for a `*T`, a tensor map over it for a `tensordesc`.
    Buffer(usize),
}

/// One PTX parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Required alignment in bytes.
    pub align: usize,
    /// Value, little-endian.
    pub bytes: Vec<u8>,
}

impl Param {
    fn scalar(bytes: &[u8]) -> Self {
        Self { align: bytes.len(), bytes: bytes.to_vec() }
    }
}

/// Lays out the parameters of `kernel`: the signature's in order, then global scratch and profile scratch. Scratch that the
/// kernel wants is allocated here, undefined.
///
/// # Errors
/// [`Error::Parameter`] where `setup` has no fitting value or its tensor map cannot be encoded; [`Error::Fault`] where the
/// device cannot allocate scratch.
pub fn pack(
    kernel: &Kernel,
    setup: &Setup,
    addresses: &[u64],
    device: &mut impl Device,
) -> Result<Vec<Param>, Error> {
    let meta = &kernel.meta;
    let mut maps = meta.tensor_maps.iter();
    let mut params = vec![];
    for (name, ty) in &meta.signature {
        let problem = |reason: &str| Error::Parameter {
            kernel: kernel.name.into(),
            parameter: name.clone(),
            reason: reason.into(),
        };
        let arg = setup.arg(name).ok_or_else(|| problem("the case gives it no value"))?;
        match (ty.as_str(), arg) {
            ("i32", Arg::I32(value)) => params.push(Param::scalar(&value.to_le_bytes())),
            ("fp32", Arg::F32(value)) => params.push(Param::scalar(&value.to_le_bytes())),
            (ty, Arg::Buffer(index)) if ty.starts_with('*') => {
                params.push(Param::scalar(&addresses[index].to_le_bytes()));
            }
            (ty, Arg::Buffer(index)) if ty.starts_with("tensordesc<") => {
                let map = maps.next().ok_or_else(|| problem("tensor_maps has no entry for it"))?;
                params
                    .extend(describe(map, &setup.buffers[index], addresses[index]).map_err(|e| problem(&e))?);
            }
            (ty, arg) => return Err(problem(&format!("the case gives {arg:?} for a {ty}"))),
        }
    }
    let ctas = setup.grid.iter().map(|&n| u64::from(n)).product::<u64>() * u64::from(meta.num_ctas);
    let scratch = match meta.global_scratch_size {
        0 => 0,
        bytes => device.alloc("global_scratch", (bytes * ctas) as usize)?,
    };
    params.push(Param::scalar(&scratch.to_le_bytes()));
    params.push(Param::scalar(&0u64.to_le_bytes()));
    Ok(params)
}

/// The parameter buffer: each parameter at the next multiple of its alignment.
pub fn lay_out(params: &[Param]) -> Vec<u8> {
    let mut buffer = vec![];
    for param in params {
        buffer.resize(buffer.len().next_multiple_of(param.align), 0);
        buffer.extend(&param.bytes);
    }
    buffer
}

/// A host tensor descriptor: 128-byte map, i32 shape, i64 strides in elements; shape and strides outermost first.
fn describe(meta: &MapMeta, buffer: &Buffer, address: u64) -> Result<Vec<Param>, String> {
    let (rows, columns) = (buffer.rows as u64, buffer.columns as u64);
    let elem = ElemType::from_ptx(meta.elem_type.into()).ok_or("tensor_maps has an unknown elem_type")?;
    let innermost_first: Vec<u32> = meta.block_size.iter().rev().copied().collect();
    let pitch = columns * u64::from(meta.elem_size);
    let mut args = EncodeArgs::new(elem, address, &[columns, rows], &[pitch], &innermost_first);
    args.swizzle = meta.swizzle.into();
    args.l2_promotion = L2_PROMOTION_128B;
    let map = encode(&args).map_err(|e| e.to_string())?;
    let shape = [rows as u32, columns as u32].map(|n| Param::scalar(&n.to_le_bytes()));
    let strides = [columns, 1].map(|n| Param::scalar(&n.to_le_bytes()));
    Ok([Param { align: 64, bytes: map.to_vec() }].into_iter().chain(shape).chain(strides).collect())
}

/// What Triton's launcher asks for.
const L2_PROMOTION_128B: u32 = 2;
