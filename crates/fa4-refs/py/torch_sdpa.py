"""PyTorch's scaled_dot_product_attention, one backend by name."""

import contextlib
import warnings

from problem import Unavailable, Unsupported, require, require_plain

# What one of the launched kernels is called. flash is FlashAttention-2 as PyTorch ships it.
KERNELS = {
    "torch-cudnn": "cudnn",
    "torch-flash": "flash_fwd",
    "torch-efficient": "fmha_cutlass|MemEffAttention",
    "torch-math": "softmax|SoftMax",
}
BACKENDS = {
    "torch-cudnn": "CUDNN_ATTENTION",
    "torch-flash": "FLASH_ATTENTION",
    "torch-efficient": "EFFICIENT_ATTENTION",
    "torch-math": "MATH",
}
# The unfused backend holds S in memory, in f32 at times more than once.
MOST_S_BYTES = 8 << 30


def adapter(name):
    return Sdpa(name)


class Sdpa:
    def __init__(self, name):
        self.name = name

    def versions(self):
        try:
            import torch
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        from device import need_gpu, versions

        need_gpu()
        more = {"cudnn": torch.backends.cudnn.version()} if self.name == "torch-cudnn" else {}
        return versions(**more)

    def supports(self, problem):
        math, efficient = self.name == "torch-math", self.name == "torch-efficient"
        require_plain(problem, window=math, dims_differ=self.name != "torch-flash")
        square = problem.seqlen_q == problem.seqlen_k
        if self.name == "torch-cudnn":
            require(problem.mask == "full" or square, "is_causal is aligned at the top left: equal lengths only")
        if efficient:
            require(not problem.grouped, "as many KV heads as query heads")
        if math:
            elems = problem.batch * problem.num_heads_q * problem.seqlen_q * problem.seqlen_k
            require(4 * elems <= MOST_S_BYTES, f"S would take {4 * elems} bytes of memory")

    def prepare(self, problem, tensors):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right
        from torch.nn.functional import scaled_dot_product_attention

        from device import Job

        backend = getattr(SDPBackend, BACKENDS[self.name])
        arguments, called = {"scale": problem.scale}, ""
        if problem.grouped:
            arguments["enable_gqa"] = True
        if self.name == "torch-math" and problem.mask != "full":
            arguments["attn_mask"] = visible(problem, tensors.q.device)
            called = ", attn_mask=a boolean matrix"
        elif problem.mask == "causal" and problem.seqlen_q == problem.seqlen_k:
            arguments["is_causal"] = True
            called = ", is_causal=True"
        elif problem.mask == "causal":
            arguments["attn_mask"] = causal_lower_right(problem.seqlen_q, problem.seqlen_k)
            called = ", attn_mask=causal_lower_right"

        def bind(tensors):
            q, k, v = (x.transpose(1, 2) for x in (tensors.q, tensors.k, tensors.v))

            return lambda: (scaled_dot_product_attention(q, k, v, **arguments).transpose(1, 2), None)

        called = f"scaled_dot_product_attention(q, k, v{called}) under sdpa_kernel({backend.name})"
        @contextlib.contextmanager
        def context():
            with sdpa_kernel(backend), torch.no_grad():
                yield

        never = "flash|fmha|cudnn" if self.name == "torch-math" else None
        # Why a backend refuses, PyTorch says in warnings.
        with warnings.catch_warnings(record=True) as reasons:
            warnings.simplefilter("always")
            try:
                return Job(tensors, bind, called=called, kernels=KERNELS[self.name], never=never, context=context)
            except RuntimeError as error:
                if "No available kernel" in str(error) or "No viable backend" in str(error):
                    told = "; ".join(str(reason.message).split(" (Triggered")[0] for reason in reasons)
                    raise Unsupported((told or str(error))[:500]) from error
                raise


def visible(problem, device):
    """Boolean (seqlen_q, seqlen_k): may a query see a key?"""
    import torch

    left, right = problem.band()
    i = torch.arange(problem.seqlen_q, device=device)[:, None] + problem.seqlen_k - problem.seqlen_q
    j = torch.arange(problem.seqlen_k, device=device)[None]
    seen = torch.ones(problem.seqlen_q, problem.seqlen_k, dtype=torch.bool, device=device)
    if left is not None:
        seen &= j >= i - left
    if right is not None:
        seen &= j <= i + right
    return seen
