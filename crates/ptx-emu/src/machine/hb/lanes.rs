//! What the lanes of a warp know. Lanes that have met at the same instructions know the same and share one clock; a
//! lane that waits or acquires alone gets one of its own until the warp meets again.
//!
//! A warp has one time, which every release of any of its lanes moves on. What a lane publishes covers its own
//! accesses up to now, but those of its neighbours only up to the last `.sync` instruction at which they met.

use super::clock::Know;

/// Distances that synchronisation can bridge: within a CTA, a cluster, the GPU.
pub const REACHES: usize = 3;

/// Lanes with one clock.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Lanes.
    pub lanes: u32,
    /// What they know.
    pub know: Know,
    /// By reach ([`super::sync::reach`]): what they knew, and had done, at their last fence that goes so far. It is
    /// what a relaxed store publishes.
    pub released: [Option<Box<Know>>; REACHES],
    /// By reach: what relaxed loads have seen published. It is known from the next fence on that goes so far.
    pub acquired: [Option<Box<Know>>; REACHES],
}

/// A warp.
#[derive(Debug)]
pub struct WarpHb {
    /// Lanes that exist.
    exist: u32,
    /// Now.
    pub time: u32,
    /// Something was accessed since all lanes met.
    pub dirty: bool,
    groups: Vec<Group>,
    /// Last event: program counter, lanes, time, number.
    pub last: (u32, u32, u32, u32),
}

impl WarpHb {
    /// A warp with the lanes `exist`.
    pub fn new(exist: u32) -> WarpHb {
        let all = Group { lanes: exist, ..Group::default() };
        WarpHb { exist, time: 1, dirty: false, groups: vec![all], last: (u32::MAX, 0, 0, 0) }
    }

    /// What lane `l` knows.
    #[inline]
    pub fn know(&self, l: u32) -> &Know {
        let i = match self.groups.len() {
            1 => 0,
            _ => self.groups.iter().position(|g| g.lanes >> l & 1 != 0).unwrap_or(0),
        };
        &self.groups[i].know
    }

    /// The groups that `lanes` belong to: which of them, and what they know.
    pub fn groups_of(&self, lanes: u32) -> impl Iterator<Item = (u32, &Know)> {
        self.groups.iter().filter(move |g| g.lanes & lanes != 0).map(move |g| (g.lanes & lanes, &g.know))
    }

    /// The group of lane `l`.
    pub fn group(&self, l: u32) -> Option<&Group> {
        self.groups.iter().find(|g| g.lanes >> l & 1 != 0)
    }

    /// Calls `f` for the groups of `lanes`, cut to just those.
    pub fn each(&mut self, lanes: u32, mut f: impl FnMut(&mut Group)) {
        let mut cut = vec![];
        for g in self.groups.iter_mut().filter(|g| g.lanes & lanes != 0) {
            if g.lanes & !lanes != 0 {
                let rest = Group { lanes: g.lanes & !lanes, ..g.clone() };
                g.lanes &= lanes;
                cut.push(rest);
            }
            f(g);
        }
        self.groups.extend(cut);
    }

    /// What `lanes` publish when they release now.
    pub fn release(&mut self, cta: u32, w: u32, lanes: u32) -> Know {
        let mut know = Know::default();
        for g in self.groups.iter().filter(|g| g.lanes & lanes != 0) {
            know.join(&g.know);
        }
        know.all.part_mut(cta).warp_mut(w).raise(lanes & self.exist, self.exist, self.time);
        self.time += 1;
        know
    }

    /// `lanes` learn `know`.
    pub fn acquire(&mut self, lanes: u32, know: &Know) {
        self.each(lanes, |g| g.know.join(know));
    }

    /// `lanes` meet at an instruction: each knows what the others have done.
    pub fn meet(&mut self, cta: u32, w: u32, lanes: u32) {
        let lanes = lanes & self.exist;
        if lanes == 0 || lanes.is_power_of_two() || !self.dirty && self.groups.len() == 1 {
            return;
        }
        let (exist, time) = (self.exist, self.time);
        self.time += 1;
        let mut one = Group::default();
        let whole = |g: &Group| g.lanes & !lanes == 0;
        if let [g] = &mut self.groups[..]
            && whole(g)
        {
            g.know.all.part_mut(cta).warp_mut(w).raise(lanes, exist, time);
            self.dirty = false;
            return;
        }
        self.each(lanes, |g| {
            one.lanes |= g.lanes;
            one.know.join(&g.know);
            one.know.after.join(&g.know.after);
            let pairs = one.released.iter_mut().zip(&g.released);
            for (mine, theirs) in pairs.chain(one.acquired.iter_mut().zip(&g.acquired)) {
                if let Some(k) = theirs {
                    mine.get_or_insert_default().join(k);
                }
            }
        });
        one.know.all.part_mut(cta).warp_mut(w).raise(lanes, exist, time);
        self.groups.retain(|g| g.lanes & lanes == 0);
        self.groups.push(one);
        if self.groups.len() == 1 {
            self.dirty = false;
        }
    }

    /// `lanes` execute a proxy fence: what they know and have done is behind it.
    pub fn proxy_fence(&mut self, cta: u32, w: u32, lanes: u32) {
        let (exist, time) = (self.exist, self.time);
        self.time += 1;
        self.each(lanes, |g| {
            g.know.fenced.join(&g.know.all);
            g.know.fenced.part_mut(cta).warp_mut(w).raise(g.lanes, exist, time);
        });
    }

    /// `lanes` execute a memory fence that reaches as far as `reach`.
    pub fn memory_fence(&mut self, cta: u32, w: u32, lanes: u32, reach: usize) {
        let (exist, time) = (self.exist, self.time);
        self.time += 1;
        self.each(lanes, |g| {
            for k in g.acquired[..=reach].iter_mut().filter_map(Option::take) {
                g.know.join(&k);
            }
            let mut k = Box::new(g.know.clone());
            k.all.part_mut(cta).warp_mut(w).raise(g.lanes, exist, time);
            g.released[..=reach].fill(Some(k));
        });
    }
}
