"""Computes the passes of PyTorch models: MC dropout, and the members of an ensemble.

    sampler = ckd.torch.mc_dropout(model, passes=30)
    with client.session("fetal-health", accept_settled=True) as session:
        results = sampler.decide(session, ids, batch)

Models may be on any device and in any precision. Their outputs are logits unless output says
otherwise; the softmax is taken in float32.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ._arrays import Context
from ._client import Session
from ._result import Result

__all__ = ["Sampler", "ensemble", "mc_dropout"]

LOGITS, PROBABILITIES = "logits", "probabilities"


class Sampler:
    """Computes passes of a batch: a tensor, or a tuple or dict of tensors for the model's arguments.

    Every tensor has the inputs on its first axis. The model's modes are as before when a call
    returns or raises.
    """

    def __init__(self, members: Sequence[Any], passes: int, dropout: tuple[type, ...], output: Any) -> None:
        if output not in (LOGITS, PROBABILITIES) and not callable(output):
            raise ValueError(f"output is {output!r}, expected {LOGITS!r}, {PROBABILITIES!r} or a function of the model's output")
        self.passes, self._members, self._dropout, self._output = passes, list(members), dropout, output

    def __call__(self, batch: Any) -> npt.NDArray[np.float32]:
        """Returns all passes of a batch, [passes, inputs, classes]."""
        with self._sampling():
            return np.stack([self._pass(s, batch, None) for s in range(self.passes)])

    def decide(
        self, session: Session, ids: Iterable[str], batch: Any, contexts: Sequence[Context] | None = None
    ) -> list[Result]:
        """Returns one result for every input of a batch. Inputs that are answered are left out of the next pass."""
        computed = iter(range(self.passes))
        size = _size(batch)

        def forward(rows: Any) -> Any:
            return self._pass(next(computed), batch, rows if len(rows) < size else None)

        with self._sampling():
            return session.decide(ids, forward, self.passes, contexts)

    def decide_batches(self, session: Session, batches: Iterable[tuple[Iterable[str], Any]]) -> Iterator[list[Result]]:
        """Yields the results of each batch; batches has the ids of each, and its tensors."""
        for ids, batch in batches:
            yield self.decide(session, ids, batch)

    @contextlib.contextmanager
    def _sampling(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for member in self._members:
                stack.enter_context(_modes.sampling(member, self._dropout))
            yield

    def _pass(self, s: int, batch: Any, rows: Any) -> Any:
        member = self._members[s % len(self._members)]
        with torch.inference_mode():
            out = _call(member, _on(batch, rows, _device_of(member)))
            out = getattr(out, "logits", out[0] if isinstance(out, (tuple, list)) else out)
            if self._output == LOGITS:
                out = torch.softmax(out.float(), dim=-1)
            elif self._output != PROBABILITIES:
                out = self._output(out)
            return out.float().cpu().numpy()


def mc_dropout(model: Any, passes: int = 30, *, also: Sequence[type] = (), output: str | Callable[[Any], Any] = LOGITS) -> Sampler:
    """Returns a sampler of passes with dropout, as in Gal and Ghahramani.

    Dropout layers alone are in training mode while it computes; batch normalisation, for example, is
    not. also names further classes of layers that drop at random. Dropout that a model calls as a
    function, without a layer, stays off: a model without any layer raises ValueError.
    """
    if passes < 1:
        raise ValueError(f"passes is {passes}, expected at least 1")
    dropout = (torch.nn.modules.dropout._DropoutNd, *also)
    layers = [module for module in model.modules() if isinstance(module, dropout)]
    if not any(getattr(layer, "p", 1) for layer in layers):
        raise ValueError(
            f"found {len(layers)} dropout layers that drop anything in {type(model).__name__}, expected at least one:"
            " all passes would be the same (name classes of your own with also=[...])"
        )
    return Sampler([model], passes, dropout, output)


def ensemble(members: Sequence[Any], *, output: str | Callable[[Any], Any] = LOGITS) -> Sampler:
    """Returns a sampler whose passes are those of the members, in their order and in evaluation mode."""
    members = list(members)
    if len(members) < 2:
        raise ValueError(f"found {len(members)} members, expected at least 2")
    return Sampler(members, len(members), (), output)


class _Modes:
    """Sets the modes of models while anybody samples, and restores them after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._saved: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[Any, bool]]]] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def sampling(self, model: Any, dropout: tuple[type, ...]) -> Iterator[None]:
        with self._lock:
            users, saved = self._saved.get(model, (0, []))
            if not users:
                saved = [(module, module.training) for module in model.modules()]
                for module, _ in saved:
                    module.training = bool(dropout) and isinstance(module, dropout)
            self._saved[model] = users + 1, saved
        try:
            yield
        finally:
            with self._lock:
                users, saved = self._saved[model]
                if users > 1:
                    self._saved[model] = users - 1, saved
                else:
                    del self._saved[model]
                    for module, training in saved:
                        module.training = training


_modes = _Modes()


def _tensors(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    return list(batch) if isinstance(batch, (tuple, list)) else [batch]


def _size(batch: Any) -> int:
    """Returns the number of inputs, which all tensors of a batch have."""
    sizes = {len(tensor) for tensor in _tensors(batch)}
    if len(sizes) != 1:
        raise ValueError(f"found tensors of {sorted(sizes)} inputs in one batch, expected the same number in each")
    return int(sizes.pop())


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
    """Returns the device of a model's parameters, or None without any."""
    first = next(iter(model.parameters()), None)
    return None if first is None else first.device
