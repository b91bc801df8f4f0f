//! Effects of asynchronous operations, when the scheduler lets them act.

use super::cta::{Cta, LdState, Release, State};
use super::inst::{Inst, TmemMove, TmemShape};
use super::ops::{Kind, OpId, Pending};
use super::run::{Machine, Res};
use super::shared::{GRANULE, WINDOW_BASE};
use crate::fault::{Code, Fault};
use crate::isa::tcgen05_layout::{ld_st_cell, ld_st_cells_16b};
use crate::tma::tile::{self, Chunk};
use crate::tma::{ElemType, NumType, ReduceOp};

impl Machine<'_> {
    /// Lands an operation by number.
    pub(super) fn land_op(&mut self, c: &mut Cta, op: OpId) -> Res<()> {
        match c.pending.iter().position(|p| p.id == op) {
            Some(i) => self.land_at(c, i),
            None => Ok(()),
        }
    }

    /// Lands the operation at index `i` of those in flight.
    pub(super) fn land_at(&mut self, c: &mut Cta, i: usize) -> Res<()> {
        let p = c.pending.remove(i);
        if !self.timed()
            && let Some(t) = &mut self.trace
        {
            t.land(c.id, &p, self.steps);
        }
        self.landing_step = self.steps;
        self.progress += 1;
        let (w, pc) = (p.warp as usize, p.pc);
        self.hb_landing(c, &p);
        match &p.kind {
            Kind::Load { chunks, fill, elem, mbar, bytes } => {
                self.land_load(c, &p, chunks, fill, *elem)?;
                self.completed(c, &p, mbar.0, mbar.1, *bytes)?;
            }
            Kind::Between { .. } => self.land_between(c, &p)?,
            Kind::Remote { .. } => self.land_remote(c, &p)?,
            Kind::Response { .. } => self.land_response(c, &p)?,
            Kind::Store { chunks, reduce } => self.land_store(c, &p, chunks, *reduce)?,
            Kind::CpAsync { copies } => {
                for &(d, s, take, n) in copies {
                    let mut buf = [0u8; 16];
                    let u = self.gload(c, &p, s, &mut buf[..take as usize])?;
                    let off = (d - WINDOW_BASE) as usize;
                    c.shared.store(off, &buf[..n as usize], u);
                    self.stored(c, w, pc, off, n as usize);
                }
            }
            Kind::CpArrive { mbar, count, after } => {
                // The barrier vouches for the copies it waited for.
                let (mbar, count) = (*mbar, *count);
                if let Some(m) = c.mbars.get_mut(&mbar) {
                    let phase = m.bar.phase();
                    m.attached.extend(after.iter().map(|&o| (phase, Release::Op(o))));
                }
                let at = c.now(w);
                self.async_arrive(c, w, pc, mbar, count, None, at)?;
            }
            Kind::Mma(op) => {
                self.time_mma(c, w, op);
                self.land_mma(c, w, pc, op)?;
            }
            Kind::Cp { shape, base, desc, .. } => self.land_cp(c, w, pc, (*shape, *base, desc))?,
            Kind::Wgmma(op) => self.land_wgmma(c, w, pc, op),
            Kind::Commit { mbar, to, seq } => self.land_commit(c, w, pc, (*mbar, to), *seq)?,
            Kind::TmemLd { base } => {
                if let Inst::TcLd(mv) = &self.prog.code[pc as usize].inst {
                    land_ld(c, w, p.id, mv, *base);
                }
            }
            Kind::TmemSt { base, data } => {
                if let Inst::TcSt(mv) = &self.prog.code[pc as usize].inst {
                    land_st(c, mv, *base, data);
                }
            }
        }
        c.landed[p.id as usize] = true;
        for s in c.warps.iter_mut().flat_map(|w| &mut w.splits) {
            if matches!(s.state, State::Group | State::CpGroup | State::Wgmma) {
                s.state = State::Ready;
            }
        }
        Ok(())
    }

    /// The timed schedule's account of a matrix instruction.
    fn time_mma(&mut self, c: &mut Cta, w: usize, op: &super::ops::MmaOp) {
        let Some(k) = &mut c.clocks else { return };
        let (begin, end) = k.matrix(w, super::predict::mma_cycles(op.desc.n));
        if let Some(t) = &mut self.trace {
            let name = format!("mma → {}", super::names::column(&self.launch.annotations, op.d.1));
            t.events.push(crate::trace::Event {
                cta: c.id,
                track: "matrix pipe".into(),
                name,
                begin,
                end,
                op: None,
            });
        }
    }

    fn gload(&self, c: &Cta, p: &Pending, addr: u64, buf: &mut [u8]) -> Res<u64> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.gmem.load(addr, buf).map_err(|e| {
            self.fault(
                c,
                p.warp as usize,
                p.pc,
                0,
                Fault::new(Code::BoundsGlobal, format!("source of a copy: {e}")),
            )
        })
    }

    fn land_load(
        &mut self,
        c: &mut Cta,
        p: &Pending,
        chunks: &[Chunk],
        fill: &[u8; 16],
        elem: Option<ElemType>,
    ) -> Res<()> {
        for k in chunks {
            let n = usize::from(k.len);
            let mut buf = [0u8; 16];
            let all = (1u32 << n) - 1;
            let mut undef = 0u64;
            if u32::from(k.valid) & all == all {
                undef = self.gload(c, p, k.global, &mut buf[..n])?;
            } else {
                buf[..n].copy_from_slice(&fill[..n]);
                // Valid bytes are one run.
                if k.valid != 0 {
                    let lo = k.valid.trailing_zeros() as usize;
                    let len = k.valid.count_ones() as usize;
                    undef = self.gload(c, p, k.global + lo as u64, &mut buf[lo..lo + len])? << lo;
                }
            }
            if let Some(e) = elem {
                tile::convert_load(e, &mut buf[..n]);
            }
            let off = (k.smem - WINDOW_BASE) as usize;
            c.shared.store(off, &buf[..n], undef);
            c.shared.stored[off / GRANULE as usize] = Default::default();
        }
        Ok(())
    }

    fn land_store(
        &mut self,
        c: &mut Cta,
        p: &Pending,
        chunks: &[Chunk],
        reduce: Option<(ReduceOp, NumType)>,
    ) -> Res<()> {
        for k in chunks.iter().filter(|k| k.valid != 0) {
            let n = usize::from(k.len);
            let off = (k.smem - WINDOW_BASE) as usize;
            let mut data = [0u8; 16];
            data[..n].copy_from_slice(c.shared.bytes(off, n));
            let mut undef = c.shared.undef(off, n);
            let (lo, len) = (k.valid.trailing_zeros() as usize, k.valid.count_ones() as usize);
            let run = &mut data[lo..lo + len];
            undef >>= lo;
            if let Some((op, ty)) = reduce {
                let mut old = [0u8; 16];
                let u = self.gload(c, p, k.global + lo as u64, &mut old[..len])?;
                crate::tma::reduce(op, ty, &mut old[..len], run);
                run.copy_from_slice(&old[..len]);
                undef |= u;
            }
            if let Err(e) = self.gmem.store(k.global + lo as u64, run, undef, !0) {
                let f = Fault::new(Code::BoundsGlobal, format!("destination of a copy: {e}"));
                return Err(self.fault(c, p.warp as usize, p.pc, 0, f));
            }
        }
        Ok(())
    }
}

fn land_ld(c: &mut Cta, w: usize, id: OpId, mv: &TmemMove, (lane, col): (u32, u32)) {
    let warp = &mut c.warps[w];
    for (r, &slot) in mv.regs.iter().enumerate() {
        if warp.ld_state[slot as usize] == LdState::Pending(id) {
            warp.ld_state[slot as usize] = LdState::Unread(id);
        }
        if mv.shape == TmemShape::S32x32b && !mv.pack {
            let x = col as usize + r;
            let cells = &c.tmem.column(x)[lane as usize..lane as usize + 32];
            warp.regs.r32[slot as usize].0.copy_from_slice(cells);
            let undef = (c.tmem.undefined_lanes(x) >> lane) as u32;
            warp.regs.u32[slot as usize] = undef;
            for l in super::exec::lanes(undef) {
                warp.regs.b32[slot as usize][l] = c.tmem.undef(lane as usize + l, x);
            }
            continue;
        }
        for t in 0..32u32 {
            let at = |(l, x): (u32, u32)| ((lane + l) as usize, (col + x) as usize);
            let (v, u) = if mv.pack {
                let [a, b] = ld_st_cells_16b(mv.shape, t, r as u32, mv.half_split).map(at);
                let v = c.tmem.get(a.0, a.1) & 0xffff | c.tmem.get(b.0, b.1) << 16;
                (v, c.tmem.undef(a.0, a.1) & 3 | (c.tmem.undef(b.0, b.1) & 3) << 2)
            } else {
                let a = at(ld_st_cell(mv.shape, t, r as u32, mv.half_split));
                (c.tmem.get(a.0, a.1), c.tmem.undef(a.0, a.1))
            };
            warp.regs.set32(slot, t as usize, v, u);
        }
    }
    if let Some(t) = warp.lds.iter_mut().find(|t| t.op == id) {
        t.pending = false;
    }
}

fn land_st(c: &mut Cta, mv: &TmemMove, (lane, col): (u32, u32), data: &[([u32; 32], [u8; 32])]) {
    for (r, (v, u)) in data.iter().enumerate() {
        if mv.shape == TmemShape::S32x32b && !mv.pack && u == &[0; 32] {
            c.tmem.set_window(lane as usize, col as usize + r, v);
            continue;
        }
        for t in 0..32u32 {
            let at = |(l, x): (u32, u32)| ((lane + l) as usize, (col + x) as usize);
            let (v, u) = (v[t as usize], u[t as usize]);
            if mv.pack {
                // The upper half of each cell is written as zero (the manual does not say).
                let [a, b] = ld_st_cells_16b(mv.shape, t, r as u32, mv.half_split).map(at);
                c.tmem.set(a.0, a.1, v & 0xffff, u & 3);
                c.tmem.set(b.0, b.1, v >> 16, u >> 2 & 3);
            } else {
                let a = at(ld_st_cell(mv.shape, t, r as u32, mv.half_split));
                c.tmem.set(a.0, a.1, v, u);
            }
        }
    }
}
