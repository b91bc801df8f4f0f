"""A reference without library, GPU or sense, for tests of the protocol: `python3 echo.py`."""

import sys
import time

from problem import Unsupported
from serve import Server, serve


class Echo:
    def versions(self):
        print("a library that prints to standard output")
        return {"echo": "1"}

    def supports(self, problem):
        if problem.softcap:
            raise Unsupported("no softcap")

    def prepare(self, problem, tensors):
        if problem.head_dim_qk == 13:
            raise RuntimeError("thirteen")
        return EchoJob(problem)


class EchoJob:
    notes = ["an echo"]

    def __init__(self, problem):
        self.problem = problem

    def write_output(self, o, lse, rows):
        b, s, h, d = self.problem.o_shape
        count = b * s * h if rows is None else len(rows)
        with open(o, "wb") as file:
            file.write(bytes(2 * count * d))
        return None, None

    def route(self):
        return {"called": "echo()", "kernels": ["echo"], "proven": True, "note": ""}

    def time(self, iterations, warmup, mode, buffers, group):
        if mode == "graph":
            time.sleep(3600)
        times = -(-iterations // group)
        return {"us": [1.0 + i for i in range(times)], "host_us": 1.0, "buffers": buffers}


if __name__ == "__main__":
    serve(Server(load=lambda _name: Echo(), references=("echo",), load_tensors=lambda problem, inputs: None))
    sys.exit(0)
