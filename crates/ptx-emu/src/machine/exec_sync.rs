//! mbarriers, named barriers, setmaxnreg.

use super::cluster::abroad;
use super::cta::{Cta, MbarSlot, NamedBar, Release, Split, State, Warp};
use super::exec::{Next, lanes};
use super::inst::{BarOp, BarReduce, Inst, Mbar, MbarOp};
use super::ledger::{Deed, Ledger};
use super::run::{Machine, Res, Stop};
use super::say::{At, Survey};
use crate::fault::{Code, Fault};
use crate::isa::mbarrier::{BarrierFault, Mbarrier};
use std::collections::{BTreeMap, HashMap};

impl Machine<'_> {
    /// A fault that the hardware raises on a barrier operation.
    pub(super) fn barrier_fault(&self, c: &Cta, w: usize, pc: u32, addr: u32, e: BarrierFault) -> Stop {
        let code = match e {
            BarrierFault::OverArrival { .. } => Code::MbarrierCount,
            BarrierFault::TxOperand { .. } | BarrierFault::TxRange { .. } => Code::MbarrierTx,
            BarrierFault::NotABarrier { .. } => Code::MbarrierUninit,
        };
        let mut f = Fault::new(code, format!("{}: {e}", self.barrier_name(c, addr)));
        if let Some((lw, lpc, step)) = c.mbars.get(&addr).and_then(|m| m.last_arrival) {
            let o = super::cta::Origin { warp: lw, pc: lpc, step };
            f.earlier = Some(self.site(c, o, 0, format!("last arrival: {}", self.opcode(lpc))));
        }
        self.fault(c, w, pc, 0, f)
    }

    /// The live barrier at `addr`, or a fault that says what is there instead.
    fn live<'c>(&self, c: &'c mut Cta, w: usize, pc: u32, addr: u32) -> Res<&'c mut MbarSlot> {
        if c.mbars.contains_key(&addr) {
            return Ok(c.mbars.get_mut(&addr).expect("checked just above"));
        }
        let mut f =
            Fault::new(Code::MbarrierUninit, format!("{} is not initialised", self.barrier_name(c, addr)));
        if let Some(at) = Survey::new(self, c, None).init_ahead(self, c, At::Mbar(addr)) {
            f = f.missing(format!(
                "a barrier (bar.sync) between mbarrier.init at {}, which nobody has executed yet, and its use by {} at {}",
                self.line(at),
                self.who(w as u32),
                self.line(pc)
            ));
        }
        let f = f.help("execute mbarrier.init and make it visible (bar.sync, or fence.mbarrier_init and a cluster barrier) first");
        Err(self.fault(c, w, pc, 0, f))
    }

    /// Roles that the tables declare for a barrier.
    pub(super) fn check_role(&self, c: &Cta, w: usize, pc: u32, addr: u32, waits: bool) -> Res<()> {
        if !self.opts.checks.roles || self.launch.annotations.barriers.is_empty() {
            return Ok(());
        }
        let off = addr.wrapping_sub(c.dynamic_base);
        let b = self
            .launch
            .annotations
            .barriers
            .iter()
            .find(|b| off >= b.offset && off < b.offset + 8 * b.stages);
        let Some(b) = b else { return Ok(()) };
        let allowed = if waits { &b.waiters } else { &b.arrivers };
        let Some(role) = self.role_of(w as u32) else { return Ok(()) };
        if allowed.is_empty() || allowed.contains(&role) {
            return Ok(());
        }
        let f = Fault::new(
            Code::MbarrierRole,
            format!(
                "role {role} {} {}, which is declared for {}",
                if waits { "waits for" } else { "arrives on" },
                self.barrier_name(c, addr),
                allowed.join(", ")
            ),
        )
        .help("correct the kernel, or its barrier table");
        Err(self.fault(c, w, pc, 0, f))
    }

    /// After anything that may have completed a phase: wakes the waiters.
    /// `time`: when the arrival or completion happened (timed schedule).
    pub(super) fn phase_event(&mut self, c: &mut Cta, addr: u32, before: u64, time: u64) {
        let Some(m) = c.mbars.get_mut(&addr) else { return };
        self.progress += 1;
        m.stamp = m.stamp.max(time);
        if m.bar.phase() == before {
            return;
        }
        m.done_at = std::mem::take(&mut m.stamp);
        c.hb.phase_done(addr, m.bar.phase());
        for s in c.warps.iter_mut().flat_map(|w| &mut w.splits) {
            if s.state == State::Mbar(addr) {
                s.state = State::Ready;
            }
        }
        if self.trace.is_some() {
            let at = if self.timed() { c.mbars[&addr].done_at } else { self.steps };
            let (name, phase, step) = (self.barrier_name(c, addr), c.mbars[&addr].bar.phase(), at);
            if let Some(t) = &mut self.trace {
                t.phase(c.id, &name, phase, step);
            }
        }
    }

    /// Arrival of an asynchronous operation (commit, cp.async): count 1 or more.
    pub(super) fn async_arrive(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        addr: u32,
        count: u32,
        r: Option<Release>,
        time: u64,
    ) -> Res<()> {
        let step = self.steps;
        let m = self.live(c, w, pc, addr)?;
        let before = m.bar.phase();
        if let Some(r) = r {
            m.attached.push((before, r));
        }
        if let Err(e) = m.bar.arrive(count) {
            return Err(self.barrier_fault(c, w, pc, addr, e));
        }
        m.last_arrival = Some((w as u32, pc, step));
        m.ledger.note((w as u32, pc), Deed::Arrive, before, u64::from(count), step);
        self.phase_event(c, addr, before, time);
        Ok(())
    }

    /// complete_tx of a landed copy.
    pub(super) fn async_complete(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        addr: u32,
        bytes: u32,
        r: Release,
        time: u64,
    ) -> Res<()> {
        let step = self.steps;
        let m = self.live(c, w, pc, addr)?;
        let before = m.bar.phase();
        m.attached.push((before, r));
        m.ledger.note((w as u32, pc), Deed::Bytes, before, u64::from(bytes), step);
        if let Err(e) = m.bar.complete_tx(bytes) {
            return Err(self.barrier_fault(c, w, pc, addr, e));
        }
        self.phase_event(c, addr, before, time);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn mbarrier(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        b: &Mbar,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, b.addr)?;
        if let Some(v) = b.value {
            self.defined(
                c,
                w,
                pc,
                c.warps[w].regs.u32[v as usize] & m,
                Code::UninitBarrier,
                "the count or parity",
            )?;
        }
        match b.op {
            MbarOp::TestWait | MbarOp::TestWaitParity | MbarOp::TryWait | MbarOp::TryWaitParity => {
                return self.wait(c, w, s, pc, m, b);
            }
            _ => {}
        }
        // The barrier that knows already what the lanes have done: mostly they all arrive on one.
        let mut published = None;
        for l in lanes(m) {
            let value = b.value.map_or(1, |v| c.warps[w].regs.r32[v as usize].0[l]);
            if let Some(rank) = self.barrier_of_peer(c, w, pc, l, b)? {
                let addr = self.lane_addr(c, w, b.addr, l) as u32 & 0xff_ffff;
                let from = abroad(c.rank, w);
                self.hb_remote_arrive(c, (w, pc, l), (rank, addr), b)?;
                self.on(c, rank, |m, c| m.arrive(c, from, pc, l, addr, b, value))?;
                continue;
            }
            let addr = self.barrier_addr(c, w, pc, l, b)?;
            match b.op {
                MbarOp::Init => {
                    if c.mbars.contains_key(&addr) {
                        let f = Fault::new(
                            Code::MbarrierReinit,
                            format!("{} is live and initialised again", self.barrier_name(c, addr)),
                        );
                        return Err(self.fault(c, w, pc, 1 << l, f));
                    }
                    if !Mbarrier::legal_count(value) {
                        let f = Fault::new(
                            Code::MbarrierCount,
                            format!(
                                "init count {value} of {} is outside 1..=1048575",
                                self.barrier_name(c, addr)
                            ),
                        );
                        return Err(self.fault(c, w, pc, 1 << l, f));
                    }
                    c.mbars.insert(
                        addr,
                        MbarSlot {
                            bar: Mbarrier::init(value),
                            attached: vec![],
                            observed: 0,
                            init_pc: pc,
                            stamp: 0,
                            done_at: 0,
                            last_arrival: None,
                            tokens: HashMap::new(),
                            seen: BTreeMap::new(),
                            ledger: Ledger::default(),
                        },
                    );
                    self.hb_mbar_init(c, w, pc, l, addr);
                    self.progress += 1;
                    continue;
                }
                MbarOp::Inval => {
                    self.live(c, w, pc, addr)?;
                    self.hb_mbar_inval(c, w, l, addr);
                    if let Some(mut slot) = c.mbars.remove(&addr) {
                        let off = self.shared_offset(c, w, pc, u64::from(addr), 8)?;
                        c.shared.store(off, &slot.bar.inval().to_le_bytes(), 0);
                        // Whoever invalidates a barrier vouches for what its completed phases covered.
                        let now = slot.bar.phase();
                        slot.attached.retain(|a| a.0 < now);
                        for (_, r) in slot.attached {
                            self.release_one(c, r);
                        }
                    }
                    continue;
                }
                _ => {}
            }
            if published != Some(addr) {
                self.hb_arrive(c, w, pc, m >> l << l, addr, b)?;
                published = Some(addr);
            }
            self.arrive(c, w, pc, l, addr, b, value)?;
        }
        Ok(Next::Advance)
    }

    /// An arrival or a change of the transaction count by lane `l` on a barrier of `c`; the warp may be a peer's.
    #[allow(clippy::too_many_arguments)]
    fn arrive(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        addr: u32,
        b: &Mbar,
        value: u32,
    ) -> Res<()> {
        self.shared_offset(c, w, pc, u64::from(addr), 8)?;
        self.check_role(c, w, pc, addr, false)?;
        let step = self.steps;
        let slot = self.live(c, w, pc, addr)?;
        let before = slot.bar.phase();
        let bar = &mut slot.bar;
        let r = match b.op {
            MbarOp::Arrive => bar.arrive(value),
            MbarOp::ArriveNoComplete => bar.arrive_no_complete(value).map(|t| t.0),
            MbarOp::ArriveExpectTx => bar.arrive_expect_tx(value),
            MbarOp::ArriveDrop => bar.arrive_drop(value),
            MbarOp::ArriveDropNoComplete => bar.arrive_drop_no_complete(value).map(|t| t.0),
            MbarOp::ArriveDropExpectTx => bar.arrive_drop_expect_tx(value),
            MbarOp::ExpectTx => bar.expect_tx(value).map(|_| 0),
            _ => bar.complete_tx(value).map(|_| 0),
        };
        match r {
            Err(e) => return Err(self.barrier_fault(c, w, pc, addr, e)),
            Ok(token) => {
                slot.last_arrival = Some((w as u32, pc, step));
                let (arrives, bytes) = deeds(b.op, value);
                if arrives != 0 {
                    slot.ledger.note((w as u32, pc), Deed::Arrive, before, arrives, step);
                }
                if let Some((deed, bytes)) = bytes {
                    slot.ledger.note((w as u32, pc), deed, before, bytes, step);
                }
                if let Some(t) = b.token {
                    slot.tokens.insert((w as u32, l as u32), before);
                    c.warps[w].regs.set64(t, l, token, 0);
                }
            }
        }
        let now = c.now(w);
        self.phase_event(c, addr, before, now);
        Ok(())
    }

    /// Rank of the other CTA whose barrier a lane names, if it does and the operation may.
    fn barrier_of_peer(&self, c: &Cta, w: usize, pc: u32, l: usize, b: &Mbar) -> Res<Option<u32>> {
        let (_, addr) = self.resolve(super::inst::Place::Generic, self.lane_addr(c, w, b.addr, l));
        if addr >> 24 == u64::from(c.rank) || self.cluster_size() == 1 {
            return Ok(None);
        }
        let rank = self.reach(c, w, pc, 1 << l, addr)?;
        let local = matches!(
            b.op,
            MbarOp::Init | MbarOp::Inval | MbarOp::ArriveNoComplete | MbarOp::ArriveDropNoComplete
        );
        if local || b.token.is_some() {
            let f = Fault::new(
                Code::BoundsShared,
                format!("`{}` on a barrier of CTA {rank} of the cluster", self.opcode(pc)),
            )
            .help("on another CTA's barrier a thread may only arrive (without a token), expect_tx and complete_tx");
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        if addr % 8 != 0 {
            let f = Fault::new(Code::Align, format!("mbarrier address {addr:#x} is not a multiple of 8"));
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        Ok(Some(rank))
    }

    /// A successful wait moves the warp's clock to the completion of the phase.
    fn timed_wait(&mut self, c: &mut Cta, w: usize, addr: u32) {
        let Some(time) = c.mbars.get(&addr).map(|m| m.done_at) else { return };
        if c.clocks.is_some() {
            let (name, role) = (self.barrier_name(c, addr), self.role_of(w as u32).unwrap_or_default());
            if let Some(k) = &mut c.clocks {
                k.wait(w, time, c.id, &name, &role, self.trace.as_mut());
            }
        }
    }

    fn barrier_addr(&self, c: &Cta, w: usize, pc: u32, l: usize, b: &Mbar) -> Res<u32> {
        let addr = self.lane_addr(c, w, b.addr, l);
        let (_, addr) = self.resolve(super::inst::Place::Generic, addr);
        let addr = addr ^ c.rank_bits;
        self.shared_offset(c, w, pc, addr, 8)?;
        if !addr.is_multiple_of(8) {
            let f = Fault::new(Code::Align, format!("mbarrier address {addr:#x} is not a multiple of 8"));
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        Ok(addr as u32)
    }

    #[allow(clippy::too_many_arguments)]
    fn wait(&mut self, c: &mut Cta, w: usize, s: usize, pc: u32, m: u32, b: &Mbar) -> Res<Next> {
        if let Some(v) = b.state {
            self.defined(
                c,
                w,
                pc,
                c.warps[w].regs.u64[v as usize] & m,
                Code::UninitBarrier,
                "the phase token",
            )?;
        }
        let blocking = matches!(b.op, MbarOp::TryWait | MbarOp::TryWaitParity);
        let (mut pass, mut first) = (0u32, None);
        for l in lanes(m) {
            let addr = self.barrier_addr(c, w, pc, l, b)?;
            if first.is_none() {
                self.check_role(c, w, pc, addr, true)?;
            }
            let regs = &c.warps[w].regs;
            let (token, parity) = (
                b.state.map(|t| regs.r64[t as usize].0[l]),
                b.value.map_or(0, |v| regs.r32[v as usize].0[l]),
            );
            let slot = self.live(c, w, pc, addr)?;
            if let Some(f) = token.and_then(|t| lapped(slot, w, l, t)) {
                return Err(self.fault(c, w, pc, 1 << l, f));
            }
            let done = match token {
                Some(t) => slot.bar.test_wait(t),
                None => slot.bar.test_wait_parity(parity),
            };
            first.get_or_insert((addr, slot.bar.phase()));
            pass |= u32::from(done) << l;
        }
        let Some((addr, phase)) = first else { return Ok(Next::Advance) };
        let spurious = self.deterministic_random() && pass != 0 && self.rng.below(16) == 0;
        if pass == 0 || spurious {
            let sp = &mut c.warps[w].splits[s];
            let polled = sp.last_poll == Some((pc, addr, phase));
            if !spurious && !std::mem::take(&mut sp.poll_pass) && (blocking || polled) {
                return Ok(Next::Block(State::Mbar(addr)));
            }
            sp.last_poll = Some((pc, addr, phase));
            pass = 0;
        } else {
            c.warps[w].splits[s].last_poll = None;
            let mut known = None;
            for l in lanes(pass) {
                let addr = self.barrier_addr(c, w, pc, l, b)?;
                c.observe(addr, w as u32);
                self.deliver(c);
                if known != Some(addr) {
                    if let Some(slot) = c.mbars.get_mut(&addr) {
                        slot.ledger.note((w as u32, pc), Deed::Wait, slot.bar.phase(), 1, self.steps);
                    }
                    self.hb_waited(c, w, pc, pass >> l << l, addr, b)?;
                    known = Some(addr);
                }
                self.timed_wait(c, w, addr);
            }
        }
        if let Some(p) = b.pred {
            let regs = &mut c.warps[w].regs;
            lanes(m).for_each(|l| regs.setp(p, l, pass >> l & 1 != 0, false));
        }
        Ok(Next::Advance)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn named_barrier(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        (op, aligned): (BarOp, bool),
        id: u32,
        count: Option<u32>,
    ) -> Res<Next> {
        let live = c.warps[w].live;
        let groups = if aligned { self.gather(c, w, s, live) } else { self.gather_at_barrier(c, w, s, op) };
        let Some(groups) = groups else { return Ok(Next::Block(State::Sync(live))) };
        if groups == [s] {
            self.whole_warp(c, w, pc, m)?;
        }
        for slot in [Some(id), count].into_iter().flatten() {
            self.defined(
                c,
                w,
                pc,
                c.warps[w].regs.u32[slot as usize] & m,
                Code::UninitBarrier,
                "an operand",
            )?;
        }
        let (mut lanes, mut ones) = (0, 0);
        if let BarOp::Reduce { src: (p, neg), .. } = op {
            let regs = &c.warps[w].regs;
            let undef = regs.up[p as usize] & live;
            lanes = live.count_ones();
            ones = ((regs.p[p as usize] ^ if neg { !0 } else { 0 }) & live).count_ones();
            self.defined(c, w, pc, undef, Code::UninitBarrier, "the predicate")?;
        }
        let l = m.trailing_zeros() as usize;
        let regs = &c.warps[w].regs;
        let id = regs.r32[id as usize].0[l];
        let threads: u32 = c.warps.iter().map(|w| w.lanes.count_ones()).sum();
        let want = count.map_or(threads.next_multiple_of(32), |n| regs.r32[n as usize].0[l]);
        let bad = |text: String| self.fault(c, w, pc, m, Fault::new(Code::BarrierNamed, text));
        if id > 15 {
            return Err(bad(format!("named barrier {id}; ids are 0 to 15")));
        }
        if want == 0 || !want.is_multiple_of(32) {
            return Err(bad(format!(
                "named barrier {id} with a count of {want} threads; it must be a positive multiple of 32"
            )));
        }
        let b = c.bars[id as usize];
        if b.count != 0 && b.count != want {
            let visits = c.bar_ledgers[id as usize].visits().iter();
            let began = visits.filter(|v| v.deed == Deed::Arrive).max_by_key(|v| v.step);
            let by = began
                .map_or(String::new(), |v| format!(", begun by {} at {}", self.who(v.warp), self.line(v.pc)));
            return Err(bad(format!(
                "named barrier {id} is used with {want} threads while a phase of {} is under way{by}",
                b.count
            )));
        }
        if b.arrived + 32 > want {
            return Err(bad(format!("named barrier {id}: more than {want} threads arrive in one phase")));
        }
        let now = c.now(w);
        c.hb.meet(w, live);
        self.hb_loads_over(c, w);
        c.hb.bar_arrive(w, pc, id, op != BarOp::Arrive);
        let ledger = &mut c.bar_ledgers[id as usize];
        ledger.note((w as u32, pc), Deed::Arrive, ledger.phase, 32, self.steps);
        let b = &mut c.bars[id as usize];
        b.count = want;
        b.whole = count.is_none();
        b.arrived += 32;
        b.lanes += lanes;
        b.ones += ones;
        b.stamp = b.stamp.max(now);
        self.progress += 1;
        let arrived = b.arrived;
        // The groups of this warp: all but the first are folded in by their own waiting state.
        for &g in &groups {
            c.warps[w].splits[g].state = State::Bar(id);
        }
        // Without a count, warps that exited earlier are not waited for.
        let full = arrived == want || op != BarOp::Arrive && count.is_none() && everybody_here(c, id);
        if full {
            self.complete_named(c, id);
            if op == BarOp::Arrive {
                self.pass_bar(c, w, id);
            }
            return Ok(Next::Regroup);
        }
        if op == BarOp::Arrive {
            self.pass_bar(c, w, id);
        }
        Ok(Next::Regroup)
    }

    /// Brings the live lanes of a warp together at a barrier that is not `.aligned`: any instruction with the same
    /// operation and id will do. `None`: not all are here yet.
    fn gather_at_barrier(&self, c: &mut Cta, w: usize, s: usize, op: BarOp) -> Option<Vec<usize>> {
        let warp = &mut c.warps[w];
        let live = warp.live;
        if warp.splits[s].mask & live == live {
            return Some(vec![s]);
        }
        warp.splits[s].state = State::Sync(live);
        let id_of = |x: &Split| match self.prog.code.get(x.pc as usize)?.inst {
            Inst::Bar(o, id, _, false) if o == op && matches!(x.state, State::Sync(_)) => {
                Some(warp.regs.r32[id as usize].0[x.mask.trailing_zeros() as usize & 31])
            }
            _ => None,
        };
        let id = id_of(&warp.splits[s]);
        let here: Vec<usize> = (0..warp.splits.len()).filter(|&i| id_of(&warp.splits[i]) == id).collect();
        let union = here.iter().fold(0, |a, &i| a | warp.splits[i].mask);
        (union & live == live).then_some(here)
    }

    /// Lets the groups of a warp that stand at a barrier go on.
    fn pass_bar(&self, c: &mut Cta, w: usize, id: u32) {
        for sp in &mut c.warps[w].splits {
            if sp.state == State::Bar(id) {
                sp.state = State::Ready;
                sp.pc += 1;
            }
        }
    }

    fn complete_named(&mut self, c: &mut Cta, id: u32) {
        let phase = std::mem::take(&mut c.bars[id as usize]);
        let done = phase.stamp;
        c.hb.bar_complete(id);
        let at = if self.timed() { done } else { self.steps };
        let ledger = &mut c.bar_ledgers[id as usize];
        ledger.phase += 1;
        if let Some(t) = &mut self.trace {
            t.phase(c.id, &format!("named barrier {id}"), ledger.phase, at);
        }
        for (w, warp) in c.warps.iter().enumerate() {
            if let Some(s) = warp.splits.iter().find(|s| s.state == State::Bar(id)) {
                ledger.note((w as u32, s.pc), Deed::Wait, ledger.phase, 1, self.steps);
            }
        }
        for w in 0..c.warps.len() {
            if c.warps[w].splits.iter().any(|s| s.state == State::Bar(id)) {
                let role = self.role_of(w as u32).unwrap_or_default();
                if let Some(k) = &mut c.clocks {
                    k.wait(w, done, c.id, &format!("named barrier {id}"), &role, self.trace.as_mut());
                }
            }
            self.hand_out(&mut c.warps[w], id, &phase);
            self.pass_bar(c, w, id);
        }
        self.progress += 1;
    }

    /// Gives the result of a completed phase to the groups that asked for one.
    fn hand_out(&self, warp: &mut Warp, id: u32, phase: &NamedBar) {
        for sp in warp.splits.iter().filter(|s| s.state == State::Bar(id)) {
            let Some(Inst::Bar(BarOp::Reduce { how, d, .. }, ..)) =
                self.prog.code.get(sp.pc as usize).map(|d| &d.inst)
            else {
                continue;
            };
            for l in lanes(sp.mask) {
                match how {
                    BarReduce::Popc => warp.regs.set32(*d, l, phase.ones, 0),
                    BarReduce::And => warp.regs.setp(*d, l, phase.ones == phase.lanes, false),
                    BarReduce::Or => warp.regs.setp(*d, l, phase.ones != 0, false),
                }
            }
        }
    }

    /// A warp exited: barriers of the whole CTA may now be complete. One with an explicit count still needs that
    /// many threads.
    pub(super) fn recheck_named(&mut self, c: &mut Cta) {
        for id in 0..16u32 {
            let b = c.bars[id as usize];
            if b.arrived != 0 && b.whole && everybody_here(c, id) {
                self.complete_named(c, id);
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn set_max_nreg(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        inc: bool,
        n: u32,
    ) -> Res<Next> {
        let live = c.warps[w].live;
        if self.gather(c, w, s, live).is_none() {
            return Ok(Next::Block(State::Sync(live)));
        }
        self.whole_warp(c, w, pc, m)?;
        if !(24..=256).contains(&n) || !n.is_multiple_of(8) {
            let f = Fault::new(
                Code::SetMaxNReg,
                format!("setmaxnreg to {n}; it must be a multiple of 8 in 24..=256"),
            );
            return Err(self.fault(c, w, pc, m, f));
        }
        if let Some(old) = c.warps[w].max_regs
            && (inc && n < old || !inc && n > old)
        {
            let f = Fault::new(
                Code::SetMaxNReg,
                format!("setmaxnreg.{} from {old} to {n}", if inc { "inc" } else { "dec" }),
            );
            return Err(self.fault(c, w, pc, m, f));
        }
        c.warps[w].max_regs = Some(n);
        // Each warp gets n registers for 32 lanes; the file holds 65536.
        let sum: u32 = c.warps.iter().filter_map(|w| w.max_regs).map(|r| 32 * r).sum();
        if c.warps.iter().all(|w| w.max_regs.is_some()) && sum > 65536 {
            let f = Fault::new(
                Code::SetMaxNReg,
                format!("the warps' registers add up to {sum}, the file holds 65536"),
            );
            return Err(self.fault(c, w, pc, m, f));
        }
        Ok(Next::Advance)
    }
}

/// A wait for the phase of a token that is two or more phases old: only its parity is compared, so the answer is
/// that of another phase. The phase is known from the lane's own last arrival; a lane that got its token from
/// somebody else is not judged. Waits by parity never are: which phase they mean is not in the program.
fn lapped(slot: &MbarSlot, w: usize, l: usize, token: u64) -> Option<Fault> {
    let (now, arrived) = (slot.bar.phase(), *slot.tokens.get(&(w as u32, l as u32))?);
    if arrived & 1 != token >> 63 || now < arrived + 2 {
        return None;
    }
    let text = format!("the wait has a token of phase {arrived}, but the barrier is in phase {now}");
    Some(
        Fault::new(Code::MbarrierLapped, text)
            .help("wait for each phase before the one after the next completes, or keep the newest token"),
    )
}

/// What an operation with this operand means to the barrier: arrivals; bytes announced or delivered.
fn deeds(op: MbarOp, value: u32) -> (u64, Option<(Deed, u64)>) {
    let n = u64::from(value);
    match op {
        MbarOp::ArriveExpectTx | MbarOp::ArriveDropExpectTx => (1, Some((Deed::Expect, n))),
        MbarOp::ExpectTx => (0, Some((Deed::Expect, n))),
        MbarOp::CompleteTx => (0, Some((Deed::Bytes, n))),
        _ => (n, None),
    }
}

/// Every warp that has not exited waits at barrier `id`.
fn everybody_here(c: &Cta, id: u32) -> bool {
    c.warps.iter().filter(|w| w.live != 0).all(|w| w.splits.iter().all(|s| s.state == State::Bar(id)))
}
