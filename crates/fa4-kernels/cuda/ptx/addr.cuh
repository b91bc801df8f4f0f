// Addresses of three kinds that must not be mixed up: distinct types, never a bare integer.
#pragma once
#include "ptx/types.cuh"

// Byte address in the shared window of this CTA.
struct SmemAddr {
    u32 u;
    __device__ constexpr SmemAddr operator+(u32 bytes) const { return {u + bytes}; }
};

// Address of an mbarrier object in shared memory.
struct MbarAddr {
    u32 u;
};

// TMEM address: lane in bits 31:16, column in bits 15:0.
struct TmemAddr {
    u32 u;
    __device__ constexpr TmemAddr col(u32 cols) const { return {u + cols}; }
    __device__ constexpr TmemAddr lane(u32 lanes) const { return {u + (lanes << 16)}; }
};
