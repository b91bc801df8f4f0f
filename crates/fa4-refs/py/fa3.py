"""FlashAttention-3, from its own build (`flash_attn_interface`) or from the wheel `fa3-fwd`."""

import importlib

from problem import Unavailable, Unsupported, require, require_plain

MODULES = ("flash_attn_interface", "fa3_fwd_interface")
# With so few queries a grid over query tiles leaves SMs idle; the KV-cache entry splits the keys by its own rule.
DECODE_SEQLEN_Q = 64


def adapter(_name):
    return Fa3()


class Fa3:
    library = None

    def versions(self):
        try:
            import torch  # noqa: F401

            from device import need_gpu, package, versions
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        capability = need_gpu()
        if self.library is None:
            failures = []
            for name in MODULES:
                try:
                    self.library = importlib.import_module(name)
                    break
                except Exception as error:  # A wheel for another torch fails in its own ways.
                    failures.append(f"{name}: {error}")
            else:
                raise Unavailable("; ".join(failures))
        if capability[0] != 9:
            raise Unavailable(f"its kernels are for compute capability 9.0, this GPU has {capability[0]}.{capability[1]}")
        name = self.library.__name__
        found = package("fa3-fwd" if name.startswith("fa3") else "flash-attn-3")
        return versions(fa3=getattr(self.library, "__version__", found), module=name)

    def supports(self, problem):
        require_plain(problem, softcap=True, window=True, dims_differ=True)
        d, dv = problem.head_dim_qk, problem.head_dim_v
        require(d % 8 == 0 and dv % 8 == 0 and d <= 256, "head dims that are multiples of 8, at most 256")
        require(d == dv or (d, dv) == (192, 128) or (d <= 64 and dv <= 512), "d = dv, (192, 128), or d ≤ 64 with dv ≤ 512")

    def prepare(self, problem, tensors):
        from device import Job

        left, right = problem.band()
        arguments = {
            "softmax_scale": problem.scale,
            "causal": problem.mask == "causal",
            "softcap": problem.softcap,
        }
        if problem.mask == "window":
            arguments["window_size"] = (-1 if left is None else left, -1 if right is None else right)
        decode = problem.seqlen_q <= DECODE_SEQLEN_Q < problem.seqlen_k
        entry = "flash_attn_with_kvcache" if decode else "flash_attn_func"
        function = getattr(self.library, entry)
        if decode:
            arguments.update(num_splits=0, return_softmax_lse=True)
        else:
            import inspect

            flag = "return_attn_probs"
            if flag in inspect.signature(function).parameters:
                arguments[flag] = True

        def bind(tensors):
            import torch

            call = dict(arguments)
            if decode:
                call["cache_seqlens"] = torch.full(
                    (problem.batch,), problem.seqlen_k, dtype=torch.int32, device=tensors.q.device
                )

            def run():
                result = function(tensors.q, tensors.k, tensors.v, **call)
                return (result[0], result[1]) if isinstance(result, tuple) else (result, None)

            return run

        shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
        try:
            return Job(
                tensors, bind, called=f"{entry}({shown})", lse_base="e", kernels="FlashAttnFwdSm90|flash.*[Ss]m90"
            )
        except RuntimeError as error:
            # The wheel leaves features out and says so like this.
            if "does not support" in str(error) or "not compiled" in str(error):
                raise Unsupported(str(error).splitlines()[0]) from error
            raise
