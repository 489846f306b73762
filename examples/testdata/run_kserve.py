"""Has the transformer of the KServe example handle what a classifier answered, and
prints its own answer as JSON: run_kserve.py URL PASSES.npy INPUTS"""

import asyncio
import inspect
import json
import pathlib
import sys
import threading

here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "kserve")]

import numpy as np
from kserve import InferOutput, InferResponse

import transformer

url, recorded, inputs = sys.argv[1:]
passes = np.load(recorded).transpose(1, 0, 2)[: int(inputs)]
passes[1, 0, 0] = 2  # no probability
passes[2, 0, 0] = np.nan  # which JSON does not have
answer = InferResponse("7", "classifier", [
    InferOutput("class", [len(passes)], "INT64", [0] * len(passes)),
    InferOutput("passes", list(passes.shape), "FP32", passes.ravel().tolist()),
    InferOutput("decision", [1], "BYTES", ["of the classifier"]),  # whose place ckd's takes
])
step = transformer.Transformer("fetal-health", None, url)
assert inspect.iscoroutinefunction(step.postprocess)  # by which KServe knows that it is to be awaited


async def serve():
    """Handles the answer as KServe does, whose loop goes on while ckd is asked."""
    beating = threading.Event()
    ask = transformer.DIRECT.open

    def after_a_beat(*args, **kwargs):
        assert beating.wait(10), "the event loop stands still"
        return ask(*args, **kwargs)

    transformer.DIRECT.open = after_a_beat

    async def beat():
        beating.set()

    handled = asyncio.create_task(step.postprocess(answer))
    await asyncio.sleep(0)  # it has begun, and asks
    await beat()
    return await handled


reply = asyncio.run(serve())
ours = reply.outputs[2:]
assert reply.outputs[:2] == answer.outputs[:2] and [output.name for output in ours] == ["decision", "defer", "error"]
for output in ours:
    assert output.shape == [len(passes)] and output.datatype == ("BOOL" if output.name == "defer" else "BYTES")
print(json.dumps({"id": reply.id, **{output.name: output.data for output in ours}}))
