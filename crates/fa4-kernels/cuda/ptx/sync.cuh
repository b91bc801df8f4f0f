// Barriers, fences, votes and register budgets. One function = one instruction.
#pragma once
#include "ptx/types.cuh"

// Whole-CTA barrier, id 0. PTX 9.7.13.1 · sm_70 · issuer: every warp, converged · generic proxy
template <u32 kThreads> __device__ __forceinline__ void bar_sync_0() {
    asm volatile("bar.sync 0, %0;" ::"n"(kThreads) : "memory");
}

// PTX 9.7.13.2 · sm_70 · issuer: all lanes of the warp
__device__ __forceinline__ void bar_warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// Makes mbarrier.init visible to the asynchronous engines. PTX 9.7.13.4 · PTX 8.0, sm_90 · issuer: the initialiser
__device__ __forceinline__ void fence_mbarrier_init_release_cluster() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's generic shared-memory writes before later async-proxy reads.
// PTX 9.7.13.4 · PTX 8.0, sm_90 · issuer: each writing thread
__device__ __forceinline__ void fence_proxy_async_shared_cta() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// True in exactly one lane. PTX 9.7.13.14 · PTX 8.0, sm_90 · issuer: all lanes of the warp
__device__ __forceinline__ bool elect_sync() {
    u32 elected;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
    return elected != 0;
}

// PTX 9.7.13.9 · sm_70 · issuer: all lanes of the warp
__device__ __forceinline__ bool vote_sync_any(bool predicate) {
    u32 any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.b32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(u32(predicate))
                 : "memory");
    return any != 0;
}

// Lane 0's value in every lane: tells the compiler that it is uniform. No memory is touched, so no clobber.
// PTX 9.7.9.6 · sm_70 · issuer: all lanes of the warp
__device__ __forceinline__ u32 shfl_sync_idx_lane0(u32 value) {
    u32 result;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(result) : "r"(value));
    return result;
}

// PTX 9.7.19.5 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup
template <u32 kRegs> __device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegs) : "memory");
}

// PTX 9.7.19.5 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup
template <u32 kRegs> __device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegs) : "memory");
}

// PTX 9.7.19.4 · issuer: any thread
__device__ __forceinline__ void trap() { asm volatile("trap;" ::: "memory"); }
