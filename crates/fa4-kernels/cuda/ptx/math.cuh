// Arithmetic that C++ cannot spell. Pure functions of their operands: not volatile and no memory clobber, so that the
// compiler may schedule them. One function = one instruction (packing moves of f32x2 vanish in SASS).
#pragma once
#include "ptx/types.cuh"

// Two f32 in one 64-bit register pair; lo is the element of lower index.
struct F32x2 {
    u64 u;
};

// PTX 9.7.9.2 · issuer: any thread
__device__ __forceinline__ F32x2 mov_b64_pack(float lo, float hi) {
    F32x2 d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d.u) : "f"(lo), "f"(hi));
    return d;
}

// PTX 9.7.9.2 · issuer: any thread
__device__ __forceinline__ void mov_b64_unpack(float& lo, float& hi, F32x2 a) {
    asm("mov.b64 {%0, %1}, %2;" : "=f"(lo), "=f"(hi) : "l"(a.u));
}

// PTX 9.7.3.6 · PTX 8.6, sm_100 · issuer: any thread
__device__ __forceinline__ F32x2 fma_rn_f32x2(F32x2 a, F32x2 b, F32x2 c) {
    F32x2 d;
    asm("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(d.u) : "l"(a.u), "l"(b.u), "l"(c.u));
    return d;
}

// PTX 9.7.3.3 · PTX 8.6, sm_100 · issuer: any thread
__device__ __forceinline__ F32x2 add_rn_f32x2(F32x2 a, F32x2 b) {
    F32x2 d;
    asm("add.rn.f32x2 %0, %1, %2;" : "=l"(d.u) : "l"(a.u), "l"(b.u));
    return d;
}

// Rounds towards −∞. PTX 9.7.3.3 · PTX 8.6, sm_100 · issuer: any thread
__device__ __forceinline__ F32x2 add_rm_f32x2(F32x2 a, F32x2 b) {
    F32x2 d;
    asm("add.rm.f32x2 %0, %1, %2;" : "=l"(d.u) : "l"(a.u), "l"(b.u));
    return d;
}

// PTX 9.7.3.4 · PTX 8.6, sm_100 · issuer: any thread
__device__ __forceinline__ F32x2 sub_rn_f32x2(F32x2 a, F32x2 b) {
    F32x2 d;
    asm("sub.rn.f32x2 %0, %1, %2;" : "=l"(d.u) : "l"(a.u), "l"(b.u));
    return d;
}

// PTX 9.7.3.5 · PTX 8.6, sm_100 · issuer: any thread
__device__ __forceinline__ F32x2 mul_rn_f32x2(F32x2 a, F32x2 b) {
    F32x2 d;
    asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(d.u) : "l"(a.u), "l"(b.u));
    return d;
}

// PTX 9.7.3.12 · PTX 8.8, sm_100 · issuer: any thread · NaN operands are ignored
__device__ __forceinline__ float max_f32(float a, float b, float c) {
    float d;
    asm("max.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}

// PTX 9.7.3.12 · issuer: any thread · a NaN operand is ignored
__device__ __forceinline__ float max_f32(float a, float b) {
    float d;
    asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
    return d;
}

// 2^x, at most 2 ulp; −inf gives +0. PTX 9.7.3.21 · issuer: any thread
__device__ __forceinline__ float ex2_approx_ftz_f32(float x) {
    float d;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}

// log2 x, absolute error 2^-22 near 1, relative 2^-22 elsewhere; +0 gives −inf. PTX 9.7.3.20 · issuer: any thread
__device__ __forceinline__ float lg2_approx_ftz_f32(float x) {
    float d;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}

// 1/x, at most 1 ulp. PTX 9.7.3.14 · issuer: any thread
__device__ __forceinline__ float rcp_approx_ftz_f32(float x) {
    float d;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
    return d;
}
