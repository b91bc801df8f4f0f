//! Which link is missing in the chain from one access to another.
//!
//! Whatever orders two accesses is a chain: the first is over, its thread (or the operation) arrives somewhere, another
//! thread waits for that, perhaps hands over in turn, and the thread of the second access has waited for the last of
//! them. The guesses here come from what happened (the books of the barriers), from what the program's text has at all
//! ([`Survey`]), and from what the kernel's tables declare. Each has a score; the best are shown. No wait is proposed
//! that was executed in time.

use super::super::inst::Inst;
use super::super::ledger::{Deed, Visit};
use super::super::run::Machine;
use super::super::say::{Act, At, Has, Survey, array};
use super::chain::{Pair, Signal};
use super::event::Kind;

/// The kernel's tables ask for it, or nobody else does it, and no instruction does.
const NOT_IN_CODE: u8 = 6;
/// It was done too early.
const TOO_EARLY: u8 = 5;
/// It did not do what it should have: another stage, another phase.
const ASIDE: u8 = 4;
/// It was not done so far.
const NOT_YET: u8 = 3;
/// It was done in an earlier round only.
const EARLIER: u8 = 2;
/// Guesses shown.
const MOST_GUESSES: usize = 2;

/// Score and text.
type Guess = (u8, String);

/// What guesses are made from. The first access is that of warp `a`, the second that of warp `b`.
pub(super) struct Guesser<'a> {
    m: &'a Machine<'a>,
    p: Pair<'a>,
    signals: &'a [Signal],
    survey: Survey,
    a: u32,
    b: u32,
}

impl<'a> Guesser<'a> {
    /// Looks around.
    pub fn new(m: &'a Machine<'_>, p: Pair<'a>, signals: &'a [Signal]) -> Guesser<'a> {
        let (w, pc, _) = p.now;
        let survey = Survey::new(m, p.c, Some((w, pc)));
        Guesser { m, p, signals, survey, a: p.e.warp, b: w as u32 }
    }

    /// The missing link in words.
    pub fn missing(&self) -> Option<String> {
        if let Some(text) = self.signals.first().and_then(|s| self.not_announced(s)) {
            return Some(text);
        }
        let own = self.a == self.b;
        let other = if own { vec![] } else { self.other_way() };
        let mut guesses: Vec<Guess> = self.signals.iter().filter_map(|s| self.not_waited(s)).collect();
        if let Some(wait) = self.m.not_over(&self.p) {
            // Either its own thread did not wait for it, or the second came without waiting for that one.
            if !own && guesses.iter().all(|g| g.0 < TOO_EARLY) {
                guesses.extend(self.links((self.a, self.p.e.step)));
                guesses.extend(other);
                guesses.retain(|g| g.0 >= NOT_YET);
                if let Some(text) = self.best(guesses, vec![]) {
                    return Some(text);
                }
            }
            return Some(self.m.own_wait(&self.p, wait, self.signals));
        }
        if guesses.iter().all(|g| g.0 < TOO_EARLY) {
            if self.p.kind == Kind::Dealloc {
                return Some(self.before_dealloc());
            }
            if own && self.p.e.kind == Kind::Bulk {
                guesses.extend(self.round_trip());
            } else {
                for k in self.m.knowers(&self.p) {
                    let since = self.m.since(self.p.c, k, self.signals, self.p.e.step);
                    guesses.extend(self.links((k, since)));
                }
                let alone = guesses.is_empty();
                let direct = if own { vec![] } else { self.links((self.a, self.p.e.step)) };
                // What the tables ask for and the program lacks says more than what was not done yet.
                guesses.extend(direct.into_iter().filter(|g| alone || g.0 == NOT_IN_CODE));
            }
        }
        // Where the first access was handed over, the other way round is less likely.
        let told = !self.signals.is_empty() && !guesses.is_empty();
        let other: Vec<Guess> = other.into_iter().filter(|g| g.0 > EARLIER || !told).collect();
        self.best(guesses, other).or_else(|| {
            let pipe = self.p.e.kind == Kind::Pipe && self.signals.is_empty();
            pipe.then(|| {
                let (a, b) = (self.m.first(&self.p), self.m.who(self.b));
                let (from, to) = (self.m.line(self.p.e.pc), self.place(self.b));
                format!(
                    "a tcgen05.commit by {a} after {from}, and a wait for its mbarrier by {b}, or by one that then hands \
                     over to it, before {to}"
                )
            })
        })
    }

    /// The best guesses in words; `other`: those of the other way round, of which one has a place.
    fn best(&self, guesses: Vec<Guess>, other: Vec<Guess>) -> Option<String> {
        let best = guesses.iter().chain(&other).map(|g| g.0).max()?;
        let only = |all: Vec<Guess>| all.into_iter().filter(move |g| g.0 == best).map(|g| g.1);
        let mut best: Vec<String> = only(guesses).collect();
        best.dedup();
        let other = only(other).next();
        best.truncate(MOST_GUESSES - usize::from(other.is_some()));
        best.extend(other);
        Some(best.join("; or "))
    }

    fn name(&self, at: At) -> String {
        self.m.at_name(self.p.c, at)
    }

    fn has(&self, w: u32, at: At, act: Act) -> Has {
        self.survey.has(self.m, self.p.c, w, at, act)
    }

    fn barriers(&self) -> impl Iterator<Item = At> {
        self.m.ledgers(self.p.c).map(|l| l.0)
    }

    /// The last wait of a warp at a barrier.
    fn visit(&self, w: u32, at: At) -> Option<&Visit> {
        self.m.visit(self.p.c, w, at)
    }

    /// The last wait of a warp at another stage of the same array.
    fn beside(&self, w: u32, at: At) -> Option<(At, &Visit)> {
        let name = self.name(at);
        let same = |x: At| x != at && array(&self.name(x)) == array(&name);
        let all = self.m.ledgers(self.p.c).filter(|l| same(l.0));
        all.filter_map(|(x, l)| Some((x, l.last(w, &[Deed::Wait])?))).max_by_key(|v| v.1.step)
    }

    /// Whether the tables declare a warp's role to wait (arrive) at a barrier.
    fn is_declared(&self, name: &str, w: u32, waits: bool) -> bool {
        self.m.role_of(w).is_some_and(|r| self.m.declared(name, waits).contains(&r))
    }

    /// Whether the tables, where they say anything of a barrier, let a warp's role wait (arrive) there.
    fn may(&self, name: &str, w: u32, waits: bool) -> bool {
        self.m.declared(name, waits).is_empty() || self.is_declared(name, w, waits)
    }

    /// A role's name, or the warp's number.
    fn role(&self, w: u32) -> String {
        self.m.role_of(w).unwrap_or_else(|| self.m.who(w))
    }

    /// Where the second thread, and the first, would have had to wait.
    fn place(&self, w: u32) -> String {
        self.m.line(if w == self.b { self.p.now.1 } else { self.p.e.pc })
    }

    fn never_waits(&self, wait: &str, w: u32, at: At) -> Guess {
        let (role, like) = (self.role(w), self.sibling(at, w, Act::Waits));
        let text =
            format!("{wait}: {role} has never waited there, and no instruction ahead of it does{like}");
        (NOT_IN_CODE, text)
    }

    /// The same statement at another stage, as a clause.
    fn sibling(&self, at: At, w: u32, act: Act) -> String {
        let like = self.m.sibling(self.p.c, &self.survey, at, w, act);
        like.map_or(String::new(), |s| format!("; {s}"))
    }

    /// The copy counts for a phase of which nobody has announced bytes: what was announced before was too little.
    fn not_announced(&self, s: &Signal) -> Option<String> {
        let n = s.phase.filter(|_| s.pc.is_none())?;
        let visits = self.m.ledgers(self.p.c).find(|l| l.0 == s.at)?.1.visits();
        if visits.iter().any(|v| v.deed == Deed::Expect && v.phase >= n) {
            return None;
        }
        let name = self.name(s.at);
        let last = |deed| visits.iter().filter(move |v| v.deed == deed).max_by_key(|v| v.step);
        match (last(Deed::Expect), last(Deed::Arrive)) {
            // It was issued when the phase before was under way.
            (Some(v), _) if v.phase + 1 == n => {
                let (line, bytes) = (self.m.line(v.pc), v.amount);
                Some(format!(
                    "bytes announced on {name}: expect_tx at {line} announced {bytes} for phase {}; the copies that follow \
                     bring more, and this one counts for phase {n}",
                    v.phase
                ))
            }
            (None, Some(v)) => Some(format!(
                "an expect_tx of the copy's bytes on {name}: the arrival at {} announced none, so that phase {} did not \
                 wait for the copy",
                self.m.line(v.pc),
                v.phase
            )),
            _ => None,
        }
    }

    /// It is said that the first access is over; the second thread has not waited for that.
    fn not_waited(&self, s: &Signal) -> Option<Guess> {
        let name = self.name(s.at);
        if !self.may(&name, self.b, true) {
            return None;
        }
        let warps = 0..self.p.c.warps.len() as u32;
        let others = warps.filter(|k| *k != self.b).any(|k| self.has(k, s.at, Act::Waits) != Has::No);
        let declared = self.is_declared(&name, self.b, true);
        let phase = s.phase.map_or(String::new(), |n| format!("phase {n} of "));
        let wait =
            format!("a wait by {} for {phase}{name} before {}", self.m.who(self.b), self.place(self.b));
        let seen = self.visit(self.b, s.at);
        if let (Some(v), Some(n)) = (seen, s.phase)
            && v.phase > n
        {
            return self.too_early(s, &name);
        }
        match (self.has(self.b, s.at, Act::Waits), seen) {
            (Has::No, _) if declared => Some(self.never_waits(&wait, self.b, s.at)),
            (Has::No, _) if !others => {
                Some((NOT_IN_CODE, format!("{wait}: nothing in the program waits there")))
            }
            (Has::No, _) if self.m.knowers(&self.p).is_empty() => {
                let waiter =
                    (0..self.p.c.warps.len() as u32).find_map(|k| match self.has(k, s.at, Act::Waits) {
                        Has::Yes(pc) if k != self.b => {
                            Some(format!(" ({} waits there at {})", self.m.who(k), self.m.line(pc)))
                        }
                        _ => None,
                    });
                Some((
                    NOT_YET,
                    format!("{wait}, or by one that then hands over to it{}", waiter.unwrap_or_default()),
                ))
            }
            (Has::No, _) => None,
            (Has::Maybe, _) if others && !declared => None,
            (_, Some(v)) => Some(self.stale(self.b, v, &wait, &name)),
            (Has::Yes(at), None) => Some(self.unseen(self.b, s.at, at, &wait)),
            (Has::Maybe, None) => Some((NOT_YET, format!("{wait}; it has not waited there so far"))),
        }
    }

    /// The second thread has waited for what was signalled, but the first access was not over when that was.
    fn too_early(&self, s: &Signal, name: &str) -> Option<Guess> {
        let wait = match self.p.e.kind {
            Kind::TmemLd => "tcgen05.wait::ld",
            Kind::TmemSt => "tcgen05.wait::st",
            Kind::Wgmma => "wgmma.wait_group that covers it",
            Kind::CpAsync => "cp.async.wait_group",
            Kind::Bulk if !self.p.wrote => "cp.async.bulk.wait_group.read",
            _ => return None,
        };
        let (a, at, on) = (self.m.who(self.a), self.m.line(self.p.e.pc), self.m.line(s.pc?));
        Some((
            TOO_EARLY,
            format!(
                "{wait} by {a} between {at} and {on}, where it arrives on {name}: what it waits for later is too late"
            ),
        ))
    }

    /// It waited there, but for an earlier phase.
    fn stale(&self, w: u32, v: &Visit, wait: &str, name: &str) -> Guess {
        let line = self.m.line(v.pc);
        match v.phase.checked_sub(1) {
            None => (
                ASIDE,
                format!("{wait}; its wait at {line} fell through, since {name} was in its first phase"),
            ),
            Some(n) if !v.news => {
                let role = self.role(w);
                (
                    ASIDE,
                    format!(
                        "{wait}; its last wait there, at {line}, was for phase {n}, which {role} had seen end before"
                    ),
                )
            }
            Some(n) => (EARLIER, format!("{wait}; it last waited there for phase {n} ({line})")),
        }
    }

    /// It has a wait for that, but has not executed it.
    fn unseen(&self, w: u32, at: At, pc: u32, wait: &str) -> Guess {
        let line = self.m.line(pc);
        match self.beside(w, at) {
            Some((x, v)) => {
                (ASIDE, format!("{wait}; what it waited for, at {}, is {}", self.m.line(v.pc), self.name(x)))
            }
            None => (NOT_YET, format!("{wait}; its next wait there, at {line}, comes later")),
        }
    }

    /// Barriers that lead from a warp, which has known of the first access since a step, to the second thread.
    fn links(&self, from: (u32, u64)) -> Vec<Guess> {
        // A named barrier of the whole CTA leads everywhere, and is mostly not what was meant.
        let mbars = self.barriers().filter(|at| matches!(at, At::Mbar(_)));
        let mbars: Vec<Guess> = mbars.filter_map(|at| self.link(from, at)).collect();
        if !mbars.is_empty() {
            return mbars;
        }
        let met = |at: &At| self.visit(self.b, *at).map_or(0, |v| v.step);
        let last = self.barriers().filter(|at| matches!(at, At::Bar(_))).max_by_key(met);
        last.and_then(|at| self.link(from, at)).into_iter().collect()
    }

    fn link(&self, (from, since): (u32, u64), at: At) -> Option<Guess> {
        let (name, b) = (self.name(at), self.b);
        if !self.may(&name, from, false) || !self.may(&name, b, true) {
            return None;
        }
        let (a, me) = (self.m.who(from), self.m.who(b));
        let wait = format!("a wait by {me} for {name} before {}", self.place(b));
        match (self.has(from, at, Act::Gives), self.has(b, at, Act::Waits)) {
            (Has::Yes(g), Has::No) if self.is_declared(&name, b, true) => {
                Some(self.never_waits(&format!("{wait}, where {a} arrives ({})", self.m.line(g)), b, at))
            }
            (Has::No, Has::Yes(v)) if self.is_declared(&name, from, false) => {
                let after = if from == self.a {
                    self.m.line(self.p.e.pc)
                } else {
                    format!("its wait for {}", self.m.who(self.a))
                };
                Some(self.never_arrives(at, from, &after, (b, v)))
            }
            (Has::Yes(g), Has::Yes(v)) => {
                let ledger = self.m.ledgers(self.p.c).find(|l| l.0 == at)?.1;
                let gave = ledger.last(from, &[Deed::Arrive]);
                let wait = format!("{wait}, where {a} arrives ({})", self.m.line(g));
                match (self.visit(b, at), gave) {
                    (None, _) => Some(self.unseen(b, at, v, &wait)),
                    (Some(seen), Some(gave)) if gave.step > since && gave.phase >= seen.phase => {
                        Some(self.stale(b, seen, &wait, &name))
                    }
                    (Some(_), Some(gave)) if gave.step > since && from == self.a => {
                        Some(self.empty(&name, gave))
                    }
                    (Some(seen), gave) if seen.phase > 0 => {
                        Some(self.round(at, &name, (from, gave), (b, seen)))
                    }
                    (Some(seen), _) => Some(self.stale(b, seen, &wait, &name)),
                }
            }
            _ => None,
        }
    }

    /// The first thread has arrived since, the second has waited for that, and yet it knows nothing of the access.
    fn empty(&self, name: &str, gave: &Visit) -> Guess {
        let relaxed = match self.m.prog.code.get(gave.pc as usize).map(|d| &d.inst) {
            Some(Inst::Mbar(b)) => b.relaxed,
            _ => false,
        };
        let (a, line) = (self.m.who(self.a), self.m.line(gave.pc));
        let what = if relaxed {
            format!(
                "a release by {a} on {name}: its arrival at {line} is relaxed, so that it hands nothing over"
            )
        } else {
            format!(
                "bar.warp.sync (__syncwarp) in {a} between {} and {line}: the lane that arrives on {name} there does not \
                 speak for its neighbours",
                self.m.line(self.p.e.pc)
            )
        };
        (TOO_EARLY, what)
    }

    /// They meet there, but did not between the two accesses.
    fn round(
        &self,
        at: At,
        name: &str,
        (from, gave): (u32, Option<&Visit>),
        (w, seen): (u32, &Visit),
    ) -> Guess {
        let (a, b) = (self.m.who(from), self.m.who(w));
        let first = if from == self.b { self.place(self.b) } else { self.m.line(self.p.e.pc) };
        let score = if seen.news { EARLIER } else { ASIDE };
        if let At::Bar(_) = at {
            let (to, met) = (self.place(w), self.m.line(seen.pc));
            let text = format!(
                "a barrier (bar.sync) that {a} and {b} come to after {first} and before {to}; they last met at {name} ({met})"
            );
            return (score, text);
        }
        let gave = gave.map_or(format!("{a} has not arrived there"), |v| {
            format!("{a} last arrived there before that, in phase {} at {}", v.phase, self.m.line(v.pc))
        });
        let text = format!(
            "a hand-over on {name} after {first} and before {}: {gave}, and {b} last waited for phase {} at {}",
            self.place(w),
            seen.phase.saturating_sub(1),
            self.m.line(seen.pc)
        );
        (score, text)
    }

    /// `w` waits at a barrier on which the tables tell `from` to arrive; it does not.
    fn never_arrives(&self, at: At, from: u32, after: &str, (w, pc): (u32, u32)) -> Guess {
        let (name, like) = (self.name(at), self.sibling(at, from, Act::Gives));
        let pipe =
            self.p.e.kind == Kind::Pipe && from == self.a || self.p.kind == Kind::Pipe && from == self.b;
        let what = if pipe { "a tcgen05.commit to" } else { "an arrival on" };
        let text = format!(
            "{what} {name} by {} after {after}: {} waits there ({}), {} has never arrived there, and no instruction ahead of \
             it does{like}",
            self.m.who(from),
            self.m.who(w),
            self.m.line(pc),
            self.role(from)
        );
        (NOT_IN_CODE, text)
    }

    /// Or the first access should have waited for the second: it came a round too early.
    fn other_way(&self) -> Vec<Guess> {
        let mut out = vec![];
        for at in self.barriers() {
            let name = self.name(at);
            if !self.may(&name, self.b, false) || !self.may(&name, self.a, true) {
                continue;
            }
            let (gives, waits) = (self.has(self.b, at, Act::Gives), self.has(self.a, at, Act::Waits));
            let (a, b) = (self.m.who(self.a), self.m.who(self.b));
            let of = |phase: &str, g| {
                format!(
                    "a wait by {a} for {phase}{name} before {}, where {b} arrives ({})",
                    self.place(self.a),
                    self.m.line(g)
                )
            };
            match (gives, waits) {
                (Has::Yes(g), Has::No) if self.is_declared(&name, self.a, true) => {
                    out.push(self.never_waits(&of("", g), self.a, at));
                }
                (Has::No, Has::Yes(v)) if self.is_declared(&name, self.b, false) => {
                    out.push(self.never_arrives(at, self.b, &self.m.line(self.p.now.1), (self.a, v)));
                }
                (Has::Yes(g), Has::Yes(_)) => {
                    let before = |v: &&Visit| v.step < self.p.e.step;
                    let phase = |v: &Visit| format!("phase {} of ", v.phase);
                    match self.visit(self.a, at).filter(before) {
                        // To read what nobody has written yet makes no sense; to write it first does.
                        Some(v) if v.phase == 0 && self.p.wrote => {}
                        Some(v) if !v.news || v.phase == 0 => {
                            out.push(self.stale(self.a, v, &of(&phase(v), g), &name));
                        }
                        Some(v) if self.p.e.kind.ordinary() && matches!(at, At::Mbar(_)) => {
                            let ledger = self.m.ledgers(self.p.c).find(|l| l.0 == at);
                            let gave = ledger.and_then(|l| l.1.last(self.b, &[Deed::Arrive]));
                            out.push(self.round(at, &name, (self.b, gave), (self.a, v)));
                        }
                        Some(_) => {}
                        None => {
                            let beside = self.beside(self.a, at).filter(|(_, v)| v.step < self.p.e.step);
                            if let Some((x, v)) = beside.filter(|_| self.same_stage(at)) {
                                let text = format!(
                                    "{}; what it waited for, at {}, is {}",
                                    of("", g),
                                    self.m.line(v.pc),
                                    self.name(x)
                                );
                                out.push((ASIDE, text));
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        out
    }

    /// The same thread issues twice onto the same memory: in between it must wait for those who use what it brought.
    fn round_trip(&self) -> Vec<Guess> {
        let mut out: Vec<(String, Guess)> = vec![];
        for at in self.barriers().filter(|at| self.signals.iter().all(|s| s.at != *at)) {
            let (name, w) = (self.name(at), self.b);
            let gives = |k: &u32| {
                *k != w && self.may(&name, *k, false) && matches!(self.has(*k, at, Act::Gives), Has::Yes(_))
            };
            let givers: Vec<u32> = (0..self.p.c.warps.len() as u32).filter(gives).collect();
            if !matches!(at, At::Mbar(_)) || givers.is_empty() || !self.may(&name, w, true) {
                continue;
            }
            let wait = format!(
                "a wait by {} for {name} before {}, where {} arrives",
                self.m.who(w),
                self.place(w),
                self.m.who_all(&givers)
            );
            match (self.has(w, at, Act::Waits), self.visit(w, at)) {
                (Has::No, _) if self.is_declared(&name, w, true) => {
                    out.push((name, self.never_waits(&wait, w, at)))
                }
                (Has::Yes(_), None) if self.same_stage(at) => {
                    out.push((name, (NOT_YET, format!("{wait}; it has not waited there so far"))));
                }
                (Has::Yes(_), Some(v)) if self.same_stage(at) => {
                    let guess = self.stale(w, v, &wait, &name);
                    out.push((name, guess));
                }
                _ => {}
            }
        }
        // The barrier that frees a slot is mostly called like the one that fills it.
        let full = self.signals.first().map_or(String::new(), |s| self.name(s.at));
        let like = |name: &str| full.bytes().zip(name.bytes()).take_while(|(x, y)| x == y).count();
        let most = out.iter().map(|(name, _)| like(name)).max();
        out.into_iter().filter(|(name, _)| Some(like(name)) == most).map(|(_, guess)| guess).collect()
    }

    /// Tensor memory is given back while somebody may still use it.
    fn before_dealloc(&self) -> String {
        format!(
            "a hand-over from all who use the tensor memory (bar.sync) between its last use, by {} at {}, and \
             tcgen05.dealloc by {} at {}",
            self.m.who(self.a),
            self.m.line(self.p.e.pc),
            self.m.who(self.b),
            self.place(self.b)
        )
    }

    /// Whether the copy that is the first access completes on the same stage (`[2]`) as a barrier has.
    fn same_stage(&self, at: At) -> bool {
        let stage = |at: At| {
            let name = self.name(at);
            name.find('[').map(|i| name[i..].to_string())
        };
        self.signals.first().is_some_and(|s| s.pc.is_none() && stage(s.at) == stage(at))
    }
}
