//! Cluster launch control: a running cluster takes over the work of one that has not started.
//!
//! The grid's clusters start in order of their numbers, so the one that a request cancels is the next in that order.
//! Which cluster that is, is settled when the request is issued; the response lands later, as a write through the async
//! proxy that completes 16 bytes on the barrier. Its layout (read off the assembler's code for the queries): word 0 is
//! ctaid.x of the cancelled cluster's first CTA, word 1 y in the lower and z in the upper half, bit 0 of word 2 says
//! that a cluster was cancelled.
//!
//! After a thread of a CTA has seen that nothing was left, that CTA must not ask again (`launch.control`).

use super::cluster::abroad;
use super::cta::{Cta, Origin};
use super::decode::{Cx, One, addr_reg, reject};
use super::decode_async::arg;
use super::exec::{Next, lanes};
use super::inst::{Addr, Inst, LaunchControl, OpClass, Reg};
use super::ops::{Kind, Pending};
use super::run::{Machine, Res};
use super::shared::WINDOW_BASE;
use crate::fault::{Code, Fault};
use crate::isa::operands::{Decoded, unsupported};
use crate::isa::regs::Class;
use crate::syntax::ast::{Opcode, Operand};

/// Bytes of a response.
const RESPONSE: u32 = 16;

impl Cx<'_> {
    pub(super) fn launch_control(&mut self, op: &Opcode, verb: &str, args: &[Operand]) -> Decoded<One> {
        match verb {
            "try_cancel" => {
                let mut everywhere = false;
                for m in op.mods.get(1..).unwrap_or_default() {
                    match m.as_str() {
                        "async" | "shared::cta" | "mbarrier::complete_tx::bytes" | "b128" => {}
                        "multicast::cluster::all" => everywhere = true,
                        m => return Err(reject(op, m)),
                    }
                }
                let at = self.addr(arg(op, args, 0)?)?;
                let mbar = self.addr(arg(op, args, 1)?)?;
                let srcs: Vec<Reg> = addr_reg(at).into_iter().chain(addr_reg(mbar)).collect();
                Ok(control(LaunchControl::TryCancel(at, mbar, everywhere)).src(srcs))
            }
            "query_cancel" => {
                let response = self.wide_slot(op, arg(op, args, 1)?)?;
                let source = [(Class::R64, response), (Class::R64, response + 1)];
                if op.has("is_canceled") {
                    let p = self.slots.dst_p(arg(op, args, 0)?)?;
                    return Ok(control(LaunchControl::IsCanceled(p, response))
                        .src(source)
                        .dst([(Class::P, p)]));
                }
                let mut at = [None; 3];
                let axis = |m: &str| op.mods.iter().any(|x| x == m);
                match arg(op, args, 0)? {
                    Operand::Vector(v) if axis("get_first_ctaid") && axis("v4") && v.len() == 4 => {
                        for (a, o) in at.iter_mut().zip(v).filter(|(_, o)| !matches!(o, Operand::Sink)) {
                            *a = Some(self.slots.dst32(o)?);
                        }
                    }
                    o => {
                        let axes = ["get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"];
                        let Some(i) = axes.iter().position(|m| axis(m)) else {
                            return unsupported(format!("opcode `{}`", op.text));
                        };
                        at[i] = Some(self.slots.dst32(o)?);
                    }
                }
                let dsts: Vec<Reg> = at.iter().flatten().map(|&r| (Class::R32, r)).collect();
                Ok(control(LaunchControl::FirstCtaid(at, response)).src(source).dst(dsts))
            }
            _ => unsupported(format!("opcode `{}`", op.text)),
        }
    }
}

fn control(i: LaunchControl) -> One {
    One::new(Inst::LaunchControl(Box::new(i)), OpClass::Other)
}

impl Machine<'_> {
    pub(super) fn launch_control(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        i: &LaunchControl,
    ) -> Res<Next> {
        match *i {
            LaunchControl::TryCancel(at, mbar, everywhere) => {
                for l in lanes(m) {
                    self.try_cancel(c, w, pc, l, (at, mbar), everywhere)?;
                }
            }
            LaunchControl::IsCanceled(p, response) => {
                for l in lanes(m) {
                    let regs = &mut c.warps[w].regs;
                    let word = regs.r64[response as usize + 1].0[l];
                    let undef = regs.bytes64(response + 1, l) & 1 != 0;
                    regs.setp(p, l, word & 1 != 0, undef);
                    c.nothing_left |= !undef && word & 1 == 0;
                }
            }
            LaunchControl::FirstCtaid(at, response) => {
                for l in lanes(m) {
                    let regs = &mut c.warps[w].regs;
                    let (word, undef) = (regs.r64[response as usize].0[l], regs.bytes64(response, l));
                    let flag = regs.r64[response as usize + 1].0[l];
                    if flag & 1 == 0 && regs.bytes64(response + 1, l) & 1 == 0 {
                        let f = Fault::new(
                            Code::LaunchControl,
                            format!(
                                "`{}` on the response of a request that cancelled nothing",
                                self.opcode(pc)
                            ),
                        )
                        .help("branch on query_cancel.is_canceled first");
                        return Err(self.fault(c, w, pc, 1 << l, f));
                    }
                    let parts = [(0, 4), (4, 2), (6, 2)];
                    for (&d, (byte, n)) in at.iter().zip(parts) {
                        let Some(d) = d else { continue };
                        let keep = (1u64 << (8 * n)) - 1;
                        let bad = undef >> byte & ((1 << n) - 1) as u8 != 0;
                        regs.set32(d, l, (word >> (8 * byte) & keep) as u32, if bad { 0xf } else { 0 });
                    }
                }
            }
        }
        Ok(Next::Advance)
    }

    fn try_cancel(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        (at, mbar): (Addr, Addr),
        everywhere: bool,
    ) -> Res<()> {
        self.addr_defined(c, w, pc, 1 << l, at)?;
        self.addr_defined(c, w, pc, 1 << l, mbar)?;
        if c.nothing_left {
            let f = Fault::new(
                Code::LaunchControl,
                "clusterlaunchcontrol.try_cancel after this CTA has seen that nothing was left to cancel",
            );
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        let (dst, mbar) = (self.own_shared(c, w, pc, l, at)?, self.own_shared(c, w, pc, l, mbar)?);
        if dst % RESPONSE != 0 {
            let text = format!("the response's address {dst:#x} is not a multiple of 16");
            return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::Align, text)));
        }
        let mut data = [0u8; RESPONSE as usize];
        if self.next_cluster < self.clusters {
            let [x, y, z] = self.first_cta(self.next_cluster);
            self.next_cluster += 1;
            data[..4].copy_from_slice(&x.to_le_bytes());
            data[4..8].copy_from_slice(&(y | z << 16).to_le_bytes());
            data[8] = 1;
        }
        let from = c.rank;
        let to = if everywhere { 0..self.cluster_size() } else { from..from + 1 };
        for rank in to {
            self.reach(c, w, pc, 1 << l, u64::from(rank) << 24)?;
            let w = if rank == from { w } else { abroad(from, w) };
            self.on(c, rank, |m, c| {
                m.completes_on(c, w, pc, mbar)?;
                let id = c.new_op(Origin { warp: w as u32, pc, step: m.steps });
                let chunks = super::exec_bulk::linear(dst, 0, RESPONSE);
                m.lease_chunks(c, w, pc, &chunks, Some(id), true)?;
                m.hb_mbar_use(c, w, pc, 1 << l, mbar)?;
                m.hb_mbar_far(c, w, pc, 1 << l, mbar);
                m.hb_bulk(c, w, pc, l, id, &chunks, super::hb::Does::Write)?;
                m.put_in_flight(
                    c,
                    Pending { id, warp: w as u32, pc, kind: Kind::Response { dst, mbar, data } },
                )
            })?;
        }
        Ok(())
    }

    /// A response lands.
    pub(super) fn land_response(&mut self, c: &mut Cta, p: &Pending) -> Res<()> {
        let Kind::Response { dst, mbar, data } = &p.kind else { return Ok(()) };
        let off = (dst - WINDOW_BASE) as usize;
        c.shared.store(off, data, 0);
        c.shared.stored[off / 16] = Default::default();
        self.completed(c, p, c.rank, *mbar, RESPONSE)
    }
}
