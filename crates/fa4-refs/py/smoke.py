"""Tries references on this machine's GPU, without the bridge: `python3 smoke.py [--refs fa3,torch-flash]`.

One line each: versions, worst difference from an f32 computation, route, times; or why there is none.
"""

import argparse
import os
import tempfile

import registry
from problem import Problem, Refusal
from serve import Server

SHAPES = {
    "prefill": (2, 1024, 1024, 8, 8, 128, False),
    "causal": (2, 1024, 1024, 8, 8, 128, True),
    "gqa": (2, 512, 1024, 8, 2, 128, True),
    "hd64": (2, 1000, 1000, 8, 8, 64, True),
    "hd256": (2, 512, 512, 4, 4, 256, True),
    "decode": (8, 1, 4096, 16, 2, 128, False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--refs", default=",".join(registry.ADAPTERS))
    parser.add_argument("--shapes", default=",".join(SHAPES), help="of " + ", ".join(SHAPES))
    parser.add_argument("--window", type=int, nargs=2, metavar=("LEFT", "RIGHT"), help="instead of the shape's mask")
    parser.add_argument("--softcap", type=float, default=0.0)
    parser.add_argument("--sink", action="store_true")
    arguments = parser.parse_args()
    server = Server(load_tensors=lambda problem, inputs: inputs["tensors"])
    for shape in arguments.shapes.split(","):
        problem, tensors, expected = case(SHAPES[shape], arguments)
        for name in arguments.refs.split(","):
            try:
                line = attempt(server, name, problem, tensors, expected)
            except Refusal as refusal:
                line = f"{refusal.kind}: {refusal}"
            except Exception as error:
                line = f"FAILED {type(error).__name__}: {str(error)[:300]}"
            print(f"{shape:8} {name:20} {line}", flush=True)


def case(shape, arguments):
    """A problem as JSON, tensors, and O in f32."""
    import torch

    from device import DEVICE, Tensors
    from torch_sdpa import visible

    b, sq, sk, hq, hkv, d, causal = shape
    window = arguments.window or (None, None)
    mask = {"causal": causal and not arguments.window, "window_left": window[0], "window_right": window[1]}
    fields = {
        "batch": b, "seqlen_q": sq, "seqlen_k": sk, "num_heads_q": hq, "num_heads_kv": hkv, "head_dim_qk": d,
        "head_dim_v": d, "mask": mask, "sink": arguments.sink, "softcap": arguments.softcap, "scale": None,
        "q_dtype": "bf16", "kv_dtype": "bf16",
    }  # fmt: skip
    problem = Problem.from_json(fields)
    torch.manual_seed(1)
    shapes = {"q": (b, sq, hq, d), "k": (b, sk, hkv, d), "v": (b, sk, hkv, d)}
    made = [torch.randn(shape, device=DEVICE).bfloat16() for shape in shapes.values()]
    inputs = {"id": "smoke", "buffers": [], "sinks": torch.randn(hq).add(2).tolist() if arguments.sink else None}
    for index, (name, shape) in enumerate(shapes.items()):
        strides = (shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1)
        inputs[name] = {"buffer": index, "dtype": "bf16", "offset_bytes": 0, "shape": shape, "strides": strides}
    tensors = Tensors(problem, inputs, [x.view(torch.uint8).flatten() for x in made])
    q, k, v = (x.float().transpose(1, 2) for x in made)
    k, v = (x.repeat_interleave(hq // hkv, dim=1) for x in (k, v))
    s = q @ k.transpose(2, 3) * problem.scale
    if problem.softcap:
        s = problem.softcap * torch.tanh(s / problem.softcap)
    s = s.masked_fill(~visible(problem, DEVICE), float("-inf"))
    if arguments.sink:
        sink = tensors.sinks.view(1, -1, 1, 1).expand(b, hq, sq, 1)
        p = torch.softmax(torch.cat([s, sink], dim=3), dim=3)[..., :-1]
    else:
        p = torch.softmax(s, dim=3)
    return fields, tensors, (p @ v).transpose(1, 2)


def attempt(server, name, fields, tensors, expected):
    import torch

    found = server.versions(name)["versions"]
    server.supports(name, fields)
    server.prepare(name, name, fields, {"id": f"{id(tensors)}", "tensors": tensors})
    try:
        with tempfile.TemporaryDirectory() as folder:
            o, lse = os.path.join(folder, "o"), os.path.join(folder, "lse")
            base = server.output(name, o, lse)["lse_base"]
            count = expected.numel()
            written = torch.from_file(o, shared=False, size=2 * count, dtype=torch.uint8).view(torch.bfloat16)
            error = (written.view(expected.shape).float() - expected.cpu().float()).abs().max().item()
        route = server.route(name)
        times = []
        for mode in ("event", "graph"):
            try:
                us = sorted(server.time(name, 20, 5, mode, 2)["us"])
                times.append(f"{mode} {us[10]:.1f} µs")
            except Exception as failure:
                times.append(f"{mode} failed: {str(failure)[:100]}")
    finally:
        server.release(name)
    kernels = " + ".join(kernel[:70] for kernel in route["kernels"]) or route["note"]
    versions = " ".join(f"{key} {value}" for key, value in found.items())
    return (
        f"off by {error:.4f} lse {base} | {', '.join(times)} | proven {route['proven']} {kernels} | "
        f"{route['called']} | {versions}"
    )


if __name__ == "__main__":
    main()
