//! What stands in a warp's code ahead of where it is, and whether it has anything to do with a barrier at all.
//!
//! The instructions that control may still reach are visited in the order of a depth-first walk; arithmetic is done on a
//! copy of the warp's registers, so that the addresses of barriers come out as the warp would compute them in its next
//! round. A register that comes from memory is undefined in the copy, and an address made of it is unknown. An address
//! made of a register that the program writes in several places changes from round to round: it stands for every stage
//! of the barrier's array.

use super::super::cta::{Cta, Warp};
use super::super::exec::mark_undefined;
use super::super::exec_mem::address;
use super::super::inst::{Addr, BarOp, Bulk, Inst, LaunchControl, MbarOp, Place, Reg};
use super::super::ledger::{Deed, Ledger};
use super::super::run::Machine;
use super::array;
use crate::isa::regs::Class;
use std::collections::{HashMap, HashSet};

/// Where threads meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) enum At {
    /// The mbarrier at this address.
    Mbar(u32),
    /// A named barrier.
    Bar(u32),
}

/// What an instruction does at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Act {
    /// Arrives, or issues what will.
    Gives,
    /// Waits.
    Waits,
    /// Initialises it.
    Inits,
}

/// An instruction ahead that has to do with a barrier; where is `None` if that is not known before it runs.
type Step = (u32, Act, Option<At>);

/// Whether a warp's code has an instruction of some kind at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Has {
    /// Here.
    Yes(u32),
    /// There is one whose barrier is not known.
    Maybe,
    /// Nowhere.
    No,
}

/// What each warp of a CTA has ahead.
pub(in super::super) struct Survey {
    steps: Vec<Vec<Step>>,
    /// Registers that change from round to round.
    varies: HashSet<Reg>,
}

impl Survey {
    /// Of all warps; warp `at.0` stands at `at.1`, whatever its groups of lanes say.
    pub fn new(m: &Machine<'_>, c: &Cta, at: Option<(usize, u32)>) -> Survey {
        let of = |w: usize| {
            let from: Vec<(u32, u32)> = match at {
                Some((x, pc)) if x == w => vec![(pc, c.warps[w].live)],
                _ => c.warps[w].splits.iter().map(|s| (s.pc, s.mask)).collect(),
            };
            from.into_iter().flat_map(|(pc, lanes)| walk(m, c, w, pc, lanes)).collect()
        };
        Survey { steps: (0..c.warps.len()).map(of).collect(), varies: varying(m) }
    }

    /// Whether warp `w` has, or had, an instruction that does this at `at`.
    pub fn has(&self, m: &Machine<'_>, c: &Cta, w: u32, at: At, act: Act) -> Has {
        let deeds: &[Deed] = match act {
            Act::Waits => &[Deed::Wait],
            Act::Gives => &[Deed::Arrive, Deed::Bytes, Deed::Expect],
            Act::Inits => &[],
        };
        for (x, ledger) in m.ledgers(c) {
            let mut visits = ledger.visits().iter().filter(|v| v.warp == w && deeds.contains(&v.deed));
            if let Some(v) = visits.find(|v| self.is_at(m, c, v.pc, x, at)) {
                return Has::Yes(v.pc);
            }
        }
        self.ahead(m, c, w, at, act)
    }

    /// The same of what is ahead of it only.
    pub fn ahead(&self, m: &Machine<'_>, c: &Cta, w: u32, at: At, act: Act) -> Has {
        let Some(steps) = self.steps.get(w as usize) else { return Has::Maybe };
        let mut kind = steps.iter().filter(|s| s.1 == act);
        if let Some(s) = kind.clone().find(|s| s.2.is_some_and(|x| self.is_at(m, c, s.0, x, at))) {
            return Has::Yes(s.0);
        }
        // Of a ring without a name one stage cannot be told from another barrier.
        let named = !m.at_name(c, at).starts_with("mbarrier at");
        let like = |x: At| matches!((x, at), (At::Mbar(_), At::Mbar(_)));
        if kind.any(|s| s.2.is_none_or(|x| !named && like(x) && self.in_turn(m, s.0))) {
            Has::Maybe
        } else {
            Has::No
        }
    }

    /// Everything that does this, done or ahead: barrier, instruction and warp.
    pub(super) fn all(&self, m: &Machine<'_>, c: &Cta, act: Act) -> Vec<(At, u32, u32)> {
        let deed = if act == Act::Waits { Deed::Wait } else { Deed::Arrive };
        let mut all: Vec<(At, u32, u32)> = vec![];
        for (at, ledger) in m.ledgers(c) {
            let visits = ledger.visits().iter().filter(|v| v.deed == deed);
            all.extend(visits.map(|v| (at, v.pc, v.warp)));
        }
        for (w, steps) in self.steps.iter().enumerate() {
            let like = steps.iter().filter(|s| s.1 == act);
            all.extend(like.filter_map(|s| Some((s.2?, s.0, w as u32))));
        }
        all
    }

    /// Whether the instruction at `pc`, which is or would be at `x`, may be at `at` in some round.
    fn is_at(&self, m: &Machine<'_>, c: &Cta, pc: u32, x: At, at: At) -> bool {
        x == at || self.in_turn(m, pc) && array(&m.at_name(c, x)) == array(&m.at_name(c, at))
    }

    /// Whether the barrier of the instruction at `pc` changes from round to round.
    pub(super) fn in_turn(&self, m: &Machine<'_>, pc: u32) -> bool {
        let reg = match m.prog.code.get(pc as usize).and_then(|d| barrier_of(&d.inst)) {
            Some((Where::Mbar(Addr::R32(r, _)), _)) | Some((Where::Bar(r), _)) => (Class::R32, r),
            Some((Where::Mbar(Addr::R64(r, _)), _)) => (Class::R64, r),
            _ => return false,
        };
        self.varies.contains(&reg)
    }

    /// Where a barrier has yet to be initialised.
    pub fn init_ahead(&self, m: &Machine<'_>, c: &Cta, at: At) -> Option<u32> {
        (0..self.steps.len() as u32).find_map(|w| match self.ahead(m, c, w, at, Act::Inits) {
            Has::Yes(pc) => Some(pc),
            _ => None,
        })
    }
}

impl Machine<'_> {
    /// The books of all barriers of a CTA.
    pub(in super::super) fn ledgers<'c>(&self, c: &'c Cta) -> impl Iterator<Item = (At, &'c Ledger)> {
        let named = c.bar_ledgers.iter().enumerate().filter(|(_, l)| !l.visits().is_empty());
        let mbars = c.mbars.iter().map(|(&a, m)| (At::Mbar(a), &m.ledger));
        mbars.chain(named.map(|(i, l)| (At::Bar(i as u32), l)))
    }

    /// Whether control can get from one instruction to another, by one step at least.
    pub(in super::super) fn reaches(&self, from: u32, to: u32) -> bool {
        let mut seen = vec![false; self.prog.code.len()];
        let mut todo = self.next(from);
        while let Some(pc) = todo.pop() {
            if pc == to {
                return true;
            }
            if seen.get(pc as usize) == Some(&false) {
                seen[pc as usize] = true;
                todo.extend(self.next(pc));
            }
        }
        false
    }

    /// Where control goes from an instruction; the last is what follows in the text.
    fn next(&self, pc: u32) -> Vec<u32> {
        let Some(d) = self.prog.code.get(pc as usize) else { return vec![] };
        match &d.inst {
            Inst::Bra(t) if d.guard.is_none() => vec![*t],
            Inst::Bra(t) => vec![*t, pc + 1],
            Inst::BrxIdx(_, ts) => ts.to_vec(),
            Inst::Exit | Inst::Trap if d.guard.is_none() => vec![],
            _ => vec![pc + 1],
        }
    }
}

/// An operand that names a barrier.
enum Where {
    Mbar(Addr),
    /// 32-bit slot of the number.
    Bar(u32),
}

/// The barrier that an instruction has to do with, and what it does there (of a named barrier that it waits at: that).
fn barrier_of(inst: &Inst) -> Option<(Where, Act)> {
    let (addr, act) = match inst {
        Inst::Mbar(b) => {
            let act = match b.op {
                MbarOp::Inval => return None,
                MbarOp::Init => Act::Inits,
                MbarOp::TestWait | MbarOp::TestWaitParity | MbarOp::TryWait | MbarOp::TryWaitParity => {
                    Act::Waits
                }
                _ => Act::Gives,
            };
            (b.addr, act)
        }
        Inst::TcCommit(a, _) | Inst::CpAsyncMbar(a, _) => (*a, Act::Gives),
        Inst::Bulk(b) => match &**b {
            Bulk::TensorLoad { mbar, .. } | Bulk::Load { mbar, .. } | Bulk::Between { mbar, .. } => {
                (*mbar, Act::Gives)
            }
            _ => return None,
        },
        Inst::RemoteAsync(r) => (r.mbar, Act::Gives),
        Inst::LaunchControl(x) => match &**x {
            LaunchControl::TryCancel(_, mbar, _) => (*mbar, Act::Gives),
            _ => return None,
        },
        Inst::Bar(op, id, ..) => {
            let act = if *op == BarOp::Arrive { Act::Gives } else { Act::Waits };
            return Some((Where::Bar(*id), act));
        }
        _ => return None,
    };
    Some((Where::Mbar(addr), act))
}

/// Registers written in several places, and those computed from them.
fn varying(m: &Machine<'_>) -> HashSet<Reg> {
    let prog = m.prog;
    let regs = |r: (u32, u32)| &prog.regs[r.0 as usize..r.1 as usize];
    let mut writes: HashMap<Reg, u32> = HashMap::new();
    prog.code.iter().flat_map(|d| regs(d.dsts)).for_each(|&r| *writes.entry(r).or_default() += 1);
    let mut varies: HashSet<Reg> = writes.into_iter().filter(|w| w.1 > 1).map(|w| w.0).collect();
    loop {
        let before = varies.len();
        for d in &prog.code {
            if regs(d.srcs).iter().any(|r| varies.contains(r)) {
                varies.extend(regs(d.dsts));
            }
        }
        if varies.len() == before {
            return varies;
        }
    }
}

fn walk(m: &Machine<'_>, c: &Cta, w: usize, from: u32, lanes: u32) -> Vec<Step> {
    let prog = m.prog;
    let mut scratch = Warp::new(prog, c.warps[w].lanes);
    scratch.regs = c.warps[w].regs.clone();
    let l = lanes.trailing_zeros() as usize & 31;
    let (mut seen, mut todo, mut steps) = (vec![false; prog.code.len()], vec![from], vec![]);
    while let Some(pc) = todo.pop() {
        let Some(d) = prog.code.get(pc as usize) else { continue };
        if std::mem::replace(&mut seen[pc as usize], true) {
            continue;
        }
        if let Some((place, act)) = barrier_of(&d.inst) {
            let undefined = match place {
                Where::Mbar(Addr::R32(r, _)) | Where::Bar(r) => scratch.regs.u32[r as usize] >> l & 1 != 0,
                Where::Mbar(Addr::R64(r, _)) => scratch.regs.u64[r as usize] >> l & 1 != 0,
                Where::Mbar(Addr::Abs(_) | Addr::Own(_)) => false,
            };
            let at = (!undefined).then(|| match place {
                Where::Bar(r) => At::Bar(scratch.regs.r32[r as usize].0[l]),
                Where::Mbar(a) => {
                    // The same barrier of another CTA of the cluster counts as this one's.
                    let (_, addr) = m.resolve(Place::Generic, address(&scratch.regs, c.rank_bits, a, l));
                    At::Mbar(addr as u32 & 0xff_ffff)
                }
            });
            if matches!((&d.inst, act), (Inst::Bar(..), Act::Waits)) {
                steps.push((pc, Act::Gives, at));
            }
            steps.push((pc, act, at));
        }
        match &d.inst {
            Inst::Alu(op) => op.exec(&mut scratch.regs, 1 << l),
            Inst::CvtaAdd(to, from, add) => {
                let (v, u) = (scratch.regs.r64[*from as usize].0[l], scratch.regs.bytes64(*from, l));
                scratch.regs.set64(*to, l, v.wrapping_add(*add), u);
            }
            _ => {
                for &r in &prog.regs[d.dsts.0 as usize..d.dsts.1 as usize] {
                    mark_undefined(&mut scratch, r, 1 << l);
                }
            }
        }
        todo.extend(m.next(pc));
    }
    steps
}
