"""Compile FlashAttention-4 kernels without a GPU, and record how its own host code would launch them.

    capture.py CASES.json FOLDER

writes FOLDER/CASE.json for each case: the grid, block, cluster, shared memory and the bytes of every parameter, and for
each tensor the address that those bytes hold (to be replaced by real ones). The kernels stand beside them as N.ptx and
N.cubin, since several cases may share one, and versions.json says what made them. `cargo xtask foreign fa4` calls this in
a virtual environment with the versions of requirements.txt. CASES.json:

    {"arch": "sm_100a", "sm_count": 148, "cases": [
        {"name": "causal_s256", "dtype": "bf16", "batch": 1, "seqlen_q": 256, "seqlen_k": 256, "heads_q": 1, "heads_kv": 1,
         "head_dim_qk": 128, "head_dim_v": 128, "options": {"causal": true}}]}

`options` go to FlashAttention's internal forward as they are.

How it works. Under torch's FakeTensorMode tensors have shapes but no memory, and FlashAttention compiles for the device
that its environment variables name. What it would call is then exported as an object file and linked with shim.c, which
stands in for the CUDA runtime and writes down the launch in place of making it. The host function gets tensors at
made-up addresses; it reads no tensor's contents.
"""

import ctypes
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Where the pretended tensors lie: far apart, recognisable in a parameter, and nowhere near real memory.
FIRST_ADDRESS, ADDRESS_STEP = 0x5A00_0000_0000, 0x10_0000_0000
# What FlashAttention's internal forward passes first, whatever follows.
TENSORS = ["q", "k", "v", "o", "lse"]
# What decides the code that comes out.
PACKAGES = ["flash-attn-4", "nvidia-cutlass-dsl", "quack-kernels", "apache-tvm-ffi", "torch"]


def prepare_environment(device, dump):
    """Settings that the packages read when they are imported."""
    os.environ.update(
        CUTE_DSL_ARCH=device["arch"],
        FLASH_ATTENTION_ARCH=device["arch"].rstrip("a"),
        FLASH_ATTENTION_NUM_SMS=str(device["sm_count"]),
        CUTE_DSL_KEEP="ptx,cubin",
        CUTE_DSL_DUMP_DIR=str(dump),
    )


class Hardware:
    """Stands in for `cutlass.utils.HardwareInfo`, which asks a driver."""

    device = {}

    def __init__(self, device_id=0):
        pass

    def get_device_multiprocessor_count(self):
        return self.device["sm_count"]

    def get_max_active_clusters(self, cluster_size, *_, **__):
        return self.device["sm_count"] // cluster_size

    def get_l2_cache_size_in_bytes(self):
        return 128 << 20

    def get_arch(self):
        return self.device["arch"]


class Recorder(dict):
    """Takes the place of FlashAttention's cache of compiled functions: hands out functions that keep their arguments."""

    def __getitem__(self, key):
        return lambda *args: self.__dict__.update(function=dict.__getitem__(self, key), args=args)


def flash_attention(device):
    """FlashAttention's interface, convinced that `device` is there, and the recorder of its calls."""
    import cutlass

    Hardware.device = device
    cutlass.utils.HardwareInfo = Hardware
    import flash_attn.cute.interface as interface

    # Otherwise it compiles and stops short of the call.
    interface.is_fake_mode = lambda: False
    recorder = Recorder()
    interface._flash_attn_fwd.compile_cache = recorder
    return interface, recorder


def compile_case(case, interface, recorder):
    """The compiled function and the arguments that FlashAttention would call it with."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[case["dtype"]]
    with FakeTensorMode():

        def tensor(seqlen, heads, head_dim):
            shape = [case[name] for name in ("batch", seqlen, heads, head_dim)]
            return torch.empty(shape, dtype=dtype, device="cuda")

        interface._flash_attn_fwd(
            tensor("seqlen_q", "heads_q", "head_dim_qk"),
            tensor("seqlen_k", "heads_kv", "head_dim_qk"),
            tensor("seqlen_k", "heads_kv", "head_dim_v"),
            return_lse=True,
            **case["options"],
        )
    return recorder.function, recorder.args


class DLTensor(ctypes.Structure):
    """The C structure of DLPack."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    """The C structure of DLPack with an owner."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class PretendedTensor:
    """A torch tensor without memory, shown to the host function as CUDA memory at `address`."""

    kDLCUDA = 2

    def __init__(self, tensor, address):
        import torch

        # DLPack's kDLInt, kDLFloat, kDLBfloat.
        code = 4 if tensor.dtype == torch.bfloat16 else 2 if tensor.dtype.is_floating_point else 0
        self.shape = (ctypes.c_int64 * tensor.ndim)(*tensor.shape)
        self.strides = (ctypes.c_int64 * tensor.ndim)(*tensor.stride())
        inner = DLTensor(
            address, self.kDLCUDA, 0, tensor.ndim, code, tensor.element_size() * 8, 1, self.shape, self.strides, 0
        )
        self.managed = DLManagedTensor(inner, None, None)

    def __dlpack_device__(self):
        return self.kDLCUDA, 0

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def pretend(args):
    """The arguments with every tensor placed, and (name, address, bytes, shape, strides, dtype) of each."""
    import torch
    import tvm_ffi

    places, keep = [], []

    def place(value):
        if isinstance(value, torch.Tensor):
            n = len(places)
            address = FIRST_ADDRESS + n * ADDRESS_STEP
            keep.append(PretendedTensor(value, address))
            places.append(
                {
                    "name": TENSORS[n] if n < len(TENSORS) else f"argument_{n}",
                    "address": address,
                    "shape": list(value.shape),
                    "strides": list(value.stride()),
                    "dtype": str(value.dtype).removeprefix("torch."),
                }
            )
            return tvm_ffi.from_dlpack(keep[-1])
        if isinstance(value, tuple):
            return tuple(place(item) for item in value)
        return value

    return [place(value) for value in args], places, keep


def parameter_bytes(ptx, entry):
    """Size of each parameter of `entry`."""
    declaration = re.search(r"\.entry\s+" + re.escape(entry) + r"\s*\((.*?)\)", ptx, re.S).group(1)
    sizes = []
    for parameter in declaration.split(","):
        array = re.search(r"\.b8\s+\S+\[(\d+)\]", parameter)
        scalar = re.search(r"\.[bfsu](8|16|32|64)\s", parameter)
        sizes.append(int(array.group(1)) if array else int(scalar.group(1)) // 8)
    return sizes


class Kernel:
    """A compiled function: its PTX and cubin in the folder as `number`, and its host code linked with the shim."""

    def __init__(self, function, number, dump, folder):
        import tvm_ffi

        (ptx,), (cubin,) = dump.rglob("*.ptx"), dump.rglob("*.cubin")
        text = ptx.read_text().rstrip("\0")
        self.ptx = f"{number}.ptx"
        (folder / self.ptx).write_text(text)
        cubin.replace(folder / f"{number}.cubin")
        ptx.unlink()
        entry = re.search(r"\.entry\s+([\w$]+)", text).group(1)
        self.parameter_bytes = ",".join(map(str, parameter_bytes(text, entry)))
        library, host = dump / f"{number}.so", dump / f"{number}.o"
        function.export_to_c(object_file_path=str(host), function_name="launch")
        ffi = Path(tvm_ffi.__file__).parent / "lib"
        # -Bsymbolic: the packages have loaded the real runtime's symbols by now; the shim's must win.
        subprocess.run(
            ["cc", "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-o", library, host, HERE / "shim.c"]
            + [f"-L{ffi}", "-ltvm_ffi", f"-Wl,-rpath,{ffi}"],
            check=True,
        )
        self.launch = tvm_ffi.load_module(str(library)).launch

    def record(self, args, log):
        """Calls the host function; what the shim wrote, and where the tensors were."""
        log.unlink(missing_ok=True)
        os.environ["SHIM_LOG"] = str(log)
        os.environ["SHIM_PARAM_BYTES"] = self.parameter_bytes
        placed, places, _keep = pretend(args)
        self.launch(*placed)
        launches = [json.loads(line) for line in log.read_text().splitlines()]
        if len(launches) != 1:
            raise SystemExit(f"expected one launch, the host function made {len(launches)}")
        return {"ptx": self.ptx, **launches[0], "tensors": places}


def main():
    device, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]).resolve()
    dump = folder / "dump"
    dump.mkdir(parents=True, exist_ok=True)
    prepare_environment(device, dump)
    interface, recorder = flash_attention(device)
    kernels = {}
    for case in device["cases"]:
        print(case["name"], flush=True)
        function, args = compile_case(case, interface, recorder)
        if id(function) not in kernels:
            kernels[id(function)] = Kernel(function, len(kernels), dump, folder)
        launch = kernels[id(function)].record(args, dump / "shim.log")
        (folder / f"{case['name']}.json").write_text(json.dumps(launch, indent=1) + "\n")
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
