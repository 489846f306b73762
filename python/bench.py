"""Measures what the client costs beside a model: CPU time of this process for a batch of 32 inputs with
30 passes of 3 classes, without the model, and what it adds to the passes of a network.

    python3 bench.py --policy ../deploy/policy/fetal-health.yaml --recording ../internal/recordings/ctg-lowrank.passes.npy

It starts daemons of its own. The table is for BENCHMARKS.md.
"""

import argparse
import pathlib
import queue
import statistics
import time

import grpc
import numpy as np

import ckd
from ckd import _wire

BATCH, PASSES = 32, 30


def batches(recorded, n):
    """Returns n batches of different inputs, [passes, inputs, classes]."""
    return [np.ascontiguousarray(recorded[:, at * BATCH : (at + 1) * BATCH]) for at in range(n)]


def cost(work, parts):
    """Returns the CPU milliseconds of this process for a part: the median, after a warm-up of two."""
    spent = []
    for part in parts:
        begun = time.process_time()
        work(part)
        spent.append((time.process_time() - begun) * 1e3)
    return statistics.median(spent[2:])


def stepwise(session):
    """Returns the way of a model that computes passes one by one and waits for the answers to each."""

    def work(part):
        computed = iter(part)
        results = session.decide(IDS, lambda rows: next(computed)[rows])
        assert all(r.passes == PASSES for r in results), "inputs were decided early"

    return work


IDS = [str(i) for i in range(BATCH)]


def bare(address, detail, pause=0.0):
    """Returns the cost of the messages of stepwise over grpcio alone, which is the floor for it.

    With a pause, Python is busy for so many seconds between an answer and the next message, as it is
    whenever something computes the pass: grpcio's threads have gone to sleep by then.
    """
    requests: queue.SimpleQueue = queue.SimpleQueue()
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(_wire.DECOMPOSE_STREAM)(iter(requests.get, None))
        header = {"model": "fetal-health", "detail": int(detail), "accept_settled": True}
        requests.put(_wire.StreamRequest(header=header).SerializeToString())
        next(call)

        def block(group, s):
            values = np.full((BATCH, 3), 1 / 3, dtype="<f4").tobytes()
            block = {"group": group, "passes": 1, "values_le": values, "input_ids": IDS if s == 0 else []}
            return _wire.StreamRequest(block=block).SerializeToString()

        def work(messages):
            for message in messages:
                requests.put(message)
                next(call)
                until = time.perf_counter() + pause
                while time.perf_counter() < until:
                    pass

        spent = cost(work, [[block(group, s) for s in range(PASSES)] for group in range(1, 61)])
        requests.put(None)
        return spent


def measure(policy, recorded, detail):
    """Returns the cost of each way, once."""
    parts, costs = batches(recorded, 60), {}
    with ckd.Daemon(policy) as daemon, daemon.client() as client:
        ask = lambda part: client.decompose("fetal-health", part, IDS, detail)  # noqa: E731
        costs["a complete array"] = cost(ask, parts)
        with client.session("fetal-health", detail=detail) as session:
            costs["pass by pass, in few blocks"] = cost(stepwise(session), parts)
        with client.session("fetal-health", detail=detail, accept_settled=True) as session:
            session.decide(IDS, parts[0])
            # The daemon acknowledges every block. No rule is in force, so that all inputs have all
            # their passes; the client waits for answers as if there was one: from the fewest passes
            # of this policy on, and then to each pass.
            session.info.settles = True
            fewest = session.info.fewest_passes
            costs[f"pass by pass, answers awaited from pass {fewest} on (early stopping)"] = cost(stepwise(session), parts)
            session.info.fewest_passes = 1
            costs["pass by pass, answers awaited to each"] = cost(stepwise(session), parts)
        costs["these messages over grpcio alone"] = bare(daemon.address, detail)
        costs["and 5 us of Python between them"] = bare(daemon.address, detail, 5e-6)
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
    rounds = {
        detail: [measure(args.policy, recorded, detail) for _ in range(args.rounds)] for detail in (ckd.DECISION, ckd.VECTORS)
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
