"""The same numbers in numpy, in two forms, for bench/speed: tuned, and as one would write it.

    python3 kernel.py PASSES.f32 S N K CRITICAL

PASSES.f32 is little-endian float32 [S][N][K]; the first CRITICAL classes are critical, the others safe. The first line
printed has the results of both forms as JSON; then each line read, "tuned" or "idiomatic" and the seconds to run, is
answered with ns per pass x class.
"""
import json
import sys
import time

import numpy as np

EPS = 1e-10


class Tuned:
    """Preallocated, in place, float64; no CBEC."""

    def __init__(self, p32):
        self.p32 = p32.reshape(p32.shape[0], -1)
        self.S, self.W = self.p32.shape
        self.K = p32.shape[2]
        self.p, self.d, self.x = (np.empty((self.S, self.W)) for _ in range(3))
        self.ones = np.full(self.S, 1 / self.S)
        self.m2, self.m3, self.div, self.mean, self.scratch, self.inv = (np.empty(self.W) for _ in range(6))

    def run(self):
        S, p, d, x, scratch = self.S, self.p, self.d, self.x, self.scratch
        p[...] = self.p32
        mean = np.dot(self.ones, p, out=self.mean)
        np.subtract(p, mean, out=d)
        np.multiply(d, d, out=x)
        np.add.reduce(x, axis=0, out=self.m2)
        third = np.einsum("sw,sw->w", x, d, out=self.m3)
        np.maximum(mean, 1e-300, out=scratch)
        np.divide(1, scratch, out=self.inv)
        np.multiply(p, self.inv, out=x)
        np.maximum(x, 1e-300, out=x)
        np.log(x, out=x)
        m = np.einsum("sw,sw->w", p, x, out=self.div)
        m *= 1 / S
        third *= 1 / S
        variance = self.m2
        variance *= 1 / (S - 1)
        c = variance / (mean + EPS)
        c *= 0.5
        under = mean * variance
        under *= 3
        skewness = np.abs(third) / np.maximum(under, 1e-300)
        np.log(scratch, out=scratch)
        scratch *= mean
        entropy = -scratch.reshape(-1, self.K).sum(1)
        mi = m.reshape(-1, self.K).sum(1)
        return {"mean": mean, "variance": variance, "third": third, "c": c, "skewness": skewness, "m": m,
                "entropy": entropy, "mi": mi}


class Idiomatic:
    """As a scientist would write it, with CBEC."""

    def __init__(self, p32, critical):
        self.p32, self.critical = p32, critical

    def run(self):
        p = self.p32.astype(np.float64)
        S, N, K = p.shape
        mean = p.mean(axis=0)
        variance = p.var(axis=0, ddof=1)
        third = ((p - mean) ** 3).mean(axis=0)
        c = np.where(mean > 0, 0.5 * variance / (mean + EPS), 0)
        under = 3 * mean * variance
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness = np.where(under > 0, np.abs(third) / under, 0)
            entropies = np.where(p > 0, p * np.log(p), 0)
            mean_log = np.where(mean > 0, mean * np.log(mean), 0)
        m = np.maximum(entropies.mean(axis=0) - mean_log, 0)
        entropy = -mean_log.sum(axis=1)
        mi = entropy + entropies.sum(axis=2).mean(axis=0)
        cbec = np.zeros(N)
        critical, safe = np.arange(self.critical), np.arange(self.critical, K)
        for i in range(N):
            cov = np.cov(p[:, i, :], rowvar=False)
            root = np.sqrt(mean[i] + EPS)
            pairs = np.maximum(0, -cov) / (2 * np.outer(root, root))
            cbec[i] = pairs[np.ix_(safe, critical)].sum()
        return {"mean": mean, "variance": variance, "third": third, "c": c, "skewness": skewness, "m": m,
                "entropy": entropy, "mi": mi, "cbec": cbec}


def main():
    path, S, N, K, critical = sys.argv[1], *map(int, sys.argv[2:])
    p32 = np.fromfile(path, "<f4").reshape(S, N, K)
    forms = {"tuned": Tuned(p32), "idiomatic": Idiomatic(p32, critical)}
    results = {name: {k: v.ravel().tolist() for k, v in form.run().items()} for name, form in forms.items()}
    print(json.dumps(results), flush=True)
    for line in sys.stdin:
        name, seconds = line.split()
        run, seconds, times = forms[name].run, float(seconds), 0
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds or times < 2:
            run()
            times += 1
        print(passed / times / p32.size * 1e9, flush=True)


if __name__ == "__main__":
    main()
