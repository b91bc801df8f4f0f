//! One cell of shadow memory: who wrote it last and who has read it since.
//!
//! A new reader replaces an old one that happened before it: whoever comes after the new one comes after the old one
//! too. Readers that are not ordered among themselves are kept side by side, at most [`MOST_READERS`]; of more, the
//! oldest are forgotten (a race with one of those can be missed).

use super::event::{End, Events, Kind, Scope, Stamp, View, event_of};
use super::fence::{self, Side};
use crate::fault::Code;

/// Readers remembered side by side.
const MOST_READERS: usize = 64;
/// Marks `Cell::read` as the index of a list.
const LIST: u64 = 1 << 63;

/// Shadow of some bytes or cells.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cell {
    /// Last write.
    pub write: Stamp,
    /// Last read, or [`LIST`] and the number of a list of reads.
    read: Stamp,
}

/// Why an access may not follow an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clash {
    /// Nothing orders the two.
    Race {
        /// The earlier access.
        earlier: Stamp,
        /// It wrote.
        wrote: bool,
    },
    /// A generic write comes first, but no proxy fence stands before this asynchronous read.
    NoFence(Stamp),
    /// A load comes first whose registers nobody used before the hand-off; the asynchronous write may overtake it.
    InFlight(Stamp),
    /// A generic access comes first, the asynchronous write is ordered after it, but without a proxy fence (strict).
    Unfenced {
        /// The earlier access.
        earlier: Stamp,
        /// It wrote.
        wrote: bool,
    },
    /// Both are tcgen05 operations, the second is ordered after the first, but without a `tcgen05.fence` (strict).
    Tensor {
        /// The earlier access.
        earlier: Stamp,
        /// It wrote.
        wrote: bool,
        /// What is missing.
        side: Side,
    },
}

impl Clash {
    /// The code of a finding that is no fault.
    pub fn strict(self) -> Option<Code> {
        match self {
            Clash::Unfenced { .. } => Some(Code::StrictProxyOrder),
            Clash::Tensor { .. } => Some(Code::StrictTensorFence),
            _ => None,
        }
    }
}

/// Lists of readers of cells that have several.
#[derive(Default)]
pub struct Lists {
    lists: Vec<Vec<Stamp>>,
    free: Vec<u32>,
}

impl Lists {
    fn of(&self, read: Stamp) -> &[Stamp] {
        &self.lists[(read & !LIST) as usize]
    }

    fn make(&mut self, stamps: &[Stamp]) -> Stamp {
        let i = self.free.pop().unwrap_or_else(|| {
            self.lists.push(vec![]);
            self.lists.len() as u32 - 1
        });
        self.lists[i as usize].clear();
        self.lists[i as usize].extend_from_slice(stamps);
        u64::from(i) | LIST
    }

    fn drop(&mut self, read: Stamp) {
        if read & LIST != 0 {
            self.free.push((read & !LIST) as u32);
        }
    }
}

/// What was found out about the cells before, in one access of one view: neighbours mostly have the same history.
#[derive(Clone, Copy, Default)]
pub struct Memo {
    write: Stamp,
    read: Stamp,
}

/// Async proxy: does not see what the generic proxy did without a fence.
fn asynchronous(k: Kind) -> bool {
    matches!(k, Kind::Bulk | Kind::Pipe | Kind::Wgmma)
}

/// Two strong operations that reach each other are ordered by the memory itself.
fn strong(events: &Events, s: Stamp, v: &View<'_>) -> bool {
    let e = events.get(event_of(s));
    match (e.kind, v.kind) {
        (Kind::Strong(a), Kind::Strong(b)) => {
            let reach = if e.cta == v.cta { Scope::Cta } else { Scope::Gpu };
            a >= reach && b >= reach
        }
        (Kind::Remote { adds: true }, Kind::Remote { adds: true }) => true,
        // They are relaxed operations of the cluster's scope.
        (Kind::Remote { adds: true }, Kind::Strong(a)) | (Kind::Strong(a), Kind::Remote { adds: true }) => {
            a >= Scope::Cluster || e.cta == v.cta
        }
        _ => false,
    }
}

/// An earlier access against one that must come after it.
pub fn clash(
    events: &Events,
    s: Stamp,
    v: &View<'_>,
    mine: Stamp,
    wrote: bool,
    writes: bool,
) -> Option<Clash> {
    if s == 0 || event_of(s) == event_of(mine) || strong(events, s, v) {
        return None;
    }
    let e = events.get(event_of(s));
    let own = e.cta == v.cta && e.warp == v.warp;
    match (e.kind, v.kind) {
        // A warp's own moves between registers and tensor memory are judged by the lease check.
        (Kind::TmemLd | Kind::TmemSt, Kind::TmemLd | Kind::TmemSt | Kind::Dealloc) if own => return None,
        // wgmmas of a warp execute in order.
        (Kind::Wgmma, Kind::Wgmma) if own => return None,
        _ => {}
    }
    if !events.ordered(s, v) {
        return Some(Clash::Race { earlier: s, wrote });
    }
    if let Some(side) = fence::missing(events, s, v) {
        return Some(Clash::Tensor { earlier: s, wrote, side });
    }
    if !asynchronous(v.kind) || !e.kind.generic() || events.fenced(s, v) {
        return None;
    }
    match (wrote, writes) {
        (true, false) => Some(Clash::NoFence(s)),
        (false, true) if !events.consumed(s, v) && e.end == End::Issue => Some(Clash::InFlight(s)),
        _ => Some(Clash::Unfenced { earlier: s, wrote }),
    }
}

/// Whether a neighbour with the same history need not be looked at: nothing is wrong, or it would be the same finding
/// about a whole tile of tensor memory.
fn said_once(found: Option<Clash>) -> bool {
    matches!(found, None | Some(Clash::Tensor { .. }))
}

impl Cell {
    /// Written by `s` and not read since.
    pub fn written(s: Stamp) -> Cell {
        Cell { write: s, read: 0 }
    }

    /// A read by `v`, recorded as `mine`.
    #[inline]
    pub fn on_read(
        &mut self,
        lists: &mut Lists,
        events: &Events,
        v: &View<'_>,
        mine: Stamp,
        memo: &mut Memo,
    ) -> Option<Clash> {
        let mut found = None;
        if self.write != memo.write {
            found = clash(events, self.write, v, mine, true, false);
            if said_once(found) {
                memo.write = self.write;
            }
        }
        if self.read == 0 || self.read == memo.read {
            self.read = mine;
        } else if self.read != mine {
            let before = self.read;
            self.add(lists, events, v, mine);
            if self.read == mine {
                memo.read = before;
            }
        }
        found
    }

    fn add(&mut self, lists: &mut Lists, events: &Events, v: &View<'_>, mine: Stamp) {
        if self.read & LIST == 0 {
            if event_of(self.read) == event_of(mine) {
                self.read |= mine;
            } else if events.ordered(self.read, v) {
                self.read = mine;
            } else {
                self.read = lists.make(&[self.read, mine]);
            }
            return;
        }
        let list = &mut lists.lists[(self.read & !LIST) as usize];
        if let Some(s) = list.iter_mut().find(|s| event_of(**s) == event_of(mine)) {
            *s |= mine;
            return;
        }
        list.retain(|&s| !events.ordered(s, v));
        if list.len() == MOST_READERS {
            list.remove(0);
        }
        list.push(mine);
        if let [one] = list[..] {
            lists.drop(self.read);
            self.read = one;
        }
    }

    /// A write by `v`, recorded as `mine`.
    #[inline]
    pub fn on_write(
        &mut self,
        lists: &mut Lists,
        events: &Events,
        v: &View<'_>,
        mine: Stamp,
        memo: &mut Memo,
    ) -> Option<Clash> {
        let found = self.may_write(lists, events, v, mine, memo);
        lists.drop(self.read);
        // Several lanes of one instruction: one of them wrote last, nobody knows which.
        let together = if event_of(self.write) == event_of(mine) { self.write } else { 0 };
        *self = Cell { write: mine | together, read: 0 };
        found
    }

    /// What a write by `v` would find.
    #[inline]
    pub fn may_write(
        &self,
        lists: &Lists,
        events: &Events,
        v: &View<'_>,
        mine: Stamp,
        memo: &mut Memo,
    ) -> Option<Clash> {
        let mut found = None;
        if self.write != memo.write {
            found = clash(events, self.write, v, mine, true, true);
            if said_once(found) {
                memo.write = self.write;
            }
        }
        if self.read != 0 && self.read != memo.read {
            let worse = |a: Option<Clash>, b: Option<Clash>| match (a, b) {
                (None, Some(b)) => Some(b),
                (Some(a), Some(b)) if a.strict().is_some() => Some(b),
                _ => a,
            };
            let one = [self.read];
            let all = if self.read & LIST == 0 { &one[..] } else { lists.of(self.read) };
            let readers = all.iter().fold(None, |f, &s| worse(f, clash(events, s, v, mine, false, true)));
            if said_once(readers) && self.read & LIST == 0 {
                memo.read = self.read;
            }
            found = worse(found, readers);
        }
        found
    }

    /// Calls `f` with every stamp.
    pub fn each(&mut self, lists: &mut Lists, mut f: impl FnMut(&mut Stamp)) {
        if self.write != 0 {
            f(&mut self.write);
        }
        if self.read & LIST != 0 {
            lists.lists[(self.read & !LIST) as usize].iter_mut().for_each(f);
        } else if self.read != 0 {
            f(&mut self.read);
        }
    }

    /// The same history for a part of the cell: lists are not shared.
    pub fn part(&self, lists: &mut Lists) -> Cell {
        let read = if self.read & LIST != 0 {
            let all = lists.of(self.read).to_vec();
            lists.make(&all)
        } else {
            self.read
        };
        Cell { write: self.write, read }
    }

    /// Forgets the cell.
    pub fn clear(&mut self, lists: &mut Lists) {
        lists.drop(self.read);
        *self = Cell::default();
    }
}
