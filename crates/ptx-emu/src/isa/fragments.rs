//! Register fragments of wgmma and mma.sync: which matrix element each thread of a warp holds where.
//!
//! A warp of either instruction works on a tile of 16 rows (for wgmma the rows 16·w to 16·w + 15 of the 64 that
//! belong to warp w of the warpgroup), and both use the same maps. Those of wgmma are measured on an H200.

/// Row and column of accumulator element `i` of thread `t`. f32: element i is register i; f16: it is half `i & 1` of
/// register `i / 2`.
#[inline]
pub fn acc(t: usize, i: usize) -> (usize, usize) {
    (t / 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (t % 4) + (i & 1))
}

/// Row and k of element `j` (counted from the low bits) of A's register `r` of thread `t`; a register holds `per`
/// elements: 1 (tf32), 2 (16-bit) or 4 (8-bit).
#[inline]
pub fn a(per: usize, t: usize, r: usize, j: usize) -> (usize, usize) {
    (t / 4 + 8 * (r & 1), 4 * per * (r >> 1) + per * (t % 4) + j)
}

/// Column and k of element `j` of B's register `r` of thread `t` of an mma.sync.
#[inline]
pub fn b(per: usize, t: usize, r: usize, j: usize) -> (usize, usize) {
    (t / 4, 4 * per * r + per * (t % 4) + j)
}
