"""Stands in for MLflow where it is not installed: the calls of examples/mlflow with the names and
arguments of MLflow 2 and 3, kept in a file of JSON. It shows what is sent, not that MLflow takes it."""

import json
import os
import pathlib
import shutil
import types

from .exceptions import MlflowException

_root = pathlib.Path(os.environ["MLFLOW_TRACKING_URI"][len("file:") :])
_run = None


def _store():
    path = _root / "store.json"
    return json.loads(path.read_text()) if path.exists() else {"runs": {}, "models": {}}


def _keep(change):
    store = _store()
    change(store)
    _root.mkdir(parents=True, exist_ok=True)
    (_root / "store.json").write_text(json.dumps(store))


class _Run:
    def __init__(self, name):
        self.info = types.SimpleNamespace(run_id=f"run{len(_store()['runs'])}", artifact_uri="")
        self.info.artifact_uri = f"file:{_root / self.info.run_id}"
        self._kept = {"name": name, "status": "RUNNING", "params": {}, "metrics": {}, "tags": {}}

    def put(self, kind, values):
        self._kept[kind].update(values)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self._kept["status"] = "FINISHED" if kind is None else "FAILED"
        _keep(lambda store: store["runs"].update({self.info.run_id: self._kept}))


def start_run(run_name=None):
    global _run
    _run = _Run(run_name)
    return _run


def log_params(params):
    _run.put("params", {name: str(value) for name, value in params.items()})


def log_metrics(metrics):
    _run.put("metrics", {name: float(value) for name, value in metrics.items()})


def set_tags(tags):
    _run.put("tags", {name: str(value) for name, value in tags.items()})


def log_artifact(local_path, artifact_path=None):
    folder = pathlib.Path(_run.info.artifact_uri[len("file:") :], artifact_path or "")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(local_path, folder)


class MlflowClient:
    def create_registered_model(self, name):
        if name in _store()["models"]:
            raise MlflowException("it exists", "RESOURCE_ALREADY_EXISTS")
        _keep(lambda store: store["models"].update({name: []}))

    def create_model_version(self, name, source, run_id=None, tags=None):
        version = {"version": str(len(_store()["models"][name]) + 1), "source": source, "run_id": run_id, "tags": tags}
        _keep(lambda store: store["models"][name].append(version))
        return types.SimpleNamespace(**version)

    def get_model_version(self, name, version):
        return types.SimpleNamespace(**_store()["models"][name][int(version) - 1])

    def search_model_versions(self, filter_string):
        name = filter_string.split("'")[1]
        return [types.SimpleNamespace(**version) for version in _store()["models"].get(name, [])]

    def get_run(self, run_id):
        kept = _store()["runs"][run_id]
        return types.SimpleNamespace(data=types.SimpleNamespace(**kept), info=types.SimpleNamespace(status=kept["status"]))

    def search_runs(self, experiment_ids):
        return [
            types.SimpleNamespace(data=types.SimpleNamespace(**kept), info=types.SimpleNamespace(status=kept["status"], run_id=identity))
            for identity, kept in _store()["runs"].items()
        ]
