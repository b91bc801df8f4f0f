//! Who has done what at a barrier: a line for each warp and instruction, so that a report can say who arrives where, and
//! in which phase it last did. Its length is bounded by the program, not by the run.

/// What somebody does at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Deed {
    /// Arrives: a thread, or an operation for it.
    Arrive,
    /// Announces bytes.
    Expect,
    /// A copy delivers bytes.
    Bytes,
    /// Waits, and the phase was complete.
    Wait,
}

/// A line of the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// Warp; of another CTA where [`super::cluster::abroad`] says so.
    pub warp: u32,
    /// Program counter.
    pub pc: u32,
    /// What.
    pub deed: Deed,
    /// Phase of the last visit: the one that it counted for; of a wait the one that it waited for, plus one (0: a wait on
    /// a fresh barrier for the phase before the first).
    pub phase: u64,
    /// Arrivals, or bytes, in that phase.
    pub amount: u64,
    /// Step of the last visit.
    pub step: u64,
    /// Of a wait: the warp had not seen that phase complete before.
    pub news: bool,
}

/// All visits to a barrier.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    visits: Vec<Visit>,
    /// Phases completed (of named barriers; an mbarrier counts its own).
    pub phase: u64,
}

impl Ledger {
    /// Notes a visit.
    pub fn note(&mut self, (warp, pc): (u32, u32), deed: Deed, phase: u64, amount: u64, step: u64) {
        let of_warp = |v: &&Visit| v.warp == warp && v.deed == Deed::Wait;
        let news = deed == Deed::Wait && self.visits.iter().filter(of_warp).all(|v| v.phase < phase);
        match self.visits.iter_mut().find(|v| (v.warp, v.pc, v.deed) == (warp, pc, deed)) {
            Some(v) => {
                v.amount = amount + if v.phase == phase { v.amount } else { 0 };
                (v.phase, v.step, v.news) = (phase, step, news);
            }
            None => self.visits.push(Visit { warp, pc, deed, phase, amount, step, news }),
        }
    }

    /// All lines, the first visitor's first.
    pub fn visits(&self) -> &[Visit] {
        &self.visits
    }

    /// The last visit by a warp with one of these deeds.
    pub fn last(&self, warp: u32, deeds: &[Deed]) -> Option<&Visit> {
        self.visits.iter().filter(|v| v.warp == warp && deeds.contains(&v.deed)).max_by_key(|v| v.step)
    }
}
