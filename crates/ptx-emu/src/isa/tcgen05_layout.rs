//! Where tcgen05 instructions put things in tensor memory: register maps of ld and st, accumulator layouts, the
//! A operand in TMEM, and the row maps of cp.
//!
//! Lanes and columns are relative to the instruction's TMEM address throughout.

use super::smem_desc::SmemDesc;

/// Shape of `tcgen05.ld` and `tcgen05.st`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum LdStShape {
    S32x32b,
    S16x64b,
    S16x128b,
    S16x256b,
    S16x32bx2,
}

use LdStShape::*;

impl LdStShape {
    /// From the modifier, without its dot.
    pub fn from_modifier(m: &str) -> Option<LdStShape> {
        Some(match m {
            "32x32b" => S32x32b,
            "16x64b" => S16x64b,
            "16x128b" => S16x128b,
            "16x256b" => S16x256b,
            "16x32bx2" => S16x32bx2,
            _ => return None,
        })
    }

    /// Registers a thread holds for `.xN`, or `None` where PTX has no such N.
    pub fn registers(self, n: u32) -> Option<u32> {
        let (per, max) = match self {
            S32x32b | S16x64b | S16x32bx2 => (1, 128),
            S16x128b => (2, 64),
            S16x256b => (4, 32),
        };
        (n.is_power_of_two() && n <= max).then_some(per * n)
    }

    /// Columns covered by `.xN` (of each window for 16x32bx2); twice that with `.pack::16b`/`.unpack::16b`.
    pub fn columns(self, n: u32) -> u32 {
        match self {
            S32x32b | S16x32bx2 => n,
            S16x64b => 2 * n,
            S16x128b => 4 * n,
            S16x256b => 8 * n,
        }
    }

    /// Lanes covered; the address's lane must be a multiple of it.
    pub fn lanes(self) -> u32 {
        if self == S32x32b { 32 } else { 16 }
    }
}

/// The (lane, column) of register `r` of thread `t` (0..32); `half_split` is the immediate of 16x32bx2.
#[inline]
pub fn ld_st_cell(shape: LdStShape, t: u32, r: u32, half_split: u32) -> (u32, u32) {
    match shape {
        S32x32b => (t, r),
        S16x64b => (t / 4 + 8 * (t & 1), 2 * r + (t >> 1 & 1)),
        S16x128b => (t / 4 + 8 * (r & 1), 4 * (r >> 1) + (t & 3)),
        S16x256b => (t / 4 + 8 * (r >> 1 & 1), 8 * (r >> 2) + 2 * (t & 3) + (r & 1)),
        S16x32bx2 => (t % 16, r + if t >= 16 { half_split } else { 0 }),
    }
}

/// The cells of register `r` under `.pack::16b` (ld) or `.unpack::16b` (st): its low and high half are the low
/// 16 bits of the first and second cell. What st leaves in a cell's upper half is not specified (zero is
/// assumed); ld drops it.
#[inline]
pub fn ld_st_cells_16b(shape: LdStShape, t: u32, r: u32, half_split: u32) -> [(u32, u32); 2] {
    // The second window of 16x32bx2 starts at the immediate in cells, not in pairs.
    let split = if shape == S16x32bx2 && t >= 16 { half_split } else { 0 };
    let (l, c) = ld_st_cell(shape, t, r, 0);
    [(l, 2 * c + split), (l, 2 * c + 1 + split)]
}

/// Accumulator layout, by the manual's letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DLayout {
    /// M=256 over a CTA pair.
    A,
    /// M=128 over a CTA pair, dense.
    B,
    /// M=128 over a CTA pair, sparse.
    C,
    /// M=128 in one CTA, `.ws` or not.
    D,
    /// M=64 `.ws`.
    E,
    /// M=64 in one CTA, not `.ws`.
    F,
    /// M=32 `.ws`.
    G,
}

/// A cell of an accumulator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cell {
    /// 0 for the even CTA of a pair (or the only one), 1 for the odd one.
    pub cta: u32,
    /// TMEM lane.
    pub lane: u32,
    /// TMEM column.
    pub col: u32,
}

impl DLayout {
    /// The layout of an instruction, or `None` where the shape does not exist.
    pub fn of(m: u32, cta_pair: bool, ws: bool, sparse: bool) -> Option<DLayout> {
        Some(match (m, cta_pair, ws) {
            (256, true, false) => DLayout::A,
            (128, true, false) if sparse => DLayout::C,
            (128, true, false) => DLayout::B,
            (128, false, _) => DLayout::D,
            (64, false, true) => DLayout::E,
            (64, false, false) => DLayout::F,
            (32, false, true) => DLayout::G,
            _ => return None,
        })
    }

    /// Where element (m, n) of the M x N accumulator lives. One element a cell; a 16-bit one in bits 15:0.
    #[inline]
    pub fn cell(self, m: u32, n: u32, n_total: u32) -> Cell {
        let half = n_total / 2;
        let (cta, lane, col) = match self {
            DLayout::A => (m / 128, m % 128, n),
            DLayout::B => (m / 64, m % 64 + 64 * (n / half), n % half),
            DLayout::C => (m / 64, scattered(m % 64), n),
            DLayout::D => (0, m, n),
            DLayout::E => (0, m + 64 * (n / half), n % half),
            DLayout::F => (0, scattered(m), n),
            DLayout::G => (0, m + 32 * (n / (n_total / 4)), n % (n_total / 4)),
        };
        Cell { cta, lane, col }
    }

    /// Columns an accumulator with `n_total` columns takes in TMEM.
    pub fn columns(self, n_total: u32) -> u32 {
        match self {
            DLayout::B | DLayout::E => n_total / 2,
            DLayout::G => n_total / 4,
            _ => n_total,
        }
    }

    /// Lanes at which the accumulator's address may stand.
    pub fn base_lanes(self) -> &'static [u32] {
        match self {
            DLayout::C | DLayout::F => &[0, 16],
            _ => &[0],
        }
    }

    /// Where element k of the row of A that accumulator element (m, n) needs lives, for A in TMEM: in the
    /// accumulator's own lane, packed along the columns. `bits` is the element's slot width. Layouts B, E and G
    /// thus read rows from two or four lane groups, which normally hold copies.
    #[inline]
    pub fn a_cell(self, m: u32, n: u32, n_total: u32, k: u32, bits: u32) -> (Cell, u32) {
        let Cell { cta, lane, .. } = self.cell(m, n, n_total);
        (Cell { cta, lane, col: k * bits / 32 }, k * bits % 32)
    }
}

/// 64 rows in the low half of each 32-lane window.
fn scattered(m: u32) -> u32 {
    32 * (m / 16) + m % 16
}

/// Shape and multicast of `tcgen05.cp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum CpShape {
    S128x256b,
    S128x128b,
    S4x256b,
    S64x128bWarpx2_02_13,
    S64x128bWarpx2_01_23,
    S32x128bWarpx4,
}

use CpShape::*;

impl CpShape {
    /// From the modifiers; `None` for a combination that PTX does not have.
    pub fn from_modifiers(shape: &str, multicast: Option<&str>) -> Option<CpShape> {
        Some(match (shape, multicast) {
            ("128x256b", None) => S128x256b,
            ("128x128b", None) => S128x128b,
            ("4x256b", None) => S4x256b,
            ("64x128b", Some("warpx2::02_13")) => S64x128bWarpx2_02_13,
            ("64x128b", Some("warpx2::01_23")) => S64x128bWarpx2_01_23,
            ("32x128b", Some("warpx4")) => S32x128bWarpx4,
            _ => return None,
        })
    }

    /// Rows read from shared memory.
    pub fn rows(self) -> u32 {
        match self {
            S128x256b | S128x128b => 128,
            S4x256b => 4,
            S64x128bWarpx2_02_13 | S64x128bWarpx2_01_23 => 64,
            S32x128bWarpx4 => 32,
        }
    }

    /// 32-bit columns written in each lane.
    pub fn columns(self) -> u32 {
        match self {
            S128x256b | S4x256b => 8,
            _ => 4,
        }
    }

    /// Lanes that receive source row `row`.
    pub fn lanes(self, row: u32) -> impl Iterator<Item = u32> {
        let (first, step, count) = match self {
            S128x256b | S128x128b => (row, 0, 1),
            S4x256b => (32 * row, 0, 1),
            S64x128bWarpx2_02_13 => (row, 64, 2),
            S64x128bWarpx2_01_23 => (row % 32 + 64 * (row / 32), 32, 2),
            S32x128bWarpx4 => (row, 32, 4),
        };
        (0..count).map(move |i| first + step * i)
    }
}

/// Shared-window address of the 16-byte unit `unit` (0 or 1) of source row `row` of a `tcgen05.cp`. The unit
/// is contiguous, except with an 8-byte atom.
#[inline]
pub fn cp_source(desc: &SmemDesc, row: u32, unit: u32) -> u32 {
    let (pitch, step) = match desc.swizzle.span() {
        Some(span) => (span, 16),
        None => (16, desc.lbo),
    };
    desc.at(row % 8 * pitch + row / 8 * desc.sbo + unit * step)
}
