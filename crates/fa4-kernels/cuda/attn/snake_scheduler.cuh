// Which tiles a CTA of a persistent grid works on, and in which order. No counter in memory: the order is fixed.
//
// Tiles are lined up in sections of heads whose K and V fit in the L2 together; within a section the tiles with the
// most K/V blocks come first, one head after the other. The CTAs take from that line in snake order (0 1 2 … then
// … 2 1 0): work falls linearly along a section, so that two rounds of a CTA add up to about the same for all. With as
// many CTAs as tiles, each takes one and the hardware hands them out longest first.
#pragma once
#include "attn/tile_scheduler.cuh"

// Bytes of K and V that a section may hold: about half of Hopper's L2.
constexpr u32 kSectionBytes = 32u << 20;

struct SnakeScheduler {
    u32 cta, n_ctas, n_tiles, m_blocks, n_heads, section_heads;
    u32 round = 0;

    // kv_row_bytes: bytes of a row of K and a row of V together.
    __device__ __forceinline__ SnakeScheduler(const AttnParams& p, u32 tile_m, u32 kv_row_bytes) {
        cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        n_ctas = gridDim.x * gridDim.y * gridDim.z;
        m_blocks = (p.seqlen_q + tile_m - 1) / tile_m;
        n_heads = p.num_heads_q * p.batch;
        n_tiles = m_blocks * n_heads;
        const u32 kv_heads = max(kSectionBytes / kv_row_bytes / max(p.seqlen_k, 1u), 1u);
        section_heads = min(kv_heads * p.qhead_per_kvhead, n_heads);
    }

    // Position of the next tile in the line; false: no more.
    __device__ __forceinline__ bool next(u32& position) {
        position = round * n_ctas + (round % 2 == 0 ? cta : n_ctas - 1 - cta);
        ++round;
        return position < n_tiles;
    }

    // The tile at a position: query block, and head counted over the batch.
    template <Mask kMask> __device__ __forceinline__ void tile_at(u32 position, u32& m_block, u32& head) const {
        const u32 section = position / (section_heads * m_blocks);
        const u32 first_head = section * section_heads;
        const u32 heads = min(section_heads, n_heads - first_head);
        const u32 in_section = position - first_head * m_blocks;
        m_block = in_section / heads;
        head = first_head + in_section % heads;
        if (kMask == Mask::kCausal) m_block = m_blocks - 1 - m_block;
    }
};
