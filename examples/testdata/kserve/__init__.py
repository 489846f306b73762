"""Stands in for KServe's package, as far as transformer.py uses it."""

import numpy as np


class Model:
    def __init__(self, name, predictor_config=None):
        self.name, self.predictor_config = name, predictor_config


class ModelServer:
    pass


class model_server:
    parser = None


class InferOutput:
    def __init__(self, name, shape, datatype, data=None):
        self.name, self.shape, self.datatype, self.data = name, shape, datatype, data

    def as_numpy(self):
        return np.array(self.data, dtype=np.float32).reshape(self.shape)


class InferResponse:
    def __init__(self, response_id, model_name, infer_outputs):
        self.id, self.model_name, self.outputs = response_id, model_name, infer_outputs
