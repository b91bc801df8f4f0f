from measure import *
for hd in (64, 96, 128, 256):
    for m in (0, 1, 2):
        kn = Kernel(hd, "bf16", m)
        for (b, hq, hk, sq, sk) in ((1, 2, 1, 257, 383), (1, 2, 2, 129, 0), (2, 2, 1, 64, 700), (1, 1, 1, 300, 77)):
            q = torch.randn(b, sq, hq, hd, device=dev, dtype=torch.bfloat16); k = torch.randn(b, max(sk, 1), hk, hd, device=dev, dtype=torch.bfloat16)[:, :sk]; v = torch.randn(b, max(sk, 1), hk, hd, device=dev, dtype=torch.bfloat16)[:, :sk]
            o = torch.empty_like(q); lse = torch.empty(b, hq, sq, device=dev)
            kw = dict(wl=40, wr=3, cap=20.0, sinks=torch.randn(hq, device=dev)) if m == 2 else {}
            for pers in (True, False): kn.prep(q, k, v, o, lse, 8.0, pers, **kw)()
            torch.cuda.synchronize(); assert not torch.isnan(o).any()
print("small done")
