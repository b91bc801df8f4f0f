//! Findings in words: the two accesses, and what would have ordered them.

use super::super::cluster::home;
use super::super::cta::Cta;
use super::super::names;
use super::super::run::{Machine, Res, Stop};
use super::super::shared::WINDOW_BASE;
use super::cell::Clash;
use super::chain::Pair;
use super::event::{Event, Kind, event_of};
use super::shared::Does;
use crate::fault::{Code, Fault, Site};

impl Machine<'_> {
    pub(super) fn hb_site(&self, e: &Event, lanes: u32, what: String) -> Site {
        let [gx, gy, _] = self.launch.grid.map(|x| x.max(1));
        let cta = [e.cta % gx, e.cta / gx % gy, e.cta / gx / gy];
        let lanes = if lanes == 0 { e.lanes } else { lanes };
        Site { cta, warp: e.warp, lanes, role: self.role_of(e.warp), pc: e.pc, step: e.step, what }
    }

    /// Turns a finding on shared memory into a fault, or records it where it is strict. `e`: the event that found it.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hb_shared_clash(
        &mut self,
        c: &Cta,
        (w, pc, on): (usize, u32, u32),
        e: u32,
        off: usize,
        n: usize,
        does: Does,
        clash: Clash,
    ) -> Res<()> {
        let addr = WINDOW_BASE + off as u32;
        let name = names::shared(&self.launch.annotations, c.dynamic_base, addr);
        let mut what = if n == 1 { name } else { format!("{name} ({n} bytes)") };
        if home(w as u32).0.is_some() {
            what += &format!(" of CTA {:?} (rank {} of the cluster)", c.id, c.rank);
        }
        self.hb_clash(c, (w, pc, on), e, &what, (Code::RaceShared, Code::LeaseShared), does, clash)
    }

    /// The same for tensor memory.
    #[cold]
    pub(super) fn hb_tmem_clash(
        &mut self,
        c: &Cta,
        at: (usize, u32, u32),
        e: u32,
        col: u32,
        does: Does,
        clash: Clash,
    ) -> Res<()> {
        let mut what = format!("tensor memory {}", names::column(&self.launch.annotations, col));
        if home(at.0 as u32).0.is_some() {
            what += &format!(" of CTA {:?} (rank {} of the cluster)", c.id, c.rank);
        }
        self.hb_clash(c, at, e, &what, (Code::LeaseTmem, Code::LeaseTmem), does, clash)
    }

    /// `codes`: for two ordinary accesses, and where an asynchronous operation is involved. Which of the two accesses
    /// this schedule ran first makes no difference.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hb_clash(
        &mut self,
        c: &Cta,
        (w, pc, on): (usize, u32, u32),
        e: u32,
        what: &str,
        codes: (Code, Code),
        does: Does,
        clash: Clash,
    ) -> Res<()> {
        let (s, wrote) = match clash {
            Clash::Race { earlier, wrote }
            | Clash::Unfenced { earlier, wrote }
            | Clash::Tensor { earlier, wrote, .. } => (earlier, wrote),
            Clash::NoFence(s) => (s, true),
            Clash::InFlight(s) => (s, false),
        };
        let (mine, e) = (self.hb.events.get(e).kind, *self.hb.events.get(event_of(s)));
        let strict = clash.strict();
        if strict.is_some_and(|code| self.strict_known(code, pc, e.pc)) {
            return Ok(());
        }
        let (me, by) = (self.opcode(pc), self.opcode(e.pc));
        let verb = if does == Does::Write { "written" } else { "read" };
        let did = if wrote { "write" } else { "read" };
        let own = e.warp == w as u32 && e.cta == c.hb.cta;
        let earlier = self.hb_site(&e, s as u32, format!("{did}: {by}"));
        let lanes = if s as u32 == 0 { e.lanes } else { s as u32 };
        let pair = Pair { c, now: (w, pc, on), kind: mine, id: event_of(s), e: &e, lanes, wrote };
        let fence = |after: &str| match self.hb_fence_place(&pair) {
            Some(place) => format!("fence.proxy.async {place}"),
            None => format!("fence.proxy.async {after}"),
        };
        let f = match clash {
            Clash::Race { .. } => {
                let code = if e.kind.ordinary() && mine.ordinary() { codes.0 } else { codes.1 };
                let text = if e.kind.ordinary() {
                    let who = if own { " of another lane" } else { "" };
                    format!("{what} is {verb} by `{me}`, and nothing orders that after the {did} by `{by}`{who}")
                } else {
                    format!("{what} is {verb} by `{me}` while `{by}` may still {did} it")
                };
                let mut f = Fault::new(code, text);
                // What another CTA handed over is told by its own account; the break is looked for within one.
                f.notes = self.hb_far_trail(c, w, on, &e, s as u32);
                let words = match f.notes.is_empty() {
                    true => self.hb_break(&pair).unwrap_or_default(),
                    false => Default::default(),
                };
                f.notes.extend(words.notes);
                f.missing(words.missing.unwrap_or_else(|| missing(&e, mine, wrote, own, codes.0).into()))
            }
            Clash::NoFence(_) => Fault::new(
                Code::ProxyFence,
                format!("{what} is read by `{me}` after `{by}` wrote it, with no fence.proxy.async on the way"),
            )
            .missing(fence("by the writer after its stores, then the barrier that hands them over")),
            Clash::InFlight(_) => Fault::new(
                Code::RaceLoad,
                format!("{what} is overwritten by `{me}` while `{by}` may still be reading it"),
            )
            .missing(format!("a use of a loaded register, or {}", fence("between the load and the hand-off"))),
            Clash::Unfenced { .. } => Fault::new(
                Code::StrictProxyOrder,
                format!("{what} is {verb} by `{me}` after the {did} by `{by}`, with no fence.proxy.async on the way"),
            )
            .missing(fence("after the first access, then the hand-off")),
            Clash::Tensor { side, .. } => self.hb_tensor_fault(pc, &e, what, verb, did, side),
        };
        let f = f.earlier(earlier);
        if strict.is_some() {
            self.strict(c, w, pc, e.pc, f);
            return Ok(());
        }
        Err(self.fault(c, w, pc, on, f))
    }

    /// An mbarrier used by a thread that need not see its initialisation.
    #[cold]
    pub(super) fn hb_init_fault(&self, c: &Cta, w: usize, pc: u32, l: usize, addr: u32, init: u32) -> Stop {
        let e = *self.hb.events.get(init);
        let mut name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        // Of a peer's barrier: under another schedule it would not have been initialised yet, which has this code.
        let (code, missing) = if home(w as u32).0.is_some() {
            name += &format!(" of CTA {:?} (rank {} of the cluster)", c.id, c.rank);
            (
                Code::MbarrierUninit,
                "fence.mbarrier_init and a cluster barrier after mbarrier.init, before another CTA uses it",
            )
        } else {
            (
                Code::RaceShared,
                "bar.sync (or another barrier) after mbarrier.init, before any other thread uses it",
            )
        };
        let missing = format!(
            "{missing}: {} lane {} initialises it at {}, and lane {l} of {} has not met it since when it comes to {}",
            self.who(e.warp),
            e.lanes.trailing_zeros(),
            self.line(e.pc),
            self.who(w as u32),
            self.line(pc)
        );
        let text = format!(
            "{name} is used by `{}`, and nothing orders that after its initialisation",
            self.opcode(pc)
        );
        let f = Fault::new(code, text)
            .earlier(self.hb_site(&e, 0, format!("init: {}", self.opcode(e.pc))))
            .missing(missing);
        self.fault(c, w, pc, 1 << l, f)
    }
}

/// What would have ordered an access after `e`.
fn missing(e: &Event, mine: Kind, wrote: bool, own_warp: bool, memory: Code) -> &'static str {
    let (tmem, global) = (memory == Code::LeaseTmem, memory == Code::RaceGlobal);
    match e.kind {
        Kind::Strong(_) if global && matches!(mine, Kind::Strong(_)) => {
            "a scope on both that reaches the other CTA: .gpu or .sys"
        }
        Kind::Bulk if global && wrote => {
            "cp.async.bulk.commit_group and wait_group (without .read) by the issuing thread, then a hand-off to this \
             thread"
        }
        Kind::Pipe if tmem && wrote => {
            "tcgen05.commit after the matrix instruction and a successful wait on its mbarrier phase, by this thread or \
             by one that then hands over to it"
        }
        Kind::Pipe if tmem => {
            "tcgen05.commit after the matrix instruction that reads it and a successful wait on its mbarrier phase, by \
             this thread or by one that then hands over to it"
        }
        Kind::Pipe => {
            "tcgen05.commit to an mbarrier after it, and a successful wait on that phase before this access, by this \
             thread or by one that then hands over to it"
        }
        Kind::Wgmma => {
            "wgmma.commit_group and a wgmma.wait_group that covers it by the issuing warp, then a hand-off to this \
             thread"
        }
        Kind::Remote { .. } => {
            "a successful wait on the mbarrier phase that it completes, by this thread or by one that then hands over to \
             it"
        }
        Kind::Bulk if wrote => {
            "a successful wait on the mbarrier phase that the copy completes, by this thread or by one that then hands \
             over to it"
        }
        Kind::Bulk => {
            "cp.async.bulk.commit_group and wait_group.read by the issuing thread, then a hand-off to this thread"
        }
        Kind::CpAsync => {
            "cp.async.wait_group (or an mbarrier that cp.async.mbarrier.arrive completes), then a hand-off to this thread"
        }
        Kind::TmemLd => {
            "tcgen05.wait::ld by the loading warp, then a hand-off (an arrive after it) to this thread"
        }
        Kind::TmemSt => {
            "tcgen05.wait::st by the storing warp, then a hand-off (an arrive after it) to this thread"
        }
        Kind::Dealloc => "a barrier between tcgen05.dealloc and this access",
        _ if own_warp => "bar.warp.sync (__syncwarp) between the two",
        _ if global => {
            "within a CTA a barrier between the two; between CTAs a release of a flag after the first access and an \
             acquire of it before the second, both at .gpu scope (or relaxed ones behind and before fence.acq_rel.gpu)"
        }
        _ if wrote => {
            "an arrive (or bar) by the writing thread after its store, and a wait by this thread before its access"
        }
        _ => {
            "an arrive (or bar) by the reading thread after its load, and a wait by this thread before it overwrites"
        }
    }
}
