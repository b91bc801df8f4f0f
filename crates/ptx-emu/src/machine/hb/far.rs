//! What the warps of a cluster handed over and waited for, so that a report about two CTAs can name the place where an
//! edge is missing. Within one CTA that is [`super::trail`]'s job.

use super::super::cluster::home;
use super::super::cta::Cta;
use super::super::names;
use super::super::run::Machine;
use super::CtaHb;
use super::event::{End, Event, Kind};
use std::collections::VecDeque;

/// Steps remembered of a warp.
const MOST_STEPS: usize = 64;

/// Where threads of two CTAs meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Far {
    /// The mbarrier at this address of the own CTA.
    Own(u32),
    /// The mbarrier of a peer: its rank, address.
    Peer(u32, u32),
    /// A tcgen05.commit to the mbarriers at this address of the CTAs in this mask.
    Commit(u32, u32),
    /// The cluster barrier.
    Cluster,
}

/// A hand-over or a wait.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: u32,
    lanes: u32,
    pc: u32,
    at: Far,
    waits: bool,
}

/// The last steps of a warp.
#[derive(Clone, Debug, Default)]
pub struct FarTrail(VecDeque<Step>);

impl CtaHb {
    /// Remembers steps: the CTA is one of several in its cluster.
    pub fn has_peers(&mut self) {
        self.far = vec![FarTrail::default(); self.warps.len()];
    }

    /// Lanes of warp `w` hand over (`waits`: have waited) at `at`.
    pub(super) fn far_note(&mut self, w: usize, lanes: u32, pc: u32, at: Far, waits: bool) {
        let Some(FarTrail(steps)) = self.far.get_mut(w) else { return };
        if steps.len() == MOST_STEPS {
            steps.pop_front();
        }
        steps.push_back(Step { time: self.warps[w].time, lanes, pc, at, waits });
    }
}

impl Machine<'_> {
    /// The CTA of the cluster with this linear index.
    fn hb_cta<'a>(&'a self, c: &'a Cta, cta: u32) -> Option<&'a Cta> {
        std::iter::once(c).chain(self.peers.iter().flatten().map(|p| &**p)).find(|c| c.hb.cta == cta)
    }

    /// The mbarrier at `addr` of the CTAs in `mask`, as a thread of the CTA of `rank` would call it.
    fn hb_far_name(&self, c: &Cta, rank: u32, addr: u32, mask: u32) -> String {
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        if mask == 1 << rank {
            return name;
        }
        let ranks = (0..32).filter(|r| mask >> r & 1 != 0);
        let ids: Vec<String> = ranks.map(|r| format!("{:?}", self.cta_id(c, r))).collect();
        format!("{name} of CTA {}", ids.join(" and "))
    }

    /// What the two parties of a race handed over and waited for, where they, the memory or the completion are of
    /// different CTAs of a cluster; else nothing. `w`: the warp that acts now, in `c` or abroad; `lanes` of `e` count (0: all).
    pub(super) fn hb_far_trail(&self, c: &Cta, w: usize, on: u32, e: &Event, lanes: u32) -> Vec<String> {
        let mut notes = vec![];
        let (rank, warp) = home(w as u32);
        let me = rank.and_then(|r| self.peer(r)).unwrap_or(c);
        // Threads of two clusters meet nowhere that is remembered.
        let Some(other) = self.hb_cta(c, e.cta) else { return notes };
        let at_home = e.cta == c.hb.cta && rank.is_none();
        let ends_abroad = e.kind == Kind::Bulk && matches!(e.end, End::Count { cta, .. } if cta != c.hb.cta);
        if at_home && !ends_abroad || other.rank == me.rank && e.kind.ordinary() {
            return notes;
        }
        let lanes = if lanes == 0 { e.lanes } else { lanes };
        let line = |pc: u32| self.prog.code.get(pc as usize).map_or(0, |d| d.span.line);
        let name = |by: &Cta, at: Far| match at {
            Far::Own(a) => self.hb_far_name(c, me.rank, a, 1 << by.rank),
            Far::Peer(r, a) => self.hb_far_name(c, me.rank, a, 1 << r),
            Far::Commit(a, mask) => self.hb_far_name(c, me.rank, a, mask),
            Far::Cluster => "the cluster barrier".into(),
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
            let fits = matches!(s.at, Far::Commit(..)) == (e.kind == Kind::Pipe);
            !s.waits && fits && s.time >= from && s.lanes & lanes != 0
        };
        match (e.kind, e.end) {
            (Kind::Bulk, End::Count { cta, id, n }) => {
                let at = self.hb_cta(c, cta).and_then(|c| {
                    let (a, b) = c.hb.mbars.iter().find(|(_, b)| b.id == id && n > b.base)?;
                    Some((c.rank, *a, n - 1 - b.base))
                });
                if let Some((rank, a, phase)) = at {
                    let b = self.hb_far_name(c, me.rank, a, 1 << rank);
                    notes.push(format!(
                        "the copy completes in phase {phase} of {b}; this thread has not waited for that"
                    ));
                }
            }
            (Kind::Bulk | Kind::Wgmma | Kind::CpAsync, _) => {}
            _ => notes.push(match other.hb.far.get(e.warp as usize).and_then(|t| t.0.iter().find(after)) {
                Some(s) => {
                    let verb = match s.at {
                        Far::Own(_) | Far::Peer(..) => "arrived on",
                        Far::Commit(..) => "committed to",
                        Far::Cluster => "came to",
                    };
                    let (b, l) = (name(other, s.at), line(s.pc));
                    format!("after it {who} {verb} {b} (PTX line {l}); this thread has not waited for that")
                }
                None => format!("after it {who} has handed over nothing yet"),
            }),
        }
        let mine = me.hb.far.get(warp as usize).into_iter().flat_map(|t| t.0.iter().rev());
        notes.push(match mine.into_iter().find(|s| s.waits && s.lanes & on != 0) {
            Some(s) => format!("this thread last waited for {} (PTX line {})", name(me, s.at), line(s.pc)),
            None => "this thread has waited for nothing yet".into(),
        });
        notes
    }
}
