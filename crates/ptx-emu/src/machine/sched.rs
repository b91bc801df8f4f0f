//! Who acts next.
//!
//! `eager` and the late schedules let warps take turns of up to [`QUANTUM`] instructions. Under the late
//! schedules an operation lands only when no warp of any resident CTA can issue. A warp that polls an unchanged
//! barrier does not count as able to issue. When nothing is in flight either, polls get their time limit, then
//! lanes that wait to reconverge go on alone; when that changes nothing, it is a deadlock.

use super::cluster::Ctas;
use super::cta::{Cta, Split, State};
use super::exec::SliceEnd;
use super::inst::Inst;
use super::ops::Kind;
use super::run::{Machine, Res, Stop};
use crate::fault::{Code, Fault};
use crate::launch::Schedule;

/// Instructions in a turn.
const QUANTUM: u32 = 128;
/// The same under the timed schedule, where the earliest clock runs.
const TIMED_QUANTUM: u32 = 8;
/// Turns of a CTA before the other resident CTAs get theirs.
const TURNS: usize = 64;
/// Instructions without a landing after which a late schedule lands one operation all the same (a kernel may
/// poll global memory for ever otherwise).
const PATIENCE: u64 = 4_000_000;

impl Machine<'_> {
    /// Gives the CTA some turns; false when none of its warps could issue.
    pub(super) fn run_cta(&mut self, c: &mut Cta) -> Res<bool> {
        let mut moved = false;
        for _ in 0..TURNS {
            if self.deterministic_random() && !c.pending.is_empty() && self.rng.below(3) == 0 {
                let ready = ready_ops(c);
                if !ready.is_empty() {
                    let i = ready[self.rng.below(ready.len())];
                    self.land_at(c, i)?;
                    moved = true;
                }
            }
            let Some((w, s)) = self.pick(c) else { break };
            moved = true;
            let quantum = if self.timed() {
                TIMED_QUANTUM
            } else if self.deterministic_random() {
                1 + self.rng.below(QUANTUM as usize) as u32
            } else {
                QUANTUM
            };
            let begin = self.steps;
            let end = self.slice(c, w, s, quantum);
            self.trace_turn(c, w, begin);
            if let SliceEnd::Yield = end? {
                c.next_warp = (w + 1) % c.warps.len();
                // A group of lanes that spins must not keep the warp from the group it spins for.
                let splits = &mut c.warps[w].splits;
                if splits.len() > 1 {
                    let group = splits.remove(s);
                    splits.push(group);
                }
            }
            if self.steps > self.opts.step_limit {
                return Err(Stop::StepLimit);
            }
            if !c.pending.is_empty()
                && matches!(self.opts.schedule, Schedule::LateLifo | Schedule::LateTma)
                && self.steps - self.landing_step > PATIENCE
            {
                self.land_late(c)?;
            }
        }
        Ok(moved)
    }

    /// The turn of a warp in the trace, and what it waits for now. (The timed schedule has clocks for that.)
    fn trace_turn(&mut self, c: &Cta, w: usize, begin: u64) {
        if self.trace.is_none() || self.timed() {
            return;
        }
        let (role, warp) = (self.role_of(w as u32), &c.warps[w]);
        let met = |s: &&Split| !matches!(s.state, State::Reconverge | State::Sync(_));
        let waits = match warp.splits.iter().find(met).or(warp.splits.first()) {
            Some(s) if warp.splits.iter().all(|s| s.state != State::Ready) => match s.state {
                State::Mbar(a) => Some(self.barrier_name(c, a)),
                State::Bar(id) => Some(format!("named barrier {id}")),
                _ => Some(self.opcode(s.pc)),
            },
            _ => None,
        };
        let step = self.steps;
        if let Some(t) = &mut self.trace {
            t.turn(c.id, w as u32, role.as_deref(), begin, step);
            if let Some(name) = waits {
                t.blocked(c.id, w as u32, name, step);
            }
        }
    }

    fn pick(&mut self, c: &Cta) -> Option<(usize, usize)> {
        let n = c.warps.len();
        let ready = |w: usize| c.warps[w].splits.iter().position(|s| s.state == State::Ready);
        if self.deterministic_random() {
            let all: Vec<(usize, usize)> = (0..n)
                .flat_map(|w| {
                    let sp = c.warps[w].splits.iter().enumerate();
                    sp.filter(|(_, s)| s.state == State::Ready).map(move |(i, _)| (w, i)).collect::<Vec<_>>()
                })
                .collect();
            return (!all.is_empty()).then(|| all[self.rng.below(all.len())]);
        }
        if let Some(k) = &c.clocks {
            return (0..n).filter_map(|w| ready(w).map(|s| (w, s))).min_by_key(|&(w, _)| (k.warp[w], w));
        }
        (0..n).map(|i| (c.next_warp + i) % n).find_map(|w| ready(w).map(|s| (w, s)))
    }

    /// Nobody could issue: land one operation, else let polls time out, else let lanes part. False when stuck.
    pub(super) fn unstick(&mut self, live: &mut [Ctas]) -> Res<bool> {
        for k in live.iter_mut() {
            for r in 0..k.len() {
                let Some(mut c) = k[r].take_if(|c| !ready_ops(c).is_empty()) else { continue };
                std::mem::swap(&mut self.peers, k);
                self.land_late(&mut c)?;
                self.peers[r] = Some(c);
                std::mem::swap(&mut self.peers, k);
                return Ok(true);
            }
        }
        let mut live: Vec<&mut Cta> = live.iter_mut().flatten().flatten().map(|c| &mut **c).collect();
        if self.progress != self.timeout_progress {
            self.timeout_progress = self.progress;
            let mut any = false;
            for s in live.iter_mut().flat_map(|c| &mut c.warps).flat_map(|w| &mut w.splits) {
                if matches!(s.state, State::Mbar(_)) {
                    s.state = State::Ready;
                    s.poll_pass = true;
                    any = true;
                }
            }
            if any {
                return Ok(true);
            }
        }
        for c in live.iter_mut() {
            for w in 0..c.warps.len() {
                if let Some(s) = c.warps[w].splits.iter().position(|s| s.state == State::Reconverge) {
                    self.waits_for_a_barred_lane(c, w, s)?;
                    let sp = &mut c.warps[w].splits[s];
                    sp.stack.pop();
                    sp.meet = sp.stack.last().map_or(super::cta::NO_PC, |t| t.0);
                    sp.state = State::Ready;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Group `s` waits for the warp to meet. When a group that still owes its arrival there stands at an `.aligned`
    /// or `.sync` instruction that needs the lanes of `s`, the instruction is in divergent code: neither can go on.
    /// Lanes about to exit are let go: they are then no longer needed; so are lanes that a barrier without `.aligned`
    /// waits for, as they may exit later or come to another such barrier.
    fn waits_for_a_barred_lane(&self, c: &Cta, w: usize, s: usize) -> Res<()> {
        let (splits, waiting) = (&c.warps[w].splits, &c.warps[w].splits[s]);
        if self.prog.code.get(waiting.pc as usize).is_none_or(|d| matches!(d.inst, Inst::Exit)) {
            return Ok(());
        }
        let owes = |x: &Split| waiting.stack.last().is_some_and(|meet| x.stack.contains(meet));
        for x in splits.iter().filter(|x| owes(x)) {
            if let State::Sync(need) = x.state
                && need & waiting.mask != 0
                && !self
                    .prog
                    .code
                    .get(x.pc as usize)
                    .is_some_and(|d| matches!(d.inst, Inst::Bar(_, _, _, false)))
            {
                let text = format!(
                    "`{}` needs lanes {need:#010x}, but only {:#010x} execute it: it stands in divergent code",
                    self.opcode(x.pc),
                    x.mask
                );
                let f = Fault::new(Code::Converge, text)
                    .help("move it to where the lanes have met again, or make the branch the same for the whole warp");
                return Err(self.fault(c, w, x.pc, x.mask, f));
            }
        }
        Ok(())
    }

    /// Lands one operation as the late schedules order them.
    fn land_late(&mut self, c: &mut Cta) -> Res<()> {
        let ready = ready_ops(c);
        let copies = || ready.iter().copied().filter(|&i| c.pending[i].is_copy());
        let pipe = || ready.iter().copied().filter(|&i| !c.pending[i].is_tmem_move());
        let i = match self.opts.schedule {
            Schedule::LateLifo => pipe().next_back(),
            Schedule::LateTma => copies().next().or_else(|| pipe().next()),
            Schedule::Random => Some(ready[self.rng.below(ready.len())]),
            Schedule::Eager | Schedule::Timed => None,
        };
        let Some(i) = i.or_else(|| ready.first().copied()) else { return Ok(()) };
        self.land_at(c, i)
    }
}

/// Operations that may land now, oldest first: of the matrix pipe and of each warp's wgmmas only the head. A commit
/// waits for the operations of its own thread, and those before them, not for what another thread issued; the
/// commits of a warp complete in order.
pub(super) fn ready_ops(c: &Cta) -> Vec<usize> {
    let (mut pipe_seen, mut wgmma_seen, mut commit_seen) = (false, 0u32, 0u32);
    let mut oldest = u32::MAX;
    let mut out = Vec::new();
    for (i, p) in c.pending.iter().enumerate() {
        if p.in_mma_pipe() {
            let blocked = match &p.kind {
                Kind::Commit { seq, .. } => oldest <= *seq || commit_seen >> p.warp & 1 != 0,
                _ => pipe_seen,
            };
            if let Kind::Cp { seq, .. } = &p.kind {
                oldest = oldest.min(*seq);
            } else if let Kind::Mma(op) = &p.kind {
                oldest = oldest.min(op.seq);
            }
            commit_seen |= u32::from(matches!(p.kind, Kind::Commit { .. })) << p.warp;
            pipe_seen = true;
            if blocked {
                continue;
            }
        }
        if matches!(p.kind, Kind::Wgmma(_)) {
            if wgmma_seen >> p.warp & 1 != 0 {
                continue;
            }
            wgmma_seen |= 1 << p.warp;
        }
        if let Kind::CpArrive { after, .. } = &p.kind
            && after.iter().any(|&o| !c.landed[o as usize])
        {
            continue;
        }
        out.push(i);
    }
    out
}
