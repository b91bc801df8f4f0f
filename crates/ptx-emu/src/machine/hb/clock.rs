//! What an actor knows: for each warp up to which time it has seen the lanes' accesses, for each counter (completed
//! phases of an mbarrier, finished operations of a stream) how far it has got.
//!
//! Clocks only grow, and joining is exact: nothing is rounded up (that would hide a race) or down (that would
//! invent one).

use std::rc::Rc;

/// What is known of the lanes of one warp: each lane's accesses up to and including a time. Times start at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The same for all lanes.
    All(u32),
    /// Lane by lane.
    Lanes(Box<[u32; 32]>),
}

impl Seen {
    /// Whether the accesses of all of `lanes` up to `time` are known.
    #[inline]
    pub fn covers(&self, lanes: u32, time: u32) -> bool {
        match self {
            Seen::All(t) => *t >= time,
            Seen::Lanes(t) => (0..32).all(|l| lanes >> l & 1 == 0 || t[l] >= time),
        }
    }

    /// Whether some lane is known up to `time`: enough for what a warp did as a whole.
    #[inline]
    pub fn any(&self, time: u32) -> bool {
        match self {
            Seen::All(t) => *t >= time,
            Seen::Lanes(t) => t.iter().any(|&t| t >= time),
        }
    }

    /// Raises `lanes`, of a warp that has the lanes `exist`, to `time`.
    pub fn raise(&mut self, lanes: u32, exist: u32, time: u32) {
        match self {
            Seen::All(t) if *t >= time => {}
            Seen::All(t) if lanes == exist => *t = time,
            Seen::All(t) => {
                let old = *t;
                let one = |l: usize| if lanes >> l & 1 != 0 { time } else { old };
                *self = Seen::Lanes(Box::new(std::array::from_fn(one)));
            }
            Seen::Lanes(t) => {
                for (l, t) in t.iter_mut().enumerate() {
                    if lanes >> l & 1 != 0 {
                        *t = (*t).max(time);
                    }
                }
                let first = t[exist.trailing_zeros() as usize & 31];
                if (0..32).all(|l| exist >> l & 1 == 0 || t[l] == first) {
                    *self = Seen::All(first);
                }
            }
        }
    }

    fn within(&self, other: &Seen) -> bool {
        match (self, other) {
            (Seen::All(a), Seen::All(b)) => a <= b,
            (Seen::All(a), Seen::Lanes(b)) => b.iter().all(|b| a <= b),
            (Seen::Lanes(a), Seen::All(b)) => a.iter().all(|a| a <= b),
            (Seen::Lanes(a), Seen::Lanes(b)) => a.iter().zip(b.iter()).all(|(a, b)| a <= b),
        }
    }

    fn join(&mut self, other: &Seen) {
        match (&mut *self, other) {
            (Seen::All(a), Seen::All(b)) => *a = (*a).max(*b),
            (Seen::All(a), Seen::Lanes(b)) => {
                let a = *a;
                *self = Seen::Lanes(Box::new(b.map(|b| a.max(b))));
            }
            (Seen::Lanes(a), Seen::All(b)) => a.iter_mut().for_each(|a| *a = (*a).max(*b)),
            (Seen::Lanes(a), Seen::Lanes(b)) => {
                a.iter_mut().zip(b.iter()).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
        if let Seen::Lanes(t) = self
            && t.iter().all(|x| *x == t[0])
        {
            *self = Seen::All(t[0]);
        }
    }
}

/// What is known of one CTA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// By warp.
    warps: Vec<Seen>,
    /// By counter.
    counts: Vec<u32>,
    /// By warp: up to when its tcgen05 operations are behind a `tcgen05.fence::before_thread_sync` of its own.
    behind: Vec<u32>,
}

impl Part {
    /// Of warp `w`.
    #[inline]
    pub fn warp(&self, w: u32) -> &Seen {
        self.warps.get(w as usize).unwrap_or(&Seen::All(0))
    }

    /// For raising what is known of warp `w`.
    pub fn warp_mut(&mut self, w: u32) -> &mut Seen {
        let n = w as usize + 1;
        if self.warps.len() < n {
            self.warps.resize(n, Seen::All(0));
        }
        &mut self.warps[w as usize]
    }

    /// Up to when tcgen05 operations of warp `w` are behind its `tcgen05.fence::before_thread_sync`; 0: none.
    #[inline]
    pub fn behind(&self, w: u32) -> u32 {
        self.behind.get(w as usize).copied().unwrap_or(0)
    }

    /// Warp `w` executed one.
    pub fn raise_behind(&mut self, w: u32, time: u32) {
        raise(&mut self.behind, w, time);
    }

    /// Value of a counter.
    #[inline]
    pub fn count(&self, id: u32) -> u32 {
        self.counts.get(id as usize).copied().unwrap_or(0)
    }

    /// Raises a counter.
    pub fn raise(&mut self, id: u32, n: u32) {
        raise(&mut self.counts, id, n);
    }

    fn within(&self, other: &Part) -> bool {
        self.counts.iter().enumerate().all(|(i, &n)| n <= other.count(i as u32))
            && self.warps.iter().enumerate().all(|(w, s)| s.within(other.warp(w as u32)))
            && self.behind.iter().enumerate().all(|(w, &t)| t <= other.behind(w as u32))
    }

    fn join(&mut self, other: &Part) {
        for (w, s) in other.warps.iter().enumerate() {
            self.warp_mut(w as u32).join(s);
        }
        for (i, &n) in other.counts.iter().enumerate().filter(|(_, n)| **n != 0) {
            self.raise(i as u32, n);
        }
        for (w, &t) in other.behind.iter().enumerate().filter(|(_, t)| **t != 0) {
            self.raise_behind(w as u32, t);
        }
    }
}

/// Raises one of a list of numbers that are 0 past its end.
fn raise(list: &mut Vec<u32>, i: u32, n: u32) {
    if list.len() <= i as usize {
        list.resize(i as usize + 1, 0);
    }
    let x = &mut list[i as usize];
    *x = (*x).max(n);
}

/// A clock over all CTAs that something is known of. Parts are shared until they are changed.
#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<(u32, Rc<Part>)>);

impl Clock {
    /// What is known of a CTA.
    #[inline]
    pub fn part(&self, cta: u32) -> Option<&Part> {
        match &self.0[..] {
            [(c, p)] if *c == cta => Some(p),
            all => all.iter().find(|(c, _)| *c == cta).map(|(_, p)| &**p),
        }
    }

    /// For raising what is known of a CTA.
    pub fn part_mut(&mut self, cta: u32) -> &mut Part {
        let i = self.0.partition_point(|(c, _)| *c < cta);
        if self.0.get(i).is_none_or(|(c, _)| *c != cta) {
            self.0.insert(i, (cta, Rc::default()));
        }
        Rc::make_mut(&mut self.0[i].1)
    }

    /// Value of a counter.
    #[inline]
    pub fn count(&self, cta: u32, id: u32) -> u32 {
        self.part(cta).map_or(0, |p| p.count(id))
    }

    /// Learns what `other` knows.
    pub fn join(&mut self, other: &Clock) {
        for (cta, p) in &other.0 {
            let i = self.0.partition_point(|(c, _)| c < cta);
            match self.0.get_mut(i) {
                Some((c, mine)) if c == cta => {
                    if !Rc::ptr_eq(mine, p) && !p.within(mine) {
                        if mine.within(p) { *mine = p.clone() } else { Rc::make_mut(mine).join(p) }
                    }
                }
                _ => self.0.insert(i, (*cta, p.clone())),
            }
        }
    }
}

/// What is known to have happened before, and which of it a proxy fence stands behind.
#[derive(Clone, Debug, Default)]
pub struct Know {
    /// Everything that happened before.
    pub all: Clock,
    /// Generic accesses behind a `fence.proxy.async` on the way here: asynchronous ones may follow them.
    pub fenced: Clock,
    /// What was known at the last `tcgen05.fence::after_thread_sync`. It is nobody else's: see [`Know::join`].
    pub after: Clock,
}

impl Know {
    /// Learns what `other` has published.
    pub fn join(&mut self, other: &Know) {
        self.all.join(&other.all);
        self.fenced.join(&other.fenced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_join_and_become_uniform_again() {
        let mut s = Seen::All(3);
        s.raise(1, !0, 5);
        assert!(s.covers(1, 5) && !s.covers(2, 5) && s.covers(!0, 3) && s.any(5) && !s.any(6));
        let mut other = Seen::All(4);
        other.raise(!1, !0, 5);
        assert!(!s.within(&other));
        s.join(&other);
        assert_eq!(s, Seen::All(5));
        s.raise(0xf, 0xf, 7);
        assert_eq!(s, Seen::All(7));
    }

    #[test]
    fn clocks_share_parts_until_they_differ() {
        let mut a = Clock::default();
        a.part_mut(0).raise(2, 7);
        let b = a.clone();
        a.part_mut(0).warp_mut(1).raise(!0, !0, 4);
        assert_eq!((b.count(0, 2), b.part(0).map(|p| p.warp(1).covers(1, 1))), (7, Some(false)));
        let mut c = Clock::default();
        c.part_mut(3).raise(0, 1);
        c.join(&a);
        c.join(&b);
        assert!(c.part(0).is_some_and(|p| p.warp(1).covers(!0, 4)) && c.count(3, 0) == 1);
    }
}
