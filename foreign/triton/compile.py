"""Compiles kernels.py and gluon_kernels.py to PTX. Needs `pip install triton==3.9.0`; needs neither a GPU nor torch.

    python3 compile.py OUTDIR [--arch 100|90] [--only REGEX]

Writes OUTDIR/NAME.ptx exactly as Triton emitted it, and OUTDIR/NAME.json with what a launcher has to know.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile

TRITON = "3.9.0"
HERE = pathlib.Path(__file__).resolve().parent
# Arguments that the launcher promises to be divisible by 16, as Triton's own specialisation would find them.
# M is not among them: ragged row counts must be legal. N and K are row strides, which TMA wants 16-byte aligned.
DIVISIBLE = {"N", "K", "S"}


def desc(rows, cols, dtype="bf16"):
    """Signature of a host tensor descriptor whose block is rows x cols."""
    return f"tensordesc<{dtype}[{rows},{cols}]>"


def shared_desc(rows, cols):
    """Signature of a host tensor descriptor of bf16 for Gluon, its rows shared out between the two CTAs of a pair."""
    from triton.experimental.gluon.language import NVMMASharedLayout

    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, cga_layout=[[1, 0]])
    return f"tensordesc<bf16[{rows},{cols}],{layout!r}>"


def cases(kernels, gluon_kernels, arch):
    """Yields (name, function, signature, constexprs, options)."""
    blackwell = arch == 100
    warps = 4 if blackwell else 8
    sizes = dict(M="i32", N="i32", K="i32")
    tile = dict(BM=128, BN=128, BK=64)
    maps = dict(a_desc=desc(128, 64), b_desc=desc(128, 64), c_desc=desc(128, 128))
    pointers = dict(a_ptr="*bf16", b_ptr="*bf16", c_ptr="*bf16")
    pipelined = dict(num_warps=warps, num_stages=3)

    # Triton specialises warps on Blackwell only.
    for ws in (False, True) if blackwell else (False,):
        w = "_ws" if ws else ""
        yield f"matmul_tma{w}", kernels.matmul_tma, maps | sizes, tile | dict(WS=ws), pipelined
        yield (
            f"matmul_device_maps{w}", kernels.matmul_device_maps, pointers | sizes, tile | dict(WS=ws),
            pipelined,
        )
        yield (
            f"matmul_persistent{w}", kernels.matmul_persistent, maps | sizes,
            dict(PROGRAMS=4, WS=ws, FLAT=blackwell) | tile, pipelined,
        )
        for d in (64, 128):
            for causal in (False, True):
                q, kv = desc(128, d), desc(64, d)
                yield (
                    f"attn_fwd_d{d}{'_causal' if causal else ''}{w}", kernels.attn_fwd,
                    dict(sm_scale="fp32", lse_ptr="*fp32", q_desc=q, k_desc=kv, v_desc=kv, o_desc=q, S="i32"),
                    dict(D=d, BM=128, BN=64, CAUSAL=causal, WS=ws),
                    dict(num_warps=warps, num_stages=3 if d == 64 else 2),
                )
    yield "matmul_pointers", kernels.matmul_pointers, pointers | sizes, tile, pipelined
    yield (
        "matmul_fp8", kernels.matmul_tma,
        dict(a_desc=desc(128, 128, "fp8e4nv"), b_desc=desc(128, 128, "fp8e4nv"), c_desc=desc(128, 128, "fp16")) | sizes,
        dict(BM=128, BN=128, BK=128, WS=False), pipelined,
    )
    yield (
        "matmul_tf32", kernels.matmul_tf32,
        dict(a_desc=desc(128, 32, "fp32"), b_desc=desc(128, 32, "fp32"), c_desc=desc(128, 128, "fp32")) | sizes,
        dict(BM=128, BN=128, BK=32), dict(num_warps=warps, num_stages=2),
    )
    yield (
        "softmax_rows", kernels.softmax_rows, dict(x_ptr="*fp32", y_ptr="*fp32", stride="i32", n="i32"),
        dict(B=1024), dict(num_warps=4),
    )
    yield (
        "matmul_two_ctas", kernels.matmul_tma,
        dict(a_desc=desc(256, 64), b_desc=desc(128, 64), c_desc=desc(256, 128)) | sizes,
        dict(BM=256, BN=128, BK=64, WS=False), pipelined | dict(num_ctas=2),
    )
    if blackwell:
        for name, rows in ("matmul_pair", 256), ("matmul_pair_m128", 128):
            yield (
                name, gluon_kernels.matmul_pair,
                dict(a_desc=shared_desc(rows, 64), b_desc=shared_desc(128, 64), c_desc=shared_desc(rows, 128)) | sizes,
                dict(BM=rows, BN=128, BK=64), dict(num_warps=4, num_ctas=2),
            )
        yield (
            "matmul_clc", kernels.matmul_persistent, maps | sizes,
            dict(PROGRAMS=4, WS=False, FLAT=False) | tile, pipelined | dict(clc=True),
        )
        yield (
            "matmul_mxfp8", kernels.matmul_mxfp8,
            dict(
                a_desc=desc(128, 128, "fp8e4nv"), b_desc=desc(128, 128, "fp8e4nv"),
                a_scale_ptr="*u8", b_scale_ptr="*u8", c_ptr="*fp32",
            ) | sizes,
            dict(BM=128, BN=128, BK=128), dict(num_warps=4, num_stages=2),
        )
        yield (
            "gather_add", kernels.gather_add,
            dict(
                x_desc=desc(32, 64, "fp32"), table_desc=desc(1, 64, "fp32"), y_desc=desc(32, 64, "fp32"),
                index_ptr="*i32",
            ),
            dict(BM=32, BN=64), dict(num_warps=4),
        )


def plain(ty):
    """A type without Gluon's layout."""
    return re.sub(r"\],.*>$", "]>", ty)


def compile_one(triton, arch, out, name, fn, signature, constants, options):
    """Compiles one kernel and writes its two files."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    full = signature | {k: "constexpr" for k in constants}
    full = {a: full[a] for a in fn.arg_names}
    position = {a: i for i, a in enumerate(fn.arg_names)}
    divisible = [a for a in full if full[a].startswith("*") or a in DIVISIBLE]
    gluon = isinstance(fn, GluonJITFunction)
    source = (GluonASTSource if gluon else ASTSource)(
        fn=fn, signature=full, constexprs={(position[k],): v for k, v in constants.items()},
        attrs={(position[a],): [["tt.divisibility", 16]] for a in divisible},
    )
    text = HERE / ("gluon_kernels.py" if gluon else "kernels.py")
    options = options | dict(enable_fp_fusion=True)
    kernel = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    ptx, meta = kernel.asm["ptx"], kernel.metadata._asdict()
    # Nothing is stripped: TRITON_DISABLE_LINE_INFO asks for PTX without line tables, which would name local paths.
    (out / f"{name}.ptx").write_text(ptx)
    described = {
        "name": name,
        "entry": meta["name"],
        "target": f"sm_{arch}a",
        "triton": triton.__version__,
        "source_sha256": hashlib.sha256(text.read_bytes()).hexdigest(),
        "ptx_sha256": hashlib.sha256(ptx.encode()).hexdigest(),
        "num_warps": meta["num_warps"],
        "num_ctas": meta["num_ctas"],
        "shared": meta["shared"],
        "tmem_columns": meta.get("tmem_size") or 0,
        "global_scratch_size": meta["global_scratch_size"],
        "global_scratch_align": meta["global_scratch_align"],
        "profile_scratch_size": meta["profile_scratch_size"],
        "profile_scratch_align": meta["profile_scratch_align"],
        # Constexprs vanish from the parameter list.
        "signature": [[a, plain(t)] for a, t in full.items() if t != "constexpr"],
        "divisible_by_16": divisible,
        "constexprs": constants,
        # One entry per `tensordesc` of the signature, in order.
        "tensor_maps": meta.get("tensordesc_meta") or [],
    }
    (out / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")
    return len(ptx), described


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("out", type=pathlib.Path)
    args.add_argument("--arch", type=int, choices=(100, 90), default=100)
    args.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX")
    args = args.parse_args()

    # A cache of its own, or Triton would hand back metadata of an earlier version.
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"TRITON_CACHE_DIR": cache, "TRITON_DISABLE_LINE_INFO": "1"}
        try:
            import triton
        except ImportError:
            sys.exit(f"no triton here: python3 -m venv DIR && DIR/bin/pip install triton=={TRITON}")
        if triton.__version__ != TRITON:
            sys.exit(f"triton {triton.__version__} found; the recorded kernels are of {TRITON}")
        import gluon_kernels
        import kernels

        args.out.mkdir(parents=True, exist_ok=True)
        for name, fn, signature, constants, options in cases(kernels, gluon_kernels, args.arch):
            if not args.only.search(name):
                continue
            size, meta = compile_one(triton, args.arch, args.out, name, fn, signature, constants, options)
            print(
                f"{name:28} {size:7} B  {meta['num_warps']:2} warps  {meta['shared']:6} B shared  "
                f"{meta['tmem_columns']:3} TMEM columns  {meta['global_scratch_size']} B scratch"
            )


if __name__ == "__main__":
    main()
