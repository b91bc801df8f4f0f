// Fifth-generation tensor core and tensor memory (TMEM). One function = one instruction.
//
// TMEM addresses are (lane << 16 | col). `ld` and `st` see only the 32 lanes of the warp's quarter (warp % 4).
#pragma once
#include "ptx/addr.cuh"

// Writes the address of kCols fresh columns to `dst`; blocks until they are free.
// PTX 9.7.16.7.1 · PTX 8.6, sm_100a · issuer: one warp, converged · the result is a generic-proxy write
template <u32 kCols> __device__ __forceinline__ void tcgen05_alloc(SmemAddr dst) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(dst.u), "n"(kCols)
                 : "memory");
}

// PTX 9.7.16.7.1 · PTX 8.6, sm_100a · issuer: one warp, converged
template <u32 kCols> __device__ __forceinline__ void tcgen05_dealloc(TmemAddr base) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(base.u), "n"(kCols) : "memory");
}

// PTX 9.7.16.7.1 · PTX 8.6, sm_100a · issuer: one warp, converged · no alloc may follow in this CTA
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

// D = A·B (+ D where `accumulate`), A and B from shared memory.
// PTX 9.7.16.10.9.1 · PTX 8.6, sm_100a · issuer: one thread · operands through the async proxy; completes by commit
__device__ __forceinline__ void tcgen05_mma_f16_ss(TmemAddr d, u64 a_desc, u64 b_desc, u32 instr_desc,
                                                   bool accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d.u),
        "l"(a_desc), "l"(b_desc), "r"(instr_desc), "r"(u32(accumulate))
        : "memory");
}

// D = A·B (+ D where `accumulate`), A from TMEM, B from shared memory.
// PTX 9.7.16.10.9.1 · PTX 8.6, sm_100a · issuer: one thread · B through the async proxy; completes by commit
__device__ __forceinline__ void tcgen05_mma_f16_ts(TmemAddr d, TmemAddr a, u64 b_desc, u32 instr_desc,
                                                   bool accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(d.u),
        "r"(a.u), "l"(b_desc), "r"(instr_desc), "r"(u32(accumulate))
        : "memory");
}

// Arrives once on `bar` when all earlier mma of this thread have completed; implies fence::before_thread_sync.
// PTX 9.7.16.12.1 · PTX 8.6, sm_100a · issuer: the thread that issued the mma
__device__ __forceinline__ void tcgen05_commit(MbarAddr bar) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar.u) : "memory");
}

// 32 columns from `src` to 32 registers: lane = row.
// PTX 9.7.16.8.3 · PTX 8.6, sm_100a · issuer: one warp, converged · asynchronous until wait::ld
__device__ __forceinline__ void tcgen05_ld_32x32b_x32(float* r, TmemAddr src) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]), "=f"(r[7]), "=f"(r[8]),
          "=f"(r[9]), "=f"(r[10]), "=f"(r[11]), "=f"(r[12]), "=f"(r[13]), "=f"(r[14]), "=f"(r[15]), "=f"(r[16]),
          "=f"(r[17]), "=f"(r[18]), "=f"(r[19]), "=f"(r[20]), "=f"(r[21]), "=f"(r[22]), "=f"(r[23]), "=f"(r[24]),
          "=f"(r[25]), "=f"(r[26]), "=f"(r[27]), "=f"(r[28]), "=f"(r[29]), "=f"(r[30]), "=f"(r[31])
        : "r"(src.u)
        : "memory");
}

// 32 registers to 32 columns from `dst`: lane = row.
// PTX 9.7.16.8.4 · PTX 8.6, sm_100a · issuer: one warp, converged · asynchronous until wait::st
__device__ __forceinline__ void tcgen05_st_32x32b_x32_f32(TmemAddr dst, const float* r) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};" ::
            "r"(dst.u),
        "f"(r[0]), "f"(r[1]), "f"(r[2]), "f"(r[3]), "f"(r[4]), "f"(r[5]), "f"(r[6]), "f"(r[7]), "f"(r[8]), "f"(r[9]),
        "f"(r[10]), "f"(r[11]), "f"(r[12]), "f"(r[13]), "f"(r[14]), "f"(r[15]), "f"(r[16]), "f"(r[17]), "f"(r[18]),
        "f"(r[19]), "f"(r[20]), "f"(r[21]), "f"(r[22]), "f"(r[23]), "f"(r[24]), "f"(r[25]), "f"(r[26]), "f"(r[27]),
        "f"(r[28]), "f"(r[29]), "f"(r[30]), "f"(r[31])
        : "memory");
}

// 32 registers to 32 columns from `dst`: lane = row.
// PTX 9.7.16.8.4 · PTX 8.6, sm_100a · issuer: one warp, converged · asynchronous until wait::st
__device__ __forceinline__ void tcgen05_st_32x32b_x32(TmemAddr dst, const u32* r) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};" ::
            "r"(dst.u),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]), "r"(r[8]), "r"(r[9]),
        "r"(r[10]), "r"(r[11]), "r"(r[12]), "r"(r[13]), "r"(r[14]), "r"(r[15]), "r"(r[16]), "r"(r[17]), "r"(r[18]),
        "r"(r[19]), "r"(r[20]), "r"(r[21]), "r"(r[22]), "r"(r[23]), "r"(r[24]), "r"(r[25]), "r"(r[26]), "r"(r[27]),
        "r"(r[28]), "r"(r[29]), "r"(r[30]), "r"(r[31])
        : "memory");
}

// 16 registers to 16 columns from `dst`: lane = row.
// PTX 9.7.16.8.4 · PTX 8.6, sm_100a · issuer: one warp, converged · asynchronous until wait::st
__device__ __forceinline__ void tcgen05_st_32x32b_x16(TmemAddr dst, const u32* r) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16};" ::
            "r"(dst.u),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7]), "r"(r[8]), "r"(r[9]),
        "r"(r[10]), "r"(r[11]), "r"(r[12]), "r"(r[13]), "r"(r[14]), "r"(r[15])
        : "memory");
}

// All earlier ld of this thread have landed: the cells may be overwritten.
// PTX 9.7.16.8.5 · PTX 8.6, sm_100a · issuer: one warp, converged
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

// All earlier st of this thread have landed: the cells may be read by others.
// PTX 9.7.16.8.5 · PTX 8.6, sm_100a · issuer: one warp, converged
__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// Earlier tcgen05 operations of this thread are ordered before its later synchronisation.
// PTX 9.7.16.6.3 · PTX 8.6, sm_100a · issuer: each thread before it signals
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// Later tcgen05 operations of this thread are ordered after its earlier synchronisation.
// PTX 9.7.16.6.3 · PTX 8.6, sm_100a · issuer: each thread after it waited
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
