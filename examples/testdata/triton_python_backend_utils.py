"""Stands in for the module that Triton gives its Python backends, as far as
model.py uses it."""


class Tensor:
    def __init__(self, name, values):
        self._name, self._values = name, values

    def name(self):
        return self._name

    def as_numpy(self):
        return self._values


class InferenceRequest:
    def __init__(self, inputs):
        self.inputs = inputs


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self.outputs, self.error = {t.name(): t.as_numpy() for t in output_tensors}, error


def get_input_tensor_by_name(request, name):
    return next((t for t in request.inputs if t.name() == name), None)
