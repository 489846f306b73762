"""Loads the model of the Triton example as Triton does, sends it requests, and
prints what it answers as JSON: run_triton.py ADDRESS MODEL PASSES.npy INPUTS PATIENCE"""

import json
import pathlib
import sys

here = pathlib.Path(__file__).parent
sys.path[:0] = [str(here), str(here.parent / "triton/model_repository/ckd/1")]

import numpy as np
import triton_python_backend_utils as pb_utils

import model


def plain(value):
    if isinstance(value, bytes):
        return value.decode()
    return None if value != value else value  # NaN is not JSON


address, name, recorded, inputs, patience = sys.argv[1:]
passes = np.load(recorded).transpose(1, 0, 2)[: int(inputs)]
passes[1, 0, 0] = np.nan  # a model that overflows

parameters = {"address": address, "model": name, "patience_seconds": patience}
config = {"parameters": {k: {"string_value": v} for k, v in parameters.items()}}
step = model.TritonPythonModel()
step.initialize({"model_config": json.dumps(config)})
parts = np.split(passes, [3, 4, 5, 6, 7, 8, 9, 10])
requests = [pb_utils.InferenceRequest([pb_utils.Tensor("PASSES", part)]) for part in parts]
for response in step.execute(requests):
    out = {name: values.astype(object) for name, values in response.outputs.items()}
    for i in range(len(out["DEFER"])):
        print(json.dumps({name: [plain(v) for v in values[i]] for name, values in out.items()}))
step.finalize()
