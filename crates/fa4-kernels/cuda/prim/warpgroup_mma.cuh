// Tile products of one warpgroup (Hopper wgmma), 64 rows at a time: descriptors, choice of the instruction, and the
// k-loop. Accumulators are fragments (attn/fragment_softmax.cuh draws the layout).
#pragma once
#include "prim/dtype.cuh"
#include "prim/smem_desc.cuh"
#include "ptx/wgmma.cuh"

constexpr u32 kGroupRows = 64;  // rows of a warpgroup's tile: the m64 of wgmma
constexpr u32 kGroupThreads = 128;
constexpr u32 kWgmmaK = 16;     // contraction per wgmma of 16-bit operands
constexpr u32 kSpanElems = 64;  // 16-bit elements of one swizzle span; a panel is that wide

// Everything of a wgmma descriptor but the start address: 128-byte swizzle, offsets in bytes (PTX 9.7.15.5.1.2).
__device__ constexpr u64 wgmma_desc_base_sw128(u32 lbo, u32 sbo) {
    return u64(lbo >> 4) << 16    // 29:16 leading-dimension byte offset
           | u64(sbo >> 4) << 32  // 45:32 stride-dimension byte offset
           | u64(1) << 62;        // 63:62 128-byte swizzle
}

// K-major: sbo steps to the next 8 rows; lbo is not used.
constexpr u64 kWgmmaDescKMajor = wgmma_desc_base_sw128(0, kSwizzleGroupBytes);

// MN-major: sbo steps 8 along the contraction; lbo steps to the next panel of 64 along N.
template <u32 kPanelBytes>
constexpr u64 kWgmmaDescMnMajor = wgmma_desc_base_sw128(kPanelBytes, kSwizzleGroupBytes);

template <Dtype kDtype, u32 kN>
__device__ __forceinline__ void wgmma_ss(float (&d)[kN / 2], u64 a_desc, u64 b_desc, bool accumulate) {
    if constexpr (kDtype == Dtype::kBf16) {
        if constexpr (kN == 64) wgmma_m64n64k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 80) wgmma_m64n80k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 96) wgmma_m64n96k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 112) wgmma_m64n112k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 128) wgmma_m64n128k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 144) wgmma_m64n144k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 160) wgmma_m64n160k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 176) wgmma_m64n176k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 192) wgmma_m64n192k16_f32_bf16_ss(d, a_desc, b_desc, accumulate);
    }
    if constexpr (kDtype == Dtype::kFp16) {
        if constexpr (kN == 64) wgmma_m64n64k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 80) wgmma_m64n80k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 96) wgmma_m64n96k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 112) wgmma_m64n112k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 128) wgmma_m64n128k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 144) wgmma_m64n144k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 160) wgmma_m64n160k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 176) wgmma_m64n176k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
        if constexpr (kN == 192) wgmma_m64n192k16_f32_f16_ss(d, a_desc, b_desc, accumulate);
    }
    static_assert(
        kN == 64 || kN == 80 || kN == 96 || kN == 112 || kN == 128 || kN == 144 || kN == 160 || kN == 176 || kN == 192,
        "a shape that ptx/wgmma.cuh has");
}

template <Dtype kDtype, u32 kN>
__device__ __forceinline__ void wgmma_rs(float (&d)[kN / 2], const u32* a, u64 b_desc) {
    if constexpr (kDtype == Dtype::kBf16) {
        if constexpr (kN == 64) wgmma_m64n64k16_f32_bf16_rs(d, a, b_desc);
        if constexpr (kN == 96) wgmma_m64n96k16_f32_bf16_rs(d, a, b_desc);
        if constexpr (kN == 128) wgmma_m64n128k16_f32_bf16_rs(d, a, b_desc);
        if constexpr (kN == 256) wgmma_m64n256k16_f32_bf16_rs(d, a, b_desc);
    }
    if constexpr (kDtype == Dtype::kFp16) {
        if constexpr (kN == 64) wgmma_m64n64k16_f32_f16_rs(d, a, b_desc);
        if constexpr (kN == 96) wgmma_m64n96k16_f32_f16_rs(d, a, b_desc);
        if constexpr (kN == 128) wgmma_m64n128k16_f32_f16_rs(d, a, b_desc);
        if constexpr (kN == 256) wgmma_m64n256k16_f32_f16_rs(d, a, b_desc);
    }
    static_assert(kN == 64 || kN == 96 || kN == 128 || kN == 256, "a shape that ptx/wgmma.cuh has");
}

// D = A·Bᵀ: A is 64 rows, B kN rows, of kK elements each; both in panels of 64 columns. Asynchronous.
template <Dtype kDtype, u32 kN, u32 kK, u32 kPanelBytesA, u32 kPanelBytesB>
__device__ __forceinline__ void group_mma_abt(float (&d)[kN / 2], SmemAddr a, SmemAddr b) {
    const u64 a_desc = smem_desc(kWgmmaDescKMajor, a), b_desc = smem_desc(kWgmmaDescKMajor, b);
#pragma unroll
    for (u32 k = 0; k < kK; k += kWgmmaK) {
        const u32 in_panel = k % kSpanElems * 2, panel = k / kSpanElems;
        wgmma_ss<kDtype, kN>(d, a_desc + (panel * kPanelBytesA + in_panel) / 16,
                             b_desc + (panel * kPanelBytesB + in_panel) / 16, k > 0);
    }
}

// One k-step of D += A·B: A is a fragment of 64 rows and 16 columns, B has 16 rows of kN elements in panels of 64
// columns, its step'th in `b`. Asynchronous.
template <Dtype kDtype, u32 kN, u32 kPanelBytesB>
__device__ __forceinline__ void group_mma_ab_step(float (&d)[kN / 2], const u32* a, SmemAddr b, u32 step) {
    const u64 b_desc = smem_desc(kWgmmaDescMnMajor<kPanelBytesB>, b);
    wgmma_rs<kDtype, kN>(d, a, b_desc + step * kWgmmaK * kSwizzleSpanBytes / 16);
}

// Waits for all but the newest kPending groups; from here on `d` may be touched.
template <u32 kPending, class T, u32 kCount> __device__ __forceinline__ void wait_mma(T (&d)[kCount]) {
    wgmma_wait_group<kPending>();
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) pin_register(d[i]);
}
