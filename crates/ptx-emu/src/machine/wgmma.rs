//! Bookkeeping of wgmma: what each warp has issued, closed and waited for, and who touched its registers when.
//!
//! The machine runs a wgmma as four independent operations, one for each warp of the warpgroup: the 16 rows of D that
//! a warp holds depend on its own rows of A and on all of B. The operations of a warp execute in issue order; those
//! of different warps in any. That the four warps agree on instruction and descriptors is checked by comparing what
//! they issue, without making them wait for each other.

use super::cta::{Cta, Origin};
use super::decode::Program;
use super::inst::{Decoded, Inst, Reg};
use crate::isa::regs::Class;
use std::collections::VecDeque;

/// State of one warp. Sequence numbers count its wgmmas from 1; 0 means none.
#[derive(Default)]
pub struct WgmmaState {
    /// Where each was issued (sequence number − 1).
    pub origins: Vec<Origin>,
    /// The last that landed.
    pub landed: u32,
    /// Last sequence number of each closed group that no wait has covered, oldest first.
    pub groups: VecDeque<u32>,
    /// Everything up to this one was waited for.
    pub released: u32,
    /// `wgmma.fence`s executed.
    pub fences: u32,
    /// The last one issued before the last fence.
    pub fenced: u32,
    /// Per 32-bit slot: the last wgmma that writes it.
    pub writer: Vec<u32>,
    /// Per 32-bit slot: the last wgmma that reads it as A.
    pub reader: Vec<u32>,
    /// Per 32-bit slot: 1 + fences executed before the last ordinary access (0 = never), and where that was.
    pub touched: Vec<(u32, u32, u64)>,
}

impl WgmmaState {
    /// State of a warp that starts `prog`.
    pub fn new(prog: &Program) -> WgmmaState {
        let n = prog.wgmma_regs.len();
        WgmmaState { writer: vec![0; n], reader: vec![0; n], touched: vec![(0, 0, 0); n], ..Self::default() }
    }

    /// Sequence number of the newest wgmma.
    pub fn issued(&self) -> u32 {
        self.origins.len() as u32
    }

    /// The wgmma that still writes a slot.
    pub fn writing(&self, slot: u32) -> Option<u32> {
        Some(self.writer[slot as usize]).filter(|&s| s > self.released)
    }

    /// The wgmma that still reads a slot.
    pub fn reading(&self, slot: u32) -> Option<u32> {
        Some(self.reader[slot as usize]).filter(|&s| s > self.released)
    }
}

/// What a warp issued, as far as its warpgroup must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Program counter.
    pub pc: u32,
    /// Descriptor of A, where A lies in shared memory.
    pub a: Option<u64>,
    /// Descriptor of B.
    pub b: u64,
    /// scale-d.
    pub scale_d: bool,
}

/// The wgmmas of a warpgroup that some of its warps have not reached yet.
#[derive(Clone, Default)]
pub struct Warpgroup {
    /// Sequence number of the first call, less 1.
    base: u32,
    calls: VecDeque<(Call, u32)>,
}

impl Warpgroup {
    /// Records call number `seq` (from 1) of one of four warps. The call that another warp made, where it differs.
    pub fn join(&mut self, seq: u32, call: Call) -> Result<(), Call> {
        let at = (seq - 1 - self.base) as usize;
        if at == self.calls.len() {
            self.calls.push_back((call, 0));
        }
        let (first, warps) = &mut self.calls[at];
        if *first != call {
            return Err(*first);
        }
        *warps += 1;
        while self.calls.front().is_some_and(|c| c.1 == 4) {
            self.calls.pop_front();
            self.base += 1;
        }
        Ok(())
    }

    /// The oldest call that not all four warps made: it, and how many did.
    pub fn unfinished(&self) -> Option<(Call, u32)> {
        self.calls.front().copied()
    }
}

impl Cta {
    /// Where the wgmma was issued that still reads granule `g` of shared memory.
    #[inline]
    pub fn wgmma_reader(&self, g: usize) -> Option<Origin> {
        if self.shared.wgmma_read.is_empty() {
            return None;
        }
        let reads = &self.shared.wgmma_read[g * self.warps.len()..][..self.warps.len()];
        let held = reads.iter().zip(&self.warps).find(|(seq, warp)| **seq > warp.wgmma.released);
        held.map(|(seq, warp)| warp.wgmma.origins[*seq as usize - 1])
    }
}

/// Marks the registers that some wgmma uses, and the other instructions that touch one of them. Empty when the kernel
/// has no wgmma.
pub fn mark_registers(code: &mut [Decoded], regs: &[Reg], slots: usize) -> Vec<bool> {
    let range = |(from, to): (u32, u32)| regs[from as usize..to as usize].iter();
    let used = |d: &Decoded| -> Vec<u32> {
        let r32 = |r: &&Reg| r.0 == Class::R32;
        range(d.srcs).chain(range(d.dsts)).filter(r32).map(|r| r.1).collect()
    };
    let is_wgmma = |d: &Decoded| matches!(d.inst, Inst::Wgmma(_));
    if !code.iter().any(is_wgmma) {
        return vec![];
    }
    let mut marked = vec![false; slots];
    for slot in code.iter().filter(|d| is_wgmma(d)).flat_map(used) {
        marked[slot as usize] = true;
    }
    for d in code.iter_mut().filter(|d| !is_wgmma(d)) {
        d.wgmma_regs = used(d).iter().any(|&slot| marked[slot as usize]);
    }
    marked
}
