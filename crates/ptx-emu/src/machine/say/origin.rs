//! Where an undefined value comes from: back along the registers to what loaded it, or to one that was never written.
//!
//! Found when a fault is reported, from the program's text and the registers as they are now: of the instructions that
//! write an undefined register those are followed that read one, until one is a load. That is a help, not a proof (a
//! register may have been written since), and the fault does not depend on it.

use super::super::cta::{Cta, Warp};
use super::super::inst::{Inst, Place, Reg};
use super::super::ledger::Deed;
use super::super::names;
use super::super::run::Machine;
use crate::isa::regs::Class;
use std::collections::HashSet;

/// Registers looked at.
const MOST_SEEN: usize = 4096;
/// Instructions shown between the fault and the origin.
const SHOWN_HOPS: usize = 3;

/// Whether lane `l` of a register holds an undefined byte.
fn undefined(w: &Warp, (class, r): Reg, l: u32) -> bool {
    let bits = match class {
        Class::P => w.regs.up[r as usize],
        Class::R32 => w.regs.u32[r as usize],
        Class::R64 | Class::R128 => w.regs.u64[r as usize],
    };
    bits >> l & 1 != 0
}

impl Machine<'_> {
    /// Notes on where the undefined operand of the instruction at `pc` comes from in the first of `lanes`.
    pub(in super::super) fn undefined_origin(&self, c: &Cta, w: usize, pc: u32, lanes: u32) -> Vec<String> {
        let warp = &c.warps[w];
        let l = if lanes == 0 { warp.live } else { lanes }.trailing_zeros() & 31;
        // (register, where it is read, the step that led there): breadth first, so that the shortest way is told.
        let mut steps: Vec<(Reg, u32, Option<usize>)> =
            self.undefined_sources(warp, pc, l).into_iter().map(|r| (r, pc, None)).collect();
        let (mut seen, mut i) = (HashSet::new(), 0);
        let (mut end, mut notes) = (None, vec![]);
        while let Some(&(reg, at, _)) = steps.get(i) {
            for def in self.writers(reg, at) {
                if let Some(place) = self.loaded_from(c, w, def, l) {
                    notes.extend(self.not_waited_so_far(c, w, def));
                    let (op, line) = (self.opcode(def), self.line(def));
                    end = Some((i, format!("`{op}` at {line} loaded it from {place}")));
                    break;
                }
                let sources = self.undefined_sources(warp, def, l);
                let new = sources.into_iter().filter(|r| seen.insert(*r));
                steps.extend(new.map(|r| (r, def, Some(i))).collect::<Vec<_>>());
            }
            if end.is_some() || steps.len() > MOST_SEEN {
                break;
            }
            if self.writers(reg, at).is_empty() {
                let name = self.spelling(reg).unwrap_or("a register".into());
                end = Some((i, format!("`{name}` was never written")));
                break;
            }
            i += 1;
        }
        let Some((mut i, origin)) = end else { return notes };
        let mut way = vec![];
        while let (_, at, Some(before)) = steps[i] {
            way.push(at);
            i = before;
        }
        way.reverse();
        let hops = way
            .iter()
            .take(SHOWN_HOPS)
            .map(|&at| format!("computed by `{}` at {}", self.opcode(at), self.line(at)));
        let mut told: Vec<String> = hops.collect();
        if way.len() > SHOWN_HOPS {
            told.push(format!("and {} more instructions", way.len() - SHOWN_HOPS));
        }
        told.push(format!("the undefined value comes from here (lane {l}): {origin}"));
        told.extend(notes);
        told
    }

    /// Barriers that the tables tell the warp's role to wait for and that it has not waited for yet, where the load at
    /// `pc` is from memory that others may write.
    fn not_waited_so_far(&self, c: &Cta, w: usize, pc: u32) -> Option<String> {
        let shared = match &self.prog.code[pc as usize].inst {
            Inst::Ld(x) => {
                let l = c.warps[w].live.trailing_zeros() as usize & 31;
                matches!(
                    self.resolve(x.place, self.lane_addr(c, w, x.addr, l)).0,
                    Place::Shared | Place::Cluster
                )
            }
            Inst::LdMatrix(..) | Inst::TcLd(_) => true,
            _ => false,
        };
        let role = self.role_of(w as u32).filter(|_| shared)?;
        let mut waits = vec![];
        for (at, ledger) in self.ledgers(c) {
            let name = self.at_name(c, at);
            let seen = ledger.last(w as u32, &[Deed::Wait]).is_some();
            if self.declared(&name, true).contains(&role) && !seen {
                waits.push(name);
            }
        }
        let who = self.who(w as u32);
        (!waits.is_empty())
            .then(|| format!("{who} has not waited yet for {}, which are there for it", waits.join(", ")))
    }

    /// The operands of an instruction that are undefined in lane `l`; its guard counts.
    fn undefined_sources(&self, warp: &Warp, pc: u32, l: u32) -> Vec<Reg> {
        let Some(d) = self.prog.code.get(pc as usize) else { return vec![] };
        let guard = d.guard.map(|(p, _)| (Class::P, p));
        let srcs = self.prog.regs[d.srcs.0 as usize..d.srcs.1 as usize].iter().copied();
        guard.into_iter().chain(srcs).filter(|&r| undefined(warp, r, l)).collect()
    }

    /// The instructions that write a register, the nearest above `pc` first.
    fn writers(&self, reg: Reg, pc: u32) -> Vec<u32> {
        let writes = |i: &u32| {
            let d = &self.prog.code[*i as usize];
            self.prog.regs[d.dsts.0 as usize..d.dsts.1 as usize].contains(&reg)
        };
        let n = self.prog.code.len() as u32;
        (0..pc.min(n)).rev().chain((pc.min(n)..n).rev()).filter(writes).collect()
    }

    fn spelling(&self, reg: Reg) -> Option<String> {
        let id = self.prog.slots.regs.iter().position(|r| *r == reg)?;
        let mut kernels = self.launch.module.functions.iter().filter(|f| f.is_entry);
        let entry = self.launch.entry;
        let f = kernels.find(|f| entry.is_empty() || f.name == entry)?;
        f.regs.get(id).map(|(name, _)| name.to_string())
    }

    /// The memory that a load at `pc` reads in lane `l`, with the registers as they are now.
    fn loaded_from(&self, c: &Cta, w: usize, pc: u32, l: u32) -> Option<String> {
        let a = &self.launch.annotations;
        let place = |place: Place, addr: u64| match self.resolve(place, addr) {
            (Place::Shared | Place::Cluster, x) => names::shared(a, c.dynamic_base, x as u32 & 0xff_ffff),
            (Place::Global, x) => match self.gmem.find(x) {
                Some(g) => format!("`{}` byte {}", g.name, x - g.base),
                None => format!("global {x:#x}"),
            },
            (Place::Param, x) => format!("byte {x} of the parameters"),
            (Place::Local, x) => format!("local memory at {x:#x}"),
            (_, x) => format!("{x:#x}"),
        };
        match &self.prog.code[pc as usize].inst {
            Inst::Ld(x) => Some(place(x.place, self.lane_addr(c, w, x.addr, l as usize))),
            Inst::LdMatrix(_, addr, _) => Some(place(Place::Shared, self.lane_addr(c, w, *addr, l as usize))),
            Inst::Atom { place: p, addr, .. } => Some(place(*p, self.lane_addr(c, w, *addr, l as usize))),
            Inst::TcLd(_) => Some("tensor memory".into()),
            _ => None,
        }
    }
}
