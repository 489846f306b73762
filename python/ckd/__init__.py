"""Decides, beside a model server, which inputs a person should see.

    with ckd.Daemon("policy.yaml") as daemon, daemon.client() as client:
        for result in client.decompose("fetal-health", passes):  # [passes, inputs, classes]
            answer(result.id) if result.retained else ask_a_person(result)

An error is never a retain: an input that was answered with an error, or not at all, has not been
cleared. Result.retained is true only for a decision to retain.
"""

import importlib.metadata as _metadata

from ._client import Client, Session
from ._daemon import Daemon
from ._engine import Answer, Model, Outcome
from ._errors import (
    CommandError,
    DaemonError,
    Error,
    InternalError,
    InvalidInputError,
    OverloadedError,
    RefusedError,
    UnavailableError,
)
from ._offline import Calibration, Evaluation, NotCertifiedError, Report, calibrate, evaluate
from ._result import Pair, Policy, Result
from ._settings import ALL, DECISION, FULL, NO_RECEIPTS, REVIEWED, VECTORS, Detail, Kind, Receipts

__all__ = [
    "ALL",
    "DECISION",
    "FULL",
    "NO_RECEIPTS",
    "REVIEWED",
    "VECTORS",
    "Answer",
    "Calibration",
    "Client",
    "CommandError",
    "Daemon",
    "DaemonError",
    "Detail",
    "Error",
    "Evaluation",
    "InternalError",
    "InvalidInputError",
    "Kind",
    "Model",
    "NotCertifiedError",
    "Outcome",
    "OverloadedError",
    "Pair",
    "Policy",
    "Receipts",
    "RefusedError",
    "Report",
    "Result",
    "Session",
    "UnavailableError",
    "calibrate",
    "evaluate",
]

try:
    __version__ = _metadata.version("ckd")
except _metadata.PackageNotFoundError:  # not installed, as in a copy of the repository
    __version__ = "0+unknown"
