// Conversions. Pure, so neither volatile nor clobbering memory. One function = one instruction.
#pragma once
#include "ptx/types.cuh"

// Two f32 to packed bf16, round to nearest even: `hi` in bits 31:16, `lo` in bits 15:0.
// PTX 9.7.9.21 · PTX 7.0, sm_80 · issuer: any thread
__device__ __forceinline__ u32 cvt_rn_bf16x2_f32(float hi, float lo) {
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}

// Two f32 to packed fp16, round to nearest even: `hi` in bits 31:16, `lo` in bits 15:0.
// PTX 9.7.9.21 · PTX 7.0, sm_80 · issuer: any thread
__device__ __forceinline__ u32 cvt_rn_f16x2_f32(float hi, float lo) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}
