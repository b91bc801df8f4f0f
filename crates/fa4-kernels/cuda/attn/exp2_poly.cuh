// 2^x without the special-function unit, for a share of the elements: Blackwell does 16 ex2 per clock and SM, just as
// many as the tensor core asks for at head_dim 128, so that every ex2 that goes elsewhere is slack.
//
//   n = ⌊x⌋   f = x − n   2^x = 2^n · p(f)   p(f) = 1 + f·(c1 + f·(c2 + f·(c3 + f·c4))) ≈ 2^f on [0, 1]
//
// The coefficients are of tools/fit_exp2.py (least largest relative error, 2.9e-6, under p(0) = 1). x below −127, −inf
// included, gives exactly +0. A NaN is taken for −inf; the elements that go through ex2 keep it.
#pragma once
#include "ptx/math.cuh"

constexpr float kExp2C1 = 0x1.62d6c6p-1f;
constexpr float kExp2C2 = 0x1.ee2454p-3f;
constexpr float kExp2C3 = 0x1.abf854p-5f;
constexpr float kExp2C4 = 0x1.b7f76ep-7f;

__device__ __forceinline__ F32x2 both(float value) { return mov_b64_pack(value, value); }

// lo = 2^lo, hi = 2^hi.
__device__ __forceinline__ void exp2_poly_x2(float& lo, float& hi) {
    constexpr float kMagic = 12582912.0f;  // 1.5 · 2^23: adding it leaves ⌊x⌋ in the low bits of the sum
    const F32x2 x = mov_b64_pack(max_f32(lo, -127.0f), max_f32(hi, -127.0f));
    const F32x2 shifted = add_rm_f32x2(x, both(kMagic));
    const F32x2 f = sub_rn_f32x2(x, sub_rn_f32x2(shifted, both(kMagic)));
    F32x2 p = fma_rn_f32x2(both(kExp2C4), f, both(kExp2C3));
    p = fma_rn_f32x2(p, f, both(kExp2C2));
    p = fma_rn_f32x2(p, f, both(kExp2C1));
    p = fma_rn_f32x2(p, f, both(1.0f));
    float n_lo, n_hi;
    mov_b64_unpack(n_lo, n_hi, shifted);
    mov_b64_unpack(lo, hi, p);
    // n goes to the exponent field; the bits of kMagic above it are shifted out.
    lo = __uint_as_float(__float_as_uint(lo) + (__float_as_uint(n_lo) << 23));
    hi = __uint_as_float(__float_as_uint(hi) + (__float_as_uint(n_hi) << 23));
}
