"""Asks ckd by the Open Inference Protocol, as any client of Triton or KServe does, and
prints a decision for every input.

    python3 oip.py --passes recorded.npy --proto ../../proto/inference/inference.proto

The messages are built from the .proto file at the start, which needs grpcio-tools. Any
definition of the protocol works.
"""

import argparse
import importlib
import pathlib
import struct
import sys
import tempfile

import grpc
import numpy as np
from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
NUMBERS = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8", "BOOL": "?"}
CONTENTS = {"FP64": "fp64_contents", "INT64": "int64_contents", "BOOL": "bool_contents", "BYTES": "bytes_contents"}


def compile_protocol(path):
    """Returns the modules of the messages and of the service."""
    path = pathlib.Path(path).resolve()
    with tempfile.TemporaryDirectory() as out:
        arguments = ["protoc", f"-I{path.parent}", f"--python_out={out}", f"--grpc_python_out={out}", str(path)]
        if protoc.main(arguments) != 0:
            sys.exit(f"{path} does not compile")
        sys.path.insert(0, out)
        name = path.stem.replace("-", "_")
        return importlib.import_module(name + "_pb2"), importlib.import_module(name + "_pb2_grpc")


def connect(args):
    """Returns a channel with TLS, or in plaintext where nobody else can listen."""
    if args.ca:
        return grpc.secure_channel(args.addr, grpc.ssl_channel_credentials(pathlib.Path(args.ca).read_bytes()))
    if args.addr.startswith("unix:") or args.addr.rsplit(":", 1)[0] in ("localhost", "127.0.0.1", "[::1]"):
        return grpc.insecure_channel(args.addr)
    sys.exit(f"{args.addr}: plaintext is for unix sockets and loopback addresses, expected --ca")


def token(args):
    """Returns the metadata that carries the bearer token, if any."""
    if not args.token_file:
        return ()
    return (("authorization", "Bearer " + pathlib.Path(args.token_file).read_text().strip()),)


def elements(reply, i):
    """Returns the elements of the i-th output, whether they came raw or typed."""
    output = reply.outputs[i]
    if not reply.raw_output_contents:
        return list(getattr(output.contents, CONTENTS[output.datatype]))
    raw = reply.raw_output_contents[i]
    if output.datatype in NUMBERS:
        return np.frombuffer(raw, NUMBERS[output.datatype]).tolist()
    texts, at = [], 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        texts.append(raw[at + 4 : at + 4 + length])
        at += 4 + length
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", default="127.0.0.1:8590", help="address of the daemon: host:port or unix:/path")
    parser.add_argument("--model", default="fetal-health", help="name of the model, as its policy states it")
    parser.add_argument("--passes", required=True, help="recorded passes, an .npy [passes, inputs, classes]")
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="number of inputs at most")
    parser.add_argument("--proto", default=HERE / "../../proto/inference/inference.proto", help="file of the protocol")
    parser.add_argument("--ca", help="certificates of the daemon's authority: TLS")
    parser.add_argument("--token-file", help="file with a bearer token")
    args = parser.parse_args()

    pb, services = compile_protocol(args.proto)
    passes = np.load(args.passes).transpose(1, 0, 2)[: args.limit].astype("<f4")
    with connect(args) as channel:
        server = services.GRPCInferenceServiceStub(channel)
        request = pb.ModelInferRequest(model_name=args.model, id="example", raw_input_contents=[passes.tobytes()])
        request.inputs.add(name="passes", datatype="FP32", shape=passes.shape)
        for name in ("decision", "score", "defer", "error"):
            request.outputs.add(name=name)
        reply = server.ModelInfer(request, metadata=token(args), timeout=30)
    outputs = {output.name: elements(reply, i) for i, output in enumerate(reply.outputs)}
    for i in range(len(passes)):
        if outputs["error"][i]:
            print(f"{i}\tno decision: {outputs['error'][i].decode()}")
        else:
            print(f"{i}\t{outputs['decision'][i].decode()}: {outputs['score'][i]:.4f}")


if __name__ == "__main__":
    main()
