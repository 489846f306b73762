"""The same numbers in numpy, in two forms, for bench/speed: tuned, over all inputs at once; and as one would write it.

    python3 kernel.py S N K CRITICAL

Standard input begins with the passes, little-endian float32 [S][N][K]; the first CRITICAL classes are critical, the others
safe. The first line printed has the results of both forms as JSON; then each line read, "tuned" or "idiomatic", is answered
with ns per pass x class.
"""
import json
import sys
import time

import numpy as np

EPS = 1e-10


class Tuned:
    """All inputs at once, preallocated, in place, float64; no CBEC."""

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

    results = run


def decompose(passes, critical, safe):
    """One input, [S][K], by the formulas, as a scientist would write them."""
    p = passes.astype(np.float64)
    mean = p.mean(axis=0)
    variance = p.var(axis=0, ddof=1)
    third = ((p - mean) ** 3).mean(axis=0)
    c = 0.5 * variance / (mean + EPS)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = np.where(variance > 0, np.abs(third) / (3 * mean * variance), 0)
        p_log_p = np.where(p > 0, p * np.log(p), 0)
        mean_log = np.where(mean > 0, mean * np.log(mean), 0)
        correlation = np.corrcoef(p, rowvar=False)
    entropy = -mean_log.sum()
    expected_entropy = -p_log_p.sum(axis=1).mean()
    m = np.maximum(p_log_p.mean(axis=0) - mean_log, 0)
    cbec = 0.0
    for i in safe:
        for j in critical:
            if correlation[i, j] < 0:
                cbec += np.sqrt(c[i] * c[j]) * -correlation[i, j]
    return {"mean": mean, "variance": variance, "third": third, "c": c, "skewness": skewness, "m": m,
            "entropy": entropy, "mi": entropy - expected_entropy, "cbec": cbec}


class Idiomatic:
    """A loop over the inputs."""

    def __init__(self, p32, critical):
        self.p32, self.critical, self.safe = p32, range(critical), range(critical, p32.shape[2])

    def run(self):
        return [decompose(self.p32[:, i], self.critical, self.safe) for i in range(self.p32.shape[1])]

    def results(self):
        inputs = self.run()
        return {name: np.array([x[name] for x in inputs]) for name in inputs[0]}


def main():
    S, N, K, critical = map(int, sys.argv[1:])
    p32 = np.frombuffer(sys.stdin.buffer.read(4 * S * N * K), "<f4").reshape(S, N, K)
    forms = {"tuned": Tuned(p32), "idiomatic": Idiomatic(p32, critical)}
    results = {name: {k: v.ravel().tolist() for k, v in form.results().items()} for name, form in forms.items()}
    print(json.dumps(results), flush=True)
    for line in sys.stdin.buffer:
        run, times = forms[line.decode().strip()].run, 0
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) < 0.005 or times < 2:
            run()
            times += 1
        print(passed / times / p32.size * 1e9, flush=True)


if __name__ == "__main__":
    main()
