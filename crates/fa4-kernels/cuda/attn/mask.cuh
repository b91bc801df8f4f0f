// Which keys a query row sees. Masked scores are −inf, never a finite stand-in, so that their P is exactly 0.
#pragma once
#include "attn/params.cuh"

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xFF800000u); }

enum class Mask { kFull, kCausal };

// Row i sees the keys [0, visible_keys(i)). Causal is aligned bottom-right: the last row sees every key, and where
// seqlen_q > seqlen_k the first seqlen_q − seqlen_k rows see none.
template <Mask kMask> __device__ __forceinline__ u32 visible_keys(const AttnParams& p, u32 row) {
    if (kMask == Mask::kFull) return p.seqlen_k;
    const i32 keys = i32(row + 1 - p.seqlen_q) + i32(p.seqlen_k);
    return keys <= 0 ? 0u : min(u32(keys), p.seqlen_k);
}

// Keeps the first `limit` of kCols scores and sets the others to −inf.
template <u32 kCols> __device__ __forceinline__ void mask_scores(float (&s)[kCols], i32 limit) {
#pragma unroll
    for (u32 col = 0; col < kCols; ++col) s[col] = i32(col) < limit ? s[col] : minus_infinity();
}
