//! CTA pairs (`.cta_group::2`): two CTAs of a cluster whose ranks differ in bit 0 share tensor-core operations.
//!
//! A matrix operation is issued by one thread of one of the two; it reads both CTAs' shared memory at the same offsets
//! and writes both CTAs' tensor memory, so it stands in the books of both. Its issuer's pipe executes it.
//! [`Cta::pair_seqs`] leads from its number at the issuer to that at the other CTA, which commits release too.

use super::cluster::{abroad, home};
use super::cta::{Cta, Origin, State};
use super::run::{Machine, Res};
use crate::fault::{Code, Fault};

impl Machine<'_> {
    /// Rank of the other CTA of the pair, which must be there.
    pub(super) fn other_of_pair(&self, c: &Cta, w: usize, pc: u32) -> Res<u32> {
        let other = c.rank ^ 1;
        if other >= self.cluster_size() {
            let f = Fault::new(
                Code::TmemPair,
                format!(
                    "`{}` in a cluster of {}: its CTA has no other one to pair with",
                    self.opcode(pc),
                    self.cluster_size()
                ),
            )
            .help("launch with a cluster of an even number of CTAs");
            return Err(self.fault(c, w, pc, 0, f));
        }
        self.reach(c, w, pc, 0, u64::from(other) << 24)?;
        Ok(other)
    }

    /// Enters a matrix operation of lane `l` into the books of its CTA, and of the other one of a pair; returns its
    /// number. `leases` does what is to be done in each CTA, with the warp as that CTA's messages name it.
    pub(super) fn enter_pipe(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        mut leases: impl FnMut(&mut Self, &mut Cta, usize, u32) -> Res<()>,
    ) -> Res<u32> {
        let step = self.steps;
        c.mma_origins.push(Origin { warp: w as u32, pc, step });
        let seq = c.mma_origins.len() as u32;
        c.mma_last.insert((w as u32, l as u32), seq);
        leases(self, c, w, seq)?;
        if self.prog.pair {
            let other = self.other_of_pair(c, w, pc)?;
            let by = abroad(c.rank, w);
            let there = self.on(c, other, |m, c| {
                c.mma_origins.push(Origin { warp: by as u32, pc, step });
                let seq = c.mma_origins.len() as u32;
                let last = c.pair_seqs.last().copied().unwrap_or(0);
                c.pair_seqs.resize(seq as usize, last);
                leases(m, c, by, seq)?;
                Ok(seq)
            })?;
            c.pair_seqs.push(there);
        }
        Ok(seq)
    }

    /// Two CTAs of a pair issue to one accumulator, and nothing orders their pipes.
    pub(super) fn one_issuer(&self, c: &Cta, w: usize, pc: u32, col: u32, cols: u32) -> Res<()> {
        if !self.prog.pair || !self.opts.checks.lease {
            return Ok(());
        }
        let issuer = home(w as u32).0.unwrap_or(c.rank);
        for x in col..col + cols {
            let last = c.tmem.mma_write[x as usize][0];
            if last <= c.mma_released {
                continue;
            }
            let o = c.mma_origins[last as usize - 1];
            if home(o.warp).0.unwrap_or(c.rank) != issuer {
                let name = super::names::column(&self.launch.annotations, x);
                let f = Fault::new(
                    Code::LeaseTmem,
                    format!("both CTAs of the pair issue matrix instructions to {name}: nothing orders the two"),
                )
                .earlier(self.site(c, o, 0, format!("issued: {}", self.opcode(o.pc))))
                .help("one thread of the pair issues for both CTAs; by convention of the one with the even rank");
                return Err(self.fault(c, w, pc, 0, f));
            }
        }
        Ok(())
    }

    /// Allocation in both CTAs of a pair: each brings a warp, and both get the same columns. `None`: the other CTA is
    /// not here yet, or there is no room in both.
    pub(super) fn alloc_pair(&mut self, c: &mut Cta, w: usize, pc: u32, n: u32) -> Res<Option<u32>> {
        if let Some(col) = c.pair_got.take() {
            return Ok(Some(col));
        }
        c.pair_wants = Some(n);
        let other = self.other_of_pair(c, w, pc)?;
        let Some(theirs) = self.peer(other).and_then(|p| p.pair_wants) else { return Ok(None) };
        if theirs != n {
            let text =
                format!("tcgen05.alloc of {n} columns in one CTA of the pair and of {theirs} in the other");
            return Err(self.fault(c, w, pc, 0, Fault::new(Code::TmemPair, text)));
        }
        let Some(p) = self.peers[other as usize].as_deref_mut() else { return Ok(None) };
        let Some(col) = c.tmem.alloc_both(&mut p.tmem, n) else { return Ok(None) };
        (c.pair_wants, p.pair_wants, p.pair_got) = (None, None, Some(col));
        p.hb.allocated(col, n);
        c.hb.allocated(col, n);
        wake(p);
        Ok(Some(col))
    }

    /// Columns were freed: those who wait for some look again, in both CTAs of a pair.
    pub(super) fn columns_freed(&mut self, c: &mut Cta) {
        self.progress += 1;
        wake(c);
        if self.prog.pair
            && let Some(Some(p)) = self.peers.get_mut((c.rank ^ 1) as usize)
        {
            wake(p);
        }
    }
}

fn wake(c: &mut Cta) {
    for s in c.warps.iter_mut().flat_map(|w| &mut w.splits).filter(|s| s.state == State::Alloc) {
        s.state = State::Ready;
    }
}
