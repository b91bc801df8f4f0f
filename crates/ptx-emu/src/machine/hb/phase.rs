//! Which phase of an mbarrier an arrival counts for, and a wait is for.
//!
//! **Arrivals.** A thread means the phase after the last one that it has seen
//! complete; where nothing tells it that the phase before is over, another schedule lets its arrival fall into that one,
//! which then completes too early, or has one arrival too many.
//!
//! A thread knows that a phase is complete when it has waited for it, when somebody who has handed over to it, or when all
//! arrivals of that phase happened before. **No false alarm**: what completes the phase before is then not ordered before
//! the arrival by anything in the program. Strict, because hand-offs through relaxed arrivals publish nothing here, and
//! relaxed ones may be enough for that. **What it can miss**: arrivals of asynchronous operations (a commit, a copy).
//!
//! **Waits** by parity. A thread that waits for phase n passes while phase n + 1 is incomplete; once that is complete, the
//! parity says what it said before phase n, and the wait blocks. So something that completes phase n + 1 must come after the
//! wait. **No false alarm**: where nothing does, another schedule completes phase n + 1 first. Strict for the same reason as
//! above. **What it can miss**: waits for the last phase that the run completes; of several waits for a phase at one place
//! only a warp's last is looked at; lanes that wait together count as one, whichever of them hands over.

use super::super::cta::Cta;
use super::super::inst::{Mbar, MbarOp};
use super::super::names;
use super::super::run::Machine;
use super::clock::Know;
use super::event::{End, Event, Kind};
use crate::fault::{Code, Fault};

/// The arrivals of threads in a phase and in the one before.
#[derive(Default)]
pub struct Arrivals {
    now: Vec<Event>,
    last: Vec<Event>,
    /// Waits by parity for the phase before this one.
    waits: Vec<Event>,
    /// Whether an asynchronous operation has its part in the two phases.
    pub now_async: bool,
    last_async: bool,
}

impl Arrivals {
    /// The phase is complete, and `done` is what completed it: a wait for the phase before that none of it comes after, and
    /// the last arrival of a thread.
    pub fn next(&mut self, done: &Know) -> Option<(Event, Option<Event>)> {
        let late =
            self.waits.drain(..).find(|e| !done.all.part(e.cta).is_some_and(|p| p.warp(e.warp).any(e.time)));
        let late = late.map(|e| (e, self.now.last().copied()));
        std::mem::swap(&mut self.now, &mut self.last);
        self.now.clear();
        self.last_async = std::mem::take(&mut self.now_async);
        late
    }

    fn waited(&mut self, e: Event) {
        let same = |o: &&mut Event| (o.cta, o.warp, o.lanes, o.pc) == (e.cta, e.warp, e.lanes, e.pc);
        match self.waits.iter_mut().find(same) {
            Some(o) => *o = e,
            None => self.waits.push(e),
        }
    }

    /// Whether warp `w` of `cta` with this knowledge comes after all arrivals of the phase before; else one that it does
    /// not, where that is a thread's.
    fn unknown(&self, cta: u32, w: u32, know: &Know) -> Result<(), Option<Event>> {
        if self.last_async {
            return Err(None);
        }
        let known = |e: &Event| {
            e.cta == cta && e.warp == w
                || know.all.part(e.cta).is_some_and(|p| p.warp(e.warp).covers(e.lanes, e.time))
        };
        self.last.iter().find(|e| !known(e)).map_or(Ok(()), |e| Err(Some(*e)))
    }
}

/// A wait that a phase may overtake.
pub struct Overtaken {
    /// The barrier.
    pub addr: u32,
    /// The phase after the one that it is for.
    pub next: u32,
    /// The wait, and the last arrival of a thread in the phase after.
    pub wait: Event,
    /// That.
    pub arrival: Option<Event>,
}

impl Machine<'_> {
    /// Lanes `on` have waited by parity for the last complete phase of the barrier at `addr` of `c`.
    pub(super) fn hb_wait_phase(&mut self, c: &mut Cta, w: usize, pc: u32, on: u32, addr: u32) {
        let (by, warp) = self.hb_by(c, w);
        let (cta, time, warp, step) = (by.cta, by.warps[warp].time, warp as u32, self.steps);
        let e = Event { cta, warp, lanes: on, pc, step, time, kind: Kind::Barrier, end: End::Issue, used: 0 };
        if let Some(bar) = c.hb.mbars.get_mut(&addr).filter(|_| on != 0) {
            bar.arrivals.waited(e);
        }
        self.hb_overtaken(c);
    }

    /// Tells of waits that a phase may overtake.
    #[inline]
    pub(super) fn hb_overtaken(&mut self, c: &mut Cta) {
        while let Some(o) = c.hb.overtaken.pop() {
            self.hb_overtaken_finding(c, &o);
        }
    }

    #[cold]
    fn hb_overtaken_finding(&mut self, c: &Cta, o: &Overtaken) {
        let (pc, other) = (o.wait.pc, o.arrival.map_or(o.wait.pc, |e| e.pc));
        if self.strict_known(Code::StrictMbarrierPhase, pc, other) {
            return;
        }
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, o.addr);
        let next = o.next;
        let n = next.checked_sub(1).map_or("the phase before the first".into(), |n| format!("phase {n}"));
        let text = format!(
            "`{}` waits for {n} of {name}, and phase {next} may be complete by then: nothing that completes it \
             comes after this wait, which would then block",
            self.opcode(pc)
        );
        let mut f = Fault::new(Code::StrictMbarrierPhase, text).missing(format!(
            "a hand-over by this thread after its wait, which an arrival of phase {next} comes after"
        ));
        f.site = Some(self.hb_site(&o.wait, 0, self.opcode(pc)));
        if let Some(e) = o.arrival {
            f = f.earlier(self.hb_site(&e, 0, format!("an arrival of phase {next}: {}", self.opcode(e.pc))));
        }
        self.strict(c, 0, pc, other, f);
    }

    /// Lanes `on` are about to arrive on the barrier at `addr` of `c`.
    pub(super) fn hb_arrive_phase(&mut self, c: &mut Cta, w: usize, pc: u32, on: u32, addr: u32, b: &Mbar) {
        if on == 0 || b.op == MbarOp::ExpectTx {
            return;
        }
        let (by, warp) = self.hb_by(c, w);
        let (cta, time, warp) = (by.cta, by.warps[warp].time, warp as u32);
        let step = self.steps;
        let e = Event { cta, warp, lanes: on, pc, step, time, kind: Kind::Barrier, end: End::Issue, used: 0 };
        let home = c.hb.cta;
        let Some(bar) = c.hb.mbars.get(&addr) else { return };
        let phases = bar.done.all.count(home, bar.id);
        let mut found = Ok(());
        if phases > bar.base {
            for (_, know) in by.warps[warp as usize].groups_of(on) {
                if know.all.count(home, bar.id) < phases {
                    found = found.and(bar.arrivals.unknown(cta, warp, know));
                }
            }
        }
        if let Err(earlier) = found {
            self.hb_phase_finding(c, (w, pc), addr, earlier, phases - 1);
        }
        if let Some(bar) = c.hb.mbars.get_mut(&addr) {
            if b.op == MbarOp::CompleteTx {
                bar.arrivals.now_async = true;
            } else {
                bar.arrivals.now.push(e);
            }
        }
    }

    #[cold]
    fn hb_phase_finding(
        &mut self,
        c: &Cta,
        (w, pc): (usize, u32),
        addr: u32,
        earlier: Option<Event>,
        n: u32,
    ) {
        let other = earlier.map_or(pc, |e| e.pc);
        if self.strict_known(Code::StrictMbarrierPhase, pc, other) {
            return;
        }
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        let text = format!(
            "`{}` on {name} may count for the phase before: nothing tells this thread that phase {n} is complete",
            self.opcode(pc)
        );
        let mut f = Fault::new(Code::StrictMbarrierPhase, text)
            .missing(format!("a wait for phase {n} by this thread, or by one that then hands over to it"));
        if let Some(e) = earlier {
            f = f.earlier(self.hb_site(&e, 0, format!("an arrival of that phase: {}", self.opcode(e.pc))));
        }
        self.strict(c, w, pc, other, f);
    }
}
