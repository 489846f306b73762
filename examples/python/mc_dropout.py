"""Streams the MC-dropout passes of a PyTorch classifier to ckd, and prints a
decision for every input.

    python3 mc_dropout.py --inputs features.npy --weights classifier.pt
    python3 mc_dropout.py --passes recorded.npy

With --passes, the passes are those of a recording [passes, inputs, classes], and
PyTorch is not needed.
"""

import argparse
import sys

import numpy as np

import ckd


def mc_dropout(module, batch, passes):
    """Yields softmax outputs [inputs, classes] of a module whose dropout stays on."""
    import torch

    module.eval()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.train()
    for _ in range(passes):
        with torch.inference_mode():  # and not in whatever takes the pass
            values = torch.softmax(module(batch), dim=-1)
        yield values.cpu().numpy()


def classifier(features, classes):
    """The network that the example serves; put yours here."""
    import torch

    return torch.nn.Sequential(
        torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, classes),
    )


def batches(args):
    """Yields the ids of a batch, and its passes."""
    if args.passes:
        recorded = np.load(args.passes, mmap_mode="r")
        for at in range(0, min(args.limit, recorded.shape[1]), args.batch):
            to = min(at + args.batch, args.limit, recorded.shape[1])
            yield [str(i) for i in range(at, to)], (recorded[s, at:to] for s in range(len(recorded)))
        return
    import torch

    inputs = torch.from_numpy(np.load(args.inputs)).float()[: args.limit]
    module = classifier(inputs.shape[1], args.classes)
    module.load_state_dict(torch.load(args.weights, weights_only=True))
    for at in range(0, len(inputs), args.batch):
        batch = inputs[at : at + args.batch]
        yield [str(at + i) for i in range(len(batch))], mc_dropout(module, batch, args.samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", default="127.0.0.1:8590", help="of the daemon: host:port or unix:/path")
    parser.add_argument("--model", default="fetal-health", help="by the name that its policy states")
    parser.add_argument("--passes", help="recorded passes, in place of a model")
    parser.add_argument("--inputs", help="inputs of the model, an .npy [inputs, features]")
    parser.add_argument("--weights", help="the model's state_dict")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--samples", type=int, default=30, help="passes of every input")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="of the inputs")
    parser.add_argument("--ca", help="certificates of the daemon's authority: TLS")
    parser.add_argument("--token-file", help="with a bearer token")
    args = parser.parse_args()
    if not args.passes and not (args.inputs and args.weights):
        parser.error("expected --passes, or --inputs and --weights")

    retained = errors = total = 0
    with ckd.Client(args.addr, ca=args.ca, token_file=args.token_file) as client, client.session(args.model) as session:
        for ids, passes in batches(args):
            for result in session.decide(ids, passes):
                print(result.id, result, sep="\t")
                total += 1
                retained += result.retained
                errors += result.action == "error"
    print(f"{retained} of {total} inputs retained, {errors} without a decision", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
