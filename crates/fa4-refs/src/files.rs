//! Inputs as raw files, byte for byte what our own kernels read, strides and gaps included; outputs as raw files.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fa4_spec::DType;
use fa4_spec::qdist::{Inputs, Placed};
use fa4_spec::tensor::{Layout, rows};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::RefError;

/// A buffer in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferFile {
    /// `q`, `k`, `v`, `qkv`.
    pub name: String,
    /// Absolute path.
    pub path: PathBuf,
    /// Size.
    pub bytes: u64,
}

/// A tensor in a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Index into [`Description::buffers`].
    pub buffer: usize,
    /// Storage format.
    pub dtype: DType,
    /// Bytes from the start of the buffer to element (0, 0, 0, 0).
    pub offset_bytes: u64,
    /// Batch, seqlen, heads, dim.
    pub shape: [u64; 4],
    /// Elements from one index to the next, for each of them.
    pub strides: [u64; 4],
}

/// All that a child needs to load the inputs of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Differs for different data: a child may keep tensors of the same id.
    pub id: String,
    /// Files.
    pub buffers: Vec<BufferFile>,
    /// Queries.
    pub q: View,
    /// Keys.
    pub k: View,
    /// Values.
    pub v: View,
    /// One logit per query head, where the problem has sinks.
    pub sinks: Option<Vec<f32>>,
}

/// Inputs in files, deleted with this value.
#[derive(Debug)]
pub struct InputFiles {
    /// What is where.
    pub description: Description,
    _dir: TempDir,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl InputFiles {
    /// Writes `inputs` of a problem with `batch` entries into a folder of its own below `parent`. Refuses more than
    /// `limit_bytes`: a case made to overflow 32-bit addresses spans more than a disk.
    pub fn write(
        inputs: &Inputs,
        batch: u64,
        parent: &Path,
        limit_bytes: u64,
    ) -> Result<Arc<Self>, RefError> {
        let total = inputs.buffers.iter().map(|buffer| buffer.bytes).fold(0u64, u64::saturating_add);
        if total > limit_bytes {
            return Err(RefError::TooLarge { bytes: total, limit: limit_bytes });
        }
        Self::write_images(inputs, &images(inputs), batch, parent)
    }

    /// The same of [`images`] that are there already.
    pub fn write_images(
        inputs: &Inputs,
        images: &[Vec<u8>],
        batch: u64,
        parent: &Path,
    ) -> Result<Arc<Self>, RefError> {
        let dir = tempfile::Builder::new()
            .prefix("fa4-inputs-")
            .tempdir_in(parent)
            .map_err(|error| RefError::Io { what: "create a folder in", path: parent.into(), error })?;
        let mut buffers = Vec::new();
        for (buffer, image) in inputs.buffers.iter().zip(images) {
            let path = dir.path().join(format!("{}.bin", buffer.name));
            write_all(&path, image).map_err(|error| RefError::Io {
                what: "write",
                path: path.clone(),
                error,
            })?;
            buffers.push(BufferFile { name: buffer.name.into(), path, bytes: buffer.bytes });
        }
        let id = format!("{}-{}", std::process::id(), NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let description = Description {
            id,
            buffers,
            q: view(&inputs.q, batch),
            k: view(&inputs.k, batch),
            v: view(&inputs.v, batch),
            sinks: inputs.sinks.clone(),
        };
        Ok(Arc::new(InputFiles { description, _dir: dir }))
    }
}

/// K and V that repeat over the batch are one entry in memory and all of it in the view.
fn view(placed: &Placed, batch: u64) -> View {
    let layout = placed.layout;
    let [_, seqlen, heads, dim] = placed.tensor.shape.map(|n| n as u64);
    View {
        buffer: placed.buffer,
        dtype: placed.tensor.dtype,
        offset_bytes: layout.offset_bytes,
        shape: [batch, seqlen, heads, dim],
        strides: [layout.stride_batch, layout.stride_seq, layout.stride_head, 1],
    }
}

/// Bytes that one thread writes at a time.
const CHUNK: usize = 8 << 20;

/// A gigabyte from one thread takes a second even into a RAM disk.
fn write_all(path: &Path, image: &[u8]) -> Result<(), std::io::Error> {
    let file = fs::File::create(path)?;
    let write = |(at, chunk): (usize, &[u8])| file.write_all_at(chunk, (at * CHUNK) as u64);
    image.par_chunks(CHUNK).enumerate().try_for_each(write)
}

/// The buffers' bytes, in the order of `inputs.buffers`: tensors at their strides, gaps as the background says.
pub fn images(inputs: &Inputs) -> Vec<Vec<u8>> {
    let image = |(index, buffer): (usize, &fa4_spec::qdist::Buffer)| {
        let mut bytes = vec![0u8; buffer.bytes as usize];
        if let Some(background) = buffer.background {
            bytes.par_chunks_exact_mut(2).for_each(|b| b.copy_from_slice(&background.to_le_bytes()));
        }
        for placed in [&inputs.q, &inputs.k, &inputs.v].into_iter().filter(|p| p.buffer == index) {
            fill(&mut bytes, placed);
        }
        bytes
    };
    inputs.buffers.iter().enumerate().map(image).collect()
}

fn fill(bytes: &mut [u8], placed: &Placed) {
    let tensor = &placed.tensor;
    if placed.layout == Layout::bshd(tensor.shape) {
        let put = |(to, from): (&mut [u8], &[u16])| {
            to.chunks_exact_mut(2).zip(from).for_each(|(to, bits)| to.copy_from_slice(&bits.to_le_bytes()));
        };
        let to = bytes[..2 * tensor.bits.len()].par_chunks_mut(CHUNK);
        return to.zip(tensor.bits.par_chunks(CHUNK / 2)).for_each(put);
    }
    let [batch, seqlen, heads, _] = tensor.shape;
    for (b, s, h) in rows(batch, seqlen, heads) {
        let at = placed.layout.row_offset(tensor.dtype.bytes(), b, s, h) as usize;
        let row = tensor.row(b, s, h);
        for (to, bits) in bytes[at..at + 2 * row.len()].chunks_exact_mut(2).zip(row) {
            to.copy_from_slice(&bits.to_le_bytes());
        }
    }
}

/// 16-bit values of a little-endian file that must hold `elems` of them.
pub fn read_u16(path: &Path, elems: u64) -> Result<Result<Vec<u16>, String>, RefError> {
    let bytes = read(path)?;
    Ok(sized(&bytes, elems, 2)
        .map(|()| bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()))
}

/// f32 values of a little-endian file that must hold `elems` of them.
pub fn read_f32(path: &Path, elems: u64) -> Result<Result<Vec<f32>, String>, RefError> {
    let bytes = read(path)?;
    let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok(sized(&bytes, elems, 4).map(|()| bytes.chunks_exact(4).map(value).collect()))
}

fn sized(bytes: &[u8], elems: u64, elem_bytes: u64) -> Result<(), String> {
    match elems * elem_bytes {
        want if want == bytes.len() as u64 => Ok(()),
        want => Err(format!("an output file of {} bytes where {want} belong", bytes.len())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, RefError> {
    fs::read(path).map_err(|error| RefError::Io { what: "read", path: path.into(), error })
}
