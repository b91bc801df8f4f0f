// Which query tiles a CTA works on and which K/V blocks each of them needs.
#pragma once
#include "attn/mask.cuh"

// One query tile: from query row first_row on, and K/V blocks end_block−1 … first_block, in this order.
struct Tile {
    u32 first_row;
    u32 first_block, end_block;  // equal: absent, or no row sees a key
    bool present;                // some row exists

    __device__ __forceinline__ u32 n_blocks() const { return end_block - first_block; }
};

// The work of one CTA.
struct Work {
    u32 head, kv_head, batch;  // head: the first of the tile's query heads
    Tile tile[2];
    u32 first_block, end_block;  // of both tiles together: the K/V blocks that are loaded

    __device__ __forceinline__ u32 n_blocks() const { return end_block - first_block; }
    // Tile t takes part in the K/V steps skip(t) ≤ i < stop(t); the others are blocks that only the other tile sees.
    __device__ __forceinline__ u32 skip(u32 t) const { return end_block - tile[t].end_block; }
    __device__ __forceinline__ u32 stop(u32 t) const { return end_block - tile[t].first_block; }
};

// `rows` query rows from first_row on: the blocks between the first key of the first and the last key of the last.
template <Mask kMask, u32 kTileM, u32 kTileN>
__device__ __forceinline__ Tile make_tile(const AttnParams& p, u32 first_row, u32 rows = kTileM) {
    const bool present = first_row < p.seqlen_q;
    const u32 last_row = min(first_row + rows, p.seqlen_q) - 1;
    const u32 keys = present ? end_key<kMask>(p, last_row) : 0;
    const u32 end_block = keys / kTileN + (keys % kTileN != 0);
    return {first_row, min(first_key<kMask>(p, first_row) / kTileN, end_block), end_block, present};
}

// A head group is heads_per_tile query heads that share a K/V head and the rows of a tile; mostly a single head.
//
// Full: the row blocks of a group behind each other, which share K and V in L2. Else longest first, so that short CTAs
// fill the end of the grid: the last row block of each group, then the one before it, …; section by section of as many
// groups as the host thinks have their K and V in L2 together.
template <Mask kMask, u32 kTileM, u32 kTileN> __device__ __forceinline__ Work make_work(const AttnParams& p) {
    Work work;
    u32 m_block, group;  // the group counted over all batch entries
    if (kMask == Mask::kFull) {
        m_block = blockIdx.x % p.m_blocks;
        group = blockIdx.x / p.m_blocks;
    } else {
        const u32 section = blockIdx.x / (p.groups_per_section * p.m_blocks);
        const u32 first_group = section * p.groups_per_section;
        const u32 at = blockIdx.x - first_group * p.m_blocks;
        const u32 groups = min(p.groups_per_section, p.head_groups * p.batch - first_group);
        m_block = p.m_blocks - 1 - at / groups;
        group = first_group + at % groups;
    }
    work.batch = group / p.head_groups;
    work.head = group % p.head_groups * p.heads_per_tile;
    work.kv_head = work.head / p.qhead_per_kvhead;
    const u32 rows = p.rows_per_head;
    const Tile t0 = make_tile<kMask, kTileM, kTileN>(p, 2 * m_block * rows, rows);
    const Tile t1 = make_tile<kMask, kTileM, kTileN>(p, (2 * m_block + 1) * rows, rows);
    work.tile[0] = t0;
    work.tile[1] = t1;
    work.end_block = max(t0.end_block, t1.end_block);
    work.first_block = 0;
    if (kMask == Mask::kGeneral)
        work.first_block = t0.n_blocks() == 0   ? t1.first_block
                           : t1.n_blocks() == 0 ? t0.first_block
                                                : min(t0.first_block, t1.first_block);
    return work;
}
