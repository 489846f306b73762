"""Has the transformer of the KServe example handle what a classifier answered, and
prints its own answer as JSON: run_kserve.py URL PASSES.npy INPUTS"""

import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "kserve")]

import numpy as np
from kserve import InferOutput, InferResponse

import transformer

url, recorded, inputs = sys.argv[1:]
passes = np.load(recorded).transpose(1, 0, 2)[: int(inputs)]
passes[1, 0, 0] = 2  # no probability
answer = InferResponse("7", "classifier", [
    InferOutput("class", [len(passes)], "INT64", [0] * len(passes)),
    InferOutput("passes", list(passes.shape), "FP32", passes.ravel().tolist()),
])
reply = transformer.Transformer("fetal-health", None, url).postprocess(answer)
for output in reply.outputs:
    assert output.shape == [len(passes)] and output.datatype == ("BOOL" if output.name == "defer" else "BYTES")
print(json.dumps({"id": reply.id, **{output.name: output.data for output in reply.outputs}}))
