//! Accesses, as the executing modules report them: each is checked against the shadow and recorded there.

use super::super::cta::{Cta, move_columns};
use super::super::exec::lanes;
use super::super::inst::{Access, Place, TmemMove, TmemShape};
use super::super::ops::{MmaSource, OpId};
use super::super::run::{Machine, Res};
use super::super::shared::WINDOW_BASE;
use super::between::view;
use super::cell::{Clash, Memo};
use super::event::{End, Kind, Order, View, event_of, stamp};
use super::shared::{Does, GRANULE, worst};
use super::{CtaHb, Stream};
use crate::isa::regs::Class;
use crate::isa::tcgen05_layout::DLayout;
use crate::tma::tile::Chunk;
use std::rc::Rc;

/// Where in tensor memory: first column, columns, and the 16-lane groups as a mask.
type Cells = (u32, u32, u8);

impl Machine<'_> {
    /// Lanes `m` begin an ordinary access; its event, 0 when nothing is checked.
    #[inline]
    pub(in super::super) fn hb_begin(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        place: Place,
        order: Option<Order>,
    ) -> u32 {
        if !c.hb.on || matches!(place, Place::Param | Place::Local) {
            return 0;
        }
        let kind = order.map_or(Kind::Weak, |o| Kind::Strong(o.scope));
        self.hb_event(c, w, pc, m, kind, End::Issue)
    }

    /// Lanes `m` begin a load.
    #[inline]
    pub(in super::super) fn hb_begin_load(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        a: &Access,
    ) -> u32 {
        let e = self.hb_begin(c, w, pc, m, a.place, a.order);
        if e == 0 || !c.hb.follow_loads {
            return e;
        }
        let first = self.lane_addr(c, w, a.addr, m.trailing_zeros() as usize & 31);
        if matches!(self.resolve(a.place, first).0, Place::Shared | Place::Cluster) {
            c.hb.loads[w].extend(a.regs.iter().flatten().map(|&r| (r, e)));
        }
        e
    }

    /// The warp begins an ldmatrix.
    pub(in super::super) fn hb_begin_matrix(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        regs: &[u32],
    ) -> u32 {
        let e = self.hb_begin(c, w, pc, m, Place::Shared, None);
        if e != 0 && c.hb.follow_loads {
            c.hb.loads[w].extend(regs.iter().map(|&r| ((Class::R32, r), e)));
        }
        e
    }

    /// An ordinary access of `on` (one lane, or the lanes that share the bytes) to `n` bytes, part of event `e`.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(in super::super) fn hb_touch(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        e: u32,
        on: u32,
        at: (Place, u64),
        n: usize,
        does: Does,
    ) -> Res<()> {
        if e == 0 { Ok(()) } else { self.hb_bytes(c, (w, pc, on), e, at, n, does, &[]) }
    }

    /// As [`Machine::hb_touch`] for a store that is about to write `data`.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(in super::super) fn hb_store(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        e: u32,
        on: u32,
        at: (Place, u64),
        data: &[u8],
    ) -> Res<()> {
        if e == 0 { Ok(()) } else { self.hb_bytes(c, (w, pc, on), e, at, data.len(), Does::Write, data) }
    }

    #[allow(clippy::too_many_arguments)]
    fn hb_bytes(
        &mut self,
        c: &mut Cta,
        at: (usize, u32, u32),
        e: u32,
        (place, addr): (Place, u64),
        n: usize,
        does: Does,
        data: &[u8],
    ) -> Res<()> {
        let (w, _, on) = at;
        match self.resolve(place, addr) {
            (Place::Cluster, a) if a >> 24 != u64::from(c.rank) => {
                self.hb_bytes_of_peer(c, at, e, a, n, does, data)
            }
            (Place::Shared | Place::Cluster, a) => {
                // What is out of bounds faults there.
                let Some(off) = c.shared.offset(a as u32 & 0xff_ffff, n as u32) else { return Ok(()) };
                let kind = self.hb.events.get(e).kind;
                let CtaHb { cta, warps, shared, .. } = &mut c.hb;
                let know = warps[w].know(on.trailing_zeros());
                let v = View { cta: *cta, warp: w as u32, lanes: on, kind, know };
                match shared.range(&self.hb.events, &v, off, n, does, stamp(e, on)) {
                    None => Ok(()),
                    Some(f) if self.hb_same_store(f, at.1) && data == c.shared.bytes(off, n) => Ok(()),
                    Some(f) => self.hb_shared_clash(c, at, e, off, n, does, f),
                }
            }
            (Place::Global, a) => match self.hb_global(c, at, e, (a, n), does) {
                Some(f) if self.hb_same_store(f, at.1) && self.hb_holds(a, data) => Ok(()),
                Some(f) => self.hb_global_clash(c, at, e, a, n, does, f),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Whether a clash is with the same store by another warp: where both write the same value, none is lost.
    pub(super) fn hb_same_store(&self, f: Clash, pc: u32) -> bool {
        matches!(f, Clash::Race { earlier, wrote: true } if self.hb.events.get(event_of(earlier)).pc == pc)
    }

    fn hb_holds(&self, addr: u64, data: &[u8]) -> bool {
        let mut old = [0u8; 64];
        !data.is_empty() && self.gmem.load(addr, &mut old[..data.len()]).is_ok() && old[..data.len()] == *data
    }

    /// Registers are used: loads into them are over. Called only while [`CtaHb::loads_in_flight`].
    #[cold]
    pub(in super::super) fn hb_used(&mut self, c: &mut Cta, w: usize, srcs: (u32, u32), dsts: (u32, u32)) {
        let regs = |r: (u32, u32)| &self.prog.regs[r.0 as usize..r.1 as usize];
        let (time, events) = (c.hb.warps[w].time, &mut self.hb.events);
        let mut done = 0;
        for r in regs(srcs).iter().chain(regs(dsts)) {
            if let Some(&(_, e)) = c.hb.loads[w].iter().find(|l| l.0 == *r) {
                events.get_mut(e).used = time;
                done = e;
            }
        }
        if done != 0 {
            c.hb.loads[w].retain(|&(_, e)| events.get(e).used == 0);
        }
    }

    /// A fence or a named barrier: all loads of the warp are over. (That a barrier suffices is not measured, but
    /// shipped kernels rely on it.)
    pub(in super::super) fn hb_loads_over(&mut self, c: &mut Cta, w: usize) {
        if c.hb.loads_in_flight(w) {
            for (_, e) in c.hb.loads[w].drain(..) {
                self.hb.events.get_mut(e).used = c.hb.warps[w].time;
            }
        }
    }

    /// Shared memory of an asynchronous operation by lanes `on`, as runs of granules.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hb_granules(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        e: u32,
        on: u32,
        granules: impl Iterator<Item = u32>,
        does: Does,
    ) -> Res<()> {
        let (kind, far) = (self.hb.events.get(e).kind, self.hb_far(w, on.trailing_zeros()));
        let CtaHb { cta, warps, shared, .. } = &mut c.hb;
        let v = view(warps, *cta, &far, (w, on), kind);
        let (mut memo, mut found) = (Memo::default(), None);
        for g in granules {
            let f = shared.granule(&self.hb.events, &v, g as usize, does, stamp(e, 0), &mut memo);
            if f.is_some() && worst(found.map(|(_, f)| f), f) != found.map(|(_, f)| f) {
                found = f.map(|f| (g as usize * GRANULE, f));
            }
        }
        match found {
            None => Ok(()),
            Some((off, f)) => self.hb_shared_clash(c, (w, pc, on), e, off, GRANULE, does, f),
        }
    }

    /// The shared-memory side of a bulk copy by lane `l`.
    pub(in super::super) fn hb_bulk(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        op: OpId,
        chunks: &[Chunk],
        does: Does,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let end = match does {
            Does::Write => End::Open,
            Does::Read => c.hb.issue(Stream::BulkRead(w as u32, l as u32)),
        };
        let e = self.hb_event(c, w, pc, 1 << l, Kind::Bulk, end);
        let mut all = Ok(());
        if chunks.iter().all(|k| k.smem.is_multiple_of(16) && k.len == 16) {
            let granules = chunks.iter().map(|k| (k.smem - WINDOW_BASE) / 16);
            all = self.hb_granules(c, w, pc, e, 1 << l, granules, does);
        } else {
            let far = self.hb_far(w, l as u32);
            for k in chunks {
                let off = (k.smem - WINDOW_BASE) as usize;
                let CtaHb { cta, warps, shared, .. } = &mut c.hb;
                let v = view(warps, *cta, &far, (w, 1 << l), Kind::Bulk);
                let n = usize::from(k.len);
                if let Some(f) = shared.range(&self.hb.events, &v, off, n, does, stamp(e, 0)) {
                    self.hb_shared_clash(c, (w, pc, 1 << l), e, off, n, does, f)?;
                }
            }
        }
        match does {
            Does::Write => {
                let source = std::mem::take(&mut c.hb.source_of_load);
                self.hb_fork(c, w, 1 << l, op, [e, source]);
            }
            Does::Read => {
                c.hb.ops.insert(op, e);
            }
        }
        all
    }

    /// Lane `l` commits its bulk stores.
    pub(in super::super) fn hb_bulk_commit(&mut self, c: &mut Cta, w: usize, l: usize) {
        if c.hb.on {
            let (_, n) = c.hb.stream(Stream::BulkWrite(w as u32, l as u32));
            c.hb.commits.entry((w as u32, l as u32)).or_default().push_back(n);
        }
    }

    /// Lane `l` waited until at most `left` groups of its bulk stores are pending: the sources of `ops` were read;
    /// unless `read`, what they write is written.
    pub(in super::super) fn hb_bulk_waited(
        &mut self,
        c: &mut Cta,
        w: usize,
        l: usize,
        ops: &[OpId],
        left: u32,
        read: bool,
    ) {
        let n = ops.iter().filter_map(|op| c.hb.ops.remove(op)).map(|e| match self.hb.events.get(e).end {
            End::Count { n, .. } => n,
            _ => 0,
        });
        if let Some(n) = n.max() {
            c.hb.finished(w, 1 << l, Stream::BulkRead(w as u32, l as u32), n);
        }
        let Some(commits) = c.hb.commits.get_mut(&(w as u32, l as u32)).filter(|_| !read) else { return };
        let done = commits.len().saturating_sub(left as usize);
        let last = commits.drain(..done).next_back();
        if let Some(n) = last {
            c.hb.finished(w, 1 << l, Stream::BulkWrite(w as u32, l as u32), n);
        }
    }

    /// A `cp.async` of warp `w` by lanes `m`: one event for all of them.
    pub(in super::super) fn hb_cp_async(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        op: OpId,
        copies: &[(u32, u64, u32, u32)],
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let end = c.hb.issue(Stream::Cp(w as u32));
        let e = self.hb_event(c, w, pc, m, Kind::CpAsync, end);
        c.hb.ops.insert(op, e);
        for (l, &(d, _, _, n)) in lanes(m).zip(copies) {
            self.hb_touch(c, w, pc, e, 1 << l, (Place::Shared, u64::from(d)), n as usize, Does::Write)?;
        }
        Ok(())
    }

    /// `cp.async` operations of warp `w` were waited for.
    pub(in super::super) fn hb_cp_waited(&mut self, c: &mut Cta, w: usize, ops: &[OpId]) {
        let n = ops.iter().filter_map(|op| c.hb.ops.remove(op)).map(|e| match self.hb.events.get(e).end {
            End::Count { n, .. } => n,
            _ => 0,
        });
        if let Some(n) = n.max() {
            c.hb.cp_waited(w, n);
        }
    }

    /// Granules of a list of element addresses that lives as long as the machine.
    fn hb_granule_list(&mut self, addrs: &[u32], bytes: u32) -> Rc<[u32]> {
        let key = (addrs.as_ptr() as usize, addrs.len(), bytes);
        self.hb.granules.entry(key).or_insert_with(|| granules(addrs, bytes).into()).clone()
    }

    /// Begins a matrix instruction by lane `l`; its event.
    pub(in super::super) fn hb_pipe(&mut self, c: &mut Cta, w: usize, pc: u32, l: usize) -> u32 {
        if !c.hb.on {
            return 0;
        }
        let end = c.hb.issue(Stream::Mma(w as u32, l as u32));
        self.hb_event(c, w, pc, 1 << l, Kind::Pipe, end)
    }

    /// Operands and accumulator of a tcgen05.mma by lane `l`.
    pub(in super::super) fn hb_mma(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        op: &super::super::ops::MmaOp,
        bytes: u32,
    ) -> Res<()> {
        match self.hb_pipe(c, w, pc, l) {
            0 => Ok(()),
            e => self.hb_both(c, w, |m, c, w| m.hb_mma_here(c, (w, pc, l), e, op, bytes)),
        }
    }

    /// Those of one CTA.
    fn hb_mma_here(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        e: u32,
        op: &super::super::ops::MmaOp,
        bytes: u32,
    ) -> Res<()> {
        let rows = if op.layout == DLayout::F { 0x55u8 << (op.d.0 / 16) } else { 0xff };
        let mut operands = vec![op.b.clone()];
        match &op.a {
            MmaSource::Shared(a) => operands.push(a.clone()),
            MmaSource::Tmem(_, col) => self.hb_cells(c, w, pc, e, 1 << l, (*col, 8, rows), Does::Read)?,
        }
        for (at, n) in op.scale.iter().flat_map(|s| op.scale_columns(s)) {
            self.hb_cells(c, w, pc, e, 1 << l, (at, n, 0xff), Does::Read)?;
        }
        for addrs in operands {
            let list = self.hb_granule_list(&addrs, bytes);
            self.hb_granules(c, w, pc, e, 1 << l, list.iter().copied(), Does::Read)?;
        }
        let spared = op.spared(self.prog.pair, c.rank);
        let masked = |r: u32| spared >> (16 * r) & 0xffff == 0xffff;
        let rows = (0..8).filter(|&r| masked(r)).fold(rows, |rows, r| rows & !(1 << r));
        self.hb_cells(c, w, pc, e, 1 << l, (op.d.1, op.columns(), rows), Does::Write)
    }

    /// Source and destination of a tcgen05.cp.
    pub(in super::super) fn hb_cp(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        addrs: &[u32],
        to: Cells,
    ) -> Res<()> {
        let e = self.hb_pipe(c, w, pc, l);
        if e == 0 {
            return Ok(());
        }
        let list = granules(addrs, 16);
        self.hb_both(c, w, |m, c, w| {
            m.hb_granules(c, w, pc, e, 1 << l, list.iter().copied(), Does::Read)?;
            m.hb_cells(c, w, pc, e, 1 << l, to, Does::Write)
        })
    }

    /// Shared-memory operands of a wgmma of warp `w`.
    pub(in super::super) fn hb_wgmma(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        operands: &[&[u32]],
        bytes: u32,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let on = c.warps[w].live;
        let end = c.hb.issue(Stream::Wgmma(w as u32));
        let e = self.hb_event(c, w, pc, on, Kind::Wgmma, end);
        for addrs in operands {
            let list = self.hb_granule_list(addrs, bytes);
            self.hb_granules(c, w, pc, e, on, list.iter().copied(), Does::Read)?;
        }
        Ok(())
    }

    /// A tcgen05.ld or st of warp `w` from or to this lane and column.
    pub(in super::super) fn hb_tmem_move(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        op: OpId,
        mv: &TmemMove,
        (lane, col): (u32, u32),
        does: Does,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let on = c.warps[w].live;
        let e = match does {
            Does::Read => {
                let e = self.hb_event(c, w, pc, on, Kind::TmemLd, End::Open);
                c.hb.ops.insert(op, e);
                e
            }
            Does::Write => {
                let end = c.hb.issue(Stream::St(w as u32));
                self.hb_event(c, w, pc, on, Kind::TmemSt, end)
            }
        };
        let rows = if mv.shape.lanes() == 16 { 1u8 << (lane / 16) } else { 3 << (lane / 16) };
        let cols = move_columns(mv);
        if mv.shape == TmemShape::S16x32bx2 {
            let n = cols - mv.half_split;
            self.hb_cells(c, w, pc, e, on, (col, n, rows), does)?;
            return self.hb_cells(c, w, pc, e, on, (col + mv.half_split, n, rows), does);
        }
        self.hb_cells(c, w, pc, e, on, (col, cols, rows), does)
    }

    /// A tcgen05.dealloc by warp `w`.
    pub(in super::super) fn hb_dealloc(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        (col, cols): (u32, u32),
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let on = c.warps[w].live;
        let e = self.hb_event(c, w, pc, on, Kind::Dealloc, End::Issue);
        self.hb_both(c, w, |m, c, w| m.hb_cells(c, w, pc, e, on, (col, cols, 0xff), Does::Write))
    }

    #[allow(clippy::too_many_arguments)]
    fn hb_cells(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        e: u32,
        on: u32,
        (col, cols, rows): Cells,
        does: Does,
    ) -> Res<()> {
        let (kind, far) = (self.hb.events.get(e).kind, self.hb_far(w, on.trailing_zeros()));
        let CtaHb { cta, warps, tmem, .. } = &mut c.hb;
        let v = view(warps, *cta, &far, (w, on), kind);
        let mine = if kind == Kind::Dealloc { stamp(e, on) } else { stamp(e, 0) };
        match tmem.access(&self.hb.events, &v, (col, cols), rows, does, mine) {
            None => Ok(()),
            Some((x, f)) => self.hb_tmem_clash(c, (w, pc, on), e, x, does, f),
        }
    }
}

/// Granules that elements of `bytes` at ascending or repeating window addresses lie in, each once where they repeat
/// in a row.
fn granules(addrs: &[u32], bytes: u32) -> Vec<u32> {
    let mut out: Vec<u32> = Vec::with_capacity(addrs.len() * bytes as usize / GRANULE + 1);
    for &a in addrs {
        let g = a.wrapping_sub(WINDOW_BASE) / GRANULE as u32;
        if out.last() != Some(&g) {
            out.push(g);
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}
