//! Shadow of tensor memory: one cell for 16 lanes of a column, the finest that an instruction touches.

use super::cell::{Cell, Clash, Lists, Memo, clash};
use super::event::{Events, Kind, Stamp, View};
use super::shared::{Does, worst};
use crate::machine::tmem::TMEM_COLS;

/// Groups of 16 lanes.
const ROWS: usize = 8;

/// Shadow of a CTA's tensor memory; empty until it is touched.
#[derive(Default)]
pub struct TmemShadow {
    cells: Vec<Cell>,
    lists: Lists,
    /// Columns given up and not allocated again: first, number, by whom (in a pair, each CTA for both).
    freed: Vec<(u32, u32, Stamp)>,
}

impl TmemShadow {
    /// Columns `col..col + cols` of the 16-lane groups in `rows`.
    pub fn access(
        &mut self,
        events: &Events,
        v: &View<'_>,
        (col, cols): (u32, u32),
        rows: u8,
        does: Does,
        mine: Stamp,
    ) -> Option<(u32, Clash)> {
        if self.cells.is_empty() {
            self.cells = vec![Cell::default(); ROWS * TMEM_COLS];
        }
        let (mut memo, mut found) = (Memo::default(), None);
        let end = (col + cols).min(TMEM_COLS as u32);
        if v.kind == Kind::Dealloc {
            self.freed.push((col, cols, mine));
        } else if !self.freed.is_empty() {
            for &(at, _, s) in self.freed.iter().filter(|f| f.0 < end && col < f.0 + f.1) {
                found =
                    found.or(clash(events, s, v, mine, true, does == Does::Write).map(|f| (at.max(col), f)));
            }
        }
        for x in col..end {
            for r in (0..ROWS).filter(|r| rows >> r & 1 != 0) {
                let cell = &mut self.cells[x as usize * ROWS + r];
                let f = match does {
                    // Not a write like others: the deallocation of one CTA of a pair must not hide what the other's has
                    // to come after.
                    Does::Write if v.kind == Kind::Dealloc => {
                        cell.may_write(&self.lists, events, v, mine, &mut memo)
                    }
                    Does::Read => cell.on_read(&mut self.lists, events, v, mine, &mut memo),
                    Does::Write => cell.on_write(&mut self.lists, events, v, mine, &mut memo),
                };
                if let Some(f) = f
                    && found.is_none_or(|(_, old)| worst(Some(old), Some(f)) != Some(old))
                {
                    found = Some((x, f));
                }
            }
        }
        found
    }

    /// Columns change hands: the allocator orders their old users before the new ones.
    pub fn clear(&mut self, col: u32, cols: u32) {
        let cells = self.cells.iter_mut().skip(col as usize * ROWS).take(cols as usize * ROWS);
        cells.for_each(|c| c.clear(&mut self.lists));
        self.freed.retain(|f| f.0 >= col + cols || col >= f.0 + f.1);
    }

    /// Calls `f` with every stamp.
    pub fn each(&mut self, mut f: impl FnMut(&mut Stamp)) {
        self.cells.iter_mut().for_each(|c| c.each(&mut self.lists, &mut f));
        self.freed.iter_mut().for_each(|x| f(&mut x.2));
    }
}
