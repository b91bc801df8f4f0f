//! Accesses between CTAs of a cluster. The shadow, the mbarriers and the operations under way are those of the CTA
//! whose shared memory is touched; what is known, and the clock that moves on, are those of the CTA that issues
//! ([`abroad`] warp numbers name it).

use super::super::cluster::{Ctas, abroad, home};
use super::super::cta::Cta;
use super::super::inst::{Mbar, MbarOp};
use super::super::ops::{OpId, RemoteStore};
use super::super::run::{Machine, Res};
use super::super::shared::WINDOW_BASE;
use super::clock::Know;
use super::event::{End, Kind, View, stamp};
use super::far::Far;
use super::lanes::WarpHb;
use super::shared::Does;
use super::{CtaHb, Fork};
use crate::tma::tile::Chunk;

/// Who issues what warp `w` does in `c`, and the warp's number there.
pub(super) fn issuer<'a>(peers: &'a mut Ctas, c: &'a mut Cta, w: usize) -> (&'a mut CtaHb, usize) {
    if let (Some(r), there) = home(w as u32)
        && let Some(p) = peers.get_mut(r as usize).and_then(|p| p.as_deref_mut())
    {
        return (&mut p.hb, there as usize);
    }
    (&mut c.hb, home(w as u32).1 as usize)
}

/// Lanes `on` of warp `w` of this CTA, or of the far one that [`Machine::hb_far`] found.
#[inline]
pub(super) fn view<'a>(
    warps: &'a [WarpHb],
    cta: u32,
    far: &'a Option<(u32, Know)>,
    (w, on): (usize, u32),
    kind: Kind,
) -> View<'a> {
    match far {
        None => View {
            cta,
            warp: w as u32,
            lanes: on,
            kind,
            know: warps[home(w as u32).1 as usize].know(on.trailing_zeros()),
        },
        Some((cta, know)) => View { cta: *cta, warp: home(w as u32).1, lanes: on, kind, know },
    }
}

/// Granules of a linear copy.
fn granules(chunks: &[Chunk]) -> impl Iterator<Item = u32> {
    chunks.iter().map(|k| (k.smem - WINDOW_BASE) / 16)
}

impl Machine<'_> {
    /// As [`issuer`], to look at.
    pub(super) fn hb_by<'a>(&'a self, c: &'a Cta, w: usize) -> (&'a CtaHb, usize) {
        let (rank, there) = home(w as u32);
        (rank.and_then(|r| self.peer(r)).map_or(&c.hb, |p| &p.hb), there as usize)
    }

    /// CTA and knowledge of lane `l` of warp `w` when that is a peer's.
    #[inline]
    pub(super) fn hb_far(&self, w: usize, l: u32) -> Option<(u32, Know)> {
        let (rank, there) = home(w as u32);
        let p = self.peer(rank?)?;
        Some((p.hb.cta, p.hb.warps[there as usize].know(l).clone()))
    }

    /// Operation `op` in the books of `c` will arrive on an mbarrier: it knows what its issuer knows.
    pub(super) fn hb_fork(&mut self, c: &mut Cta, w: usize, lanes: u32, op: OpId, events: [u32; 2]) {
        let (by, there) = issuer(&mut self.peers, c, w);
        let know = by.warps[there].release(by.cta, there as u32, lanes);
        c.hb.forks.insert(op, Fork { events, know });
    }

    /// An ordinary access of lanes `on` to a peer's shared memory.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hb_bytes_of_peer(
        &mut self,
        c: &mut Cta,
        (w, pc, on): (usize, u32, u32),
        e: u32,
        addr: u64,
        n: usize,
        does: Does,
        data: &[u8],
    ) -> Res<()> {
        let (rank, kind) = ((addr >> 24) as u32, self.hb.events.get(e).kind);
        let Some(p) = self.peers.get_mut(rank as usize).and_then(|p| p.as_deref_mut()) else { return Ok(()) };
        let Some(off) = p.shared.offset(addr as u32 & 0xff_ffff, n as u32) else { return Ok(()) };
        let v = view(&c.hb.warps, c.hb.cta, &None, (w, on), kind);
        let Some(f) = p.hb.shared.range(&self.hb.events, &v, off, n, does, stamp(e, on)) else {
            return Ok(());
        };
        let same = data == p.shared.bytes(off, n);
        if same && self.hb_same_store(f, pc) {
            return Ok(());
        }
        let by = abroad(c.rank, w);
        self.on(c, rank, |m, c| m.hb_shared_clash(c, (by, pc, on), e, off, n, does, f))
    }

    /// Lane `l` arrives on the barrier at `addr` of the CTA of `rank`.
    pub(in super::super) fn hb_remote_arrive(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        (rank, addr): (u32, u32),
        b: &Mbar,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let by = abroad(c.rank, w);
        self.on(c, rank, |m, c| {
            m.hb_mbar_use(c, by, pc, 1 << l, addr)?;
            m.hb_mbar_far(c, by, pc, 1 << l, addr);
            m.hb_arrive_scope(c, (by, pc, l), addr, b);
            m.hb_arrive_phase(c, by, pc, 1 << l, addr, b);
            Ok(())
        })?;
        if matches!(b.op, MbarOp::ExpectTx | MbarOp::CompleteTx) {
            return Ok(());
        }
        if !b.relaxed {
            c.hb.far_note(w, 1 << l, pc, Far::Peer(rank, addr), false);
        }
        let (cta, warp) = (c.hb.cta, &mut c.hb.warps[w]);
        let know = if b.relaxed {
            warp.group(l as u32).and_then(|g| g.released[0].as_deref().cloned())
        } else {
            Some(warp.release(cta, w as u32, 1 << l))
        };
        let peer = self.peers.get_mut(rank as usize).and_then(|p| p.as_deref_mut());
        if let (Some(know), Some(b)) = (know, peer.and_then(|p| p.hb.mbars.get_mut(&addr))) {
            b.arrived.join(&know);
        }
        Ok(())
    }

    /// `st.async` or `red.async` by lanes `on`, in the books of their destination `c`.
    pub(in super::super) fn hb_remote_stores(
        &mut self,
        c: &mut Cta,
        (w, pc, on): (usize, u32, u32),
        op: OpId,
        stores: &[RemoteStore],
        adds: bool,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let kind = Kind::Remote { adds };
        let e = self.hb_event(c, w, pc, on, kind, End::Open);
        let far = self.hb_far(w, on.trailing_zeros());
        for s in stores {
            let (off, n) = ((s.addr - WINDOW_BASE) as usize, usize::from(s.len));
            let CtaHb { cta, warps, shared, .. } = &mut c.hb;
            let v = view(warps, *cta, &far, (w, on), kind);
            if let Some(f) = shared.range(&self.hb.events, &v, off, n, Does::Write, stamp(e, 0)) {
                self.hb_shared_clash(c, (w, pc, on), e, off, n, Does::Write, f)?;
            }
        }
        self.hb_fork(c, w, on, op, [e, 0]);
        Ok(())
    }

    /// The reading side of a copy between CTAs by lane `l`; its event.
    pub(in super::super) fn hb_between_reads(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        chunks: &[Chunk],
    ) -> Res<u32> {
        if !c.hb.on {
            return Ok(0);
        }
        let e = self.hb_event(c, w, pc, 1 << l, Kind::Bulk, End::Open);
        self.hb_granules(c, w, pc, e, 1 << l, granules(chunks), Does::Read)?;
        Ok(e)
    }

    /// The writing side, in the destination `c`; `reading`: event of the other side, which ends with this one.
    pub(in super::super) fn hb_between_writes(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        (op, reading): (OpId, u32),
        chunks: &[Chunk],
        adds: bool,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let kind = if adds { Kind::Remote { adds } } else { Kind::Bulk };
        let e = self.hb_event(c, w, pc, 1 << l, kind, End::Open);
        self.hb_granules(c, w, pc, e, 1 << l, granules(chunks), Does::Write)?;
        self.hb_fork(c, w, 1 << l, op, [e, reading]);
        Ok(())
    }
}
