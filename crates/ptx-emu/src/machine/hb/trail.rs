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
    /// An arrive on the mbarrier of a peer: its rank, address.
    Remote(u32, u32),
    /// A tcgen05.commit to the mbarriers at this address of the CTAs of these ranks.
    Commit(u32, u32),
    /// A named barrier.
    Bar(u32),
    /// The cluster barrier.
    Cluster,
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

/// The ranks in a mask.
fn ranks(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |r| mask >> r & 1 != 0)
}

impl Machine<'_> {
    /// The CTA of the cluster with this linear index.
    fn hb_cta<'a>(&'a self, c: &'a Cta, cta: u32) -> Option<&'a Cta> {
        std::iter::once(c).chain(self.peers.iter().flatten().map(|p| &**p)).find(|c| c.hb.cta == cta)
    }

    /// The mbarrier at `addr` of the CTAs in `mask`, as a thread of the CTA of `rank` would call it.
    fn hb_barrier(&self, c: &Cta, rank: u32, addr: u32, mask: u32) -> String {
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        if mask == 1 << rank {
            return name;
        }
        let ids: Vec<String> = ranks(mask).map(|r| format!("{:?}", self.cta_id(c, r))).collect();
        format!("{name} of CTA {}", ids.join(" and "))
    }

    /// What the two parties of a race handed over and waited for. `w`: the warp that acts now, in `c` or abroad.
    pub(super) fn hb_trail(&self, c: &Cta, w: usize, on: u32, e: &Event, lanes: u32) -> Vec<String> {
        let mut notes = vec![];
        let (rank, warp) = home(w as u32);
        let me = rank.and_then(|r| self.peer(r)).unwrap_or(c);
        // Threads of two clusters meet nowhere that is remembered.
        let Some(other) = self.hb_cta(c, e.cta) else { return notes };
        if other.rank == me.rank && e.warp == warp && e.kind.ordinary() {
            return notes;
        }
        let lanes = if lanes == 0 { e.lanes } else { lanes };
        let line = |pc: u32| self.prog.code.get(pc as usize).map_or(0, |d| d.span.line);
        let name = |by: &Cta, at: At| match at {
            At::Mbar(a) => self.hb_barrier(c, me.rank, a, 1 << by.rank),
            At::Remote(r, a) => self.hb_barrier(c, me.rank, a, 1 << r),
            At::Commit(a, mask) => self.hb_barrier(c, me.rank, a, mask),
            At::Bar(id) => format!("named barrier {id}"),
            At::Cluster => "the cluster barrier".into(),
        };
        let mut who =
            self.role_of(e.warp).map_or(format!("warp {}", e.warp), |r| format!("{r} (warp {})", e.warp));
        if lanes.is_power_of_two() {
            who += &format!(" lane {}", lanes.trailing_zeros());
        }
        if other.rank != me.rank {
            who += &format!(" of CTA {:?}", other.id);
        }
        let from = if let End::Warp(t) = e.end { t } else { e.time };
        let after = |s: &&Step| {
            let fits = matches!(s.at, At::Commit(..)) == (e.kind == Kind::Pipe);
            !s.waits && fits && s.time >= from && s.lanes & lanes != 0
        };
        match (e.kind, e.end) {
            (Kind::Bulk, End::Count { cta, id, n }) => {
                let at = self.hb_cta(c, cta).and_then(|c| {
                    let (a, b) = c.hb.mbars.iter().find(|(_, b)| b.id == id && n > b.base)?;
                    Some((c.rank, *a, n - 1 - b.base))
                });
                if let Some((rank, a, phase)) = at {
                    let b = self.hb_barrier(c, me.rank, a, 1 << rank);
                    notes.push(format!(
                        "the copy completes in phase {phase} of {b}; this thread has not waited for that"
                    ));
                }
            }
            (Kind::Bulk | Kind::Wgmma | Kind::CpAsync, _) => {}
            _ => notes.push(match other.hb.trails[e.warp as usize].0.iter().find(after) {
                Some(s) => {
                    let verb = match s.at {
                        At::Mbar(_) | At::Remote(..) => "arrived on",
                        At::Commit(..) => "committed to",
                        At::Bar(_) | At::Cluster => "came to",
                    };
                    let (b, l) = (name(other, s.at), line(s.pc));
                    format!("after it {who} {verb} {b} (PTX line {l}); this thread has not waited for that")
                }
                None => format!("after it {who} has handed over nothing yet"),
            }),
        }
        let mine = me.hb.trails[warp as usize].0.iter().rev().find(|s| s.waits && s.lanes & on != 0);
        notes.push(match mine {
            Some(s) => format!("this thread last waited for {} (PTX line {})", name(me, s.at), line(s.pc)),
            None => "this thread has waited for nothing yet".into(),
        });
        notes
    }
}
