//! Device memory: named allocations with bounds, sparse pages, and one "undefined" bit a byte.
//!
//! A problem with huge strides costs only the pages it touches. Bytes start undefined unless the allocation
//! says otherwise.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const PAGE: usize = 4096;
const PAGE_SHIFT: u32 = 12;
/// First address handed out: far from zero, so that small integers are never valid pointers.
const FIRST_ADDRESS: u64 = 0x0100_0000_0000;
/// Unmapped bytes kept between two allocations, so that an overrun is seen.
const GUARD: u64 = 1 << 20;

/// What the bytes of an allocation are before anybody writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Initial {
    /// Undefined: reading them is allowed, depending on them is not.
    Undefined,
    /// Every byte has this value.
    Byte(u8),
}

/// One allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Name, for messages.
    pub name: String,
    /// First address.
    pub base: u64,
    /// Size in bytes.
    pub size: u64,
    initial: Initial,
}

struct Page {
    data: [u8; PAGE],
    undef: [u64; PAGE / 64],
}

#[derive(Default)]
struct PageHasher(u64);
impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, v: u64) {
        // Page numbers of one row differ in few bits; a multiplicative mix spreads them.
        self.0 = (self.0 ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// An access outside every allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {addr:#x} are outside every allocation ({near})")]
pub struct OutOfBounds {
    /// First address of the access.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The nearest allocation, in words.
    pub near: String,
}

/// Device memory.
#[derive(Default)]
pub struct GlobalMemory {
    allocs: Vec<Allocation>,
    pages: HashMap<u64, Box<Page>, BuildHasherDefault<PageHasher>>,
    next: u64,
}

impl GlobalMemory {
    /// Empty memory.
    pub fn new() -> GlobalMemory {
        GlobalMemory { next: FIRST_ADDRESS, ..GlobalMemory::default() }
    }

    /// Allocates `size` bytes (0 is allowed: the address then belongs to no byte), all undefined.
    /// `align` must be a power of two; 256 is the least used.
    pub fn alloc(&mut self, name: &str, size: u64, align: u64) -> u64 {
        self.alloc_init(name, size, align, Initial::Undefined)
    }

    /// Allocates with a given initial state.
    pub fn alloc_init(&mut self, name: &str, size: u64, align: u64, initial: Initial) -> u64 {
        let align = align.max(256).next_power_of_two();
        let base = self.next.max(FIRST_ADDRESS).next_multiple_of(align);
        self.next = base + size + GUARD;
        self.allocs.push(Allocation { name: name.to_string(), base, size, initial });
        base
    }

    /// All allocations, by address.
    pub fn allocations(&self) -> &[Allocation] {
        &self.allocs
    }

    /// The allocation that holds `addr`.
    pub fn find(&self, addr: u64) -> Option<&Allocation> {
        let i = self.allocs.partition_point(|a| a.base <= addr);
        self.allocs[..i].last().filter(|a| addr - a.base < a.size)
    }

    fn check(&self, addr: u64, len: u64) -> Result<Initial, OutOfBounds> {
        let i = self.allocs.partition_point(|a| a.base <= addr);
        if let Some(a) = self.allocs[..i].last()
            && addr - a.base < a.size.max(1)
            && len <= a.size - (addr - a.base)
        {
            return Ok(a.initial);
        }
        let near = match (self.allocs[..i].last(), self.allocs.get(i)) {
            (None, None) => "nothing is allocated".to_string(),
            (Some(a), _) if addr.wrapping_sub(a.base + a.size) < GUARD || addr - a.base < a.size => {
                format!("`{}` ends at {:#x}, {} bytes long", a.name, a.base + a.size, a.size)
            }
            (_, Some(b)) if b.base - addr < GUARD => format!("`{}` begins at {:#x}", b.name, b.base),
            _ => "no allocation is near".to_string(),
        };
        Err(OutOfBounds { addr, len, near })
    }

    fn page(&mut self, no: u64, initial: Initial) -> &mut Page {
        self.pages.entry(no).or_insert_with(|| match initial {
            Initial::Undefined => Box::new(Page { data: [0; PAGE], undef: [!0; PAGE / 64] }),
            Initial::Byte(b) => Box::new(Page { data: [b; PAGE], undef: [0; PAGE / 64] }),
        })
    }

    /// Reads `out.len()` ≤ 64 bytes; returns the mask of undefined bytes (bit i = byte i).
    pub fn load(&self, addr: u64, out: &mut [u8]) -> Result<u64, OutOfBounds> {
        let len = out.len();
        let initial = self.check(addr, len as u64)?;
        let (mut undef, mut i) = (0u64, 0usize);
        while i < len {
            let a = addr + i as u64;
            let off = (a as usize) & (PAGE - 1);
            let n = (len - i).min(PAGE - off);
            match self.pages.get(&(a >> PAGE_SHIFT)) {
                Some(p) => {
                    out[i..i + n].copy_from_slice(&p.data[off..off + n]);
                    undef |= bits(&p.undef, off, n) << i;
                }
                None => match initial {
                    Initial::Undefined => {
                        out[i..i + n].fill(0);
                        undef |= ones(n) << i;
                    }
                    Initial::Byte(b) => out[i..i + n].fill(b),
                },
            }
            i += n;
        }
        Ok(undef)
    }

    /// Writes `data.len()` ≤ 64 bytes; bit i of `write` says whether byte i is written, bit i of `undef`
    /// whether it becomes undefined.
    pub fn store(&mut self, addr: u64, data: &[u8], undef: u64, write: u64) -> Result<(), OutOfBounds> {
        let len = data.len();
        let initial = self.check(addr, len as u64)?;
        let mut i = 0usize;
        while i < len {
            let a = addr + i as u64;
            let off = (a as usize) & (PAGE - 1);
            let n = (len - i).min(PAGE - off);
            let p = self.page(a >> PAGE_SHIFT, initial);
            if (write >> i) & ones(n) == ones(n) {
                p.data[off..off + n].copy_from_slice(&data[i..i + n]);
                set_bits(&mut p.undef, off, n, undef >> i);
            } else {
                for j in (0..n).filter(|j| write >> (i + j) & 1 != 0) {
                    p.data[off + j] = data[i + j];
                    set_bits(&mut p.undef, off + j, 1, undef >> (i + j));
                }
            }
            i += n;
        }
        Ok(())
    }

    /// Host write: every byte becomes defined.
    pub fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), OutOfBounds> {
        self.check(addr, data.len() as u64)?;
        for (i, chunk) in data.chunks(64).enumerate() {
            self.store(addr + 64 * i as u64, chunk, 0, !0)?;
        }
        Ok(())
    }

    /// Host read: undefined bytes read as 0; see [`GlobalMemory::first_undefined`].
    pub fn read(&self, addr: u64, len: usize) -> Result<Vec<u8>, OutOfBounds> {
        self.check(addr, len as u64)?;
        let mut out = vec![0; len];
        for (i, chunk) in out.chunks_mut(64).enumerate() {
            self.load(addr + 64 * i as u64, chunk)?;
        }
        Ok(out)
    }

    /// Makes a range undefined (poison).
    pub fn poison(&mut self, addr: u64, len: u64) -> Result<(), OutOfBounds> {
        self.check(addr, len)?;
        let zero = [0u8; 64];
        let mut i = 0;
        while i < len {
            let n = (len - i).min(64);
            self.store(addr + i, &zero[..n as usize], !0, !0)?;
            i += n;
        }
        Ok(())
    }

    /// Address of the first undefined byte of a range.
    pub fn first_undefined(&self, addr: u64, len: u64) -> Result<Option<u64>, OutOfBounds> {
        let mut buf = [0u8; 64];
        let mut i = 0;
        while i < len {
            let n = (len - i).min(64);
            let u = self.load(addr + i, &mut buf[..n as usize])?;
            if u != 0 {
                return Ok(Some(addr + i + u64::from(u.trailing_zeros())));
            }
            i += n;
        }
        Ok(None)
    }
}

fn ones(n: usize) -> u64 {
    if n >= 64 { !0 } else { (1 << n) - 1 }
}

/// `n` ≤ 64 bits starting at bit `off`.
fn bits(words: &[u64], off: usize, n: usize) -> u64 {
    let (w, b) = (off / 64, off % 64);
    let mut v = words[w] >> b;
    if b + n > 64 {
        v |= words[w + 1] << (64 - b);
    }
    v & ones(n)
}

fn set_bits(words: &mut [u64], off: usize, n: usize, v: u64) {
    let (w, b) = (off / 64, off % 64);
    let (m, v) = (ones(n), v & ones(n));
    words[w] = words[w] & !(m << b) | v << b;
    if b + n > 64 {
        words[w + 1] = words[w + 1] & !(m >> (64 - b)) | v >> (64 - b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_definedness() {
        let mut m = GlobalMemory::new();
        let a = m.alloc("a", 100, 16);
        let mut buf = [0u8; 8];
        assert_eq!(m.load(a, &mut buf).unwrap(), 0xff);
        m.store(a + 4, &[1, 2, 3, 4], 0b0010, 0b0111).unwrap();
        assert_eq!(m.load(a, &mut buf).unwrap(), 0b1010_1111);
        assert_eq!(buf[4..7], [1, 2, 3]);
        assert!(m.load(a + 96, &mut buf).unwrap_err().near.contains("`a` ends"));
        assert!(m.load(0, &mut buf).is_err());
        let z = m.alloc_init("z", 1 << 40, 16, Initial::Byte(7));
        assert_eq!(m.load(z + (1 << 39), &mut buf).unwrap(), 0);
        assert_eq!(buf, [7; 8]);
        m.write(z + 4090, &[9; 100]).unwrap();
        assert_eq!(m.read(z + 4088, 4).unwrap(), [7, 7, 9, 9]);
    }
}
