//! Global memory: a sparse shadow, and the flags through which threads of different CTAs synchronise.
//!
//! A page gets a shadow when the kernel first writes to it, so what is only read (the inputs) costs nothing. What
//! that misses: a read that this schedule ran before the first write to its page. Also not seen: reducing bulk copies,
//! tensor maps, and more than [`MOST_PAGES`] pages.
//!
//! Edges are release → acquire on one address, with the scopes that PTX asks for, also through fences around relaxed
//! operations; an atomic continues what was published before it, a plain store replaces it. Floating-point atomics
//! publish nothing (they are sums, not flags). A scope of the cluster counts as one of the GPU.

use super::super::cta::Cta;
use super::super::inst::Place;
use super::super::ops::Kind as OpKind;
use super::super::run::{Machine, Res};
use super::between::view;
use super::cell::{Clash, Memo};
use super::clock::Know;
use super::event::{End, Events, Kind, Order, Scope, Stamp, View, stamp};
use super::shared::{Bytes, Does, GRANULE, worst};
use super::sync::reach;
use super::{CtaHb, Stream};
use crate::fault::Code;
use crate::tma::tile::Chunk;
use std::collections::HashMap;

/// Shadow pages at most.
const MOST_PAGES: usize = 1 << 14;
const PAGE: u64 = 4096;

/// Shadow of global memory.
#[derive(Default)]
pub struct GlobalShadow {
    pages: HashMap<u64, Bytes>,
    /// Lowest and highest page with a shadow.
    span: Option<(u64, u64)>,
    flags: HashMap<(Option<u32>, u64), Flag>,
}

/// What was published at an address.
#[derive(Default)]
struct Flag {
    /// To everybody.
    wide: Know,
    /// To the CTA that wrote it.
    narrow: HashMap<u32, Know>,
}

impl GlobalShadow {
    /// `n` bytes at `addr`.
    pub fn access(
        &mut self,
        events: &Events,
        v: &View<'_>,
        (addr, n): (u64, usize),
        does: Does,
        mine: Stamp,
    ) -> Option<Clash> {
        let (mut at, end, mut found) = (addr, addr + n as u64, None);
        while at < end {
            let (page, off) = (at / PAGE, (at % PAGE) as usize);
            let len = ((end - at) as usize).min(PAGE as usize - off);
            if let Some(p) = self.page(page, does) {
                found = worst(found, p.range(events, v, off, len, does, mine));
            }
            at += len as u64;
        }
        found
    }

    fn page(&mut self, page: u64, does: Does) -> Option<&mut Bytes> {
        let inside = self.span.is_some_and(|(lo, hi)| (lo..=hi).contains(&page));
        match does {
            Does::Read if !inside => None,
            Does::Read => self.pages.get_mut(&page),
            Does::Write if self.pages.len() >= MOST_PAGES => self.pages.get_mut(&page),
            Does::Write => {
                let (lo, hi) = self.span.unwrap_or((page, page));
                self.span = Some((lo.min(page), hi.max(page)));
                Some(self.pages.entry(page).or_insert_with(|| Bytes::new(PAGE as usize)))
            }
        }
    }

    /// Calls `f` with every stamp.
    pub fn each(&mut self, mut f: impl FnMut(&mut Stamp)) {
        self.pages.values_mut().for_each(|p| p.each(&mut f));
    }
}

impl Machine<'_> {
    /// An ordinary access to global memory, part of event `e`.
    pub(super) fn hb_global(
        &mut self,
        c: &Cta,
        (w, _, on): (usize, u32, u32),
        e: u32,
        at: (u64, usize),
        does: Does,
    ) -> Option<Clash> {
        let kind = self.hb.events.get(e).kind;
        let know = c.hb.warps[w].know(on.trailing_zeros());
        let v = View { cta: c.hb.cta, warp: w as u32, lanes: on, kind, know };
        self.hb.global.access(&self.hb.events, &v, at, does, stamp(e, on))
    }

    /// The global side of a bulk copy by lane `l`.
    pub(in super::super) fn hb_bulk_global(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        kind: &OpKind,
    ) -> Res<()> {
        if !c.hb.on {
            return Ok(());
        }
        let (chunks, does, end) = match kind {
            OpKind::Load { chunks, .. } if self.hb.global.span.is_none() || chunks.is_empty() => {
                return Ok(());
            }
            // The source is read before anybody learns that the load completed.
            OpKind::Load { chunks, .. } => (chunks, Does::Read, End::Open),
            OpKind::Store { chunks, reduce: None } => {
                (chunks, Does::Write, c.hb.issue(Stream::BulkWrite(w as u32, l as u32)))
            }
            _ => return Ok(()),
        };
        let e = self.hb_event(c, w, pc, 1 << l, Kind::Bulk, end);
        let (mut found, far) = (None, self.hb_far(w, l as u32));
        let v = view(&c.hb.warps, c.hb.cta, &far, (w, 1 << l), Kind::Bulk);
        for (at, n) in chunks.iter().filter_map(valid) {
            let (page, off) = (at / PAGE, (at % PAGE) as usize);
            let Some(p) = self.hb.global.page(page, does) else { continue };
            let f = if n == GRANULE && off.is_multiple_of(GRANULE) {
                p.granule(&self.hb.events, &v, off / GRANULE, does, stamp(e, 0), &mut Memo::default())
            } else {
                p.range(&self.hb.events, &v, off, n.min(PAGE as usize - off), does, stamp(e, 0))
            };
            if f.is_some() && worst(found.map(|(_, f)| f), f) != found.map(|(_, f)| f) {
                found = f.map(|f| (at, f));
            }
        }
        if does == Does::Read {
            c.hb.source_of_load = e;
        }
        match found {
            None => Ok(()),
            Some((at, f)) => self.hb_global_clash(c, (w, pc, 1 << l), e, at, GRANULE, does, f),
        }
    }

    /// Lane `l` executes a strong operation on a 4- or 8-byte word at `addr`; `reads`, `writes`: what it does.
    #[allow(clippy::too_many_arguments)]
    pub(in super::super) fn hb_strong(
        &mut self,
        c: &mut Cta,
        w: usize,
        l: usize,
        (place, addr): (Place, u64),
        order: Order,
        reads: bool,
        writes: bool,
    ) {
        let (true, Some(far)) = (c.hb.on, reach(order.scope)) else { return };
        let (place, addr) = self.resolve(place, addr);
        let at = addr & 0xff_ffff;
        let key = match place {
            Place::Global => (None, addr),
            Place::Cluster if addr >> 24 != u64::from(c.rank) => match self.peer((addr >> 24) as u32) {
                Some(p) => (Some(p.hb.cta), at),
                None => return,
            },
            Place::Shared | Place::Cluster => (Some(c.hb.cta), at),
            _ => return,
        };
        let CtaHb { cta, warps, .. } = &mut c.hb;
        let (cta, warp, lane) = (*cta, &mut warps[w], 1u32 << l);
        if reads && let Some(flag) = self.hb.global.flags.get(&key) {
            warp.each(lane, |g| {
                for (k, far_enough, from) in
                    [(flag.narrow.get(&cta), true, 0), (Some(&flag.wide), order.scope > Scope::Cta, far)]
                {
                    let Some(k) = k.filter(|_| far_enough) else { continue };
                    if order.acquire {
                        g.know.join(k)
                    } else {
                        g.acquired[from].get_or_insert_default().join(k)
                    }
                }
            });
        }
        if !writes {
            return;
        }
        let [narrow, wide] = if order.release {
            let know = warp.release(cta, w as u32, lane);
            [Some(know.clone()), Some(know)]
        } else {
            let released = |r: usize| warp.group(l as u32)?.released[r].as_deref().cloned();
            [released(0), released(far)]
        };
        // A plain store replaces what was published.
        if !reads {
            self.hb.global.flags.remove(&key);
        }
        if narrow.is_none() && wide.is_none() {
            return;
        }
        let flag = self.hb.global.flags.entry(key).or_default();
        if let Some(k) = narrow {
            flag.narrow.entry(cta).or_default().join(&k);
        }
        if let Some(k) = wide.filter(|_| order.scope > Scope::Cta) {
            flag.wide.join(&k);
        }
    }

    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn hb_global_clash(
        &mut self,
        c: &Cta,
        at: (usize, u32, u32),
        e: u32,
        addr: u64,
        n: usize,
        does: Does,
        clash: Clash,
    ) -> Res<()> {
        let what = match self.gmem.find(addr) {
            Some(a) => format!("`{}`+{:#x} ({n} bytes of global memory)", a.name, addr - a.base),
            None => format!("global {addr:#x} ({n} bytes)"),
        };
        // A memory fence does for global memory on the machines that we know, so the proxy fence is only asked for.
        let clash = match clash {
            Clash::NoFence(earlier) => Clash::Unfenced { earlier, wrote: true },
            Clash::InFlight(earlier) => Clash::Unfenced { earlier, wrote: false },
            other => other,
        };
        self.hb_clash(c, at, e, &what, (Code::RaceGlobal, Code::RaceGlobal), does, clash)
    }
}

/// The bytes of a chunk that are inside the tensor: first address and number.
fn valid(k: &Chunk) -> Option<(u64, usize)> {
    let lo = k.valid.trailing_zeros();
    (k.valid != 0).then(|| (k.global + u64::from(lo), k.valid.count_ones() as usize))
}
