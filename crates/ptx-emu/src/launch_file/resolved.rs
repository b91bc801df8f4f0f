//! A launch ready to run, but for the addresses of its buffers.

use super::dtype::DType;
use crate::launch::Annotations;
use crate::syntax::ast::Function;
use crate::tma::encode::{EncodeArgs, EncodeError, encode};
use std::path::PathBuf;
use thiserror::Error;

/// Index into [`ResolvedLaunch::buffers`].
pub type BufferId = usize;

/// Everything a launch file says.
#[derive(Clone, PartialEq, Debug)]
pub struct ResolvedLaunch {
    /// The PTX file.
    pub ptx: PathBuf,
    /// The kernel; `None` = the only one of the file.
    pub entry: Option<String>,
    /// CTAs in the grid.
    pub grid: [u32; 3],
    /// Threads in a CTA.
    pub block: [u32; 3],
    /// CTAs in a cluster.
    pub cluster: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic_smem: u32,
    /// Allocations in global memory, in order of declaration.
    pub buffers: Vec<Buffer>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Names and declared roles, for reports and the role check.
    pub annotations: Annotations,
}

/// One allocation in global memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    /// Name, for messages and references.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// What it holds at the start.
    pub contents: Contents,
    /// Where to write it as `.npy` after the run; such a buffer must be defined throughout then.
    pub output: Option<PathBuf>,
}

/// Contents of a buffer before the run.
#[derive(Clone, PartialEq, Debug)]
pub enum Contents {
    /// Undefined: an error to depend on.
    Poison,
    /// Zeros.
    Zeros,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Bytes that hold addresses of buffers (a tensor map).
    Image(Image),
}

/// One parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its bytes.
    pub image: Image,
    /// What the launch file calls it, for messages.
    pub what: String,
}

/// Bytes that hold addresses of buffers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Image {
    /// The bytes, zero where an address or a map comes.
    pub bytes: Vec<u8>,
    /// 64-bit addresses to write.
    pub patches: Vec<Patch>,
    /// Tensor maps to write.
    pub maps: Vec<MapPatch>,
}

/// The address of a buffer, 8 bytes little-endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Where in the image.
    pub offset: usize,
    /// Which buffer.
    pub buffer: BufferId,
    /// Bytes added to its address.
    pub addend: i64,
}

/// A tensor map of a buffer, 128 bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct MapPatch {
    /// Where in the image.
    pub offset: usize,
    /// Which buffer.
    pub buffer: BufferId,
    /// Bytes added to its address.
    pub addend: i64,
    /// The rest of the arguments (`global_address` is filled in).
    pub args: EncodeArgs,
}

/// Why a launch does not fit its kernel.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum FitError {
    /// Wrong number of parameters.
    #[error("the kernel `{kernel}` takes {wanted} parameters, the launch file gives {given}")]
    Count {
        /// Kernel.
        kernel: String,
        /// Parameters it declares.
        wanted: usize,
        /// Parameters given.
        given: usize,
    },
    /// Wrong size of a parameter.
    #[error(
        "parameter {index} (`{name}`) of `{kernel}` takes {wanted} bytes, the launch file's {what} has {given}"
    )]
    Size {
        /// Kernel.
        kernel: String,
        /// 0-based.
        index: usize,
        /// Name in the PTX.
        name: String,
        /// Bytes declared.
        wanted: u32,
        /// What the launch file gives.
        what: String,
        /// Bytes given.
        given: usize,
    },
    /// The tensor map cannot be encoded.
    #[error("the tensor map of `{buffer}`: {source}")]
    Map {
        /// Buffer.
        buffer: String,
        /// Which argument and why.
        source: EncodeError,
    },
}

impl ResolvedLaunch {
    /// The bytes of an image, given the address of every buffer.
    ///
    /// # Errors
    /// When the encoder refuses a tensor map (only an address can be at fault: the rest was checked on reading).
    ///
    /// # Panics
    /// When `addresses` has fewer entries than there are buffers.
    pub fn resolve(&self, image: &Image, addresses: &[u64]) -> Result<Vec<u8>, FitError> {
        let mut bytes = image.bytes.clone();
        for p in &image.patches {
            let address = addresses[p.buffer].wrapping_add_signed(p.addend);
            bytes[p.offset..p.offset + 8].copy_from_slice(&address.to_le_bytes());
        }
        for m in &image.maps {
            let mut args = m.args.clone();
            args.global_address = addresses[m.buffer].wrapping_add_signed(m.addend);
            let map = encode(&args)
                .map_err(|source| FitError::Map { buffer: self.buffers[m.buffer].name.clone(), source })?;
            bytes[m.offset..m.offset + 128].copy_from_slice(&map);
        }
        Ok(bytes)
    }

    /// The parameter buffer of `kernel`, given the address of every buffer.
    ///
    /// # Errors
    /// When number or size of the parameters differ from the kernel's declaration.
    ///
    /// # Panics
    /// As [`ResolvedLaunch::resolve`].
    pub fn param_buffer(&self, kernel: &Function, addresses: &[u64]) -> Result<Vec<u8>, FitError> {
        let (wanted, given) = (kernel.params.len(), self.params.len());
        if wanted != given {
            return Err(FitError::Count { kernel: kernel.name.clone(), wanted, given });
        }
        let mut buffer = Vec::new();
        for (index, (declared, param)) in kernel.params.iter().zip(&self.params).enumerate() {
            let bytes = self.resolve(&param.image, addresses)?;
            if bytes.len() != declared.size as usize {
                return Err(FitError::Size {
                    kernel: kernel.name.clone(),
                    index,
                    name: declared.name.clone(),
                    wanted: declared.size,
                    what: param.what.clone(),
                    given: bytes.len(),
                });
            }
            let offset = declared.offset as usize;
            buffer.resize(offset, 0);
            buffer.extend(bytes);
        }
        Ok(buffer)
    }
}
