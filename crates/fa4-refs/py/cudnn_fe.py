"""cuDNN's graph API through its frontend's Python package: one SDPA node, inference, no statistics."""

from problem import Unavailable, require, require_plain


def adapter(_name):
    return CudnnFrontend()


class CudnnFrontend:
    cudnn = None

    def versions(self):
        try:
            import torch  # noqa: F401

            from device import need_gpu, versions
        except ImportError as error:
            raise Unavailable(f"torch: {error}") from error
        need_gpu()
        if self.cudnn is None:
            try:
                import cudnn
            except Exception as error:
                raise Unavailable(f"cudnn (package nvidia-cudnn-frontend): {error}") from error
            self.cudnn, self.handle = cudnn, cudnn.create_handle()
        return versions(cudnn_frontend=self.cudnn.__version__, cudnn=self.cudnn.backend_version())

    def supports(self, problem):
        require_plain(problem, sink=True, window=True, dims_differ=True)
        require(problem.head_dim_qk % 8 == 0 and problem.head_dim_v % 8 == 0, "head dims that are multiples of 8")
        left, _ = problem.band()
        require(left is None or problem.seqlen_q <= problem.seqlen_k, "a window needs seqlen_q ≤ seqlen_k")
        if problem.sink:
            require(problem.seqlen_q > 1, "sinks are refused with one query")
            require(self.cudnn is None or self.cudnn.backend_version() >= 91300, "sinks come with cuDNN 9.13")

    def mask(self, problem):
        left, right = problem.band()
        if problem.mask == "full":
            return {}
        if problem.mask == "causal":
            square = problem.seqlen_q == problem.seqlen_k
            return {"use_causal_mask": True} if square else {"use_causal_mask_bottom_right": True}
        arguments = {"diagonal_alignment": self.cudnn.diagonal_alignment.BOTTOM_RIGHT}
        if left is not None:
            # Counts the query's own key.
            arguments["diagonal_band_left_bound"] = left + 1
        if right is not None:
            arguments["diagonal_band_right_bound"] = right
        return arguments

    def prepare(self, problem, tensors):
        import torch

        from device import Job
        from problem import Unsupported

        cudnn, handle = self.cudnn, self.handle
        kinds = {"bf16": cudnn.data_type.BFLOAT16, "fp16": cudnn.data_type.HALF}
        graph = cudnn.pygraph(
            io_data_type=kinds[problem.q_dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=handle,
        )

        def bhsd(tensors):
            return [x.transpose(1, 2) for x in (tensors.q, tensors.k, tensors.v)]

        def new_o():
            o = torch.empty(problem.o_shape, dtype=tensors.q.dtype, device=tensors.q.device)
            return o.transpose(1, 2)

        q, k, v = (graph.tensor_like(x) for x in bhsd(tensors))
        arguments = {"name": "sdpa", "q": q, "k": k, "v": v, "attn_scale": problem.scale, **self.mask(problem)}
        sink = None
        if problem.sink:
            sink = graph.tensor_like(tensors.sinks.view(1, -1, 1, 1))
            arguments["sink_token"] = sink
        try:
            o, _ = graph.sdpa(generate_stats=False, **arguments)
        except TypeError:
            # Frontends before 1.15 call it so.
            o, _ = graph.sdpa(is_inference=True, **arguments)
        like = new_o()
        o.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride()))
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
            graph.build_plans()
        except Exception as error:
            if "NotSupported" in type(error).__name__ or "No valid" in str(error) or "support" in str(error):
                raise Unsupported(f"no plan: {str(error).splitlines()[0]}") from error
            raise
        workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=tensors.q.device)

        def bind(tensors):
            values = dict(zip((q, k, v), bhsd(tensors)))
            if sink is not None:
                values[sink] = tensors.sinks.view(1, -1, 1, 1)

            def run():
                result = new_o()
                cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
                graph.execute({**values, o: result}, workspace, handle=handle)
                return result.transpose(1, 2), None

            return run

        shown = ", ".join(sorted(set(arguments) - {"name", "q", "k", "v"}))
        return Job(tensors, bind, called=f"pygraph.sdpa({shown})", kernels="cudnn", notes=["no statistics are written"])
