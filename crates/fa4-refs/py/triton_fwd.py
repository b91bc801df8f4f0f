"""A fused forward kernel in Triton, written for this repository: what a good afternoon with Triton gives.

Online softmax over blocks of keys, one program per query tile and head; blocks that the mask cuts are walked apart from
those that it leaves whole. Grouped heads, a bottom-right band, LSE; no split of the keys, so decode is not its strength.
"""

from problem import Unavailable, require, require_plain

try:
    import triton
    import triton.language as tl
except ImportError as missing:
    triton, why_missing = None, str(missing)


def adapter(_name):
    return Triton()


if triton is not None:

    @triton.jit
    def walk(
        acc, row_max, row_sum, q, k_ptr, v_ptr, stride_ks, stride_vs, first, end, rows, seqlen_k, diagonal, left, right,
        scale_log2, DIM_QK: tl.constexpr, DIM_V: tl.constexpr, PAD_QK: tl.constexpr, PAD_V: tl.constexpr,
        BLOCK_N: tl.constexpr, MASKED: tl.constexpr, HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr,
    ):  # fmt: skip
        """Attends to the keys from `first` up to `end`, in blocks."""
        dims_qk, dims_v = tl.arange(0, PAD_QK), tl.arange(0, PAD_V)
        for start in range(first, end, BLOCK_N):
            keys = start + tl.arange(0, BLOCK_N)
            at_k = k_ptr + keys[None, :].to(tl.int64) * stride_ks + dims_qk[:, None]
            at_v = v_ptr + keys[:, None].to(tl.int64) * stride_vs + dims_v[None, :]
            if MASKED:
                k = tl.load(at_k, mask=(keys[None, :] < seqlen_k) & (dims_qk[:, None] < DIM_QK), other=0.0)
                v = tl.load(at_v, mask=(keys[:, None] < seqlen_k) & (dims_v[None, :] < DIM_V), other=0.0)
            elif PAD_QK != DIM_QK or PAD_V != DIM_V:
                k = tl.load(at_k, mask=dims_qk[:, None] < DIM_QK, other=0.0)
                v = tl.load(at_v, mask=dims_v[None, :] < DIM_V, other=0.0)
            else:
                k = tl.load(at_k)
                v = tl.load(at_v)
            s = tl.dot(q, k)
            if MASKED:
                delta = keys[None, :] - (rows[:, None] + diagonal)
                seen = keys[None, :] < seqlen_k
                if HAS_LEFT:
                    seen = seen & (delta >= -left)
                if HAS_RIGHT:
                    seen = seen & (delta <= right)
                s = tl.where(seen, s, float("-inf"))
            new_max = tl.maximum(row_max, tl.max(s, 1) * scale_log2)
            # A row that has seen no key yet has no maximum to subtract.
            base = tl.where(new_max == float("-inf"), 0.0, new_max)
            p = tl.exp2(s * scale_log2 - base[:, None])
            factor = tl.exp2(row_max - base)
            row_sum = row_sum * factor + tl.sum(p, 1)
            acc = acc * factor[:, None]
            acc = tl.dot(p.to(v.dtype), v, acc)
            row_max = new_max
        return acc, row_max, row_sum

    @triton.jit
    def forward(
        q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, stride_qb, stride_qs, stride_qh, stride_kb, stride_ks, stride_kh, stride_vb,
        stride_vs, stride_vh, stride_ob, stride_os, stride_oh, seqlen_q, seqlen_k, heads, group, scale_log2, left, right,
        DIM_QK: tl.constexpr, DIM_V: tl.constexpr, PAD_QK: tl.constexpr, PAD_V: tl.constexpr,
        HAS_LEFT: tl.constexpr, HAS_RIGHT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    ):  # fmt: skip
        # The longest rows of a causal mask come last: they start first.
        m_block = tl.num_programs(0) - 1 - tl.program_id(0)
        b = (tl.program_id(1) // heads).to(tl.int64)
        h = (tl.program_id(1) % heads).to(tl.int64)
        first_row = m_block * BLOCK_M
        rows = first_row + tl.arange(0, BLOCK_M)
        dims_qk, dims_v = tl.arange(0, PAD_QK), tl.arange(0, PAD_V)
        here = rows[:, None] < seqlen_q
        at_q = q_ptr + b * stride_qb + h * stride_qh + rows[:, None].to(tl.int64) * stride_qs + dims_qk[None, :]
        q = tl.load(at_q, mask=here & (dims_qk[None, :] < DIM_QK), other=0.0)
        k_ptr += b * stride_kb + (h // group) * stride_kh
        v_ptr += b * stride_vb + (h // group) * stride_vh
        diagonal = seqlen_k - seqlen_q
        # Keys that any row of the tile sees lie in [low, high), those that all of them see in [whole_low, whole_high).
        low, whole_low = 0, 0
        high, whole_high = seqlen_k, seqlen_k
        if HAS_LEFT:
            low = tl.maximum(first_row + diagonal - left, 0)
            whole_low = tl.maximum(first_row + BLOCK_M - 1 + diagonal - left, 0)
        if HAS_RIGHT:
            high = tl.minimum(first_row + BLOCK_M + diagonal + right, seqlen_k)
            whole_high = tl.minimum(first_row + 1 + diagonal + right, seqlen_k)
        low = low // BLOCK_N * BLOCK_N
        high = tl.maximum(high, low)
        whole_low = tl.minimum((whole_low + BLOCK_N - 1) // BLOCK_N * BLOCK_N, high)
        whole_low = tl.maximum(whole_low, low)
        whole_high = tl.maximum(tl.maximum(whole_high, 0) // BLOCK_N * BLOCK_N, whole_low)
        acc = tl.zeros((BLOCK_M, PAD_V), tl.float32)
        row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_M,), tl.float32)
        if HAS_LEFT:
            acc, row_max, row_sum = walk(
                acc, row_max, row_sum, q, k_ptr, v_ptr, stride_ks, stride_vs, low, whole_low, rows, seqlen_k, diagonal,
                left, right, scale_log2, DIM_QK, DIM_V, PAD_QK, PAD_V, BLOCK_N, True, HAS_LEFT, HAS_RIGHT,
            )  # fmt: skip
        acc, row_max, row_sum = walk(
            acc, row_max, row_sum, q, k_ptr, v_ptr, stride_ks, stride_vs, whole_low, whole_high, rows, seqlen_k,
            diagonal, left, right, scale_log2, DIM_QK, DIM_V, PAD_QK, PAD_V, BLOCK_N, False, HAS_LEFT, HAS_RIGHT,
        )  # fmt: skip
        acc, row_max, row_sum = walk(
            acc, row_max, row_sum, q, k_ptr, v_ptr, stride_ks, stride_vs, whole_high, high, rows, seqlen_k, diagonal,
            left, right, scale_log2, DIM_QK, DIM_V, PAD_QK, PAD_V, BLOCK_N, True, HAS_LEFT, HAS_RIGHT,
        )  # fmt: skip
        empty = row_sum == 0.0
        acc = acc / tl.where(empty, 1.0, row_sum)[:, None]
        # ln 2 makes the binary logarithm natural.
        lse = tl.where(empty, float("-inf"), (row_max + tl.log2(tl.where(empty, 1.0, row_sum))) * 0.6931471805599453)
        at_o = o_ptr + b * stride_ob + h * stride_oh + rows[:, None].to(tl.int64) * stride_os + dims_v[None, :]
        tl.store(at_o, acc.to(o_ptr.dtype.element_ty), mask=here & (dims_v[None, :] < DIM_V))
        tl.store(lse_ptr + (b * heads + h) * seqlen_q + rows, lse, mask=rows < seqlen_q)


def tuned():
    """The kernel with the tile sizes that are tried for every problem; the time for that is not part of a timing."""
    sizes = [(128, 128, 8, 2), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3)]
    configs = [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=warps, num_stages=stages) for m, n, warps, stages in sizes
    ]
    key = ["seqlen_q", "seqlen_k", "heads", "group", "DIM_QK", "DIM_V", "HAS_LEFT", "HAS_RIGHT"]
    return triton.autotune(configs=configs, key=key)(forward)


def launch(kernel, problem, q, k, v, **tile):
    """O and LSE of one launch. `tile` gives the sizes where `kernel` is not tuned."""
    import torch

    o = torch.empty(problem.o_shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(problem.lse_shape, dtype=torch.float32, device=q.device)
    left, right = problem.band()
    heads = problem.num_heads_q

    def grid(meta):
        return (triton.cdiv(problem.seqlen_q, meta["BLOCK_M"]), problem.batch * heads)

    kernel[grid](
        q, k, v, o, lse, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3], problem.seqlen_q,
        problem.seqlen_k, heads, heads // problem.num_heads_kv, problem.scale * 1.4426950408889634, left or 0, right or 0,
        DIM_QK=problem.head_dim_qk, DIM_V=problem.head_dim_v, PAD_QK=padded(problem.head_dim_qk),
        PAD_V=padded(problem.head_dim_v), HAS_LEFT=left is not None, HAS_RIGHT=right is not None, **tile,
    )  # fmt: skip
    return o, lse


def padded(dim):
    """Tiles have sides that are powers of two, and products at least 16 of them."""
    return max(16, triton.next_power_of_2(dim))


class Triton:
    kernel = None

    def versions(self):
        if triton is None:
            raise Unavailable(f"triton: {why_missing}")
        try:
            import torch  # noqa: F401

            from device import need_gpu, versions
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        need_gpu()
        self.kernel = self.kernel or tuned()
        return versions(triton=triton.__version__)

    def supports(self, problem):
        require_plain(problem, window=True, dims_differ=True)
        require(max(problem.head_dim_qk, problem.head_dim_v) <= 256, "head dims of at most 256")
        # The grid's second dimension.
        require(problem.batch * problem.num_heads_q < 65536, "fewer than 65536 heads in the whole batch")

    def prepare(self, problem, tensors):
        from device import Job

        def bind(tensors):
            return lambda: launch(self.kernel, problem, tensors.q, tensors.k, tensors.v)

        called = "a kernel of our own in Triton, tuned over six tile sizes"
        return Job(tensors, bind, called=called, lse_base="e", kernels="^forward$")
