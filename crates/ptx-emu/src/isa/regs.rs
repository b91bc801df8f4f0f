//! Register file of a warp: one lane vector per register, with definedness.
//!
//! A value is *undefined* until something defined is written to it. Each register keeps a mask of the lanes
//! that hold at least one undefined byte; which bytes those are is kept beside it and is meaningful only for
//! lanes in that mask. So the usual case costs one load and one test per operand.

/// Number of lanes in a warp.
pub const LANES: usize = 32;

/// A 32-bit register of a warp; 8- and 16-bit registers live zero-extended in the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct V32(pub [u32; LANES]);

/// A 64-bit register of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct V64(pub [u64; LANES]);

/// Which file a register lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Predicates.
    P,
    /// 8-, 16- and 32-bit.
    R32,
    /// 64-bit.
    R64,
    /// 128-bit, as two consecutive 64-bit registers (low half first).
    R128,
}

/// All registers of one warp.
#[derive(Clone, Debug, Default)]
pub struct RegFile {
    /// 32-bit registers.
    pub r32: Vec<V32>,
    /// 64-bit registers.
    pub r64: Vec<V64>,
    /// Predicates, one bit a lane.
    pub p: Vec<u32>,
    /// Lanes of each 32-bit register that hold an undefined byte.
    pub u32: Vec<u32>,
    /// Lanes of each 64-bit register that hold an undefined byte.
    pub u64: Vec<u32>,
    /// Lanes of each predicate that are undefined.
    pub up: Vec<u32>,
    /// Undefined bytes per lane (bit i = byte i); valid only where the lane's bit in `u32` is set.
    pub b32: Vec<[u8; LANES]>,
    /// Undefined bytes per lane (bit i = byte i); valid only where the lane's bit in `u64` is set.
    pub b64: Vec<[u8; LANES]>,
}

impl RegFile {
    /// A file with the given number of registers, all undefined.
    pub fn new(n32: usize, n64: usize, np: usize) -> RegFile {
        RegFile {
            r32: vec![V32([0; LANES]); n32],
            r64: vec![V64([0; LANES]); n64],
            p: vec![0; np],
            u32: vec![!0; n32],
            u64: vec![!0; n64],
            up: vec![!0; np],
            b32: vec![[0x0f; LANES]; n32],
            b64: vec![[0xff; LANES]; n64],
        }
    }

    /// Undefined bytes of lane `l` of 32-bit register `r` (bit i = byte i).
    #[inline]
    pub fn bytes32(&self, r: u32, l: usize) -> u8 {
        if self.u32[r as usize] >> l & 1 != 0 { self.b32[r as usize][l] } else { 0 }
    }

    /// Undefined bytes of lane `l` of 64-bit register `r`.
    #[inline]
    pub fn bytes64(&self, r: u32, l: usize) -> u8 {
        if self.u64[r as usize] >> l & 1 != 0 { self.b64[r as usize][l] } else { 0 }
    }

    /// Sets lane `l` of 32-bit register `r` with its undefined bytes.
    #[inline]
    pub fn set32(&mut self, r: u32, l: usize, v: u32, undef: u8) {
        let i = r as usize;
        self.r32[i].0[l] = v;
        self.b32[i][l] = undef;
        if undef == 0 { self.u32[i] &= !(1 << l) } else { self.u32[i] |= 1 << l }
    }

    /// Sets lane `l` of 64-bit register `r` with its undefined bytes.
    #[inline]
    pub fn set64(&mut self, r: u32, l: usize, v: u64, undef: u8) {
        let i = r as usize;
        self.r64[i].0[l] = v;
        self.b64[i][l] = undef;
        if undef == 0 { self.u64[i] &= !(1 << l) } else { self.u64[i] |= 1 << l }
    }

    /// Sets lane `l` of predicate `r`.
    #[inline]
    pub fn setp(&mut self, r: u32, l: usize, v: bool, undef: bool) {
        let (i, b) = (r as usize, 1u32 << l);
        if v {
            self.p[i] |= b
        } else {
            self.p[i] &= !b
        }
        if undef { self.up[i] |= b } else { self.up[i] &= !b }
    }
}
