// Which keys a query row sees. Masked scores are −inf, never a finite stand-in, so that their P is exactly 0.
#pragma once
#include "attn/params.cuh"

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xFF800000u); }

// kGeneral: a window, a softcap and sinks, each if the parameters ask for it; the other two know of none.
enum class Mask { kFull, kCausal, kGeneral };

// Row i sees the keys [first_key(i), end_key(i)). It sits on key i + seqlen_k − seqlen_q (aligned bottom-right: the
// last row on the last key) and sees window_left keys before and window_right keys behind that. Where
// seqlen_q > seqlen_k the first rows may see none.
template <Mask kMask> __device__ __forceinline__ u32 end_key(const AttnParams& p, u32 row) {
    if (kMask == Mask::kFull || kMask == Mask::kGeneral && p.window_right < 0) return p.seqlen_k;
    const i32 right = kMask == Mask::kCausal ? 0 : p.window_right;
    const i32 from_end = i32(row + 1 - p.seqlen_q) + right;  // first in this order: seqlen_k + right may not fit
    return u32(max(i32(p.seqlen_k) + min(from_end, 0), 0));
}
template <Mask kMask> __device__ __forceinline__ u32 first_key(const AttnParams& p, u32 row) {
    if (kMask != Mask::kGeneral || p.window_left < 0) return 0;
    return u32(max(i32(row - p.seqlen_q) + i32(p.seqlen_k) - p.window_left, 0));
}

// Keeps the first `limit` of kCols scores and sets the others to −inf.
template <u32 kCols> __device__ __forceinline__ void mask_right(float (&s)[kCols], i32 limit) {
#pragma unroll
    for (u32 col = 0; col < kCols; ++col) s[col] = i32(col) < limit ? s[col] : minus_infinity();
}

// Sets the first `count` of kCols scores to −inf.
template <u32 kCols> __device__ __forceinline__ void mask_left(float (&s)[kCols], i32 count) {
#pragma unroll
    for (u32 col = 0; col < kCols; ++col) s[col] = i32(col) < count ? minus_infinity() : s[col];
}
