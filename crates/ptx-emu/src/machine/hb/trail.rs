//! What each warp last handed over and waited for, so that a report can name the place where an edge is missing.

use super::super::say;
use super::CtaHb;
use std::collections::VecDeque;

/// Steps remembered of a warp.
const MOST_STEPS: usize = 64;

/// Where threads meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// An arrive on, or a wait for, the mbarrier at this address.
    Mbar(u32),
    /// A tcgen05.commit to the mbarrier at this address.
    Commit(u32),
    /// A named barrier.
    Bar(u32),
}

impl At {
    /// The barrier.
    pub(super) fn place(self) -> say::At {
        match self {
            At::Mbar(a) | At::Commit(a) => say::At::Mbar(a),
            At::Bar(id) => say::At::Bar(id),
        }
    }
}

/// A hand-over or a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Time of the warp.
    pub time: u32,
    /// Lanes.
    pub lanes: u32,
    /// Program counter.
    pub pc: u32,
    /// Where.
    pub at: At,
    /// It has waited.
    pub waits: bool,
    /// Of an arrive on an mbarrier: the phase that it counts for. (A commit counts for the one under way when it
    /// completes.)
    pub phase: Option<u64>,
}

/// The last hand-overs and waits of a warp.
#[derive(Clone, Debug, Default)]
pub struct Trail(VecDeque<Step>);

impl Trail {
    /// The first hand-over to each barrier by any of `lanes` from `time` on, commits or others.
    pub(super) fn handed_over(&self, lanes: u32, time: u32, commits: bool) -> Vec<Step> {
        let mut found: Vec<Step> = vec![];
        for s in self.0.iter().filter(|s| !s.waits && s.time >= time && s.lanes & lanes != 0) {
            let new = found.iter().all(|x| x.at != s.at);
            if new && matches!(s.at, At::Commit(_)) == commits {
                found.push(*s);
            }
        }
        found
    }

    /// The last step of any of `lanes`; only waits, where those are asked for.
    pub(super) fn last(&self, lanes: u32, waits: bool) -> Option<&Step> {
        self.0.iter().rev().find(|s| s.lanes & lanes != 0 && (s.waits || !waits))
    }

    /// The last arrival on an mbarrier, or commit to one, of any lane that is still remembered.
    pub(super) fn last_given(&self) -> Option<&Step> {
        self.0.iter().rev().find(|s| !s.waits && !matches!(s.at, At::Bar(_)))
    }
}

impl CtaHb {
    /// Lanes of warp `w` hand over (`waits`: have waited) at `at`.
    pub(super) fn note(&mut self, w: usize, lanes: u32, pc: u32, at: At, waits: bool) {
        let phase = match at {
            At::Mbar(a) if !waits => {
                self.mbars.get(&a).map(|b| u64::from(b.done.all.count(self.cta, b.id).saturating_sub(b.base)))
            }
            _ => None,
        };
        let (time, trail) = (self.warps[w].time, &mut self.trails[w].0);
        if trail.len() == MOST_STEPS {
            trail.pop_front();
        }
        trail.push_back(Step { time, lanes, pc, at, waits, phase });
    }
}
