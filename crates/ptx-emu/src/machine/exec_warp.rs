//! Instructions among the lanes of a warp: shuffles, votes, reductions, election.

use super::cta::{Cta, State};
use super::exec::{Next, lanes};
use super::inst::{Inst, ReduxOp, ShflMode, VoteMode};
use super::run::{Machine, Res};
use crate::fault::{Code, Fault};
use crate::isa::regs::Class;

impl Machine<'_> {
    /// An `.aligned` instruction must be executed by every live lane.
    pub(super) fn whole_warp(&self, c: &Cta, w: usize, pc: u32, m: u32) -> Res<()> {
        let live = c.warps[w].live;
        if m == live {
            return Ok(());
        }
        let f = Fault::new(
            Code::Converge,
            format!("`{}` is executed by lanes {m:#010x} of {live:#010x}", self.opcode(pc)),
        )
        .help("an .aligned instruction needs the whole warp: move it out of divergent code, or guard it by a condition that is the same in all lanes");
        Err(self.fault(c, w, pc, m, f))
    }

    pub(super) fn warp_op(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        inst: &Inst,
    ) -> Res<Next> {
        if let Inst::ActiveMask(d) = inst {
            let regs = &mut c.warps[w].regs;
            lanes(m).for_each(|l| regs.set32(*d, l, m, 0));
            return Ok(Next::Advance);
        }
        let mask_slot = match *inst {
            Inst::Shfl { s, .. } => s[3],
            Inst::Vote { mask, .. } => mask,
            Inst::Redux(_, _, _, mask)
            | Inst::Match(.., mask)
            | Inst::Elect(_, _, mask)
            | Inst::BarWarp(mask) => mask,
            _ => return Ok(Next::Advance),
        };
        let first = m.trailing_zeros() as usize;
        let undef = c.warps[w].regs.u32[mask_slot as usize] & m;
        self.defined(c, w, pc, undef, Code::UninitBarrier, "the member mask")?;
        let need = c.warps[w].regs.r32[mask_slot as usize].0[first];
        if need >> first & 1 == 0 {
            let f = Fault::new(
                Code::Converge,
                format!(
                    "lane {first} executes `{}` but is not in its member mask {need:#010x}",
                    self.opcode(pc)
                ),
            );
            return Err(self.fault(c, w, pc, m, f));
        }
        // Lanes that a guard masks off take no part and are not waited for beyond what the mask demands.
        let Some(groups) = self.gather(c, w, s, need) else { return Ok(Next::Block(State::Sync(need))) };
        let mut all =
            if groups.len() == 1 { m } else { groups.iter().fold(0, |a, &i| a | c.warps[w].splits[i].mask) };
        all &= c.warps[w].live;
        if need & c.warps[w].live & !all != 0 {
            let f = Fault::new(
                Code::Converge,
                format!(
                    "`{}` names lanes {need:#010x}, of which {:#010x} do not execute it",
                    self.opcode(pc),
                    need & !all
                ),
            );
            return Err(self.fault(c, w, pc, all, f));
        }
        c.hb.meet(w, all & need);
        self.exchange(c, w, pc, all & need, inst)?;
        Ok(self.release(c, w, s, &groups))
    }

    fn exchange(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, inst: &Inst) -> Res<()> {
        match *inst {
            Inst::BarWarp(_) => {}
            Inst::Elect(d, p, _) => {
                let Some(leader) = crate::isa::elect::elect(m) else { return Ok(()) };
                let regs = &mut c.warps[w].regs;
                for l in lanes(m) {
                    regs.setp(p, l, l as u32 == leader, false);
                    if let Some(d) = d {
                        regs.set32(d, l, leader, 0);
                    }
                }
            }
            Inst::Shfl { mode, d, p, s } => {
                self.defined(
                    c,
                    w,
                    pc,
                    c.warps[w].regs.u32[s[1] as usize] & m,
                    Code::UninitBarrier,
                    "the lane operand",
                )?;
                let regs = &c.warps[w].regs;
                let (mut v, mut u, mut ok, mut bad) = ([0u32; 32], [0u8; 32], 0u32, None);
                for l in lanes(m) {
                    let (b, cl) = (regs.r32[s[1] as usize].0[l], regs.r32[s[2] as usize].0[l]);
                    let (j, inside) = source_lane(mode, l as i32, b, cl);
                    let j = if inside { j } else { l };
                    if m >> j & 1 == 0 {
                        bad = Some((l, j));
                        u[l] = 0xf;
                    } else {
                        (v[l], u[l]) = (regs.r32[s[0] as usize].0[j], regs.bytes32(s[0], j));
                    }
                    ok |= u32::from(inside) << l;
                }
                if let Some((l, j)) = bad {
                    let f = Fault::new(
                        Code::Converge,
                        format!("lane {l} shuffles from lane {j}, which does not take part"),
                    );
                    return Err(self.fault(c, w, pc, 1 << l, f));
                }
                let regs = &mut c.warps[w].regs;
                for l in lanes(m) {
                    regs.set32(d, l, v[l], u[l]);
                    if let Some(p) = p {
                        regs.setp(p, l, ok >> l & 1 != 0, false);
                    }
                }
            }
            Inst::Vote { mode, d, src: (p, neg), .. } => {
                let regs = &mut c.warps[w].regs;
                let v = (regs.p[p as usize] ^ if neg { !0 } else { 0 }) & m;
                let undef = regs.up[p as usize] & m != 0;
                let r = match mode {
                    VoteMode::All => v == m,
                    VoteMode::Any => v != 0,
                    VoteMode::Uni => v == 0 || v == m,
                    VoteMode::Ballot => false,
                };
                for l in lanes(m) {
                    if mode == VoteMode::Ballot {
                        regs.set32(d, l, v, if undef { 0xf } else { 0 });
                    } else {
                        regs.setp(d, l, r, undef);
                    }
                }
            }
            Inst::Redux(op, d, s, _) => {
                let regs = &mut c.warps[w].regs;
                let undef = regs.u32[s as usize] & m != 0;
                let vals: Vec<u32> = lanes(m).map(|l| regs.r32[s as usize].0[l]).collect();
                let r = redux(op, &vals);
                lanes(m).for_each(|l| regs.set32(d, l, r, if undef { 0xf } else { 0 }));
            }
            Inst::Match(all, d, p, (class, s), _) => {
                let regs = &mut c.warps[w].regs;
                let get = |l: usize| match class {
                    Class::R64 => regs.r64[s as usize].0[l],
                    _ => u64::from(regs.r32[s as usize].0[l]),
                };
                let masks: Vec<(usize, u32)> = lanes(m)
                    .map(|l| (l, lanes(m).filter(|&k| get(k) == get(l)).fold(0, |a, k| a | 1 << k)))
                    .collect();
                let undef = match class {
                    Class::R64 => regs.u64[s as usize] & m != 0,
                    _ => regs.u32[s as usize] & m != 0,
                };
                for (l, same) in masks {
                    let r = if all && same != m { 0 } else { same };
                    regs.set32(d, l, r, if undef { 0xf } else { 0 });
                    if let Some(p) = p {
                        regs.setp(p, l, same == m, undef);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Lane that a shuffle reads and whether it is in range.
fn source_lane(mode: ShflMode, lane: i32, b: u32, c: u32) -> (usize, bool) {
    let (seg, clamp, b) = ((c >> 8 & 31) as i32, (c & 31) as i32, b as i32 & 31);
    let max = lane & seg | clamp & !seg;
    let min = lane & seg;
    let (j, inside) = match mode {
        ShflMode::Up => (lane - b, lane - b >= max),
        ShflMode::Down => (lane + b, lane + b <= max),
        ShflMode::Bfly => (lane ^ b, lane ^ b <= max),
        ShflMode::Idx => {
            let j = min | b & !seg;
            (j, j <= max)
        }
    };
    ((j & 31) as usize, inside)
}

fn redux(op: ReduxOp, v: &[u32]) -> u32 {
    use ReduxOp::*;
    let it = v.iter().copied();
    match op {
        Add => it.fold(0, u32::wrapping_add),
        MinU => it.min().unwrap_or(0),
        MaxU => it.max().unwrap_or(0),
        MinS => it.map(|x| x as i32).min().unwrap_or(0) as u32,
        MaxS => it.map(|x| x as i32).max().unwrap_or(0) as u32,
        And => it.fold(!0, |a, b| a & b),
        Or => it.fold(0, |a, b| a | b),
        Xor => it.fold(0, |a, b| a ^ b),
        MinF { abs, nan } | MaxF { abs, nan } => {
            const NAN: u32 = 0x7fff_ffff;
            let is_nan = |x: u32| x & 0x7fff_ffff > 0x7f80_0000;
            let it = it.map(|x| if abs { x & 0x7fff_ffff } else { x });
            if nan && it.clone().any(is_nan) {
                return NAN;
            }
            // Total order of finite values and infinities with -0 < +0: the sign-magnitude integer order.
            let key = |x: &u32| if *x >> 31 != 0 { !*x as i32 ^ i32::MIN } else { *x as i32 };
            let rest = it.filter(|&x| !is_nan(x));
            match op {
                MinF { .. } => rest.min_by_key(key),
                _ => rest.max_by_key(key),
            }
            .unwrap_or(NAN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_segments() {
        // Width 32, clamp 31: butterfly over 16; up by 1 from lane 0 is out of range.
        assert_eq!(source_lane(ShflMode::Bfly, 3, 16, 31), (19, true));
        assert!(!source_lane(ShflMode::Up, 0, 1, 0).1);
        assert_eq!(source_lane(ShflMode::Up, 5, 1, 0), (4, true));
        assert!(!source_lane(ShflMode::Down, 31, 1, 31).1);
        // Width 8: segment mask 0x18.
        assert_eq!(source_lane(ShflMode::Idx, 13, 2, 0x181f), (10, true));
    }

    #[test]
    fn floating_reductions() {
        let max = MaxF { abs: false, nan: false };
        use ReduxOp::*;
        assert_eq!(redux(max, &[0x8000_0000, 0]), 0);
        assert_eq!(redux(max, &[0xbf80_0000, 0xc000_0000]), 0xbf80_0000);
        assert_eq!(
            redux(MinF { abs: false, nan: false }, &[0xbf80_0000, 0xc000_0000, 0x7fc0_0000]),
            0xc000_0000
        );
        assert_eq!(redux(MaxF { abs: false, nan: true }, &[0, 0x7fc0_0000]), 0x7fff_ffff);
    }
}
