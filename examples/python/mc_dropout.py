"""Streams the MC-dropout passes of a PyTorch classifier to ckd, and prints a
decision for every input. Inputs whose decision is settled are left out of the next
passes.

    python3 mc_dropout.py --inputs features.npy --weights classifier.pt
    python3 mc_dropout.py --passes recorded.npy

With --passes, the passes are those of a recording [passes, inputs, classes], and
PyTorch is not needed.
"""

import argparse
import sys

import numpy as np

import ckd


def mc_dropout(module, batch):
    """Returns a function that computes one pass of some rows of a batch: the softmax
    outputs [rows, classes] of a module whose dropout stays on."""
    import torch

    module.eval()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.train()

    def forward(rows):
        with torch.inference_mode():
            return torch.softmax(module(batch[torch.from_numpy(rows)]), dim=-1).cpu().numpy()

    return forward


def classifier(features, classes):
    """Returns the network that the example serves. Put yours here."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, classes),
    )


def replay(recorded):
    """Returns the same kind of function for a recording [passes, inputs, classes]."""
    passes = iter(recorded)
    return lambda rows: next(passes)[rows]


def batches(args):
    """Yields the ids of a batch, the function that computes its passes, and their number."""
    if args.passes:
        recorded = np.load(args.passes, mmap_mode="r")
        for at in range(0, min(args.limit, recorded.shape[1]), args.batch):
            to = min(at + args.batch, args.limit, recorded.shape[1])
            yield [str(i) for i in range(at, to)], replay(recorded[:, at:to]), len(recorded)
        return
    import torch

    inputs = torch.from_numpy(np.load(args.inputs)).float()[: args.limit]
    module = classifier(inputs.shape[1], args.classes)
    module.load_state_dict(torch.load(args.weights, weights_only=True))
    for at in range(0, len(inputs), args.batch):
        batch = inputs[at : at + args.batch]
        yield [str(at + i) for i in range(len(batch))], mc_dropout(module, batch), args.samples


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
    parser.add_argument("--ca", help="certificates of the daemon's authority: TLS")
    parser.add_argument("--token-file", help="file with a bearer token")
    args = parser.parse_args()
    if not args.passes and not (args.inputs and args.weights):
        parser.error("expected --passes, or --inputs and --weights")

    retained = errors = total = without = computed = 0
    client = ckd.Client(args.addr, ca=args.ca, token_file=args.token_file)
    with client, client.session(args.model, accept_settled=True) as session:
        for ids, forward, passes in batches(args):

            def counted(rows):
                nonlocal computed
                computed += len(rows)
                return forward(rows)

            for result in session.decide(ids, counted, passes):
                print(result.id, result, sep="\t")
                total += 1
                retained += result.retained
                errors += result.action == "error"
            without += len(ids) * passes
    print(f"{retained} of {total} inputs retained, {errors} without a decision", file=sys.stderr)
    if computed < without:
        print(
            f"{without / total:.1f} passes an input without early stopping, {computed / total:.1f} with: {without / computed:.1f}x",
            file=sys.stderr,
        )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
