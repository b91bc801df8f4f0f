"""FlashInfer, one backend by name. Its LSE is binary. Pages and plans are made in `prepare`, outside any timing."""

from problem import Unavailable, Unsupported, require, require_plain

# Which GPUs a backend has kernels for, by major compute capability.
MAJORS = {"fa2": (8, 9, 10, 12), "fa3": (9,), "cutlass": (10,), "cute-dsl": (10,), "trtllm": (10,)}
WORKSPACE_BYTES = 512 << 20
PAGE_TOKENS = 64
# trtllm-gen's decode entry takes this many queries of a request at most here; more go through its context entry.
DECODE_SEQLEN_Q = 8


def adapter(name):
    return FlashInfer(name.removeprefix("flashinfer-"))


class FlashInfer:
    library, workspace = None, None

    def __init__(self, backend):
        self.backend = backend

    def versions(self):
        try:
            import torch

            from device import need_gpu, package, versions
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        major = need_gpu()[0]
        if major not in MAJORS[self.backend]:
            needed = " or ".join(f"{needed}.x" for needed in MAJORS[self.backend])
            raise Unavailable(f"backend {self.backend} needs compute capability {needed}, this GPU has {major}.x")
        if self.library is None:
            try:
                import flashinfer
            except Exception as error:
                raise Unavailable(f"flashinfer (package flashinfer-python): {error}") from error
            self.library = flashinfer
            # Zeroed: trtllm-gen keeps counters in it that its kernels leave at zero.
            self.workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        return versions(flashinfer=self.library.__version__, cubins=package("flashinfer-cubin"))

    def supports(self, problem):
        windowed = self.backend != "cutlass"
        capped = self.backend in ("fa2", "fa3", "cute-dsl")
        sinks = self.backend == "trtllm"
        dims_differ = self.backend in ("fa2", "fa3", "cutlass")
        require_plain(problem, window=windowed, softcap=capped, sink=sinks, dims_differ=dims_differ)
        _, right = problem.band()
        require(right in (None, 0), "a window is bounded on the left only")
        d, dv = problem.head_dim_qk, problem.head_dim_v
        if self.backend in ("cutlass", "cute-dsl"):
            require(d in (64, 128) or (d, dv) == (192, 128), "head dims 64, 128, (192, 128)")
        else:
            require(d in (64, 128, 256) or (d, dv) == (192, 128), "head dims 64, 128, 256, (192, 128)")

    def prepare(self, problem, tensors):
        make = self.paged if self.backend == "trtllm" else self.ragged
        return make(problem, tensors)

    def ragged(self, problem, tensors):
        """All tokens of the batch in a row: a view of our tensors, no copy."""
        import torch

        from device import Job

        left, right = problem.band()
        wrapper = self.library.BatchPrefillWithRaggedKVCacheWrapper(self.workspace, "NHD", backend=self.backend)

        def starts(length):
            return torch.arange(problem.batch + 1, dtype=torch.int32, device=tensors.q.device) * length

        arguments = {
            "head_dim_vo": problem.head_dim_v,
            "causal": right == 0,
            "sm_scale": problem.scale,
            "window_left": -1 if left is None else left,
            "logits_soft_cap": problem.softcap or None,
        }
        try:
            wrapper.plan(
                starts(problem.seqlen_q),
                starts(problem.seqlen_k),
                problem.num_heads_q,
                problem.num_heads_kv,
                problem.head_dim_qk,
                q_data_type=tensors.q.dtype,
                kv_data_type=tensors.k.dtype,
                **arguments,
            )
        except NotImplementedError as error:
            raise Unsupported(str(error).splitlines()[0]) from error
        # The kernel variants of cute-dsl give no LSE.
        with_lse = not (self.backend == "cute-dsl" and problem.softcap)

        def bind(tensors):
            q, k, v = (tokens(x) for x in (tensors.q, tensors.k, tensors.v))

            def run():
                if not with_lse:
                    return wrapper.run(q, k, v).view(problem.o_shape), None
                o, lse = wrapper.run(q, k, v, return_lse=True)
                return o.view(problem.o_shape), by_head(problem, lse)

            return run

        shown = ", ".join(f"{key}={value}" for key, value in arguments.items())
        called = f"BatchPrefillWithRaggedKVCacheWrapper(backend={self.backend}).plan({shown})"
        never = {"fa3": "sm80|fa2", "fa2": "Hopper|Sm90"}.get(self.backend)
        return Job(tensors, bind, called=called, lse_base="2" if with_lse else None, never=never)

    def paged(self, problem, tensors):
        """trtllm-gen reads K and V from pages of (head, token, dim)."""
        import torch

        from device import Job

        left, right = problem.band()
        per_request = -(-problem.seqlen_k // PAGE_TOKENS)
        device = tensors.q.device
        table = torch.arange(problem.batch * per_request, dtype=torch.int32, device=device)
        table = table.view(problem.batch, per_request)
        lengths = torch.full((problem.batch,), problem.seqlen_k, dtype=torch.int32, device=device)
        steps = torch.arange(problem.batch + 1, dtype=torch.int32, device=device)
        decode = problem.seqlen_q <= DECODE_SEQLEN_Q and (right == 0 or problem.seqlen_q == 1)
        shared = {
            "block_tables": table,
            "seq_lens": lengths,
            "bmm1_scale": problem.scale,
            "bmm2_scale": 1.0,
            "window_left": -1 if left is None else left,
            "kv_layout": "HND",
            "return_lse": True,
            "backend": "trtllm-gen",
        }
        if decode:
            function = self.library.decode.trtllm_batch_decode_with_kv_cache
            shared.update(max_seq_len=problem.seqlen_k, q_len_per_req=problem.seqlen_q)
        else:
            function = self.library.prefill.trtllm_batch_context_with_kv_cache
            shared.update(
                max_q_len=problem.seqlen_q,
                max_kv_len=problem.seqlen_k,
                batch_size=problem.batch,
                cum_seq_lens_q=steps * problem.seqlen_q,
                cum_seq_lens_kv=steps * problem.seqlen_k,
                causal=right == 0,
            )

        def bind(tensors):
            q = tokens(tensors.q)
            caches = tuple(pages(x, per_request) for x in (tensors.k, tensors.v))
            call = dict(shared)
            if problem.sink:
                call["sinks"] = tensors.sinks

            def run():
                o, lse = function(q, caches, self.workspace, **call)
                return o.view(problem.o_shape), by_head(problem, lse)

            return run

        return Job(
            tensors,
            bind,
            called=f"{function.__name__}(page {PAGE_TOKENS}, HND)",
            lse_base="2",
            kernels="fmha",
            notes=[f"K and V were copied into pages of {PAGE_TOKENS} tokens beforehand"],
        )


def tokens(x):
    """(batch, seqlen, head, dim) as (batch · seqlen, head, dim), without a copy."""
    try:
        return x.view(x.shape[0] * x.shape[1], *x.shape[2:])
    except RuntimeError as error:
        raise Unsupported("ragged tensors: batch entries must follow each other without gaps") from error


def pages(x, per_request):
    """A copy of K or V as (pages, head, token, dim); the last page of a request is filled up with zeros."""
    import torch

    batch, seqlen, heads, dim = x.shape
    whole = torch.zeros(batch, per_request * PAGE_TOKENS, heads, dim, dtype=x.dtype, device=x.device)
    whole[:, :seqlen] = x
    split = whole.view(batch * per_request, PAGE_TOKENS, heads, dim)
    return split.transpose(1, 2).contiguous()


def by_head(problem, lse):
    """(batch · seqlen_q, head) as (batch, head, seqlen_q)."""
    return lse.view(problem.batch, problem.seqlen_q, problem.num_heads_q).transpose(1, 2)
