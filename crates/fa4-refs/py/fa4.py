"""FlashAttention-4, the CuTe DSL kernels of `flash_attn.cute`; on Hopper its sm_90 path."""

from problem import Unavailable, require, require_plain

# Few query tiles leave SMs idle; its own rule then splits the keys, on Blackwell.
DECODE_SEQLEN_Q = 64


def adapter(_name):
    return Fa4()


class Fa4:
    function = None

    def versions(self):
        try:
            import torch  # noqa: F401

            from device import need_gpu, package, versions
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        self.major = need_gpu()[0]
        if self.function is None:
            try:
                from flash_attn.cute.interface import flash_attn_func
            except Exception as error:
                raise Unavailable(f"flash_attn.cute (package flash-attn-4): {error}") from error
            self.function = flash_attn_func
        if self.major not in (9, 10, 11):
            raise Unavailable(f"its kernels here are for compute capability 9.x to 11.x, this GPU has {self.major}.x")
        return versions(flash_attn_4=package("flash-attn-4"), nvidia_cutlass_dsl=package("nvidia-cutlass-dsl"))

    def supports(self, problem):
        require_plain(problem, sink=True, softcap=True, window=True, dims_differ=True)
        d, dv = problem.head_dim_qk, problem.head_dim_v
        require(d % 8 == 0 and dv % 8 == 0, "head dims that are multiples of 8")
        if self.major == 9:
            require(max(d, dv) <= 256, "head dims of at most 256")
        else:
            require(max(d, dv) <= 128 or (d, dv) in ((192, 128), (256, 256)), "head dims up to 128, (192, 128), (256, 256)")
            require((d, dv) != (256, 256) or not (problem.softcap or problem.sink), "no softcap or sinks at head dim 256")

    def prepare(self, problem, tensors):
        from device import Job

        function = self.function
        arguments = {"softmax_scale": problem.scale, "causal": problem.mask == "causal", "return_lse": True}
        if problem.mask == "window":
            arguments["window_size"] = problem.band()
        if problem.softcap:
            arguments["softcap"] = problem.softcap
        if problem.seqlen_q <= DECODE_SEQLEN_Q < problem.seqlen_k and self.major != 9:
            arguments["num_splits"] = 0
        shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
        if problem.sink:
            shown += ", learnable_sink"

        def bind(tensors):
            call = dict(arguments)
            if problem.sink:
                call["learnable_sink"] = tensors.sinks

            def run():
                result = function(tensors.q, tensors.k, tensors.v, **call)
                return (result[0], result[1]) if isinstance(result, tuple) else (result, None)

            return run

        # Names of CuTe DSL kernels hold the class that made them.
        kernels = "flash_attn|FlashAttention|flash_fwd"
        return Job(tensors, bind, called=f"flash_attn_func({shown})", lse_base="e", kernels=kernels)
