"""Computes the passes of PyTorch models: MC dropout, and the members of an ensemble.

    sampler = ckd.torch.mc_dropout(model, passes=30)
    with client.session("fetal-health", accept_settled=True) as session:
        results = sampler.decide(session, ids, batch)

Models may be on any device and in any precision. The softmax is taken in float32, and never of
outputs that are probabilities already.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from . import _replica
from ._arrays import Context
from ._client import Session
from ._result import Result

__all__ = ["Sampler", "ensemble", "mc_dropout"]

LOGITS, PROBABILITIES = "logits", "probabilities"

_NORMALISATION = torch.nn.modules.batchnorm._NormBase  # of batches and of instances, synchronised and lazy ones too
_RANDOM = (torch.nn.modules.dropout._DropoutNd, torch.nn.RNNBase, torch.nn.MultiheadAttention, torch.nn.RReLU,
           torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d)  # fmt: skip

_BATCHES = 10  # are examined at most
_EXAMINED = 64  # inputs of a batch
_TRIALS = 20  # passes of these
_LEAST = 0.01  # coefficient of variation of the second class, under which the daemon calls an input degenerate
_ROUNDING = 1e-4  # the same, under which passes are equal
_NORMALISED = 32  # inputs with which batch normalisation is comparable
_FACTOR = 2  # spreads further apart than this differ

_KEEP = "Override the model's method train so that modules that compute something else then stay in evaluation mode"


class Sampler:
    """Computes passes of a batch: a tensor, or a tuple or dict of tensors for the model's arguments.

    Every tensor has the inputs on its first axis. Each call computes on replicas, which share the
    parameters: modes, buffers and answers of the model stay as they are, for other threads too.
    """

    def __init__(self, members: Sequence[Any], passes: int, output: Any, sampling: bool) -> None:
        if output not in (LOGITS, PROBABILITIES) and not callable(output):
            raise ValueError(f"output is {output!r}, expected {LOGITS!r}, {PROBABILITIES!r} or a function of the model's output")
        self.passes, self._members, self._output, self._sampling = passes, list(members), output, sampling
        self._lock, self._unexamined, self._softmax = threading.Lock(), _BATCHES, output == LOGITS
        self._still: set[str] = set()  # modules that stay in evaluation mode beside normalisation
        self._private: set[str] = set()  # modules that change their buffers while they sample
        for member in self._members:
            _replica.check(member)
        self._replicas()

    def __call__(self, batch: Any) -> npt.NDArray[np.float32]:
        """Returns all passes of a batch, [passes, inputs, classes]."""
        with self._computing(batch) as replicas:
            return np.stack([self._pass(replicas, s, batch, None) for s in range(self.passes)])

    def decide(
        self, session: Session, ids: Iterable[str], batch: Any, contexts: Sequence[Context] | None = None
    ) -> list[Result]:
        """Returns one result for every input of a batch. Inputs that are answered are left out of the next pass."""
        computed = iter(range(self.passes))
        size = _size(batch)
        with self._computing(batch) as replicas:

            def forward(rows: Any) -> Any:
                return self._pass(replicas, next(computed), batch, rows if len(rows) < size else None)

            return session.decide(ids, forward, self.passes, contexts)

    def decide_batches(self, session: Session, batches: Iterable[tuple[Iterable[str], Any]]) -> Iterator[list[Result]]:
        """Yields the results of each batch; batches has the ids of each, and its tensors."""
        for ids, batch in batches:
            yield self.decide(session, ids, batch)

    @contextlib.contextmanager
    def _computing(self, batch: Any) -> Iterator[list[Any]]:
        """Returns replicas that compute a batch. The first batches are examined, until one tells."""
        size = _size(batch)
        try:
            with self._lock:
                if size and self._unexamined:
                    self._unexamined = 0 if self._examine(batch) else self._unexamined - 1
                replicas = self._replicas()
            yield replicas
        finally:
            torch.clear_autocast_cache()  # its casts have no gradients, and the caller may go on to train

    def _replicas(self) -> list[Any]:
        if not self._sampling:
            return [_evaluating(member) for member in self._members]

        def buffer(path: str, tensor: Any) -> Any:
            return tensor.clone() if path in self._private else tensor

        return [self._training(_replica.replicate(member, buffer)) for member in self._members]

    def _training(self, replica: Any) -> Any:
        return _replica.set_modes(replica, lambda path, module: path not in self._still and not isinstance(module, _NORMALISATION))

    def _pass(self, replicas: list[Any], s: int, batch: Any, rows: Any) -> Any:
        return self._probabilities(self._compute(replicas[s % len(replicas)], batch, rows))

    def _compute(self, replica: Any, batch: Any, rows: Any) -> Any:
        """Returns a model's output for some rows of a batch, or all, [rows, classes]."""
        with torch.inference_mode():
            out = _call(replica, _on(batch, rows, _device_of(replica)))
            out = out["logits"] if isinstance(out, Mapping) and "logits" in out else getattr(out, "logits", out)
            out = out[0] if isinstance(out, (tuple, list)) else out
            out = self._output(out) if callable(self._output) else out
        _check_output(out, _size(batch) if rows is None else len(rows))
        return out

    def _probabilities(self, out: Any) -> npt.NDArray[np.float32]:
        """Returns the probabilities of a model's output, in memory of their own."""
        with torch.inference_mode():
            values = out.float()
            if self._softmax:
                values = torch.softmax(values, dim=-1)
            elif out.dtype in (torch.float16, torch.bfloat16):
                values = values / values.sum(-1, keepdim=True)  # of rounded probabilities
            return np.asarray(values.to("cpu", copy=True).numpy())

    def _examine(self, batch: Any) -> bool:
        """Checks what the outputs are and whether passes vary, as much as in training mode.

        Returns False for a batch that does not tell, because all of its inputs are certain.
        """
        rows = np.arange(min(_size(batch), _EXAMINED))
        left = self._find_still(batch, rows) if self._sampling else set()
        replicas = self._replicas()
        trials = _TRIALS if self._sampling else self.passes
        outputs = [self._compute(replicas[s % len(replicas)], batch, rows) for s in range(trials)]
        self._recognise(outputs)
        passes = np.stack([self._probabilities(out) for out in outputs]).astype(np.float64)

        name, mean = type(self._members[0]).__name__, passes.mean(0)
        differing = self._differing(batch, rows, left, replicas[0], _spread(passes)) if self._sampling else ""
        second = np.argsort(mean, axis=1)[:, -2:-1]
        mean, deviation = (np.take_along_axis(values, second, 1) for values in (mean, passes.std(0)))
        alive = mean > 0
        variation = (deviation[alive] / mean[alive]).max(initial=0)
        if alive.any() and variation < _LEAST:
            cause = "the members are equal"
            if self._sampling:
                cause = differing or "no part of the model drops at random, or its outputs do not depend on it"
            told = (
                f"{trials} passes of {name} are nearly the same: the probability of the second class varies by at most"
                f" {variation:.1g} of its mean over {len(rows)} inputs, expected at least {_LEAST} ({cause})"
            )
            if variation < _ROUNDING:
                raise ValueError(told)
            warnings.warn(told, stacklevel=5)
        elif differing:
            warnings.warn(f"{name}: {differing}", stacklevel=5)
        return bool(alive.any())

    def _find_still(self, batch: Any, rows: Any) -> set[str]:
        """Finds what stays in evaluation mode: what train() leaves there, which it returns, and what gathers statistics."""
        model = self._members[0]
        left, set_too = _replica.trained(model)
        self._still, self._private = set(left), set()
        if set_too:
            warnings.warn(
                f"train() of {type(model).__name__} also sets {', '.join(set_too[:5])}; passes are computed with these as they are."
                " Call model.train() before if they belong to what drops at random",
                stacklevel=6,
            )
        expected = self._compute(_evaluating(model, _cloned), batch, rows)
        trial = self._training(_replica.replicate(model, _cloned))
        with _replica.calls(model) as called:
            try:
                found = self._compute(trial, batch, rows)
            except Exception as error:
                raise ValueError(
                    f"{type(model).__name__} computes a batch in evaluation mode, but not in training mode ({error}). {_KEEP}"
                ) from error
        if called:
            raise ValueError(
                f"the forward of {type(model).__name__} reaches its {type(called[0]).__name__} through a closure, a global or an"
                " object, where a replica cannot follow; expected modules to be reached through self"
            )
        if found.shape != expected.shape:
            raise ValueError(
                f"{type(model).__name__} returns {list(found.shape)} in training mode, but {list(expected.shape)} in"
                f" evaluation mode. {_KEEP}"
            )
        for path, tensor in _replica.changed_buffers(trial, _replica.replicate(model)):
            (self._still if tensor.is_floating_point() else self._private).add(path)
        return left

    def _recognise(self, outputs: list[Any]) -> None:
        """Finds out whether outputs are logits or probabilities, and checks what they are said to be."""
        values = torch.stack([out.float().cpu() for out in outputs])
        values = values[torch.isfinite(values).all(-1)]  # others are refused input by input
        tolerance = 1e-2 if outputs[0].dtype in (torch.float16, torch.bfloat16) else 1e-3
        inside = ((values >= -tolerance) & (values <= 1 + tolerance)).all(-1)
        rows = inside & ((values.sum(-1) - 1).abs() <= tolerance)
        if self._output == LOGITS:
            self._softmax = not (len(rows) and bool(rows.all()))
            if len(rows) and inside.all() and self._softmax and outputs[0].numel() >= 24:
                warnings.warn(
                    f"{type(self._members[0]).__name__}: all outputs lie in [0, 1] and do not sum to 1. Their softmax is taken,"
                    " which is wrong for sigmoids: with output=, give a function that makes probabilities of them",
                    stacklevel=6,
                )
        elif not rows.all():
            row, output = values[~rows][0], getattr(self._output, "__name__", self._output)
            raise ValueError(
                f"output={output}: found a row with the sum {float(row.sum()):.4g} from {float(row.min()):.4g} to"
                f" {float(row.max()):.4g}, expected probabilities with the sum 1 (leave output out for logits)"
            )

    def _differing(self, batch: Any, rows: Any, left: set[str], replica: Any, spread: float) -> str:
        """Compares the spread of what is sampled with that in training mode, and describes a difference."""
        model = self._members[0]
        # Statistics of a few inputs say nothing, and those of synchronised layers wait for other processes.
        normalising = len(rows) >= _NORMALISED and not any(isinstance(m, torch.nn.SyncBatchNorm) for m in model.modules())
        reference = _replica.set_modes(
            _replica.replicate(model, _cloned),
            lambda path, module: path not in left and (normalising or not isinstance(module, _NORMALISATION)),
        )
        pairs = zip(replica.named_modules(), reference.modules())
        still = [_replica.where(path, a) for (path, a), b in pairs if a.training != b.training]
        if not still:
            return ""
        try:
            passes = [self._probabilities(self._compute(reference, batch, rows)) for _ in range(_TRIALS)]
        except Exception:  # such as that of normalisation over a single value
            return ""
        expected = _spread(np.stack(passes))
        if not max(spread, expected) > _FACTOR * min(spread, expected):
            return ""
        return (
            f"passes have a spread of {spread:.4f}, in training mode {expected:.4f} (mean standard deviation of probabilities,"
            f" {len(rows)} inputs, {_TRIALS} passes). Normalisation stays in evaluation mode, and whatever changes its buffers:"
            f" {', '.join(still[:5])}{', ...' * (len(still) > 5)}. Either running statistics do not fit these inputs, or one of"
            " these drops at random, and has to keep what it changes in an attribute that is no buffer"
        )


def mc_dropout(model: Any, passes: int = 30, *, example: Any = None, output: str | Callable[[Any], Any] = LOGITS) -> Sampler:
    """Returns a sampler of passes with dropout, as in Gal and Ghahramani.

    It samples what the model samples in training mode: dropout of layers, of recurrent layers and
    attention, and of functions. Normalisation stays in evaluation mode, and so do modules whose
    buffers change in training mode, and what the model's own method train leaves there.

    The first batch, or example if there is one, is examined: passes that do not vary raise
    ValueError, and a spread other than in training mode is a warning with both numbers. Outputs
    are logits, or probabilities if their rows are.
    """
    if passes < 1:
        raise ValueError(f"passes is {passes}, expected at least 1")
    sampler = Sampler([model], passes, output, True)
    if not any(map(_may_vary, model.modules())):
        raise ValueError(f"no part of {type(model).__name__} drops anything at random, expected dropout: all passes would be the same")
    if example is not None:
        with sampler._computing(example):
            pass
    return sampler


def ensemble(members: Sequence[Any], *, output: str | Callable[[Any], Any] = LOGITS) -> Sampler:
    """Returns a sampler whose passes are those of the members, in their order and in evaluation mode."""
    members = list(members)
    if len(members) < 2:
        raise ValueError(f"found {len(members)} members, expected at least 2")
    return Sampler(members, len(members), output, False)


def _spread(passes: npt.NDArray[Any]) -> float:
    """Returns the mean standard deviation over passes, of the inputs whose passes are all finite."""
    values = passes[:, np.isfinite(passes).all((0, 2))]
    return float(values.std(0).mean()) if values.size else float("nan")


def _may_vary(module: Any) -> bool:
    """Reports whether a module may compute anything at random; those of others than PyTorch may."""
    if not type(module).__module__.startswith("torch.nn.modules.") or "forward" in vars(module):
        return True
    drops = isinstance(module, _RANDOM) and vars(module).get("p", vars(module).get("dropout", 1))
    return bool(drops or module._forward_hooks or module._forward_pre_hooks)


def _evaluating(model: Any, buffer: Callable[[str, Any], Any] = _replica.same) -> Any:
    return _replica.set_modes(_replica.replicate(model, buffer), lambda *_: False)


def _cloned(_: str, tensor: Any) -> Any:
    return tensor.clone()


def _check_output(out: Any, rows: int) -> None:
    if not isinstance(out, torch.Tensor):
        keys = f" with {', '.join(map(str, out))}" if isinstance(out, Mapping) else ""
        raise ValueError(f"the model returns {type(out).__name__}{keys}, expected logits; output= takes a function that gives them")
    if out.ndim != 2 or out.shape[0] != rows or out.shape[1] < 2:
        how = ""
        if out.shape in ((rows,), (rows, 1)):
            how = (
                ". Of one value for each input, two classes are made by output=lambda p: torch.stack([1 - p, p], -1).view(-1, 2)"
                " if it is a probability; if it is a logit, with p.sigmoid() in place of p"
            )
        raise ValueError(f"the model returns {list(out.shape)} for {rows} inputs, expected [{rows}, classes] with at least 2 classes{how}")


def _tensors(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    return list(batch) if isinstance(batch, (tuple, list)) else [batch]


def _size(batch: Any) -> int:
    """Returns the number of inputs, which all tensors of a batch have."""
    sizes = set()
    for tensor in _tensors(batch):
        if not isinstance(tensor, torch.Tensor) or not tensor.ndim:
            raise TypeError(f"found {type(tensor).__name__} in a batch, expected tensors with the inputs on their first axis")
        sizes.add(len(tensor))
    if len(sizes) != 1:
        raise ValueError(f"found tensors of {sorted(sizes)} inputs in one batch, expected the same number in each")
    return sizes.pop()


def _on(batch: Any, rows: Any, device: Any) -> Any:
    """Returns some rows of a batch, or all, on a device."""

    def take(tensor: Any) -> Any:
        if rows is not None:
            tensor = tensor[torch.as_tensor(rows, device=tensor.device)]
        return tensor if device is None else tensor.to(device)

    if isinstance(batch, Mapping):
        return {name: take(tensor) for name, tensor in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(take(tensor) for tensor in batch)
    return take(batch)


def _call(model: Any, batch: Any) -> Any:
    if isinstance(batch, dict):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def _device_of(model: Any) -> Any:
    """Returns the device of a model's first parameter that is on one, or None."""
    return next((tensor.device for tensor in model.parameters() if tensor.device.type != "meta"), None)
