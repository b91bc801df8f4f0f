// Instruction descriptor of tcgen05.mma kind::f16 (PTX 9.7.16.4.2, table 42).
#pragma once
#include "prim/dtype.cuh"

enum class Major : u32 { kK = 0, kMn = 1 };

// dtype × dtype → f32, dense, m × n.
__device__ constexpr u32 instr_desc_16bit_f32(Dtype dtype, u32 m, u32 n, Major a_major, Major b_major) {
    return 1u << 4               // 5:4   D is f32
           | u32(dtype) << 7     // 9:7   A
           | u32(dtype) << 10    // 12:10 B
           | u32(a_major) << 15  // 15    A transposed
           | u32(b_major) << 16  // 16    B transposed
           | (n >> 3) << 17      // 22:17
           | (m >> 4) << 24;     // 28:24
}

static_assert(instr_desc_16bit_f32(Dtype::kBf16, 128, 128, Major::kK, Major::kK) == 0x08200490u, "table 42");
static_assert(instr_desc_16bit_f32(Dtype::kBf16, 128, 128, Major::kK, Major::kMn) == 0x08210490u, "table 42");
static_assert(instr_desc_16bit_f32(Dtype::kFp16, 128, 64, Major::kK, Major::kMn) == 0x08110010u, "table 42");
