// Which tiles a CTA of a persistent grid works on, and in which order. No counter in memory: the order is fixed.
//
// Full: tiles head by head, dealt out in turn, so that at any time few heads' K and V are in use (L2).
//
// Otherwise as for causal, where tile m of a head needs about m + 1 blocks: tiles m_blocks−1−j and j make a pair that
// costs the same for every j; pairs are dealt out head by head like the tiles above. The last two to three rounds are
// not dealt as pairs but as single tiles, longest first, in snake order (0 1 2 … then … 2 1 0), which evens out the
// end: what remains is about 1 % over the ideal, against 3 % of whole pairs (dealing everything longest first, section
// by section, costs 20 %).
//
// With one CTA per tile there are only "last rounds": each takes one tile, and the hardware starts the longest first.
#pragma once
#include "attn/tile_scheduler.cuh"

template <Mask kMask> struct StaticScheduler {
    u32 cta, n_ctas, m_blocks;
    u32 per_head, n_items;  // items: tiles; causal: pairs
    u32 body_rounds = 0;    // rounds of pairs
    u32 round = 0;
    bool second = false;  // of a pair

    __device__ __forceinline__ StaticScheduler(const AttnParams& p, u32 tile_m) {
        cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        n_ctas = gridDim.x * gridDim.y * gridDim.z;
        m_blocks = (p.seqlen_q + tile_m - 1) / tile_m;
        per_head = kMask != Mask::kFull ? (m_blocks + 1) / 2 : m_blocks;
        n_items = per_head * p.num_heads_q * p.batch;
        if (kMask != Mask::kFull) body_rounds = max(n_items / n_ctas, 2u) - 2;
    }

    // The next tile of this CTA: query block, and head counted over the batch. False: no more.
    __device__ __forceinline__ bool next(u32& m_block, u32& head) {
        if (kMask != Mask::kFull)
            return round < body_rounds ? next_of_pair(m_block, head) : next_of_tail(m_block, head);
        const u32 item = cta + round * n_ctas;
        ++round;
        head = item / per_head;
        m_block = item - head * per_head;
        return item < n_items;
    }

    __device__ __forceinline__ bool next_of_pair(u32& m_block, u32& head) {
        const u32 item = cta + round * n_ctas;
        head = item / per_head;
        const u32 j = item - head * per_head;
        m_block = second ? j : m_blocks - 1 - j;
        second = !second && j != m_blocks - 1 - j;
        round += second ? 0 : 1;
        return true;
    }

    // Pairs first_pair … n_items−1 as a line of tiles: the longer ones by rising j, then the shorter ones by falling j.
    __device__ __forceinline__ bool next_of_tail(u32& m_block, u32& head) {
        const u32 first_pair = body_rounds * n_ctas, n_pairs = n_items - first_pair;
        const u32 cut_head = first_pair / per_head, cut = first_pair - cut_head * per_head;  // its pairs < cut are done
        const u32 whole = n_items / per_head - cut_head - (cut > 0 ? 1 : 0);
#pragma unroll 1
        for (;;) {
            const u32 tail_round = round - body_rounds;
            const u32 position = tail_round * n_ctas + (tail_round % 2 == 0 ? cta : n_ctas - 1 - cta);
            ++round;
            if (position >= 2 * n_pairs) return false;
            const bool longer = position < n_pairs;
            u32 pair = longer ? position : 2 * n_pairs - 1 - position;
            // Below the cut only the whole heads have a pair j, from it on the cut head, too.
            const u32 below = cut * whole;
            const bool from_cut = pair >= below;
            pair -= from_cut ? below : 0;
            const u32 heads = whole + (from_cut && cut > 0 ? 1 : 0);
            const u32 j = pair / heads + (from_cut ? cut : 0);
            head = pair - pair / heads * heads + cut_head + (!from_cut && cut > 0 ? 1 : 0);
            m_block = longer ? m_blocks - 1 - j : j;
            if (longer || m_block != m_blocks - 1 - j) return true;  // the middle of an odd number is no pair
        }
    }
};
