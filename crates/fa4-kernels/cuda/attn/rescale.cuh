// Scaling of O rows held in registers.
#pragma once
#include "ptx/math.cuh"

// o[0 .. kCount) *= factor.
template <u32 kCount> __device__ __forceinline__ void scale_row(float* o, float factor) {
    const F32x2 factor2 = mov_b64_pack(factor, factor);
#pragma unroll
    for (u32 i = 0; i < kCount; i += 2)
        mov_b64_unpack(o[i], o[i + 1], mul_rn_f32x2(mov_b64_pack(o[i], o[i + 1]), factor2));
}
