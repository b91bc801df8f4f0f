//! Accesses by number. A shadow cell holds a stamp, the number of an event and the lanes of it that touched the cell;
//! whether an event happened before somebody is looked up here, so that completing an operation costs nothing per
//! byte.
//!
//! Numbers are handed out once per instruction and time, and those that no shadow mentions any more are dropped from
//! time to time, so memory is bounded by the shadows, not by the length of the run.

use super::clock::Know;

/// Event number in the upper half, lanes in the lower; 0: nobody.
pub type Stamp = u64;

/// Event number of a stamp.
#[inline]
pub fn event_of(s: Stamp) -> u32 {
    (s >> 32) as u32
}

/// A stamp.
#[inline]
pub fn stamp(event: u32, lanes: u32) -> Stamp {
    u64::from(event) << 32 | u64::from(lanes)
}

/// How far an operation is ordered: two strong ones are ordered by the hardware where both scopes reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Scope {
    /// Nobody else (a fence that orders no memory).
    #[default]
    Thread,
    /// Threads of the CTA.
    Cta,
    /// Threads of the cluster.
    Cluster,
    /// Threads of the GPU.
    Gpu,
    /// Everybody.
    Sys,
}

/// How a strong access or an atomic is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Among whom.
    pub scope: Scope,
    /// What was published there is known from now on.
    pub acquire: bool,
    /// Publishes what came before.
    pub release: bool,
}

/// Kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ordinary load or store.
    Weak,
    /// Atomic, volatile, relaxed or stronger.
    Strong(Scope),
    /// `cp.async`: asynchronous, generic proxy.
    CpAsync,
    /// Bulk copy: async proxy.
    Bulk,
    /// tcgen05.mma or cp: async proxy, executes in issue order.
    Pipe,
    /// wgmma: async proxy.
    Wgmma,
    /// tcgen05.ld.
    TmemLd,
    /// tcgen05.st.
    TmemSt,
    /// tcgen05.dealloc.
    Dealloc,
    /// mbarrier.init or inval.
    Barrier,
    /// `st.async`, `red.async`, and copies between CTAs that reduce: asynchronous; of no proxy that is checked.
    Remote {
        /// It reduces: two of those do not conflict.
        adds: bool,
    },
}

impl Kind {
    /// A thread's own access.
    pub fn ordinary(self) -> bool {
        matches!(self, Kind::Weak | Kind::Strong(_) | Kind::Barrier | Kind::Dealloc)
    }

    /// Reads and writes shared memory through the generic proxy.
    pub fn generic(self) -> bool {
        matches!(self, Kind::Weak | Kind::Strong(_) | Kind::CpAsync)
    }
}

/// When an access is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With its instruction.
    Issue,
    /// Not known yet.
    Open,
    /// When a counter of a CTA reaches a value.
    Count {
        /// CTA of the counter.
        cta: u32,
        /// Counter.
        id: u32,
        /// Value.
        n: u32,
    },
    /// At this time of its warp, for the whole warp.
    Warp(u32),
}

/// An access.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// CTA, as a linear index.
    pub cta: u32,
    /// Warp.
    pub warp: u32,
    /// Lanes that executed it.
    pub lanes: u32,
    /// Program counter.
    pub pc: u32,
    /// Machine step.
    pub step: u64,
    /// Time of the warp at the issue.
    pub time: u32,
    /// Kind.
    pub kind: Kind,
    /// When it is over.
    pub end: End,
    /// Time of the warp at which a loaded register was first used (0: not yet): the load is then certainly done.
    pub used: u32,
}

/// Who asks: lanes of a warp with what they know.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// CTA.
    pub cta: u32,
    /// Warp.
    pub warp: u32,
    /// Lanes that touch the cell.
    pub lanes: u32,
    /// The kind of their access.
    pub kind: Kind,
    /// What they know.
    pub know: &'a Know,
}

/// All events that a shadow may mention.
pub struct Events {
    list: Vec<Event>,
    /// Length at which the list is swept.
    limit: usize,
}

impl Default for Events {
    fn default() -> Self {
        let nobody = Event {
            cta: 0,
            warp: 0,
            lanes: 0,
            pc: 0,
            step: 0,
            time: 0,
            kind: Kind::Weak,
            end: End::Issue,
            used: 0,
        };
        Events { list: vec![nobody], limit: 1 << 19 }
    }
}

impl Events {
    /// Records an event; its number.
    pub fn push(&mut self, e: Event) -> u32 {
        self.list.push(e);
        self.list.len() as u32 - 1
    }

    /// By number.
    #[inline]
    pub fn get(&self, id: u32) -> &Event {
        &self.list[id as usize]
    }

    /// By number, for completing it.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Event {
        &mut self.list[id as usize]
    }

    /// Whether it is time to sweep.
    pub fn full(&self) -> bool {
        self.list.len() > self.limit
    }

    /// Keeps the events that `live` marks; the new number of each.
    pub fn sweep(&mut self, live: &[bool]) -> Vec<u32> {
        let mut to = vec![0; self.list.len()];
        let mut n = 0;
        for i in 0..self.list.len() {
            if i == 0 || live[i] {
                self.list.swap(n, i);
                to[i] = n as u32;
                n += 1;
            }
        }
        self.list.truncate(n);
        self.limit = (2 * n).max(1 << 19);
        to
    }

    /// Number of events, for a table of marks.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether what `s` stands for happened before `v`.
    #[inline]
    pub fn ordered(&self, s: Stamp, v: &View<'_>) -> bool {
        let e = &self.list[event_of(s) as usize];
        let lanes = s as u32;
        if e.cta == v.cta && e.warp == v.warp {
            // A lane's own accesses come in program order; where it wrote together with others, they wrote the same.
            if e.end == End::Issue && lanes & v.lanes == v.lanes {
                return true;
            }
            if matches!(e.end, End::Warp(_)) {
                return true;
            }
        }
        if e.kind == Kind::Pipe && v.kind == Kind::Pipe && e.cta == v.cta {
            // A CTA's pipe works in issue order, so it is enough that the issue came before.
            return e.warp == v.warp && e.lanes == v.lanes
                || v.know.all.part(e.cta).is_some_and(|p| p.warp(e.warp).covers(e.lanes, e.time));
        }
        match e.end {
            End::Open => false,
            End::Count { cta, id, n } => v.know.all.count(cta, id) >= n,
            End::Issue => v.know.all.part(e.cta).is_some_and(|p| p.warp(e.warp).covers(lanes, e.time)),
            End::Warp(t) => v.know.all.part(e.cta).is_some_and(|p| p.warp(e.warp).any(t)),
        }
    }

    /// Whether a proxy fence stands between the generic access `s` and `v`.
    pub fn fenced(&self, s: Stamp, v: &View<'_>) -> bool {
        let e = self.get(event_of(s));
        match e.end {
            End::Open => false,
            End::Count { cta, id, n } => v.know.fenced.count(cta, id) >= n,
            End::Issue => v.know.fenced.part(e.cta).is_some_and(|p| p.warp(e.warp).covers(s as u32, e.time)),
            End::Warp(t) => v.know.fenced.part(e.cta).is_some_and(|p| p.warp(e.warp).any(t)),
        }
    }

    /// Whether the loaded registers of the load `s` were used before `v`.
    pub fn consumed(&self, s: Stamp, v: &View<'_>) -> bool {
        let e = self.get(event_of(s));
        e.used != 0
            && (e.cta == v.cta && e.warp == v.warp && v.lanes == s as u32
                || v.know.all.part(e.cta).is_some_and(|p| p.warp(e.warp).covers(s as u32, e.used)))
    }
}
