#!/usr/bin/env python3
"""Writes the probe kernels (*.ptx) and manifest.json beside this file.

A probe is one kernel. It reads 32-bit words from `in`, each thread its own (word k of thread t stands at index
k * threads + t), and writes words to `out` in the same order. PTX has no loops over opcodes, hence this generator;
what counts is the PTX, which a device and the emulator run alike.
"""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
FILES = {}
MANIFEST = []
U32, S32, U64, S64, F16, F32, F64, BF16 = range(2, 10)  # CUtensorMapDataType


class Probe:
    """A kernel under construction; use as a context manager."""

    def __init__(self, file, name, fill="bits", block=32, grid=1, cluster=1, shared=0, map=None, directives=""):
        self.file, self.name, self.fill, self.block, self.grid, self.cluster = file, name, fill, block, grid, cluster
        self.shared, self.map, self.directives = shared, map, directives
        self.body, self.regs, self.ins, self.outs = [], {}, 0, 0
        self.threads = block * grid
        self.tid, self.pin, self.pout = self.reg(), self.reg("b64"), self.reg("b64")
        self(f"mov.u32 {self.tid}, %tid.x;")
        index = self.tid
        if grid > 1:
            index, cta = self.reg(), self.reg()
            self(f"mov.u32 {cta}, %ctaid.x;", f"mad.lo.u32 {index}, {cta}, {block}, {self.tid};")
        self.base_in, self.base_out = self.reg("b64"), self.reg("b64")
        self(f"ld.param.u64 {self.base_in}, [{name}_in];", f"ld.param.u64 {self.base_out}, [{name}_out];")
        for at, base in ((self.pin, self.base_in), (self.pout, self.base_out)):
            self(f"mad.wide.u32 {at}, {index}, 4, {base};")

    def reg(self, kind="b32"):
        n = self.regs[kind] = self.regs.get(kind, 0) + 1
        return f"%{'p' if kind == 'pred' else 'r' + kind[1:] + '_'}{n - 1}"

    def __call__(self, *lines):
        self.body += lines

    def input(self, kind="b32"):
        """The thread's next input."""
        if kind == "b64":
            lo, hi, r = self.input(), self.input(), self.reg("b64")
            self(f"mov.b64 {r}, {{{lo}, {hi}}};")
            return r
        r = self.reg()
        self(f"ld.global.b32 {r}, [{self.pin}+{4 * self.threads * self.ins}];")
        self.ins += 1
        if kind == "b16":
            h = self.reg("b16")
            self(f"cvt.u16.u32 {h}, {r};")
            return h
        return r

    def small(self, bits):
        """The next input, cut to its low bits."""
        r, s = self.input(), self.reg()
        self(f"and.b32 {s}, {r}, {(1 << bits) - 1};")
        return s

    def out(self, r, kind="b32"):
        """Writes a register to the thread's next output."""
        if kind == "b64":
            lo, hi = self.reg(), self.reg()
            self(f"mov.b64 {{{lo}, {hi}}}, {r};")
            self.out(lo)
            return self.out(hi)
        if kind == "b16":
            w = self.reg()
            self(f"cvt.u32.u16 {w}, {r};")
            r = w
        if kind == "pred":
            w = self.reg()
            self(f"selp.u32 {w}, 1, 0, {r};")
            r = w
        self(f"st.global.b32 [{self.pout}+{4 * self.threads * self.outs}], {r};")
        self.outs += 1

    def op(self, text, dst, *srcs):
        """`text d, srcs;` with a fresh destination that is written out. A source is a kind or an operand."""
        args = [self.input(s) if s in ("b16", "b32", "b64") else s for s in srcs]
        d = self.reg(dst)
        self(f"{text} {d}, {', '.join(args)};")
        self.out(d, dst)

    def shared_at(self, scale, offset=0):
        """Shared address of the thread's `scale` bytes."""
        a, b = self.reg(), self.reg()
        self(f"mov.u32 {b}, s;", f"mad.lo.u32 {a}, {self.tid}, {scale}, {b};")
        if offset:
            self(f"add.u32 {a}, {a}, {offset};")
        return a

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        n = self.name
        params = [f".param .u64 {n}_in", f".param .u64 {n}_out"]
        if self.map:
            params.append(f".param .align 64 .b8 {n}_map[128]")
        head = [f".visible .entry {n}({', '.join(params)}){self.directives}", "{"]
        if self.shared:
            head.append(f"    .shared .align 1024 .b8 s[{self.shared}];")
            head.append("    .shared .align 8 .b64 bar;")
        for kind, count in self.regs.items():
            name = "p" if kind == "pred" else "r" + kind[1:] + "_"
            head.append(f"    .reg .{kind} %{name}<{count}>;")
        text = head + [l if l.endswith(":") else "    " + l for l in self.body] + ["    ret;", "}", ""]
        FILES.setdefault(self.file, []).append("\n".join(text))
        entry = dict(probe=n, file=self.file + ".ptx", fill=self.fill, seed=len(MANIFEST) + 1, grid=self.grid,
                     block=self.block, cluster=self.cluster, in_words=max(1, self.ins) * self.threads,
                     out_words=self.outs * self.threads)
        if self.map:
            entry["map"] = self.map
        MANIFEST.append(entry)


def sentinel(p):
    r = p.reg()
    p(f"mov.b32 {r}, 0x5eed;")
    return r


def shuffles():
    for mode in ("up", "down", "bfly", "idx"):
        with Probe("warp", f"shfl_{mode}") as p:
            v = p.input()
            for c in ("0", "31", "0x181f", "0x1c1f", "0x1e1f", "0x101f", "0x1007", "0x0f0f", "0x1f1f", "7"):
                for b in ("0", "1", "5", "16", "31", "33", "b32"):
                    d, ok = p.reg(), p.reg("pred")
                    b = p.input() if b == "b32" else b
                    p(f"shfl.sync.{mode}.b32 {d}|{ok}, {v}, {b}, {c}, -1;")
                    p.out(d)
                    p.out(ok, "pred")
            for _ in range(6):  # any clamp and segment mask, one for each lane
                d, ok, b, c = p.reg(), p.reg("pred"), p.input(), p.input()
                p(f"shfl.sync.{mode}.b32 {d}|{ok}, {v}, {b}, {c}, -1;")
                p.out(d)
                p.out(ok, "pred")
    with Probe("warp", "shfl_partial") as p:
        v, low = p.input(), p.reg("pred")
        for limit in (1, 4, 16, 24):
            for mode, b, c in (("up", 1, 0), ("down", 1, limit - 1), ("idx", 0, 31), ("idx", limit - 1, 31)):
                d = sentinel(p)
                p(f"setp.lt.u32 {low}, {p.tid}, {limit};")
                p(f"@{low} shfl.sync.{mode}.b32 {d}, {v}, {b}, {c}, {(1 << limit) - 1};")
                p.out(d)
        for mode, b in (("bfly", 4), ("bfly", 2), ("idx", 13)):  # both halves, each under its own mask
            d, m = sentinel(p), p.reg()
            p(f"and.b32 {m}, {p.tid}, 1;", f"setp.eq.u32 {low}, {m}, 0;")
            if mode == "idx":
                p(f"@{low} shfl.sync.{mode}.b32 {d}, {v}, 12, 31, 0x55555555;")
                p(f"@!{low} shfl.sync.{mode}.b32 {d}, {v}, {b}, 31, 0xaaaaaaaa;")
            else:
                p(f"@{low} shfl.sync.{mode}.b32 {d}, {v}, {b}, 31, 0x55555555;")
                p(f"@!{low} shfl.sync.{mode}.b32 {d}, {v}, {b}, 31, 0xaaaaaaaa;")
            p.out(d)


def votes():
    masks = (1, 0xffff, 0x80000000, 0x5555, 0xffffffff)
    with Probe("warp", "vote") as p:
        for bits in (0, 1, 3, 5):  # predicate false with chance 2^-bits; bits 0: true everywhere
            for neg in ("", "!"):
                x, q = p.small(bits), p.reg("pred")
                p(f"setp.{'eq' if bits < 2 else 'ne'}.u32 {q}, {x}, 0;")
                for m in masks:
                    active, bit = p.reg("pred"), p.reg()
                    p(f"shr.u32 {bit}, {m}, {p.tid};", f"and.b32 {bit}, {bit}, 1;", f"setp.ne.u32 {active}, {bit}, 0;")
                    for mode in ("all", "any", "uni"):
                        r, w = p.reg("pred"), sentinel(p)
                        p(f"setp.ne.u32 {r}, 0, 0;", f"@{active} vote.sync.{mode}.pred {r}, {neg}{q}, {m};")
                        p(f"@{active} selp.u32 {w}, 1, 0, {r};")
                        p.out(w)
                    w = sentinel(p)
                    p(f"@{active} vote.sync.ballot.b32 {w}, {neg}{q}, {m};")
                    p.out(w)
    with Probe("warp", "match") as p:
        for bits in (0, 1, 3, 32):
            for wide in (False, True):
                x = p.small(bits)
                if wide:
                    y = p.reg("b64")
                    p(f"mov.b64 {y}, {{7, {x}}};")
                    x = y
                for m in masks:
                    active, bit = p.reg("pred"), p.reg()
                    p(f"shr.u32 {bit}, {m}, {p.tid};", f"and.b32 {bit}, {bit}, 1;", f"setp.ne.u32 {active}, {bit}, 0;")
                    t = "b64" if wide else "b32"
                    w = sentinel(p)
                    p(f"@{active} match.any.sync.{t} {w}, {x}, {m};")
                    p.out(w)
                    w, w2, r = sentinel(p), sentinel(p), p.reg("pred")
                    p(f"@{active} match.all.sync.{t} {w}|{r}, {x}, {m};", f"@{active} selp.u32 {w2}, 1, 0, {r};")
                    p.out(w)
                    p.out(w2)
    with Probe("warp", "redux") as p:
        for m in masks + (0x7fff0000, 0xaaaaaaaa):
            active, bit = p.reg("pred"), p.reg()
            p(f"shr.u32 {bit}, {m}, {p.tid};", f"and.b32 {bit}, {bit}, 1;", f"setp.ne.u32 {active}, {bit}, 0;")
            for op in ("add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"):
                x, w = p.input(), sentinel(p)
                p(f"@{active} redux.sync.{op} {w}, {x}, {m};")
                p.out(w)
    with Probe("warp", "activemask") as p:
        w, c, k = p.reg(), p.reg("pred"), p.reg()
        p(f"activemask.b32 {w};")
        p.out(w)
        for n, (test, value) in enumerate((("lt", 8), ("ge", 20), ("eq", 31), ("ne", 0))):
            w = sentinel(p)
            p(f"setp.{test}.u32 {c}, {p.tid}, {value};", f"@!{c} bra SKIP{n};", f"activemask.b32 {w};", f"SKIP{n}:",
              "bar.warp.sync -1;")
            p.out(w)
        p(f"and.b32 {k}, {p.tid}, 3;", f"setp.eq.u32 {c}, {k}, 2;", f"@{c} bra END;")
        w = p.reg()
        p("bar.warp.sync 0xbbbbbbbb;", f"activemask.b32 {w};")
        p.out(w)
        p("END:")


def matrices():
    with Probe("matrix", "ldmatrix", shared=4096) as p:
        a = p.shared_at(64)
        for i in range(16):
            p(f"st.shared.b32 [{a}+{4 * i}], {p.input()};")
        p("bar.warp.sync -1;")
        for scramble in (0, 13, 29):
            row, at = p.reg(), p.reg()
            p(f"xor.b32 {row}, {p.tid}, {scramble};", f"mov.u32 {at}, s;", f"mad.lo.u32 {at}, {row}, 48, {at};")
            for n in (1, 2, 4):
                for trans in ("", ".trans"):
                    d = [p.reg() for _ in range(n)]
                    p(f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {{{', '.join(d)}}}, [{at}];")
                    for r in d:
                        p.out(r)
    with Probe("matrix", "stmatrix", shared=4096) as p:
        a, lin = p.shared_at(64), p.shared_at(4)
        for n in (1, 2, 4):
            for trans in ("", ".trans"):
                for scramble in (0, 21):
                    row, at = p.reg(), p.reg()
                    z = p.reg()
                    p(f"mov.b32 {z}, {0x5eed0000 + n};")
                    for i in range(8):
                        p(f"st.shared.b32 [{lin}+{128 * i}], {z};")
                    p("bar.warp.sync -1;")
                    p(f"xor.b32 {row}, {p.tid}, {scramble};", f"mov.u32 {at}, s;", f"mad.lo.u32 {at}, {row}, 32, {at};")
                    d = [p.input() for _ in range(n)]
                    p(f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [{at}], {{{', '.join(d)}}};")
                    p("bar.warp.sync -1;")
                    for i in range(8):
                        r = p.reg()
                        p(f"ld.shared.b32 {r}, [{lin}+{128 * i}];")
                        p.out(r)
                    p("bar.warp.sync -1;")


ATOMS = {
    "b32": ("bits", "b32", ["add.u32", "min.u32", "max.u32", "add.s32", "min.s32", "max.s32", "inc.u32", "dec.u32",
                            "and.b32", "or.b32", "xor.b32", "exch.b32"]),
    "b64": ("bits", "b64", ["add.u64", "min.u64", "max.u64", "min.s64", "max.s64", "and.b64", "or.b64", "xor.b64",
                            "exch.b64"]),
    "f32": ("f32", "b32", ["add.f32"] * 4),
    "f64": ("f64", "b64", ["add.f64"] * 4),
    "f16x2": ("f16", "b32", ["add.noftz.f16x2"] * 4),
    "bf16x2": ("bf16", "b32", ["add.noftz.bf16x2"] * 4),
    "f16": ("f16", "b16", ["add.noftz.f16"] * 4),
    "bf16": ("bf16", "b16", ["add.noftz.bf16"] * 4),
}


def atomics():
    for space in ("shared", "global"):
        for name, (fill, kind, ops) in ATOMS.items():
            with Probe("atomic", f"atom_{space}_{name}", fill, block=64, shared=64 * 8 if space == "shared" else 0) as p:
                size = int(kind[1:]) // 8
                at = p.shared_at(8) if space == "shared" else p.reg("b64")
                for op in ops:
                    if space == "global":  # the word of the output itself
                        p(f"add.u64 {at}, {p.pout}, {4 * p.threads * p.outs};")
                        if size == 8:  # two rows of 32-bit words hold the 8-byte cells
                            p(f"mad.wide.u32 {at}, {p.tid}, 8, {p.base_out};",
                              f"add.u64 {at}, {at}, {4 * p.threads * p.outs};")
                        zero = p.reg()
                        p(f"mov.b32 {zero}, 0;")
                        if size == 2:
                            p.out(zero)
                        else:
                            p.outs += size // 4
                    old, new, before = p.input(kind), p.input(kind), p.reg(kind)
                    if op.startswith(("inc", "dec")):  # wrap often
                        p(f"and.b32 {old}, {old}, 7;", f"and.b32 {new}, {new}, 3;")
                    p(f"st.{space}.{kind} [{at}], {old};")
                    p(f"atom.{space}.{op} {before}, [{at}], {new};")
                    p.out(before, kind)
                    if space == "shared":
                        after = p.reg(kind)
                        p(f"ld.{space}.{kind} {after}, [{at}];")
                        p.out(after, kind)
    for space in ("shared", "global"):
        with Probe("atomic", f"cas_{space}", block=64, shared=64 * 8 if space == "shared" else 0) as p:
            for kind in ("b32", "b64"):
                for _ in range(2):
                    at = p.shared_at(8) if space == "shared" else p.reg("b64")
                    if space == "global":
                        p(f"mad.wide.u32 {at}, {p.tid}, 8, {p.base_out};", f"add.u64 {at}, {at}, {4 * p.threads * p.outs};")
                        p.outs += 2
                    x, new, before, hit, cmp = p.input(kind), p.input(kind), p.reg(kind), p.reg("pred"), p.reg(kind)
                    bit = p.small(1)
                    p(f"setp.eq.u32 {hit}, {bit}, 0;", f"selp.{kind} {cmp}, {x}, {new}, {hit};")
                    zero = p.reg("b64")
                    p(f"mov.b64 {zero}, 0;", f"st.{space}.b64 [{at}], {zero};", f"st.{space}.{kind} [{at}], {x};")
                    p(f"atom.{space}.cas.{kind} {before}, [{at}], {cmp}, {new};")
                    p.out(before, kind)
                    if space == "shared":
                        after = p.reg(kind)
                        p(f"ld.{space}.{kind} {after}, [{at}];")
                        p.out(after, kind)
        with Probe("atomic", f"cas_b16_{space}", block=64, shared=64 * 8 if space == "shared" else 0) as p:
            at = p.shared_at(2) if space == "shared" else p.reg("b64")
            zero = p.reg()
            p(f"mov.b32 {zero}, 0;")
            if space == "global":
                p(f"mov.b64 {at}, {p.pout};")
                p.out(zero)
            x, new, before, hit, cmp = p.input("b16"), p.input("b16"), p.reg("b16"), p.reg("pred"), p.reg("b16")
            bit = p.small(1)
            p(f"setp.eq.u32 {hit}, {bit}, 0;", f"selp.b16 {cmp}, {x}, {new}, {hit};")
            p(f"st.{space}.b16 [{at}], {x};", f"atom.{space}.cas.b16 {before}, [{at}], {cmp}, {new};")
            p.out(before, "b16")
            if space == "shared":
                after = p.reg("b16")
                p(f"ld.{space}.b16 {after}, [{at}];")
                p.out(after, "b16")
    # All threads at one address: only what does not depend on their order.
    ops = ["add.u32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]
    for space in ("shared", "global"):
        for form in ("atom", "red"):
            with Probe("atomic", f"contended_{form}_{space}", block=128, shared=64 if space == "shared" else 0) as p:
                first = p.reg("pred")
                p(f"setp.eq.u32 {first}, {p.tid}, 0;")
                for i, op in enumerate(ops + ["inc.u32"]):
                    at, init, x, y = p.reg("b32" if space == "shared" else "b64"), p.reg(), p.input(), p.reg()
                    if space == "shared":
                        p(f"mov.u32 {at}, s;")
                    else:  # the last word of the output row
                        p(f"add.u64 {at}, {p.base_out}, {4 * p.threads * (p.outs + 1) - 4};")
                        p.outs += 1
                    if op == "inc.u32":
                        p(f"mov.b32 {x}, 100;")
                    p(f"@{first} st.{space}.b32 [{at}], {0xff0 if op != 'inc.u32' else 3};", "bar.sync 0;")
                    p(f"{form}.{space}.{op} {y + ', ' if form == 'atom' else ''}[{at}], {x};", "bar.sync 0;")
                    p(f"ld.volatile.{space}.b32 {init}, [{at}];", "bar.sync 0;")
                    p.out(init)
    with Probe("atomic", "atom_b128", block=32, shared=32 * 16) as p:
        a = p.shared_at(16)
        for op in ("exch", "cas"):
            x0, x1, y0, y1 = (p.input("b64") for _ in range(4))
            x, y, d = (p.reg("b128") for _ in range(3))
            p(f"mov.b128 {x}, {{{x0}, {x1}}};", f"mov.b128 {y}, {{{y0}, {y1}}};")
            p(f"st.shared.v2.b64 [{a}], {{{x0}, {x1}}};")
            p(f"atom.shared.{op}.b128 {d}, [{a}], {x if op == 'cas' else y}{', ' + y if op == 'cas' else ''};")
            d0, d1 = p.reg("b64"), p.reg("b64")
            p(f"mov.b128 {{{d0}, {d1}}}, {d};")
            p.out(d0, "b64")
            p.out(d1, "b64")
            e0, e1 = p.reg("b64"), p.reg("b64")
            p(f"ld.shared.v2.b64 {{{e0}, {e1}}}, [{a}];")
            p.out(e0, "b64")
            p.out(e1, "b64")
    for name, fill, n, t in (("f32", "f32", 2, "f32"), ("f32_v4", "f32", 4, "f32"), ("f16x2", "f16", 4, "f16x2"),
                             ("bf16x2", "bf16", 4, "bf16x2")):
        with Probe("atomic", f"atom_vector_{name}", fill, block=32) as p:
            at = p.reg("b64")
            p(f"mad.wide.u32 {at}, {p.tid}, {4 * n}, {p.base_out};")
            p.outs += n
            x, y, d = ([f() for _ in range(n)] for f in (p.input, p.input, p.reg))
            for i in range(n):
                p(f"st.global.b32 [{at}+{4 * i}], {x[i]};")
            z = ".noftz" if t != "f32" else ""
            p(f"atom.global.add{z}.v{n}.{t} {{{', '.join(d)}}}, [{at}], {{{', '.join(y)}}};")
            for r in d:
                p.out(r)


BULK = [("u32", "bits", "add min max inc dec and or xor"), ("s32", "bits", "add min max"), ("u64", "bits", "add min max and or xor"),
        ("s64", "bits", "min max"), ("f16", "f16", "add min max"), ("bf16", "bf16", "add min max"), ("f32", "f32", "add"),
        ("f64", "f64", "add")]
TENSOR = {"u32": U32, "s32": S32, "u64": U64, "s64": S64, "f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def reductions():
    for t, fill, ops in BULK:
        size = dict(f16=2, bf16=2, u64=8, s64=8, f64=8).get(t, 4)
        for op in ops.split():
            for tensor in (False, True):
                elems = 512 // size
                m = dict(over="out", type=TENSOR[t], dims=[elems // 4, 4], strides=[128], box=[elems // 4, 4]) if tensor else None
                with Probe("reduce", f"{'tensor' if tensor else 'bulk'}_{op}_{t}", fill, shared=512, map=m) as p:
                    a = p.shared_at(4)
                    for i in range(4):
                        g, x = p.input(), p.input()
                        if op in ("inc", "dec"):
                            p(f"and.b32 {g}, {g}, 7;", f"and.b32 {x}, {x}, 3;")
                        p(f"st.shared.b32 [{a}+{128 * i}], {x};")
                        p.out(g)
                    lead = p.reg("pred")
                    p("fence.proxy.async;", "bar.warp.sync -1;", f"setp.eq.u32 {lead}, {p.tid}, 0;")
                    if tensor:
                        q = p.reg("b64")
                        p(f"mov.b64 {q}, {p.name}_map;", f"cvta.param.u64 {q}, {q};")
                        p(f"@{lead} cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group [{q}, {{0, 0}}], [s];")
                    else:
                        s = {"and": "b", "or": "b", "xor": "b"}.get(op)
                        ty = s + t[1:] if s else ("noftz." + t if op == "add" and t in ("f16", "bf16") else t)
                        p(f"@{lead} cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty} [{p.base_out}], [s], 512;")
                    p(f"@{lead} cp.async.bulk.commit_group;", f"@{lead} cp.async.bulk.wait_group 0;", "bar.warp.sync -1;")


def halves():
    for t, fill in (("f16", "f16"), ("bf16", "bf16")):
        for kind, suffix in (("b32", t + "x2"), ("b16", t)):
            with Probe("half", suffix, fill, block=128) as p:
                ops = [(o + m, 2) for o in ("add", "sub", "mul") for m in (("", ".rn", ".sat", ".ftz", ".ftz.sat") if t == "f16" else ("", ".rn"))]
                ops += [("fma.rn" + m, 3) for m in (("", ".sat", ".relu", ".ftz", ".ftz.sat", ".ftz.relu") if t == "f16" else ("", ".relu"))]
                ops += [(o + m, 2) for o in ("min", "max") for m in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs") + ((".ftz", ".ftz.NaN") if t == "f16" else ())]
                ops += [("neg", 1), ("abs", 1)] + ([("neg.ftz", 1), ("abs.ftz", 1)] if t == "f16" else [])
                ops += [("tanh.approx", 1), ("ex2.approx" + (".ftz" if t == "bf16" else ""), 1)]
                for op, n in ops:
                    if op.startswith("mul.sat") and t == "bf16":
                        continue
                    p.op(f"{op}.{suffix}", kind, *[kind] * n)


def bits():
    with Probe("bits", "prmt", block=64) as p:
        for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
            for sel in ("b32", "b32", "0x3210", "0x7654", "0xfedc", "0x8888", "0x01234567", "-1"):
                p.op("prmt.b32" + mode, "b32", "b32", "b32", sel)
    with Probe("bits", "fields", block=64) as p:
        for w in ("32", "64"):
            for pos, n in ((6, 6), (7, 7), (32, 32)):
                for s in "us":
                    p.op(f"bfe.{s}{w}", "b" + w, "b" + w, p.small(pos), p.small(n))
                p.op(f"bfi.b{w}", "b" + w, "b" + w, "b" + w, p.small(pos), p.small(n))
            for pos, n in ((0, 0), (0, 32), (31, 1), (32, 1), (31, 2), (63, 1), (64, 1), (60, 8), (255, 255), (256, 256), (0, 256), (5, 0)):
                at, length = p.reg(), p.reg()  # in registers: literals above 255 do not assemble
                p(f"mov.b32 {at}, {pos};", f"mov.b32 {length}, {n};")
                for s in "us":
                    p.op(f"bfe.{s}{w}", "b" + w, "b" + w, at, length)
                p.op(f"bfi.b{w}", "b" + w, "b" + w, "b" + w, at, length)
        for mode in ("clamp", "wrap"):
            for n in (6, 32):
                for s in "us":
                    p.op(f"szext.{mode}.{s}32", "b32", "b32", p.small(n))
                p.op(f"bmsk.{mode}.b32", "b32", p.small(n), p.small(n))
    with Probe("bits", "shifts", block=64) as p:
        for mode in ("clamp", "wrap"):
            for side in "lr":
                for n in ("0", "1", "31", "32", "33", "63", "64", "-1"):
                    p.op(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", n)
                p.op(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", p.small(6))
                p.op(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "b32")
        for op, kinds in (("shl", ("b16", "b32", "b64")), ("shr", ("u16", "s16", "u32", "s32", "u64", "s64"))):
            for k in kinds:
                for n in ("0", "15", "16", "31", "32", "63", "64", "-1"):
                    p.op(f"{op}.{k}", "b" + k[1:], "b" + k[1:], n)
                p.op(f"{op}.{k}", "b" + k[1:], "b" + k[1:], p.small(7))
    with Probe("bits", "counts", block=64) as p:
        for w in ("32", "64"):
            for op in ("popc.b", "clz.b", "bfind.u", "bfind.s", "bfind.shiftamt.u", "bfind.shiftamt.s"):
                p.op(op + w, "b32", "b" + w)
                r = p.reg("b" + w)
                for v in ("0", "-1", "1"):
                    p(f"mov.b{w} {r}, {v};")
                    p.op(op + w, "b32", r)
            p.op("brev.b" + w, "b" + w, "b" + w)
        p.op("fns.b32", "b32", "b32", p.small(5), "1")
        for n in ("0", "2", "-1", "-3", "9"):
            p.op("fns.b32", "b32", "b32", p.small(5), n)
    with Probe("bits", "dots", block=64) as p:
        for a in "us":
            for b in "us":
                p.op(f"dp4a.{a}32.{b}32", "b32", "b32", "b32", "b32")
                for h in ("lo", "hi"):
                    p.op(f"dp2a.{h}.{a}32.{b}32", "b32", "b32", "b32", "b32")
        for lut in (0x96, 0xe8, 0xca, 0x01, 0xfe):
            p.op("lop3.b32", "b32", "b32", "b32", "b32", str(lut))
        for op in ("mul.hi.u32", "mul.hi.s32", "mul24.lo.u32", "mul24.lo.s32", "mul24.hi.u32", "mul24.hi.s32", "add.sat.s32", "sub.sat.s32",
                   "add.u16x2", "add.s16x2", "min.u16x2", "max.u16x2", "min.s16x2", "max.s16x2", "min.relu.s16x2",
                   "max.relu.s16x2", "min.relu.s32", "max.relu.s32"):
            p.op(op, "b32", "b32", "b32")
        for op in ("mad.hi.sat.s32", "mad24.lo.s32", "mad24.hi.u32", "mad24.hi.sat.s32", "sad.u32", "sad.s32"):
            p.op(op, "b32", "b32", "b32", "b32")
    with Probe("bits", "subword", block=64, shared=64 * 16) as p:
        a = p.shared_at(16)
        for space in ("shared", "global"):
            at = a
            if space == "global":
                at = p.reg("b64")
                p(f"mov.b64 {at}, {p.pin};")
            for i in range(4):
                p(f"st.shared.b32 [{a}+{4 * i}], {p.input()};")
            for t in ("u8", "s8", "u16", "s16"):
                for reg, sign in (("b16", t), ("b32", t), ("b64", t)):
                    if int(reg[1:]) < int(t[1:]):
                        continue
                    for off in (0, 2) if t[1:] == "16" else (0, 1, 2, 3):
                        d = p.reg(reg)
                        p(f"ld.{space}.{t} {d}, [{at}+{off}];")
                        p.out(d, reg)
            for t in ("u32", "s32"):
                d = p.reg("b64")
                p(f"ld.{space}.{t} {d}, [{at}];")
                p.out(d, "b64")
            w = [p.reg("b16") for _ in range(4)]
            p(f"ld.{space}.v4.s8 {{{', '.join(w)}}}, [{at}];")
            for r in w:
                p.out(r, "b16")
            w = [p.reg() for _ in range(2)]
            p(f"ld.{space}.v2.s16 {{{', '.join(w)}}}, [{at}];")
            for r in w:
                p.out(r)
        for t, off in (("b8", 1), ("b16", 2), ("b8", 7), ("b16", 12)):
            for reg in ("b16", "b32", "b64"):
                z = p.reg("b64")
                p(f"mov.b64 {z}, 0x1122334455667788;", f"st.shared.v2.b64 [{a}], {{{z}, {z}}};")
                p(f"st.shared.{t} [{a}+{off}], {p.input(reg)};")
                for half in (0, 8):
                    d = p.reg("b64")
                    p(f"ld.shared.b64 {d}, [{a}+{half}];")
                    p.out(d, "b64")


def barriers():
    with Probe("barrier", "named_pairs", block=128, shared=1024) as p:
        a, warp, pair = p.shared_at(4), p.reg(), p.reg("pred")
        other, q = p.reg(), p.reg("pred")
        p(f"xor.b32 {other}, {a}, 128;", f"shr.u32 {warp}, {p.tid}, 5;")
        first = p.reg("pred")
        odd = p.reg()
        p(f"and.b32 {odd}, {warp}, 1;", f"setp.eq.u32 {first}, {odd}, 0;", f"shr.u32 {warp}, {warp}, 1;")
        for i in range(14):  # even warps produce, odd warps consume; two pairs at once on different ids
            ident, x, r = p.reg(), p.input(), sentinel(p)
            p(f"mad.lo.u32 {ident}, {warp}, 7, {1 + i % 7};")
            p(f"@{first} st.shared.b32 [{a}], {x};")
            p(f"@{first} bra ARRIVE{i};", f"bar.sync {ident}, 64;", f"ld.shared.b32 {r}, [{other}];", f"bra JOIN{i};",
              f"ARRIVE{i}:", f"bar.arrive {ident}, 64;", f"JOIN{i}:", "bar.sync 0;")
            p.out(r)
        ident, n, x, r = p.reg(), p.reg(), p.input(), p.reg()
        p(f"mov.u32 {ident}, 15;", f"mov.u32 {n}, 128;", f"st.shared.b32 [{a}], {x};", f"barrier.sync {ident}, {n};",
          f"ld.shared.b32 {r}, [{other}];")
        p.out(r)
    with Probe("barrier", "three_of_four", block=128, shared=1024) as p:
        a, c = p.shared_at(4), p.reg("pred")
        p(f"setp.lt.u32 {c}, {p.tid}, 96;")
        for i in range(3):
            x, r, at, lane = p.input(), sentinel(p), p.reg(), p.reg()
            p(f"add.u32 {lane}, {p.tid}, 32;", f"rem.u32 {lane}, {lane}, 96;", f"mov.u32 {at}, s;",
              f"mad.lo.u32 {at}, {lane}, 4, {at};", f"@!{c} bra OUT{i};", f"st.shared.b32 [{a}], {x};", f"bar.sync {i + 1}, 96;",
              f"ld.shared.b32 {r}, [{at}];", f"OUT{i}:", "bar.sync 0;")
            p.out(r)
    with Probe("barrier", "ping_pong", block=64, shared=1024) as p:
        # Two warps alternate on ids 1 and 2; a running product that depends on the order of all turns.
        w, i, acc, one, c = p.reg(), p.reg(), p.reg(), p.reg("pred"), p.reg("pred")
        x = p.input()
        p(f"setp.ge.u32 {one}, {p.tid}, 32;", f"mov.u32 {i}, 0;")
        a, lane = p.reg(), p.reg()
        p(f"and.b32 {lane}, {p.tid}, 31;", f"mov.u32 {a}, s;", f"mad.lo.u32 {a}, {lane}, 4, {a};", f"@!{one} st.shared.b32 [{a}], 1;")
        p("bar.sync 0;", f"@{one} bra.uni SECOND;", "FIRST:",
          f"ld.shared.b32 {acc}, [{a}];", f"mad.lo.u32 {acc}, {acc}, 3, {x};", f"st.shared.b32 [{a}], {acc};",
          "bar.arrive 1, 64;", "bar.sync 2, 64;", f"add.u32 {i}, {i}, 1;", f"setp.lt.u32 {c}, {i}, 20;", f"@{c} bra.uni FIRST;",
          "bra.uni DONE;", "SECOND:", "bar.sync 1, 64;",
          f"ld.shared.b32 {acc}, [{a}];", f"mad.lo.u32 {acc}, {acc}, 5, {x};", f"st.shared.b32 [{a}], {acc};",
          "bar.arrive 2, 64;", f"add.u32 {i}, {i}, 1;", f"setp.lt.u32 {c}, {i}, 20;", f"@{c} bra.uni SECOND;", "DONE:", "bar.sync 0;",
          f"ld.shared.b32 {acc}, [{a}];")
        p.out(acc)
    with Probe("barrier", "exited_before", block=128, shared=1024) as p:
        exit_and_sync(p, "bar.sync 0;", late=False)
    with Probe("barrier", "exited_late", block=128, shared=1024) as p:
        exit_and_sync(p, "bar.sync 0;", late=True)
    with Probe("barrier", "exited_named", block=128, shared=1024) as p:
        exit_and_sync(p, "bar.sync 3, 96;", late=True)
    with Probe("barrier", "lanes_exited", block=64, shared=1024) as p:
        # Half of warp 1 exits; the rest of it still counts as a warp.
        c, a, r, x = p.reg("pred"), p.shared_at(4), p.reg(), p.input()
        p(f"st.shared.b32 [{a}], {x};", f"setp.ge.u32 {c}, {p.tid}, 48;", f"@{c} exit;", "bar.sync 0;", f"ld.shared.b32 {r}, [{a}];")
        p.out(r)
    with Probe("barrier", "divergent_barrier", block=64, shared=1024) as p:
        a, c, other, r, x = p.shared_at(4), p.reg("pred"), p.reg(), p.reg(), p.input()
        p(f"xor.b32 {other}, {a}, 128;", f"setp.lt.u32 {c}, {p.tid}, 16;", f"st.shared.b32 [{a}], {x};", f"@{c} bra PART;",
          "barrier.sync 3, 64;", "bra JOIN;", "PART:", "barrier.sync 3, 64;", "JOIN:", f"ld.shared.b32 {r}, [{other}];")
        p.out(r)
    with Probe("barrier", "bar_red", block=128, shared=1024) as p:
        for bits_ in (1, 3, 5, 0):
            x, q = p.small(bits_), p.reg("pred")
            p(f"setp.ne.u32 {q}, {x}, 0;")
            w = p.reg()
            p(f"bar.red.popc.u32 {w}, 0, {q};")
            p.out(w)
            for op in ("and", "or"):
                for neg in ("", "!"):
                    r = p.reg("pred")
                    p(f"bar.red.{op}.pred {r}, 1, 128, {neg}{q};")
                    p.out(r, "pred")
    # What might never end; the recorder gives up after some seconds and says so.
    with Probe("barrier_risky", "exited_counted", block=128, shared=1024) as p:
        exit_and_sync(p, "bar.sync 3, 128;", late=False)
    with Probe("barrier_risky", "exited_counted_late", block=128, shared=1024) as p:
        exit_and_sync(p, "bar.sync 3, 128;", late=True)
    with Probe("barrier_risky", "arrives_twice", block=64, shared=1024) as p:
        a, c, other, r, x = p.shared_at(4), p.reg("pred"), p.reg(), sentinel(p), p.input()
        p(f"xor.b32 {other}, {a}, 128;", f"setp.lt.u32 {c}, {p.tid}, 32;", f"st.shared.b32 [{a}], {x};", f"@{c} bra TWICE;",
          "bar.sync 3, 96;", f"ld.shared.b32 {r}, [{other}];", "bra JOIN;", "TWICE:", "bar.arrive 3, 96;", "bar.arrive 3, 96;", "JOIN:")
        p.out(r)
    with Probe("barrier_risky", "half_warp", block=64, shared=1024) as p:
        a, c, r, x = p.shared_at(4), p.reg("pred"), sentinel(p), p.input()
        p(f"setp.lt.u32 {c}, {p.tid}, 16;", f"st.shared.b32 [{a}], {x};", f"@{c} bra SKIP;",
          "barrier.sync 3, 64;", f"ld.shared.b32 {r}, [{a}];", "SKIP:")
        p.out(r)


def exit_and_sync(p, sync, late):
    """The last warp leaves (after a while, when `late`), the others synchronise and exchange words."""
    a, c, r, x, at, lane, last = p.shared_at(4), p.reg("pred"), p.reg(), p.input(), p.reg(), p.reg(), p.reg("pred")
    p(f"add.u32 {lane}, {p.tid}, 32;", f"rem.u32 {lane}, {lane}, 96;", f"mov.u32 {at}, s;", f"mad.lo.u32 {at}, {lane}, 4, {at};",
      f"setp.ge.u32 {last}, {p.tid}, 96;")
    if late:
        p(f"@{last} nanosleep.u32 100000;")
    p(f"@{last} exit;", f"st.shared.b32 [{a}], {x};", sync, f"ld.shared.b32 {r}, [{at}];")
    p.out(r)


def registers():
    with Probe("registers", "setmaxnreg", block=384, directives="\n    .maxntid 384, 1, 1\n    .maxnreg 168\n") as p:
        group, first, acc = p.reg(), p.reg("pred"), p.reg()
        keep = [p.input() for _ in range(24)]
        p(f"shr.u32 {group}, {p.tid}, 7;", f"setp.eq.u32 {first}, {group}, 0;", f"@{first} bra.uni SMALL;",
          "setmaxnreg.inc.sync.aligned.u32 232;", f"mov.b32 {acc}, {keep[0]};")
        p(*[f"mad.lo.u32 {acc}, {acc}, 3, {k};" for k in keep], "setmaxnreg.dec.sync.aligned.u32 160;", "bra.uni DONE;", "SMALL:",
          "setmaxnreg.dec.sync.aligned.u32 40;", f"mov.b32 {acc}, {keep[1]};")
        p(*[f"mad.lo.u32 {acc}, {acc}, 5, {k};" for k in keep], "setmaxnreg.inc.sync.aligned.u32 104;",
          "setmaxnreg.dec.sync.aligned.u32 24;", "DONE:", "bar.sync 0;")
        p.out(acc)


def clusters():
    two = "\n    .explicitcluster\n    .reqnctapercluster 2, 1, 1\n"

    def barrier(p):
        p("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")

    def ready(p, count, nbytes):
        lead, b = p.reg("pred"), p.reg()
        p(f"setp.eq.u32 {lead}, {p.tid}, 0;", f"mov.u32 {b}, bar;", f"@{lead} mbarrier.init.shared.b64 [{b}], {count};",
          "fence.mbarrier_init.release.cluster;")
        t = p.reg("b64")
        if nbytes:
            p(f"@{lead} mbarrier.arrive.expect_tx.shared.b64 {t}, [{b}], {nbytes};")
        barrier(p)
        return lead, b

    def wait(p, b):
        ok = p.reg("pred")
        p("WAIT:", f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 {ok}, [{b}], 0;", f"@!{ok} bra WAIT;")

    def rank_is(p, n):
        rank, c = p.reg(), p.reg("pred")
        p(f"mov.u32 {rank}, %cluster_ctarank;", f"setp.eq.u32 {c}, {rank}, {n};")
        return rank, c

    def mine(p, words):
        a = p.shared_at(4)
        for i in range(words):
            r = p.reg()
            p(f"ld.shared.b32 {r}, [{a}+{128 * i}];")
            p.out(r)

    c = dict(block=32, grid=4, cluster=2, shared=2048, directives=two)
    with Probe("cluster", "cluster_registers", **c) as p:
        for s in ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "cluster_nctaid.x", "clusterid.x", "nclusterid.x"):
            r = p.reg()
            p(f"mov.u32 {r}, %{s};")
            p.out(r)
        q = p.reg("pred")
        p(f"mov.pred {q}, %is_explicit_cluster;")
        p.out(q, "pred")
    for mask in (1, 2, 3):
        with Probe("cluster", f"bulk_multicast_{mask}", **c) as p:
            for _ in range(4):
                p.input()
            z, a = p.reg(), p.shared_at(4)
            p(f"mov.b32 {z}, 0;", *[f"st.shared.b32 [{a}+{128 * i}], {z};" for i in range(2)], "fence.proxy.async;")
            lead, b = ready(p, 1, 256)
            rank, zero = rank_is(p, 0)
            go, one = p.reg("pred"), p.reg("pred")
            m = p.reg("b16")
            p(f"and.pred {go}, {lead}, {zero};", f"mov.b16 {m}, {mask};")
            p(f"@{go} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
              f"[s], [{p.base_in}], 256, [{b}], {m};")
            bit = p.reg()
            p(f"shr.u32 {bit}, {mask}, {rank};", f"and.b32 {bit}, {bit}, 1;", f"setp.eq.u32 {one}, {bit}, 0;", f"@{one} bra DONE;")
            wait(p, b)
            p("DONE:")
            barrier(p)
            mine(p, 2)
    with Probe("cluster", "tensor_multicast", map=dict(over="in", type=U32, dims=[32, 16], strides=[128], box=[32, 8]), **c) as p:
        for _ in range(4):
            p.input()
        lead, b = ready(p, 1, 2048)
        rank, _ = rank_is(p, 0)
        q, m, row, dst, off = p.reg("b64"), p.reg("b16"), p.reg(), p.reg(), p.reg()
        p(f"mov.b64 {q}, tensor_multicast_map;", f"cvta.param.u64 {q}, {q};", f"mov.b16 {m}, 3;", f"shl.b32 {row}, {rank}, 3;",
          f"mov.u32 {dst}, s;", f"mad.lo.u32 {dst}, {rank}, 1024, {dst};")
        # Each CTA sends its half to both.
        p(f"@{lead} cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
          f"[{dst}], [{q}, {{0, {row}}}], [{b}], {m};")
        wait(p, b)
        barrier(p)
        mine(p, 16)
    with Probe("cluster", "remote_access", **c) as p:
        a, remote, peer = p.shared_at(4), p.reg(), p.reg()
        rank, _ = rank_is(p, 0)
        p(f"xor.b32 {peer}, {rank}, 1;", f"mapa.shared::cluster.u32 {remote}, {a}, {peer};",
          f"st.shared.b32 [{a}], {p.input()};", f"st.shared.b32 [{a}+128], {p.input()};", f"st.shared.b32 [{a}+256], {p.input()};")
        barrier(p)
        r = p.reg()
        p(f"ld.shared::cluster.b32 {r}, [{remote}];")
        p.out(r)
        p(f"st.shared::cluster.b32 [{remote}+128], {p.input()};")
        for op in ("add.u32", "max.s32", "xor.b32"):
            p.op(f"atom.shared::cluster.{op}", "b32", f"[{remote}+256]", "b32")
        p(f"red.shared::cluster.add.u32 [{remote}+256], 5;")
        rk = p.reg()
        p(f"getctarank.shared::cluster.u32 {rk}, {remote};")
        p.out(rk)
        barrier(p)
        mine(p, 3)
    with Probe("cluster", "st_async", **c) as p:
        lead, b = ready(p, 1, 32 * 8)
        a, remote, rb, peer = p.shared_at(4), p.reg(), p.reg(), p.reg()
        rank, _ = rank_is(p, 0)
        p(f"xor.b32 {peer}, {rank}, 1;", f"mapa.shared::cluster.u32 {remote}, {a}, {peer};", f"mapa.shared::cluster.u32 {rb}, {b}, {peer};")
        for i in range(2):
            p(f"st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [{remote}+{128 * i}], {p.input()}, [{rb}];")
        wait(p, b)
        mine(p, 2)
        barrier(p)
    with Probe("cluster", "red_async", **c) as p:
        a = p.shared_at(4)
        ops = ("add.u32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32", "inc.u32", "dec.u32")
        for i in range(len(ops)):
            p(f"st.shared.b32 [{a}+{128 * i}], {p.small(5)};")
        lead, b = ready(p, 1, 32 * 4 * len(ops))
        remote, rb, peer = p.reg(), p.reg(), p.reg()
        rank, _ = rank_is(p, 0)
        p(f"xor.b32 {peer}, {rank}, 1;", f"mapa.shared::cluster.u32 {remote}, {a}, {peer};", f"mapa.shared::cluster.u32 {rb}, {b}, {peer};")
        for i, op in enumerate(ops):
            p(f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} [{remote}+{128 * i}], {p.small(5)}, [{rb}];")
        wait(p, b)
        mine(p, len(ops))
        barrier(p)
    with Probe("cluster", "bulk_between_ctas", **c) as p:
        a, z = p.shared_at(4), p.reg()
        for i in range(2):
            p(f"st.shared.b32 [{a}+{128 * i}], {p.input()};")
        p("fence.proxy.async;")
        lead, b = ready(p, 1, 256)
        rank, _ = rank_is(p, 0)
        src, dst, rb, peer = p.reg(), p.reg(), p.reg(), p.reg()
        p(f"xor.b32 {peer}, {rank}, 1;", f"mov.u32 {src}, s;", f"add.u32 {dst}, {src}, 256;", f"mapa.shared::cluster.u32 {dst}, {dst}, {peer};",
          f"mapa.shared::cluster.u32 {rb}, {b}, {peer};",
          f"@{lead} cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{dst}], [{src}], 256, [{rb}];")
        wait(p, b)
        mine(p, 4)
        barrier(p)
    with Probe("cluster", "remote_arrive", **c) as p:
        lead, b = ready(p, 33, 0)
        rank, _ = rank_is(p, 0)
        rb, peer, a, remote, t = p.reg(), p.reg(), p.shared_at(4), p.reg(), p.reg("b64")
        p(f"xor.b32 {peer}, {rank}, 1;", f"mapa.shared::cluster.u32 {rb}, {b}, {peer};", f"mapa.shared::cluster.u32 {remote}, {a}, {peer};",
          f"st.shared::cluster.b32 [{remote}], {p.input()};", f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{rb}];",
          f"@{lead} mbarrier.arrive.shared.b64 {t}, [{b}];")
        wait(p, b)
        mine(p, 1)
        barrier(p)


def main():
    for family in (shuffles, votes, matrices, atomics, reductions, halves, bits, barriers, registers, clusters):
        family()
    for name, kernels in FILES.items():
        head = "// Written by generate.py: probes that a device and the emulator run alike.\n.version 8.7\n.target sm_90a\n.address_size 64\n\n"
        (HERE / f"{name}.ptx").write_text(head + "\n".join(kernels))
    lines = ",\n".join("  " + json.dumps(m) for m in MANIFEST)
    (HERE / "manifest.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
