// Online softmax on the accumulator fragment of wgmma: a thread holds two rows, a quad of lanes shares them.
//
//   element e of the fragment of lane l, warp w of the warpgroup:
//     row 16·w + l/4 + 8·(e/2 % 2)        column 8·(e/4) + 2·(l%4) + e%2
//
// The same layout, two elements a register, is that of wgmma's A operand, so that P needs no shuffle.
#pragma once
#include "attn/online_softmax.cuh"
#include "prim/warpgroup_mma.cuh"
#include "ptx/shfl.cuh"

// The two rows of a thread. row_sum covers only the thread's own columns until quad_sum joins the four.
struct FragmentRows {
    RowState row[2];
};

__device__ __forceinline__ u32 fragment_row(u32 warp, u32 lane, u32 half) {
    return warp % 4 * 16 + lane / 4 + half * 8;
}

__device__ __forceinline__ float quad_max(float x) {
    x = max_f32(x, shfl_sync_bfly_f32<1>(x));
    return max_f32(x, shfl_sync_bfly_f32<2>(x));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += shfl_sync_bfly_f32<1>(x);
    return x + shfl_sync_bfly_f32<2>(x);
}

// Both passes over a fragment walk it in chunks of 16 columns, and call `between` after every few: that is where the
// caller issues what the tensor core should work on meanwhile.
constexpr u32 kChunk = 8;             // elements of a thread in 16 columns
constexpr u32 kMaxChunksPerCall = 4;  // looking for the maximum is about four times as fast as exponentiating
struct Nothing {
    __device__ __forceinline__ void operator()() {}
};

// Largest of each row's scores and what row_max was.
template <u32 kCount, class Between>
__device__ __forceinline__ void fragment_row_max(const float (&s)[kCount], const FragmentRows& rows,
                                                 float (&largest)[2], Between& between) {
    float chain[4] = {rows.row[0].row_max, minus_infinity(), rows.row[1].row_max, minus_infinity()};
#pragma unroll
    for (u32 e = 0; e < kCount; ++e) {
        chain[e % 4] = max_f32(chain[e % 4], s[e]);
        if ((e + 1) % (kChunk * kMaxChunksPerCall) == 0) {
#pragma unroll
            for (u32 k = 0; k < 4; ++k) pin_register(chain[k]);
            between();
        }
    }
    largest[0] = quad_max(max_f32(chain[0], chain[1]));
    largest[1] = quad_max(max_f32(chain[2], chain[3]));
}

// Keeps the scores of the first `limit` columns of a row and sets the others to −inf.
template <u32 kCount>
__device__ __forceinline__ void mask_fragment(float (&s)[kCount], u32 lane, i32 limit0, i32 limit1) {
    const i32 first_col = i32(lane % 4 * 2);
    limit0 -= first_col;
    limit1 -= first_col;
#pragma unroll
    for (u32 e = 0; e < kCount; ++e)
        s[e] = i32(e / 4 * 8 + e % 2) < (e / 2 % 2 == 0 ? limit0 : limit1) ? s[e] : minus_infinity();
}

// s becomes P = 2^(s·scale_log2 − m2) in place, and its sum joins row_sum.
template <u32 kCount, class Between>
__device__ __forceinline__ void exponentiate_fragment(float (&s)[kCount], FragmentRows& rows, float scale_log2,
                                                      Between& between) {
    const float minus_m2[2] = {-rows.row[0].m2(scale_log2), -rows.row[1].m2(scale_log2)};
#pragma unroll
    for (u32 e = 0; e < kCount; ++e) {
        const u32 half = e / 2 % 2;
        s[e] = ex2_approx_ftz_f32(__fmaf_rn(s[e], scale_log2, minus_m2[half]));
        rows.row[half].row_sum += s[e];
        if ((e + 1) % kChunk == 0) {
            pin_register(rows.row[0].row_sum);
            pin_register(rows.row[1].row_sum);
            between();
        }
    }
}

// P as operand A of the next product.
template <Dtype kDtype, u32 kCount>
__device__ __forceinline__ void pack_fragment(const float (&s)[kCount], u32 (&p)[kCount / 2]) {
#pragma unroll
    for (u32 e = 0; e < kCount; e += 2) p[e / 2] = pack2<kDtype>(s[e + 1], s[e]);
}

// Sets the first `count` columns of a row to −inf.
template <u32 kCount>
__device__ __forceinline__ void mask_fragment_left(float (&s)[kCount], u32 lane, i32 count0, i32 count1) {
    const i32 first_col = i32(lane % 4 * 2);
    count0 -= first_col;
    count1 -= first_col;
#pragma unroll
    for (u32 e = 0; e < kCount; ++e)
        s[e] = i32(e / 4 * 8 + e % 2) < (e / 2 % 2 == 0 ? count0 : count1) ? minus_infinity() : s[e];
}

// O's rows times their factors.
template <u32 kCount>
__device__ __forceinline__ void scale_fragment(float (&o)[kCount], float factor0, float factor1) {
#pragma unroll
    for (u32 e = 0; e < kCount; ++e) o[e] *= e / 2 % 2 == 0 ? factor0 : factor1;
}
