//! mma.sync: the matrix product of one warp, all operands in registers.
//!
//! The sums are those of an H200: for f16, bf16 and tf32 the bits of wgmma, for e4m3 two f16 products and an
//! addition (see [`crate::num::mma::mma_sync_fp8`]). What sm_100 gives is not recorded; the same is assumed.

use super::cta::{Cta, State};
use super::exec::Next;
use super::exec_wgmma::{a_from_registers, per_register};
use super::inst::MmaSync;
use super::run::{Machine, Res};
use crate::isa::fragments;
use crate::num::mma::{self, Model};

const ROWS: usize = 16;
const COLUMNS: usize = 8;

impl Machine<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn mma_sync(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        i: &MmaSync,
    ) -> Res<Next> {
        let live = c.warps[w].live;
        if self.gather(c, w, s, live).is_none() {
            return Ok(Next::Block(State::Sync(live)));
        }
        self.whole_warp(c, w, pc, m)?;
        c.hb.meet(w, live);
        let regs = &mut c.warps[w].regs;
        let (k, per) = (i.k as usize, per_register(i.a_fmt));
        let mut a = Vec::new();
        let a_undef = a_from_registers(regs, &i.a, per, k, &mut a);
        let (mut b, mut b_undef) = (vec![0; COLUMNS * k], [false; COLUMNS]);
        let width = 32 / per as u32;
        for (r, &slot) in i.b.iter().enumerate() {
            for t in 0..32 {
                let v = regs.r32[slot as usize].0[t];
                for j in 0..per {
                    let (col, kk) = fragments::b(per, t, r, j);
                    b[col * k + kk] = if per == 1 { v } else { v >> (width * j as u32) & ((1 << width) - 1) };
                    b_undef[col] |= regs.u32[slot as usize] >> t & 1 != 0;
                }
            }
        }
        let halves = if i.f16_acc { 2 } else { 1 };
        let mask = |h: usize| if i.f16_acc { 3u8 << (2 * h) } else { 0xf };
        let (mut acc, mut undef) = ([0u32; ROWS * COLUMNS], [false; ROWS * COLUMNS]);
        for e in 0..4 {
            let (slot, h) = (i.c[e / halves], e % halves);
            for t in 0..32 {
                let (row, col) = fragments::acc(t, e);
                let v = regs.r32[slot as usize].0[t];
                acc[row * COLUMNS + col] = if i.f16_acc { v >> (16 * h) & 0xffff } else { v };
                undef[row * COLUMNS + col] =
                    a_undef[row] || b_undef[col] || regs.bytes32(slot, t) & mask(h) != 0;
            }
        }
        let shape = mma::Op {
            model: Model::WGMMA,
            a_fmt: i.a_fmt,
            b_fmt: i.b_fmt,
            m: ROWS,
            n: COLUMNS,
            k,
            negate_a: false,
            negate_b: false,
        };
        let mut d = [0u32; ROWS * COLUMNS];
        match (per, i.f16_acc) {
            (4, _) => mma::mma_sync_fp8(&shape, &a, &b, &acc, &mut d, &mut self.scratch),
            (_, true) => mma::mma_f16(&shape, &a, &b, Some(&acc), &mut d, &mut self.scratch),
            (_, false) => mma::mma(&shape, &a, &b, Some(&acc), &mut d, &mut self.scratch),
        }
        for (r, &slot) in i.d.iter().enumerate() {
            for t in 0..32 {
                let (mut v, mut u) = (0, 0);
                for h in 0..halves {
                    let (row, col) = fragments::acc(t, r * halves + h);
                    v |= d[row * COLUMNS + col] << (16 * h);
                    u |= if undef[row * COLUMNS + col] { mask(h) } else { 0 };
                }
                regs.set32(slot, t, v, u);
            }
        }
        self.counters.mmas += 1;
        Ok(Next::Advance)
    }
}
