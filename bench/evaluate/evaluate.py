"""The work of `ckd evaluate --format json` in plain numpy, for the tests of bench/evaluate.

    python3 evaluate.py PASSES.npy LABELS.npy --critical 2,3

Vectorised float64 throughout. Every ranking is sorted once; a resample counts how often each input was drawn and
sums these counts up in the order that is there. It prints the JSON of `ckd evaluate` without "source", "notes",
"signs" and exact intervals and, unlike ckd, neither checks the rows of the passes nor hashes the files. A figure of
nothing is NaN here and null in the JSON.
"""

import argparse
import json
import math

import numpy as np

COVERAGES = np.linspace(0.05, 1, 200)
SWEEP = np.array([0.1, 0.2, 0.3, 0.5])
EPSILON = 1e-10


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("passes")
    flags.add_argument("labels")
    flags.add_argument("--critical", required=True)
    flags.add_argument("--coverage", type=float, default=0.8)
    flags.add_argument("--reliability", type=float, default=0.3)
    flags.add_argument("--bootstrap", type=int, default=200)
    flags.add_argument("--seed", type=int, default=42)
    args = flags.parse_args()

    y = np.load(args.labels)
    t = decompose(np.load(args.passes).astype(np.float64), [int(k) for k in args.critical.split(",")])
    report = {
        "summary": summary(t, y, args.reliability),
        "classes": classification(t, y),
        "matrix": matrix(t, y),
        **selective(t, y, args),
        "residual": residuals(t),
        "skewness": skewness(t, y),
        "profiles": profiles(t, y),
        "signatures": signatures(t, y),
        "confusion": confusion(t),
        "dominant": np.bincount(t.C.argmax(1), minlength=t.K) / t.N,
    }
    report["paper_rule"] = paper_rule(t, report["policies"], args.reliability)
    print(json.dumps(plain(report)))


def plain(value):
    """What json writes: lists for arrays, None for NaN."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def decompose(p, critical):
    """Everything that the passes p [S,N,K] say of each input."""
    t = argparse.Namespace()
    t.S, t.N, t.K = p.shape
    t.critical = np.array(critical)
    t.safe = np.setdiff1d(np.arange(t.K), t.critical)
    t.is_critical = np.isin(np.arange(t.K), t.critical)

    mu = p.mean(0)
    t.predicted = mu.argmax(1)
    entropies = xlogx(p)
    t.MI = (entropies.mean(0) - xlogx(mu)).sum(1)
    rest = 1 - p[:, :, t.critical]
    ova = entropies[:, :, t.critical].mean(0) - xlogx(mu[:, t.critical])
    ova += xlogx(rest).mean(0) - xlogx(rest.mean(0))
    t.degenerate = (p == p[0]).all((0, 2))

    d = p - mu
    d2 = d * d
    var = d2.sum(0) / (t.S - 1)
    m3 = (d2 * d).mean(0)
    t.C = 0.5 * var / (mu + EPSILON)
    t.sum_c = t.C.sum(1)
    t.skewness = np.nan_to_num(divide(np.abs(m3), 3 * mu * var))
    t.critical_skewness = t.skewness[:, t.critical].max(1)

    cov = np.matmul(d.transpose(1, 2, 0), d.transpose(1, 0, 2)) / (t.S - 1)
    root = np.sqrt(mu + EPSILON)
    pair = np.maximum(0, -cov) / (2 * root[:, :, None] * root[:, None, :])
    pair[:, np.arange(t.K), np.arange(t.K)] = 0
    t.pair_mean = pair.mean(0)

    t.entropy = -xlogx(mu).sum(1)
    t.scores = {
        "entropy": t.entropy,
        "mi": t.MI,
        "maxprob": 1 - mu.max(1),
        "eu_var": var.sum(1),
        "var_crit": var[:, t.critical].max(1),
        "eu_var_crit": var[:, t.critical].sum(1),
        "ova_mi": ova.sum(1),
        "c_crit_sum": t.C[:, t.critical].sum(1),
        "c_crit_max": t.C[:, t.critical].max(1),
        "cbec": pair[:, t.safe][:, :, t.critical].sum((1, 2)),
    }
    t.paper = set(t.scores)
    t.scores["p_critical"] = mu[:, t.critical].sum(1)
    t.saturated = t.degenerate & (mu.max(1) == 1)
    return t


def summary(t, y, reliability):
    critical = t.is_critical[y]
    missed = critical & ~t.is_critical[t.predicted]
    largest = t.skewness.max(1)
    grade = np.arange(t.K)
    weights = (grade[:, None] - grade) ** 2
    m = matrix(t, y)
    independent = np.outer(m.sum(1), m.sum(0)) / t.N
    return {
        "inputs": t.N, "passes": t.S, "classes": t.K, "critical": critical.sum(), "missed": missed.sum(),
        "accuracy": (t.predicted == y).mean(),
        "macro_f1": macro_f1(m),
        "qwk": 1 - divide((weights * m).sum(), (weights * independent).sum()),
        "without_deferral": at_coverage(t, y, np.ones(t.N)),
        "pearson": pearson(t.sum_c, t.MI),
        "spearman": spearman(t.sum_c, t.MI),
        "inflation": divide(t.sum_c.mean(), t.MI.mean()),
        "inflation_factor": t.S / (t.S - 1),
        "residual_skewness": spearman(np.abs(t.sum_c - t.MI), largest),
        "fallback_share": (t.critical_skewness > reliability).mean(),
        "all_reliable": (largest < reliability).mean(),
        "degenerate": t.degenerate.sum(), "saturated": t.saturated.sum(),
    }


def classification(t, y):
    m = matrix(t, y)
    support, predicted, right = m.sum(1), m.sum(0), np.diag(m)
    uncertainty = divide(np.bincount(y, t.entropy, t.K), support)
    return [{
        "name": str(k), "critical": t.is_critical[k], "safe": ~t.is_critical[k],
        "support": support[k], "predicted": predicted[k],
        "precision": divide(right[k], predicted[k]), "recall": divide(right[k], support[k]),
        "f1": divide(2 * right[k], support[k] + predicted[k]),
        "uncertainty": uncertainty[k], "uncertainty_share": uncertainty[k] / np.nansum(uncertainty),
    } for k in range(t.K)]


def matrix(t, y):
    return np.bincount(y * t.K + t.predicted, minlength=t.K * t.K).reshape(t.K, t.K)


def selective(t, y, args):
    """Policies, pairwise and curves: every ranking in both scopes, at every coverage, and over resamples."""
    critical = t.is_critical[y]
    wrong = t.predicted != y
    treated = t.is_critical[t.predicted]
    missed = critical & ~treated
    outcomes = np.stack([critical, missed, critical & wrong, wrong])  # what a retained input adds to the counts
    everyone = critical.sum()
    kept = np.ceil(COVERAGES * t.N - 1e-9).astype(int)
    at = int(np.ceil(args.coverage * t.N - 1e-9))

    rows, curves, wrongly, orders, keys = [], [], [], [], []
    for name, scope, key in rankings(t, args.reliability):
        order = np.argsort(key, kind="stable")
        counts = over_ties(key[order], outcomes[:, order]).cumsum(1)
        called = over_ties(key[order], treated[None, order]).cumsum(1)[0, kept - 1]
        weight = np.empty(t.N)  # the chance of each input to be retained at the coverage
        weight[order] = over_ties(key[order], (np.arange(t.N) < at)[None])[0]
        n_critical, n_missed, n_critical_wrong, n_wrong = c = counts[:, kept - 1]
        aurc, augrc = whole_curve(key[order], wrong[order])
        paper = {
            "critical_fnr": area(divide(n_missed, np.maximum(n_critical, 1))),
            "critical_error": area(divide(n_critical_wrong, np.maximum(n_critical, 1))),
            "error_rate": area(n_wrong / kept),
        }
        rows.append({
            "name": name, "scope": scope, **at_coverage(t, y, weight), "ausc_paper": paper,
            "aurc": aurc, "augrc": augrc, "joint_area": area(divide(n_missed, everyone)),
        })
        curves.append({
            "name": name, "scope": scope, "critical_retained": c[0], "critical_missed": c[1],
            "wrong": c[3], "called_critical": called,
        })
        orders.append(order)
        keys.append(key)
        wrongly.append(n_critical_wrong)
    for scope in "all", "predicted-safe":
        of = [r for r, row in enumerate(rows) if row["scope"] == scope]
        first = defined_from([curves[r]["critical_retained"] for r in of if rows[r]["name"] != "p_critical"])
        for r in of:
            c = curves[r]
            rows[r]["ausc_from"] = COVERAGES[first] if first < 199 else np.nan
            rows[r]["ausc"] = {
                "critical_fnr": area(divide(c["critical_missed"], c["critical_retained"]), first),
                "critical_error": area(divide(wrongly[r], c["critical_retained"]), first),
                "error_rate": rows[r]["ausc_paper"]["error_rate"],
            }
            for s in of[: of.index(r)]:
                if "same_as" not in rows[s] and same_ranking(keys[s], keys[r], orders[s], orders[r]):
                    rows[r]["same_as"] = rows[s]["name"]
                    break

    ranges = [(row["scope"], row["name"] != "p_critical") for row in rows]
    ausc, paper, fnr, error, accuracy = bootstrap(orders, keys, outcomes, kept, at, ranges, args.bootstrap, args.seed)
    for r, row in enumerate(rows):
        of = [
            s for s, other in enumerate(rows)
            if other["scope"] == row["scope"] and other["name"] in t.paper and "same_as" not in other
        ]
        lowest = np.nanmin(ausc[of], 0)
        r_won = r if "same_as" not in row else [
            s for s, other in enumerate(rows) if other["scope"] == row["scope"] and other["name"] == row["same_as"]][0]
        if rows[r_won]["name"] in t.paper:
            win = np.where(ausc[r_won] == lowest, 1 / (ausc[of] == lowest).sum(0), 0)
        else:
            win = ausc[r_won] < lowest
        row["bootstrap"] = {**interval(ausc[r]), "win_share": win[~np.isnan(lowest)].mean()}
        row["bootstrap_paper"] = interval(paper[r])
        row["bootstrap_at_coverage"] = {
            "critical_fnr": interval(fnr[r]), "critical_error": interval(error[r]), "accuracy": interval(accuracy[r]),
        }
    pairwise = [
        {
            "row": a["name"], "column": b["name"], "scope": a["scope"],
            "p": divide((ausc[i] < ausc[j]).sum(), (~np.isnan(ausc[i] + ausc[j])).sum()),
        }
        for i, a in enumerate(rows) for j, b in enumerate(rows)
        if i != j and a["scope"] == b["scope"] and not {"same_as"} & (a.keys() | b.keys())
        and "p_critical" not in (a["name"], b["name"])
    ]
    return {
        "policies": rows, "pairwise": pairwise,
        "curves": {"coverage": COVERAGES, "retained": kept, "rows": curves},
    }


def at_coverage(t, y, weight):
    """The figures of inputs that are retained with some chance each."""
    critical, called = t.is_critical[y], t.is_critical[t.predicted]
    everyone, n = critical.sum(), int(round(weight.sum()))
    count = lambda of: (weight * of).sum()
    missed, kept, treated, falsely = count(critical & ~called), count(critical), count(called), count(called & ~critical)
    per = 1000 / t.N
    m = np.bincount(y * t.K + t.predicted, weight, minlength=t.K * t.K).reshape(t.K, t.K)
    classes = []
    for k in np.sort(t.critical):
        inputs, lost = (y == k).sum(), count((y == k) & ~called)
        classes.append({
            "class": str(k), "inputs": inputs, "missed": lost, "critical_miss_rate": lost / inputs if inputs >= 20 else np.nan,
        })
    rates = [c["critical_miss_rate"] for c in classes]
    worst = "" if np.isnan(rates).all() else classes[np.nanargmax(rates)]["class"]
    return {
        "coverage": n / t.N, "retained": n, "critical_missed": missed,
        "critical_miss_rate": divide(missed, everyone), "called_critical": treated, "false_calls": falsely,
        "per_1000": {
            "deferred": per * (t.N - n), "reviews": per * (t.N - n),
            "called_critical": per * treated, "false_calls": per * falsely, "missed": per * missed,
        },
        "critical_classes": classes, "worst_class": worst,
        "critical_fnr": divide(missed, kept),
        "critical_error": divide(count(critical & (y != t.predicted)), kept),
        "accuracy": count(y == t.predicted) / n, "macro_f1": macro_f1(m), "critical_retained": kept,
        "critical_deferred_share": divide(everyone - kept, everyone),
    }


def macro_f1(m):
    """The mean of F1 over the classes that have it."""
    return np.nanmean(divide(2 * np.diag(m), m.sum(0) + m.sum(1)))


def defined_from(critical_retained):
    """The first coverage at which all rankings retain critical inputs."""
    return (np.array(critical_retained) == 0).sum(1).max()


def same_ranking(a, b, order_a, order_b):
    """Whether two keys order the inputs that may be deferred alike, up to rounding."""
    def follows(a, b, order):
        order = order[np.isfinite(a[order])]
        x, y = a[order], b[order]
        near = lambda v, w: np.abs(v - w) <= 1e-5 * np.maximum(np.abs(v), np.abs(w)) + 1e-6 * np.abs(y).max(initial=0)
        highest = np.maximum.accumulate(y)
        tied = np.diff(x) == 0
        return near(y, highest).all() and near(y[1:], y[:-1])[tied].all()
    return follows(a, b, order_a) and follows(b, a, order_b)


def over_ties(key, values):
    """Values in the order of sorted keys, each replaced by the mean over its tie."""
    _, tie, size = np.unique(key, return_inverse=True, return_counts=True)
    return np.stack([(np.bincount(tie, v) / size)[tie] for v in values])


def bootstrap(orders, keys, outcomes, kept, at, ranges, resamples, seed):
    """AUSC of critical FNR, the paper's, and figures at the coverage, as [ranking, resample]."""
    n = outcomes.shape[1]
    ties = [np.unique(key, return_inverse=True)[1] for key in keys]
    cuts = np.append(kept, at)
    counts = np.empty((len(orders), 4, len(cuts)))
    ausc, paper, fnr, error, accuracy = np.empty((5, len(orders), resamples))
    rng = np.random.default_rng(seed)
    for b in range(resamples):
        times = np.bincount(rng.integers(0, n, n), minlength=n).astype(np.int32)
        for r, tie in enumerate(ties):
            drawn = np.bincount(tie, times)
            retained = drawn.cumsum()
            last = retained.searchsorted(cuts)  # the tie at the cut, which counts in part
            beyond = (retained[last] - cuts) / drawn[last]
            of = np.stack([np.bincount(tie, times * o) for o in outcomes])
            counts[r] = of.cumsum(1)[:, last] - beyond * of[:, last]
        critical, missed, critical_wrong, wrong = counts.swapaxes(0, 1)
        risk = divide(missed, critical)
        for scope in "all", "predicted-safe":
            of = [r for r, (s, _) in enumerate(ranges) if s == scope]
            first = defined_from([critical[r, :-1] for r in of if ranges[r][1]])
            for r in of:
                ausc[r, b] = area(risk[r, :-1], first)
        paper[:, b] = area(divide(missed, np.maximum(critical, 1))[:, :-1])
        fnr[:, b] = risk[:, -1]
        error[:, b] = divide(critical_wrong[:, -1], critical[:, -1])
        accuracy[:, b] = 1 - wrong[:, -1] / at
    return ausc, paper, fnr, error, accuracy


def rankings(t, reliability):
    """Name, scope and key of every ranking: the lower the key, the earlier an input is retained."""
    treated = t.is_critical[t.predicted]
    gates = {"any-critical": t.critical_skewness > reliability}
    for scope, never in ("all", np.zeros(t.N, bool)), ("predicted-safe", treated):
        for name, score in t.scores.items():
            yield name, scope, np.where(never, -np.inf, score)
        for name, falls in gates.items():
            key = np.full(t.N, -np.inf)
            for group, score in (~falls & ~never, "c_crit_max"), (falls & ~never, "cbec"):
                key[group] = (ranks(t.scores[score][group]) - 0.5) / max(group.sum(), 1)
            yield name, scope, key


def whole_curve(key, wrong):
    """AURC and AUGRC of sorted keys, in expectation over the order within ties."""
    _, tie, size = np.unique(key, return_inverse=True, return_counts=True)
    errors = (np.bincount(tie, wrong) / size)[tie].cumsum()
    n = len(key)
    return (errors / np.arange(1, n + 1)).mean(), np.trapz(np.concatenate([[0], errors])) / n**2


def residuals(t):
    bins = np.searchsorted(SWEEP, t.skewness.max(1))
    n = np.bincount(bins, minlength=5)
    residual, mi = np.bincount(bins, t.sum_c - t.MI, 5), np.bincount(bins, t.MI, 5)
    above, up_to = [0, *SWEEP], [*SWEEP, None]
    return [{
        "above": above[b], "up_to": up_to[b], "n": n[b],
        "mean": divide(residual[b], n[b]), "relative": divide(residual[b], mi[b]),
    } for b in range(5)]


def skewness(t, y):
    return [{
        "class": str(k), **skewness_of(t.skewness[:, k]),
        "by_true": [{"true": str(j), "n": (y == j).sum(), **skewness_of(t.skewness[y == j, k])} for j in range(t.K)],
    } for k in range(t.K)]


def skewness_of(values):
    if len(values) == 0:
        return {"median": np.nan, "mean": np.nan, "p90": np.nan, "reliable": {str(x): np.nan for x in SWEEP}}
    median, p90 = np.quantile(values, [0.5, 0.9])
    return {
        "median": median, "mean": values.mean(), "p90": p90,
        "reliable": {str(x): (values < x).mean() for x in SWEEP},
    }


def paper_rule(t, rows, reliability):
    rows = {row["name"]: row for row in rows if row["scope"] == "all" and row["name"] in t.paper}
    median = np.median(t.skewness[:, t.critical], axis=0).max()
    rule = rows["cbec" if median > reliability else "c_crit_max"]
    rule_first = [rule, *rows.values()]
    best_ausc = min(rule_first, key=lambda row: row["ausc"]["critical_fnr"])
    best_fnr = min(rule_first, key=lambda row: row["critical_fnr"])
    return {
        "median_critical_skewness": median, "score": rule["name"],
        "best_ausc": best_ausc["name"],
        "cost_ausc": rule["ausc"]["critical_fnr"] - best_ausc["ausc"]["critical_fnr"],
        "best_critical_fnr": best_fnr["name"],
        "cost_critical_fnr": rule["critical_fnr"] - best_fnr["critical_fnr"],
    }


def profiles(t, y):
    normalised = np.nan_to_num(divide(t.C, t.sum_c[:, None]))
    return {
        "n": np.bincount(y, minlength=t.K),
        "raw": [mean(t.C[y == k]) for k in range(t.K)],
        "normalised": [mean(normalised[y == k]) for k in range(t.K)],
    }


def signatures(t, y):
    found = []
    for true in range(t.K):
        for predicted in range(t.K):
            of = (y == true) & (t.predicted == predicted)
            if of.any():
                c = t.C[of].mean(0)
                found.append({
                    "true": str(true), "predicted": str(predicted), "n": of.sum(), "mi": t.MI[of].mean(), "c": c,
                    "dominant": str(c.argmax()),
                })
    return found


def confusion(t):
    def block(a, b):
        different = a[:, None] != b
        return divide(t.pair_mean[np.ix_(a, b)].sum(), different.sum())

    cross, safe, critical = block(t.safe, t.critical), block(t.safe, t.safe), block(t.critical, t.critical)
    return {
        "matrix": t.pair_mean, "cross_boundary": cross, "within_safe": safe, "within_critical": critical,
        "cross_to_safe": divide(cross, safe), "cross_to_critical": divide(cross, critical),
    }


def area(risk, first=0):
    """Area under a risk over the coverages from number first on, by trapezoids, along the last axis."""
    return np.trapz(risk[..., first:], COVERAGES[first:]) if first < len(COVERAGES) - 1 else np.nan


def interval(values):
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return {"mean": np.nan, "sd": np.nan, "low": np.nan, "high": np.nan}
    low, high = np.quantile(values, [0.025, 0.975])
    return {"mean": values.mean(), "sd": values.std(ddof=1), "low": low, "high": high}


def pearson(a, b):
    return np.nan if a.min() == a.max() or b.min() == b.max() else np.corrcoef(a, b)[0, 1]


def spearman(a, b):
    return pearson(ranks(a), ranks(b))


def ranks(values):
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, size = np.unique(values, return_inverse=True, return_counts=True)
    return (size.cumsum() - (size - 1) / 2)[inverse]


def mean(rows):
    return rows.mean(0) if len(rows) else np.full(rows.shape[1:], np.nan)


def xlogx(p):
    return p * np.log(p, where=p > 0, out=np.zeros_like(p))


def divide(a, b):
    """a/b, and NaN where b is 0."""
    a, b = np.broadcast_arrays(np.asarray(a, float), b)
    return np.divide(a, b, out=np.full_like(a, np.nan), where=b != 0)


if __name__ == "__main__":
    main()
