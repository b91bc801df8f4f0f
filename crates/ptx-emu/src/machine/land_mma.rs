//! What matrix instructions do when they execute: accumulators block by block, in one CTA or in both of a pair.

use super::cta::Cta;
use super::exec_mma::{Buffers, format, gather, kind_of};
use super::ops::{MmaOp, MmaSource};
use super::run::{Machine, Res};
use super::shared::WINDOW_BASE;
use crate::isa::idesc::AccType;
use crate::isa::smem_desc::SmemDesc;
use crate::isa::tcgen05_layout::{CpShape, DLayout, cp_source};
use crate::num::mma::{self, Format, Model};

/// A block of an accumulator whose columns in tensor memory are columns of D.
pub(super) struct Block {
    /// Rows of D.
    pub rows: usize,
    /// Lane of row 0.
    lane: usize,
    /// Row r lies 16·(r/16) lanes further on (M = 64: 16 rows of each 32 lanes).
    spread: bool,
    /// First row of B.
    pub from: usize,
    /// Columns.
    pub cols: usize,
}

impl MmaOp {
    /// Columns of tensor memory that the accumulator takes.
    pub fn columns(&self) -> u32 {
        match self.layout {
            DLayout::B | DLayout::E => self.desc.n / 2,
            DLayout::G => self.desc.n / 4,
            _ => self.desc.n,
        }
    }

    /// The accumulator's blocks in one CTA.
    fn blocks(&self) -> Vec<Block> {
        let (parts, rows) = match self.layout {
            DLayout::A | DLayout::D => (1, 128),
            DLayout::B | DLayout::E => (2, 64),
            DLayout::C | DLayout::F => (1, 64),
            DLayout::G => (4, 32),
        };
        let cols = self.desc.n as usize / parts;
        let spread = matches!(self.layout, DLayout::C | DLayout::F);
        let block =
            |p: usize| Block { rows, lane: p * rows + self.d.0 as usize, spread, from: p * cols, cols };
        (0..parts).map(block).collect()
    }
}

impl Block {
    pub fn lane_of(&self, row: usize) -> usize {
        self.lane + row + if self.spread { row / 16 * 16 } else { 0 }
    }
}

impl Machine<'_> {
    /// D = A·B + D, with the undefined rows and columns that undefined operands make.
    pub(super) fn land_mma(&mut self, c: &mut Cta, w: usize, pc: u32, op: &MmaOp) -> Res<()> {
        let k = kind_of(op.kind).k() as usize;
        let bytes = kind_of(op.kind).slot_bits() / 8;
        let mut buf = std::mem::take(&mut self.bufs);
        if !self.prog.pair {
            let b_undef = gather(c, &op.b, bytes, k, &mut buf.b);
            for block in op.blocks() {
                self.block(c, op, &block, &b_undef, &mut buf);
            }
            self.bufs = buf;
            return Ok(());
        }
        // B is the even CTA's half and then the odd one's; each CTA multiplies its own rows of A with all of it.
        self.still_there(c, w, pc, c.rank ^ 1)?;
        let ranks = [c.rank & !1, c.rank | 1];
        let (mut b, mut b_undef) = (Vec::new(), Vec::new());
        for r in ranks {
            let half = self.on(c, r, |_, c| Ok(gather(c, &op.b, bytes, k, &mut buf.b)))?;
            b.extend_from_slice(&buf.b);
            b_undef.extend(half);
        }
        buf.b = b;
        for r in ranks {
            self.on(c, r, |m, c| {
                for block in op.blocks() {
                    m.block(c, op, &block, &b_undef, &mut buf);
                }
                Ok(())
            })?;
        }
        self.bufs = buf;
        Ok(())
    }

    /// One block of the accumulator in `c`; `buf.b` holds B.
    fn block(&mut self, c: &mut Cta, op: &MmaOp, block: &Block, b_undef: &[bool], buf: &mut Buffers) {
        if let Some(scale) = &op.scale {
            let b = std::mem::take(&mut buf.b);
            self.scaled_block(c, op, scale, block, (&b, b_undef), buf);
            buf.b = b;
            return;
        }
        let k = kind_of(op.kind).k() as usize;
        let bytes = kind_of(op.kind).slot_bits() / 8;
        let (m, n) = (block.rows, block.cols);
        let lane_of = |row: usize| block.lane_of(row);
        let a_undef = match &op.a {
            MmaSource::Shared(a) => gather(c, a, bytes, k, &mut buf.a),
            MmaSource::Tmem(_, col) => {
                let per = 4 / bytes as usize;
                buf.a.resize(m * k, 0);
                let mut undef = vec![false; m];
                for cell in 0..k / per {
                    let column = c.tmem.column(*col as usize + cell);
                    let bad = c.tmem.undefined_lanes(*col as usize + cell);
                    for row in 0..m {
                        let lane = lane_of(row);
                        let v = column[lane];
                        undef[row] |= bad >> lane & 1 != 0;
                        for e in 0..per {
                            let x =
                                if per == 1 { v } else { v >> (32 / per * e) & ((1u32 << (32 / per)) - 1) };
                            buf.a[row * k + cell * per + e] = x;
                        }
                    }
                }
                undef
            }
        };
        // The unit sums all products and D at once, so A and B can trade places: computing Dᵀ = B·Aᵀ + Dᵀ leaves
        // each column of tensor memory contiguous.
        let full = m == 128;
        buf.d.resize(n * m, 0);
        let col0 = op.d.1 as usize;
        if op.enable {
            buf.c.clear();
            for x in 0..n {
                let column = c.tmem.column(col0 + x);
                if full {
                    buf.c.extend_from_slice(column);
                } else {
                    buf.c.extend((0..m).map(|row| column[lane_of(row)]));
                }
            }
            if op.scale_d != 0 {
                let s = f32::from_bits((127 - op.scale_d) << 23);
                buf.c.iter_mut().for_each(|v| *v = (f32::from_bits(*v) * s).to_bits());
            }
        }
        let shape = mma::Op {
            model: Model::TCGEN05,
            a_fmt: format(op.desc.b).unwrap_or(Format::Bf16),
            b_fmt: format(op.desc.a).unwrap_or(Format::Bf16),
            m: n,
            n: m,
            k,
            negate_a: op.desc.negate_b,
            negate_b: op.desc.negate_a,
        };
        let acc = op.enable.then_some(&buf.c[..]);
        let b = &buf.b[block.from * k..(block.from + n) * k];
        if op.desc.d == AccType::F16 {
            mma::mma_f16(&shape, b, &buf.a, acc, &mut buf.d, &mut self.scratch);
        } else {
            mma::mma(&shape, b, &buf.a, acc, &mut buf.d, &mut self.scratch);
        }
        let row_lanes = (0..m).filter(|&r| a_undef[r]).fold(0u128, |a, r| a | 1 << lane_of(r));
        let all_lanes = if full { !0u128 } else { (0..m).fold(0u128, |a, r| a | 1 << lane_of(r)) };
        let mask = op.mask[if self.prog.pair { c.rank as usize & 1 } else { 0 }];
        for x in 0..n {
            let col = col0 + x;
            let mut undef = if b_undef[block.from + x] { all_lanes } else { row_lanes };
            if op.enable {
                undef |= c.tmem.undefined_lanes(col) & all_lanes;
            }
            let d = &buf.d[x * m..(x + 1) * m];
            if full && mask == 0 && undef == 0 {
                c.tmem.set_column(col, d);
                continue;
            }
            for (row, &v) in d.iter().enumerate() {
                let lane = lane_of(row);
                if mask >> lane & 1 == 0 {
                    c.tmem.set(lane, col, v, if undef >> lane & 1 != 0 { 0xf } else { 0 });
                }
            }
        }
    }

    /// tcgen05.cp: in a pair, each CTA copies its own shared memory to its own tensor memory.
    pub(super) fn land_cp(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        (shape, base, desc): (CpShape, (u32, u32), &SmemDesc),
    ) -> Res<()> {
        copy_to_tmem(c, shape, base, desc);
        if self.prog.pair {
            self.still_there(c, w, pc, c.rank ^ 1)?;
            self.on(c, c.rank ^ 1, |_, c| {
                copy_to_tmem(c, shape, base, desc);
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn copy_to_tmem(c: &mut Cta, shape: CpShape, base: (u32, u32), desc: &SmemDesc) {
    for r in 0..shape.rows() {
        for u in 0..shape.columns() / 4 {
            let off = (cp_source(desc, r, u) - WINDOW_BASE) as usize;
            let bytes: [u8; 16] = c.shared.bytes(off, 16).try_into().unwrap_or([0; 16]);
            let undef = c.shared.undef(off, 16);
            let words: &[[u8; 4]] = bytes.as_chunks().0;
            for lane in shape.lanes(r) {
                for (x, v) in words.iter().enumerate() {
                    let col = base.1 as usize + 4 * u as usize + x;
                    let l = (base.0 + lane) as usize;
                    c.tmem.set(l & 127, col, u32::from_le_bytes(*v), (undef >> (4 * x) & 0xf) as u8);
                }
            }
        }
    }
}
