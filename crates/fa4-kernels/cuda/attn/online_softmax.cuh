// The running maximum and sum of a row, in the log2 domain, and the probabilities of one block of keys.
//
//   m2 = row_max · scale_log2        P = 2^(s·scale_log2 − m2)        row_sum = Σ P
//
// row_max may lag behind the true maximum by up to rescale_threshold (in log2 units): P then grows to at most
// 2^threshold, and O and row_sum carry the same factor, so that O / row_sum and the LSE stay exact.
#pragma once
#include "attn/exp2_poly.cuh"
#include "attn/mask.cuh"
#include "prim/dtype.cuh"
#include "ptx/math.cuh"

constexpr float kLn2 = 0.693147180559945309417f;
constexpr float kLog2e = 1.44269504088896340736f;

// One pair of scores in this many takes the polynomial instead of ex2: a quarter of the elements.
constexpr u32 kExp2PolyPeriod = 4;

struct RowState {
    float row_max = minus_infinity();  // raw score units
    float row_sum = 0.0f;

    // row_max in log2 units. A row that has seen no key has −inf; 0 keeps −inf − (−inf) from making a NaN.
    __device__ __forceinline__ float m2(float scale_log2) const {
        return row_max == minus_infinity() ? 0.0f : row_max * scale_log2;
    }
};

// Largest of kCols scores and `start`: eight scores a round in four chains.
template <u32 kCols> __device__ __forceinline__ float row_max_of(const float (&s)[kCols], float start) {
    float chain[4] = {start, minus_infinity(), minus_infinity(), minus_infinity()};
#pragma unroll
    for (u32 col = 0; col < kCols; col += 8)
#pragma unroll
        for (u32 k = 0; k < 4; ++k) chain[k] = max_f32(chain[k], s[col + 2 * k], s[col + 2 * k + 1]);
    return max_f32(max_f32(chain[0], chain[1], chain[2]), chain[3]);
}

// Takes the block's maximum into row_max and returns alpha, the factor for everything accumulated so far: 1 while
// the maximum grew by no more than the threshold (the old one is kept), else 2^(old − new).
// (−inf) − (−inf) is a NaN, which compares false: a row without any key keeps its state.
__device__ __forceinline__ float update_row_max(RowState& row, float block_max, float scale_log2, float threshold) {
    const float growth_log2 = (block_max - row.row_max) * scale_log2;
    float alpha = 1.0f;
    if (growth_log2 > threshold) {
        alpha = ex2_approx_ftz_f32(-growth_log2);
        row.row_max = block_max;
    }
    return alpha;
}

// s becomes tanh(scale · s / softcap). By ex2 and rcp, 2^-21 off at most; tanh.approx would be 2^-11 off, which a
// softcap of 50 makes an error of 2 % in P.
template <u32 kCols> __device__ __forceinline__ void cap_scores(float (&s)[kCols], float softcap_rate) {
#pragma unroll
    for (u32 col = 0; col < kCols; ++col)
        s[col] = 1.0f - 2.0f * rcp_approx_ftz_f32(1.0f + ex2_approx_ftz_f32(s[col] * softcap_rate));
}

// Σ of one block's P in eight chains, two a register pair. Summed chunk by chunk as P is made, so that the additions
// run beside the exponentials and each chunk's registers are free afterwards.
struct BlockSum {
    F32x2 chain[4] = {both(0.0f), both(0.0f), both(0.0f), both(0.0f)};

    __device__ __forceinline__ void add(u32 pair, F32x2 p) { chain[pair % 4] = add_rn_f32x2(chain[pair % 4], p); }
    __device__ __forceinline__ float total() const {
        float lo, hi;
        mov_b64_unpack(lo, hi, add_rn_f32x2(add_rn_f32x2(chain[0], chain[1]), add_rn_f32x2(chain[2], chain[3])));
        return lo + hi;
    }
};

// The P of s[first .. first+kCount), as packed pairs of storage in p and added to sum in f32.
template <Dtype kDtype, u32 kFirst, u32 kCount, u32 kCols>
__device__ __forceinline__ void scores_to_p(const float (&s)[kCols], u32* p, F32x2 scale2, F32x2 minus_m2,
                                            BlockSum& sum) {
#pragma unroll
    for (u32 i = 0; i < kCount; i += 2) {
        const u32 pair = (kFirst + i) / 2;
        float lo, hi;
        mov_b64_unpack(lo, hi, fma_rn_f32x2(mov_b64_pack(s[kFirst + i], s[kFirst + i + 1]), scale2, minus_m2));
        if (pair % kExp2PolyPeriod == kExp2PolyPeriod - 1) {
            exp2_poly_x2(lo, hi);
        } else {
            lo = ex2_approx_ftz_f32(lo);
            hi = ex2_approx_ftz_f32(hi);
        }
        sum.add(pair, mov_b64_pack(lo, hi));
        p[i / 2] = pack2<kDtype>(hi, lo);
    }
}
