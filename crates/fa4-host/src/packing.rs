//! How many query heads share a tile.
//!
//! A tile has 128 rows whether there are 128 query rows or one. Where `seqlen_q` is small, the rows of several query heads
//! that read the same K/V head fill it together, so that K and V are walked once for all of them. Tile row r is then query
//! row r % `rows_per_head` of head r / `rows_per_head`: the rows of one head lie together because the tensor maps have the
//! sequence before the head, so that packing is nothing but another box, for any ratio and any strides.

use std::fmt;

use fa4_kernels::manifest::Row;
use fa4_spec::problem::AttnProblem;

/// The rows of a tile by query head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// Query heads of one K/V head in a tile, a head group; divides the ratio of heads. 1: not packed.
    pub heads_per_tile: u32,
    /// Query rows of each of them in a tile.
    pub rows_per_head: u32,
    /// Tiles of a CTA, one behind the other in the sequence.
    pub tiles_per_cta: u32,
}

/// Packed where that takes at most this share of the CTAs (numerator, denominator). A packed tile saves nothing but CTAs;
/// on a long sequence it saves none, and whole tiles of one head need no division of row numbers.
const WORTH: (u64, u64) = (9, 10);

impl Packing {
    /// One head a tile.
    pub fn none(row: &Row) -> Self {
        let tile_rows = row.problem.packs_rows.unwrap_or(row.problem.rows_per_cta);
        Packing {
            heads_per_tile: 1,
            rows_per_head: tile_rows,
            tiles_per_cta: row.problem.rows_per_cta / tile_rows,
        }
    }

    /// The packing with the fewest CTAs, if that is worth it and the variant packs: the smallest group among equals.
    pub fn choose(p: &AttnProblem, row: &Row) -> Self {
        let none = Packing::none(row);
        let Some(tile_rows) = row.problem.packs_rows else { return none };
        let ratio = p.qhead_per_kvhead();
        let groups = (2..=tile_rows).filter(|&heads| ratio.is_multiple_of(u64::from(heads)));
        let packed = groups
            .map(|heads| Packing { heads_per_tile: heads, rows_per_head: tile_rows / heads, ..none })
            .min_by_key(|packing| packing.ctas(p));
        let worth = |x: &Packing| x.ctas(p).saturating_mul(WORTH.1) <= none.ctas(p).saturating_mul(WORTH.0);
        packed.filter(|packing| none.ctas(p) > 0 && worth(packing)).unwrap_or(none)
    }

    /// CTAs of a head group: `seqlen_q` over the query rows of a CTA.
    pub fn m_blocks(&self, p: &AttnProblem) -> u64 {
        p.seqlen_q.div_ceil(u64::from(self.tiles_per_cta) * u64::from(self.rows_per_head))
    }

    /// Head groups of a batch entry.
    pub fn head_groups(&self, p: &AttnProblem) -> u64 {
        p.num_heads_q / u64::from(self.heads_per_tile)
    }

    /// CTAs of a launch; `u64::MAX` where they are even more.
    pub fn ctas(&self, p: &AttnProblem) -> u64 {
        self.m_blocks(p).saturating_mul(self.head_groups(p)).saturating_mul(p.batch)
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.heads_per_tile {
            1 => write!(f, "{} rows of one head a tile", self.rows_per_head),
            heads => write!(f, "{heads} heads of {} rows a tile", self.rows_per_head),
        }
    }
}

#[cfg(test)]
mod tests {
    use fa4_kernels::manifest::by_entry;
    use fa4_spec::{DType, Mask};

    use super::*;

    fn choose(seqlen_q: u64, heads: (u64, u64)) -> (u32, u32, u64) {
        let p = AttnProblem::dense(1, (seqlen_q, 500), heads, 128, Mask::FULL, DType::Bf16);
        let packing = Packing::choose(&p, by_entry("fwd_sm100_hd128_bf16_full").unwrap());
        (packing.heads_per_tile, packing.rows_per_head, packing.ctas(&p))
    }

    /// Counted by hand: CTAs of two tiles of 128 rows.
    #[test]
    fn short_sequences_are_packed() {
        assert_eq!(choose(1, (8, 1)), (8, 16, 1));
        assert_eq!(choose(1, (96, 8)), (12, 10, 8));
        assert_eq!(choose(1, (71, 1)), (71, 1, 1));
        // Two tiles of 42 rows a head, not three; 3 · 42 = 126 of 128 rows.
        assert_eq!(choose(84, (3, 1)), (3, 42, 1));
        assert_eq!(choose(85, (3, 1)), (3, 42, 2));
        // 256 heads do not fit into 128 rows: two groups of 128.
        assert_eq!(choose(1, (256, 1)), (128, 1, 2));
        // A prime ratio above 128 has no group.
        assert_eq!(choose(1, (131, 1)), (1, 128, 131));
    }

    #[test]
    fn long_sequences_and_single_heads_are_not() {
        assert_eq!(choose(1, (4, 4)), (1, 128, 4));
        assert_eq!(choose(256, (8, 1)), (1, 128, 8));
        assert_eq!(choose(8192, (8, 1)), (1, 128, 256));
        // 33 CTAs instead of 40: the unpacked ones would do a last row in a CTA of its own, eight times.
        assert_eq!(choose(1025, (8, 1)), (8, 16, 33));
        // 9 CTAs of 10 are worth it, 10 of 10 are not.
        assert_eq!(choose(216, (10, 1)), (10, 12, 9));
        assert_eq!(choose(217, (10, 1)), (1, 128, 10));
    }

    #[test]
    fn equal_counts_take_the_smaller_group() {
        assert_eq!(choose(64, (8, 1)), (4, 32, 2));
    }

    /// No tile is overfull, and packing wastes less than half of it.
    #[test]
    fn groups_fill_the_tile() {
        for ratio in 1..=300 {
            for seqlen_q in [1, 2, 7, 40, 100, 200, 300] {
                let (heads, rows, ctas) = choose(seqlen_q, (ratio, 1));
                assert!((65..=128).contains(&(heads * rows)), "{ratio} {seqlen_q}");
                assert!(ratio.is_multiple_of(u64::from(heads)));
                assert!(ctas <= ratio * seqlen_q.div_ceil(256));
            }
        }
    }

    /// Hopper's kernel does not pack.
    #[test]
    fn variants_that_do_not_pack_keep_their_tiles() {
        let p = AttnProblem::dense(1, (1, 500), (8, 1), 64, Mask::FULL, DType::Bf16);
        let row = by_entry("fwd_sm90_hd64_bf16_full").unwrap();
        let packing = Packing::choose(&p, row);
        assert_eq!(packing, Packing { heads_per_tile: 1, rows_per_head: 192, tiles_per_cta: 1 });
        assert_eq!(packing.ctas(&p), 8);
        assert_eq!(packing.to_string(), "192 rows of one head a tile");
    }
}
