//! Which bytes a tiled tensor copy moves, as a list of runs of up to 16 bytes.
//!
//! Measured on an H200 (927 recorded cases): the box is traversed with dimension 0 innermost; its rows stand at
//! the swizzle span's pitch (tight without swizzle) and the XOR acts on the absolute shared address; bounds are
//! tested per element and dimension; the transaction count is that of the whole box, whatever is out of bounds.
//! The element stride of dimension 0 is ignored unless interleaved. Stores clip exactly in dimensions 1 and
//! up, but in 16-byte chunks in dimension 0, so up to 15 bytes past the end of a row are written.
//! Interleaved maps count 16- or 32-byte slots in dimension 0 and visit one index of dimension rank − 2.

use super::swizzle::Swizzle;
use super::tensor_map::{ElemType, Interleave, MapError, TensorMap};
use thiserror::Error;

/// A run of consecutive bytes, in shared memory and in the tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Address of the first byte in the shared window, swizzled. The run is contiguous there too.
    pub smem: u32,
    /// Address of the first byte in global memory; meaningful only where `valid` has a bit set.
    pub global: u64,
    /// Bytes in the run, at most 16.
    pub len: u8,
    /// Bit i: byte i exists in the tensor. A load fills the others, a store does not write them.
    pub valid: u16,
}

/// What the hardware answers to a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HwError {
    /// CUDA_ERROR_ILLEGAL_INSTRUCTION.
    IllegalInstruction,
    /// CUDA_ERROR_MISALIGNED_ADDRESS.
    MisalignedAddress,
}

/// Why a tensor or bulk copy is illegal.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TmaFault {
    /// The map itself.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Dimension modifier and map disagree.
    #[error("the instruction gives {instruction} coordinates, but the tensor map has rank {map}")]
    Rank {
        /// Rank in the map.
        map: usize,
        /// Coordinates of the instruction.
        instruction: usize,
    },
    /// c0 times the element size is no multiple of 16.
    #[error(
        "inner coordinate {c0} stands at byte {bytes} of its row; the hardware only takes multiples of 16 bytes \
         ({step} elements)"
    )]
    InnerCoordinate {
        /// The coordinate.
        c0: i32,
        /// c0 in bytes.
        bytes: i64,
        /// Elements in 16 bytes.
        step: u32,
    },
    /// Stores and reductions take no negative coordinates.
    #[error("coordinate {value} of dimension {dim} is negative; only loads may start outside the tensor")]
    NegativeCoordinate {
        /// Dimension, innermost 0.
        dim: usize,
        /// The coordinate.
        value: i32,
    },
    /// A misaligned address.
    #[error("{what} 0x{address:x} is not {align}-byte aligned")]
    Misaligned {
        /// Which operand.
        what: &'static str,
        /// Its value.
        address: u64,
        /// What it must be a multiple of.
        align: u32,
    },
    /// A bulk size that is no multiple of 16.
    #[error("bulk copy size {0} is no multiple of 16; the hardware drops the last {rest} bytes", rest = .0 % 16)]
    BulkSize(u32),
    /// gather4 and scatter4 on an unfit map.
    #[error("tile::{op} needs {needs}; this map has {has}")]
    Rows {
        /// gather4 or scatter4.
        op: &'static str,
        /// Requirement.
        needs: &'static str,
        /// What the map says.
        has: String,
    },
    /// Legal PTX that is not modelled.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
}

impl TmaFault {
    /// The error an H200 raises; `None` where it does something else silently, or where none was recorded.
    pub fn hardware(&self) -> Option<HwError> {
        use HwError::*;
        match self {
            TmaFault::Map(_)
            | TmaFault::Rank { .. }
            | TmaFault::InnerCoordinate { .. }
            | TmaFault::NegativeCoordinate { .. } => Some(IllegalInstruction),
            TmaFault::Misaligned { .. } => Some(MisalignedAddress),
            TmaFault::BulkSize(_) | TmaFault::Rows { .. } | TmaFault::Unsupported(_) => None,
        }
    }
}

/// Shared-memory alignment of every tensor copy.
const SMEM_ALIGN: u32 = 128;

/// Extent of the box in each dimension as it lands in shared memory.
fn extents(map: &TensorMap) -> [u32; 5] {
    let mut n = [1; 5];
    for j in 0..map.rank {
        n[j] = map.boxes[j].div_ceil(map.elem_strides[j]);
    }
    match map.interleave {
        Interleave::None => n[0] = map.boxes[0],
        _ => n[map.rank - 2] = 1,
    }
    n
}

/// Transaction bytes of one box: elements (slots) that land in shared memory, without padding.
pub fn load_bytes(map: &TensorMap) -> u32 {
    extents(map).iter().product::<u32>() * map.unit()
}

/// Runs of a tiled load of the box at `coords` to shared address `dst`, in the order of the box. Returns the
/// bytes of its complete_tx. Clears `out` first.
pub fn load_chunks(map: &TensorMap, coords: &[i32], dst: u32, out: &mut Vec<Chunk>) -> Result<u32, TmaFault> {
    check(map, coords, dst, "the destination")?;
    let limit = map.dims[0] as i64 * i64::from(map.unit());
    Ok(box_chunks(map, coords, dst, limit, out))
}

/// Runs of a tiled store or reduction of the box at `coords` from shared address `src`. Returns the bytes of
/// the box. Clears `out` first. (Interleaved stores were not measured; they are taken to mirror loads.)
pub fn store_chunks(
    map: &TensorMap,
    coords: &[i32],
    src: u32,
    out: &mut Vec<Chunk>,
) -> Result<u32, TmaFault> {
    check(map, coords, src, "the source")?;
    if let Some((dim, &value)) = coords.iter().enumerate().find(|(_, c)| **c < 0) {
        return Err(TmaFault::NegativeCoordinate { dim, value });
    }
    Ok(box_chunks(map, coords, src, store_limit(map), out))
}

/// Stores write whole 16-byte chunks of a row.
fn store_limit(map: &TensorMap) -> i64 {
    let bytes = map.dims[0] as i64 * i64::from(map.unit());
    (bytes + 15) & !15
}

fn check(map: &TensorMap, coords: &[i32], smem: u32, what: &'static str) -> Result<(), TmaFault> {
    if coords.len() != map.rank {
        return Err(TmaFault::Rank { map: map.rank, instruction: coords.len() });
    }
    check_inner(map, coords[0])?;
    aligned(what, u64::from(smem), SMEM_ALIGN)
}

fn check_inner(map: &TensorMap, c0: i32) -> Result<(), TmaFault> {
    let unit = map.unit();
    let bytes = i64::from(c0) * i64::from(unit);
    if bytes % 16 != 0 {
        return Err(TmaFault::InnerCoordinate { c0, bytes, step: 16 / unit });
    }
    Ok(())
}

fn aligned(what: &'static str, address: u64, align: u32) -> Result<(), TmaFault> {
    if address.is_multiple_of(u64::from(align)) {
        return Ok(());
    }
    Err(TmaFault::Misaligned { what, address, align })
}

/// One 16-byte piece of a box row.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// Byte offset from the row's address in global memory.
    global: i64,
    /// Bytes that exist.
    valid: u16,
}

/// The pieces of a box row that starts at coordinate `c0`: the same for all rows of the box.
struct Row {
    /// At most 256 eight-byte elements, or 256 slots of 32 bytes.
    pieces: [Piece; 512],
    count: usize,
}

impl Row {
    /// `limit`: bytes of a tensor row that count as existing.
    fn new(map: &TensorMap, n0: u32, c0: i32, limit: i64) -> Row {
        let unit = i64::from(map.unit());
        let mut row = Row { pieces: [Piece::default(); 512], count: (n0 * map.unit()) as usize / 16 };
        // Bytes that lie together in the tensor, and the step from one such slot to the next.
        let (slot, step) = match map.interleave {
            Interleave::None => (16, 16),
            _ => (unit, unit * i64::from(map.elem_strides[0])),
        };
        let start = i64::from(c0) * unit;
        for (k, p) in row.pieces[..row.count].iter_mut().enumerate() {
            let at = 16 * k as i64;
            p.global = start + at / slot * step + at % slot;
            let exist = if p.global < 0 { 0 } else { (limit - p.global).clamp(0, 16) };
            p.valid = ((1u32 << exist) - 1) as u16;
        }
        row
    }

    /// Appends the row's runs; `exists` is false where an outer coordinate is out of bounds.
    #[inline]
    fn emit(&self, swizzle: Swizzle, smem: u32, global: u64, exists: bool, out: &mut Vec<Chunk>) {
        let mask = if exists { !0 } else { 0 };
        let pattern = swizzle.pattern();
        out.extend(self.pieces[..self.count].iter().enumerate().map(|(k, p)| Chunk {
            smem: pattern.apply(smem.wrapping_add(16 * k as u32), 0),
            global: global.wrapping_add_signed(p.global),
            len: 16,
            valid: p.valid & mask,
        }));
    }
}

/// Shared-memory bytes from one box row to the next.
fn pitch(map: &TensorMap, n0: u32) -> u32 {
    match (map.swizzle.span(), map.interleave) {
        (Some(span), Interleave::None) => span,
        _ => n0 * map.unit(),
    }
}

fn box_chunks(map: &TensorMap, coords: &[i32], smem: u32, limit: i64, out: &mut Vec<Chunk>) -> u32 {
    let n = extents(map);
    let row = Row::new(map, n[0], coords[0], limit);
    let pitch = pitch(map, n[0]);
    let rows: u32 = n[1..].iter().product();
    out.clear();
    out.reserve(rows as usize * row.count);

    let mut c = [0i64; 5];
    for (c, &v) in c.iter_mut().zip(coords) {
        *c = i64::from(v);
    }
    let mut i = [0u32; 5];
    for r in 0..rows {
        let (mut exists, mut global) = (true, map.address);
        for j in 1..map.rank {
            let p = c[j] + i64::from(i[j] * map.elem_strides[j]);
            exists &= (0..map.dims[j] as i64).contains(&p);
            global = global.wrapping_add((p as u64).wrapping_mul(map.strides[j]));
        }
        row.emit(map.swizzle, smem.wrapping_add(r * pitch), global, exists, out);
        for j in 1..map.rank {
            i[j] += 1;
            if i[j] < n[j] {
                break;
            }
            i[j] = 0;
        }
    }
    n.iter().product::<u32>() * map.unit()
}

/// Runs of `tile::gather4`: four rows of a two-dimensional map with box {n, 1}, one below the other in shared
/// memory. Rows outside the tensor are filled. Returns the bytes of its complete_tx. (sm_100; not measured.)
pub fn gather4_chunks(
    map: &TensorMap,
    col: i32,
    rows: [i32; 4],
    dst: u32,
    out: &mut Vec<Chunk>,
) -> Result<u32, TmaFault> {
    check_rows(map, "gather4")?;
    check_inner(map, col)?;
    aligned("the destination", u64::from(dst), SMEM_ALIGN)?;
    let limit = map.dims[0] as i64 * i64::from(map.unit());
    Ok(four_rows(map, col, rows, dst, limit, out))
}

/// Runs of `tile::scatter4`, the store counterpart of [`gather4_chunks`]. Rows past the end are not written.
pub fn scatter4_chunks(
    map: &TensorMap,
    col: i32,
    rows: [i32; 4],
    src: u32,
    out: &mut Vec<Chunk>,
) -> Result<u32, TmaFault> {
    check_rows(map, "scatter4")?;
    check_inner(map, col)?;
    aligned("the source", u64::from(src), SMEM_ALIGN)?;
    if col < 0 {
        return Err(TmaFault::NegativeCoordinate { dim: 0, value: col });
    }
    if let Some(&value) = rows.iter().find(|r| **r < 0) {
        return Err(TmaFault::NegativeCoordinate { dim: 1, value });
    }
    Ok(four_rows(map, col, rows, src, store_limit(map), out))
}

fn check_rows(map: &TensorMap, op: &'static str) -> Result<(), TmaFault> {
    let rows = |needs, has| Err(TmaFault::Rows { op, needs, has });
    if map.rank != 2 {
        return rows("rank 2", format!("rank {}", map.rank));
    }
    if map.boxes[1] != 1 {
        return rows("boxDim[1] = 1", format!("boxDim[1] = {}", map.boxes[1]));
    }
    Ok(())
}

fn four_rows(map: &TensorMap, col: i32, rows: [i32; 4], smem: u32, limit: i64, out: &mut Vec<Chunk>) -> u32 {
    let n0 = map.boxes[0];
    let row = Row::new(map, n0, col, limit);
    let pitch = pitch(map, n0);
    out.clear();
    for (j, y) in rows.into_iter().enumerate() {
        let y = i64::from(y);
        let exists = (0..map.dims[1] as i64).contains(&y);
        let global = map.address.wrapping_add((y as u64).wrapping_mul(map.strides[1]));
        row.emit(map.swizzle, smem.wrapping_add(j as u32 * pitch), global, exists, out);
    }
    4 * n0 * map.unit()
}

/// What a load does to the elements it brings, in place: tf32 types round to nearest even (19 bits), finite
/// values beyond the largest become infinity, NaN becomes 0x7fffe000. All other types are copied bit by bit.
/// `bytes` must hold whole elements; fill values must not be passed through it.
pub fn convert_load(elem: ElemType, bytes: &mut [u8]) {
    if !matches!(elem, ElemType::Tf32 | ElemType::Tf32Ftz) {
        return;
    }
    for b in bytes.chunks_exact_mut(4) {
        let u = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let rounded = match u & 0x7fff_ffff {
            0x7f80_0001.. => 0x7fff_e000,
            0x7f80_0000 => u,
            _ => (u + 0xfff + (u >> 13 & 1)) & !0x1fff,
        };
        b.copy_from_slice(&rounded.to_le_bytes());
    }
}

/// Checks the operands of a linear `cp.async.bulk` (or its reduction): addresses to 16 bytes, the barrier to
/// 8, the size to 16. On an H200 misaligned addresses fault, while the low four bits of the size are dropped in
/// silence; the manual forbids such sizes, so they are refused here. Size 0 is a legal no-op.
pub fn bulk_check(dst: u64, src: u64, size: u32, mbar: Option<u32>) -> Result<(), TmaFault> {
    aligned("the destination", dst, 16)?;
    aligned("the source", src, 16)?;
    if let Some(m) = mbar {
        aligned("the mbarrier", u64::from(m), 8)?;
    }
    if !size.is_multiple_of(16) {
        return Err(TmaFault::BulkSize(size));
    }
    Ok(())
}
