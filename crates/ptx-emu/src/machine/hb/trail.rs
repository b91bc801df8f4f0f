//! What each warp last handed over and waited for, so that a report can name the place where an edge is missing.

use super::super::cluster::home;
use super::super::cta::Cta;
use super::super::names;
use super::super::run::Machine;
use super::CtaHb;
use super::event::{End, Event, Kind};
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

/// A hand-off or a wait.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: u32,
    lanes: u32,
    pc: u32,
    at: At,
    waits: bool,
}

/// The last hand-offs and waits of a warp.
#[derive(Clone, Debug, Default)]
pub struct Trail(VecDeque<Step>);

impl CtaHb {
    /// Lanes of warp `w` hand over (`waits`: have waited) at `at`.
    pub(super) fn note(&mut self, w: usize, lanes: u32, pc: u32, at: At, waits: bool) {
        let (time, trail) = (self.warps[w].time, &mut self.trails[w].0);
        if trail.len() == MOST_STEPS {
            trail.pop_front();
        }
        trail.push_back(Step { time, lanes, pc, at, waits });
    }
}

impl Machine<'_> {
    /// Where an access `e` was handed over and where warp `w` took it up: between those and the two accesses the
    /// `tcgen05.fence` belongs.
    pub(super) fn hb_handed(&self, c: &Cta, w: usize, on: u32, e: &Event) -> Vec<String> {
        if e.cta != c.hb.cta || home(w as u32).0.is_some() {
            return vec![];
        }
        let place = |s: &Step| {
            let name = match s.at {
                At::Mbar(a) | At::Commit(a) => names::barrier(&self.launch.annotations, c.dynamic_base, a),
                At::Bar(id) => format!("named barrier {id}"),
            };
            let line = self.prog.code.get(s.pc as usize).map_or(0, |d| d.span.line);
            format!("{name} (PTX line {line})")
        };
        let trail = |w: usize| c.hb.trails[w].0.iter();
        let given = trail(e.warp as usize).find(|s| !s.waits && s.time >= e.time && s.lanes & e.lanes != 0);
        let taken = trail(w).rev().find(|s| s.waits && s.lanes & on != 0);
        let given = given.map(|s| format!("the first access was handed over by {}", place(s)));
        let taken = taken.map(|s| format!("this thread last waited for {}", place(s)));
        given.into_iter().chain(taken).collect()
    }

    /// What the two parties of a race handed over and waited for.
    pub(super) fn hb_trail(&self, c: &Cta, w: usize, on: u32, e: &Event, lanes: u32) -> Vec<String> {
        let mut notes = vec![];
        if e.cta != c.hb.cta || home(w as u32).0.is_some() || e.warp == w as u32 && e.kind.ordinary() {
            return notes;
        }
        let lanes = if lanes == 0 { e.lanes } else { lanes };
        let line = |pc: u32| self.prog.code.get(pc as usize).map_or(0, |d| d.span.line);
        let name = |at: At| match at {
            At::Mbar(a) | At::Commit(a) => names::barrier(&self.launch.annotations, c.dynamic_base, a),
            At::Bar(id) => format!("named barrier {id}"),
        };
        let mut who =
            self.role_of(e.warp).map_or(format!("warp {}", e.warp), |r| format!("{r} (warp {})", e.warp));
        if lanes.is_power_of_two() {
            who += &format!(" lane {}", lanes.trailing_zeros());
        }
        let from = if let End::Warp(t) = e.end { t } else { e.time };
        let after = |s: &&Step| {
            let fits = matches!(s.at, At::Commit(_)) == (e.kind == Kind::Pipe);
            !s.waits && fits && s.time >= from && s.lanes & lanes != 0
        };
        match (e.kind, e.end) {
            (Kind::Bulk, End::Count { id, n, .. }) => {
                if let Some((a, b)) = c.hb.mbars.iter().find(|(_, b)| b.id == id && n > b.base) {
                    let (phase, b) = (n - 1 - b.base, name(At::Mbar(*a)));
                    notes.push(format!(
                        "the copy completes in phase {phase} of {b}; this thread has not waited for that"
                    ));
                }
            }
            (Kind::Bulk | Kind::Wgmma | Kind::CpAsync, _) => {}
            _ => notes.push(match c.hb.trails[e.warp as usize].0.iter().find(after) {
                Some(s) => {
                    let verb = match s.at {
                        At::Mbar(_) => "arrived on",
                        At::Commit(_) => "committed to",
                        At::Bar(_) => "came to",
                    };
                    let (b, l) = (name(s.at), line(s.pc));
                    format!("after it {who} {verb} {b} (PTX line {l}); this thread has not waited for that")
                }
                None => format!("after it {who} has handed over nothing yet"),
            }),
        }
        let mine = c.hb.trails[w].0.iter().rev().find(|s| s.waits && s.lanes & on != 0);
        notes.push(match mine {
            Some(s) => format!("this thread last waited for {} (PTX line {})", name(s.at), line(s.pc)),
            None => "this thread has waited for nothing yet".into(),
        });
        notes
    }
}
