"""Checks that need neither torch nor a GPU: every file compiles, the registry is the catalog, the protocol holds."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import registry
from problem import Problem

HERE = pathlib.Path(__file__).resolve().parent
PROBLEM = {
    "batch": 1,
    "seqlen_q": 2,
    "seqlen_k": 3,
    "num_heads_q": 2,
    "num_heads_kv": 1,
    "head_dim_qk": 4,
    "head_dim_v": 4,
    "mask": {"causal": True, "window_left": None, "window_right": None},
    "sink": False,
    "softcap": 0.0,
    "scale": None,
    "q_dtype": "bf16",
    "kv_dtype": "bf16",
}
INPUTS = {"id": "1-0", "buffers": [], "q": {}, "k": {}, "v": {}, "sinks": None}


class Child:
    """A server, spoken to as the bridge does."""

    def __init__(self, script):
        pipe = subprocess.PIPE
        command = [sys.executable, "-B", str(HERE / script)]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.number = 0

    def send(self, op, **arguments):
        self.number += 1
        request = {"protocol": 2, "id": self.number, "op": op, **arguments}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def ask(self, op, **arguments):
        self.send(op, **arguments)
        reply = json.loads(self.process.stdout.readline())
        assert reply["id"] == self.number, reply
        return reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass


class Files(unittest.TestCase):
    def test_every_file_compiles(self):
        for path in HERE.glob("*.py"):
            compile(path.read_text(), str(path), "exec")

    def test_the_registry_is_the_catalog(self):
        catalog = (HERE.parent / "src" / "catalog.rs").read_text()
        listed = re.findall(r'\bentry\(\s*"([^"]+)",\s*"([^"]+)\.py"', catalog)
        self.assertEqual(dict(listed), registry.ADAPTERS)
        self.assertEqual([name for name, _ in listed], list(registry.ADAPTERS))

    def test_locks_pin_every_line(self):
        for path in (HERE / "locks").glob("*.txt"):
            for line in path.read_text().splitlines():
                self.assertRegex(line, r"^(#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+)?$", path.name)


class Protocol(unittest.TestCase):
    def test_hello_needs_no_library(self):
        with Child("serve.py") as child:
            hello = child.ask("hello")["ok"]
            self.assertEqual(hello, {"protocol": 2, "references": list(registry.ADAPTERS)})

    def test_a_run_from_start_to_end(self):
        with Child("echo.py") as child, tempfile.TemporaryDirectory() as folder:
            o = pathlib.Path(folder) / "o.bin"
            # What the library prints does not come between.
            self.assertEqual(child.ask("versions", reference="echo")["ok"], {"versions": {"echo": "1"}})
            self.assertEqual(child.ask("supports", reference="echo", problem=PROBLEM)["ok"], {})
            prepared = child.ask("prepare", reference="echo", handle=7, problem=PROBLEM, inputs=INPUTS)
            self.assertEqual(prepared["ok"], {"notes": ["an echo"]})
            wrote = {"lse_base": None, "not_finite": None}
            self.assertEqual(child.ask("output", handle=7, o=str(o), lse="none")["ok"], wrote)
            self.assertEqual(o.stat().st_size, 2 * 2 * 2 * 4)
            self.assertEqual(child.ask("output", handle=7, o=str(o), lse="none", rows=[[0, 1, 0]])["ok"], wrote)
            self.assertEqual(o.stat().st_size, 2 * 4)
            timing = child.ask("time", handle=7, iterations=5, warmup=1, mode="event", buffers=2, group=2)
            self.assertEqual(timing["ok"], {"us": [1.0, 2.0, 3.0], "host_us": 1.0, "buffers": 2})
            self.assertEqual(child.ask("route", handle=7)["ok"]["proven"], True)
            self.assertEqual(child.ask("release", handle=7)["ok"], {})
            self.assertIn("nothing was prepared as 7", child.ask("route", handle=7)["error"]["message"])

    def test_refusals_and_failures_are_answers(self):
        with Child("echo.py") as child:
            capped = {**PROBLEM, "softcap": 30.0}
            error = child.ask("supports", reference="echo", problem=capped)["error"]
            self.assertEqual(error, {"kind": "unsupported", "message": "no softcap"})
            odd = {**PROBLEM, "head_dim_qk": 13}
            error = child.ask("prepare", reference="echo", handle=1, problem=odd, inputs=INPUTS)["error"]
            self.assertEqual(error, {"kind": "failed", "message": "RuntimeError: thirteen"})
            self.assertEqual(child.ask("dance")["error"]["kind"], "failed")
            self.assertIn("protocol", child.ask("route", handle=1, protocol=99)["error"]["message"])
            self.assertIn("ok", child.ask("hello"))

    def test_a_hanging_child_ends_with_its_parent(self):
        with Child("echo.py") as child:
            child.ask("prepare", reference="echo", handle=1, problem=PROBLEM, inputs=INPUTS)
            child.send("time", handle=1, iterations=1, warmup=0, mode="graph", buffers=1)
            started = time.monotonic()
            child.process.stdin.close()
            child.process.wait(timeout=20)
            self.assertLess(time.monotonic() - started, 20)


class Masks(unittest.TestCase):
    """A band hides what it says, by enumeration."""

    def test_masks_by_what_they_hide(self):
        bounds = (None, 0, 1, 3, 9)
        for sq, sk in ((1, 1), (1, 5), (4, 4), (3, 6), (6, 3)):
            for causal in (False, True):
                for left in bounds:
                    for right in bounds:
                        mask = {"causal": causal, "window_left": left, "window_right": right}
                        problem = Problem.from_json({**PROBLEM, "seqlen_q": sq, "seqlen_k": sk, "mask": mask})
                        self.assertEqual(self.seen(sq, sk, causal, left, right), self.seen(sq, sk, False, *problem.band()))
                        full = all(self.seen(sq, sk, causal, left, right))
                        self.assertTrue(problem.mask != "full" or full, (sq, sk, mask))

    @staticmethod
    def seen(sq, sk, causal, left, right):
        deltas = [j - (i + sk - sq) for i in range(sq) for j in range(sk)]
        return [
            (not causal or x <= 0) and (left is None or x >= -left) and (right is None or x <= right) for x in deltas
        ]


if __name__ == "__main__":
    unittest.main()
