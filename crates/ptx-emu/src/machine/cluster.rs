//! Clusters: CTAs that are resident together, reach each other's shared memory and meet at the cluster barrier.
//!
//! # One CTA runs, the others wait in [`Machine::peers`]
//!
//! Everything that executes takes the running CTA as `c`. The others of its cluster lie in `Machine::peers` by rank;
//! the running one's place there is empty. [`Machine::on`] lets a peer change places with the running CTA for a while,
//! so code that works on "the CTA" works on a peer too, and the former runner stays reachable as a peer.
//!
//! # Whose books
//!
//! An operation is entered in the books (number, landing, leases) of the CTA whose shared memory it writes, whoever
//! issued it. Its origin and the warp in messages then name another CTA: [`abroad`] writes the rank of the issuer into
//! the upper half of a warp number, [`home`] reads it back. A barrier of one CTA that vouches for an operation in the
//! books of another carries [`Release::PeerOp`].
//!
//! # What is checked
//!
//! A CTA that another one still uses must not have ended: access to an ended CTA, or ending while an operation of a peer
//! is on its way here, is `cluster.ended`. The check sees it only when the schedule lets it happen (the `late-lifo`
//! schedule runs the CTAs of a cluster in reverse), and raises no false alarm: nothing but the order of execution can
//! bring an access after the end.

use super::cta::{Cta, Release, State};
use super::exec::{Next, lanes};
use super::inst::Reg;
use super::run::{Machine, Res};
use crate::fault::{Code, Fault};
use crate::isa::regs::Class;
use crate::launch::Launch;
use crate::syntax::ast::Function;

/// Most CTAs of a cluster (above 8 a kernel must ask for it; that attribute is not modelled).
const MAX_CTAS: u32 = 16;
/// Where the rank of a warp's CTA stands in a warp number.
const ABROAD: u32 = 16;

/// Size of the clusters of a launch.
#[derive(Clone, Copy, Debug)]
pub struct ClusterDims {
    /// CTAs along each axis.
    pub dims: [u32; 3],
    /// The launch or the kernel asked for clusters.
    pub explicit: bool,
}

impl Default for ClusterDims {
    fn default() -> ClusterDims {
        ClusterDims { dims: [1; 3], explicit: false }
    }
}

/// CTAs of one cluster by rank; empty places while one runs.
pub(super) type Ctas = Vec<Option<Box<Cta>>>;

/// Cluster size of a launch; else what is wrong with it, and help.
pub(super) fn dims(launch: &Launch<'_>, f: &Function) -> Result<ClusterDims, (String, &'static str)> {
    let asked = launch.cluster;
    let wanted = f.reqnctapercluster.map(|c| c.map(|x| x.max(1)));
    if asked.contains(&0) {
        return Err((format!("cluster {asked:?} has no CTA"), "1 or more along each axis"));
    }
    let dims = match wanted {
        Some(w) if asked == [1; 3] || asked == w => w,
        Some(w) => {
            return Err((
                format!("cluster {asked:?} but the kernel says .reqnctapercluster {w:?}"),
                "launch with the cluster size that the kernel was compiled for, or leave it out",
            ));
        }
        None => asked,
    };
    if dims.iter().map(|&d| u64::from(d)).product::<u64>() > u64::from(MAX_CTAS) {
        return Err((format!("a cluster of {dims:?} CTAs"), "at most 16 CTAs"));
    }
    if (0..3).any(|i| !launch.grid[i].is_multiple_of(dims[i])) {
        return Err((
            format!("grid {:?} is no multiple of the cluster {dims:?}", launch.grid),
            "the grid is counted in CTAs; each of its axes is a multiple of the cluster's",
        ));
    }
    Ok(ClusterDims { dims, explicit: wanted.is_some() || asked != [1; 3] })
}

/// Rank of a CTA in its cluster.
pub(super) fn rank(id: [u32; 3], dims: [u32; 3]) -> u32 {
    let [x, y, z] = std::array::from_fn(|i| id[i] % dims[i]);
    x + dims[0] * (y + dims[1] * z)
}

/// Warp `w` of the CTA of `rank`, as a number that is good in messages of other CTAs.
pub(super) fn abroad(rank: u32, w: usize) -> usize {
    match home(w as u32).0 {
        Some(_) => w,
        None => w | (rank as usize + 1) << ABROAD,
    }
}

/// Rank of the CTA (`None`: the one that keeps the number) and warp in it.
pub(super) fn home(warp: u32) -> (Option<u32>, u32) {
    ((warp >> ABROAD).checked_sub(1), warp & ((1 << ABROAD) - 1))
}

impl Machine<'_> {
    /// CTAs of a cluster.
    pub(super) fn cluster_size(&self) -> u32 {
        self.prog.cluster.dims.iter().product()
    }

    /// Index in the grid of the CTA of `rank` in the cluster of `c`.
    pub(super) fn cta_id(&self, c: &Cta, rank: u32) -> [u32; 3] {
        let d = self.prog.cluster.dims;
        let at = [rank % d[0], rank / d[0] % d[1], rank / d[0] / d[1]];
        std::array::from_fn(|i| c.id[i] / d[i] * d[i] + at[i])
    }

    /// The cluster with this number, at its first instruction.
    pub(super) fn new_cluster(&self, number: u64) -> Ctas {
        let first = self.first_cta(number);
        let d = self.prog.cluster.dims;
        let race = self.opts.checks.race;
        (0..self.cluster_size())
            .map(|r| {
                let at = [r % d[0], r / d[0] % d[1], r / d[0] / d[1]];
                let id = std::array::from_fn(|i| first[i] + at[i]);
                let mut cta = super::setup::new_cta(self.prog, self.launch, id, race);
                if self.cluster_size() > 1 {
                    cta.hb.has_peers();
                }
                if self.timed() {
                    cta.clocks = Some(Box::new(super::predict::Clocks::new(cta.warps.len())));
                }
                Some(Box::new(cta))
            })
            .collect()
    }

    /// First CTA of the cluster with this number.
    pub(super) fn first_cta(&self, number: u64) -> [u32; 3] {
        let (d, g) = (self.prog.cluster.dims, self.launch.grid);
        let n: [u64; 3] = std::array::from_fn(|i| u64::from(g[i] / d[i]));
        let at = [number % n[0], number / n[0] % n[1], number / n[0] / n[1]];
        std::array::from_fn(|i| at[i] as u32 * d[i])
    }

    /// Runs `f` with the CTA of `rank` in the place of the running one.
    pub(super) fn on<T>(
        &mut self,
        c: &mut Cta,
        rank: u32,
        f: impl FnOnce(&mut Self, &mut Cta) -> Res<T>,
    ) -> Res<T> {
        let here = c.rank;
        if rank == here {
            return f(self, c);
        }
        self.change_places(c, rank);
        let r = f(self, c);
        self.change_places(c, here);
        r
    }

    fn change_places(&mut self, c: &mut Cta, rank: u32) {
        if let Some(mut p) = self.peers[rank as usize].take() {
            let here = c.rank;
            std::mem::swap(c, &mut *p);
            self.peers[here as usize] = Some(p);
        }
    }

    /// Another CTA of the cluster.
    pub(super) fn peer(&self, rank: u32) -> Option<&Cta> {
        self.peers.get(rank as usize)?.as_deref()
    }

    /// Rank of the CTA that a shared::cluster address names, which must exist and not have ended.
    pub(super) fn reach(&self, c: &Cta, w: usize, pc: u32, lanes: u32, addr: u64) -> Res<u32> {
        let rank = (addr >> 24) as u32;
        if rank == c.rank {
            return Ok(rank);
        }
        let Some(p) = self.peer(rank) else {
            let f = Fault::new(
                Code::BoundsShared,
                format!(
                    "shared::cluster address {addr:#x} names CTA {rank} of a cluster of {}",
                    self.cluster_size()
                ),
            );
            return Err(self.fault(c, w, pc, lanes, f));
        };
        if p.ended {
            return Err(self.ended_fault(c, w, pc, lanes, rank));
        }
        Ok(rank)
    }

    /// As [`Machine::reach`] for an operation that lands: hardware raises nothing then.
    pub(super) fn still_there(&self, c: &Cta, w: usize, pc: u32, rank: u32) -> Res<()> {
        if self.opts.checks.lease && self.peer(rank).is_some_and(|p| p.ended) {
            return Err(self.ended_fault(c, w, pc, 0, rank));
        }
        Ok(())
    }

    fn ended_fault(&self, c: &Cta, w: usize, pc: u32, lanes: u32, rank: u32) -> super::run::Stop {
        let text = format!(
            "`{}` reaches the shared memory of CTA {:?} (rank {rank} of the cluster), which has ended",
            self.opcode(pc),
            self.cta_id(c, rank)
        );
        let f = Fault::new(Code::ClusterEnded, text)
            .missing("barrier.cluster.arrive and barrier.cluster.wait by every thread of the cluster after the last access to a peer, before a CTA ends");
        self.fault(c, w, pc, lanes, f)
    }

    /// A CTA ends while an operation of a peer is on its way to it.
    pub(super) fn nothing_under_way(&self, c: &Cta) -> Res<()> {
        if !self.opts.checks.lease {
            return Ok(());
        }
        let inbound =
            c.pending.iter().find(|p| home(p.warp).0.is_some()).map(|p| (c.origins[p.id as usize], "writes"));
        let outbound =
            c.lent.iter().find(|&&o| !c.landed[o as usize]).map(|&o| (c.origins[o as usize], "reads"));
        let Some((o, does)) = inbound.or(outbound) else { return Ok(()) };
        let mut f = Fault::new(
            Code::ClusterEnded,
            format!("CTA {:?} ended while `{}` still {does} its shared memory", c.id, self.opcode(o.pc)),
        )
        .missing("a wait for its completion by the CTA whose memory it uses, or a cluster barrier after that wait, before the CTA ends");
        f.site = Some(self.site(c, o, 0, format!("issued: {}", self.opcode(o.pc))));
        Err(super::run::Stop::Fault(Box::new(f)))
    }

    /// Hands releases on to the CTAs whose operations they are about.
    pub(super) fn deliver(&mut self, c: &mut Cta) {
        for r in std::mem::take(&mut c.outbox) {
            self.release_one(c, r);
        }
    }

    /// An operation was observed complete.
    pub(super) fn release_one(&mut self, c: &mut Cta, r: Release) {
        let (rank, r) = match r {
            Release::PeerOp(rank, op) => (rank, Release::Op(op)),
            Release::PeerMma(rank, seq) => (rank, Release::Mma(seq)),
            own => (c.rank, own),
        };
        let cta = if rank == c.rank { c } else { self.peers[rank as usize].as_deref_mut().unwrap_or(c) };
        match r {
            Release::Op(op) => cta.released[op as usize] = true,
            Release::Mma(seq) => cta.mma_released = cta.mma_released.max(seq),
            Release::PeerOp(..) | Release::PeerMma(..) => {}
        }
    }

    /// barrier.cluster.arrive and barrier.cluster.wait.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn cluster_barrier(
        &mut self,
        c: &mut Cta,
        w: usize,
        s: usize,
        pc: u32,
        m: u32,
        arrives: bool,
        aligned: bool,
        relaxed: bool,
    ) -> Res<Next> {
        let mut groups = vec![s];
        let mut m = m;
        if aligned {
            let live = c.warps[w].live;
            let Some(g) = self.gather(c, w, s, live) else { return Ok(Next::Block(State::Sync(live))) };
            if g == [s] {
                self.whole_warp(c, w, pc, m)?;
            }
            groups = g;
            m = live;
        }
        let warp = &mut c.warps[w];
        if arrives {
            let again = warp.cluster_owed & m;
            if again != 0 {
                let f = Fault::new(
                    Code::ClusterBarrier,
                    "barrier.cluster.arrive by a thread that has not waited since its last arrival",
                )
                .missing("barrier.cluster.wait between two arrivals of a thread");
                return Err(self.fault(c, w, pc, again, f));
            }
            warp.cluster_arrived |= m;
            warp.cluster_owed |= m;
            if !relaxed {
                self.hb_publish_inits(c, w, m, false);
            }
            c.hb.cluster_arrive(w, pc, m);
            self.progress += 1;
            self.recheck_cluster(c);
            return Ok(self.release(c, w, s, &groups));
        }
        let never = m & !warp.cluster_owed;
        if never != 0 {
            let f = Fault::new(
                Code::ClusterBarrier,
                "barrier.cluster.wait by a thread that has not arrived in this phase",
            )
            .missing("barrier.cluster.arrive by the same thread before each wait");
            return Err(self.fault(c, w, pc, never, f));
        }
        if warp.cluster_arrived & m != 0 {
            for &g in &groups {
                warp.splits[g].state = State::Cluster;
            }
            return Ok(Next::Block(State::Cluster));
        }
        warp.cluster_owed &= !m;
        c.hb.cluster_waited(w, pc, m);
        Ok(self.release(c, w, s, &groups))
    }

    /// Completes the phase of the cluster barrier when every thread of the cluster that has not exited is there.
    pub(super) fn recheck_cluster(&mut self, c: &mut Cta) {
        let missing = |c: &Cta| c.warps.iter().any(|w| w.live & !w.cluster_arrived != 0);
        let arrived = |c: &Cta| c.warps.iter().any(|w| w.cluster_arrived != 0);
        let peers = || self.peers.iter().flatten();
        if !(arrived(c) || peers().any(|p| arrived(p))) || missing(c) || peers().any(|p| missing(p)) {
            return;
        }
        let mut know = c.hb.cluster_take();
        for p in self.peers.iter_mut().flatten() {
            know.join(&p.hb.cluster_take());
        }
        for p in self.peers.iter_mut().flatten() {
            p.hb.cluster_give(&know);
        }
        c.hb.cluster_give(&know);
        for w in c.warps.iter_mut().chain(self.peers.iter_mut().flatten().flat_map(|p| &mut p.warps)) {
            w.cluster_arrived = 0;
            for s in &mut w.splits {
                if s.state == State::Cluster {
                    s.state = State::Ready;
                }
            }
        }
        self.progress += 1;
    }

    /// Threads at the cluster barrier, and those that have to come.
    pub(super) fn cluster_count(&self, live: &[Ctas], of: &Cta) -> (u32, u32) {
        let same = |c: &&Cta| {
            (0..3).all(|i| c.id[i] / self.prog.cluster.dims[i] == of.id[i] / self.prog.cluster.dims[i])
        };
        let warps = live.iter().flatten().flatten().map(|c| &**c).filter(same).flat_map(|c| &c.warps);
        warps.fold((0, 0), |(a, b), w| {
            (a + (w.live & w.cluster_arrived).count_ones(), b + w.live.count_ones())
        })
    }

    /// `mapa`: the same place in the CTA of another rank.
    pub(super) fn mapa(
        &mut self,
        c: &mut Cta,
        w: usize,
        pc: u32,
        m: u32,
        (d, a, r): (Reg, Reg, u32),
    ) -> Res<Next> {
        self.defined32(c, w, pc, m, r, "the rank")?;
        for l in lanes(m) {
            let rank = c.warps[w].regs.r32[r as usize].0[l];
            if rank >= self.cluster_size() {
                let text = format!("CTA rank {rank} in a cluster of {}", self.cluster_size());
                return Err(self.fault(c, w, pc, 1 << l, Fault::new(Code::BoundsOther, text)));
            }
            let regs = &mut c.warps[w].regs;
            let place = |v: u64| v & !0xff00_0000 | u64::from(rank) << 24;
            if d.0 == Class::R64 {
                let (v, u) = (regs.r64[a.1 as usize].0[l], regs.bytes64(a.1, l));
                regs.set64(d.1, l, place(v), u);
            } else {
                let (v, u) = (regs.r32[a.1 as usize].0[l], regs.bytes32(a.1, l));
                regs.set32(d.1, l, place(v.into()) as u32, u);
            }
        }
        Ok(Next::Advance)
    }

    /// `getctarank`.
    pub(super) fn cta_rank(&mut self, c: &mut Cta, w: usize, m: u32, d: u32, (class, a): Reg) -> Next {
        let regs = &mut c.warps[w].regs;
        for l in lanes(m) {
            let (v, undef) = match class {
                Class::R64 => (regs.r64[a as usize].0[l] as u32, regs.bytes64(a, l) != 0),
                _ => (regs.r32[a as usize].0[l], regs.bytes32(a, l) != 0),
            };
            regs.set32(d, l, v >> 24, if undef { 0xf } else { 0 });
        }
        Next::Advance
    }
}
