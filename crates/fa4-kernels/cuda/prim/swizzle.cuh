// The 128-byte swizzle shared by TMA and the matrix descriptors: address bits 6:4 ^= bits 9:7.
#pragma once
#include "ptx/types.cuh"

// Offset of byte `offset` of a tile whose base is 1024-byte aligned.
__host__ __device__ constexpr u32 swizzle_128b(u32 offset) { return offset ^ ((offset >> 3) & 0x70u); }

static_assert(swizzle_128b(0x000) == 0x000 && swizzle_128b(0x080) == 0x090 && swizzle_128b(0x3F0) == 0x380,
              "rows 0, 1, 7");
