//! Copies by the tensor memory accelerator and `cp.async`: checked and put in flight here, landed in `land`.

use super::cluster::abroad;
use super::cta::{Cta, Origin, State};
use super::exec::{Next, lanes};
use super::hb::Does;
use super::inst::{Addr, Bulk, Place};
use super::ops::{Kind, OpId, Pending};
use super::run::{Machine, Res};
use crate::fault::{Code, Fault};
use crate::launch::Schedule;
use crate::tma::tile::{self, Chunk, TmaFault};
use crate::tma::{NumType, TensorMap};

impl Machine<'_> {
    fn tma_fault(&self, c: &Cta, w: usize, pc: u32, l: usize, e: &TmaFault) -> super::run::Stop {
        self.fault(c, w, pc, 1 << l, Fault::new(Code::Tma, e.to_string()))
    }

    fn uniform_defined(&self, c: &Cta, w: usize, pc: u32, m: u32, addrs: &[Addr]) -> Res<()> {
        addrs.iter().try_for_each(|&a| self.addr_defined(c, w, pc, m, a))
    }

    pub(super) fn bulk(&mut self, c: &mut Cta, w: usize, pc: u32, m: u32, b: &Bulk) -> Res<Next> {
        match b {
            Bulk::TensorLoad { dst, map, mbar, .. } => {
                self.uniform_defined(c, w, pc, m, &[*dst, *map, *mbar])?
            }
            Bulk::TensorStore { map, src, .. } => self.uniform_defined(c, w, pc, m, &[*map, *src])?,
            Bulk::Load { dst, src, mbar, .. } => self.uniform_defined(c, w, pc, m, &[*dst, *src, *mbar])?,
            Bulk::Between { dst, src, mbar, .. } => {
                self.uniform_defined(c, w, pc, m, &[*dst, *src, *mbar])?
            }
            Bulk::Store { dst, src, .. } => self.uniform_defined(c, w, pc, m, &[*dst, *src])?,
        }
        let mut stored = Vec::new();
        for l in lanes(m) {
            match b {
                Bulk::TensorLoad { dims, gather4, dst, map, coords, mbar, mask, pair } => {
                    let (map, xs) = self.map_and_coords(c, w, pc, l, *map, coords, *dims)?;
                    let to = self.destinations(c, w, pc, l, (*dst, *mbar, *mask), *pair)?;
                    let (dst, mbar) = (to.dst, (c.rank, to.mbar));
                    let mut chunks = Vec::new();
                    let bytes = if *gather4 {
                        tile::gather4_chunks(&map, xs[0], [xs[1], xs[2], xs[3], xs[4]], dst, &mut chunks)
                    } else {
                        tile::load_chunks(&map, &xs, dst, &mut chunks)
                    }
                    .map_err(|e| self.tma_fault(c, w, pc, l, &e))?;
                    let kind = Kind::Load { chunks, fill: map.fill(), elem: Some(map.elem), mbar, bytes };
                    self.issue_loads(c, w, pc, l, kind, &to.at)?;
                }
                Bulk::TensorStore { dims, reduce, map, coords, src } => {
                    let (map, xs) = self.map_and_coords(c, w, pc, l, *map, coords, *dims)?;
                    let src = self.own_shared(c, w, pc, l, *src)?;
                    let mut chunks = Vec::new();
                    tile::store_chunks(&map, &xs, src, &mut chunks)
                        .map_err(|e| self.tma_fault(c, w, pc, l, &e))?;
                    let reduce = match reduce {
                        None => None,
                        Some(op) => match NumType::of_tensor(map.elem).filter(|t| t.allows(*op)) {
                            Some(t) => Some((*op, t)),
                            None => {
                                let f = Fault::new(
                                    Code::Tma,
                                    format!("reduction {op:?} on elements of type {:?}", map.elem),
                                );
                                return Err(self.fault(c, w, pc, 1 << l, f));
                            }
                        },
                    };
                    self.issue_store(c, w, pc, l, Kind::Store { chunks, reduce }, &mut stored)?;
                }
                Bulk::Load { dst, src, size, mbar, mask } => {
                    let size = self.bulk_size(c, w, pc, l, *size)?;
                    let (_, src) = self.resolve(Place::Generic, self.lane_addr(c, w, *src, l));
                    let to = self.destinations(c, w, pc, l, (*dst, *mbar, *mask), false)?;
                    let (dst, mbar) = (to.dst, to.mbar);
                    tile::bulk_check(u64::from(dst), src, size, Some(mbar))
                        .map_err(|e| self.tma_fault(c, w, pc, l, &e))?;
                    let kind = Kind::Load {
                        chunks: linear(dst, src, size),
                        fill: [0; 16],
                        elem: None,
                        mbar: (c.rank, mbar),
                        bytes: size,
                    };
                    self.issue_loads(c, w, pc, l, kind, &to.at)?;
                }
                Bulk::Between { dst, src, size, mbar, reduce } => {
                    let size = self.bulk_size(c, w, pc, l, *size)?;
                    let src = self.own_shared(c, w, pc, l, *src)?;
                    let to = self.cluster_place(c, w, pc, l, *dst)?;
                    let bar = self.cluster_place(c, w, pc, l, *mbar)?;
                    tile::bulk_check(u64::from(to.1), u64::from(src), size, Some(bar.1))
                        .map_err(|e| self.tma_fault(c, w, pc, l, &e))?;
                    self.issue_between(c, (w, pc, l), src, to, size, bar, *reduce)?;
                }
                Bulk::Store { dst, src, size, reduce } => {
                    let size = self.bulk_size(c, w, pc, l, *size)?;
                    let (_, dst) = self.resolve(Place::Generic, self.lane_addr(c, w, *dst, l));
                    let src = self.own_shared(c, w, pc, l, *src)?;
                    tile::bulk_check(dst, u64::from(src), size, None)
                        .map_err(|e| self.tma_fault(c, w, pc, l, &e))?;
                    let kind = Kind::Store { chunks: linear(src, dst, size), reduce: *reduce };
                    self.issue_store(c, w, pc, l, kind, &mut stored)?;
                }
            }
        }
        Ok(Next::Advance)
    }

    fn bulk_size(&self, c: &Cta, w: usize, pc: u32, l: usize, slot: u32) -> Res<u32> {
        self.defined32(c, w, pc, 1 << l, slot, "the size")?;
        let size = c.warps[w].regs.r32[slot as usize].0[l];
        // One end is shared memory; larger copies must not be listed chunk by chunk before they are refused.
        if size > super::setup::MAX_SHARED {
            let text = format!("a bulk copy of {size} bytes is larger than shared memory");
            return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsShared, text)));
        }
        Ok(size)
    }

    #[allow(clippy::too_many_arguments)]
    fn map_and_coords(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        map: Addr,
        coords: &[u32],
        dims: u8,
    ) -> Res<(TensorMap, Vec<i32>)> {
        let addr = self.lane_addr(c, w, map, l);
        let bytes = self.tensor_map(c, w, pc, l, addr)?;
        let map = TensorMap::decode(&bytes).map_err(|e| {
            self.fault(c, w, pc, 1 << l, Fault::new(Code::Tma, format!("tensor map at {addr:#x}: {e}")))
        })?;
        if map.rank != usize::from(dims) {
            let f = Fault::new(
                Code::Tma,
                format!("a {dims}-dimensional copy with a tensor map of rank {}", map.rank),
            );
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        let mut xs = Vec::with_capacity(coords.len());
        for &slot in coords {
            self.defined32(c, w, pc, 1 << l, slot, "a coordinate")?;
            xs.push(c.warps[w].regs.r32[slot as usize].0[l] as i32);
        }
        Ok((map, xs))
    }

    /// Shared-window address in this CTA from a `.shared` operand (rank bits must name this CTA).
    pub(super) fn own_shared(&self, c: &Cta, w: usize, pc: u32, l: usize, a: Addr) -> Res<u32> {
        let addr = self.lane_addr(c, w, a, l);
        let (_, addr) = self.resolve(Place::Generic, addr);
        if addr >> 24 != u64::from(c.rank) {
            let f = Fault::new(Code::BoundsShared, format!("shared address {addr:#x} is not in this CTA"));
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        Ok(addr as u32 & 0xff_ffff)
    }

    fn origin(&self, w: usize, pc: u32) -> Origin {
        Origin { warp: w as u32, pc, step: self.steps }
    }

    /// Issues a load to the CTAs of `at`: (rank of the destination, rank of its barrier). Each destination has an
    /// operation of its own.
    fn issue_loads(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        kind: Kind,
        at: &[(u32, u32)],
    ) -> Res<()> {
        let from = c.rank;
        for &(rank, bar) in at {
            let mut kind = kind.clone();
            let Kind::Load { mbar, .. } = &mut kind else { return Ok(()) };
            mbar.0 = bar;
            let addr = mbar.1;
            let issuer = |r| if r == from { w } else { abroad(from, w) };
            self.on(c, bar, |m, c| {
                m.completes_on(c, issuer(bar), pc, addr)?;
                m.hb_mbar_use(c, issuer(bar), pc, 1 << l, addr)?;
                m.hb_mbar_far(c, issuer(bar), pc, 1 << l, addr);
                Ok(())
            })?;
            self.on(c, rank, |m, c| m.issue_load(c, issuer(rank), pc, l, kind))?;
        }
        Ok(())
    }

    fn issue_load(&mut self, c: &mut Cta, w: usize, pc: u32, l: usize, kind: Kind) -> Res<()> {
        let Kind::Load { chunks, bytes, .. } = &kind else { return Ok(()) };
        self.counters.bytes_loaded += u64::from(*bytes);
        let id = c.new_op(self.origin(w, pc));
        self.lease_chunks(c, w, pc, chunks, Some(id), true)?;
        self.hb_bulk_global(c, w, pc, l, &kind)?;
        self.hb_bulk(c, w, pc, l, id, chunks, Does::Write)?;
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind })
    }

    /// Where a load goes. Without a mask: to the CTA that `dst` names, completing there, or with `pair` (.cta_group::2)
    /// on the other CTA of its pair. With a mask: to the same places of every CTA of the mask; with `pair` each
    /// completes on that CTA of its own pair that stands where the barrier's CTA stands in its pair.
    fn destinations(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        (dst, mbar, mask): (Addr, Addr, Option<u32>),
        pair: bool,
    ) -> Res<Destinations> {
        let (rank, dst) = self.cluster_place(c, w, pc, l, dst)?;
        let (bar, mbar) = self.cluster_place(c, w, pc, l, mbar)?;
        if let Some(slot) = mask {
            let of = |r: u32| if pair { r & !1 | bar & 1 } else { r };
            let at = self.ranks_of_mask(c, w, pc, l, slot)?.into_iter().map(|r| (r, of(r))).collect();
            return Ok(Destinations { dst, mbar, at });
        }
        if bar != rank && !(pair && bar == rank ^ 1) {
            let f = Fault::new(
                Code::Tma,
                format!(
                    "a load to CTA {rank} of the cluster completes on a barrier of CTA {bar}; allowed is {}",
                    if pair { "a CTA of the same pair" } else { "a barrier of the destination's CTA" }
                ),
            );
            return Err(self.fault(c, w, pc, 1 << l, f));
        }
        Ok(Destinations { dst, mbar, at: vec![(rank, bar)] })
    }

    /// ## One box stored by many lanes
    ///
    /// CuTe DSL elects no thread for its bulk stores: all lanes of a warp store the same box, and ptxas makes one store of it.
    /// They write the same bytes from the same place by one instruction; whichever lands last, memory holds the same, so there
    /// is nothing to order among them. `stored` holds what the instruction's first lane stored.
    fn issue_store(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        kind: Kind,
        stored: &mut Vec<Chunk>,
    ) -> Res<()> {
        let Kind::Store { chunks, .. } = &kind else { return Ok(()) };
        self.counters.bytes_stored += chunks.iter().map(|k| u64::from(k.valid.count_ones())).sum::<u64>();
        let id = c.new_op(self.origin(w, pc));
        self.lease_chunks(c, w, pc, chunks, Some(id), false)?;
        self.hb_bulk(c, w, pc, l, id, chunks, Does::Read)?;
        if stored != chunks {
            self.hb_bulk_global(c, w, pc, l, &kind)?;
        }
        if stored.is_empty() {
            stored.clone_from(chunks);
        }
        c.bulk.entry((w as u32, l as u32)).or_default().open.push(id);
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind })
    }

    /// Adds an operation to those in flight; under the eager schedule it lands at once.
    pub(super) fn put_in_flight(&mut self, c: &mut Cta, p: Pending) -> Res<()> {
        if let Some(t) = &mut self.trace {
            t.issue(c.id, &p, self.steps);
        }
        c.pending.push(p);
        if matches!(self.opts.schedule, Schedule::Eager | Schedule::Timed) {
            self.land_at(c, c.pending.len() - 1)?;
        }
        Ok(())
    }

    pub(super) fn bulk_commit(&mut self, c: &mut Cta, w: usize, m: u32) -> Res<Next> {
        for l in lanes(m) {
            let g = c.bulk.entry((w as u32, l as u32)).or_default();
            let open = std::mem::take(&mut g.open);
            g.groups.push_back(open);
            self.hb_bulk_commit(c, w, l);
        }
        Ok(Next::Advance)
    }

    pub(super) fn bulk_wait(&mut self, c: &mut Cta, w: usize, m: u32, n: u32, read: bool) -> Res<Next> {
        for l in lanes(m) {
            let Some(g) = c.bulk.get(&(w as u32, l as u32)) else { continue };
            let done = g.groups.len().saturating_sub(n as usize);
            if g.groups.iter().take(done).flatten().any(|&o| !c.landed[o as usize]) {
                return Ok(Next::Block(State::Group));
            }
        }
        for l in lanes(m) {
            let Some(g) = c.bulk.get_mut(&(w as u32, l as u32)) else { continue };
            let done = g.groups.len().saturating_sub(n as usize);
            let ops: Vec<OpId> = g.groups.drain(..done).flatten().collect();
            for &o in &ops {
                c.released[o as usize] = true;
            }
            self.hb_bulk_waited(c, w, l, &ops, n, read);
        }
        Ok(Next::Advance)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn cp_async(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        dst: Addr,
        src: Addr,
        n: u32,
        fill: Option<u32>,
    ) -> Res<Next> {
        self.uniform_defined(c, w, pc, m, &[dst, src])?;
        let mut copies = Vec::with_capacity(m.count_ones() as usize);
        for l in lanes(m) {
            let d = self.own_shared(c, w, pc, l, dst)?;
            let (_, s) = self.resolve(Place::Generic, self.lane_addr(c, w, src, l));
            let take = match fill {
                Some(slot) => {
                    self.defined32(c, w, pc, 1 << l, slot, "the source size")?;
                    c.warps[w].regs.r32[slot as usize].0[l].min(n)
                }
                None => n,
            };
            if d % n != 0 || s % u64::from(n) != 0 && take != 0 {
                let f = Fault::new(
                    Code::Align,
                    format!(
                        "cp.async of {n} bytes from {s:#x} to shared {d:#x}: both must be multiples of {n}"
                    ),
                );
                return Err(self.fault(c, w, pc, 1 << l, f));
            }
            let off = self.shared_offset(c, w, pc, u64::from(d), n)?;
            self.lease_shared(c, w, pc, off, n as usize, true)?;
            copies.push((d, s, take, n));
        }
        let id = c.new_op(self.origin(w, pc));
        if n == 16 && self.opts.checks.lease && !self.opts.checks.race {
            for &(d, ..) in &copies {
                let off = self.shared_offset(c, w, pc, u64::from(d), n)?;
                c.shared.write_op[off / 16] = id + 1;
            }
        }
        self.hb_cp_async(c, w, pc, m, id, &copies)?;
        c.warps[w].cp_open.push(id);
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind: Kind::CpAsync { copies } })?;
        Ok(Next::Advance)
    }

    pub(super) fn cp_async_wait(&mut self, c: &mut Cta, w: usize, n: Option<u32>) -> Res<Next> {
        let warp = &mut c.warps[w];
        if n.is_none() {
            let open = std::mem::take(&mut warp.cp_open);
            warp.cp_groups.push_back(open);
        }
        let done = warp.cp_groups.len().saturating_sub(n.unwrap_or(0) as usize);
        if warp.cp_groups.iter().take(done).flatten().any(|&o| !c.landed[o as usize]) {
            return Ok(Next::Block(State::CpGroup));
        }
        let ops: Vec<OpId> = c.warps[w].cp_groups.drain(..done).flatten().collect();
        self.hb_cp_waited(c, w, &ops);
        for o in ops {
            c.released[o as usize] = true;
        }
        Ok(Next::Advance)
    }

    pub(super) fn cp_async_mbar(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        addr: Addr,
        noinc: bool,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, addr)?;
        let l = m.trailing_zeros() as usize;
        let mbar = self.own_shared(c, w, pc, l, addr)?;
        self.completes_on(c, w, pc, mbar)?;
        if !noinc
            && let Some(b) = c.mbars.get_mut(&mbar)
            && !b.bar.await_more(m.count_ones())
        {
            let text = format!("`{}` lets more than 1048575 arrivals be pending", self.opcode(pc));
            return Err(self.fault(c, w, pc, m, Fault::new(Code::MbarrierCount, text)));
        }
        let warp = &c.warps[w];
        let after: Vec<OpId> = warp.cp_open.iter().chain(warp.cp_groups.iter().flatten()).copied().collect();
        let id = c.new_op(self.origin(w, pc));
        c.hb.cp_arrive(w, m, id);
        let kind = Kind::CpArrive { mbar, count: m.count_ones(), after };
        self.put_in_flight(c, Pending { id, warp: w as u32, pc, kind })?;
        Ok(Next::Advance)
    }
}

/// Destinations of a load.
struct Destinations {
    /// Address of the data, in every one.
    dst: u32,
    /// Address of the barrier.
    mbar: u32,
    /// Ranks of the CTAs that get the data, each with that of the CTA whose barrier it completes on.
    at: Vec<(u32, u32)>,
}

/// Runs of a linear copy.
pub(super) fn linear(shared: u32, global: u64, size: u32) -> Vec<Chunk> {
    (0..size / 16)
        .map(|i| Chunk { smem: shared + 16 * i, global: global + 16 * u64::from(i), len: 16, valid: 0xffff })
        .collect()
}
