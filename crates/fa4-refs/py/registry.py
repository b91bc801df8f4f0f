"""Which file serves which reference. The same list as fa4-refs/src/catalog.rs."""

import importlib

ADAPTERS = {
    "torch-cudnn": "torch_sdpa",
    "torch-flash": "torch_sdpa",
    "torch-efficient": "torch_sdpa",
    "torch-math": "torch_sdpa",
    "torch-flex": "torch_flex",
    "fa3": "fa3",
    "fa4": "fa4",
    "cudnn-fe": "cudnn_fe",
    "flashinfer-trtllm": "flashinfer_refs",
    "flashinfer-cutlass": "flashinfer_refs",
    "flashinfer-cute-dsl": "flashinfer_refs",
    "flashinfer-fa2": "flashinfer_refs",
    "flashinfer-fa3": "flashinfer_refs",
    "triton": "triton_fwd",
}


def load(reference):
    """The adapter's object. Every module has `adapter(name)`; importing it must not need its library."""
    return importlib.import_module(ADAPTERS[reference]).adapter(reference)
