//! Tensor memory of one CTA: 128 lanes × 512 columns of 32-bit cells, the allocation map, definedness and the
//! matrix unit's leases.

/// Lanes.
pub const TMEM_LANES: usize = 128;
/// Columns.
pub const TMEM_COLS: usize = 512;

/// Tensor memory; cells are stored column by column, so a column's 128 lanes are contiguous.
pub struct Tmem {
    cells: Vec<u32>,
    /// Undefined bytes per cell (bit i = byte i).
    undef: Vec<u8>,
    /// Per column: lanes with at least one undefined byte.
    undef_lanes: Vec<u128>,
    /// Per column: 1 + index of the allocation that owns it (0 = free).
    owner: Vec<u16>,
    /// Live allocations: (first column, columns), `None` once freed.
    pub allocs: Vec<Option<(u32, u32)>>,
    /// Size of the last allocation: sizes must not grow.
    pub last_cols: Option<u32>,
    /// `relinquish_alloc_permit` was executed.
    pub relinquished: bool,
    /// Most columns ever allocated at once.
    pub high_water: u32,
    /// Per column and 32-lane window: sequence number of the last matrix operation that wrote it.
    pub mma_write: Vec<[u32; 4]>,
    /// Per column and 32-lane window: sequence number of the last matrix operation that read it.
    pub mma_read: Vec<[u32; 4]>,
}

impl Default for Tmem {
    fn default() -> Self {
        Tmem {
            cells: vec![0; TMEM_LANES * TMEM_COLS],
            undef: vec![0xf; TMEM_LANES * TMEM_COLS],
            undef_lanes: vec![!0; TMEM_COLS],
            owner: vec![0; TMEM_COLS],
            allocs: Vec::new(),
            last_cols: None,
            relinquished: false,
            high_water: 0,
            mma_write: vec![[0; 4]; TMEM_COLS],
            mma_read: vec![[0; 4]; TMEM_COLS],
        }
    }
}

impl Tmem {
    /// First-fit allocation at a multiple of its size.
    pub fn alloc(&mut self, cols: u32) -> Option<u32> {
        let base = self.room(cols as usize, |_| true)?;
        Some(self.take(base, cols))
    }

    /// The same in two CTAs at once, at the same columns.
    pub fn alloc_both(&mut self, other: &mut Tmem, cols: u32) -> Option<u32> {
        let n = cols as usize;
        let base = self.room(n, |b| other.is_free(b, n))?;
        other.take(base, cols);
        Some(self.take(base, cols))
    }

    fn is_free(&self, base: usize, n: usize) -> bool {
        self.owner[base..base + n].iter().all(|&o| o == 0)
    }

    fn room(&self, n: usize, also: impl Fn(usize) -> bool) -> Option<usize> {
        (0..TMEM_COLS).step_by(n).find(|&b| self.is_free(b, n) && also(b))
    }

    fn take(&mut self, base: usize, cols: u32) -> u32 {
        let n = cols as usize;
        self.allocs.push(Some((base as u32, cols)));
        let id = self.allocs.len() as u16;
        self.owner[base..base + n].fill(id);
        for c in base..base + n {
            self.undef_lanes[c] = !0;
            self.undef[c * TMEM_LANES..(c + 1) * TMEM_LANES].fill(0xf);
        }
        self.last_cols = Some(cols);
        let live: u32 = self.allocs.iter().flatten().map(|a| a.1).sum();
        self.high_water = self.high_water.max(live);
        base as u32
    }

    /// Frees the allocation that begins at `col`; returns its size.
    pub fn dealloc(&mut self, col: u32) -> Option<u32> {
        let slot = self.allocs.iter_mut().find(|a| a.is_some_and(|(b, _)| b == col))?;
        let (base, cols) = slot.take()?;
        self.owner[base as usize..(base + cols) as usize].fill(0);
        Some(cols)
    }

    /// First live allocation: (first column, columns).
    pub fn live(&self) -> Option<(u32, u32)> {
        self.allocs.iter().flatten().next().copied()
    }

    /// First column of `col..col + n` that is not allocated.
    pub fn first_unallocated(&self, col: u32, n: u32) -> Option<u32> {
        (col..col + n).find(|&c| c as usize >= TMEM_COLS || self.owner[c as usize] == 0)
    }

    /// The 128 cells of a column.
    #[inline]
    pub fn column(&self, col: usize) -> &[u32] {
        &self.cells[col * TMEM_LANES..(col + 1) * TMEM_LANES]
    }

    /// Lanes of a column with an undefined byte.
    #[inline]
    pub fn undefined_lanes(&self, col: usize) -> u128 {
        self.undef_lanes[col]
    }

    /// Undefined bytes of a cell.
    #[inline]
    pub fn undef(&self, lane: usize, col: usize) -> u8 {
        if self.undef_lanes[col] >> lane & 1 == 0 { 0 } else { self.undef[col * TMEM_LANES + lane] }
    }

    /// Value of a cell.
    #[inline]
    pub fn get(&self, lane: usize, col: usize) -> u32 {
        self.cells[col * TMEM_LANES + lane]
    }

    /// Writes a cell.
    #[inline]
    pub fn set(&mut self, lane: usize, col: usize, v: u32, undef: u8) {
        self.cells[col * TMEM_LANES + lane] = v;
        self.undef[col * TMEM_LANES + lane] = undef;
        if undef == 0 { self.undef_lanes[col] &= !(1 << lane) } else { self.undef_lanes[col] |= 1 << lane }
    }

    /// Writes 32 cells of a column, all defined.
    #[inline]
    pub fn set_window(&mut self, lane0: usize, col: usize, v: &[u32; 32]) {
        let at = col * TMEM_LANES + lane0;
        self.cells[at..at + 32].copy_from_slice(v);
        self.undef_lanes[col] &= !(0xffff_ffffu128 << lane0);
    }

    /// Writes a whole column, all defined.
    #[inline]
    pub fn set_column(&mut self, col: usize, v: &[u32]) {
        self.cells[col * TMEM_LANES..(col + 1) * TMEM_LANES].copy_from_slice(v);
        self.undef_lanes[col] = 0;
    }
}
