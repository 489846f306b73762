"""Holds results: decisions with class names and arrays, and how they are shown."""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _wire
from ._errors import Error, ended, error_of

Vector = npt.NDArray[np.float64]

_ACTIONS, _SCORES = _wire.names("Action"), _wire.names("Score")
_REASONS, _GATES = _wire.names("DecisionReason"), _wire.names("GateOutcome")

_BAR_CELLS = 16
_MOST_BARS = 10  # classes that are shown, the largest first, if there are more


@dataclasses.dataclass(frozen=True)
class Policy:
    """The policy that decided: its model, its own version text, and the hash of its meaning."""

    model: str
    version: str
    hash: str


@dataclasses.dataclass(frozen=True)
class Pair:
    """The epistemic confusion of two classes, in nats, and their correlation over the passes."""

    a: str
    b: str
    confusion: float
    correlation: float


@dataclasses.dataclass(frozen=True, repr=False)
class Result(_wire.Pickled):
    """The answer for one input: a decision with the uncertainty of each class, or an error.

    Vectors have one value for each class, in the order of classes. All figures are the daemon's,
    bit for bit. Quantities of information are in nats. What the session's detail leaves out, or an
    error, is an empty vector, or nan.
    """

    id: str
    decomposition: Any = None  # the daemon's message, ckd.v1.Decomposition; None for an error
    error: Error | None = None  # why there is no decision
    classes: tuple[str, ...] = ()  # names of the policy that decided; empty if unknown
    policy: Policy | None = None
    row: int = 0  # its position in the batch

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as the daemon's HTTP API has it: see docs/integrate.md#http.

        Classes are by number; receipts are base64.
        """
        made: dict[str, Any] = {"input_id": self.id} if self.id else {}
        made["row"] = self.row
        if self.decomposition is not None:
            made["decomposition"] = _plain(self.decomposition)
        elif self.error is not None:
            made["error"] = _plain_error(self.error)
        return made

    @property
    def action(self) -> str:
        """retain, defer or observe; error without a decision."""
        return "error" if self.decomposition is None else _ACTIONS[self.decomposition.decision.action]

    @property
    def retained(self) -> bool:
        """Whether the model's answer stands; otherwise a person must see the input."""
        return self.action == "retain"

    @property
    def settled(self) -> bool:
        """Whether it was decided before its last pass; passes says after how many."""
        return self.decomposition is not None and bool(self.decomposition.settled)

    @property
    def passes(self) -> int:
        """Passes that were used."""
        return 0 if self.decomposition is None else int(self.decomposition.passes)

    @property
    def predicted(self) -> str:
        """The class with the largest mean prediction; empty without a decision."""
        return "" if self.decomposition is None else self._name(self.decomposition.predicted)

    @property
    def deciding(self) -> str:
        """The critical class that set the score of a deferred input; empty if no single class did."""
        return self._optional_name("deciding_class", of_decision=True)

    @property
    def dominant(self) -> str:
        """The class of the largest C_k; empty when every C_k is zero."""
        return self._optional_name("dominant", of_decision=False)

    @property
    def unreliable(self) -> tuple[str, ...]:
        """Classes whose skewness is over the policy's threshold: their C_k cannot be trusted."""
        return () if self.decomposition is None else tuple(self._name(k) for k in self.decomposition.unreliable)

    @property
    def score(self) -> str:
        """The score that decided; empty without a decision."""
        return "" if self.decomposition is None else _SCORES[self.decomposition.decision.score]

    @property
    def value(self) -> float:
        """The value of the score."""
        return float("nan") if self.decomposition is None else float(self.decomposition.decision.value)

    @property
    def threshold(self) -> float | None:
        """What the value was compared with; None if the policy has no threshold for the score."""
        if self.decomposition is None or not self.decomposition.decision.HasField("threshold"):
            return None
        return float(self.decomposition.decision.threshold)

    @property
    def gate(self) -> str:
        """Which score decided, primary or fallback; empty if neither did."""
        gate = "" if self.decomposition is None else _GATES[self.decomposition.decision.gate]
        return "" if gate == "unspecified" else gate

    @property
    def reason(self) -> str:
        """Why it was decided so, as in above_threshold; for an error the daemon's reason."""
        if self.decomposition is None:
            return "" if self.error is None else self.error.reason
        return _REASONS[self.decomposition.decision.reason]

    @property
    def degenerate(self) -> bool:
        """Whether the passes hardly differ, or softmax was taken twice: the uncertainty is absent, not zero."""
        return self.decomposition is not None and bool(self.decomposition.degenerate)

    @property
    def saturated(self) -> bool:
        """Whether it is degenerate, and every pass was one-hot."""
        return self.decomposition is not None and bool(self.decomposition.saturated)

    @functools.cached_property
    def c(self) -> Vector:
        """Epistemic contribution C_k of each class, nats."""
        return self._vector("c")

    @functools.cached_property
    def skewness(self) -> Vector:
        """Skewness ratio of each class."""
        return self._vector("skewness")

    @functools.cached_property
    def mean(self) -> Vector:
        """Mean prediction of each class."""
        return self._vector("mean")

    @functools.cached_property
    def variance(self) -> Vector:
        """Variance of each class over the passes. Needs the detail FULL."""
        return self._vector("variance")

    @functools.cached_property
    def third_moment(self) -> Vector:
        """Third central moment of each class. Needs the detail FULL."""
        return self._vector("third_moment")

    @functools.cached_property
    def m(self) -> Vector:
        """Exact mutual information of each class, nats; sums to mi. Needs the detail FULL."""
        return self._vector("m")

    @functools.cached_property
    def c3(self) -> Vector:
        """Third-order form of C_k, nats, which may be negative. Needs the detail FULL."""
        return self._vector("c3")

    @property
    def mi(self) -> float:
        """Mutual information, nats."""
        return self._scalar("mi")

    @property
    def entropy(self) -> float:
        """Predictive entropy, nats."""
        return self._scalar("entropy")

    @property
    def sum_c(self) -> float:
        """Sum of C_k over all classes, nats."""
        return self._scalar("sum_c")

    @property
    def expected_entropy(self) -> float:
        """Mean entropy of the passes, nats. Needs the detail FULL."""
        return self._scalar("expected_entropy", "variance")

    @property
    def scores(self) -> dict[str, float]:
        """Every score by name. Needs the detail FULL."""
        if self.decomposition is None or not self.decomposition.HasField("scores"):
            return {}
        return {field.name: float(value) for field, value in self.decomposition.scores.ListFields()}

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of classes that the policy computes. Needs the detail FULL."""
        if self.decomposition is None:
            return ()
        return tuple(
            Pair(self._name(p.class_a), self._name(p.class_b), p.confusion, p.correlation)
            for p in self.decomposition.pairs
        )

    @property
    def risk(self) -> float | None:
        """Calibrated probability that an input called safe is truly critical; None without one."""
        return self._optional_scalar("risk")

    @property
    def priority(self) -> float | None:
        """Calibrated probability that the input is truly critical; None without a risk model."""
        return self._optional_scalar("priority")

    @property
    def priority_percentile(self) -> float | None:
        """The percentile, in [0,1], that work lists are sorted by, highest first."""
        return self._optional_scalar("priority_percentile")

    @property
    def review(self) -> bool:
        """Whether a person should find out the truth: it was deferred, or drawn for an audit.

        Only with receipts.
        """
        return self.decomposition is not None and bool(self.decomposition.review)

    @property
    def receipt(self) -> bytes:
        """The sealed record of the decision, to be kept and sent back with the truth; empty for none."""
        return b"" if self.decomposition is None else bytes(self.decomposition.receipt)

    def __str__(self) -> str:
        if self.decomposition is None:
            return f"no decision: {self.error}"
        # The score maxprob is one less the largest probability, which policies are worded by.
        score = "1 - largest probability" if self.score == "maxprob" else self.score
        text = f"{self.action}: predicted {self.predicted}, {score} {self.value:.4f}"
        if self.threshold is not None:
            text += f", {'above' if self.value > self.threshold else 'at most'} {self.threshold:.4f}"
        if self.deciding:
            text += f", deciding class {self.deciding}"
        if self.reason not in ("above_threshold", "under_threshold"):
            text += f" ({self.reason.replace('_', ' ')})"
        return text

    def __repr__(self) -> str:
        """Shows the decision and C_k of each class as bars; ? marks an unreliable class."""
        lines = [f"<{self.id or 'input'}: {self}"]
        shown = self._shown()
        width = max([12] + [len(self._name(k)) for k in shown])
        for k in shown:
            mark = "?" if k in self.decomposition.unreliable else " "
            lines.append(f"  {self._name(k):{width}} {self._bar(k):{_BAR_CELLS}} {mark} {self.c[k]:.4f}")
        if len(shown) < len(self.c):
            lines.append(f"  and {len(self.c) - len(shown)} classes with less")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        """Shows the same in a notebook."""
        color = {"retain": "#2e7d32", "observe": "#555"}.get(self.action, "#c62828")
        rows = []
        for k in self._shown():
            c = float(self.c[k])
            mark = ' <span title="unreliable: skewness over the threshold">?</span>' if k in self.decomposition.unreliable else ""
            bar = f'<div style="background:#5c7cfa;height:0.8em;width:{self._share(k):.1%}"></div>'
            rows.append(
                f'<tr><td style="text-align:left">{html.escape(self._name(k))}{mark}</td>'
                f'<td style="width:12em">{bar}</td><td>{c:.4f}</td></tr>'
            )
        left = len(self.c) - len(rows)
        more = f'<tr><td colspan="3">and {left} classes with less</td></tr>' if left > 0 else ""
        table = f"<table><tr><th>class</th><th>C_k</th><th>nats</th></tr>{''.join(rows)}{more}</table>" if rows else ""
        return (
            f'<div><b>{html.escape(self.id)}</b> <span style="color:{color}">{html.escape(str(self))}</span>{table}</div>'
        )

    def _shown(self) -> list[int]:
        """Returns the classes to show: all, or those of the largest C_k."""
        if len(self.c) <= _MOST_BARS:
            return list(range(len(self.c)))
        return [int(k) for k in np.argsort(-self.c, kind="stable")[:_MOST_BARS]]

    def _share(self, k: int) -> float:
        largest = float(self.c.max())
        return float(self.c[k]) / largest if largest > 0 else 0.0

    def _bar(self, k: int) -> str:
        eighths = int(self._share(k) * _BAR_CELLS * 8 + 0.5)
        return "█" * (eighths // 8) + ("" if eighths % 8 == 0 else "▏▎▍▌▋▊▉"[eighths % 8 - 1])

    def _name(self, number: int) -> str:
        return self.classes[number] if number < len(self.classes) else f"class {number}"

    def _optional_name(self, field: str, of_decision: bool) -> str:
        if self.decomposition is None:
            return ""
        message = self.decomposition.decision if of_decision else self.decomposition
        return self._name(getattr(message, field)) if message.HasField(field) else ""

    def _vector(self, field: str) -> Vector:
        if self.decomposition is None:
            return np.empty(0)
        return np.array(getattr(self.decomposition, field), dtype=np.float64)

    def _scalar(self, field: str, beside: str = "mean") -> float:
        """Returns a number that comes with the vector beside it, or nan where that is left out."""
        if self.decomposition is None or not len(getattr(self.decomposition, beside)):
            return float("nan")
        return float(getattr(self.decomposition, field))

    def _optional_scalar(self, field: str) -> float | None:
        if self.decomposition is None or not self.decomposition.HasField(field):
            return None
        return float(getattr(self.decomposition, field))


def policy_of(ref: Any) -> Policy:
    """Returns a ckd.v1.PolicyRef as a Policy."""
    return Policy(ref.model, ref.version, ref.hash)


def result_of(id: str, row: int, answer: Any, classes: tuple[str, ...], policy: Policy | None) -> Result:
    """Returns the result for the input with this id and this row of the caller's batch."""
    if answer.HasField("error"):
        error = error_of(answer.error)
        if "row" in error.fields:
            error.fields["row"] = str(row)  # the caller's, not the wire's
        return Result(id, error=error, classes=classes, policy=policy, row=row)
    if answer.input_id != id or not answer.HasField("decomposition"):
        # A decision for another input must not count for this one.
        return Result(id, error=ended(f"answered as {answer.input_id!r}, or with nothing"), row=row)
    return Result(id, answer.decomposition, classes=classes, policy=policy, row=row)


def _plain(message: Any) -> dict[str, Any]:
    """Returns a message as the dict of its JSON, with the zeros that were computed."""
    present = {field.name for field, _ in message.ListFields()}.union(_computed(message))
    made = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in present:
            value = getattr(message, field.name)
            repeated = hasattr(value, "extend")
            made[field.name] = [_plain_value(field, one) for one in value] if repeated else _plain_value(field, value)
    return made


def _plain_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.type == field.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if field.type == field.TYPE_UINT64:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _computed(message: Any) -> tuple[str, ...]:
    """Returns the fields of a message that are present even if they are zero, as in the gateway of HTTP."""
    name = message.DESCRIPTOR.name
    if name == "Decomposition":
        return (
            "predicted", "degenerate", "saturated", "settled", *(("mi", "entropy", "sum_c") if message.c else ()),
            *(("expected_entropy", "sum_c_top", "sum_c_weighted") if message.variance else ()),
            *(("review",) if message.receipt else ()),
        )  # fmt: skip
    return {"Decision": ("value",), "PairTerm": ("class_a", "class_b", "confusion", "correlation")}.get(name, ())


def _plain_error(error: Error) -> dict[str, Any]:
    """Returns an error as the dict of a google.rpc.Status. The row is the caller's."""
    if not error.status:
        return {"code": error.code or _UNKNOWN, "message": error.message}
    made = _wire.stated(_wire.Status.FromString(error.status))
    for detail in made.get("details", ()):
        if "row" in detail.get("metadata", ()):
            detail["metadata"]["row"] = error.fields["row"]
    return made


_UNKNOWN = 2  # the code of gRPC for errors without one
