"""Holds what callers choose for a session or a call."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from . import _wire


class Detail(enum.IntEnum):
    """How much a result carries."""

    DECISION = 1  # the decision and the unreliable classes
    VECTORS = 2  # also C_k, skewness and mean of every class
    FULL = 3  # everything


class Receipts(enum.IntEnum):
    """Which results carry a receipt."""

    NONE = 0
    REVIEWED = 1  # those that a person looks at
    ALL = 2


class Kind(enum.IntEnum):
    """What rows are. POLICY stands for the kind that the policy accepts."""

    POLICY = 0
    PROBABILITIES = 1
    LOGITS = 2
    DIRICHLET = 3


DECISION, VECTORS, FULL = Detail.DECISION, Detail.VECTORS, Detail.FULL
NO_RECEIPTS, REVIEWED, ALL = Receipts.NONE, Receipts.REVIEWED, Receipts.ALL


def settings(
    detail: int, receipts: int, model_version: str, classes: Sequence[str], kind: int, posterior: str
) -> dict[str, Any]:
    """Returns what the header of a stream and a call have in common."""
    return {
        "detail": int(Detail(detail)), "receipts": int(Receipts(receipts)), "model_version": model_version,
        "classes": list(classes), "kind": int(Kind(kind)), "posterior": posterior,
    }  # fmt: skip


def header(model: str, passes: int, accept_settled: bool, common: dict[str, Any]) -> Any:
    """Returns the first message of a stream."""
    request = _wire.StreamRequest()
    request.header.model, request.header.passes, request.header.accept_settled = model, passes, accept_settled
    request.header.MergeFrom(type(request.header)(**common))
    return request
