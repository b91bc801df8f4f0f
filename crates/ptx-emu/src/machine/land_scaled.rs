//! Matrix instructions with block scales, when they execute.
//!
//! The factors of row r of A (or of B, whose rows are D's columns) lie in lane r mod 32 and column r / 32 of their
//! region, in bytes `id` and up, one for each block along K; all four windows of 32 lanes hold the same. A factor whose
//! copies differ, or of which one is undefined, counts as undefined. In a CTA pair with M = 128 B's factors lie as D's
//! columns do: those of the second half in the upper 64 lanes.

use super::cta::Cta;
use super::exec_mma::{Buffers, format, gather};
use super::inst::MmaKind;
use super::land_mma::Block;
use super::ops::{MmaOp, MmaSource, ScaleOp};
use super::run::Machine;
use crate::isa::tcgen05_layout::DLayout;
use crate::num::mma::{Format, scaled};

/// Rows of values with their factors, and which rows are undefined.
struct Rows {
    values: Vec<f64>,
    undef: Vec<bool>,
}

impl Machine<'_> {
    /// One block of the accumulator in `c`; `b` holds all of B's raw elements.
    pub(super) fn scaled_block(
        &mut self,
        c: &mut Cta,
        op: &MmaOp,
        scale: &ScaleOp,
        block: &Block,
        (b, b_undef): (&[u32], &[bool]),
        buf: &mut Buffers,
    ) {
        let packed = op.kind != MmaKind::Mxf8f6f4;
        let (rows, cols) = (block.rows, block.cols);
        let a_undef = match &op.a {
            MmaSource::Shared(a) => gather(c, a, 1, 32, &mut buf.a),
            MmaSource::Tmem(_, col) => {
                let mut undef = vec![false; rows];
                buf.a.clear();
                for row in 0..rows {
                    for cell in 0..8 {
                        let (lane, x) = (block.lane_of(row), *col as usize + cell);
                        undef[row] |= c.tmem.undef(lane, x) != 0;
                        buf.a.extend(c.tmem.get(lane, x).to_le_bytes().map(u32::from));
                    }
                }
                undef
            }
        };
        let formats = [op.desc.a, op.desc.b].map(|t| format(t).unwrap_or(Format::E4m3));
        let mut a = unpack(&buf.a, formats[0], packed, op.desc.negate_a, a_undef);
        let b = &b[32 * block.from..32 * (block.from + cols)];
        let b_undef = b_undef[block.from..block.from + cols].to_vec();
        let mut b = unpack(b, formats[1], packed, op.desc.negate_b, b_undef);
        let k = if packed { 64 } else { 32 };
        apply(c, &mut a, k, scale, (scale.a, scale.scales.a_id), 0, 4);
        let split = op.layout == DLayout::B;
        let (first_row, window, windows) = match split {
            true => (0, if block.from == 0 { 0 } else { 2 }, 2),
            false => (block.from, 0, 4),
        };
        let region = (scale.b + first_row as u32 / 32, scale.scales.b_id);
        apply(c, &mut b, k, scale, region, window, windows);
        let mask = op.mask[if self.prog.pair { c.rank as usize & 1 } else { 0 }];
        for x in 0..cols {
            let col = op.d.1 as usize + x;
            let of_b = &b.values[x * k..(x + 1) * k];
            for row in 0..rows {
                let lane = block.lane_of(row);
                if mask >> lane & 1 != 0 {
                    continue;
                }
                let before = if op.enable { c.tmem.get(lane, col) } else { 0 };
                let undef = a.undef[row] || b.undef[x] || op.enable && c.tmem.undef(lane, col) != 0;
                let v = scaled::dot(&a.values[row * k..(row + 1) * k], of_b, before);
                c.tmem.set(lane, col, v, if undef { 0xf } else { 0 });
            }
        }
    }
}

/// Values of rows of 32 bytes.
fn unpack(bytes: &[u32], format: Format, packed: bool, negate: bool, undef: Vec<bool>) -> Rows {
    let sign = if negate { -1.0 } else { 1.0 };
    let table: Vec<f64> = (0..256).map(|x| sign * format.value(x)).collect();
    let values = match packed {
        false => bytes.iter().map(|&b| table[b as usize & 0xff]).collect(),
        true => bytes.iter().flat_map(|&b| [table[b as usize & 0xf], table[b as usize >> 4 & 0xf]]).collect(),
    };
    Rows { values, undef }
}

/// Multiplies rows by their factors, which must be the same in `windows` windows of 32 lanes from `window` on.
fn apply(
    c: &Cta,
    rows: &mut Rows,
    k: usize,
    s: &ScaleOp,
    (col, id): (u32, u32),
    window: usize,
    windows: usize,
) {
    for row in 0..rows.undef.len() {
        let x = col as usize + row / 32;
        let lanes = (window..window + windows).map(|w| 32 * w + row % 32);
        let factors = s.factors as usize;
        let bytes = ((1u32 << factors) - 1) << id;
        let cell = c.tmem.get(32 * window + row % 32, x).to_le_bytes();
        for lane in lanes {
            let other = c.tmem.get(lane, x).to_le_bytes();
            let same = (0..4).all(|i| bytes >> i & 1 == 0 || other[i] == cell[i]);
            rows.undef[row] |= !same || u32::from(c.tmem.undef(lane, x)) & bytes != 0;
        }
        for (j, part) in rows.values[row * k..(row + 1) * k].chunks_mut(k / factors).enumerate() {
            let byte = cell[id as usize + j];
            let f = if s.scales.ue8m0 { scaled::ue8m0(byte) } else { scaled::ue4m3(byte) };
            part.iter_mut().for_each(|v| *v *= f);
        }
    }
}
