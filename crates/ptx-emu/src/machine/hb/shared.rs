//! Shadow of shared memory (and of a page of global memory): one cell for 16 bytes while all accesses are of whole
//! granules, else one for each 4 bytes or each byte.

use super::cell::{Cell, Clash, Lists, Memo};
use super::event::{Events, Stamp, View};

/// Bytes of a granule.
pub const GRANULE: usize = 16;

struct Split {
    /// Bytes of a cell: 4 or 1.
    unit: usize,
    cells: Vec<Cell>,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Reads.
    Read,
    /// Writes (and perhaps reads).
    Write,
}

/// Shadow of a range of bytes.
#[derive(Default)]
pub struct Bytes {
    whole: Vec<Cell>,
    /// Per granule: 1 + index of its split; 0: none.
    split: Vec<u32>,
    splits: Vec<Split>,
    free: Vec<u32>,
    lists: Lists,
}

impl Bytes {
    /// Of `n` bytes.
    pub fn new(n: usize) -> Bytes {
        let n = n.div_ceil(GRANULE);
        Bytes { whole: vec![Cell::default(); n], split: vec![0; n], ..Bytes::default() }
    }

    /// A whole granule. Faults and strict findings of it, if any.
    #[inline]
    pub fn granule(
        &mut self,
        events: &Events,
        v: &View<'_>,
        g: usize,
        does: Does,
        mine: Stamp,
        memo: &mut Memo,
    ) -> Option<Clash> {
        if self.split[g] != 0 {
            return self.split_granule(events, v, g, does, mine);
        }
        let cell = &mut self.whole[g];
        match does {
            Does::Read => cell.on_read(&mut self.lists, events, v, mine, memo),
            Does::Write => cell.on_write(&mut self.lists, events, v, mine, memo),
        }
    }

    fn split_granule(
        &mut self,
        events: &Events,
        v: &View<'_>,
        g: usize,
        does: Does,
        mine: Stamp,
    ) -> Option<Clash> {
        let found = self.part(events, v, g, 0..GRANULE, does, mine);
        if does == Does::Write {
            // All its cells are alike now.
            let i = std::mem::take(&mut self.split[g]) - 1;
            self.splits[i as usize].cells.iter_mut().for_each(|c| c.clear(&mut self.lists));
            self.free.push(i);
            self.whole[g] = Cell::written(mine);
        }
        found
    }

    /// `n` bytes at `off`, not necessarily whole granules.
    pub fn range(
        &mut self,
        events: &Events,
        v: &View<'_>,
        off: usize,
        n: usize,
        does: Does,
        mine: Stamp,
    ) -> Option<Clash> {
        let (mut memo, mut found, end) = (Memo::default(), None, off + n);
        let mut at = off;
        while at < end {
            let g = at / GRANULE;
            let to = end.min((g + 1) * GRANULE);
            let f = if at.is_multiple_of(GRANULE) && to - at == GRANULE {
                self.granule(events, v, g, does, mine, &mut memo)
            } else {
                self.part(events, v, g, at % GRANULE..to - g * GRANULE, does, mine)
            };
            found = worst(found, f);
            at = to;
        }
        found
    }

    fn part(
        &mut self,
        events: &Events,
        v: &View<'_>,
        g: usize,
        range: std::ops::Range<usize>,
        does: Does,
        mine: Stamp,
    ) -> Option<Clash> {
        let unit = if range.start.is_multiple_of(4) && range.end.is_multiple_of(4) { 4 } else { 1 };
        let i = self.split_to(g, unit);
        let Split { unit, cells } = &mut self.splits[i];
        let (unit, mut memo, mut found) = (*unit, Memo::default(), None);
        for cell in &mut cells[range.start / unit..range.end.div_ceil(unit)] {
            let f = match does {
                Does::Read => cell.on_read(&mut self.lists, events, v, mine, &mut memo),
                Does::Write => cell.on_write(&mut self.lists, events, v, mine, &mut memo),
            };
            found = worst(found, f);
        }
        found
    }

    /// Splits granule `g` to cells of at most `unit` bytes; index of the split.
    fn split_to(&mut self, g: usize, unit: usize) -> usize {
        if self.split[g] == 0 {
            let whole = std::mem::take(&mut self.whole[g]);
            let i = self.free.pop().unwrap_or_else(|| {
                self.splits.push(Split { unit, cells: vec![] });
                self.splits.len() as u32 - 1
            });
            self.split[g] = i + 1;
            let s = &mut self.splits[i as usize];
            s.unit = unit;
            s.cells.clear();
            s.cells.extend((0..GRANULE / unit).map(|_| whole.part(&mut self.lists)));
            let mut whole = whole;
            whole.clear(&mut self.lists);
            return i as usize;
        }
        let i = self.split[g] as usize - 1;
        let s = &mut self.splits[i];
        if s.unit > unit {
            let old = std::mem::take(&mut s.cells);
            let per = s.unit / unit;
            s.cells.reserve(old.len() * per);
            for mut c in old {
                s.cells.extend((0..per).map(|_| c.part(&mut self.lists)));
                c.clear(&mut self.lists);
            }
            s.unit = unit;
        }
        i
    }

    /// Calls `f` with every stamp.
    pub fn each(&mut self, mut f: impl FnMut(&mut Stamp)) {
        let cells = self.whole.iter_mut().chain(self.splits.iter_mut().flat_map(|s| &mut s.cells));
        cells.for_each(|c| c.each(&mut self.lists, &mut f));
    }
}

/// The graver of two findings, the first of equals.
pub fn worst(a: Option<Clash>, b: Option<Clash>) -> Option<Clash> {
    match (a, b) {
        (None, Some(_)) => b,
        (Some(first), Some(_)) if first.strict().is_some() => b,
        _ => a,
    }
}
