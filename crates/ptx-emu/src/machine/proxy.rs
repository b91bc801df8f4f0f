//! The proxy check: matrix instructions and bulk copies read shared memory through another path than ordinary stores
//! write it, and `fence.proxy.async` must stand between the two.
//!
//! An H200 reads old data in up to every iteration without the fence. It may be executed by the writer, by the reader
//! or by somebody between them, so a read is a fault only when no warp of the CTA has executed one since the write:
//! that cannot be a false alarm, and it misses a fence that some other warp happened to execute for something else.
//!
//! Only the order is checked; memory itself is coherent here.

use super::cta::{Cta, Origin};
use super::run::{Machine, Res, Stop};
use super::shared::{GRANULE, WINDOW_BASE};
use crate::fault::{Code, Fault};

/// The last ordinary store to a granule that nothing else has overwritten.
#[derive(Clone, Copy, Default)]
pub struct Stored {
    /// Machine step + 1; 0: none.
    pub step: u64,
    /// Program counter.
    pub pc: u32,
    /// Warp.
    pub warp: u32,
}

impl Machine<'_> {
    /// An ordinary store to `n` bytes of shared memory at offset `off`.
    #[inline]
    pub(super) fn stored(&self, c: &mut Cta, w: usize, pc: u32, off: usize, n: usize) {
        let s = Stored { step: self.steps + 1, pc, warp: w as u32 };
        c.shared.stored[off / GRANULE as usize..(off + n).div_ceil(GRANULE as usize)].fill(s);
    }

    /// An asynchronous read of granule `g`.
    #[inline]
    pub(super) fn proxy_read(&self, c: &Cta, w: usize, pc: u32, g: usize) -> Res<()> {
        // The happens-before check knows who fenced for whom.
        if !self.opts.checks.race
            && c.shared.stored[g].step > c.proxy_fence
            && self.peers.iter().flatten().all(|p| c.shared.stored[g].step > p.proxy_fence)
        {
            return Err(self.proxy_fault(c, w, pc, g));
        }
        Ok(())
    }

    #[cold]
    fn proxy_fault(&self, c: &Cta, w: usize, pc: u32, g: usize) -> Stop {
        let Stored { step, pc: at, warp } = c.shared.stored[g];
        let name =
            super::names::shared(&self.launch.annotations, c.dynamic_base, WINDOW_BASE + g as u32 * GRANULE);
        let o = Origin { warp, pc: at, step: step - 1 };
        let f = Fault::new(
            Code::ProxyFence,
            format!(
                "{name} is read by `{}` after `{}` wrote it, with no fence.proxy.async between",
                self.opcode(pc),
                self.opcode(at)
            ),
        )
        .earlier(self.site(c, o, 0, format!("write: {}", self.opcode(at))))
        .missing("fence.proxy.async by the writer after its stores, then the barrier that hands them over");
        self.fault(c, w, pc, 0, f)
    }
}
