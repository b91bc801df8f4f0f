"""Correctness and timing of the fwd_sm90 cubins on a Hopper GPU, beside torch SDPA (cuDNN) and FA3.

    python3 measure.py correct|speed     (cubins in ./out/, named after their entries; appends to ./raw.jsonl)

Needs torch; the fa3-fwd wheel if FA3 is to be timed, too.
"""
import ctypes as C, glob, json, math, os, struct, subprocess, sys, time
import torch, torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
L = C.CDLL("libcuda.so.1"); dev = "cuda"
torch.zeros(1, device=dev); torch.cuda.synchronize()
HERE = os.path.dirname(os.path.abspath(__file__))
raw = open(os.path.join(HERE, "raw.jsonl"), "a")
def rec(**kw): raw.write(json.dumps(kw) + "\n"); raw.flush()
def ck(r, w):
    if r:
        p = C.c_char_p(); L.cuGetErrorName(r, C.byref(p)); raise RuntimeError(f"{w}: {r} {p.value}")
def cfg(hd, causal, var=""):
    g = 3 if hd == 64 else 2
    n = 80 if hd == 256 else (176 if causal == 0 else 128) if hd == 128 else (160 if causal == 0 else 128) if hd == 96 else 128
    return g, n, 1, 4
class Kernel:
    def __init__(s, hd, dt, causal, var=""):
        s.hd, s.dt, s.causal = hd, dt, causal
        s.g, s.n, qst, st = cfg(hd, causal, var)
        name = f"fwd_sm90_hd{hd}_{dt}_{('full', 'causal', 'general')[int(causal)]}"
        s.data = open(f"{HERE}/out{var}/{name}.cubin", "rb").read()
        m = C.c_void_p(); ck(L.cuModuleLoadData(C.byref(m), s.data), "load " + name)
        s.f = C.c_void_p(); ck(L.cuModuleGetFunction(C.byref(s.f), m, name.encode()), "fn")
        pan = (hd + 63) // 64
        qst = min((227 * 1024 - 256 - st * pan * s.n * 128) // (pan * 64 * 128), 2 * s.g)
        s.smem = qst * pan * 64 * 128 + st * pan * s.n * 128 + 256
        ck(L.cuFuncSetAttribute(s.f, 8, C.c_int(s.smem)), "smem")
        s.sms = torch.cuda.get_device_properties(0).multi_processor_count
    def tmap(s, t, rows):
        b, n, h, d = t.shape; es = 2
        buf = C.create_string_buffer(256); a = C.addressof(buf); o = (-a) % 64
        D = (C.c_uint64 * 4)(d, max(n, 1), h, b); S = (C.c_uint64 * 3)(*[max(t.stride(i) * es, 16) for i in (1, 2, 0)])
        B = (C.c_uint32 * 4)(64, rows, 1, 1); E = (C.c_uint32 * 4)(1, 1, 1, 1)
        ck(L.cuTensorMapEncodeTiled(C.c_void_p(a + o), C.c_int(9 if s.dt == "bf16" else 6), C.c_uint32(4), C.c_void_p(t.data_ptr()), D, S, B, E, 0, 3, C.c_int(2), 0), "map")
        return C.string_at(a + o, 128)
    def prep(s, q, k, v, o, lse=None, thr=8.0, persistent=True, scale=None, wl=-1, wr=-1, cap=0.0, sinks=None):
        b, sq, hq, d = q.shape; sk, hk = k.shape[1], k.shape[2]
        p = s.tmap(q, 64) + s.tmap(k, s.n) + s.tmap(v, s.n) + s.tmap(o, 64)
        p += struct.pack("<QQqqq", lse.data_ptr() if lse is not None else 0, sinks.data_ptr() if sinks is not None else 0, *((lse.stride(0), lse.stride(1), lse.stride(2)) if lse is not None else (0, 0, 0)))
        sc = scale or d ** -0.5; l2e = math.log2(math.e)
        p += struct.pack("<IIIIIiiIfff", sq, sk, hq, hq // hk, b, wl, wr, 1, 2 * l2e * sc / cap if cap else 0.0, (cap or sc) * l2e, thr)
        p += b"\0" * (640 - len(p))
        mb = -(-sq // (64 * s.g)); tiles = mb * hq * b
        grid = (min(tiles, s.sms), 1, 1) if persistent else (mb, hq, b)
        buf = C.create_string_buffer(len(p) + 128); a = C.addressof(buf); off = (-a) % 128; C.memmove(a + off, p, len(p))
        args = (C.c_void_p * 1)(a + off); hold = (buf, q, k, v, o, lse)
        blk = 128 * (s.g + 1)
        def run(_h=hold):
            r = L.cuLaunchKernel(s.f, grid[0], grid[1], grid[2], blk, 1, 1, s.smem, C.c_void_p(torch.cuda.current_stream().cuda_stream), args, None)
            if r: ck(r, "launch")
        return run
def ref(q, k, v, causal, scale=None, dt=torch.float64, wl=-1, wr=-1, cap=0.0, sinks=None):
    if causal == 1: wr = 0
    b, sq, hq, d = q.shape; sk, hk = k.shape[1], k.shape[2]; g = hq // hk
    o = torch.zeros(b, sq, hq, d, dtype=dt, device=dev); l = torch.full((b, hq, sq), -math.inf, dtype=dt, device=dev)
    if sk == 0: return o, l
    for bi in range(b):
        for h in range(hq):
            S = (q[bi, :, h].to(dt) @ k[bi, :, h // g].to(dt).T) * (scale or d ** -0.5)
            if cap: S = cap * torch.tanh(S / cap)
            i = torch.arange(sq, device=dev)[:, None] + sk - sq; j = torch.arange(sk, device=dev)[None]
            if wr >= 0: S = S.masked_fill(j > i + wr, -math.inf)
            if wl >= 0: S = S.masked_fill(j < i - wl, -math.inf)
            l[bi, h] = torch.logsumexp(S, -1)
            if sinks is not None: l[bi, h] = torch.where(torch.isinf(l[bi, h]), l[bi, h], torch.logaddexp(l[bi, h], sinks[h].to(dt)))
            P = torch.exp(S - l[bi, h][:, None]).nan_to_num(0.0)
            o[bi, :, h] = P @ v[bi, :, h // g].to(dt)
    return o, l
TD = {"bf16": torch.bfloat16, "fp16": torch.float16}
MASKS = ("full", "causal", "general")
def correct(specs, cases, var="", feats=({},)):
    bad = worst = n = 0
    for hd, dt, mask in specs:
        try: kn = Kernel(hd, dt, mask, var)
        except Exception as e: print("LOAD", hd, dt, mask, e); bad += 1; continue
        wk = 0
        for ci, (b, hq, hk, sq, sk, amp) in enumerate(cases):
            for ft in feats:
                torch.manual_seed(ci * 7 + hd); ft = dict(ft)
                q = torch.randn(b, sq, hq, hd, device=dev).mul(amp).to(TD[dt]); k = torch.randn(b, sk, hk, hd, device=dev).mul(amp).to(TD[dt]); v = torch.randn(b, sk, hk, hd, device=dev).to(TD[dt])
                if sk == 0: k = torch.zeros(b, 1, hk, hd, device=dev, dtype=TD[dt])[:, :0]; v = k
                if ft.get("sinks"): ft["sinks"] = torch.randn(hq, device=dev) * 2
                names = {a: (True if a == "sinks" else z) for a, z in ft.items()}
                ro, rl = ref(q, k, v, mask, **ft)
                # bound: O rounded to the type, and every P rounded to it; the rest is f32
                eps = 2.0 ** -8 if dt == "bf16" else 2.0 ** -11
                bnd = eps * (ro.abs() + (ref(q, k, v.abs(), mask, **ft)[0] if sk else 0)) + 1e-6 + (1e-5 * amp * amp * v.abs().max().double() if sk else 0)
                for pers, thr in ((True, 8.0), (False, 0.0)):
                    o = torch.full_like(q, float("nan")); lse = torch.full((b, hq, sq), float("nan"), device=dev)
                    kn.prep(q, k, v, o, lse, thr, pers, **ft)(); torch.cuda.synchronize()
                    ev = (o.double() - ro).abs()
                    ratio = (ev / bnd).nan_to_num(1e9).max().item(); rel = (ev.norm() / ro.norm().clamp_min(1e-30)).item() if sk else 0.0
                    inf = torch.isinf(rl); le = (lse.double() - rl).abs(); le = le[~inf].max().item() if (~inf).any() else 0.0
                    okinf = bool((lse[inf] == -math.inf).all()); nan = bool(torch.isnan(o).any() or torch.isnan(lse).any())
                    ok = ratio <= 1 and le < 1e-3 and okinf and not nan; bad += not ok; n += 1; wk = max(wk, ratio)
                    rec(kind="correct", var=var, hd=hd, dtype=dt, mask=MASKS[mask], features=names, b=b, hq=hq, hk=hk, sq=sq, sk=sk, amp=amp, persistent=pers, tau=thr, ratio=ratio, rel=rel, lse_err=le, ok=ok)
                    if not ok: print(f"BAD {var} hd{hd} {dt} {MASKS[mask]} {names} b{b} {hq}:{hk} {sq}x{sk} amp{amp} pers{int(pers)} ratio {ratio:.3f} rel {rel:.1e} lse {le:.1e}{'' if okinf else ' LSEINF'}{' NAN' if nan else ''}", flush=True)
        print(f"hd{hd} {dt} {MASKS[mask]}: worst ratio {wk:.3f}", flush=True)
    print(f"{n} runs:", "CORRECT" if not bad else f"{bad} BAD", flush=True); return bad
def flops(b, hq, sq, sk, d, causal): return 4.0 * b * hq * sq * sk * d / (2 if causal else 1)
def providers(q, k, v, causal, vars_, dt="bf16"):
    P = {}; hd = q.shape[-1]
    for var in vars_:
        try:
            kn = Kernel(hd, dt, causal, var); o = torch.empty_like(q)
            P["ours" + var] = (kn.prep(q, k, v, o), o)
        except Exception as e: print("prov", var, e)
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v)); gq = q.shape[2] != k.shape[2]
    def cud():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION): return F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal, enable_gqa=gq)
    P["cudnn"] = (cud, None)
    if FA3: P["fa3"] = (lambda: FA3(q, k, v, causal=causal), None)
    return P
FA3 = None
try:
    import importlib
    for m in ("fa3_fwd_interface", "fa3_fwd.flash_attn_interface", "flash_attn_interface", "fa3_fwd"):
        try: FA3 = importlib.import_module(m).flash_attn_func; break
        except Exception as e: pass
except Exception: pass
print("torch", torch.__version__, torch.cuda.get_device_name(), "cudnn", torch.backends.cudnn.version(), "fa3", bool(FA3))
def bench(cfgs, vars_=("",), rounds=7, target_ms=8.0, hdr=True):
    geo = {}
    for (b, hq, hk, s, d, causal) in cfgs:
        q = torch.randn(b, s, hq, d, device=dev, dtype=torch.bfloat16); k = torch.randn(b, s, hk, d, device=dev, dtype=torch.bfloat16); v = torch.randn(b, s, hk, d, device=dev, dtype=torch.bfloat16)
        P = providers(q, k, v, causal, vars_); T = {n: [] for n in P}
        for n, (f, o) in list(P.items()):
            try: f(); torch.cuda.synchronize()
            except Exception as e: print(n, "FAILED", repr(e)[:200]); del P[n]
        for r in range(rounds):
            for n, (f, o) in P.items():
                time.sleep(0.01)
                fl = flops(b, hq, s, s, d, causal); reps = max(2, int(target_ms / (fl / 6e11)))
                f()
                a, z = torch.cuda.Event(True), torch.cuda.Event(True); a.record()
                for _ in range(reps): f()
                z.record(); z.synchronize(); T[n].append(a.elapsed_time(z) / reps)
        row = {n: flops(b, hq, s, s, d, causal) / sorted(t)[len(t) // 2] / 1e9 for n, t in T.items() if t}
        best = max([x for n, x in row.items() if not n.startswith("ours")] or [1])
        rec(kind="burst", b=b, hq=hq, hk=hk, s=s, hd=d, causal=causal, tflops=row, ms=T)
        print(f"hd{d} s{s} b{b} {hq}:{hk} {'causal' if causal else 'full  '} " + "  ".join(f"{n} {x:.0f}" for n, x in row.items()) + "  ratio " + " ".join(f"{row[n]/best:.3f}" for n in row if n.startswith("ours")), flush=True)
        for n in row:
            if n.startswith("ours"): geo.setdefault((d, n), []).append(row[n] / best)
    for k2, x in geo.items(): print("GEOMEAN", k2, f"{math.exp(sum(map(math.log, x)) / len(x)):.3f}", "min", f"{min(x):.3f}")
def smi(): return subprocess.run("nvidia-smi --query-gpu=clocks.sm,power.draw,clocks_event_reasons.active,driver_version,temperature.gpu --format=csv,noheader", shell=True, capture_output=True, text=True).stdout.strip()
def sustained(cfgs, vars_=("",), secs=1.5):
    for (b, hq, hk, s, d, causal) in cfgs:
        q = torch.randn(b, s, hq, d, device=dev, dtype=torch.bfloat16); k = torch.randn(b, s, hk, d, device=dev, dtype=torch.bfloat16); v = torch.randn(b, s, hk, d, device=dev, dtype=torch.bfloat16)
        for n, (f, o) in providers(q, k, v, causal, vars_).items():
            f(); torch.cuda.synchronize(); fl = flops(b, hq, s, s, d, causal); reps = max(4, int(secs * 1e3 / (fl / 6e11)))
            a, m, z = (torch.cuda.Event(True) for _ in range(3)); 
            for _ in range(reps // 2): f()
            m.record()
            for _ in range(reps // 2): f()
            z.record(); time.sleep(secs * 0.7); st = smi(); z.synchronize(); t = m.elapsed_time(z) / (reps // 2)
            rec(kind="sustained", b=b, hq=hq, hk=hk, s=s, hd=d, causal=causal, provider=n, tflops=fl / t / 1e9, ms=t, clock_power=st)
            print(f"sustained hd{d} s{s} {'causal' if causal else 'full'} {n} {fl/t/1e9:.0f} TFLOP/s  [{st}]", flush=True)
CASES = [(1, 1, 1, 128, 128, 1), (1, 2, 1, 1, 1, 1), (2, 4, 2, 257, 383, 1), (1, 4, 1, 1000, 1000, 1), (1, 2, 2, 300, 77, 3), (1, 2, 1, 64, 2049, 1), (3, 3, 1, 511, 1025, 4), (2, 8, 8, 1024, 1024, 1), (1, 2, 2, 129, 0, 1), (1, 40, 8, 513, 700, 1), (1, 2, 2, 4096, 4096, 1), (2, 2, 1, 1024, 200, 1), (2, 40, 8, 1100, 1100, 1), (3, 50, 10, 700, 650, 1)]
def std(hd, ss=(1024, 2048, 4096, 8192, 16384)):
    return [(32768 // s, 2048 // hd, 2048 // hd, s, hd, c) for s in ss for c in (False, True)]

FEATURES = ({"wl": 100, "wr": 0}, {"wl": 30, "wr": 50, "sinks": 1}, {"cap": 20.0, "wr": 0}, {"wl": -1, "wr": 10, "cap": 15.0, "sinks": 1}, {}, {"sinks": 1, "wr": 0})
if __name__ == "__main__":
    if sys.argv[1] == "correct":
        bad = correct([(h, d, m) for h in (128, 64, 256, 96) for d in ("bf16", "fp16") for m in (0, 1)], CASES)
        bad += correct([(h, "bf16", 2) for h in (128, 64, 256, 96)] + [(128, "fp16", 2)], CASES[:9] + CASES[-3:-2], "", FEATURES)
        sys.exit(bad > 0)
    print(smi())
    bench(std(128) + [(1, 64, 8, 8192, 128, True)], rounds=7, target_ms=6)
    bench(std(64), rounds=7, target_ms=6)
    bench(std(256), rounds=5, target_ms=6)
    bench(std(96, (1024, 4096, 16384)), rounds=5, target_ms=6)
    sustained([(2, 16, 16, 16384, 128, False), (2, 16, 16, 16384, 128, True), (2, 32, 32, 16384, 64, False)], secs=1.0)
