// Which query tiles a CTA works on and which K/V blocks each of them needs.
#pragma once
#include "attn/mask.cuh"

// One query tile: rows [first_row, first_row + tile_m) and K/V blocks end_block−1 … first_block, in this order.
struct Tile {
    u32 first_row;
    u32 first_block, end_block;  // equal: absent, or no row sees a key
    bool present;                // some row exists

    __device__ __forceinline__ u32 n_blocks() const { return end_block - first_block; }
};

// The work of one CTA.
struct Work {
    u32 head, kv_head, batch;
    Tile tile[2];
    u32 first_block, end_block;  // of both tiles together: the K/V blocks that are loaded

    __device__ __forceinline__ u32 n_blocks() const { return end_block - first_block; }
    // Tile t takes part in the K/V steps skip(t) ≤ i < stop(t); the others are blocks that only the other tile sees.
    __device__ __forceinline__ u32 skip(u32 t) const { return end_block - tile[t].end_block; }
    __device__ __forceinline__ u32 stop(u32 t) const { return end_block - tile[t].first_block; }
};

// The blocks between the first key of the first row and the last key of the last row.
template <Mask kMask, u32 kTileM, u32 kTileN> __device__ __forceinline__ Tile make_tile(const AttnParams& p,
                                                                                        u32 first_row) {
    const bool present = first_row < p.seqlen_q;
    const u32 last_row = min(first_row + kTileM, p.seqlen_q) - 1;
    const u32 keys = present ? end_key<kMask>(p, last_row) : 0;
    const u32 end_block = keys / kTileN + (keys % kTileN != 0);
    return {first_row, min(first_key<kMask>(p, first_row) / kTileN, end_block), end_block, present};
}

// Full: the row blocks of a head behind each other, which share K and V in L2. Else longest first, so that short CTAs
// fill the end of the grid: the last row block of each head, then the one before it, …; section by section of as many
// heads as the host thinks have their K and V in L2 together.
template <Mask kMask, u32 kTileM, u32 kTileN> __device__ __forceinline__ Work make_work(const AttnParams& p) {
    Work work;
    const u32 m_blocks = (p.seqlen_q + 2 * kTileM - 1) / (2 * kTileM);
    u32 m_block, head;  // the head counted over all batch entries
    if (kMask == Mask::kFull) {
        m_block = blockIdx.x % m_blocks;
        head = blockIdx.x / m_blocks;
    } else {
        const u32 section = blockIdx.x / (p.heads_per_section * m_blocks);
        const u32 first_head = section * p.heads_per_section;
        const u32 at = blockIdx.x - first_head * m_blocks;
        const u32 heads = min(p.heads_per_section, p.num_heads_q * p.batch - first_head);
        m_block = m_blocks - 1 - at / heads;
        head = first_head + at % heads;
    }
    work.batch = head / p.num_heads_q;
    work.head = head % p.num_heads_q;
    work.kv_head = work.head / p.qhead_per_kvhead;
    const Tile t0 = make_tile<kMask, kTileM, kTileN>(p, 2 * m_block * kTileM);
    const Tile t1 = make_tile<kMask, kTileM, kTileN>(p, (2 * m_block + 1) * kTileM);
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
