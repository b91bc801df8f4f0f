"""Triton kernels whose compiled form the emulator has to run.

They are ours, written in Triton, but their PTX is not: tile layout, swizzle, barrier protocol, warp
specialisation and every `tcgen05` instruction are chosen by Triton's compiler, which its makers debugged on
real Blackwell hardware. Where the emulator disagrees with these kernels, suspect the emulator first.

Conventions: A is [M, K], B is [N, K] (so a kernel computes A * B^T), C is [M, N], all row-major and dense.
Program p of a matmul owns tile (p mod ceil(M / BM), p div ceil(M / BM)).
`WS` asks Triton for warp specialisation of the marked loop.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def matmul_tma(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr,
):
    """C = A * B^T through tensor maps that the host encodes; accumulates in f32, rounds to C's type."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    m0 = pid % tiles_m * BM
    n0 = pid // tiles_m * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WS):
        a = a_desc.load([m0, k])
        b = b_desc.load([n0, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m0, n0], acc.to(c_desc.dtype))


@triton.jit
def matmul_device_maps(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr,
):
    """`matmul_tma` with tensor maps that the kernel builds in global scratch (`tensormap.replace`)."""
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    m0 = pid % tiles_m * BM
    n0 = pid // tiles_m * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=WS):
        a = a_desc.load([m0, k])
        b = b_desc.load([n0, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m0, n0], acc.to(tl.bfloat16))


@triton.jit
def matmul_persistent(
    a_desc, b_desc, c_desc, M, N, K, PROGRAMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WS: tl.constexpr, FLAT: tl.constexpr,
):
    """`matmul_tma` with PROGRAMS programs that walk the tiles; launch exactly PROGRAMS of them.

    FLAT merges the tile loop and the K loop into one software pipeline.
    """
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=FLAT, warp_specialize=WS):
        m0 = tile % tiles_m * BM
        n0 = tile // tiles_m * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = a_desc.load([m0, k])
            b = b_desc.load([n0, k])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([m0, n0], acc.to(c_desc.dtype))


@triton.jit
def matmul_pointers(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """C = A * B^T by masked pointer loads (`cp.async`, no TMA)."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    rows = pid % tiles_m * BM + tl.arange(0, BM)
    cols = pid // tiles_m * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + cols[None, :] * K + ks[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] + k < K), other=0.0)
        b = tl.load(b_ptrs, mask=(cols[None, :] < N) & (ks[:, None] + k < K), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK
    c_ptrs = c_ptr + rows[:, None] * N + cols[None, :]
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def matmul_tf32(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """C = A * B^T on f32 data, multiplied as tf32; program (p, q) owns tile (p, q)."""
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m0, k])
        b = b_desc.load([n0, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([m0, n0], acc)


@triton.jit
def matmul_mxfp8(
    a_desc, b_desc, a_scale_ptr, b_scale_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    """C = (A * sA) * (B * sB)^T, e4m3 data with one ue8m0 scale per 32 elements of K; C is f32."""
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    rows = m0 + tl.arange(0, BM)
    cols = n0 + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([m0, k])
        b = b_desc.load([n0, k])
        groups = k // 32 + tl.arange(0, BK // 32)
        a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // 32) + groups[None, :])
        b_scale = tl.load(b_scale_ptr + cols[:, None] * (K // 32) + groups[None, :])
        acc = tl.dot_scaled(a, a_scale, "e4m3", b.T, b_scale, "e4m3", acc)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def gather_add(
    x_desc, table_desc, y_desc, index_ptr,
    BM: tl.constexpr, BN: tl.constexpr,
):
    """Y += X + table[index]: TMA gather4, TMA load and TMA reduction in one kernel."""
    m0 = tl.program_id(0) * BM
    rows = tl.load(index_ptr + m0 + tl.arange(0, BM))
    gathered = table_desc.gather(rows, 0)
    x = x_desc.load([m0, 0])
    y_desc.atomic_add([m0, 0], gathered + x)


@triton.jit
def softmax_rows(x_ptr, y_ptr, stride, n, B: tl.constexpr):
    """y[r] = softmax(x[r]) over the first n <= B elements of a row; one program per row, f32."""
    row = tl.program_id(0)
    cols = tl.arange(0, B)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + cols, e / tl.sum(e, 0), mask=cols < n)


@triton.jit
def attn_fwd(
    sm_scale, lse_ptr, q_desc, k_desc, v_desc, o_desc, S,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WS: tl.constexpr,
):
    """Attention forward; Q, K, V, O are [Z * H * S, D]; program (p, zh) owns BM query rows of head zh.

    S must be a multiple of BM and of BN. `lse` is [Z * H, S] in units of log2: log2 of the sum over j of 2^s_j,
    s being the scores in the log2 domain. The running sum starts at 1, which the first block's correction
    factor 2^(-inf - m) = 0 wipes out again.
    """
    base = tl.program_id(1) * S
    m0 = tl.program_id(0) * BM
    rows = m0 + tl.arange(0, BM)
    cols = tl.arange(0, BN)
    row_max = tl.zeros([BM], dtype=tl.float32) - float("inf")
    row_sum = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale = sm_scale * LOG2_E
    q = q_desc.load([base + m0, 0])
    if CAUSAL:
        end = m0 + BM
    else:
        end = S
    for n in tl.range(0, end, BN, warp_specialize=WS):
        k = k_desc.load([base + n, 0])
        s = tl.dot(q, k.T)
        if CAUSAL:
            s = s * scale + tl.where(rows[:, None] >= (n + cols[None, :]), 0, -1.0e6)
            new_max = tl.maximum(row_max, tl.max(s, 1))
            p = tl.math.exp2(s - new_max[:, None])
        else:
            new_max = tl.maximum(row_max, tl.max(s, 1) * scale)
            p = tl.math.exp2(s * scale - new_max[:, None])
        alpha = tl.math.exp2(row_max - new_max)
        block_sum = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([base + n, 0])
        acc = tl.dot(p.to(v_desc.dtype), v, acc)
        row_sum = row_sum * alpha + block_sum
        row_max = new_max
    acc = acc / row_sum[:, None]
    tl.store(lse_ptr + base + rows, row_max + tl.math.log2(row_sum))
    o_desc.store([base + m0, 0], acc.to(o_desc.dtype))
