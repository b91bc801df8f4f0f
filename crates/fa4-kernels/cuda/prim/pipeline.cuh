// Ring positions and the one wait loop. Nobody else increments a stage or spins on a barrier.
#pragma once
#include "ptx/mbarrier.cuh"

// Position in a ring of kStages slots: the slot, and the parity of the barrier phase that belongs to this pass.
template <u32 kStages> struct Ring {
    u32 stage = 0;
    u32 phase = 0;

    // Next slot; true when the ring wrapped.
    __device__ __forceinline__ bool advance() {
        stage = stage + 1 == kStages ? 0 : stage + 1;
        phase ^= stage == 0 ? 1u : 0u;
        return stage == 0;
    }
};

// Returns once the phase of parity `phase` has completed.
__device__ __forceinline__ void wait_full(MbarAddr full, u32 phase) {
    while (!mbarrier_try_wait_parity(full, phase)) {
    }
}

// The producer's view of an `empty` barrier: the first pass over a fresh ring does not block, because a fresh barrier
// counts as having completed the phase of parity 1.
__device__ __forceinline__ void wait_empty(MbarAddr empty, u32 phase) {
    while (!mbarrier_try_wait_parity(empty, phase ^ 1u)) {
    }
}
