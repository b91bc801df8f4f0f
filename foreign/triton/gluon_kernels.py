"""Kernels in Gluon, the level of Triton at which memory and barriers are written by hand.

Triton itself pairs CTAs for no kernel of kernels.py, so the witness for `cta_group::2` is written here. Buffers, barriers
and their phases are ours; which instructions they become, the descriptors, the place of each CTA's share in shared and
tensor memory and the routing between the two CTAs are the compiler's.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout, allocate_tensor_memory, fence_async_shared, mbarrier, tcgen05_mma, tma,
)
from triton.experimental.gluon.language.nvidia.hopper import cluster


@gluon.jit
def matmul_pair(
    a_desc, b_desc, c_desc, M, N, K,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
):
    """C = A * B^T; two CTAs own a tile together, each half of its rows of A, half of its rows of B and half of D."""
    STAGES: gl.constexpr = 3
    pid = gl.program_id(0)
    tiles_m = gl.cdiv(M, BM)
    m0 = pid % tiles_m * BM
    n0 = pid // tiles_m * BN
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [STAGES, BM, BK], a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BN, BK], b_desc.layout)
    acc_layout: gl.constexpr = TensorMemoryLayout([BM // 2, BN], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], acc_layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES, two_ctas=True)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    cluster.barrier(relaxed=True)
    steps = gl.cdiv(K, BK)
    for j in gl.static_range(STAGES - 1):
        if j < steps:
            mbarrier.expect(full.index(j), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta)
            tma.async_load(a_desc, [m0, j * BK], full.index(j), a_bufs.index(j))
            tma.async_load(b_desc, [n0, j * BK], full.index(j), b_bufs.index(j))
    for k in range(steps):
        s = k % STAGES
        mbarrier.wait(full.index(s), k // STAGES & 1)
        tcgen05_mma(a_bufs.index(s), b_bufs.index(s).permute((1, 0)), acc, use_acc=k != 0, mbarriers=[empty.index(s)])
        n = k + STAGES - 1
        t = n % STAGES
        # The slot that is filled next was read by the product before this one.
        mbarrier.wait(empty.index(t), (n // STAGES - 1) & 1, pred=(n < steps) & (n >= STAGES))
        mbarrier.expect(full.index(t), a_desc.nbytes_per_cta + b_desc.nbytes_per_cta, pred=n < steps)
        tma.async_load(a_desc, [m0, n * BK], full.index(t), a_bufs.index(t), pred=n < steps)
        tma.async_load(b_desc, [n0, n * BK], full.index(t), b_bufs.index(t), pred=n < steps)
    last = steps - 1
    mbarrier.wait(empty.index(last % STAGES), last // STAGES & 1)
    c_smem = gl.allocate_shared_memory(c_desc.dtype, [BM, BN], c_desc.layout, acc.load().to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [m0, n0], c_smem)
    tma.store_wait(0)
