//! Where the statement that is missing would stand: beside the one of another stage of the same barrier array, behind the
//! wait whose slot it should give back, or behind what its warp last handed over.

use super::super::cta::Cta;
use super::super::inst::{Inst, MbarOp};
use super::super::ledger::Deed;
use super::super::run::Machine;
use super::{Act, At, MOST_NAMED, Survey, array};

/// Names of barriers that say that a slot is free, and that it is filled.
const PAIRED: (&str, &str) = ("empty", "full");

impl Machine<'_> {
    /// The same statement at another stage (`the same arrival on P_full[0] is at FILE:LINE`), where every line at which
    /// warps of `w`'s role do this at `at` has its like at another stage, and another stage has more of them.
    pub(in super::super) fn sibling(
        &self,
        c: &Cta,
        survey: &Survey,
        at: At,
        w: u32,
        act: Act,
    ) -> Option<String> {
        let name = self.at_name(c, at);
        if array(&name) == name {
            return None;
        }
        let (mut own, mut beside): (Vec<String>, Vec<(At, String)>) = (vec![], vec![]);
        for (x, pc, warp) in survey.all(self, c, act) {
            if !self.same_part(w, warp)
                || !self.is_statement(pc)
                || array(&self.at_name(c, x)) != array(&name)
            {
                continue;
            }
            let line = self.line(pc);
            if x == at || survey.in_turn(self, pc) {
                own.push(line);
            } else if beside.iter().all(|b| b.1 != line) {
                beside.push((x, line));
            }
        }
        if own.iter().any(|line| beside.iter().all(|b| b.1 != *line)) {
            return None;
        }
        beside.retain(|b| !own.contains(&b.1));
        let first = beside.first()?.0;
        let mut lines: Vec<String> = beside.into_iter().filter(|b| b.0 == first).map(|b| b.1).collect();
        lines.truncate(MOST_NAMED);
        let what = if act == Act::Waits { "wait for" } else { "arrival on" };
        Some(format!("the same {what} {} is at {}", self.at_name(c, first), lines.join(" and ")))
    }

    /// Whether two warps have the same part: one role, or roles that differ in a number (`softmax0`, `softmax1`).
    fn same_part(&self, a: u32, b: u32) -> bool {
        let part = |w| self.role_of(w).map(|r| r.trim_end_matches(|x: char| x.is_ascii_digit()).to_string());
        a == b || part(a).is_some_and(|r| Some(r) == part(b))
    }

    /// An arrival, a commit or a wait; not a copy, whose arrival is announced elsewhere.
    fn is_statement(&self, pc: u32) -> bool {
        let inst = self.prog.code.get(pc as usize).map(|d| &d.inst);
        matches!(inst, Some(Inst::Mbar(_) | Inst::TcCommit(..) | Inst::CpAsyncMbar(..)))
    }

    /// The instruction that arrives on `at`, or else on other stages of its array: `tcgen05.commit`.
    pub(super) fn arrival_kind(&self, c: &Cta, survey: &Survey, at: At) -> Option<&'static str> {
        let name = self.at_name(c, at);
        let mut all = survey.all(self, c, Act::Gives);
        all.retain(|(x, pc, _)| *x == at || survey.in_turn(self, *pc) || array(&name) != name);
        all.retain(|(x, ..)| *x == at || array(&self.at_name(c, *x)) == array(&name));
        // Its own first.
        all.sort_by_key(|(x, ..)| *x != at);
        let kind = all.into_iter().find_map(|(_, pc, _)| match &self.prog.code.get(pc as usize)?.inst {
            Inst::TcCommit(..) => Some("tcgen05.commit"),
            Inst::CpAsyncMbar(..) => Some("cp.async.mbarrier.arrive"),
            Inst::Mbar(b) => match b.op {
                MbarOp::Arrive | MbarOp::ArriveNoComplete => Some("mbarrier.arrive"),
                MbarOp::ArriveExpectTx => Some("mbarrier.arrive.expect_tx"),
                _ => None,
            },
            _ => None,
        });
        // Nobody arrives anywhere: a count of all threads of the roles that the tables declare speaks of each of them.
        kind.or_else(|| {
            let At::Mbar(a) = at else { return None };
            let (arrivers, roles) = (self.declared(&name, false), &self.launch.annotations.roles);
            let threads: u32 =
                roles.iter().filter(|r| arrivers.contains(&r.name)).map(|r| r.warps * 32).sum();
            let whole = threads > 0 && c.mbars.get(&a)?.bar.pending() == threads;
            whole.then_some("mbarrier.arrive by each of its threads")
        })
    }

    /// The slot that warp `w` took and has not given back on `at`, though it waits for the next filling of the same slot:
    /// the arrival is then missing altogether. The names tell slots: `KV_empty[0]` gives back what `KV_full[0]` brought.
    pub(super) fn kept(&self, c: &Cta, at: At, w: u32) -> Option<String> {
        let name = self.at_name(c, at);
        let partner = name.contains(PAIRED.0).then(|| name.replacen(PAIRED.0, PAIRED.1, 1))?;
        let (full, ledger) = self.ledgers(c).find(|(x, _)| self.at_name(c, *x) == partner)?;
        let took = ledger.last(w, &[Deed::Wait])?;
        let gave = self.ledgers(c).find(|(x, _)| *x == at).and_then(|(_, l)| l.last(w, &[Deed::Arrive]));
        let again = c.warps[w as usize].splits.iter().any(|s| super::deadlock::waits_at(s) == Some(full));
        if !again || gave.is_some_and(|v| v.step > took.step) {
            return None;
        }
        let phase = took.phase.checked_sub(1)?;
        Some(format!(
            "it has given nothing back there since its wait at {} for phase {phase} of {partner}, and asks for the next",
            self.line(took.pc)
        ))
    }

    /// Where a warp last handed over: what never came should have come after that, or in its place.
    pub(super) fn last_given(&self, c: &Cta, w: u32) -> Option<String> {
        let (at, pc) = self.hb_last_given(c, w)?;
        Some(format!("it last arrived on {} at {}", self.at_name(c, at), self.line(pc)))
    }
}
