//! CTA pairs (`.cta_group::2`): one matrix operation uses the shared and tensor memory of two CTAs.
//!
//! The operation is one event, its issuer's: it is over when the issuer's commit says so, in both CTAs. What it reads
//! and writes is looked up and recorded in the shadows of both, each time with what the issuer knows. So a slot of the
//! peer is free for the peer only when the commit has reached the peer (multicast, or handed on by somebody who waited),
//! and the peer's operand is there only when its load or its writer has reached the issuer, a proxy fence of the peer's
//! writer or of the issuer included: both travel along the same edges as within a CTA.
//!
//! # Deallocation
//!
//! `tcgen05.dealloc` gives up the columns of the pair: the manual wants the peer to have finished with tensor memory
//! before. It counts as a write of both CTAs' columns. The two deallocations need no order among themselves, nor does
//! the allocation of the one CTA order anything of the other: both get their columns at the same time, with a clean
//! shadow.
//!
//! # Two issuers
//!
//! The pipes of two CTAs know nothing of each other: matrix operations of different CTAs on the same columns need a
//! commit and a wait between them, as if one of them were not a matrix operation ([`super::event::Events::ordered`]).
//!
//! # What it can miss
//!
//! That the odd CTA allocated at all before the even one issues (the collective allocation implies it); a `.cta` scope
//! on an arrival at the peer's barrier, as in clusters.

use super::super::cluster::abroad;
use super::super::cta::Cta;
use super::super::ops::{MmaOp, ScaleOp};
use super::super::run::{Machine, Res};
use crate::isa::tcgen05_layout::DLayout;

impl Machine<'_> {
    /// Calls `f` for the CTA of warp `w`, and in a kernel of CTA pairs also for the other CTA of the pair, with the
    /// warp's number there.
    pub(super) fn hb_both(
        &mut self,
        c: &mut Cta,
        w: usize,
        mut f: impl FnMut(&mut Self, &mut Cta, usize) -> Res<()>,
    ) -> Res<()> {
        f(self, c, w)?;
        if !self.prog.pair {
            return Ok(());
        }
        let (other, by) = (c.rank ^ 1, abroad(c.rank, w));
        self.on(c, other, |m, c| f(m, c, by))
    }
}

impl MmaOp {
    /// The lanes of a CTA that the lane mask of the instruction spares.
    pub(super) fn spared(&self, pair: bool, rank: u32) -> u128 {
        self.mask[if pair { rank as usize & 1 } else { 0 }]
    }

    /// Block scales in tensor memory: first column and columns, of A's factors and of B's. With M = 128 in a pair each
    /// CTA has 64 rows of A, and B's factors lie in two halves side by side.
    pub(super) fn scale_columns(&self, s: &ScaleOp) -> [(u32, u32); 2] {
        let rows = if self.layout == DLayout::B { 64 } else { 128u32 };
        [(s.a, rows / 32), (s.b, self.columns().div_ceil(32))]
    }
}
