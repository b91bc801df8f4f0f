//! Happens-before: two accesses to the same bytes, one of them a write, must be ordered by the program's own
//! synchronisation, whatever the schedule did. Otherwise they race, and that is a fault.
//!
//! Every lane and every asynchronous operation is an actor. Lanes carry vector clocks ([`clock`], one for a warp while
//! its lanes know the same, [`lanes`]); an operation knows what its issuer knew and is over when its completion signal
//! says so, which is a counter in the clocks: phases of an mbarrier for loads, the number of finished matrix
//! instructions for a commit, the same for bulk, `cp.async` and wgmma groups ([`event`]). Shadows remember the last
//! write and the reads since ([`cell`], [`shared`], [`tmem`], [`global`]). Edges are PTX's own ([`sync`]).
//!
//! **Levels.** Unordered: fault. A generic write before an asynchronous read needs a `fence.proxy.async` on the way,
//! by whomever: fault without it. A generic load before an asynchronous write: fault when no loaded register was used
//! and no fence executed before the hand-off (an H200 overwrites what such loads still read), else strict. Any other
//! order between the proxies without a fence: strict.
//!
//! **No false alarm**, because only what PTX calls a conflict is one, and every edge of PTX is here. More edges are
//! here than PTX promises, where the hardware's order is relied on everywhere: all `.sync` instructions order the
//! lanes that meet at them, matrix instructions execute in issue order, a hand-off without its `tcgen05.fence` orders (strict, [`fence`]), a commit
//! publishes all that its thread had done.
//!
//! **Clusters** ([`between`]): the cluster barrier joins what all its arrivals publish; arrivals on a peer's mbarrier,
//! multicast, `st.async` and copies between CTAs publish what their issuer knew. A relaxed arrival on the cluster
//! barrier counts as a release, a `.cta` scope on a peer's barrier as one of the cluster (strict, [`scope`]), and
//! `st.async`, `red.async` and reducing copies between CTAs need no proxy fence: all that is silence, not a promise.
//!
//! **CTA pairs** ([`pair`]): a matrix operation is its issuer's and stands in the shadows of both CTAs.
//!
//! **What it can miss**: what those extra edges hide; several lanes or warps that write the same value to the same bytes by one instruction;
//! readers of a cell beyond the 64 latest unordered ones; in global memory what [`global`] says; races on memory that
//! this run of the program did not reach. The order in which this schedule happened to execute two accesses does not
//! matter, except that a value read may lead the program elsewhere.

mod access;
mod between;
mod cell;
mod chain;
mod clock;
mod event;
mod far;
mod fence;
mod global;
mod guess;
mod lanes;
mod pair;
mod phase;
mod report;
mod scope;
mod shared;
mod sync;
mod tmem;
mod trail;

use super::ops::OpId;
pub use clock::Know;
pub use event::{End, Kind, Order, Scope};
use event::{Event, Events, event_of, stamp};
use lanes::WarpHb;
pub use shared::Does;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// What all CTAs share.
#[derive(Default)]
pub struct Hb {
    events: Events,
    /// Granules of operand address lists, by the list's place in memory (lists live as long as the machine).
    global: global::GlobalShadow,
    granules: HashMap<(usize, usize, u32), Rc<[u32]>>,
}

/// What counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stream {
    /// Matrix instructions of a thread: completed.
    Mma(u32, u32),
    /// wgmmas of a warp: waited for.
    Wgmma(u32),
    /// tcgen05.st of a warp: waited for.
    St(u32),
    /// `cp.async` of a warp.
    Cp(u32),
    /// Bulk stores of a thread: sources read.
    BulkRead(u32, u32),
    /// Bulk stores of a thread: written.
    BulkWrite(u32, u32),
}

/// An mbarrier.
struct Phases {
    /// Its counter: phases completed, on top of those of the barriers that were at its address before.
    id: u32,
    /// Those.
    base: u32,
    /// What all arrivals so far have published.
    arrived: Know,
    /// What the completed phases have.
    done: Know,
    /// Its initialisation.
    init: u32,
    /// Releases that carried the initialisation beyond the CTA.
    published: Vec<fence::Published>,
    /// Who arrived in this phase and the last.
    arrivals: phase::Arrivals,
    /// Last arrival of a thread of another CTA.
    far: Option<Event>,
    /// The same in the phases that are complete.
    far_done: Option<Event>,
}

/// An asynchronous operation under way.
struct Fork {
    /// Its events: what it writes in shared memory and reads in global memory; 0: none.
    events: [u32; 2],
    /// What it knows.
    know: Know,
}

/// A loaded register that nobody has used yet.
type Loaded = (super::inst::Reg, u32);

/// A CTA.
#[derive(Default)]
pub struct CtaHb {
    on: bool,
    /// Whether unused loads are followed (only where bulk copies could overwrite what they read).
    follow_loads: bool,
    cta: u32,
    warps: Vec<WarpHb>,
    shared: shared::Bytes,
    tmem: tmem::TmemShadow,
    mbars: HashMap<u32, Phases>,
    /// Waits that a phase may overtake, to be told of.
    overtaken: Vec<phase::Overtaken>,
    /// Counters of invalidated barriers by address, and how far they got: the next one there goes on with them.
    retired: HashMap<u32, (u32, u32)>,
    /// Per named barrier: what the arrivals have published, and the warps that wait.
    named: [(Know, u32); 16],
    /// The cluster barrier: what the arrivals of this phase have published, and those of the last one.
    cluster: (Know, Know),
    counters: u32,
    streams: HashMap<Stream, (u32, u32)>,
    forks: HashMap<OpId, Fork>,
    /// Events of operations that their own warp waits for.
    ops: HashMap<OpId, u32>,
    /// Per warp: loads whose registers nobody has used.
    loads: Vec<Vec<Loaded>>,
    trails: Vec<trail::Trail>,
    /// Per warp, in a cluster of several CTAs: what can be said of them to one another.
    far: Vec<far::FarTrail>,
    /// Event of the global side of the bulk load that is being issued.
    source_of_load: u32,
    /// Per thread: its bulk stores at each commit that no wait has covered, and the commits before those.
    commits: HashMap<(u32, u32), VecDeque<u32>>,
}

impl CtaHb {
    /// Of a CTA with this linear index, the lanes of its warps, and its shared memory's size.
    pub fn new(on: bool, follow_loads: bool, cta: u32, lanes: &[u32], shared: u32) -> CtaHb {
        if !on {
            return CtaHb::default();
        }
        CtaHb {
            on,
            follow_loads,
            cta,
            warps: lanes.iter().map(|&l| WarpHb::new(l)).collect(),
            shared: shared::Bytes::new(shared as usize),
            loads: vec![vec![]; lanes.len()],
            trails: vec![trail::Trail::default(); lanes.len()],
            ..CtaHb::default()
        }
    }

    /// Whether a warp has loads whose registers nobody has used.
    #[inline]
    pub fn loads_in_flight(&self, w: usize) -> bool {
        self.loads.get(w).is_some_and(|l| !l.is_empty())
    }

    fn counter(&mut self) -> u32 {
        self.counters += 1;
        self.counters - 1
    }

    /// Counter of a stream, and the number of operations issued to it.
    fn stream(&mut self, s: Stream) -> (u32, u32) {
        if let Some(&x) = self.streams.get(&s) {
            return x;
        }
        let id = self.counter();
        self.streams.insert(s, (id, 0));
        (id, 0)
    }

    /// One more operation on a stream: when it is over.
    fn issue(&mut self, s: Stream) -> End {
        let (id, n) = self.stream(s);
        self.streams.insert(s, (id, n + 1));
        End::Count { cta: self.cta, id, n: n + 1 }
    }

    /// `lanes` of warp `w` have seen all operations of a stream up to `n` finish.
    fn finished(&mut self, w: usize, lanes: u32, s: Stream, n: u32) {
        let ((id, _), cta) = (self.stream(s), self.cta);
        self.warps[w].each(lanes, |g| g.know.all.part_mut(cta).raise(id, n));
    }

    /// Every stamp of the CTA.
    fn each_stamp(&mut self, mut f: impl FnMut(&mut u64)) {
        self.shared.each(&mut f);
        self.tmem.each(&mut f);
        let mut one = |e: &mut u32| {
            let mut s = stamp(*e, 0);
            if s != 0 {
                f(&mut s);
                *e = event_of(s);
            }
        };
        self.mbars.values_mut().for_each(|b| one(&mut b.init));
        self.forks.values_mut().flat_map(|x| &mut x.events).for_each(&mut one);
        self.ops.values_mut().for_each(&mut one);
        self.loads.iter_mut().flatten().for_each(|l| one(&mut l.1));
        // A stale "last event" would be reused.
        self.warps.iter_mut().for_each(|w| w.last.0 = u32::MAX);
    }
}

impl super::run::Machine<'_> {
    /// Drops events that nothing mentions any more, when there are many.
    pub(super) fn hb_sweep(&mut self, live: &mut [super::cluster::Ctas]) {
        if !self.hb.events.full() {
            return;
        }
        let mut marks = vec![false; self.hb.events.len()];
        let mut mark = |s: &mut u64| marks[event_of(*s) as usize] = true;
        live.iter_mut().flatten().flatten().for_each(|c| c.hb.each_stamp(&mut mark));
        self.hb.global.each(&mut mark);
        let to = self.hb.events.sweep(&marks);
        let renumber = |s: &mut u64| *s = stamp(to[event_of(*s) as usize], *s as u32);
        live.iter_mut().flatten().flatten().for_each(|c| c.hb.each_stamp(renumber));
        self.hb.global.each(renumber);
    }

    /// Records an access of `lanes` of warp `w`; its event.
    fn hb_event(
        &mut self,
        c: &mut super::cta::Cta,
        w: usize,
        pc: u32,
        lanes: u32,
        kind: Kind,
        end: End,
    ) -> u32 {
        let (hb, w) = between::issuer(&mut self.peers, c, w);
        let warp = &mut hb.warps[w];
        warp.dirty = true;
        let again = end == End::Issue && !hb.follow_loads;
        if again && (warp.last.0, warp.last.1, warp.last.2) == (pc, lanes, warp.time) {
            return warp.last.3;
        }
        let time = warp.time;
        let e = Event { cta: hb.cta, warp: w as u32, lanes, pc, step: self.steps, time, kind, end, used: 0 };
        let id = self.hb.events.push(e);
        if end == End::Issue {
            warp.last = (pc, lanes, time, id);
        }
        id
    }
}
