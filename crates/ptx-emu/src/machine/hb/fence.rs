//! Fences that the manual asks for where the hand-off itself already orders: `tcgen05.fence` around one between threads
//! that use tensor memory, and a release of the cluster's scope (`fence.mbarrier_init` is the lightest) between the
//! initialisation of an mbarrier and its use by an asynchronous operation or another CTA. All findings here are strict.
//!
//! **tcgen05.fence.** `before_thread_sync` puts what a thread issued before it in front of the hand-offs behind it:
//! [`super::clock::Part::behind`], which travels along every edge. A commit implies it. `after_thread_sync` puts what the
//! thread issues from then on behind the hand-offs that it has seen: [`Know::after`], which stays with the warp. Two
//! accesses to the same cells that are ordered otherwise need both, unless one thread's own pipe orders them, or a warp
//! its own `ld` and `st`.
//!
//! **What it can miss**: fences are kept for a warp, not lane by lane; `alloc` is no asynchronous operation, so that its
//! columns may be used without a fence, and `dealloc` needs none in its own thread; the order of a `tcgen05.wait` and the
//! fence behind it is not looked at. **No false alarm**: a pair is found only when the first access happened before the
//! second, so it is the same pair under every schedule, and no fence on the way means none on any way.
//!
//! **Initialisation.** A release by whoever knows of the `mbarrier.init` counts, a `fence.mbarrier_init` only by the
//! thread that initialised, a `fence.proxy.async` by anybody on the way. A use by threads of the same CTA needs none.

use super::super::cluster::home;
use super::super::cta::Cta;
use super::super::exec::lanes;
use super::super::names;
use super::super::run::Machine;
use super::CtaHb;
use super::clock::{Clock, Know};
use super::event::{End, Event, Events, Kind, Stamp, View, event_of, stamp};
use super::lanes::WarpHb;
use crate::fault::{Code, Fault};

/// Which `tcgen05.fence` is missing between two accesses to tensor memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// `before_thread_sync` behind the first.
    Before,
    /// `after_thread_sync` in front of the second.
    After,
    /// Both.
    Both,
}

/// What is missing between the access `s`, which happened before, and `v`.
pub fn missing(events: &Events, s: Stamp, v: &View<'_>) -> Option<Side> {
    let e = events.get(event_of(s));
    let own = e.cta == v.cta && e.warp == v.warp;
    match (e.kind, v.kind) {
        (Kind::Pipe, Kind::Pipe) | (Kind::TmemLd | Kind::TmemSt, _) if own => return None,
        (
            Kind::Pipe | Kind::TmemLd | Kind::TmemSt,
            Kind::Pipe | Kind::TmemLd | Kind::TmemSt | Kind::Dealloc,
        ) => {}
        _ => return None,
    }
    let committed = |c: &Clock| match e.end {
        End::Count { cta, id, n } => c.count(cta, id) >= n,
        _ => false,
    };
    let part = |c: &Clock, f: &dyn Fn(&super::clock::Part) -> bool| c.part(e.cta).is_some_and(f);
    let Know { all, after, .. } = v.know;
    let before = e.kind == Kind::Pipe && committed(all) || part(all, &|p| p.behind(e.warp) >= e.time);
    let after = v.kind == Kind::Dealloc
        || committed(after)
        || match e.end {
            End::Warp(t) => part(after, &|p| p.warp(e.warp).any(t)),
            // The pipe works in issue order, so it is enough that the issue came before.
            _ => {
                v.kind == Kind::Pipe
                    && e.kind == Kind::Pipe
                    && part(after, &|p| p.warp(e.warp).covers(e.lanes, e.time))
            }
        };
    match (before, after) {
        (true, true) => None,
        (false, true) => Some(Side::Before),
        (true, false) => Some(Side::After),
        (false, false) => Some(Side::Both),
    }
}

/// A release after the initialisation of an mbarrier that reaches beyond its CTA.
pub struct Published {
    warp: u32,
    lanes: u32,
    time: u32,
}

impl WarpHb {
    /// `lanes` execute `tcgen05.fence::before_thread_sync`. The memory fence that follows moves the time on.
    fn tensor_before(&mut self, cta: u32, w: u32, lanes: u32) {
        let time = self.time;
        self.each(lanes, |g| g.know.all.part_mut(cta).raise_behind(w, time));
    }

    /// `lanes` have executed `tcgen05.fence::after_thread_sync`.
    fn tensor_after(&mut self, lanes: u32) {
        self.each(lanes, |g| g.know.after.join(&g.know.all));
    }
}

impl CtaHb {
    /// A `tcgen05.fence`. Around relaxed arrivals and waits it orders as a memory fence of the CTA does.
    pub fn tensor_fence(&mut self, w: usize, lanes: u32, before: bool) {
        if !self.on {
            return;
        }
        if before {
            self.warps[w].tensor_before(self.cta, w as u32, lanes);
        }
        self.fence(w, lanes, super::Scope::Cta);
        if !before {
            self.warps[w].tensor_after(lanes);
        }
    }
}

impl Machine<'_> {
    /// Lanes `on` of warp `w` release to the cluster: initialisations that they know of (`own`: that they made).
    pub(in super::super) fn hb_publish_inits(&mut self, c: &mut Cta, w: usize, on: u32, own: bool) {
        if !c.hb.on {
            return;
        }
        let CtaHb { cta, warps, mbars, .. } = &mut c.hb;
        let (warp, events, time) = (w as u32, &self.hb.events, warps[w].time);
        let mut any = false;
        for b in mbars.values_mut().filter(|b| b.init != 0) {
            if b.published.iter().any(|p| p.warp == warp && p.lanes & on == on) {
                continue;
            }
            let e = events.get(b.init);
            let knows = |l: usize| {
                let mine = e.warp == warp && e.lanes >> l & 1 != 0;
                let know = warps[w].know(l as u32);
                let v = View { cta: *cta, warp, lanes: 1 << l, kind: Kind::Barrier, know };
                mine || !own && events.ordered(stamp(b.init, e.lanes), &v)
            };
            let lanes = lanes(on).filter(|&l| knows(l)).fold(0, |m, l| m | 1 << l);
            if lanes != 0 {
                b.published.push(Published { warp, lanes, time });
                any = true;
            }
        }
        if any {
            warps[w].time += 1;
        }
    }

    /// Lanes `on` let an asynchronous operation, or themselves from another CTA, use the mbarrier at `addr` of `c`.
    pub(in super::super) fn hb_mbar_far(&mut self, c: &Cta, w: usize, pc: u32, on: u32, addr: u32) {
        let Some(b) = c.hb.mbars.get(&addr).filter(|b| c.hb.on && b.init != 0) else { return };
        let e = *self.hb.events.get(b.init);
        let (by, warp) = self.hb_by(c, w);
        let (cta, home_cta) = (by.cta, c.hb.cta);
        let told = |group: u32, know: &Know| {
            b.published.iter().any(|p| {
                let mine = cta == home_cta && p.warp == warp as u32 && p.lanes & group == group;
                mine || know.all.part(home_cta).is_some_and(|k| {
                    (0..32).any(|l| p.lanes >> l & 1 != 0 && k.warp(p.warp).covers(1 << l, p.time))
                })
            }) || know.fenced.part(home_cta).is_some_and(|k| k.warp(e.warp).covers(e.lanes, e.time))
        };
        if by.warps[warp].groups_of(on).all(|(group, know)| told(group, know))
            || self.strict_known(Code::StrictMbarrierInit, pc, e.pc)
        {
            return;
        }
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        let (me, far) = (self.opcode(pc), home(w as u32).0.is_some());
        let who = if far { "from another CTA" } else { "asynchronously" };
        let text = format!(
            "{name} is used {who} by `{me}`, and no fence.mbarrier_init stands between that and its initialisation"
        );
        let f = Fault::new(Code::StrictMbarrierInit, text)
            .earlier(self.hb_site(&e, 0, format!("init: {}", self.opcode(e.pc))))
            .missing("fence.mbarrier_init.release.cluster after mbarrier.init by the same thread, then the barrier");
        self.strict(c, w, pc, e.pc, f);
    }

    /// The finding for two accesses to tensor memory (`what`) that are ordered without their `tcgen05.fence`.
    #[cold]
    pub(super) fn hb_tensor_fault(
        &self,
        pc: u32,
        e: &Event,
        what: &str,
        verb: &str,
        did: &str,
        side: Side,
    ) -> Fault {
        let (me, by) = (self.opcode(pc), self.opcode(e.pc));
        let first =
            format!("tcgen05.fence::before_thread_sync after the first access, before its thread hands over");
        let then = "tcgen05.fence::after_thread_sync between this thread's wait and its access";
        let (lacks, missing) = match side {
            Side::Before => ("no tcgen05.fence::before_thread_sync before the hand-off", first),
            Side::After => ("no tcgen05.fence::after_thread_sync after the wait", then.to_string()),
            Side::Both => ("no tcgen05.fence on either side of the hand-off", format!("{first}, and {then}")),
        };
        let text = format!("{what} is {verb} by `{me}` after the {did} by `{by}`, with {lacks}");
        Fault::new(Code::StrictTensorFence, text).missing(missing)
    }
}
