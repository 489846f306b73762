"""A step of a Triton ensemble that has ckd decide on the passes of the step before.

It answers for every input of a request, whatever happens: where there is no
decision, DEFER is true and ERROR says why. It needs the Python package ckd.
"""

import concurrent.futures
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

import ckd


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        settings = {name: p["string_value"] for name, p in config.get("parameters", {}).items()}
        self.model = settings["model"]
        self.patience = float(settings.get("patience_seconds", "2"))
        self.client = ckd.Client(settings["address"], ca=settings.get("ca"), token_file=settings.get("token_file"))
        self.pool = concurrent.futures.ThreadPoolExecutor(16)

    def execute(self, requests):
        until = time.monotonic() + self.patience  # for all of them together
        return list(self.pool.map(lambda request: self.answer(request, until), requests))

    def answer(self, request, until):
        passes = pb_utils.get_input_tensor_by_name(request, "PASSES").as_numpy()  # [inputs, passes, classes]
        try:
            results = self.client.decompose(self.model, passes, layout="nsk", patience=max(until - time.monotonic(), 0))
        except (TypeError, ValueError) as error:  # the passes are not what the policy expects
            results = [ckd.Result(str(i), error=ckd.InvalidInputError(str(error))) for i in range(len(passes))]
        contributions = np.full((len(results), passes.shape[2]), np.nan)
        scores = np.full((len(results), 1), np.nan)
        for i, result in enumerate(results):
            if result.error is None:
                contributions[i] = result.c
                scores[i] = result.value
        column = lambda values, dtype: np.array(values, dtype=dtype).reshape(-1, 1)
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("DEFER", column([r.action in ("defer", "error") for r in results], np.bool_)),
                pb_utils.Tensor("DECISION", column([r.action.encode() for r in results], np.object_)),
                pb_utils.Tensor("SCORE", scores),
                pb_utils.Tensor("C", contributions),
                pb_utils.Tensor("ERROR", column([str(r.error or "").encode() for r in results], np.object_)),
            ]
        )

    def finalize(self):
        self.pool.shutdown()
        self.client.close()
