"""Sends the MC-dropout passes of a PyTorch classifier to ckd, and prints a decision for
every input. Inputs whose decision is settled are left out of the next passes.

    python3 mc_dropout.py --inputs features.npy --weights classifier.pt
    python3 mc_dropout.py --passes recorded.npy

With --passes, the passes are those of a recording [passes, inputs, classes], and
PyTorch is not needed.
"""

import argparse
import sys

import numpy as np

import ckd


def classifier(features, classes):
    """Returns the network that the example serves. Put yours here."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, classes),
    )


def model(args):
    """Returns the number of inputs, that of their passes, and a function that decides those of a slice."""
    import torch

    import ckd.torch

    inputs = torch.from_numpy(np.load(args.inputs)).float()
    module = classifier(inputs.shape[1], args.classes)
    module.load_state_dict(torch.load(args.weights, weights_only=True))
    sampler = ckd.torch.mc_dropout(module, args.samples)
    return len(inputs), args.samples, lambda session, ids, part: sampler.decide(session, ids, inputs[part])


def recording(args):
    """Returns the same for the passes of a recording."""
    recorded = np.load(args.passes, mmap_mode="r")

    def decide(session, ids, part):
        passes = iter(recorded[:, part])
        return session.decide(ids, lambda rows: next(passes)[rows], len(recorded))

    return recorded.shape[1], len(recorded), decide


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", default="127.0.0.1:8590", help="address of the daemon: host:port or unix:/path")
    parser.add_argument("--model", default="fetal-health", help="name of the model, as its policy states it")
    parser.add_argument("--passes", help="recorded passes, instead of a model")
    parser.add_argument("--inputs", help="inputs of the model, an .npy [inputs, features]")
    parser.add_argument("--weights", help="the model's state_dict")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--samples", type=int, default=30, help="passes of every input")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="number of inputs at most")
    parser.add_argument(
        "--patience", type=float, default=2, help="seconds that a batch waits for ckd: below your requests' deadline"
    )
    parser.add_argument("--ca", help="certificates of the daemon's authority: TLS")
    parser.add_argument("--token-file", help="file with a bearer token")
    args = parser.parse_args()
    if not args.passes and not (args.inputs and args.weights):
        parser.error("expected --passes, or --inputs and --weights")

    inputs, passes, decide = recording(args) if args.passes else model(args)
    total = min(inputs, args.limit)
    retained = errors = used = 0
    client = ckd.Client(args.addr, ca=args.ca, token_file=args.token_file, patience=args.patience)
    with client, client.session(args.model, accept_settled=True) as session:
        for at in range(0, total, args.batch):
            to = min(at + args.batch, total)
            for result in decide(session, [str(i) for i in range(at, to)], slice(at, to)):
                print(result.id, result, sep="\t")
                retained += result.retained
                errors += result.action == "error"
                used += result.passes or passes
    print(f"{retained} of {total} inputs retained, {errors} without a decision", file=sys.stderr)
    if used < total * passes:
        print(
            f"{passes:.1f} passes an input without early stopping, {used / total:.1f} with: {passes * total / used:.1f}x",
            file=sys.stderr,
        )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
