"""A KServe transformer that adds ckd's decision to what the classifier answered.

The classifier answers with a tensor "passes", FP32 [inputs, passes, classes], among
others. The caller gets all of them, and after them the outputs of ckd: "decision"
(retain, defer or observe), "defer" and "error". Where ckd cannot be asked, every input is deferred, and "error"
says why: an error is never a retain.
"""

import argparse
import asyncio
import json
import urllib.error
import urllib.request

import numpy as np
from kserve import InferOutput, InferResponse, Model, ModelServer, model_server

OUTPUTS = ("decision", "defer", "error")
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ckd is in this pod


def decide(url, passes, timeout=2.0):
    """The outputs of ckd for passes [inputs, passes, classes], by name.

    The passes go as bytes, after the JSON: a NaN, which JSON does not have, is then a
    fault of its own input alone.
    """
    data = np.ascontiguousarray(passes, dtype="<f4").tobytes()
    tensor = {"name": "passes", "datatype": "FP32", "shape": list(passes.shape)}
    tensor["parameters"] = {"binary_data_size": len(data)}
    header = json.dumps({"inputs": [tensor], "outputs": [{"name": name} for name in OUTPUTS]}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(header))}
    request = urllib.request.Request(url, header + data, headers)
    try:
        with DIRECT.open(request, timeout=timeout) as answer:
            outputs = {o["name"]: o["data"] for o in json.load(answer)["outputs"]}
        if all(len(outputs[name]) == len(passes) for name in OUTPUTS):
            return outputs
        fault = "ckd did not answer for every input"
    except urllib.error.HTTPError as error:
        fault = error.read().decode(errors="replace")
    except (OSError, ValueError, KeyError) as error:
        fault = f"ckd was not to be asked: {error!r}"
    n = len(passes)
    return {"decision": ["defer"] * n, "defer": [True] * n, "error": [fault] * n}


class Transformer(Model):
    def __init__(self, name, predictor_config, url):
        super().__init__(name, predictor_config)
        self.url = url
        self.ready = True

    async def postprocess(self, response, headers=None, response_headers=None):
        passes = next(o for o in response.outputs if o.name == "passes").as_numpy()
        outputs = await asyncio.to_thread(decide, self.url, passes)  # others are served meanwhile
        answer = [output for output in response.outputs if output.name not in OUTPUTS]
        for name, values in outputs.items():
            datatype = "BOOL" if name == "defer" else "BYTES"
            answer.append(InferOutput(name=name, shape=[len(passes)], datatype=datatype, data=values))
        return InferResponse(response.id, self.name, answer)


if __name__ == "__main__":
    from kserve.model import PredictorConfig

    parser = argparse.ArgumentParser(parents=[model_server.parser])
    parser.add_argument("--ckd", default="http://127.0.0.1:8591", help="HTTP address of ckd")
    parser.add_argument("--policy", required=True, help="model name that the policy states")
    args, _ = parser.parse_known_args()
    predictor = PredictorConfig(args.predictor_host, args.predictor_protocol)
    url = f"{args.ckd}/v2/models/{args.policy}/infer"
    ModelServer().start([Transformer(args.model_name, predictor, url)])
