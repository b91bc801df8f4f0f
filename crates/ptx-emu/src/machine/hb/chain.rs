//! What is known of two accesses that nothing orders: where it was said that the first is over, who knows it, what the
//! second thread waited for last. [`guess`](super::guess) makes a missing link of it.

use super::super::cluster::home;
use super::super::cta::{BulkGroups, Cta};
use super::super::inst::Inst;
use super::super::ledger::{Deed, Visit};
use super::super::ops::Kind as OpKind;
use super::super::run::Machine;
use super::super::say::At;
use super::event::{End, Event, Kind, View, stamp};
use super::guess::Guesser;

/// Hand-overs shown.
const MOST_SHOWN: usize = 2;

/// The two accesses.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    /// CTA.
    pub c: &'a Cta,
    /// Warp, program counter and lanes of the access that found it.
    pub now: (usize, u32, u32),
    /// Its kind.
    pub kind: Kind,
    /// Number of the other access.
    pub id: u32,
    /// The other access.
    pub e: &'a Event,
    /// Its lanes that count.
    pub lanes: u32,
    /// It wrote.
    pub wrote: bool,
}

/// What a report says of it.
#[derive(Default)]
pub(super) struct Words {
    /// What happened.
    pub notes: Vec<String>,
    /// The missing link.
    pub missing: Option<String>,
}

/// An arrival that says that the first access is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    /// Where.
    pub at: At,
    /// Phase that it counts for.
    pub phase: Option<u64>,
    /// Where it was made; none: the operation itself arrives.
    pub pc: Option<u32>,
}

impl Machine<'_> {
    /// Where the chain from `p.e` to the access breaks; nothing to say where CTAs or lanes of one warp are concerned.
    pub(super) fn hb_break(&self, p: &Pair<'_>) -> Option<Words> {
        let ((w, ..), e) = (p.now, p.e);
        let own = e.warp == w as u32;
        let between = e.cta != p.c.hb.cta || home(w as u32).0.is_some();
        if between || own && e.kind.ordinary() || matches!(e.kind, Kind::Barrier | Kind::Remote { .. }) {
            return None;
        }
        if let (Kind::Strong(_), Kind::Strong(_)) = (e.kind, p.kind) {
            return None;
        }
        let mut words = Words::default();
        let signals = self.signals(p);
        self.tell(p, &signals, &mut words);
        words.missing = Guesser::new(self, *p, &signals).missing();
        Some(words)
    }

    /// The warp of the first access, and the lane where it is one.
    pub(super) fn first(&self, p: &Pair<'_>) -> String {
        let lane = if p.lanes.is_power_of_two() {
            format!(" lane {}", p.lanes.trailing_zeros())
        } else {
            String::new()
        };
        format!("{}{lane}", self.who(p.e.warp))
    }

    /// The wait that the thread of the first access itself has not executed since.
    pub(super) fn not_over(&self, p: &Pair<'_>) -> Option<&'static str> {
        let (e, warp) = (p.e, &p.c.hb.warps[p.e.warp as usize]);
        let known = match e.end {
            End::Count { cta, id, n } => warp.groups_of(e.lanes).any(|(_, k)| k.all.count(cta, id) >= n),
            End::Open => false,
            End::Issue | End::Warp(_) => true,
        };
        if known {
            return None;
        }
        match e.kind {
            Kind::TmemLd => Some("tcgen05.wait::ld"),
            Kind::TmemSt => Some("tcgen05.wait::st"),
            Kind::Wgmma => Some("wgmma.commit_group and a wgmma.wait_group that covers it"),
            Kind::CpAsync if self.signals(p).is_empty() => {
                Some("cp.async.wait_group (or an mbarrier that cp.async.mbarrier.arrive completes)")
            }
            Kind::Bulk if !p.wrote => {
                let op = p.c.hb.ops.iter().find(|(_, e)| **e == p.id).map(|(op, _)| *op);
                let open = |g: &BulkGroups| op.is_some_and(|op| g.open.contains(&op));
                Some(if p.c.bulk.values().any(open) {
                    "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read"
                } else {
                    "cp.async.bulk.wait_group.read (its group is committed)"
                })
            }
            _ => None,
        }
    }

    /// The wait that the thread of the first access needs, and before what.
    pub(super) fn own_wait(&self, p: &Pair<'_>, wait: &str, signals: &[Signal]) -> String {
        let a = if p.e.kind == Kind::Bulk { self.first(p) } else { self.who(p.e.warp) };
        let at = self.line(p.e.pc);
        if p.e.warp == p.now.0 as u32 {
            return format!("{wait} by {a} between {at} and {}", self.line(p.now.1));
        }
        match signals.first() {
            Some(Signal { at: on, pc: Some(pc), .. }) => format!(
                "{wait} by {a} between {at} and {}, where it hands over ({})",
                self.line(*pc),
                self.at_name(p.c, *on)
            ),
            _ => format!("{wait} by {a} after {at}, then a hand-over to {}", self.who(p.now.0 as u32)),
        }
    }

    /// Where it is said that the first access is over.
    fn signals(&self, p: &Pair<'_>) -> Vec<Signal> {
        let (c, e) = (p.c, p.e);
        if matches!((e.kind, p.wrote), (Kind::Bulk, true)) {
            let of_count = |id, n| {
                let (a, b) = c.hb.mbars.iter().find(|(_, b)| b.id == id && n > b.base)?;
                Some(Signal { at: At::Mbar(*a), phase: Some(u64::from(n - 1 - b.base)), pc: None })
            };
            let under_way = || {
                let (op, _) = c.hb.forks.iter().find(|(_, f)| f.events.contains(&p.id))?;
                let OpKind::Load { mbar, .. } = &c.pending.iter().find(|x| x.id == *op)?.kind else {
                    return None;
                };
                let phase = c.mbars.get(&mbar.1).map(|m| m.bar.phase());
                Some(Signal { at: At::Mbar(mbar.1), phase, pc: None })
            };
            let signal = match e.end {
                End::Count { id, n, .. } => of_count(id, n),
                _ => under_way(),
            };
            return signal.into_iter().collect();
        }
        let from = if let End::Warp(t) = e.end { t } else { e.time };
        let steps = c.hb.trails[e.warp as usize].handed_over(p.lanes, from, e.kind == Kind::Pipe);
        let signal = |s: super::trail::Step| Signal { at: s.at.place(), phase: s.phase, pc: Some(s.pc) };
        steps.into_iter().map(signal).collect()
    }

    /// What happened after the first access, and what the second thread last waited for.
    fn tell(&self, p: &Pair<'_>, signals: &[Signal], words: &mut Words) {
        let ((w, _, on), e) = (p.now, p.e);
        let knowers = self.knowers(p);
        let known = if knowers.is_empty() {
            String::new()
        } else {
            {
                let verb = if knowers.len() == 1 { "knows" } else { "know" };
                format!("{} {verb} that it is over", self.who_all(&knowers))
            }
        };
        match signals {
            [Signal { at, phase, pc: None }, ..] => {
                let phase = phase.map_or(String::new(), |n| format!("phase {n} of "));
                let who = if known.is_empty() { "nobody has waited for that".into() } else { known };
                words.notes.push(format!("the copy completes {phase}{}; {who}", self.at_name(p.c, *at)));
            }
            [] => {
                let what = match e.kind {
                    Kind::Pipe => "committed nothing",
                    Kind::Bulk | Kind::Wgmma | Kind::CpAsync => "",
                    _ => "handed over nothing",
                };
                if !what.is_empty() {
                    words.notes.push(format!("{} has {what} since then", self.first(p)));
                }
            }
            _ if e.warp == w as u32 && e.kind != Kind::Pipe => {}
            all => {
                let one = |s: &Signal| {
                    let pc = s.pc.unwrap_or(0);
                    let verb = match (s.at, e.kind) {
                        (At::Bar(_), _) => "came to",
                        (_, Kind::Pipe) => "committed to",
                        _ => "arrived on",
                    };
                    let phase = s.phase.map_or(String::new(), |n| format!(" in phase {n}"));
                    format!("{verb} {}{phase} ({})", self.at_name(p.c, s.at), self.line(pc))
                };
                let text: Vec<String> = all.iter().take(MOST_SHOWN).map(one).collect();
                let who = if known.is_empty() { String::new() } else { format!("; {known}") };
                words.notes.push(format!("after it {} {}{who}", self.first(p), text.join(", then ")));
            }
        }
        let (me, trail) = (self.who(w as u32), &p.c.hb.trails[w]);
        let Some(wait) = trail.last(on, true) else {
            words.notes.push(format!("{me} has waited for nothing yet"));
            return;
        };
        let at = wait.at.place();
        let phase = self.visit(p.c, w as u32, at).and_then(|v| v.phase.checked_sub(1));
        let phase =
            phase.filter(|_| matches!(at, At::Mbar(_))).map_or(String::new(), |n| format!("phase {n} of "));
        let mut text =
            format!("{me} last waited for {phase}{} ({})", self.at_name(p.c, at), self.line(wait.pc));
        if let Some(s) = trail.last(on, false).filter(|s| !s.waits) {
            text += &format!(
                ", and then handed over to {} ({})",
                self.at_name(p.c, s.at.place()),
                self.line(s.pc)
            );
        }
        words.notes.push(text);
    }

    /// Warps besides the two that know of the first access.
    pub(super) fn knowers(&self, p: &Pair<'_>) -> Vec<u32> {
        let knows = |k: usize| {
            p.c.hb.warps[k].groups_of(!0).any(|(lanes, know)| {
                // As a thread's own access: the pipe's order does not count as knowing.
                let v = View { cta: p.c.hb.cta, warp: k as u32, lanes, kind: Kind::Weak, know };
                self.hb.events.ordered(stamp(p.id, p.lanes), &v)
            })
        };
        let others = (0..p.c.hb.warps.len()).filter(|&k| k != p.now.0 && k as u32 != p.e.warp);
        others.filter(|&k| knows(k)).map(|k| k as u32).collect()
    }

    /// The step at which a warp learned of the first access.
    pub(super) fn since(&self, c: &Cta, warp: u32, signals: &[Signal], step: u64) -> u64 {
        let visits = signals.iter().filter_map(|s| self.visit(c, warp, s.at));
        visits.map(|v| v.step).max().unwrap_or(step)
    }

    /// The last wait of a warp at a barrier.
    pub(super) fn visit<'c>(&self, c: &'c Cta, warp: u32, at: At) -> Option<&'c Visit> {
        self.ledgers(c).find(|l| l.0 == at)?.1.last(warp, &[Deed::Wait])
    }

    /// The fence that is missing between a write and the hand-over after it.
    pub(super) fn hb_fence_place(&self, p: &Pair<'_>) -> Option<String> {
        if p.e.cta != p.c.hb.cta || home(p.now.0 as u32).0.is_some() {
            return None;
        }
        let (a, at) = (self.who(p.e.warp), self.line(p.e.pc));
        if p.e.warp == p.now.0 as u32
            && p.c.hb.trails[p.e.warp as usize].handed_over(p.lanes, p.e.time, false).is_empty()
        {
            return Some(format!("by {a} between {at} and {}", self.line(p.now.1)));
        }
        let signal = self.signals(p).into_iter().next()?;
        Some(format!(
            "by {a} between {at} and {}, where it hands over ({})",
            self.line(signal.pc?),
            self.at_name(p.c, signal.at)
        ))
    }

    /// The mbarrier that a warp last handed something over on, and where.
    pub(in super::super) fn hb_last_given(&self, c: &Cta, warp: u32) -> Option<(At, u32)> {
        let step = c.hb.trails.get(warp as usize)?.last_given()?;
        Some((step.at.place(), step.pc))
    }

    /// The first hand-over of a warp after a step, in words: where an own wait would have had to stand before.
    pub(in super::super) fn hand_over_after(
        &self,
        c: &Cta,
        warp: u32,
        step: u64,
    ) -> Option<(String, String)> {
        let mut all: Vec<(At, &Visit)> = vec![];
        for (at, ledger) in self.ledgers(c) {
            let visits = ledger.visits().iter();
            all.extend(
                visits.filter(|v| v.warp == warp && v.deed == Deed::Arrive && v.step > step).map(|v| (at, v)),
            );
        }
        // Arrivals of operations come when those are over, wherever the warp is by then.
        all.retain(|(_, v)| matches!(self.prog.code[v.pc as usize].inst, Inst::Mbar(_) | Inst::Bar(..)));
        let (at, v) = all.into_iter().min_by_key(|(_, v)| v.step)?;
        Some((self.at_name(c, at), self.line(v.pc)))
    }
}
