//! Edges: what PTX's synchronisation makes known to whom.

use super::super::cta::Cta;
use super::super::exec::lanes;
use super::super::inst::{Mbar, MbarOp, Place};
use super::super::ops::{Kind as OpKind, OpId, Pending};
use super::super::run::{Machine, Res};
use super::clock::Know;
use super::event::{End, Kind, Scope, View, stamp};
use super::far::Far;
use super::phase::{Arrivals, Overtaken};
use super::trail::At;
use super::{CtaHb, Fork, Phases, Stream};

/// Index of the farthest thread that a scope reaches: 0 in the CTA, 1 in the cluster, 2 on the GPU. None: nobody.
pub fn reach(s: Scope) -> Option<usize> {
    match s {
        Scope::Thread => None,
        Scope::Cta => Some(0),
        Scope::Cluster => Some(1),
        Scope::Gpu | Scope::Sys => Some(2),
    }
}

impl CtaHb {
    /// Lanes of warp `w` meet at a `.sync` instruction.
    #[inline]
    pub fn meet(&mut self, w: usize, lanes: u32) {
        if self.on {
            self.warps[w].meet(self.cta, w as u32, lanes);
        }
    }

    /// A phase of the mbarrier at `addr` completed; `phases` have by now.
    pub fn phase_done(&mut self, addr: u32, phases: u64) {
        if let Some(b) = self.mbars.get_mut(&addr) {
            b.arrived.all.part_mut(self.cta).raise(b.id, b.base + phases as u32);
            b.done = b.arrived.clone();
            b.far_done = b.far_done.or(b.far);
            if let Some((wait, arrival)) = b.arrivals.next(&b.done) {
                self.overtaken.push(Overtaken { addr, next: phases as u32 - 1, wait, arrival });
            }
        }
    }

    /// Warp `w` comes to a named barrier and waits there or goes on.
    pub fn bar_arrive(&mut self, w: usize, pc: u32, id: u32, waits: bool) {
        if !self.on {
            return;
        }
        self.note(w, !0, pc, At::Bar(id), false);
        let know = self.warps[w].release(self.cta, w as u32, !0);
        let (all, waiting) = &mut self.named[id as usize & 15];
        all.join(&know);
        *waiting |= u32::from(waits) << w;
        if waits {
            self.note(w, !0, pc, At::Bar(id), true);
        }
    }

    /// A named barrier is complete: all that wait know what all that came have done.
    pub fn bar_complete(&mut self, id: u32) {
        if !self.on {
            return;
        }
        let (know, waiting) = std::mem::take(&mut self.named[id as usize & 15]);
        for w in (0..self.warps.len()).filter(|w| waiting >> w & 1 != 0) {
            self.warps[w].acquire(!0, &know);
        }
    }

    /// Lanes arrive on the cluster barrier. A relaxed arrival counts too: it orders at least the initialisation of
    /// mbarriers behind their fence.
    pub fn cluster_arrive(&mut self, w: usize, pc: u32, lanes: u32) {
        if self.on {
            self.far_note(w, lanes, pc, Far::Cluster, false);
            let know = self.warps[w].release(self.cta, w as u32, lanes);
            self.cluster.0.join(&know);
        }
    }

    /// The phase of the cluster barrier is complete: what this CTA's arrivals have published.
    pub fn cluster_take(&mut self) -> Know {
        std::mem::take(&mut self.cluster.0)
    }

    /// What the arrivals of all CTAs have published, for those who wait.
    pub fn cluster_give(&mut self, know: &Know) {
        if self.on {
            self.cluster.1 = know.clone();
        }
    }

    /// Lanes have waited for it.
    pub fn cluster_waited(&mut self, w: usize, pc: u32, lanes: u32) {
        if self.on {
            self.warps[w].acquire(lanes, &self.cluster.1);
            self.far_note(w, lanes, pc, Far::Cluster, true);
        }
    }

    /// Lanes that publish on the mbarrier at `addr`; `relaxed`: only what is behind their last fence.
    pub fn arrive(&mut self, w: usize, pc: u32, lanes: u32, addr: u32, relaxed: bool) {
        if !self.on || lanes == 0 {
            return;
        }
        if !relaxed {
            self.note(w, lanes, pc, At::Mbar(addr), false);
            self.far_note(w, lanes, pc, Far::Own(addr), false);
        }
        let Some(b) = self.mbars.get_mut(&addr) else { return };
        if !relaxed {
            let know = self.warps[w].release(self.cta, w as u32, lanes);
            b.arrived.join(&know);
            return;
        }
        self.warps[w].each(lanes, |g| {
            if let Some(k) = &g.released[0] {
                b.arrived.join(k);
            }
        });
    }

    /// Lanes saw a phase of the mbarrier at `addr` complete.
    pub fn waited(&mut self, w: usize, pc: u32, lanes: u32, addr: u32, relaxed: bool) {
        if !self.on {
            return;
        }
        let Some(b) = self.mbars.get(&addr) else { return };
        if relaxed {
            self.warps[w].each(lanes, |g| g.acquired[0].get_or_insert_default().join(&b.done));
            // Completion of asynchronous operations is not a matter of the thread's own order.
            let (cta, n) = (self.cta, b.done.all.count(self.cta, b.id));
            self.warps[w].each(lanes, |g| g.know.all.part_mut(cta).raise(b.id, n));
            return;
        }
        let n = b.done.all.count(self.cta, b.id);
        if self.warps[w].groups_of(lanes).all(|(_, know)| know.all.count(self.cta, b.id) >= n) {
            return;
        }
        self.warps[w].acquire(lanes, &b.done);
        self.note(w, lanes, pc, At::Mbar(addr), true);
        self.far_note(w, lanes, pc, Far::Own(addr), true);
    }

    /// A `fence.proxy.async`.
    pub fn proxy_fence(&mut self, w: usize, lanes: u32) {
        if self.on {
            self.warps[w].proxy_fence(self.cta, w as u32, lanes);
        }
    }

    /// A memory fence.
    pub fn fence(&mut self, w: usize, lanes: u32, scope: Scope) {
        if let (true, Some(r)) = (self.on, reach(scope)) {
            self.warps[w].memory_fence(self.cta, w as u32, lanes, r);
        }
    }

    /// Operation `op` of lane `l` will arrive on an mbarrier: it knows what its issuer knows.
    fn fork(&mut self, w: usize, lanes: u32, op: OpId, events: [u32; 2]) -> &mut Know {
        let know = self.warps[w].release(self.cta, w as u32, lanes);
        &mut self.forks.entry(op).insert_entry(Fork { events, know }).into_mut().know
    }

    /// A commit by lane `l` to the barriers at `mbar` of the CTAs of the ranks `to`.
    pub fn commit(&mut self, w: usize, pc: u32, l: usize, op: OpId, (mbar, to): (u32, &[u32])) {
        if !self.on {
            return;
        }
        self.note(w, 1 << l, pc, At::Commit(mbar), false);
        self.far_note(w, 1 << l, pc, Far::Commit(mbar, to.iter().fold(0, |m, r| m | 1 << r)), false);
        let ((id, n), cta) = (self.stream(Stream::Mma(w as u32, l as u32)), self.cta);
        self.fork(w, 1 << l, op, [0; 2]).all.part_mut(cta).raise(id, n);
    }

    /// An arrival that waits for the `cp.async` of the warp so far.
    pub fn cp_arrive(&mut self, w: usize, lanes: u32, op: OpId) {
        if !self.on {
            return;
        }
        let ((id, n), cta) = (self.stream(Stream::Cp(w as u32)), self.cta);
        self.fork(w, lanes, op, [0; 2]).all.part_mut(cta).raise(id, n);
    }

    /// The `cp.async` operations `ops` of a warp were waited for.
    pub fn cp_waited(&mut self, w: usize, n: u32) {
        if self.on {
            self.finished(w, !0, Stream::Cp(w as u32), n);
        }
    }

    /// wgmmas of a warp were waited for.
    pub fn wgmma_waited(&mut self, w: usize, seq: u32) {
        if self.on {
            self.finished(w, !0, Stream::Wgmma(w as u32), seq);
        }
    }

    /// Tensor memory was allocated.
    pub fn allocated(&mut self, col: u32, cols: u32) {
        self.tmem.clear(col, cols);
    }

    /// All tcgen05.st of a warp were waited for.
    pub fn st_waited(&mut self, w: usize) {
        if self.on {
            let (_, n) = self.stream(Stream::St(w as u32));
            self.finished(w, !0, Stream::St(w as u32), n);
        }
    }
}

impl Machine<'_> {
    /// A tcgen05.ld is over: waited for, or the last of its registers was used.
    pub(in super::super) fn hb_ld_done(&mut self, c: &mut Cta, w: usize, op: OpId) {
        if let Some(e) = c.hb.ops.remove(&op) {
            self.hb.events.get_mut(e).end = End::Warp(c.hb.warps[w].time);
        }
    }

    /// All tcgen05.ld of a warp were waited for.
    pub(in super::super) fn hb_lds_waited(&mut self, c: &mut Cta, w: usize) {
        for i in 0..c.warps[w].lds.len() {
            let op = c.warps[w].lds[i].op;
            self.hb_ld_done(c, w, op);
        }
    }

    /// An asynchronous operation is about to signal its completion.
    pub(in super::super) fn hb_landing(&mut self, c: &mut Cta, p: &Pending) {
        let here = [c.rank];
        let (mbar, ranks): (u32, &[u32]) = match &p.kind {
            OpKind::Load { mbar, .. } => (mbar.1, std::slice::from_ref(&mbar.0)),
            OpKind::Commit { mbar, to, .. } => (*mbar, to),
            OpKind::CpArrive { mbar, .. }
            | OpKind::Between { mbar, .. }
            | OpKind::Remote { mbar, .. }
            | OpKind::Response { mbar, .. } => (*mbar, &here),
            _ => return,
        };
        let Some(fork) = c.hb.forks.remove(&p.id) else { return };
        for &rank in ranks {
            let to = if rank == c.rank { Some(&mut *c) } else { self.peers[rank as usize].as_deref_mut() };
            let Some(to) = to else { continue };
            let (Some(b), Some(slot)) = (to.hb.mbars.get_mut(&mbar), to.mbars.get(&mbar)) else { continue };
            b.arrived.join(&fork.know);
            b.arrivals.now_async = true;
            for e in fork.events.into_iter().filter(|&e| e != 0) {
                let n = b.base + slot.bar.phase() as u32 + 1;
                self.hb.events.get_mut(e).end = End::Count { cta: to.hb.cta, id: b.id, n };
            }
        }
    }

    /// `mbarrier.init` by lane `l`.
    pub(in super::super) fn hb_mbar_init(&mut self, c: &mut Cta, w: usize, pc: u32, l: usize, addr: u32) {
        if !c.hb.on {
            return;
        }
        let init = self.hb_event(c, w, pc, 1 << l, Kind::Barrier, End::Issue);
        let (id, base) = match c.hb.retired.remove(&addr) {
            Some(before) => before,
            None => (c.hb.counter(), 0),
        };
        let b = Phases {
            id,
            base,
            arrived: Know::default(),
            done: Know::default(),
            init,
            published: vec![],
            arrivals: Arrivals::default(),
            far: None,
            far_done: None,
        };
        c.hb.mbars.insert(addr, b);
    }

    /// `mbarrier.inval`: whoever does that has seen the completed phases.
    pub(in super::super) fn hb_mbar_inval(&mut self, c: &mut Cta, w: usize, l: usize, addr: u32) {
        if let Some(b) = c.hb.mbars.remove(&addr) {
            c.hb.warps[w].acquire(1 << l, &b.done);
            let phases = b.done.all.count(c.hb.cta, b.id).max(b.base);
            c.hb.retired.insert(addr, (b.id, phases));
        }
    }

    /// Those of `lanes` whose barrier is the one at `addr`.
    fn hb_lanes_at(&self, c: &Cta, w: usize, on: u32, b: &Mbar, addr: u32) -> u32 {
        let at = |l: usize| {
            self.resolve(Place::Generic, self.lane_addr(c, w, b.addr, l)).1 ^ c.rank_bits == u64::from(addr)
        };
        lanes(on).filter(|&l| at(l)).fold(0, |m, l| m | 1 << l)
    }

    /// Those of lanes `on` that arrive on the barrier at `addr` publish what they know and have done.
    pub(in super::super) fn hb_arrive(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        on: u32,
        addr: u32,
        b: &Mbar,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let on = self.hb_lanes_at(c, w, on, b, addr);
        self.hb_mbar_use(c, w, pc, on, addr)?;
        self.hb_arrive_phase(c, w, pc, on, addr, b);
        self.hb_overtaken(c);
        if !matches!(b.op, MbarOp::ExpectTx | MbarOp::CompleteTx) {
            c.hb.arrive(w, pc, on, addr, b.relaxed);
        }
        Ok(())
    }

    /// Those of lanes `on` that waited for the barrier at `addr` learn what its completed phases publish.
    pub(in super::super) fn hb_waited(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        on: u32,
        addr: u32,
        b: &Mbar,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let on = self.hb_lanes_at(c, w, on, b, addr);
        self.hb_mbar_use(c, w, pc, on, addr)?;
        self.hb_wait_scope(c, w, pc, addr, b);
        c.hb.waited(w, pc, on, addr, b.relaxed);
        if b.state.is_none() {
            self.hb_wait_phase(c, w, pc, on, addr);
        }
        Ok(())
    }

    /// Lanes use the mbarrier at `addr`: they must know that it was initialised.
    pub(in super::super) fn hb_mbar_use(&self, c: &Cta, w: usize, pc: u32, on: u32, addr: u32) -> Res<()> {
        let Some(b) = c.hb.mbars.get(&addr).filter(|b| b.init != 0) else { return Ok(()) };
        let lanes_of_init = self.hb.events.get(b.init).lanes;
        let (by, warp) = self.hb_by(c, w);
        for (group, know) in by.warps[warp].groups_of(on) {
            // Whoever has seen a phase complete is past the initialisation.
            if know.all.count(c.hb.cta, b.id) > b.base {
                continue;
            }
            for l in lanes(group) {
                let v = View { cta: by.cta, warp: warp as u32, lanes: 1 << l, kind: Kind::Barrier, know };
                if !self.hb.events.ordered(stamp(b.init, lanes_of_init), &v) {
                    return Err(self.hb_init_fault(c, w, pc, l, addr, b.init));
                }
            }
        }
        Ok(())
    }
}
