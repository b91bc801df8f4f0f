//! The report of a deadlock: who waits for what, who could still bring it and where that one stands, and the arrival that
//! is missing for good, as far as the program's text says so.

use super::super::cluster::{Ctas, home};
use super::super::cta::{Cta, MbarSlot, Split, State};
use super::super::ledger::{Deed, Ledger, Visit};
use super::super::run::{Machine, Stop};
use super::{Act, At, Has, MOST_NAMED, Survey, array};
use crate::fault::{Code, Fault};

/// Something that looks like the cause; a higher score is better evidence.
struct Suspect {
    score: u8,
    text: String,
    /// The arrival does not merely come late.
    altogether: bool,
}

impl Suspect {
    fn new(score: u8, text: String) -> Suspect {
        Suspect { score, text, altogether: score >= PAST }
    }
}

/// The program has no instruction that could bring what is waited for.
const NOT_IN_CODE: u8 = 6;
/// Everybody has come, and yet it is not enough.
const NOT_ENOUGH: u8 = 5;
/// Who should bring it is past that.
const PAST: u8 = 4;
/// Who should bring it would have to leave the loop in which it waits, or has brought other stages only.
const ASIDE: u8 = 3;
/// Others have arrived in this phase.
const PARTLY: u8 = 2;
/// Nobody has.
const NONE_YET: u8 = 1;

impl Machine<'_> {
    /// Lists every blocked party.
    pub(in super::super) fn deadlock(&self, live: &[Ctas]) -> Stop {
        let mut f = Fault::new(Code::Deadlock, "every warp waits and nothing is in flight");
        let mut groups: Vec<(Vec<[u32; 3]>, Vec<String>)> = vec![];
        let mut suspects: Vec<Suspect> = vec![];
        for c in live.iter().flatten().flatten().filter(|c| !c.done()) {
            let survey = Survey::new(self, c, None);
            let lines = self.blocked(live, c, &survey);
            match groups.iter_mut().find(|g| g.1 == lines) {
                Some(g) => g.0.push(c.id),
                None => {
                    groups.push((vec![c.id], lines));
                    let circle = self.circle(c, &survey);
                    suspects.extend(self.suspects(c, &survey, &circle));
                    f.notes.extend(self.circle_note(c, &circle));
                }
            }
        }
        f.notes.dedup();
        let circles = std::mem::take(&mut f.notes);
        for (ctas, lines) in groups {
            let ids: Vec<String> =
                ctas.iter().take(MOST_NAMED).map(|[x, y, z]| format!("({x}, {y}, {z})")).collect();
            let more = if ctas.len() > MOST_NAMED {
                format!(" and {} more", ctas.len() - MOST_NAMED)
            } else {
                String::new()
            };
            let of = if ctas.len() == 1 { "CTA" } else { "CTAs" };
            f.notes.extend(lines.into_iter().map(|l| format!("{of} {}{more}: {l}", ids.join(", "))));
        }
        let best = suspects.iter().map(|s| s.score).max();
        // A circle closed by an arrival that has no statement is no circle to be opened by moving one.
        let altogether = suspects.iter().any(|s| Some(s.score) == best && s.altogether);
        f.notes.extend(circles.into_iter().take(usize::from(!altogether)));
        let mut best: Vec<String> =
            suspects.into_iter().filter(|s| Some(s.score) == best).map(|s| s.text).collect();
        best.dedup();
        best.truncate(MOST_NAMED);
        if !best.is_empty() {
            f.missing = Some(best.join("; or "));
        }
        Stop::Fault(Box::new(f))
    }

    /// One line for each role and state.
    fn blocked(&self, live: &[Ctas], c: &Cta, survey: &Survey) -> Vec<String> {
        let mut groups: Vec<(Vec<u32>, String)> = vec![];
        for (w, warp) in c.warps.iter().enumerate() {
            let met = |s: &Split| matches!(s.state, State::Reconverge | State::Sync(_));
            let alone = warp.splits.iter().all(met);
            // Lanes that wait for lanes of their own warp are not the matter where those wait for others.
            for s in warp.splits.iter().filter(|s| alone || !met(s)) {
                let lanes = match s.mask {
                    m if m == warp.live && (m == warp.lanes || !m.is_power_of_two()) => String::new(),
                    m if m.is_power_of_two() => format!(" lane {}", m.trailing_zeros()),
                    m => format!(" lanes {m:#010x}"),
                };
                let text = format!("{lanes} {}", self.waits(live, c, survey, w as u32, s));
                match groups.iter_mut().find(|g| g.1 == text) {
                    Some(g) => g.0.push(w as u32),
                    None => groups.push((vec![w as u32], text)),
                }
            }
        }
        let waits = |n: usize| if n == 1 { "waits" } else { "wait" };
        let one = |(warps, text): &(Vec<u32>, String)| {
            format!("{}{}", self.who_all(warps), text.replacen("waits", waits(warps.len()), 1))
        };
        groups.iter().map(one).collect()
    }

    fn waits(&self, live: &[Ctas], c: &Cta, survey: &Survey, w: u32, s: &Split) -> String {
        let line = self.line(s.pc);
        match s.state {
            State::Mbar(a) => {
                let name = self.barrier_name(c, a);
                let Some(m) = c.mbars.get(&a) else {
                    return format!("waits at {line} for {name}, which is no live barrier");
                };
                format!(
                    "waits at {line} for {name}, {}{}{}",
                    progress(m),
                    self.bringers(c, survey, At::Mbar(a)),
                    overtaken(m, w)
                )
            }
            State::Bar(id) => {
                let b = c.bars[id as usize & 15];
                let who = self.bringers(c, survey, At::Bar(id));
                format!(
                    "waits at {line} at named barrier {id}, where {} of {} threads have arrived{who}",
                    b.arrived, b.count
                )
            }
            State::Sync(m) => format!("waits at {line} at `{}` for lanes {m:#010x}", self.opcode(s.pc)),
            State::Group | State::CpGroup => format!("waits at {line} for a copy group"),
            State::Wgmma => format!("waits at {line} for a wgmma group"),
            State::Alloc if c.pair_wants.is_some() => format!(
                "waits at {line} for free tensor memory in both CTAs of its pair, and for the other to allocate too"
            ),
            State::Alloc => format!("waits at {line} for free tensor memory"),
            State::Cluster => {
                let (here, all) = self.cluster_count(live, c);
                format!(
                    "waits at {line} at the cluster barrier: {here} of {all} threads of the cluster arrived"
                )
            }
            State::Reconverge => format!("waits at {line} for its warp's other lanes"),
            State::Ready => format!("is ready at {line}"),
        }
    }

    /// Who has arrived in the phase under way, and who could still: where those stand.
    fn bringers(&self, c: &Cta, survey: &Survey, at: At) -> String {
        let (come, to_come) = self.come(c, survey, at);
        let mut text = String::new();
        // Who has come to a named barrier mostly waits there, too, and is listed.
        let come = if let At::Mbar(_) = at { by_line(&come) } else { vec![] };
        for (i, (warps, v)) in come.into_iter().take(MOST_NAMED).enumerate() {
            let lead = if i == 0 { "; arrived: " } else { ", " };
            text += &format!("{lead}{} at {}", self.who_all(&warps), self.line(v.pc));
        }
        if let At::Bar(_) = at {
            let all = self.who_all(&to_come);
            return if all.is_empty() { all } else { format!("; yet to arrive: {all}") };
        }
        let mut groups: Vec<(Vec<u32>, String)> = vec![];
        for w in to_come {
            let state = self.outlook(c, survey, at, w);
            match groups.iter_mut().find(|g| g.1 == state && self.role_of(g.0[0]) == self.role_of(w)) {
                Some(g) => g.0.push(w),
                None => groups.push((vec![w], state)),
            }
        }
        for (i, (warps, state)) in groups.iter().take(MOST_NAMED).enumerate() {
            let lead = if i == 0 { "; yet to arrive: " } else { ", " };
            text += &format!("{lead}{}, which {state}", self.who_all(warps));
        }
        match (text.is_empty(), self.cluster_size()) {
            (false, _) => text,
            (true, 1) => "; nobody has arrived, and nothing in the program would".into(),
            (true, _) => "; nobody has arrived".into(),
        }
    }

    /// Those who have arrived in the phase under way, and the warps of this CTA that could and have not.
    fn come(&self, c: &Cta, survey: &Survey, at: At) -> (Vec<Visit>, Vec<u32>) {
        let Some((ledger, phase)) = book(c, at) else { return (vec![], vec![]) };
        let visits = ledger.visits().iter();
        let come: Vec<Visit> =
            visits.filter(|v| v.deed == Deed::Arrive && v.phase == phase).copied().collect();
        let declared = self.declared(&self.at_name(c, at), false);
        let may = |w: u32| declared.is_empty() || self.role_of(w).is_some_and(|r| declared.contains(&r));
        let could = |w: &u32| {
            may(*w)
                && !come.iter().any(|v| v.warp == *w)
                && matches!(survey.has(self, c, *w, at, Act::Gives), Has::Yes(_))
        };
        (come.clone(), (0..c.warps.len() as u32).filter(could).collect())
    }

    /// Where a warp that could arrive would, and where it stands.
    fn outlook(&self, c: &Cta, survey: &Survey, at: At, w: u32) -> String {
        let stands = self.stands(c, w);
        match survey.ahead(self, c, w, at, Act::Gives) {
            _ if c.warps[w as usize].live == 0 => stands,
            Has::Yes(pc) => format!("would at {}, but {stands}", self.line(pc)),
            Has::No => format!("has no arrival there ahead of it any more, and {stands}"),
            Has::Maybe => stands,
        }
    }

    /// `waits for S_full[0] at FILE:LINE`.
    fn stands(&self, c: &Cta, w: u32) -> String {
        let warp = &c.warps[w as usize];
        let met = |s: &&Split| !matches!(s.state, State::Reconverge | State::Sync(_));
        match warp.splits.iter().find(met).or(warp.splits.first()) {
            _ if warp.live == 0 => "has ended".into(),
            None => "has ended".into(),
            Some(s) => match s.state {
                State::Mbar(a) => format!("waits for {} at {}", self.barrier_name(c, a), self.line(s.pc)),
                State::Bar(id) => format!("waits at named barrier {id} at {}", self.line(s.pc)),
                _ => format!("stands at {} (`{}`)", self.line(s.pc), self.opcode(s.pc)),
            },
        }
    }

    /// What looks like the cause: where warps wait in a circle, a link of it.
    fn suspects(&self, c: &Cta, survey: &Survey, circle: &[(u32, At)]) -> Vec<Suspect> {
        let mut ats: Vec<At> = circle.iter().map(|x| x.1).collect();
        if ats.is_empty() {
            ats = c.warps.iter().flat_map(|w| &w.splits).filter_map(waits_at).collect();
            ats.sort_unstable();
            ats.dedup();
        }
        ats.into_iter().flat_map(|at| self.suspect(c, survey, at)).collect()
    }

    fn suspect(&self, c: &Cta, survey: &Survey, at: At) -> Vec<Suspect> {
        let Some((ledger, phase)) = book(c, at) else { return vec![] };
        let name = self.at_name(c, at);
        let one = |score, text| vec![Suspect::new(score, text)];
        let slot = match at {
            At::Mbar(a) => c.mbars.get(&a),
            At::Bar(_) => None,
        };
        if let Some(m) = slot.filter(|m| m.bar.pending() == 0 && m.bar.tx() != 0) {
            return one(NOT_ENOUGH, self.bytes(m, &name, phase));
        }
        if let Some((w, seen)) = slot.and_then(|m| missed(c, m, at)) {
            let text = format!(
                "something that makes those who arrive on {name} wait for {}: it has seen phase {seen} begin, and is to wait \
                 for its end, but {} phases have ended since",
                self.who(w),
                phase - seen
            );
            return one(NOT_ENOUGH, text);
        }
        let (come, to_come) = self.come(c, survey, at);
        let declared = self.declared(&name, false);
        let kind = match self.arrival_kind(c, survey, at) {
            Some(kind) => format!(" ({kind})"),
            None => String::new(),
        };
        // Declared to arrive, and no instruction of theirs does.
        let mut out = vec![];
        // Arrivals from other CTAs of a cluster are not in the text of this one's warps.
        for role in declared.iter().filter(|_| self.cluster_size() == 1) {
            let Some(r) = self.launch.annotations.roles.iter().find(|r| r.name == *role) else { continue };
            let mut warps = r.first_warp..r.first_warp + r.warps;
            if warps.clone().all(|w| survey.has(self, c, w, at, Act::Gives) == Has::No)
                && let Some(w) = warps.next().filter(|w| (*w as usize) < c.warps.len())
            {
                let hint = self.sibling(c, survey, at, w, Act::Gives).or_else(|| self.last_given(c, w));
                let text = format!(
                    "an arrival on {name} by {role}{kind}: it has never arrived there, and no instruction ahead of it does{}; it {}",
                    hint.map_or(String::new(), |h| format!("; {h}")),
                    self.stands(c, w)
                );
                out.push(Suspect::new(NOT_IN_CODE, text));
            }
        }
        if !out.is_empty() {
            return out;
        }
        let unknown = (0..c.warps.len() as u32).any(|w| survey.has(self, c, w, at, Act::Gives) == Has::Maybe);
        if to_come.is_empty() && !unknown && self.cluster_size() == 1 {
            let all: u64 = come.iter().map(|v| v.amount).sum();
            let (need, init) = match (slot, at) {
                (Some(m), _) => {
                    (all + u64::from(m.bar.pending()), format!("mbarrier.init at {}", self.line(m.init_pc)))
                }
                (None, At::Bar(id)) => (u64::from(c.bars[id as usize & 15].count), "the thread count".into()),
                (None, At::Mbar(_)) => return vec![],
            };
            if come.is_empty() {
                return one(
                    NOT_IN_CODE,
                    format!("an arrival on {name}{kind}: no instruction of the program arrives there"),
                );
            }
            let who: Vec<String> = by_line(&come)
                .into_iter()
                .map(|(warps, v)| {
                    let n: u64 = come
                        .iter()
                        .filter(|x| x.pc == v.pc && warps.contains(&x.warp))
                        .map(|x| x.amount)
                        .sum();
                    format!("{} {n} at {}", self.who_all(&warps), self.line(v.pc))
                })
                .collect();
            return one(
                NOT_ENOUGH,
                format!(
                    "{} more arrivals on {name} in phase {phase}: everybody who arrives there has ({}), but it was \
                     told to expect {need} ({init})",
                    need - all.min(need),
                    who.join(", ")
                ),
            );
        }
        let Some(&w) = to_come.first() else { return vec![] };
        let past = self.cluster_size() == 1
            && to_come.iter().all(|w| survey.ahead(self, c, *w, at, Act::Gives) == Has::No);
        let arrived = ledger.last(w, &[Deed::Arrive]).is_some();
        let sibling = self.sibling(c, survey, at, w, Act::Gives);
        let hint = sibling.or_else(|| self.kept(c, at, w));
        let score = match at {
            _ if past || hint.is_some() => PAST,
            At::Bar(_) => NONE_YET,
            At::Mbar(_) if self.out_of_loop(c, survey, at, w) => ASIDE,
            At::Mbar(_) if !arrived && self.arrived_beside(c, at, w) => ASIDE,
            At::Mbar(_) if !come.is_empty() => PARTLY,
            At::Mbar(_) => NONE_YET,
        };
        let ahead = if past { ", none is ahead of it any more," } else { "," };
        let before = ledger.last(w, &[Deed::Arrive]).map_or("it has never arrived there".to_string(), |v| {
            format!("it last arrived there in phase {}, at {}", v.phase, self.line(v.pc))
        });
        let text = format!(
            "an arrival on {name} in phase {phase} by {}{kind}{}; {before}{ahead} and it {}",
            self.who_all(&to_come),
            hint.map_or(String::new(), |h| format!(": {h}")),
            self.stands(c, w)
        );
        one(score, text)
    }

    /// Whether a warp waits in a loop and arrives at a barrier only behind it.
    fn out_of_loop(&self, c: &Cta, survey: &Survey, at: At, w: u32) -> bool {
        let Some(s) = c.warps[w as usize].splits.iter().find(|s| waits_at(s).is_some()) else { return false };
        let Has::Yes(gives) = survey.ahead(self, c, w, at, Act::Gives) else { return false };
        self.reaches(s.pc, s.pc) && !self.reaches(gives, s.pc)
    }

    /// Whether a warp has arrived at another stage of a barrier's array.
    fn arrived_beside(&self, c: &Cta, at: At, w: u32) -> bool {
        let name = self.at_name(c, at);
        let beside = |x: At| x != at && array(&self.at_name(c, x)) == array(&name);
        self.ledgers(c).any(|(x, l)| beside(x) && l.last(w, &[Deed::Arrive]).is_some())
    }

    /// Bytes announced and bytes delivered do not match.
    fn bytes(&self, m: &MbarSlot, name: &str, phase: u64) -> String {
        let of = |deed| {
            let all: Vec<Visit> =
                m.ledger.visits().iter().filter(|v| v.deed == deed && v.phase == phase).copied().collect();
            let mut lines: Vec<String> = all.iter().map(|v| self.line(v.pc)).collect();
            lines.dedup();
            lines.truncate(MOST_NAMED);
            let at = if lines.is_empty() { String::new() } else { format!(" ({})", lines.join(", ")) };
            (all.iter().map(|v| v.amount).sum::<u64>(), at)
        };
        let ((told, at), (came, by)) = (of(Deed::Expect), of(Deed::Bytes));
        format!(
            "bytes that match in phase {phase} of {name}: expect_tx announced {told}{at}, copies delivered {came}{by}"
        )
    }

    /// Roles that the tables declare to arrive on (wait for) the barrier of a name.
    pub(in super::super) fn declared(&self, name: &str, waits: bool) -> Vec<String> {
        let all = &self.launch.annotations.barriers;
        let b = all.iter().find(|b| b.name == name).or_else(|| all.iter().find(|b| b.name == array(name)));
        b.map_or(vec![], |b| if waits { b.waiters.clone() } else { b.arrivers.clone() })
    }

    /// Warps that wait for each other, each for an arrival by the next.
    fn circle(&self, c: &Cta, survey: &Survey) -> Vec<(u32, At)> {
        let waits = |w: u32| c.warps[w as usize].splits.iter().find_map(waits_at);
        for first in 0..c.warps.len() as u32 {
            let (mut path, mut w): (Vec<(u32, At)>, u32) = (vec![], first);
            while let Some(at) = waits(w) {
                if let Some(i) = path.iter().position(|x| x.0 == w) {
                    if path.len() - i > 1 {
                        return path.split_off(i);
                    }
                    break;
                }
                path.push((w, at));
                let Some(&next) = self.come(c, survey, at).1.first() else { break };
                w = next;
            }
        }
        vec![]
    }

    fn circle_note(&self, c: &Cta, ring: &[(u32, At)]) -> Option<String> {
        let one = |&(w, at): &(u32, At)| format!("{} for {}", self.who(w), self.at_name(c, at));
        let text: Vec<String> = ring.iter().map(one).collect();
        let fresh = ring.iter().all(|&(_, at)| book(c, at).is_some_and(|(_, phase)| phase == 0));
        let hint = if fresh {
            "; none of these has completed a phase yet: a wait that should fall through at first needs parity 1"
        } else {
            ""
        };
        (!ring.is_empty()).then(|| format!("in a circle wait {}{hint}", text.join(", ")))
    }
}

/// The barrier that a group of lanes waits at.
pub(super) fn waits_at(s: &Split) -> Option<At> {
    match s.state {
        State::Mbar(a) => Some(At::Mbar(a)),
        State::Bar(id) => Some(At::Bar(id)),
        _ => None,
    }
}

/// The ledger of a barrier and the number of the phase under way.
fn book(c: &Cta, at: At) -> Option<(&Ledger, u64)> {
    match at {
        At::Mbar(a) => c.mbars.get(&a).map(|m| (&m.ledger, m.bar.phase())),
        At::Bar(id) => c.bar_ledgers.get(id as usize).map(|l| (l, l.phase)),
    }
}

/// Visits with the same line together: their warps, and one of them.
fn by_line(visits: &[Visit]) -> Vec<(Vec<u32>, Visit)> {
    let mut out: Vec<(Vec<u32>, Visit)> = vec![];
    for v in visits {
        match out.iter_mut().find(|g| g.1.pc == v.pc) {
            Some(g) => g.0.push(v.warp),
            None => out.push((vec![v.warp], *v)),
        }
    }
    out
}

/// How far the phase under way is.
fn progress(m: &MbarSlot) -> String {
    let b = m.bar.state();
    let come: u64 = {
        let mine = |v: &&Visit| v.deed == Deed::Arrive && v.phase == b.phase;
        m.ledger.visits().iter().filter(mine).map(|v| v.amount).sum()
    };
    let mut text = match b.pending {
        0 => format!("phase {}: all {come} arrivals have come", b.phase),
        n => format!("phase {}: {come} of {} arrivals have come", b.phase, come + u64::from(n)),
    };
    match b.tx {
        0 => {}
        n if n > 0 => text += &format!(", {n} of the bytes announced have not"),
        n => text += &format!(", and {} bytes more than announced", -i64::from(n)),
    }
    text
}

/// A warp that waits at the barrier and may have been overtaken, and the phase that it saw begin.
fn missed(c: &Cta, m: &MbarSlot, at: At) -> Option<(u32, u64)> {
    let waits = |w: &usize| c.warps[*w].splits.iter().any(|s| waits_at(s) == Some(at));
    let seen = |w: usize| m.seen.get(&(w as u32)).copied().unwrap_or(0);
    let w = (0..c.warps.len()).filter(waits).find(|&w| m.bar.phase() >= seen(w) + 2)?;
    Some((w as u32, seen(w)))
}

/// Remark on a waiter that may have been overtaken: it saw a phase end, and two more have ended since.
fn overtaken(m: &MbarSlot, warp: u32) -> String {
    let (now, seen) = (m.bar.phase(), m.seen.get(&warp).copied().unwrap_or(0));
    if now < seen + 2 {
        return String::new();
    }
    format!(
        "; {} last saw phase {seen} begin, so if it waits for that one, its parity came round again: nobody made the others wait for it",
        if home(warp).0.is_some() { "the warp" } else { "this warp" }
    )
}
