// Warpgroup matrix multiply (Hopper). One function = one instruction; the list of shapes is what the kernels use.
//
// The names say it all: m64nNk16, f32 accumulator, operand type, and where A lies. ss: A and B from shared memory, both
// K-major. rs: A from registers, B from shared memory MN-major, always accumulating. Between issue and the wait that
// covers it, nobody may touch the accumulators (or, rs, the registers of A).
// PTX 9.7.15.5.2 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup · shared memory through the async proxy
#pragma once
#include "ptx/types.cuh"

// Earlier register writes of the warpgroup are ordered before its later wgmma.
// PTX 9.7.15.7.1 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// PTX 9.7.15.7.2 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most the newest kPending groups of this warp are unfinished.
// PTX 9.7.15.7.3 · PTX 8.0, sm_90a · issuer: all warps of the warpgroup
template <u32 kPending> __device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// No instruction: tells the compiler that a register changes here, so that it moves no use of an accumulator across
// the wait (of which, for the compiler, the accumulator is no operand).
__device__ __forceinline__ void pin_register(float& r) { asm volatile("" : "+f"(r)::"memory"); }
__device__ __forceinline__ void pin_register(u32& r) { asm volatile("" : "+r"(r)::"memory"); }

// ------------------------------------------------------------------------------------------------- operand lists

// The accumulators of a shape: WGMMA_REGS_n is their text in the instruction, %0 first, WGMMA_D_n the operands of asm.
// clang-format off
#define WGMMA_REGS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_REGS_40 WGMMA_REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_REGS_48 WGMMA_REGS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_REGS_56 WGMMA_REGS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_REGS_64 WGMMA_REGS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_REGS_72 WGMMA_REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_REGS_80 WGMMA_REGS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_REGS_88 WGMMA_REGS_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_REGS_96 WGMMA_REGS_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_REGS_128 WGMMA_REGS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_D_8_FROM(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_D_32 WGMMA_D_8_FROM(0), WGMMA_D_8_FROM(8), WGMMA_D_8_FROM(16), WGMMA_D_8_FROM(24)
#define WGMMA_D_40 WGMMA_D_32, WGMMA_D_8_FROM(32)
#define WGMMA_D_48 WGMMA_D_40, WGMMA_D_8_FROM(40)
#define WGMMA_D_56 WGMMA_D_48, WGMMA_D_8_FROM(48)
#define WGMMA_D_64 WGMMA_D_56, WGMMA_D_8_FROM(56)
#define WGMMA_D_72 WGMMA_D_64, WGMMA_D_8_FROM(64)
#define WGMMA_D_80 WGMMA_D_72, WGMMA_D_8_FROM(72)
#define WGMMA_D_88 WGMMA_D_80, WGMMA_D_8_FROM(80)
#define WGMMA_D_96 WGMMA_D_88, WGMMA_D_8_FROM(88)
#define WGMMA_D_128 WGMMA_D_96, WGMMA_D_8_FROM(96), WGMMA_D_8_FROM(104), WGMMA_D_8_FROM(112), WGMMA_D_8_FROM(120)
// clang-format on

// ------------------------------------------------------------------------------------------------ the instructions

// void wgmma_m64nNk16_f32_TYPE_ss(float* d, u64 a_desc, u64 b_desc, bool accumulate): d[N/2] = A·B (+ d).
// `regs` is N/2; the operands behind the accumulators are a_desc, b_desc and accumulate, by number.
#define WGMMA_SS(n, type, regs, a, b, scale_d)                                                                         \
    __device__ __forceinline__ void wgmma_m64n##n##k16_f32_##type##_ss(float* d, u64 a_desc, u64 b_desc,               \
                                                                       bool accumulate) {                              \
        asm volatile("{ .reg .pred p; setp.ne.u32 p, " scale_d ", 0; "                                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" WGMMA_REGS_##regs "}, " a  \
                     ", " b ", p, 1, 1, 0, 0; }"                                                                       \
                     : WGMMA_D_##regs                                                                                  \
                     : "l"(a_desc), "l"(b_desc), "r"(u32(accumulate))                                                  \
                     : "memory");                                                                                      \
    }

WGMMA_SS(64, bf16, 32, "%32", "%33", "%34")
WGMMA_SS(64, f16, 32, "%32", "%33", "%34")
WGMMA_SS(80, bf16, 40, "%40", "%41", "%42")
WGMMA_SS(80, f16, 40, "%40", "%41", "%42")
WGMMA_SS(96, bf16, 48, "%48", "%49", "%50")
WGMMA_SS(96, f16, 48, "%48", "%49", "%50")
WGMMA_SS(112, bf16, 56, "%56", "%57", "%58")
WGMMA_SS(112, f16, 56, "%56", "%57", "%58")
WGMMA_SS(128, bf16, 64, "%64", "%65", "%66")
WGMMA_SS(128, f16, 64, "%64", "%65", "%66")
WGMMA_SS(144, bf16, 72, "%72", "%73", "%74")
WGMMA_SS(144, f16, 72, "%72", "%73", "%74")
WGMMA_SS(160, bf16, 80, "%80", "%81", "%82")
WGMMA_SS(160, f16, 80, "%80", "%81", "%82")
WGMMA_SS(176, bf16, 88, "%88", "%89", "%90")
WGMMA_SS(176, f16, 88, "%88", "%89", "%90")
WGMMA_SS(192, bf16, 96, "%96", "%97", "%98")
WGMMA_SS(192, f16, 96, "%96", "%97", "%98")

// void wgmma_m64nNk16_f32_TYPE_rs(float* d, const u32* a, u64 b_desc): d[N/2] += A·B, a[4] two elements a register.
// `regs` is N/2; the operands behind the accumulators are a[0..4] as a list, and b_desc.
#define WGMMA_RS(n, type, regs, a0123, b)                                                                              \
    __device__ __forceinline__ void wgmma_m64n##n##k16_f32_##type##_rs(float* d, const u32* a, u64 b_desc) {           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" WGMMA_REGS_##regs "}, {"   \
                     a0123 "}, " b ", 1, 1, 1, 1;"                                                                     \
                     : WGMMA_D_##regs                                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc)                                         \
                     : "memory");                                                                                      \
    }

WGMMA_RS(64, bf16, 32, "%32, %33, %34, %35", "%36")
WGMMA_RS(64, f16, 32, "%32, %33, %34, %35", "%36")
WGMMA_RS(96, bf16, 48, "%48, %49, %50, %51", "%52")
WGMMA_RS(96, f16, 48, "%48, %49, %50, %51", "%52")
WGMMA_RS(128, bf16, 64, "%64, %65, %66, %67", "%68")
WGMMA_RS(128, f16, 64, "%64, %65, %66, %67", "%68")
WGMMA_RS(256, bf16, 128, "%128, %129, %130, %131", "%132")
WGMMA_RS(256, f16, 128, "%128, %129, %130, %131", "%132")

#undef WGMMA_SS
#undef WGMMA_RS
