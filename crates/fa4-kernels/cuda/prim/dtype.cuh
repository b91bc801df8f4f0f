// The two 16-bit storage formats that a kernel is compiled for.
#pragma once
#include "ptx/cvt.cuh"

// Values are those of the operand fields of tcgen05.mma kind::f16 (PTX table 42).
enum class Dtype : u32 { kFp16 = 0, kBf16 = 1 };

// Two f32 as one register of storage, round to nearest even: `hi` in bits 31:16, `lo` in bits 15:0.
template <Dtype kDtype> __device__ __forceinline__ u32 pack2(float hi, float lo) {
    return kDtype == Dtype::kBf16 ? cvt_rn_bf16x2_f32(hi, lo) : cvt_rn_f16x2_f32(hi, lo);
}
