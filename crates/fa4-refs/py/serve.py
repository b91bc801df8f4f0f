"""Serves references to fa4-refs: one JSON object a line on standard input and output; see docs/references.md.

Standard library only until a reference is asked for. By hand, `python3 smoke.py --help` is easier.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback

import registry
from problem import Problem, Refusal

PROTOCOL = 2


class Server:
    """Answers requests. `load` makes an adapter; `load_tensors` puts a request's inputs on the device."""

    def __init__(self, load=registry.load, references=tuple(registry.ADAPTERS), load_tensors=None):
        self.load, self.references, self.load_tensors = load, references, load_tensors
        self.adapters, self.jobs, self.tensors = {}, {}, {}

    def adapter(self, reference):
        if reference not in self.adapters:
            self.adapters[reference] = self.load(reference)
        return self.adapters[reference]

    def hello(self):
        return {"protocol": PROTOCOL, "references": list(self.references)}

    def versions(self, reference):
        return {"versions": self.adapter(reference).versions()}

    def supports(self, reference, problem):
        adapter = self.adapter(reference)
        adapter.versions()
        adapter.supports(Problem.from_json(problem))
        return {}

    def prepare(self, reference, handle, problem, inputs):
        adapter, problem = self.adapter(reference), Problem.from_json(problem)
        adapter.versions()
        adapter.supports(problem)
        loaded = self.loaded(problem, inputs)
        try:
            job = adapter.prepare(problem, loaded)
        except BaseException:
            self.drop_unused()
            raise
        self.jobs[handle] = (inputs["id"], job)
        return {"notes": job.notes}

    def loaded(self, problem, inputs):
        """References of one case share its tensors."""
        if inputs["id"] not in self.tensors:
            self.drop_unused()
            make = self.load_tensors
            if make is None:
                from device import Tensors as make
            self.tensors[inputs["id"]] = make(problem, inputs)
        return self.tensors[inputs["id"]]

    def drop_unused(self):
        used = {inputs_id for inputs_id, _ in self.jobs.values()}
        self.tensors = {key: value for key, value in self.tensors.items() if key in used}

    def job(self, handle):
        if handle not in self.jobs:
            raise KeyError(f"nothing was prepared as {handle}")
        return self.jobs[handle][1]

    def output(self, handle, o, lse, rows=None):
        lse_base, not_finite = self.job(handle).write_output(o, lse, rows)
        return {"lse_base": lse_base, "not_finite": not_finite}

    def route(self, handle):
        return self.job(handle).route()

    def time(self, handle, iterations, warmup, mode, buffers, group=1):
        return self.job(handle).time(iterations, warmup, mode, buffers, group)

    def release(self, handle):
        self.jobs.pop(handle, None)
        self.drop_unused()
        return {}

    OPERATIONS = ("hello", "versions", "supports", "prepare", "output", "route", "time", "release")

    def answer(self, request):
        reply = {"id": request.pop("id", None)}
        theirs = request.pop("protocol", None)
        operation = request.pop("op", None)
        try:
            # A parent of another version still gets our number.
            if operation != "hello" and theirs != PROTOCOL:
                raise Refusal(f"protocol {theirs} is not {PROTOCOL}")
            if operation not in self.OPERATIONS:
                raise Refusal(f"no operation {operation!r}")
            reply["ok"] = getattr(self, operation)(**request)
        except Refusal as refusal:
            reply["error"] = {"kind": refusal.kind, "message": str(refusal)}
        except Exception as error:
            traceback.print_exc()
            out_of_memory = "OutOfMemory" in type(error).__name__
            kind = "out_of_memory" if out_of_memory else "failed"
            message = f"{type(error).__name__}: {error}"
            reply["error"] = {"kind": kind, "message": message[:2000]}
        return reply


def requests(stream):
    """Lines of `stream`, read by a thread: when the parent is gone the process ends even in the middle of a hang."""
    lines = queue.Queue()

    def read():
        for line in stream:
            lines.put(line)
        lines.put(None)
        time.sleep(1)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def serve(server):
    # Libraries print; their words go to standard error, so that standard output holds answers only.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in requests(sys.stdin):
        answers.write(json.dumps(server.answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(Server())
