// Exchange between lanes. One function = one instruction.
#pragma once
#include "ptx/types.cuh"

// The value of lane (own lane ^ kMask). No memory is touched, so no clobber.
// PTX 9.7.9.6 · sm_70 · issuer: all lanes of the warp
template <u32 kMask> __device__ __forceinline__ float shfl_sync_bfly_f32(float value) {
    float d;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(d) : "f"(value), "n"(kMask));
    return d;
}
