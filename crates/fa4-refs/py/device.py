"""Tensors on the GPU, and what every reference does alike: run, write outputs, time, say which kernels ran."""

import contextlib
import ctypes
import gc
import itertools
import re
import time

import torch

from problem import Unavailable

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
DEVICE = "cuda"


def need_gpu():
    """Capability of the GPU, as (major, minor)."""
    if not torch.cuda.is_available():
        raise Unavailable("torch finds no GPU")
    return torch.cuda.get_device_capability()


def versions(**more):
    """Of what all adapters stand on, and of `more`."""
    found = {"torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    found.update({name.replace("_", "-"): str(version) for name, version in more.items()})
    return found


def package(name):
    """Version of an installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


class Tensors:
    """q, k, v as (batch, seqlen, head, dim) views with the caller's strides; sinks, or None."""

    def __init__(self, problem, inputs, buffers=None):
        self.problem, self.inputs = problem, inputs
        self.buffers = buffers or [self.read(file) for file in inputs["buffers"]]
        self.q, self.k, self.v = (self.view(inputs[name]) for name in "qkv")
        sinks = inputs["sinks"]
        self.sinks = None if sinks is None else torch.tensor(sinks, dtype=torch.float32, device=DEVICE)
        self.copies = [self]

    @staticmethod
    def read(file):
        if file["bytes"] == 0:
            return torch.empty(0, dtype=torch.uint8, device=DEVICE)
        on_host = torch.from_file(file["path"], shared=False, size=file["bytes"], dtype=torch.uint8)
        return on_host.to(DEVICE)

    def view(self, view):
        elements = self.buffers[view["buffer"]].view(DTYPES[view["dtype"]])
        return elements.as_strided(view["shape"], view["strides"], view["offset_bytes"] // elements.element_size())

    def rotated(self, count):
        """`count` copies at different addresses, this one the first; kept for the other references of the case."""
        while len(self.copies) < count:
            clones = [buffer.clone() for buffer in self.buffers]
            self.copies.append(Tensors(self.problem, self.inputs, clones))
        return self.copies[:count]


class Job:
    """A reference made ready for a problem.

    `bind(tensors)` gives a function without arguments that launches the kernel and returns O as (batch, seqlen_q, head,
    dim) and the LSE as (batch, head, seqlen_q) or None. `called` says what it calls; `kernels` is a pattern that one of the
    launched kernels' names must match, or None where no name is known; `never` one that none may match. `context` makes
    what must surround calls: entered once around many of them, it costs none of them anything.
    """

    def __init__(
        self, tensors, bind, *, called, lse_base=None, kernels=None, never=None, notes=(), context=contextlib.nullcontext
    ):
        self.problem, self.tensors, self.bind, self.context = tensors.problem, tensors, bind, context
        self.called, self.lse_base, self.notes = called, lse_base, list(notes)
        self.kernels, self.never = kernels, never
        self.runs, self.graphs = [], []
        # Compiles what compiles at the first call, and finds out whether there is a kernel at all.
        with self.context():
            self.run(0)()
        torch.cuda.synchronize()

    def run(self, index):
        while len(self.runs) <= index:
            self.runs.append(self.bind(self.tensors.rotated(len(self.runs) + 1)[-1]))
        return self.runs[index]

    def graph(self, index):
        while len(self.graphs) <= index:
            run = self.run(len(self.graphs))
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results = run()
            # The graph writes into its results: they are kept with it.
            self.graphs.append((graph, results))
        return self.graphs[index][0].replay

    def write_output(self, o_path, lse_path, rows=None):
        """O, or (batch, token, head) `rows` of it, and the LSE to files. Gives the base of the LSE, and where only rows were
        asked for, the index of the first element of all of O that is not finite."""
        poison(self.problem, self.tensors.q.dtype)
        with self.context():
            o, lse = self.run(0)()
        torch.cuda.synchronize()
        if tuple(o.shape) != self.problem.o_shape:
            raise RuntimeError(f"O has shape {tuple(o.shape)}, not {self.problem.o_shape}")
        o, not_finite = o.to(self.tensors.q.dtype), None
        if rows is not None:
            not_finite = first_not_finite(o)
            batch, token, head = torch.tensor(rows, device=DEVICE).unbind(1)
            o = o[batch, token, head]
        write(o_path, o.contiguous().view(torch.int16))
        if lse is None:
            return None, not_finite
        if tuple(lse.shape) != self.problem.lse_shape:
            raise RuntimeError(f"the LSE has shape {tuple(lse.shape)}, not {self.problem.lse_shape}")
        write(lse_path, lse.float().contiguous())
        return self.lse_base, not_finite

    def route(self):
        with self.context():
            names, note = launched(self.run(0))
        proven = None
        if names and (self.kernels or self.never):
            proven = not self.kernels or any(re.search(self.kernels, name) for name in names)
            proven = proven and not (self.never and any(re.search(self.never, name) for name in names))
        elif names:
            note = "no name is known that would prove it"
        return {"called": self.called, "kernels": names, "proven": proven, "note": note}

    def time(self, iterations, warmup, mode, buffers, group):
        with self.context():
            return self.timed(iterations, warmup, mode, buffers, group)

    def timed(self, iterations, warmup, mode, buffers, group):
        """As fa4-bench times its own kernels: warm-up launches and right behind them, without waiting, an event, `group`
        launches, an event, and so on."""
        make = {"event": self.run, "graph": self.graph}[mode]
        runs = [make(index) for index in range(max(1, buffers))]
        sizes = [min(group, iterations - first) for first in range(0, iterations, group)]
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(sizes) + 1)]
        turn = itertools.cycle(runs)
        torch.cuda.synchronize()
        gc.disable()
        try:
            for _ in range(warmup):
                next(turn)()
            marks[0].record()
            started = time.perf_counter()
            for size, mark in zip(sizes, marks[1:]):
                for _ in range(size):
                    next(turn)()
                mark.record()
            host_us = (time.perf_counter() - started) * 1e6 / max(1, iterations)
            torch.cuda.synchronize()
        finally:
            gc.enable()
        us = [1000.0 * a.elapsed_time(b) / size for a, b, size in zip(marks, marks[1:], sizes)]
        return {"us": us, "host_us": host_us, "buffers": len(runs)}


def first_not_finite(x):
    """Dense index of the first element that is NaN or infinite; None where all are finite."""
    finite = torch.isfinite(x)
    return None if finite.all() else int(torch.logical_not(finite).flatten().byte().argmax())


def poison(problem, dtype):
    """Leaves NaN where the allocator will most likely put the outputs, so that what a kernel does not write shows."""
    for shape, kind in ((problem.o_shape, dtype), (problem.lse_shape, torch.float32)):
        torch.full(shape, float("nan"), dtype=kind, device=DEVICE)
    torch.cuda.synchronize()


def write(path, tensor):
    on_host = tensor.cpu()
    with open(path, "wb") as file:
        # Without numpy, which torch does not need.
        file.write(ctypes.string_at(on_host.data_ptr(), on_host.numel() * on_host.element_size()))


# What the profiler lists beside kernels.
NO_KERNELS = ("Memset", "Memcpy", "Activity Buffer", "Context Sync", "Event Sync", "Stream Sync", "Stream Wait")
# Profiles that have been taken. The first of a process may miss the beginning.
profiles = 0


def launched(run):
    """Names of the kernels of one run in the order of their start, and a note where the profiler could not look."""
    global profiles
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    try:
        names = []
        for _ in range(1 if profiles else 2):
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                run()
                torch.cuda.synchronize()
            profiles += 1
            events = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
            events.sort(key=lambda event: event.time_range.start)
            names = [event.name for event in events if not event.name.startswith(NO_KERNELS)]
        return names, "" if names else "the profiler saw no kernel"
    except Exception as error:
        return [], f"the profiler does not work here: {error}"
