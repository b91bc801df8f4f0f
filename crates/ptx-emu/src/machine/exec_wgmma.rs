//! wgmma: checked and put in flight here, one warp at a time; its sums are made when it lands.

use super::cta::{Cta, Origin, State};
use super::decode_mma::slot_bits;
use super::exec::Next;
use super::exec_mma::gather;
use super::inst::{Inst, Wgmma, WgmmaA};
use super::ops::{Kind, Pending, WgmmaOp};
use super::run::{Machine, Res, Stop};
use super::wgmma::Call;
use crate::fault::{Code, Fault};
use crate::isa::fragments;
use crate::isa::regs::{Class, V32};
use crate::isa::smem_desc::SmemDesc;
use crate::num::mma::{self, Format, Model};

/// Rows of D that one warp holds.
const ROWS: usize = 16;

impl Machine<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn wgmma_op(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        inst: &Inst,
    ) -> Res<Next> {
        let live = c.warps[w].live;
        if self.gather(c, w, s, live).is_none() {
            return Ok(Next::Block(State::Sync(live)));
        }
        self.whole_warp(c, w, pc, m)?;
        c.hb.meet(w, live);
        let wg = &mut c.warps[w].wgmma;
        match inst {
            Inst::WgmmaFence => {
                wg.fences += 1;
                wg.fenced = wg.issued();
            }
            Inst::WgmmaCommit => {
                let last = wg.issued();
                wg.groups.push_back(last);
            }
            Inst::WgmmaWait(n) => {
                let done = wg.groups.len().saturating_sub(*n as usize);
                if let Some(&last) = wg.groups.iter().take(done).next_back() {
                    if wg.landed < last {
                        return Ok(Next::Block(State::Wgmma));
                    }
                    wg.groups.drain(..done);
                    wg.released = last;
                    self.timed_wgmma_wait(c, w, last);
                    c.hb.wgmma_waited(w, last);
                }
            }
            Inst::Wgmma(i) => self.wgmma_issue(c, w, pc, i)?,
            _ => {}
        }
        Ok(Next::Advance)
    }

    fn wgmma_issue(&mut self, c: &mut Cta, w: usize, pc: u32, i: &Wgmma) -> Res<()> {
        let group = w / 4;
        let full = c.warps.get(4 * group..4 * group + 4).is_some_and(|g| g.iter().all(|w| w.lanes == !0));
        if !full {
            let f = Fault::new(
                Code::Converge,
                format!("warps {} to {} are not a warpgroup of 128 threads", 4 * group, 4 * group + 3),
            )
            .help("wgmma is executed by four whole warps, the first of which is a multiple of four");
            return Err(self.fault(c, w, pc, 0, f));
        }
        let b_bits = self.uniform64(c, w, pc, i.b, "descriptor of B")?;
        let a_bits = match i.a {
            WgmmaA::Desc(slot) => Some(self.uniform64(c, w, pc, slot, "descriptor of A")?),
            WgmmaA::Regs(_) => None,
        };
        let regs = &c.warps[w].regs;
        let (p, undefined) = (regs.p[i.scale_d.0 as usize], regs.up[i.scale_d.0 as usize]);
        self.defined(c, w, pc, undefined, Code::UninitAddress, "scale-d")?;
        if p != 0 && p != !0 {
            let f = Fault::new(Code::Converge, format!("scale-d differs between lanes ({p:#010x})"));
            return Err(self.fault(c, w, pc, 0, f));
        }
        let scale_d = (p != 0) != i.scale_d.1;
        self.wgmma_agree(c, w, pc, Call { pc, a: a_bits, b: b_bits, scale_d })?;
        if self.opts.checks.lease {
            self.wgmma_registers(c, w, pc, i)?;
        }
        let bits = slot_bits(i.a_fmt);
        let k = 256 / bits;
        let b = self.operand(c, w, pc, (b_bits, SmemDesc::wgmma(b_bits)), i.trans_b, bits, i.n, k)?;
        let a = match a_bits {
            Some(desc) => {
                let all = self.operand(c, w, pc, (desc, SmemDesc::wgmma(desc)), i.trans_a, bits, 64, k)?;
                let n = ROWS * k as usize;
                Some((all, w % 4 * n..(w % 4 + 1) * n))
            }
            None => None,
        };
        let origin = Origin { warp: w as u32, pc, step: self.steps };
        let wg = &mut c.warps[w].wgmma;
        wg.origins.push(origin);
        let seq = wg.issued();
        for &r in &i.d {
            wg.writer[r as usize] = seq;
        }
        if let WgmmaA::Regs(regs) = i.a {
            for r in regs {
                wg.reader[r as usize] = seq;
            }
        }
        self.lease_wgmma(c, w, pc, &b, bits / 8, seq)?;
        if let Some((a, range)) = &a {
            self.lease_wgmma(c, w, pc, &a[range.clone()], bits / 8, seq)?;
        }
        let operand = a.as_ref().map_or(&[][..], |(a, range)| &a[range.clone()]);
        self.hb_wgmma(c, w, pc, &[&b, operand], bits / 8)?;
        self.counters.mmas += u64::from(w.is_multiple_of(4));
        self.time_wgmma(c, w, i.n);
        let id = c.new_op(origin);
        let kind = Kind::Wgmma(Box::new(WgmmaOp { seq, a, b, scale_d }));
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind })
    }

    /// The timed schedule's account of a warp's share of a wgmma. The trace shows the first quarter of the SM.
    fn time_wgmma(&mut self, c: &mut Cta, w: usize, n: u32) {
        let Some(k) = &mut c.clocks else { return };
        let (begin, end) = k.wgmma(w, super::predict::wgmma_cycles(n));
        let role = self.role_of(w as u32).unwrap_or_else(|| format!("warp {w}"));
        if let Some(t) = self.trace.as_mut().filter(|_| w.is_multiple_of(4)) {
            let (track, name) = ("matrix pipe".into(), format!("mma → {role}"));
            t.events.push(crate::trace::Event { cta: c.id, track, name, begin, end, op: None });
        }
    }

    /// A wait moves the warp's clock to the end of the last wgmma that it covers.
    fn timed_wgmma_wait(&mut self, c: &mut Cta, w: usize, last: u32) {
        let role = self.role_of(w as u32).unwrap_or_default();
        if let Some(k) = &mut c.clocks {
            let end = k.wgmma_end(w, last);
            k.wait(w, end, c.id, "wgmma", &role, self.trace.as_mut());
        }
    }

    /// A 64-bit operand that must be the same in all lanes.
    fn uniform64(&self, c: &Cta, w: usize, pc: u32, slot: u32, what: &str) -> Res<u64> {
        let regs = &c.warps[w].regs;
        self.defined(c, w, pc, regs.u64[slot as usize], Code::UninitAddress, what)?;
        let values = &regs.r64[slot as usize].0;
        match values.iter().position(|v| *v != values[0]) {
            None => Ok(values[0]),
            Some(l) => {
                let (v, first) = (values[l], values[0]);
                let f = Fault::new(
                    Code::Descriptor,
                    format!("the {what} is {first:#018x} in lane 0 and {v:#018x} in lane {l}"),
                )
                .help("all threads of the warpgroup must give the same descriptor");
                Err(self.fault(c, w, pc, 1 << l, f))
            }
        }
    }

    /// The warps of a warpgroup execute the same wgmmas with the same operands.
    fn wgmma_agree(&self, c: &mut Cta, w: usize, pc: u32, call: Call) -> Res<()> {
        let seq = c.warps[w].wgmma.issued() + 1;
        let Err(first) = c.warpgroups[w / 4].join(seq, call) else { return Ok(()) };
        let other = (4 * (w / 4)..4 * (w / 4) + 4)
            .filter_map(|v| c.warps[v].wgmma.origins.get(seq as usize - 1))
            .find(|o| o.warp != w as u32)
            .copied();
        let f = if first.pc != pc {
            Fault::new(Code::Converge, "the warps of a warpgroup execute different wgmmas")
                .help("all four warps must reach the same wgmma: branch on conditions that are the same in a warpgroup")
        } else if first.scale_d != call.scale_d {
            Fault::new(Code::Converge, "scale-d differs between the warps of a warpgroup")
        } else {
            let what = if first.b != call.b { "descriptor of B" } else { "descriptor of A" };
            Fault::new(Code::Descriptor, format!("the {what} differs between the warps of a warpgroup"))
                .help("make the descriptor from values that are the same in all 128 threads")
        };
        let f = match other {
            Some(o) => f.earlier(self.site(c, o, 0, format!("issued: {}", self.opcode(o.pc)))),
            None => f,
        };
        Err(self.fault(c, w, pc, 0, f))
    }

    /// At the end of a CTA: every wgmma was executed by its whole warpgroup.
    pub(super) fn warpgroups_agree(&self, c: &Cta) -> Res<()> {
        let Some((g, (call, n))) =
            c.warpgroups.iter().enumerate().find_map(|(g, group)| Some((g, group.unfinished()?)))
        else {
            return Ok(());
        };
        let f = Fault::new(
            Code::Converge,
            format!("`{}` was executed by {n} of the four warps of warpgroup {g}", self.opcode(call.pc)),
        );
        Err(self.fault(c, 4 * g, call.pc, 0, f))
    }

    /// Register rules at the issue of a wgmma.
    fn wgmma_registers(&self, c: &Cta, w: usize, pc: u32, i: &Wgmma) -> Res<()> {
        let wg = &c.warps[w].wgmma;
        if wg.fences == 0 {
            let f =
                Fault::new(Code::WgmmaRegisters, "the first wgmma of the warp comes without a wgmma.fence")
                    .missing("wgmma.fence.sync.aligned before it");
            return Err(self.fault(c, w, pc, 0, f));
        }
        let a: &[u32] = match &i.a {
            WgmmaA::Regs(r) => r,
            WgmmaA::Desc(_) => &[],
        };
        for &r in i.d.iter().chain(a) {
            let (epoch, at, step) = wg.touched[r as usize];
            if epoch == wg.fences + 1 {
                let o = Origin { warp: w as u32, pc: at, step };
                let f = Fault::new(
                    Code::WgmmaRegisters,
                    format!("`{}` was accessed since the last wgmma.fence", self.register_name(r)),
                )
                .earlier(self.site(c, o, 0, format!("access: {}", self.opcode(at))))
                .missing("wgmma.fence.sync.aligned between the two");
                return Err(self.fault(c, w, pc, 0, f));
            }
        }
        if let Some((r, seq)) = a.iter().find_map(|&r| Some((r, wg.writing(r)?))) {
            return Err(self.wgmma_conflict(c, w, pc, r, seq, "writes", "read"));
        }
        // Two accumulations in a row need nothing between them while they have one shape.
        for &r in &i.d {
            let (writer, reader) = (wg.writer[r as usize], wg.reader[r as usize]);
            let other_shape = |seq: u32| {
                let before = &self.prog.code[wg.origins[seq as usize - 1].pc as usize].inst;
                !matches!(before, Inst::Wgmma(b) if (b.n, b.f16_acc, slot_bits(b.a_fmt)) == (i.n, i.f16_acc, slot_bits(i.a_fmt)))
            };
            let unordered = match () {
                _ if writer > wg.fenced.max(wg.released) && other_shape(writer) => Some((writer, "writes")),
                _ if reader > wg.fenced.max(wg.released) => Some((reader, "reads")),
                _ => None,
            };
            if let Some((seq, does)) = unordered {
                let stop = self.wgmma_conflict(c, w, pc, r, seq, does, "written");
                return Err(missing(stop, "wgmma.fence.sync.aligned between wgmmas of different shapes"));
            }
        }
        Ok(())
    }

    /// An ordinary instruction touches registers that some wgmma uses.
    pub(super) fn wgmma_touch(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        srcs: (u32, u32),
        dsts: (u32, u32),
    ) -> Res<()> {
        if !self.opts.checks.lease {
            return Ok(());
        }
        let prog = self.prog;
        let steps = self.steps;
        for (range, write) in [(srcs, false), (dsts, true)] {
            for &(class, r) in &prog.regs[range.0 as usize..range.1 as usize] {
                if class != Class::R32 || !prog.wgmma_regs[r as usize] {
                    continue;
                }
                let wg = &mut c.warps[w].wgmma;
                if let Some(seq) = wg.writing(r) {
                    let verb = if write { "written" } else { "read" };
                    return Err(self.wgmma_conflict(c, w, pc, r, seq, "writes", verb));
                }
                if write && let Some(seq) = wg.reading(r) {
                    return Err(self.wgmma_conflict(c, w, pc, r, seq, "reads", "written"));
                }
                wg.touched[r as usize] = (wg.fences + 1, pc, steps);
            }
        }
        Ok(())
    }

    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn wgmma_conflict(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        slot: u32,
        seq: u32,
        does: &str,
        verb: &str,
    ) -> Stop {
        let wg = &c.warps[w].wgmma;
        let o = wg.origins[seq as usize - 1];
        let by = self.opcode(o.pc);
        let closed = wg.groups.iter().any(|&last| last >= seq);
        let missing = if closed {
            "wgmma.wait_group that covers its group"
        } else {
            "wgmma.commit_group and a wgmma.wait_group that covers it"
        };
        let missing = format!(
            "{missing}, by {} after {} and before {}",
            self.who(w as u32),
            self.line(o.pc),
            self.line(pc)
        );
        let f = Fault::new(
            Code::WgmmaRegisters,
            format!(
                "`{}` is {verb} by `{}` while `{by}` still {does} it",
                self.register_name(slot),
                self.opcode(pc)
            ),
        )
        .earlier(self.site(c, o, 0, format!("issued: {by}")))
        .missing(missing);
        self.fault(c, w, pc, 0, f)
    }

    /// Name of the PTX register in a 32-bit slot.
    fn register_name(&self, slot: u32) -> String {
        let kernel = |f: &&crate::syntax::ast::Function| {
            f.is_entry && (self.launch.entry.is_empty() || f.name == self.launch.entry)
        };
        let id = self.prog.slots.regs.iter().position(|r| *r == (Class::R32, slot));
        id.zip(self.launch.module.functions.iter().find(kernel))
            .and_then(|(id, f)| f.regs.get(id))
            .map_or_else(|| format!("register {slot}"), |r| r.0.to_string())
    }

    /// D = A·B + D for the rows of one warp.
    pub(super) fn land_wgmma(&mut self, c: &mut Cta, w: usize, pc: u32, op: &WgmmaOp) {
        let prog = self.prog;
        let Inst::Wgmma(i) = &prog.code[pc as usize].inst else { return };
        let bits = slot_bits(i.a_fmt);
        let (n, k, per) = (i.n as usize, 256 / bits as usize, 32 / bits as usize);
        let mut buf = std::mem::take(&mut self.bufs);
        let b_undef = gather(c, &op.b, bits / 8, k, &mut buf.b);
        let a_undef = match (&op.a, i.a) {
            (Some((a, range)), _) => gather(c, &a[range.clone()], bits / 8, k, &mut buf.a),
            (None, WgmmaA::Regs(slots)) => a_from_registers(&c.warps[w].regs, &slots, per, k, &mut buf.a),
            (None, WgmmaA::Desc(_)) => return,
        };
        let regs = &mut c.warps[w].regs;
        // Which elements of the accumulator are undefined; filled only when there are some.
        let mut undef: Vec<bool> = vec![];
        if op.scale_d {
            buf.c.resize(ROWS * n, 0);
            let per_reg = if i.f16_acc { 2 } else { 1 };
            for e in 0..n / 2 {
                let (slot, half) = (i.d[e / per_reg] as usize, e % per_reg);
                let v = &regs.r32[slot].0;
                for_each_lane(e, n, |t, at| {
                    buf.c[at] = if i.f16_acc { v[t] >> (16 * half) & 0xffff } else { v[t] };
                });
                if regs.u32[slot] != 0 {
                    undef.resize(ROWS * n, false);
                    let mask = if i.f16_acc { 3 << (2 * half) } else { 0xf };
                    for_each_lane(e, n, |t, at| undef[at] = regs.bytes32(slot as u32, t) & mask != 0);
                }
            }
        }
        let any = !undef.is_empty() || a_undef.iter().chain(&b_undef).any(|&u| u);
        let shape = mma::Op {
            model: if bits == 8 { Model::WGMMA_FP8 } else { Model::WGMMA },
            a_fmt: i.a_fmt,
            b_fmt: i.b_fmt,
            m: ROWS,
            n,
            k,
            negate_a: i.negate_a,
            negate_b: i.negate_b,
        };
        buf.d.resize(ROWS * n, 0);
        let acc = op.scale_d.then_some(&buf.c[..]);
        if i.f16_acc {
            mma::mma_f16(&shape, &buf.a, &buf.b, acc, &mut buf.d, &mut self.scratch);
        } else {
            mma::mma(&shape, &buf.a, &buf.b, acc, &mut buf.d, &mut self.scratch);
        }
        let is_undef =
            |at: usize| a_undef[at / n] || b_undef[at % n] || undef.get(at).copied().unwrap_or(false);
        let per_reg = if i.f16_acc { 2 } else { 1 };
        for (r, &slot) in i.d.iter().enumerate() {
            let mut out = V32([0; 32]);
            let (mut lanes, mut bytes) = (0u32, [0u8; 32]);
            for h in 0..per_reg {
                let e = r * per_reg + h;
                for_each_lane(e, n, |t, at| out.0[t] |= buf.d[at] << (16 * h));
                if any {
                    for_each_lane(e, n, |t, at| {
                        if is_undef(at) {
                            lanes |= 1 << t;
                            bytes[t] |= if i.f16_acc { 3 << (2 * h) } else { 0xf };
                        }
                    });
                }
            }
            regs.r32[slot as usize] = out;
            regs.u32[slot as usize] = lanes;
            regs.b32[slot as usize] = bytes;
        }
        self.bufs = buf;
        c.warps[w].wgmma.landed = op.seq;
    }
}

/// The same fault, missing something else.
fn missing(stop: Stop, what: &str) -> Stop {
    match stop {
        Stop::Fault(f) => Stop::Fault(Box::new(f.missing(what))),
        other => other,
    }
}

/// Calls `f(thread, index)` for the 32 threads that hold element `e` of a 16 × n accumulator, which is row-major.
#[inline(always)]
fn for_each_lane(e: usize, n: usize, mut f: impl FnMut(usize, usize)) {
    let (row, col) = fragments::acc(0, e);
    for g in 0..8 {
        let at = (row + g) * n + col;
        for q in 0..4 {
            f(4 * g + q, at + 2 * q);
        }
    }
}

/// A of a warp from its registers, `per` elements in each; which rows hold an undefined byte.
pub(super) fn a_from_registers(
    regs: &crate::isa::regs::RegFile,
    slots: &[u32],
    per: usize,
    k: usize,
    out: &mut Vec<u32>,
) -> Vec<bool> {
    out.resize(ROWS * k, 0);
    let (width, mut undef) = (32 / per as u32, vec![false; ROWS]);
    for (r, &slot) in slots.iter().enumerate() {
        for t in 0..32 {
            let v = regs.r32[slot as usize].0[t];
            for j in 0..per {
                let (row, kk) = fragments::a(per, t, r, j);
                out[row * k + kk] = if per == 1 { v } else { v >> (width * j as u32) & ((1 << width) - 1) };
                undef[row] |= regs.u32[slot as usize] >> t & 1 != 0;
            }
        }
    }
    undef
}

/// A format whose elements take this many to a register.
pub(super) fn per_register(f: Format) -> usize {
    32 / slot_bits(f) as usize
}
