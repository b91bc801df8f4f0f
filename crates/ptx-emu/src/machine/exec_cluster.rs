//! Accesses to the shared memory of other CTAs of the cluster: ordinary ones, and copies, stores and reductions that
//! land later and complete on a barrier there.

use super::cluster::abroad;
use super::cta::{Cta, Origin, Release};
use super::exec::{Next, lanes};
use super::exec_mem::atom;
use super::inst::{Addr, AtomOp, AtomTy, Place, RemoteAsync};
use super::ops::{Kind, OpId, Pending, RemoteStore};
use super::run::{Machine, Res};
use super::shared::{GRANULE, WINDOW_BASE};
use crate::fault::{Code, Fault};
use crate::isa::regs::Class;
use crate::tma::{NumType, ReduceOp};

impl Machine<'_> {
    /// Reads another CTA's shared memory.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn remote_read(
        &self,
        c: &Cta,
        w: usize,
        pc: u32,
        l: usize,
        addr: u64,
        buf: &mut [u8],
    ) -> Res<u64> {
        let rank = self.reach(c, w, pc, 1 << l, addr)?;
        let Some(p) = self.peer(rank) else { return Ok(0) };
        let (w, n) = (abroad(c.rank, w), buf.len());
        let off = self.shared_offset(p, w, pc, addr & 0xff_ffff, n as u32)?;
        self.lease_shared(p, w, pc, off, n, false)?;
        buf.copy_from_slice(p.shared.bytes(off, n));
        Ok(p.shared.undef(off, n))
    }

    /// Writes another CTA's shared memory.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn remote_write(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        l: usize,
        addr: u64,
        data: &[u8],
        undef: u64,
    ) -> Res<()> {
        let rank = self.reach(c, w, pc, 1 << l, addr)?;
        let w = abroad(c.rank, w);
        self.on(c, rank, |m, c| {
            let (addr, n) = (addr as u32 & 0xff_ffff, data.len());
            let off = m.shared_offset(c, w, pc, u64::from(addr), n as u32)?;
            m.lease_shared(c, w, pc, off, n, true)?;
            m.not_a_barrier(c, w, pc, addr, n as u32)?;
            c.shared.store(off, data, undef);
            m.stored(c, w, pc, off, n);
            m.progress += 1;
            Ok(())
        })
    }

    /// Rank and window address that a shared::cluster operand names; `l`: lane.
    pub(super) fn cluster_place(&self, c: &Cta, w: usize, pc: u32, l: usize, a: Addr) -> Res<(u32, u32)> {
        let (_, addr) = self.resolve(Place::Generic, self.lane_addr(c, w, a, l));
        let rank = self.reach(c, w, pc, 1 << l, addr & 0xffff_ffff)?;
        Ok((rank, addr as u32 & 0xff_ffff))
    }

    /// Ranks of a mask, every one of which must be a live CTA of the cluster.
    pub(super) fn ranks_of_mask(&self, c: &Cta, w: usize, pc: u32, l: usize, slot: u32) -> Res<Vec<u32>> {
        self.defined32(c, w, pc, 1 << l, slot, "the mask of CTAs")?;
        let mask = c.warps[w].regs.r32[slot as usize].0[l] & 0xffff;
        let all: Vec<u32> = (0..16).filter(|r| mask >> r & 1 != 0).collect();
        if all.is_empty() {
            let text = format!("`{}` with an empty mask of CTAs", self.opcode(pc));
            return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::Tma, text)));
        }
        for &r in &all {
            self.reach(c, w, pc, 1 << l, u64::from(r) << 24)?;
        }
        Ok(all)
    }

    /// `st.async` and `red.async`: the lanes' stores to one CTA and barrier are one operation there.
    pub(super) fn remote_async(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        i: &RemoteAsync,
    ) -> Res<Next> {
        self.addr_defined(c, w, pc, m, i.addr)?;
        self.addr_defined(c, w, pc, m, i.mbar)?;
        let eb = usize::from(i.bytes);
        let n = eb * i.regs.len();
        let mut groups: Vec<((u32, u32), u32, Vec<RemoteStore>)> = Vec::new();
        for l in lanes(m) {
            let (rank, addr) = self.cluster_place(c, w, pc, l, i.addr)?;
            let bar = self.cluster_place(c, w, pc, l, i.mbar)?;
            if bar.0 != rank {
                let text = format!(
                    "`{}` stores to CTA {rank} of the cluster and completes on a barrier of CTA {}; both must be of one CTA",
                    self.opcode(pc),
                    bar.0
                );
                return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsShared, text)));
            }
            if !(addr as usize).is_multiple_of(n) {
                let text = format!("address {addr:#x} of a {n}-byte store is not a multiple of {n}");
                return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::Align, text)));
            }
            let regs = &c.warps[w].regs;
            let mut s = RemoteStore { addr, len: n as u8, data: [0; 32], undef: 0 };
            for (k, &(class, r)) in i.regs.iter().flatten().enumerate() {
                let (v, u) = match class {
                    Class::R32 => (u64::from(regs.r32[r as usize].0[l]), regs.bytes32(r, l)),
                    _ => (regs.r64[r as usize].0[l], regs.bytes64(r, l)),
                };
                s.data[k * eb..(k + 1) * eb].copy_from_slice(&v.to_le_bytes()[..eb]);
                s.undef |= u32::from(u) << (k * eb);
            }
            if s.undef != 0 && i.reduce.is_some() {
                self.defined(c, w, pc, 1 << l, Code::UninitAtomic, "an operand")?;
            }
            match groups.iter_mut().find(|g| g.0 == bar) {
                Some(g) => {
                    g.1 |= 1 << l;
                    g.2.push(s);
                }
                None => groups.push((bar, 1 << l, vec![s])),
            }
        }
        let (from, reduce) = (c.rank, i.reduce);
        for ((rank, mbar), on, stores) in groups {
            let w = if rank == from { w } else { abroad(from, w) };
            self.on(c, rank, |m, c| m.issue_remote_stores(c, (w, pc, on), mbar, stores, reduce))?;
        }
        Ok(Next::Advance)
    }

    /// Enters the stores into the books of their destination `c`.
    fn issue_remote_stores(
        &mut self,
        c: &mut Cta,
        (w, pc, on): (usize, u32, u32),
        mbar: u32,
        stores: Vec<RemoteStore>,
        reduce: Option<(AtomOp, AtomTy)>,
    ) -> Res<()> {
        self.completes_on(c, w, pc, mbar)?;
        let id = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
        if reduce.is_some() {
            c.reductions.insert(id);
        }
        let mut covered: Vec<(usize, u16)> = Vec::new();
        for s in &stores {
            let off = self.shared_offset(c, w, pc, u64::from(s.addr), u32::from(s.len))?;
            self.not_a_barrier(c, w, pc, s.addr, u32::from(s.len))?;
            for b in off..off + usize::from(s.len) {
                let (g, bit) = (b / GRANULE as usize, 1u16 << (b % GRANULE as usize));
                match covered.last_mut().filter(|x| x.0 == g) {
                    Some(x) => x.1 |= bit,
                    None => covered.push((g, bit)),
                }
            }
        }
        if self.opts.checks.lease {
            self.lease_granules(c, w, pc, id, &covered)?;
        }
        self.hb_mbar_use(c, w, pc, on, mbar)?;
        self.hb_mbar_far(c, w, pc, on, mbar);
        self.hb_remote_stores(c, (w, pc, on), id, &stores, reduce.is_some())?;
        let bytes = stores.iter().map(|s| u32::from(s.len)).sum();
        self.put_in_flight(
            c,
            Pending { id, warp: w as u32, pc, kind: Kind::Remote { stores, reduce, mbar, bytes } },
        )
    }

    /// Leases of writes that may cover only part of a granule: taken only for granules that are wholly written, since
    /// other stores may go to the rest.
    fn lease_granules(&self, c: &mut Cta, w: usize, pc: u32, id: OpId, covered: &[(usize, u16)]) -> Res<()> {
        let adds = c.reductions.contains(&id);
        for &(g, _) in covered {
            let holder = c.shared.write_op[g];
            if adds && holder != 0 && c.reductions.contains(&(holder - 1)) {
                continue;
            }
            self.lease_shared(c, w, pc, g * GRANULE as usize, 1, true)?;
        }
        for &(g, bytes) in covered {
            if bytes == !0 {
                c.shared.write_op[g] = id + 1;
            }
        }
        Ok(())
    }

    /// The barrier that an operation will complete on must be live where it is.
    pub(super) fn completes_on(&self, c: &Cta, w: usize, pc: u32, mbar: u32) -> Res<()> {
        if !c.mbars.contains_key(&mbar) {
            let name = super::names::barrier(&self.launch.annotations, c.dynamic_base, mbar);
            let of = match self.cluster_size() {
                1 => String::new(),
                _ => format!(" of CTA {:?} (rank {} of the cluster)", c.id, c.rank),
            };
            let f = Fault::new(
                Code::MbarrierUninit,
                format!("`{}` completes on {name}{of}, which is not initialised", self.opcode(pc)),
            )
            .help("execute mbarrier.init and make it visible (bar.sync, or fence.mbarrier_init and a cluster barrier) first");
            return Err(self.fault(c, w, pc, 0, f));
        }
        self.check_role(c, w, pc, mbar, false)
    }

    /// Shared memory of the running CTA to that of another one.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn issue_between(
        &mut self,
        c: &mut Cta,
        (w, pc, l): (usize, u32, usize),
        src: u32,
        (rank, dst): (u32, u32),
        size: u32,
        (mbar_rank, mbar): (u32, u32),
        reduce: Option<(ReduceOp, NumType)>,
    ) -> Res<()> {
        let bad = |text: String| Err(self.fault(c, w, pc, 0, Fault::new(Code::Tma, text)));
        if rank == c.rank {
            return bad("a copy between CTAs of a cluster whose destination is its own source's CTA".into());
        }
        if mbar_rank != rank {
            return bad(format!(
                "a copy to CTA {rank} of the cluster completes on a barrier of CTA {mbar_rank}; it must be the destination's"
            ));
        }
        let reads = super::exec_bulk::linear(src, 0, size);
        let from = c.rank;
        let read = c.new_op(Origin { warp: w as u32, pc, step: self.steps });
        self.lease_chunks(c, w, pc, &reads, Some(read), false)?;
        c.lent.push(read);
        let reading = self.hb_between_reads(c, (w, pc, l), &reads)?;
        let w = abroad(from, w);
        self.on(c, rank, |m, c| {
            m.completes_on(c, w, pc, mbar)?;
            let id = c.new_op(Origin { warp: w as u32, pc, step: m.steps });
            if reduce.is_some() {
                c.reductions.insert(id);
            }
            let writes = super::exec_bulk::linear(dst, 0, size);
            if reduce.is_none() {
                m.lease_chunks(c, w, pc, &writes, Some(id), true)?;
            } else {
                m.lease_chunks(c, w, pc, &writes, None, true)?;
            }
            m.hb_mbar_use(c, w, pc, 1 << l, mbar)?;
            m.hb_mbar_far(c, w, pc, 1 << l, mbar);
            m.hb_between_writes(c, (w, pc, l), (id, reading), &writes, reduce.is_some())?;
            let kind = Kind::Between { from: (from, read, src), dst, size, mbar, reduce };
            m.put_in_flight(c, Pending { id, warp: w as u32, pc, kind })
        })
    }

    /// A copy between CTAs lands in `c`.
    pub(super) fn land_between(&mut self, c: &mut Cta, p: &Pending) -> Res<()> {
        let Kind::Between { from: (rank, read, src), dst, size, mbar, reduce } = &p.kind else {
            return Ok(());
        };
        let (src, dst) = ((src - WINDOW_BASE) as usize, (dst - WINDOW_BASE) as usize);
        for at in (0..*size as usize).step_by(GRANULE as usize) {
            let Some(s) = self.peer(*rank) else { break };
            let mut data: [u8; 16] = s.shared.bytes(src + at, 16).try_into().unwrap_or([0; 16]);
            let mut undef = s.shared.undef(src + at, 16);
            if let Some((op, ty)) = reduce {
                let mut old: [u8; 16] = c.shared.bytes(dst + at, 16).try_into().unwrap_or([0; 16]);
                undef |= c.shared.undef(dst + at, 16);
                crate::tma::reduce(*op, *ty, &mut old, &data);
                data = old;
            }
            c.shared.store(dst + at, &data, undef);
            c.shared.stored[(dst + at) / GRANULE as usize] = Default::default();
        }
        if let Some(s) = self.peers[*rank as usize].as_deref_mut() {
            s.landed[*read as usize] = true;
        }
        if let Some(m) = c.mbars.get_mut(mbar) {
            let phase = m.bar.phase();
            m.attached.push((phase, Release::PeerOp(*rank, *read)));
        }
        self.completed(c, p, c.rank, *mbar, *size)
    }

    /// Stores of `st.async` or reductions of `red.async` land in `c`.
    pub(super) fn land_remote(&mut self, c: &mut Cta, p: &Pending) -> Res<()> {
        let Kind::Remote { stores, reduce, mbar, bytes } = &p.kind else { return Ok(()) };
        for s in stores {
            let (off, n) = ((s.addr - WINDOW_BASE) as usize, usize::from(s.len));
            match *reduce {
                None => c.shared.store(off, &s.data[..n], u64::from(s.undef)),
                Some((op, ty)) => {
                    let word = |b: &[u8]| b.iter().rev().fold(0u64, |v, &x| v << 8 | u64::from(x));
                    let undef = c.shared.undef(off, n);
                    let new =
                        atom(op, ty, Place::Cluster, word(c.shared.bytes(off, n)), word(&s.data[..n]), 0);
                    c.shared.store(off, &new.to_le_bytes()[..n], undef);
                }
            }
        }
        self.completed(c, p, c.rank, *mbar, *bytes)
    }

    /// `complete_tx` of an operation in the books of `c` on a barrier of the CTA of `rank`.
    pub(super) fn completed(
        &mut self,
        c: &mut Cta,
        p: &Pending,
        rank: u32,
        mbar: u32,
        bytes: u32,
    ) -> Res<()> {
        c.landed[p.id as usize] = true;
        let (w, at) = (p.warp as usize, c.now(p.warp as usize) + self.opts.costs.load);
        if rank == c.rank {
            return self.async_complete(c, w, p.pc, mbar, bytes, Release::Op(p.id), at);
        }
        let (here, w) = (c.rank, abroad(c.rank, w));
        self.on(c, rank, |m, c| m.async_complete(c, w, p.pc, mbar, bytes, Release::PeerOp(here, p.id), at))
    }
}
