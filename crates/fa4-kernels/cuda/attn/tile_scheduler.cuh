// Which query tiles a CTA works on and how many K/V blocks each of them needs.
#pragma once
#include "attn/mask.cuh"

// One query tile: rows [first_row, first_row + tile_m) and K/V blocks n_blocks−1 … 0, in this order.
struct Tile {
    u32 first_row;
    u32 n_blocks;  // 0: absent, or no row sees a key
    bool present;  // some row exists
};

// The work of one CTA.
struct Work {
    u32 head, kv_head, batch;
    Tile tile[2];
    u32 n_blocks;  // of the longer tile: the K/V blocks that are loaded

    // K/V steps that pass before tile t joins in: the shorter tile skips the blocks that only the other one sees.
    __device__ __forceinline__ u32 skip(u32 t) const { return n_blocks - tile[t].n_blocks; }
};

template <Mask kMask, u32 kTileM, u32 kTileN> __device__ __forceinline__ Tile make_tile(const AttnParams& p,
                                                                                        u32 first_row) {
    const bool present = first_row < p.seqlen_q;
    const u32 last_row = min(first_row + kTileM, p.seqlen_q) - 1;
    const u32 keys = present ? visible_keys<kMask>(p, last_row) : 0;
    return {first_row, keys / kTileN + (keys % kTileN != 0), present};
}

// Causal CTAs start with the longest tiles, so that the short ones fill the end of the grid.
template <Mask kMask, u32 kTileM, u32 kTileN> __device__ __forceinline__ Work make_work(const AttnParams& p) {
    Work work;
    const u32 m_block = kMask == Mask::kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    work.head = blockIdx.y;
    work.kv_head = work.head / p.qhead_per_kvhead;
    work.batch = blockIdx.z;
    work.tile[0] = make_tile<kMask, kTileM, kTileN>(p, 2 * m_block * kTileM);
    work.tile[1] = make_tile<kMask, kTileM, kTileN>(p, (2 * m_block + 1) * kTileM);
    work.n_blocks = max(work.tile[0].n_blocks, work.tile[1].n_blocks);
    return work;
}
