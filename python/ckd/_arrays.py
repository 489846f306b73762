"""Checks what callers pass in, and says what was found and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _wire

Values = npt.NDArray[np.float32]  # little-endian, in C order

# What a receipt holds of an input: None, or a dict with "group", such as a patient, and "slices", a
# dict of str.
Context = Optional[Mapping[str, Union[str, Mapping[str, str]]]]


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Returns the ids as a list of str, and checks that no two are the same."""
    try:
        listed = list(ids)
    except TypeError:
        raise TypeError(f"ids is {described(ids)}, expected a list with one str for each input") from None
    places: dict[str, int] = {}
    for i, id in enumerate(listed):
        if not isinstance(id, str):
            raise TypeError(f"id {i} is {id!r} ({described(id)}), expected a str, as of [str(id) for id in ids]")
        if id and places.setdefault(id, i) != i:
            raise ValueError(f"ids {places[id]} and {i} are both {id!r}, expected each id once, or empty ones")
    return listed


def checked_contexts(contexts: Sequence[Context] | None, inputs: int) -> list[Any]:
    """Returns contexts as messages, one for each input, or none."""
    if contexts is None:
        return []
    contexts = list(contexts)
    if len(contexts) != inputs:
        raise ValueError(f"found {len(contexts)} contexts, expected {inputs}: one for each input")
    messages = []
    for i, context in enumerate(contexts):
        try:
            messages.append(_wire.InputContext(**(context or {})))
        except (TypeError, ValueError, AttributeError) as error:
            form = '{"group": str, "slices": {str: str}}'
            raise TypeError(f"context {i} is {context!r}, expected None or a dict {form}: {error}") from None
    return messages


def numeric(values: Any, what: str) -> npt.NDArray[Any]:
    """Returns values as an array of numbers, or raises TypeError that says what they are."""
    why = ""
    if isinstance(values, np.ma.MaskedArray) and np.any(values.mask):
        raise TypeError(f"{what}: found a masked array with masked values, expected every value (.filled(...) chooses some)")
    try:
        array: npt.NDArray[Any] = np.asarray(values)
        if array.dtype.kind in "fiu":
            return array
        if not hasattr(values, "dtype"):
            why = f", of which NumPy makes {array.dtype}"
    except Exception as error:  # of any library
        why = f": {error}"
    how = " (.detach().float().cpu().numpy() gives one)" if hasattr(values, "detach") else ""
    raise TypeError(
        f"{what}: found {described(values)}{why}; expected an array of float16, float32 or float64"
        f" in the memory of the CPU{how}"
    )


def ordered(values: Any, layout: str, what: str, count: int | None, counted: str) -> npt.NDArray[Any]:
    """Returns complete passes as [passes, inputs, classes], a view where values are an array.

    count is the number of inputs by the caller's ids or labels, which counted names, or None.
    """
    layout = layout_of(layout)
    array = numeric(values, what)
    if array.ndim != 3:
        raise ValueError(f"{what} have the shape {array.shape}, expected three axes: {_AXES[layout]}")
    array = array if layout == "snk" else array.transpose(1, 0, 2)
    if count is not None and array.shape[1] != count:
        hint = swapped(layout) if len(array) == count else ""
        raise ValueError(
            f"found {count} {counted} for {len(array)} passes of {array.shape[1]} inputs ({_AXES[layout]}),"
            f" expected one for each input{hint}"
        )
    return array


def check_class_axis(array: npt.NDArray[Any], inputs: int) -> None:
    """Raises ValueError for probabilities whose classes are not the last of three axes, and says how to transpose."""
    if array.ndim != 3 or _sums_to_1(array, 2):
        return
    axis = next((a for a in (1, 0) if _sums_to_1(array, a)), None)
    if axis is None:
        return
    others = [a for a in range(3) if a != axis]
    of_inputs = [a for a in others if array.shape[a] == inputs]
    order = f"np.moveaxis(passes, {axis}, 2)"
    if len(of_inputs) == 1:
        (of_passes,) = (a for a in others if a != of_inputs[0])
        order = f"passes.transpose({of_passes}, {of_inputs[0]}, {axis})"
    raise ValueError(
        f"passes have the shape {array.shape} and sum to 1 along axis {axis},"
        f" expected [passes, inputs, classes], as {order} gives"
    )


def _sums_to_1(array: npt.NDArray[Any], axis: int) -> bool:
    """Reports whether the first vectors along an axis are distributions."""
    first = array[tuple(slice(None) if a == axis else slice(8) for a in range(3))]
    return bool(first.size) and np.allclose(first.sum(axis=axis, dtype=np.float64), 1, atol=0.01)


_AXES = {"snk": "[passes, inputs, classes]", "nsk": "[inputs, passes, classes]"}


def layout_of(layout: str) -> str:
    """Checks the name of a layout, and returns it in lower case."""
    lower = layout.lower() if isinstance(layout, str) else layout
    if lower not in _AXES:
        choices = " or ".join(f"{name!r}, {axes}" for name, axes in _AXES.items())
        raise ValueError(f"layout is {layout!r}, expected {choices}")
    return lower


def swapped(layout: str) -> str:
    """Asks whether the axes are in the other order, and says what to do then."""
    other = "nsk" if layout == "snk" else "snk"
    return f" (are the axes {_AXES[other]}? Then say layout={other!r})"


_WIRE = np.dtype("<f4")


def encoded(values: npt.NDArray[Any]) -> Values:
    """Returns values as the wire has them, without a copy where they are so already."""
    return np.ascontiguousarray(values, dtype=_WIRE)


def copied(values: npt.NDArray[Any]) -> Values:
    """Returns a copy of values as the wire has them: the array itself is its caller's to write to."""
    return np.array(values, dtype=_WIRE, order="C")


def described(value: object) -> str:
    """Describes the type of a value, and the properties of a tensor."""
    about = [f"{name} {getattr(value, name)}" for name in ("dtype", "device") if hasattr(value, name)]
    about += ["requires grad"] if getattr(value, "requires_grad", False) is True else []
    return type(value).__name__ + (f" ({', '.join(about)})" if about else "")


def listed(classes: Sequence[str]) -> str:
    """Describes the number of classes and the names of the first ten."""
    return f"the {len(classes)} classes {', '.join(classes[:10])}" + (", ..." if len(classes) > 10 else "")
