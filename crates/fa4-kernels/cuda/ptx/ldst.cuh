// Plain loads and stores with their state space spelled. One function = one instruction.
#pragma once
#include "ptx/addr.cuh"

// PTX 9.7.9.8 · issuer: any thread · generic proxy
__device__ __forceinline__ float ld_shared_f32(SmemAddr src) {
    float value;
    asm volatile("ld.shared::cta.f32 %0, [%1];" : "=f"(value) : "r"(src.u) : "memory");
    return value;
}

// PTX 9.7.9.8 · issuer: any thread · generic proxy
__device__ __forceinline__ u32 ld_shared_u32(SmemAddr src) {
    u32 value;
    asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(src.u) : "memory");
    return value;
}

// PTX 9.7.9.11 · issuer: any thread · generic proxy
__device__ __forceinline__ void st_shared_f32(SmemAddr dst, float value) {
    asm volatile("st.shared::cta.f32 [%0], %1;" ::"r"(dst.u), "f"(value) : "memory");
}

// PTX 9.7.9.11 · issuer: any thread · generic proxy
__device__ __forceinline__ void st_shared_b32(SmemAddr dst, u32 value) {
    asm volatile("st.shared::cta.b32 [%0], %1;" ::"r"(dst.u), "r"(value) : "memory");
}

// 16 bytes; dst 16-byte aligned. PTX 9.7.9.11 · issuer: any thread · generic proxy
__device__ __forceinline__ void st_shared_v4_b32(SmemAddr dst, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared::cta.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(dst.u), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// PTX 9.7.9.8 · issuer: any thread · generic proxy
__device__ __forceinline__ float ld_global_f32(const float* src) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(src) : "memory");
    return value;
}

// PTX 9.7.9.11 · issuer: any thread · generic proxy
__device__ __forceinline__ void st_global_f32(float* dst, float value) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(dst), "f"(value) : "memory");
}
