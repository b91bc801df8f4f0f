// Shared-memory matrix descriptors of tcgen05 (PTX 9.7.16.4.1).
#pragma once
#include "ptx/addr.cuh"

// Both layouts keep the 128-byte swizzle of TMA: 1024-byte groups of eight 128-byte rows.
constexpr u32 kSwizzleSpanBytes = 128;
constexpr u32 kSwizzleGroupBytes = 1024;

// Everything but the start address. lbo and sbo in bytes, multiples of 16.
__device__ constexpr u64 smem_desc_base_sw128(u32 lbo, u32 sbo) {
    return u64(lbo >> 4) << 16    // 29:16 leading-dimension byte offset
           | u64(sbo >> 4) << 32  // 45:32 stride-dimension byte offset
           | u64(1) << 46         // 48:46 fixed constant 0b001
           | u64(0) << 49         // 51:49 base offset: tiles are 1024-byte aligned
           | u64(2) << 61;        // 63:61 128-byte swizzle
}

// K-major: rows of 64 bf16 along the contraction; sbo steps to the next 8 rows; lbo is not used (1 by convention).
constexpr u64 kSmemDescKMajor = smem_desc_base_sw128(16, kSwizzleGroupBytes);

// MN-major: rows of 64 bf16 along N; sbo steps 8 along the contraction; lbo steps to the next 64 of N.
template <u32 kPanelBytes>
constexpr u64 kSmemDescMnMajor = smem_desc_base_sw128(kPanelBytes, kSwizzleGroupBytes);

// 13:0 start address in units of 16 bytes.
__device__ __forceinline__ u64 smem_desc(u64 base, SmemAddr start) { return base | u64((start.u & 0x3FFFFu) >> 4); }

static_assert(kSmemDescKMajor == 0x4000404000010000ull, "K-major descriptor of the manual's example");
