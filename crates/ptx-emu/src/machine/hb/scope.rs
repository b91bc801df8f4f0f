//! Scopes of mbarrier operations between CTAs. An arrival on a peer's barrier, and a wait for a phase that a peer arrived
//! in, are morally strong only at the cluster's scope; without a qualifier theirs is the CTA. Hardware hands over all the
//! same and shipped kernels rely on it, so that the edge stands ([`super::sync`]) and the finding is strict.
//!
//! **What it can miss**: phases that a peer's copies, commits and stores complete (their own operations have the
//! cluster's scope, but a wait of the CTA's scope is not asked about); relaxed waits. **No false alarm**: both scopes are
//! written in the program, and the two threads are in two CTAs.

use super::super::cta::Cta;
use super::super::inst::{Mbar, MbarOp};
use super::super::names;
use super::super::run::Machine;
use super::event::{End, Event, Kind, Scope};
use crate::fault::{Code, Fault};

impl Machine<'_> {
    /// Lane `l` of a peer (warp `w` names it) arrives on the barrier at `addr` of `c`.
    pub(super) fn hb_arrive_scope(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        addr: u32,
        b: &Mbar,
    ) {
        if matches!(b.op, MbarOp::ExpectTx | MbarOp::CompleteTx) {
            return;
        }
        let (by, warp) = self.hb_by(c, w);
        let (cta, warp, kind, end) = (by.cta, warp as u32, Kind::Barrier, End::Issue);
        let e = Event { cta, warp, lanes: 1 << l, pc, step: self.steps, time: 0, kind, end, used: 0 };
        if let Some(b) = c.hb.mbars.get_mut(&addr) {
            b.far = Some(e);
        }
        if b.scope >= Scope::Cluster || self.strict_known(Code::StrictScope, pc, pc) {
            return;
        }
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        let text = format!(
            "`{}` arrives on {name} of CTA {:?} (rank {} of the cluster) at the scope of its own CTA",
            self.opcode(pc),
            c.id,
            c.rank
        );
        let f = Fault::new(Code::StrictScope, text).missing("the scope .cluster on the arrive");
        self.strict(c, w, pc, pc, f);
    }

    /// Warp `w` has waited for the barrier at `addr` of its CTA.
    pub(super) fn hb_wait_scope(&mut self, c: &Cta, w: usize, pc: u32, addr: u32, b: &Mbar) {
        let Some(e) = c.hb.mbars.get(&addr).and_then(|b| b.far_done) else { return };
        if b.relaxed || b.scope >= Scope::Cluster || self.strict_known(Code::StrictScope, pc, e.pc) {
            return;
        }
        let name = names::barrier(&self.launch.annotations, c.dynamic_base, addr);
        let text = format!(
            "`{}` waits for {name} at the scope of its own CTA, and a thread of another CTA arrived there",
            self.opcode(pc)
        );
        let earlier = self.hb_site(&e, 0, format!("arrive: {}", self.opcode(e.pc)));
        let f =
            Fault::new(Code::StrictScope, text).earlier(earlier).missing("the scope .cluster on the wait");
        self.strict(c, w, pc, e.pc, f);
    }
}
