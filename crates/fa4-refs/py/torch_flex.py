"""PyTorch's flex_attention: a Triton kernel that Inductor makes for the mask and the softcap given."""

from problem import Unavailable, require, require_plain


def adapter(_name):
    return Flex()


class Flex:
    compiled = None

    def versions(self):
        try:
            import torch
            import triton
            from torch.nn.attention.flex_attention import flex_attention

            from device import need_gpu, versions
        except ImportError as error:
            raise Unavailable(f"torch with flex_attention, and triton: {error}") from error
        need_gpu()
        if self.compiled is None:
            self.compiled = torch.compile(flex_attention, dynamic=False)
        return versions(triton=triton.__version__)

    def supports(self, problem):
        require_plain(problem, softcap=True, window=True, dims_differ=True)
        require(problem.head_dim_qk >= 16 and problem.head_dim_v >= 16, "head dims of at least 16")

    def prepare(self, problem, tensors):
        import torch
        from torch.nn.attention.flex_attention import create_block_mask

        from device import DEVICE, Job

        compiled, cap = self.compiled, problem.softcap
        arguments = {"scale": problem.scale, "enable_gqa": problem.grouped, "return_lse": True}
        if problem.mask != "full":
            seen = band_mask(problem)
            arguments["block_mask"] = create_block_mask(
                seen, None, None, problem.seqlen_q, problem.seqlen_k, device=DEVICE
            )
        if cap:
            arguments["score_mod"] = lambda score, b, h, i, j: cap * torch.tanh(score / cap)

        def bind(tensors):
            q, k, v = (x.transpose(1, 2) for x in (tensors.q, tensors.k, tensors.v))

            def run():
                o, lse = compiled(q, k, v, **arguments)
                return o.transpose(1, 2), lse

            return run

        shown = ", ".join(sorted(arguments))
        called = f"torch.compile(flex_attention)({shown})"
        return Job(tensors, bind, called=called, lse_base="e", kernels="^triton_", context=torch.no_grad)


def band_mask(problem):
    """Which keys a query sees, as flex_attention asks for it."""
    left, right = problem.band()
    diagonal = problem.seqlen_k - problem.seqlen_q

    def seen(b, h, i, j):
        visible = j >= 0
        if left is not None:
            visible = visible & (j >= i + diagonal - left)
        if right is not None:
            visible = visible & (j <= i + diagonal + right)
        return visible

    return seen
