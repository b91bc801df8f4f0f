// Tensor memory accelerator: tiled copies between global and shared memory. One function = one instruction.
#pragma once
#include "ptx/addr.cuh"

// Box at (c0, c1, c2, c3) of `map` to shared memory; elements outside the tensor arrive as zero and count as bytes.
// PTX 9.7.9.27.1.2 · PTX 8.6, sm_90 · issuer: one thread · async proxy, completes on `bar`
__device__ __forceinline__ void cp_async_bulk_tensor_4d_g2s(SmemAddr dst, const void* map, i32 c0, i32 c1, i32 c2,
                                                            i32 c3, MbarAddr bar) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
            "r"(dst.u),
        "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(bar.u)
        : "memory");
}

// Shared memory to the box at (c0, c1, c2, c3) of `map`; elements outside the tensor are not written.
// PTX 9.7.9.27.1.2 · PTX 8.0, sm_90 · issuer: one thread · async proxy, joins the thread's bulk group
__device__ __forceinline__ void cp_async_bulk_tensor_4d_s2g(const void* map, i32 c0, i32 c1, i32 c2, i32 c3,
                                                            SmemAddr src) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(src.u)
                 : "memory");
}

// PTX 9.7.9.27.2.1 · PTX 8.0, sm_90 · issuer: the thread that issued the stores
__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the sources of all but the newest kPending groups of this thread have been read.
// PTX 9.7.9.27.2.2 · PTX 8.0, sm_90 · issuer: the thread that committed the groups
template <u32 kPending> __device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// PTX 9.7.9.16 · PTX 8.0, sm_90 · issuer: one thread · a hint
__device__ __forceinline__ void prefetch_tensormap(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
