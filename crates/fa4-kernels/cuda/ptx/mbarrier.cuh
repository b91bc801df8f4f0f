// mbarrier: phase-tracking barrier objects in shared memory. One function = one instruction.
#pragma once
#include "ptx/addr.cuh"

// PTX 9.7.13.15.9 · PTX 7.0, sm_80 · issuer: one thread · generic proxy
__device__ __forceinline__ void mbarrier_init(MbarAddr bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar.u), "r"(arrivals) : "memory");
}

// PTX 9.7.13.15.13 · PTX 8.0, sm_90 · issuer: any thread · generic proxy
__device__ __forceinline__ void mbarrier_arrive(MbarAddr bar) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar.u) : "memory");
}

// PTX 9.7.13.15.13 · PTX 8.0, sm_90 · issuer: any thread · generic proxy
__device__ __forceinline__ void mbarrier_arrive_expect_tx(MbarAddr bar, u32 tx_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar.u), "r"(tx_bytes)
                 : "memory");
}

// True once the phase of parity `phase` has completed; may return false early, so callers loop (prim/pipeline.cuh).
// PTX 9.7.13.15.16 · PTX 8.0, sm_90 · issuer: any thread · generic proxy
__device__ __forceinline__ bool mbarrier_try_wait_parity(MbarAddr bar, u32 phase) {
    u32 done;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(bar.u), "r"(phase)
        : "memory");
    return done != 0;
}
