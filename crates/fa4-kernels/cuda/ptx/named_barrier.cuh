// Named barriers: bar with an id 1–15 of its own, among some warps of the CTA. One function = one instruction.
#pragma once
#include "ptx/types.cuh"

// Arrives and waits until kThreads threads have arrived at barrier `id`.
// PTX 9.7.13.1 · sm_70 · issuer: whole warps, converged · generic proxy
template <u32 kThreads> __device__ __forceinline__ void bar_sync(u32 id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Arrives without waiting.
// PTX 9.7.13.1 · sm_70 · issuer: whole warps, converged · generic proxy
template <u32 kThreads> __device__ __forceinline__ void bar_arrive(u32 id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
