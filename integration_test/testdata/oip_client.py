"""A client of the Open Inference Protocol that is not ours: grpcio, with messages of its own compiler, over TLS of
another library. It makes every call and prints what came, as JSON, for the test that started it."""

import argparse
import importlib
import json
import pathlib
import struct
import sys
import tempfile

import grpc
import numpy as np
from grpc_tools import protoc

NUMBERS = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8", "BOOL": "?"}
CONTENTS = {"FP64": "fp64_contents", "INT64": "int64_contents", "BOOL": "bool_contents", "BYTES": "bytes_contents"}


def compile_protocol(path):
    path = pathlib.Path(path).resolve()
    with tempfile.TemporaryDirectory() as out:
        if protoc.main(["protoc", f"-I{path.parent}", f"--python_out={out}", f"--grpc_python_out={out}", str(path)]) != 0:
            sys.exit(f"{path} does not compile")
        sys.path.insert(0, out)
        return importlib.import_module(path.stem + "_pb2"), importlib.import_module(path.stem + "_pb2_grpc")


def outputs(reply):
    """The elements of all outputs by name, whether they came raw or typed."""
    found = {}
    for i, output in enumerate(reply.outputs):
        if not reply.raw_output_contents:
            elements = list(getattr(output.contents, CONTENTS[output.datatype]))
        elif output.datatype in NUMBERS:
            elements = np.frombuffer(reply.raw_output_contents[i], NUMBERS[output.datatype]).tolist()
        else:
            raw, elements = reply.raw_output_contents[i], []
            while raw:
                (length,) = struct.unpack_from("<I", raw)
                elements.append(raw[4 : 4 + length])
                raw = raw[4 + length :]
        found[output.name] = [e.decode() if isinstance(e, bytes) else e for e in elements]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("addr", "model", "passes", "proto", "ca", "cert", "key", "token"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--limit", type=int, required=True)
    args = parser.parse_args()
    read = lambda path: pathlib.Path(path).read_bytes()

    pb, services = compile_protocol(args.proto)
    passes = np.load(args.passes).transpose(1, 0, 2)[: args.limit].astype("<f4")
    names = ("c", "mi", "score", "threshold", "defer", "deciding_class", "reason", "decision")

    def request(form, model=args.model):
        r = pb.ModelInferRequest(model_name=model, id=form)
        tensor = r.inputs.add(name="passes", datatype="FP32", shape=passes.shape)
        if form == "raw":
            r.raw_input_contents.append(passes.tobytes())
        else:
            tensor.contents.fp32_contents.extend(passes.ravel().tolist())
        for name in names:
            r.outputs.add(name=name)
        return r

    secure = grpc.ssl_channel_credentials(read(args.ca), read(args.key), read(args.cert))
    token = grpc.access_token_call_credentials(read(args.token).decode().strip())
    said = {}
    with grpc.secure_channel(args.addr, grpc.composite_channel_credentials(secure, token)) as channel:
        server = services.GRPCInferenceServiceStub(channel)
        said["live"] = server.ServerLive(pb.ServerLiveRequest()).live
        said["ready"] = server.ServerReady(pb.ServerReadyRequest()).ready
        said["server"] = server.ServerMetadata(pb.ServerMetadataRequest()).name
        said["model_ready"] = server.ModelReady(pb.ModelReadyRequest(name=args.model)).ready
        metadata = server.ModelMetadata(pb.ModelMetadataRequest(name=args.model))
        said["inputs"] = [[t.name, t.datatype, list(t.shape)] for t in metadata.inputs]
        said["config"] = [t.name for t in server.ModelConfig(pb.ModelConfigRequest(name=args.model)).config.input]
        for form in ("raw", "typed"):
            reply = server.ModelInfer(request(form), timeout=30)
            said[form] = {"id": reply.id, "outputs": outputs(reply)}
        stream = list(server.ModelStreamInfer(iter([request("raw"), request("typed", "nobody"), request("typed")]), timeout=30))
        said["stream"] = [[m.error_message, outputs(m.infer_response)] for m in stream]
        try:
            server.ModelInfer(request("raw", "nobody"), timeout=30)
        except grpc.RpcError as e:
            said["nobody"] = e.code().name
    with grpc.secure_channel(args.addr, secure) as channel:  # without the token
        try:
            services.GRPCInferenceServiceStub(channel).ModelInfer(request("raw"), timeout=30)
        except grpc.RpcError as e:
            said["no_token"] = e.code().name
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
