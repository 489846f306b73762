"""Measures what the client costs beside a model: CPU time of this process for a batch of 32 inputs with
30 passes of 3 classes, without the model, and what it adds to the passes of a network.

    python3 bench.py --policy ../deploy/policy/fetal-health.yaml --recording ../internal/recordings/ctg-lowrank.passes.npy

It starts daemons of its own. The table is for BENCHMARKS.md.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import numpy as np

import ckd

BATCH, PASSES = 32, 30


def batches(recorded, n):
    """Returns n batches of different inputs, [passes, inputs, classes]."""
    return [np.ascontiguousarray(recorded[:, at * BATCH : (at + 1) * BATCH]) for at in range(n)]


def cost(work, parts):
    """Returns the CPU milliseconds of this process for a part, after a warm-up of two."""
    for part in parts[:2]:
        work(part)
    begun = time.process_time()
    for part in parts[2:]:
        work(part)
    return (time.process_time() - begun) / (len(parts) - 2) * 1e3


def stepwise(session):
    """Returns the way of a model that computes passes one by one and waits for the answers to each."""

    def work(part):
        computed = iter(part)
        results = session.decide(IDS, lambda rows: next(computed)[rows])
        assert all(r.passes == PASSES for r in results), "inputs were decided early"

    return work


IDS = [str(i) for i in range(BATCH)]


def measure(policy, settled, recorded, detail):
    """Returns the cost of each way, once."""
    costs = {}
    # The first 400 inputs of a daemon with an early-stopping rule have all their passes.
    with ckd.Daemon(settled) as daemon, daemon.client() as client:
        with client.session("fetal-health", detail=detail, accept_settled=True) as session:
            costs["pass by pass, answers awaited (early stopping)"] = cost(stepwise(session), batches(recorded, 12))
            assert session.info.settles and session.info.acknowledges
    with ckd.Daemon(policy) as daemon, daemon.client() as client:
        with client.session("fetal-health", detail=detail) as session:
            costs["pass by pass, in few blocks"] = cost(stepwise(session), batches(recorded, 60))
        complete = [part.transpose(1, 0, 2) for part in batches(recorded, 60)]
        ask = lambda part: client.decompose("fetal-health", part, IDS, detail)  # noqa: E731
        costs["a complete array"] = cost(ask, complete)
    return costs


def network_share(policy, rounds):
    """Returns what the loop adds to the forward passes of a network of two layers of 1024 units, in percent."""
    import torch

    import ckd.torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(1024, 3),
    )  # fmt: skip
    sampler, batch, shares = ckd.torch.mc_dropout(model, PASSES), torch.randn(BATCH, 784), []
    with ckd.Daemon(policy) as daemon, daemon.client() as client, client.session("fetal-health") as session:
        for _ in range(rounds):
            alone = cost(lambda _: sampler(batch), range(7))
            shares.append((cost(lambda _: sampler.decide(session, IDS, batch), range(7)) / alone - 1) * 100)
    return statistics.median(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=pathlib.Path, required=True)
    parser.add_argument("--recording", type=pathlib.Path, required=True, help="passes, an .npy [passes, inputs, classes]")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    recorded = np.load(args.recording)
    with tempfile.TemporaryDirectory() as folder:
        settled = ckd.calibrate(args.recording, policy=args.policy, settle=0.02, attempts=pathlib.Path(folder, "attempts"))
        settled = settled.write(pathlib.Path(folder, "settled.yaml"))
        rounds = {
            detail: [measure(args.policy, settled, recorded, detail) for _ in range(args.rounds)]
            for detail in (ckd.DECISION, ckd.VECTORS)
        }
    print("| how the passes go | decision | vectors |\n|---|---|---|")
    for way in rounds[ckd.DECISION][0]:
        cells = []
        for measured in rounds.values():
            costs = sorted(m[way] for m in measured)
            cells.append(f"{statistics.median(costs):.2f} ms ({costs[0]:.2f} to {costs[-1]:.2f})")
        print(f"| {way} | {' | '.join(cells)} |")
    try:
        print(f"\nThe loop adds {network_share(args.policy, args.rounds):.1f}% to the passes of a network of two layers.")
    except ImportError:
        print("\nPyTorch is not installed: without the share of a network.")


if __name__ == "__main__":
    main()
