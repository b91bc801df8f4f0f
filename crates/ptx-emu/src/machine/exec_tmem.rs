//! Tensor memory: allocation, loads and stores, their waits.

use super::cta::{Cta, LdState, LdTrack, Origin, StTrack, State, move_columns};
use super::exec::Next;
use super::hb::Does;
use super::inst::{Addr, Inst, Place, TmemMove};
use super::ops::{Kind, Pending};
use super::run::{Machine, Res};
use super::tmem::TMEM_COLS;
use crate::fault::{Code, Fault};

impl Machine<'_> {
    pub(super) fn tmem_op(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        inst: &Inst,
    ) -> Res<Next> {
        let live = c.warps[w].live;
        // A guard that is false everywhere never comes here; a partial one is caught below.
        let Some(groups) = self.gather(c, w, s, live) else { return Ok(Next::Block(State::Sync(live))) };
        if groups == [s] {
            self.whole_warp(c, w, pc, m)?;
        }
        c.hb.meet(w, live);
        match inst {
            Inst::TcAlloc(at, cols) if !self.alloc(c, w, pc, *at, *cols)? => {
                return Ok(Next::Block(State::Alloc));
            }
            Inst::TcDealloc(a, cols) => self.dealloc(c, w, pc, *a, *cols)?,
            Inst::TcRelinquish => c.tmem.relinquished = true,
            Inst::TcLd(mv) => self.tmem_ld(c, w, pc, mv)?,
            Inst::TcSt(mv) => self.tmem_st(c, w, pc, mv)?,
            Inst::TcWaitLd => self.wait_ld(c, w)?,
            Inst::TcWaitSt => self.wait_st(c, w)?,
            _ => {}
        }
        Ok(self.release(c, w, s, &groups))
    }

    fn uniform(&self, c: &Cta, w: usize, pc: u32, slot: u32, what: &str) -> Res<u32> {
        let live = c.warps[w].live;
        self.defined32(c, w, pc, live, slot, what)?;
        let v = c.warps[w].regs.r32[slot as usize].0;
        let first = live.trailing_zeros() as usize;
        if super::exec::lanes(live).any(|l| v[l] != v[first]) {
            let f =
                Fault::new(Code::Converge, format!("{what} of `{}` differs between lanes", self.opcode(pc)));
            return Err(self.fault(c, w, pc, live, f));
        }
        Ok(v[first])
    }

    fn alloc(&mut self, c: &mut Cta, w: usize, pc: u32, at: Addr, cols: u32) -> Res<bool> {
        let live = c.warps[w].live;
        self.addr_defined(c, w, pc, live, at)?;
        let n = self.uniform(c, w, pc, cols, "the column count")?;
        let bad = |text: String| self.fault(c, w, pc, live, Fault::new(Code::TmemAlloc, text));
        if !matches!(n, 32 | 64 | 128 | 256 | 512) {
            return Err(bad(format!("tcgen05.alloc of {n} columns; allowed are 32, 64, 128, 256 and 512")));
        }
        if c.tmem.relinquished {
            return Err(bad("tcgen05.alloc after relinquish_alloc_permit".into()));
        }
        if c.tmem.last_cols.is_some_and(|l| n > l) {
            return Err(bad(format!(
                "tcgen05.alloc of {n} columns after one of {}: sizes must not grow",
                c.tmem.last_cols.unwrap_or(0)
            )));
        }
        let l = live.trailing_zeros() as usize;
        let addr = self.own_shared(c, w, pc, l, at)?;
        let off = self.shared_offset(c, w, pc, u64::from(addr), 4)?;
        let col = if self.prog.pair { self.alloc_pair(c, w, pc, n)? } else { c.tmem.alloc(n) };
        let Some(col) = col else { return Ok(false) };
        if !self.prog.pair {
            c.hb.allocated(col, n);
        }
        self.lease_shared(c, w, pc, off, 4, true)?;
        c.shared.store(off, &col.to_le_bytes(), 0);
        let e = self.hb_begin(c, w, pc, live, Place::Shared, None);
        self.hb_touch(c, w, pc, e, live, (Place::Shared, u64::from(addr)), 4, Does::Write)?;
        self.progress += 1;
        Ok(true)
    }

    fn dealloc(&mut self, c: &mut Cta, w: usize, pc: u32, a: u32, cols: u32) -> Res<()> {
        let live = c.warps[w].live;
        let taddr = self.uniform(c, w, pc, a, "the address")?;
        let n = self.uniform(c, w, pc, cols, "the column count")?;
        let col = taddr & 0xffff;
        if taddr >> 16 == 0 && c.tmem.allocs.iter().flatten().any(|&x| x == (col, n)) {
            self.lease_mma(c, w, pc, col, n, 0xf, true)?;
            self.lease_sts(c, w, pc, col, n, 0xf, None)?;
            self.lease_lds(c, w, pc, col, n, 0xf)?;
            self.hb_dealloc(c, w, pc, (col, n))?;
            c.tmem.dealloc(col);
            self.columns_freed(c);
            return Ok(());
        }
        let have: Vec<String> =
            c.tmem.allocs.iter().flatten().map(|(b, n)| format!("{n} columns at {b:#x}")).collect();
        let f = Fault::new(
            Code::TmemAlloc,
            format!("tcgen05.dealloc of {n} columns at {taddr:#x}; allocated: {}", have.join(", ")),
        );
        Err(self.fault(c, w, pc, live, f))
    }

    /// Base lane and column of a move, checked against the warp's window and the allocation.
    fn move_base(&self, c: &Cta, w: usize, pc: u32, mv: &TmemMove) -> Res<(u32, u32)> {
        let live = c.warps[w].live;
        self.addr_defined(c, w, pc, live, mv.taddr)?;
        let first = live.trailing_zeros() as usize;
        let taddr = self.lane_addr(c, w, mv.taddr, first) as u32;
        if super::exec::lanes(live).any(|l| self.lane_addr(c, w, mv.taddr, l) as u32 != taddr) {
            let f = Fault::new(
                Code::Converge,
                format!("the address of `{}` differs between lanes", self.opcode(pc)),
            );
            return Err(self.fault(c, w, pc, live, f));
        }
        let (lane, col, cols) = (taddr >> 16, taddr & 0xffff, move_columns(mv));
        let window = 32 * (w as u32 % 4);
        let ok = lane == window || mv.shape.lanes() == 16 && lane == window + 16;
        if !ok {
            let f = Fault::new(
                Code::TmemLane,
                format!(
                    "warp {w} addresses lane {lane} of tensor memory; its window is lanes {window} to {}",
                    window + 31
                ),
            );
            return Err(self.fault(c, w, pc, live, f));
        }
        self.allocated(c, w, pc, col, cols)?;
        Ok((lane, col))
    }

    /// Columns must belong to an allocation.
    pub(super) fn allocated(&self, c: &Cta, w: usize, pc: u32, col: u32, cols: u32) -> Res<()> {
        if let Some(x) = c.tmem.first_unallocated(col, cols) {
            let f = Fault::new(
                Code::TmemBounds,
                format!("column {x} of columns {col}..{} is not allocated (of {TMEM_COLS})", col + cols),
            );
            return Err(self.fault(c, w, pc, 0, f));
        }
        Ok(())
    }

    fn tmem_ld(&mut self, c: &mut Cta, w: usize, pc: u32, mv: &TmemMove) -> Res<()> {
        let (lane, col) = self.move_base(c, w, pc, mv)?;
        let cols = move_columns(mv);
        let windows = 1 << (lane / 32);
        self.lease_mma(c, w, pc, col, cols, windows, false)?;
        self.lease_sts(c, w, pc, col, cols, windows, Some(w))?;
        self.order_own_sts(c, w, pc, col, cols, true)?;
        // A second load into a register whose first has not landed: the first lands before.
        for &r in mv.regs.iter() {
            if let LdState::Pending(op) = c.warps[w].ld_state[r as usize] {
                self.land_op(c, op)?;
            }
            if let LdState::Unread(op) = c.warps[w].ld_state[r as usize] {
                let warp = &mut c.warps[w];
                warp.ld_state[r as usize] = LdState::None;
                warp.tracked -= 1;
                if let Some(t) = warp.lds.iter_mut().find(|t| t.op == op) {
                    t.unread -= 1;
                    if t.unread == 0 {
                        self.hb_ld_done(c, w, op);
                    }
                }
            }
        }
        let origin = Origin { warp: w as u32, pc, step: self.steps };
        let id = c.new_op(origin);
        let warp = &mut c.warps[w];
        if warp.lds.len() > 256 {
            // Consumed loads that nobody waits for (a habit of shipped kernels) must not pile up.
            warp.lds.retain(|t| t.pending || t.unread != 0);
        }
        let mut unread = 0;
        for &r in mv.regs.iter() {
            if warp.ld_state[r as usize] == LdState::None {
                warp.ld_state[r as usize] = LdState::Pending(id);
                warp.tracked += 1;
                unread += 1;
            }
        }
        let all_known = unread == 0;
        warp.lds.push(LdTrack { op: id, pending: true, pc, step: self.steps, lane, col, cols, unread });
        self.hb_tmem_move(c, w, pc, id, mv, (lane, col), Does::Read)?;
        if all_known {
            self.hb_ld_done(c, w, id);
        }
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::TmemLd { base: (lane, col) } })
    }

    /// Own un-waited stores that overlap land first (this machine's choice) and are reported.
    fn order_own_sts(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        col: u32,
        cols: u32,
        report: bool,
    ) -> Res<()> {
        let hit: Vec<StTrack> = c.warps[w]
            .sts
            .iter()
            .filter(|t| super::lease::overlap(t.col, t.cols, col, cols))
            .cloned()
            .collect();
        for t in hit {
            if !c.landed[t.op as usize] {
                self.land_op(c, t.op)?;
            }
            if report {
                let o = Origin { warp: w as u32, pc: t.pc, step: t.step };
                let f = Fault::new(
                    Code::StrictStLd,
                    "tensor memory is loaded after a tcgen05.st of the same warp without tcgen05.wait::st",
                )
                .earlier(self.site(c, o, 0, self.opcode(t.pc)));
                self.strict(c, w, pc, t.pc, f);
            }
        }
        Ok(())
    }

    fn tmem_st(&mut self, c: &mut Cta, w: usize, pc: u32, mv: &TmemMove) -> Res<()> {
        let (lane, col) = self.move_base(c, w, pc, mv)?;
        let cols = move_columns(mv);
        let windows = 1 << (lane / 32);
        self.lease_mma(c, w, pc, col, cols, windows, true)?;
        self.lease_sts(c, w, pc, col, cols, windows, Some(w))?;
        self.lease_lds(c, w, pc, col, cols, windows)?;
        self.order_own_sts(c, w, pc, col, cols, false)?;
        let regs = &c.warps[w].regs;
        let data = mv
            .regs
            .iter()
            .map(|&r| {
                let u: [u8; 32] = if regs.u32[r as usize] == 0 {
                    [0; 32]
                } else {
                    std::array::from_fn(|l| regs.bytes32(r, l))
                };
                (regs.r32[r as usize].0, u)
            })
            .collect();
        let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
        self.hb_tmem_move(c, w, pc, id, mv, (lane, col), Does::Write)?;
        c.warps[w].sts.push(StTrack { op: id, pc, step: self.steps, lane, col, cols });
        self.put_in_flight(
            c,
            Pending { id, warp: w as u32, pc, kind: Kind::TmemSt { base: (lane, col), data } },
        )
    }

    fn wait_ld(&mut self, c: &mut Cta, w: usize) -> Res<()> {
        let ops: Vec<_> = c.warps[w].lds.iter().filter(|t| t.pending).map(|t| t.op).collect();
        for op in ops {
            self.land_op(c, op)?;
        }
        self.hb_lds_waited(c, w);
        let warp = &mut c.warps[w];
        warp.lds.clear();
        if warp.tracked != 0 {
            warp.ld_state.fill(LdState::None);
            warp.tracked = 0;
        }
        Ok(())
    }

    fn wait_st(&mut self, c: &mut Cta, w: usize) -> Res<()> {
        let ops: Vec<_> = c.warps[w].sts.iter().map(|t| t.op).collect();
        for op in ops {
            if !c.landed[op as usize] {
                self.land_op(c, op)?;
            }
        }
        c.warps[w].sts.clear();
        c.hb.st_waited(w);
        Ok(())
    }
}
