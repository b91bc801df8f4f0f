//! The lease check: an asynchronous operation holds its source and destination from issue until some thread has
//! observed its completion; any other conflicting access is a fault. No clocks, the same under every schedule.
//!
//! Where the happens-before check runs, which finds all that this one does and more, only the moves between registers
//! and tensor memory that their own warp has not waited for are judged here.
//!
//! It cannot raise a false alarm on a kernel whose waits the PTX rules demand, because observation is the only
//! way a thread can know that an operation is done. It can miss: a wait by one thread whose knowledge never
//! reached the accessing thread (happens-before is needed for that); `cp.async` of fewer than 16 bytes; all but
//! the newest of several concurrent bulk readers of one granule; conflicts in global memory.

use super::cta::{Cta, Origin};
use super::ops::OpId;
use super::run::{Machine, Res, Stop};
use super::shared::{GRANULE, WINDOW_BASE};
use crate::fault::{Code, Fault};
use crate::tma::tile::Chunk;

impl Machine<'_> {
    /// Whether the leases that the happens-before check knows better are looked at here.
    #[inline]
    fn leases_shared(&self) -> bool {
        self.opts.checks.lease && !self.opts.checks.race
    }

    /// A generic access to `n` bytes at shared offset `off`.
    #[inline]
    pub(super) fn lease_shared(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        off: usize,
        n: usize,
        write: bool,
    ) -> Res<()> {
        if !self.leases_shared() {
            return Ok(());
        }
        for g in off / 16..(off + n).div_ceil(16) {
            self.granule(c, w, pc, g, write, true)?;
        }
        Ok(())
    }

    /// Checks one granule. `write`: the access writes. `mma`: matrix reads conflict with it.
    #[inline]
    fn granule(&self, c: &Cta, w: usize, pc: u32, g: usize, write: bool, mma: bool) -> Res<()> {
        let (wr, rd, mr) = (c.shared.write_op[g], c.shared.read_op[g], c.shared.mma_read[g]);
        if wr != 0 && !c.released[wr as usize - 1] {
            return Err(self.shared_conflict(c, w, pc, g, c.origins[wr as usize - 1], "writes", write));
        }
        if write && rd != 0 && !c.released[rd as usize - 1] {
            return Err(self.shared_conflict(c, w, pc, g, c.origins[rd as usize - 1], "reads", write));
        }
        if write && let Some(o) = c.wgmma_reader(g) {
            return Err(self.shared_conflict(c, w, pc, g, o, "reads", write));
        }
        if write && mma && mr > c.mma_released {
            return Err(self.shared_conflict(c, w, pc, g, c.mma_origins[mr as usize - 1], "reads", write));
        }
        Ok(())
    }

    #[cold]
    fn shared_conflict(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        g: usize,
        o: Origin,
        does: &str,
        write: bool,
    ) -> Stop {
        let addr = WINDOW_BASE + g as u32 * GRANULE;
        let name = super::names::shared(&self.launch.annotations, c.dynamic_base, addr);
        let verb = if write { "written" } else { "read" };
        let by = self.opcode(o.pc);
        let missing = if by.starts_with("tcgen05") {
            "tcgen05.commit to an mbarrier after it, and a successful wait on that phase before this access"
        } else if !by.starts_with("cp.async.bulk") && by.starts_with("cp.async") {
            "cp.async.wait_group (or an mbarrier that cp.async.mbarrier.arrive completes), then a hand-off to this thread"
        } else if by.starts_with("wgmma") {
            "wgmma.commit_group and wgmma.wait_group by the issuing warp, then a hand-off to this one"
        } else if does == "reads" {
            "cp.async.bulk.commit_group and wait_group.read by the issuing thread, then a hand-off to this one"
        } else {
            "a successful wait on the mbarrier phase that the copy completes, before this access"
        };
        let f = Fault::new(
            Code::LeaseShared,
            format!("{name} is {verb} by `{}` while `{by}` still {does} it", self.opcode(pc)),
        )
        .earlier(self.site(c, o, 0, format!("issued: {by}")))
        .missing(missing);
        self.fault(c, w, pc, 0, f)
    }

    /// A bulk copy takes (`id` given) or checks its shared-memory side; `write`: it writes shared memory.
    pub(super) fn lease_chunks(
        &self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        chunks: &[Chunk],
        id: Option<OpId>,
        write: bool,
    ) -> Res<()> {
        // Bounds are the hardware's own check.
        for k in chunks {
            self.shared_offset(c, w, pc, u64::from(k.smem), u32::from(k.len))?;
            if write {
                self.not_a_barrier(c, w, pc, k.smem, u32::from(k.len))?;
            }
        }
        if !self.leases_shared() {
            return Ok(());
        }
        for k in chunks {
            let off = (k.smem - WINDOW_BASE) as usize;
            for g in off / 16..(off + usize::from(k.len)).div_ceil(16) {
                self.granule(c, w, pc, g, write, true)?;
                if !write {
                    self.proxy_read(c, w, pc, g)?;
                }
            }
        }
        if let Some(id) = id {
            for k in chunks {
                let off = (k.smem - WINDOW_BASE) as usize;
                for g in off / 16..(off + usize::from(k.len)).div_ceil(16) {
                    if write {
                        c.shared.write_op[g] = id + 1;
                    } else {
                        c.shared.read_op[g] = id + 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// A matrix operation reads shared-memory elements.
    pub(super) fn lease_operand(
        &self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        addrs: &[u32],
        bytes: u32,
        seq: u32,
    ) -> Res<()> {
        let mut last = usize::MAX;
        for &a in addrs {
            let Some(off) = c.shared.offset(a, bytes) else {
                self.shared_offset(c, w, pc, u64::from(a), bytes)?;
                continue;
            };
            let g = off / 16;
            if g == last {
                continue;
            }
            last = g;
            if self.leases_shared() {
                self.granule(c, w, pc, g, false, false)?;
                self.proxy_read(c, w, pc, g)?;
                c.shared.mma_read[g] = seq;
            }
        }
        Ok(())
    }

    /// As [`Machine::lease_operand`] for a wgmma of warp `w`.
    pub(super) fn lease_wgmma(
        &self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        addrs: &[u32],
        bytes: u32,
        seq: u32,
    ) -> Res<()> {
        let warps = c.warps.len();
        let mut last = usize::MAX;
        for unit in addrs.chunks((GRANULE / bytes) as usize) {
            // K-major elements fill a granule: one look is enough.
            let n = if c.shared.unit(unit, bytes).is_some() { 1 } else { unit.len() };
            for &a in &unit[..n] {
                let g = self.shared_offset(c, w, pc, u64::from(a), bytes)? / GRANULE as usize;
                if g == last {
                    continue;
                }
                last = g;
                if self.leases_shared() {
                    self.granule(c, w, pc, g, false, false)?;
                    self.proxy_read(c, w, pc, g)?;
                    c.shared.wgmma_reads(warps)[g * warps + w] = seq;
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn tmem_conflict(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        col: u32,
        o: Origin,
        does: &str,
        missing: &str,
    ) -> Stop {
        let name = super::names::column(&self.launch.annotations, col);
        let by = self.opcode(o.pc);
        let f = Fault::new(
            Code::LeaseTmem,
            format!("tensor memory {name} is touched by `{}` while `{by}` still {does} it", self.opcode(pc)),
        )
        .earlier(self.site(c, o, 0, format!("issued: {by}")))
        .missing(missing);
        self.fault(c, w, pc, 0, f)
    }

    /// Where the warp of `o` would have had to wait for it.
    fn own_wait_place(&self, c: &Cta, w: usize, o: Origin, wait: &str) -> String {
        let (who, from) = (self.who(o.warp), self.line(o.pc));
        match self.hand_over_after(c, o.warp, o.step) {
            _ if o.warp == w as u32 => format!("{wait} by {who} after {from}"),
            Some((name, to)) => {
                format!("{wait} by {who} between {from} and {to}, where it hands over ({name})")
            }
            None => format!("{wait} by {who} after {from}, then a hand-over to {}", self.who(w as u32)),
        }
    }

    /// Matrix operations against an access to columns `col..col+cols` of the windows in `windows`.
    pub(super) fn lease_mma(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        col: u32,
        cols: u32,
        windows: u32,
        write: bool,
    ) -> Res<()> {
        if !self.leases_shared() {
            return Ok(());
        }
        for x in col..col + cols {
            for q in (0..4).filter(|q| windows >> q & 1 != 0) {
                let wr = c.tmem.mma_write[x as usize][q];
                if wr > c.mma_released {
                    let missing = "tcgen05.commit after the matrix instruction and a successful wait on its mbarrier phase";
                    return Err(self.tmem_conflict(
                        c,
                        w,
                        pc,
                        x,
                        c.mma_origins[wr as usize - 1],
                        "writes",
                        missing,
                    ));
                }
                let rd = c.tmem.mma_read[x as usize][q];
                if write && rd > c.mma_released {
                    let missing = "tcgen05.commit after the matrix instruction that reads it and a successful wait on its mbarrier phase";
                    return Err(self.tmem_conflict(
                        c,
                        w,
                        pc,
                        x,
                        c.mma_origins[rd as usize - 1],
                        "reads",
                        missing,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Un-waited tcgen05.st of other warps (all warps when `own` is none) against an access.
    pub(super) fn lease_sts(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        col: u32,
        cols: u32,
        windows: u32,
        own: Option<usize>,
    ) -> Res<()> {
        if !self.opts.checks.lease {
            return Ok(());
        }
        for (ow, warp) in c.warps.iter().enumerate().filter(|(ow, _)| Some(*ow) != own) {
            for t in &warp.sts {
                if overlap(t.col, t.cols, col, cols) && windows >> (t.lane / 32) & 1 != 0 {
                    let o = Origin { warp: ow as u32, pc: t.pc, step: t.step };
                    let missing = self.own_wait_place(c, w, o, "tcgen05.wait::st");
                    return Err(self.tmem_conflict(c, w, pc, t.col.max(col), o, "writes", &missing));
                }
            }
        }
        Ok(())
    }

    /// Un-waited tcgen05.ld of any warp against a write: a fault where registers were not consumed, else strict.
    pub(super) fn lease_lds(
        &mut self,
        c: &Cta,
        w: usize,
        pc: u32,
        col: u32,
        cols: u32,
        windows: u32,
    ) -> Res<()> {
        if !self.opts.checks.lease {
            return Ok(());
        }
        let mut strict = None;
        for (ow, warp) in c.warps.iter().enumerate() {
            for t in &warp.lds {
                if !overlap(t.col, t.cols, col, cols) || windows >> (t.lane / 32) & 1 == 0 {
                    continue;
                }
                let o = Origin { warp: ow as u32, pc: t.pc, step: t.step };
                if t.unread != 0 {
                    let missing = self.own_wait_place(c, w, o, "tcgen05.wait::ld")
                        + "; some destination registers were never read";
                    return Err(self.tmem_conflict(c, w, pc, t.col.max(col), o, "reads", &missing));
                }
                strict = Some((t.col.max(col), o));
            }
        }
        if let Some((x, o)) = strict {
            let name = super::names::column(&self.launch.annotations, x);
            let f = Fault::new(
                Code::StrictLdUnwaited,
                format!("tensor memory {name} is overwritten after a tcgen05.ld without tcgen05.wait::ld"),
            )
            .earlier(self.site(c, o, 0, format!("issued: {}", self.opcode(o.pc))));
            self.strict(c, w, pc, o.pc, f);
        }
        Ok(())
    }
}

/// Whether two column ranges overlap.
pub(super) fn overlap(a: u32, an: u32, b: u32, bn: u32) -> bool {
    a < b + bn && b < a + an
}
