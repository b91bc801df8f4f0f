//! Executes a warp's turn: guards, register instructions and control flow here, the rest by family.

use super::cta::{Cta, LdState, NO_PC, Split, State, Warp};
use super::inst::{Decoded, Inst, Reg};
use super::run::{Machine, Res, Stop};
use crate::fault::{Code, Fault};
use crate::isa::regs::Class;

/// How a turn ended.
pub(super) enum SliceEnd {
    /// The turn is over, or the group of lanes cannot go on.
    Yield,
    /// The warp's groups changed; the same warp may be picked again.
    Regroup,
}

/// What an instruction asks of the loop.
pub(super) enum Next {
    /// Go on with the next instruction.
    Advance,
    /// Stay at this instruction in the given state.
    Block(State),
    /// Groups changed; program counters are already set.
    Regroup,
}

impl Machine<'_> {
    /// Runs up to `quantum` instructions of group `s` of warp `w`.
    pub(super) fn slice(&mut self, c: &mut Cta, w: usize, s: usize, quantum: u32) -> Res<SliceEnd> {
        let prog = self.prog;
        let (mut pc, mask, meet) = {
            let sp = &c.warps[w].splits[s];
            (sp.pc, sp.mask, sp.meet)
        };
        if pc == meet {
            arrive_meet(&mut c.warps[w], s);
            return Ok(SliceEnd::Regroup);
        }
        let mut left = quantum;
        while left > 0 {
            let warp = &mut c.warps[w];
            // Clocks count every instruction, so the timed schedule goes one by one.
            if warp.tracked == 0 && !c.hb.loads_in_flight(w) && mask != 0 && c.clocks.is_none() {
                let n = run_registers(&prog.code, warp, pc, meet, mask, left);
                self.steps += u64::from(n);
                pc += n;
                left -= n;
                if n != 0 && pc == meet {
                    warp.splits[s].pc = pc;
                    arrive_meet(warp, s);
                    return Ok(SliceEnd::Regroup);
                }
                if left == 0 {
                    break;
                }
            }
            left -= 1;
            let Some(d) = prog.code.get(pc as usize) else {
                // Falling off the end is a return.
                c.warps[w].splits[s].pc = pc;
                self.exit_lanes(c, w, s, mask);
                return Ok(SliceEnd::Regroup);
            };
            self.steps += 1;
            let warp = &mut c.warps[w];
            warp.counts[d.class as usize] += 1;
            let mut m = mask;
            let mut undef_guard = 0;
            if let Some((p, neg)) = d.guard {
                let v = warp.regs.p[p as usize] ^ if neg { !0 } else { 0 };
                undef_guard = warp.regs.up[p as usize] & mask;
                m = mask & v & !undef_guard;
            }
            if warp.tracked != 0 && (m | undef_guard) != 0 {
                self.touch(c, w, d.srcs, d.dsts)?;
            }
            if c.hb.loads_in_flight(w) && m != 0 {
                self.hb_used(c, w, d.srcs, d.dsts);
            }
            if d.wgmma_regs && (m | undef_guard) != 0 {
                self.wgmma_touch(c, w, pc, d.srcs, d.dsts)?;
            }
            let warp = &mut c.warps[w];
            if undef_guard != 0 {
                match &d.inst {
                    Inst::Alu(_) | Inst::Ld(_) | Inst::Cover(_) | Inst::Nop => {
                        for &r in &prog.regs[d.dsts.0 as usize..d.dsts.1 as usize] {
                            mark_undefined(warp, r, undef_guard);
                        }
                    }
                    _ if self.opts.checks.uninit => {
                        c.warps[w].splits[s].pc = pc;
                        let f = Fault::new(
                            Code::UninitBranch,
                            format!("the guard of `{}` is undefined", self.opcode(pc)),
                        );
                        return Err(self.fault(c, w, pc, undef_guard, f));
                    }
                    _ => {}
                }
            }
            if let Some(k) = &mut c.clocks
                && m != 0
            {
                k.instruction(&self.opts.costs, w, d.class);
            }
            match &d.inst {
                Inst::Alu(op) => {
                    if m != 0 {
                        (op.f)(&mut c.warps[w].regs, op, m);
                    }
                    pc += 1;
                }
                Inst::Cover(id) => {
                    if m != 0 {
                        self.covers[*id as usize] += 1;
                    }
                    pc += 1;
                }
                Inst::Nop => pc += 1,
                Inst::Fence(scope) => {
                    if m != 0 {
                        self.hb_loads_over(c, w);
                        c.hb.fence(w, m, *scope);
                        if *scope >= super::hb::Scope::Cluster {
                            self.hb_publish_inits(c, w, m, false);
                        }
                    }
                    pc += 1;
                }
                Inst::InitFence => {
                    self.hb_publish_inits(c, w, m, true);
                    pc += 1;
                }
                Inst::TcFence(before) => {
                    if m != 0 {
                        c.hb.tensor_fence(w, m, *before);
                    }
                    pc += 1;
                }
                Inst::ProxyFence => {
                    if m != 0 {
                        self.hb_loads_over(c, w);
                        c.hb.proxy_fence(w, m);
                        c.proxy_fence = self.steps + 1;
                    }
                    pc += 1;
                }
                Inst::Bra(t) => {
                    if m == mask {
                        pc = *t;
                    } else if m == 0 {
                        pc += 1;
                    } else {
                        let sp = &mut c.warps[w].splits[s];
                        sp.pc = pc + 1;
                        diverge(&mut c.warps[w], s, d.reconverge, &[(*t, m), (pc + 1, mask & !m)]);
                        return Ok(SliceEnd::Regroup);
                    }
                }
                _ if m == 0 => pc += 1,
                other => {
                    c.warps[w].splits[s].pc = pc;
                    match self.other(c, w, s, pc, m, other)? {
                        Next::Advance => pc += 1,
                        Next::Block(st) => {
                            c.warps[w].splits[s].state = st;
                            return Ok(SliceEnd::Yield);
                        }
                        Next::Regroup => return Ok(SliceEnd::Regroup),
                    }
                }
            }
            if pc == meet {
                c.warps[w].splits[s].pc = pc;
                arrive_meet(&mut c.warps[w], s);
                return Ok(SliceEnd::Regroup);
            }
        }
        c.warps[w].splits[s].pc = pc;
        Ok(SliceEnd::Yield)
    }

    fn other(&mut self, c: &mut Cta, w: usize, s: usize, pc: u32, m: u32, inst: &Inst) -> Res<Next> {
        match inst {
            Inst::Alu(_)
            | Inst::Cover(_)
            | Inst::Nop
            | Inst::Fence(_)
            | Inst::InitFence
            | Inst::TcFence(_)
            | Inst::ProxyFence
            | Inst::Bra(_) => Ok(Next::Advance),
            Inst::BrxIdx(idx, targets) => self.brx(c, w, s, pc, m, *idx, targets),
            Inst::Exit => {
                let all = m == c.warps[w].splits[s].mask;
                if !all {
                    c.warps[w].splits[s].pc = pc + 1;
                }
                self.exit_lanes(c, w, s, m);
                Ok(Next::Regroup)
            }
            Inst::Trap => Err(self.fault(c, w, pc, m, Fault::new(Code::Trap, "the kernel executed trap"))),
            Inst::Unsupported(what) => Err(Stop::Unsupported(what.to_string(), pc)),
            Inst::Clock((class, r)) => {
                let (steps, regs) = (self.steps, &mut c.warps[w].regs);
                for l in lanes(m) {
                    if *class == Class::R64 {
                        regs.set64(*r, l, steps, 0)
                    } else {
                        regs.set32(*r, l, steps as u32, 0)
                    }
                }
                Ok(Next::Advance)
            }
            Inst::Ld(a) => self.load(c, w, pc, m, a),
            Inst::St(a) => self.store(c, w, pc, m, a),
            Inst::Atom { op, ty, place, addr, d, b, c: cmp, order } => {
                self.atomic(c, w, pc, m, (*op, *ty, *place, *addr), *d, *b, *cmp, *order)
            }
            Inst::AtomVector(i) => self.atomic_vector(c, w, pc, m, i),
            Inst::Atom128(i) => self.atomic_128(c, w, pc, m, i),
            Inst::CvtaAdd(d, src, add) => {
                let regs = &mut c.warps[w].regs;
                for l in lanes(m) {
                    let u = regs.bytes64(*src, l);
                    regs.set64(*d, l, regs.r64[*src as usize].0[l].wrapping_add(*add), u);
                }
                Ok(Next::Advance)
            }
            Inst::Mapa(d, src, rank) => self.mapa(c, w, pc, m, (*d, *src, *rank)),
            Inst::CtaRank(d, src) => Ok(self.cta_rank(c, w, m, *d, *src)),
            Inst::RemoteAsync(r) => self.remote_async(c, w, pc, m, r),
            Inst::LaunchControl(i) => self.launch_control(c, w, pc, m, i),
            Inst::IsSpace(d, src, place) => self.isspace(c, w, m, *d, *src, *place),
            Inst::TensormapReplace(place, addr, field, ord, val) => {
                self.tensormap_replace(c, w, pc, m, *place, *addr, *field, *ord, *val)
            }
            Inst::TensormapCopy(dst, src) => self.tensormap_copy(c, w, pc, m, *dst, *src),
            Inst::LdMatrix(regs, addr, trans) => self.ldmatrix(c, w, pc, m, regs, *addr, *trans),
            Inst::StMatrix(regs, addr, trans) => self.stmatrix(c, w, pc, m, regs, *addr, *trans),
            Inst::Shfl { .. }
            | Inst::Vote { .. }
            | Inst::Redux(..)
            | Inst::Match(..)
            | Inst::ActiveMask(_)
            | Inst::Elect(..)
            | Inst::BarWarp(_) => self.warp_op(c, w, s, pc, m, inst),
            Inst::Bar(op, id, count, aligned) => {
                self.named_barrier(c, w, s, pc, m, (*op, *aligned), *id, *count)
            }
            &Inst::BarCluster { arrives, aligned, relaxed } => {
                self.cluster_barrier(c, w, s, pc, m, arrives, aligned, relaxed)
            }
            Inst::Mbar(b) => self.mbarrier(c, w, s, pc, m, b),
            Inst::PendingCount(d, src) => {
                let regs = &mut c.warps[w].regs;
                for l in lanes(m) {
                    let v = crate::isa::mbarrier::pending_count(regs.r64[*src as usize].0[l]);
                    let u = if regs.bytes64(*src, l) != 0 { 0xf } else { 0 };
                    regs.set32(*d, l, v, u);
                }
                Ok(Next::Advance)
            }
            Inst::SetMaxNReg(inc, n) => self.set_max_nreg(c, w, s, pc, m, *inc, *n),
            Inst::Bulk(b) => self.bulk(c, w, pc, m, b),
            Inst::BulkCommit => self.bulk_commit(c, w, m),
            Inst::BulkWait(n, read) => self.bulk_wait(c, w, m, *n, *read),
            Inst::CpAsync(dst, src, n, fill) => self.cp_async(c, w, pc, m, *dst, *src, *n, *fill),
            Inst::CpAsyncCommit => {
                let warp = &mut c.warps[w];
                let open = std::mem::take(&mut warp.cp_open);
                warp.cp_groups.push_back(open);
                Ok(Next::Advance)
            }
            Inst::CpAsyncWait(n) => self.cp_async_wait(c, w, *n),
            Inst::CpAsyncMbar(addr, noinc) => self.cp_async_mbar(c, w, pc, m, *addr, *noinc),
            Inst::TcAlloc(..)
            | Inst::TcDealloc(..)
            | Inst::TcRelinquish
            | Inst::TcLd(_)
            | Inst::TcSt(_)
            | Inst::TcWaitLd
            | Inst::TcWaitSt => self.tmem_op(c, w, s, pc, m, inst),
            Inst::TcCommit(addr, mask) => self.commit(c, w, pc, m, *addr, *mask),
            Inst::TcMma(mma) => self.mma(c, w, pc, m, mma),
            Inst::Wgmma(_) | Inst::WgmmaFence | Inst::WgmmaCommit | Inst::WgmmaWait(_) => {
                self.wgmma_op(c, w, s, pc, m, inst)
            }
            Inst::MmaSync(i) => self.mma_sync(c, w, s, pc, m, i),
            Inst::TcCp(shape, addr, desc) => self.tmem_cp(c, w, pc, m, *shape, *addr, *desc),
        }
    }

    fn brx(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        idx: u32,
        targets: &[u32],
    ) -> Res<Next> {
        let warp = &mut c.warps[w];
        if warp.regs.u32[idx as usize] & m != 0 && self.opts.checks.uninit {
            let f = Fault::new(Code::UninitBranch, "the index of brx.idx is undefined");
            return Err(self.fault(c, w, pc, m, f));
        }
        let mut groups: Vec<(u32, u32)> = Vec::new();
        for l in lanes(m) {
            let i = warp.regs.r32[idx as usize].0[l];
            let Some(&t) = targets.get(i as usize) else {
                let f =
                    Fault::new(Code::BoundsOther, format!("brx.idx index {i} of {} targets", targets.len()));
                return Err(self.fault(c, w, pc, 1 << l, f));
            };
            match groups.iter_mut().find(|g| g.0 == t) {
                Some(g) => g.1 |= 1 << l,
                None => groups.push((t, 1 << l)),
            }
        }
        let rest = warp.splits[s].mask & !m;
        if rest != 0 {
            groups.push((pc + 1, rest));
        }
        if let [(t, _)] = groups[..] {
            warp.splits[s].pc = t;
            if t == warp.splits[s].meet {
                arrive_meet(warp, s);
            }
        } else {
            diverge(warp, s, self.prog.code[pc as usize].reconverge, &groups);
        }
        Ok(Next::Regroup)
    }

    /// Lanes leave; others may have waited for them.
    fn exit_lanes(&mut self, c: &mut Cta, w: usize, s: usize, m: u32) {
        self.progress += 1;
        let warp = &mut c.warps[w];
        warp.live &= !m;
        warp.splits[s].mask &= !m;
        if warp.splits[s].mask == 0 {
            warp.splits.remove(s);
        }
        while let Some(i) =
            warp.splits.iter().position(|x| x.state == State::Reconverge && meet_complete(warp, x))
        {
            merge(warp, i);
        }
        // Lanes at a warp-synchronous instruction look again.
        for x in &mut warp.splits {
            if matches!(x.state, State::Sync(_)) {
                x.state = State::Ready;
            }
        }
        self.recheck_named(c);
        self.recheck_cluster(c);
    }

    /// A read or overwrite of a register that a tcgen05.ld fills.
    #[cold]
    fn touch(&mut self, c: &mut Cta, w: usize, srcs: (u32, u32), dsts: (u32, u32)) -> Res<()> {
        let prog = self.prog;
        for range in [srcs, dsts] {
            for &(class, r) in &prog.regs[range.0 as usize..range.1 as usize] {
                if class != Class::R32 {
                    continue;
                }
                if let LdState::Pending(op) = c.warps[w].ld_state[r as usize] {
                    self.land_op(c, op)?;
                }
                let warp = &mut c.warps[w];
                if let LdState::Unread(op) = warp.ld_state[r as usize] {
                    warp.ld_state[r as usize] = LdState::None;
                    warp.tracked -= 1;
                    if let Some(t) = warp.lds.iter_mut().find(|t| t.op == op) {
                        t.unread -= 1;
                        if t.unread == 0 {
                            self.hb_ld_done(c, w, op);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings the lanes of `need` together at a warp-synchronous instruction. `None`: not all are here yet.
    /// Else the groups that take part.
    pub(super) fn gather(&self, c: &mut Cta, w: usize, s: usize, need: u32) -> Option<Vec<usize>> {
        let warp = &mut c.warps[w];
        let (pc, need) = (warp.splits[s].pc, need & warp.live);
        if warp.splits[s].mask & need == need {
            return Some(vec![s]);
        }
        warp.splits[s].state = State::Sync(need);
        let here: Vec<usize> = (0..warp.splits.len())
            .filter(|&i| warp.splits[i].pc == pc && matches!(warp.splits[i].state, State::Sync(_)))
            .collect();
        let union = here.iter().fold(0, |a, &i| a | warp.splits[i].mask);
        (union & need == need).then_some(here)
    }

    /// Sends the groups that took part in a warp-synchronous instruction on their way.
    pub(super) fn release(&self, c: &mut Cta, w: usize, s: usize, groups: &[usize]) -> Next {
        if groups == [s] {
            return Next::Advance;
        }
        let warp = &mut c.warps[w];
        for &i in groups {
            warp.splits[i].pc += 1;
            warp.splits[i].state = State::Ready;
        }
        Next::Regroup
    }
}

/// Runs the unguarded register instructions that follow from `pc` on, at most `most` of them and none at or beyond
/// `meet`; returns how many. Nothing else has to be looked at between them; those that touch a wgmma's registers end
/// the stretch.
fn run_registers(code: &[Decoded], warp: &mut Warp, pc: u32, meet: u32, mask: u32, most: u32) -> u32 {
    let end = if meet > pc { most.min(meet - pc) } else { most };
    let mut n = 0;
    while n < end
        && let Some(Decoded { inst: Inst::Alu(op), guard: None, wgmma_regs: false, class, .. }) =
            code.get((pc + n) as usize)
    {
        warp.counts[*class as usize] += 1;
        (op.f)(&mut warp.regs, op, mask);
        n += 1;
    }
    n
}

/// Lane numbers of a mask.
#[inline]
pub(super) fn lanes(mut m: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if m == 0 {
            return None;
        }
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        Some(l)
    })
}

pub(super) fn mark_undefined(warp: &mut Warp, (class, r): Reg, m: u32) {
    let i = r as usize;
    match class {
        Class::P => warp.regs.up[i] |= m,
        Class::R32 => {
            warp.regs.u32[i] |= m;
            lanes(m).for_each(|l| warp.regs.b32[i][l] = 0xf);
        }
        Class::R64 | Class::R128 => {
            warp.regs.u64[i] |= m;
            lanes(m).for_each(|l| warp.regs.b64[i][l] = 0xff);
        }
    }
}

/// Splits a group by targets.
fn diverge(warp: &mut Warp, s: usize, reconverge: u32, groups: &[(u32, u32)]) {
    let base = warp.splits[s].clone();
    for (i, &(pc, mask)) in groups.iter().enumerate() {
        let mut sp: Split = base.clone();
        sp.pc = pc;
        sp.mask = mask;
        if reconverge != NO_PC {
            sp.stack.push((reconverge, base.mask));
            sp.meet = reconverge;
        }
        if i == 0 {
            warp.splits[s] = sp;
        } else {
            warp.splits.push(sp);
        }
    }
    // Pushing keeps indices, so each group that is already where it meets the others can be looked at in turn.
    while let Some(i) =
        warp.splits.iter().position(|x| x.state == State::Ready && x.meet != NO_PC && x.pc == x.meet)
    {
        arrive_meet(warp, i);
    }
}

/// A group reached its meeting point: it waits there, or everybody is there and goes on as one.
pub(super) fn arrive_meet(warp: &mut Warp, s: usize) {
    warp.splits[s].state = State::Reconverge;
    if meet_complete(warp, &warp.splits[s]) {
        merge(warp, s);
    }
}

fn same_meet(a: &Split, b: &Split) -> bool {
    a.stack.len() == b.stack.len() && a.stack.last() == b.stack.last()
}

fn meet_complete(warp: &Warp, sp: &Split) -> bool {
    let Some(&(_, want)) = sp.stack.last() else { return false };
    let here = warp.splits.iter().filter(|x| x.state == State::Reconverge && same_meet(x, sp));
    let union = here.fold(0, |a, x| a | x.mask);
    union & want & warp.live == want & warp.live
}

/// Joins the groups that wait at the same meeting point as group `s`.
fn merge(warp: &mut Warp, s: usize) {
    let mut one = warp.splits[s].clone();
    warp.splits.retain(|x| {
        let joins = x.state == State::Reconverge && same_meet(x, &one);
        if joins {
            one.mask |= x.mask;
        }
        !joins
    });
    one.stack.pop();
    one.meet = one.stack.last().map_or(NO_PC, |t| t.0);
    one.state = State::Ready;
    one.last_poll = None;
    let at_next = one.meet == one.pc && one.meet != NO_PC;
    warp.splits.push(one);
    if at_next {
        let i = warp.splits.len() - 1;
        arrive_meet(warp, i);
    }
}
