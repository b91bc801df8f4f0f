#!/usr/bin/env python3
"""Runs the probes of manifest.json on a GPU through the CUDA driver and writes probes_sm90.jsonl.

    ptxas -arch=sm_90a NAME.ptx -o DIR/NAME.cubin      for each *.ptx
    record.py DIR OUTPUT.jsonl

Needs Python 3.9 and the driver, nothing else. Each probe runs in a worker process that is replaced when a probe
faults or does not end: the record then holds "error" instead of "out". README_probes.md says what a record holds.
"""
import base64
import ctypes as C
import datetime
import json
import pathlib
import queue
import struct
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 20  # seconds that a probe may take; the first one pays for the context
MASK = (1 << 64) - 1

SPECIAL = {
    "f16": [0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfd01, 0x3c00, 0xbc00, 0x3555, 0x0200],
    "bf16": [0, 0x8000, 1, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffa1, 0x3f80, 0xbf80, 0x3eab, 0x0040],
    "f32": [0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
            0xffa00001, 0x3f800000, 0xbf800000, 0x80400000, 0x00400000],
    # High words of f64 numbers; any word also serves as a low word.
    "f64": [0, 0, 0, 0, 0x80000000, 0x80000000, 1, 0x000fffff, 0x00100000, 0x7fefffff, 0xffefffff, 0x7ff00000, 0xfff00000, 0x7ff80000,
            0x3ff00000, 0xbff00000],
}

# Mantissa bits, bias, exponents used (less one), sign bit.
LAYOUT = dict(f16=(10, 15, 7, 1 << 15), bf16=(7, 127, 7, 1 << 15), f32=(23, 127, 15, 1 << 31), f64=(20, 1023, 15, 1 << 31))


def splitmix(seed, i):
    """Element i of the splitmix64 stream of a seed."""
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def number(fill, raw, s):
    """A number of a format: a quarter special, a quarter any bits, half of them near 1."""
    if s & 3 == 0:
        return SPECIAL[fill][s >> 2 & 15]
    if s & 3 == 1:
        return raw
    mantissa, bias, spread, sign = LAYOUT[fill]
    return raw & (sign | (1 << mantissa) - 1) | (bias - 4 + (s >> 2 & spread)) << mantissa


def inputs(fill, seed, count):
    """The input words of a probe."""
    words = []
    for i in range(count):
        z = splitmix(seed, i)
        if fill == "bits":
            words.append(z & 0xffffffff)
        elif fill in ("f32", "f64"):
            words.append(number(fill, z & 0xffffffff, z >> 32))
        else:
            lo = number(fill, z & 0xffff, z >> 32 & 0xffff)
            hi = number(fill, z >> 16 & 0xffff, z >> 48)
            words.append(lo | hi << 16)
    return words


class Driver:
    """The few calls of the CUDA driver that a probe needs."""

    def __init__(self):
        self.lib = C.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = C.c_int(), C.c_void_p()
        self.call("cuDeviceGet", C.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", C.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            text = C.c_char_p()
            self.lib.cuGetErrorName(code, C.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()}")

    def alloc(self, words):
        p = C.c_uint64()
        self.call("cuMemAlloc_v2", C.byref(p), C.c_size_t(4 * words))
        return p

    def tensor_map(self, m, base):
        """A 128-byte tensor map, 64-byte aligned."""
        buf = C.create_string_buffer(192)
        at = C.addressof(buf) + -C.addressof(buf) % 64
        n = len(m["dims"])
        self.call("cuTensorMapEncodeTiled", C.c_void_p(at), C.c_int(m["type"]), C.c_uint32(n), C.c_void_p(base.value),
                  (C.c_uint64 * n)(*m["dims"]), (C.c_uint64 * (n - 1))(*m["strides"]), (C.c_uint32 * n)(*m["box"]),
                  (C.c_uint32 * n)(*[1] * n), C.c_int(0), C.c_int(0), C.c_int(0), C.c_int(0))
        return buf, at

    def run(self, cubins, probe):
        """The output words of a probe, as bytes. Memory that the kernel does not write stays 0xa5."""
        image = (cubins / probe["file"]).with_suffix(".cubin").read_bytes()
        module, function = C.c_void_p(), C.c_void_p()
        self.call("cuModuleLoadData", C.byref(module), image)
        self.call("cuModuleGetFunction", C.byref(function), module, probe["probe"].encode())
        words = inputs(probe["fill"], probe["seed"], probe["in_words"])
        data = struct.pack(f"<{len(words)}I", *words)
        pin, pout = self.alloc(len(words)), self.alloc(probe["out_words"])
        self.call("cuMemcpyHtoD_v2", pin, data, C.c_size_t(len(data)))
        self.call("cuMemsetD8_v2", pout, C.c_ubyte(0xa5), C.c_size_t(4 * probe["out_words"]))
        args = [C.addressof(pin), C.addressof(pout)]
        if "map" in probe:
            hold, at = self.tensor_map(probe["map"], pin if probe["map"]["over"] == "in" else pout)
            args.append(at)
        self.call("cuLaunchKernel", function, *[C.c_uint(n) for n in (probe["grid"], 1, 1, probe["block"], 1, 1, 0)],
                  C.c_void_p(0), (C.c_void_p * len(args))(*args), C.c_void_p(0))
        self.call("cuCtxSynchronize")
        out = C.create_string_buffer(4 * probe["out_words"])
        self.call("cuMemcpyDtoH_v2", out, pout, C.c_size_t(len(out)))
        return out.raw


def worker(cubins, names):
    """Prints one record a line; ends at the first probe that faults, as the context is lost with it."""
    driver = Driver()
    for probe in json.loads((HERE / "manifest.json").read_text()):
        if probe["probe"] not in names:
            continue
        try:
            out = driver.run(cubins, probe)
            probe["out"] = base64.b64encode(out).decode()
        except RuntimeError as e:
            probe["error"] = str(e)
        print(json.dumps(probe), flush=True)
        if "error" in probe:
            return


def gpu_and_driver():
    """Names of the GPU and of the installed driver, as nvidia-smi gives them."""
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
        return text.stdout.strip().splitlines()[0].split(", ")
    except (OSError, IndexError):
        return ["?", "?"]


def feed(child, answers):
    """Passes on a worker's lines, and an empty one when it ends."""
    for line in child.stdout:
        answers.put(line)
    answers.put(b"")


def main(cubins, output):
    probes = json.loads((HERE / "manifest.json").read_text())
    gpu, driver = gpu_and_driver()
    meta = dict(target="sm_90a", gpu=gpu, driver=driver, date=datetime.date.today().isoformat(),
                inputs="record.py inputs(fill, seed, in_words)", out="base64 of little-endian words; 0xa5 bytes were not written")
    lines = [json.dumps(dict(meta=meta))]
    left = [p["probe"] for p in probes]
    by_name = {p["probe"]: p for p in probes}
    while left:
        child = subprocess.Popen([sys.executable, __file__, "--worker", cubins, *left], stdout=subprocess.PIPE)
        answers = queue.Queue()
        threading.Thread(target=feed, args=(child, answers), daemon=True).start()
        while left:
            try:
                line = answers.get(timeout=PATIENCE)
            except queue.Empty:
                line = None
            if not line:
                record = dict(by_name[left[0]], error="does not end" if line is None else "the worker died")
            else:
                record = json.loads(line)
            left.pop(0)
            lines.append(json.dumps(record))
            pathlib.Path(output).write_text("\n".join(lines) + "\n")
            if "error" in record:
                print(record["probe"], record["error"], flush=True)
                break
        child.kill()
        child.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(pathlib.Path(sys.argv[2]), set(sys.argv[3:]))
    elif len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        sys.exit(__doc__)
