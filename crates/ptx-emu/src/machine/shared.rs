//! Shared memory of one CTA: bytes, one "undefined" bit a byte, and the leases that asynchronous operations
//! hold on 16-byte granules.
//!
//! A lease is kept as the number of the last operation that read or wrote a granule; whether that operation
//! has been *observed* complete is looked up where the lease is checked, so releasing costs nothing here.
//! Of several concurrent bulk readers of one granule only the newest is remembered.

pub use super::proxy::Stored;

/// Bytes in a granule, the unit of asynchronous accesses.
pub const GRANULE: u32 = 16;
/// Where user shared memory begins in the shared window (read off an H200).
pub const WINDOW_BASE: u32 = 0x400;

/// Shared memory; addresses are offsets in the shared window.
pub struct SharedMemory {
    bytes: Vec<u8>,
    /// Per granule: bit i = byte i undefined.
    undef: Vec<u16>,
    /// Per granule: 1 + number of the last asynchronous operation that writes it (0 = none).
    pub write_op: Vec<u32>,
    /// Per granule: 1 + number of the last bulk operation that reads it.
    pub read_op: Vec<u32>,
    /// Per granule: sequence number of the last matrix operation that reads it (0 = none).
    pub mma_read: Vec<u32>,
    /// Per granule and warp: sequence number of the last wgmma of the warp that reads it. Empty before the first.
    pub wgmma_read: Vec<u32>,
    /// Per granule: the last ordinary store, until a bulk copy overwrites it.
    pub stored: Vec<Stored>,
    size: u32,
}

impl SharedMemory {
    /// `size` bytes, all undefined.
    pub fn new(size: u32) -> SharedMemory {
        let n = size.div_ceil(GRANULE) as usize;
        SharedMemory {
            bytes: vec![0; n * GRANULE as usize],
            undef: vec![!0; n],
            write_op: vec![0; n],
            read_op: vec![0; n],
            mma_read: vec![0; n],
            wgmma_read: vec![],
            stored: vec![Stored::default(); n],
            size,
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Offset of window address `addr` if `len` bytes from it exist.
    #[inline]
    pub fn offset(&self, addr: u32, len: u32) -> Option<usize> {
        let off = addr.wrapping_sub(WINDOW_BASE);
        (off < self.size && len <= self.size - off).then_some(off as usize)
    }

    /// Granule index of an offset.
    #[inline]
    pub fn granule(off: usize) -> usize {
        off / GRANULE as usize
    }

    /// Bytes at an offset.
    #[inline]
    pub fn bytes(&self, off: usize, len: usize) -> &[u8] {
        &self.bytes[off..off + len]
    }

    /// Mask of undefined bytes among `len` ≤ 64 bytes at `off`.
    #[inline]
    pub fn undef(&self, off: usize, len: usize) -> u64 {
        let (mut m, mut i) = (0u64, 0usize);
        while i < len {
            let (g, b) = ((off + i) / 16, (off + i) % 16);
            let n = (16 - b).min(len - i);
            m |= ((u64::from(self.undef[g]) >> b) & ((1 << n) - 1)) << i;
            i += n;
        }
        m
    }

    /// Undefined bits of a whole granule.
    #[inline]
    pub fn granule_undef(&self, g: usize) -> u16 {
        self.undef[g]
    }

    /// Writes bytes with their undefined mask (`data.len()` ≤ 64).
    #[inline]
    pub fn store(&mut self, off: usize, data: &[u8], undef: u64) {
        self.bytes[off..off + data.len()].copy_from_slice(data);
        let mut i = 0usize;
        while i < data.len() {
            let (g, b) = ((off + i) / 16, (off + i) % 16);
            let n = (16 - b).min(data.len() - i);
            let m = (((1u32 << n) - 1) << b) as u16;
            let u = (((undef >> i) & ((1 << n) - 1)) << b) as u16;
            self.undef[g] = self.undef[g] & !m | u;
            i += n;
        }
    }

    /// [`SharedMemory::wgmma_read`], made on first use for a CTA of `warps` warps.
    #[inline]
    pub fn wgmma_reads(&mut self, warps: usize) -> &mut [u32] {
        if self.wgmma_read.is_empty() {
            self.wgmma_read = vec![0; self.undef.len() * warps];
        }
        &mut self.wgmma_read
    }

    /// The 16 bytes of a granule and its undefined bits, where `addrs`, ascending addresses of elements of
    /// `elem_bytes`, are all that it holds.
    #[inline]
    pub fn unit(&self, addrs: &[u32], elem_bytes: u32) -> Option<([u8; 16], u16)> {
        let (first, last) = (*addrs.first()?, *addrs.last()?);
        if addrs.len() as u32 * elem_bytes != GRANULE || last.wrapping_sub(first) != GRANULE - elem_bytes {
            return None;
        }
        let off = self.offset(first, GRANULE)?;
        let data = self.bytes[off..off + 16].first_chunk()?;
        (off % 16 == 0).then_some((*data, self.undef[off / 16]))
    }

    /// Value of an element of `elem_bytes` at window address `addr`; `None` outside the allocation.
    #[inline]
    pub fn element(&self, addr: u32, elem_bytes: u32) -> Option<(u32, bool)> {
        let off = self.offset(addr, elem_bytes)?;
        let v = match elem_bytes {
            1 => u32::from(self.bytes[off]),
            2 => u32::from(u16::from_le_bytes([self.bytes[off], self.bytes[off + 1]])),
            _ => u32::from_le_bytes(self.bytes[off..off + 4].try_into().ok()?),
        };
        let m = ((1u32 << elem_bytes) - 1) << (off % 16);
        Some((v, u32::from(self.undef[off / 16]) & m != 0))
    }
}
