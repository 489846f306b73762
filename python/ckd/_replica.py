"""Makes replicas of PyTorch models: parameters are shared, modes, attributes and hooks are not."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Modules that only wrap one other. A replica goes without them: compiled code has modes of its own,
# and a distributed forward waits for other processes.
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DistributedDataParallel": "module"}
_SHARDED = {"FullyShardedDataParallel", "FSDPModule"}
_ATOMS = {bool, int, float, str, bytes, type(None), torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device}


def check(model: Any) -> None:
    """Raises TypeError or ValueError for a model of which no replica can be made."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"found {type(model).__name__}, expected a torch.nn.Module")
    for path, module in model.named_modules():
        if _SHARDED & {base.__name__ for base in type(module).__mro__}:
            raise TypeError(f"{where(path, module)} shards its parameters, expected them whole: gather them into a model of one device")
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if torch.nn.parameter.is_lazy(tensor):
                raise ValueError(f"{name} of {where(path, module)} is not initialised: run the model on one batch first")


def where(path: str, module: Any) -> str:
    """Names a module of a model."""
    return f"{path} ({type(module).__name__})" if path else type(module).__name__


def same(_: str, tensor: Any) -> Any:
    return tensor


def replicate(model: Any, buffer: Callable[[str, Any], Any] = same, parameter: Callable[[str, Any], Any] = same) -> Any:
    """Returns a replica. Its modules have the modes of the model's.

    buffer and parameter return the replica's tensor for one of a module's, given the module's name.
    Scripted modules are shared.
    """
    modules = list(model.named_modules())
    twins: dict[int, Any] = {}  # what takes the place of an object of the model, by its id
    for _, module in modules:
        inner = _unwrapped(module)
        if id(inner) not in twins:
            twins[id(inner)] = inner if isinstance(inner, torch.jit.ScriptModule) else object.__new__(type(inner))
        twins[id(module)] = twins[id(inner)]

    def bound(value: Any) -> Any:
        """Returns an attribute with the replica's modules in place of the model's."""
        kind = type(value)
        if kind in _ATOMS:
            return value
        if id(value) in twins:
            return twins[id(value)]
        if kind is dict or kind is OrderedDict:
            if not value:  # as most dicts of hooks are
                return kind()
            made = twins[id(value)] = kind()
            made.update((key, bound(item)) for key, item in dict.copy(value).items())  # another thread may change it
            return made
        if kind is list:
            made = twins[id(value)] = []
            made.extend(map(bound, value))
            return made
        if kind is tuple:
            return tuple(map(bound, value))
        if kind is types.MethodType and id(value.__self__) in twins:
            return types.MethodType(value.__func__, twins[id(value.__self__)])
        if kind is functools.partial:
            made = functools.partial(bound(value.func), *map(bound, value.args), **bound(value.keywords))
            made.__dict__.update(value.__dict__)
            return made
        if kind is types.FunctionType and hasattr(value, "_torchdynamo_orig_callable"):
            return bound(value._torchdynamo_orig_callable)  # compiled for the model alone
        return value

    for path, module in modules:
        twin = twins[id(module)]
        if twin is module or module is not _unwrapped(module):
            continue
        vars(twin).update({name: bound(value) for name, value in dict.copy(vars(module)).items()})
        vars(twin).pop("_compiled_call_impl", None)
        for tensors, made in ((twin._parameters, parameter), (twin._buffers, buffer)):
            tensors.update({name: made(path, tensor) for name, tensor in tensors.items() if tensor is not None})
    return twins[id(model)]


def _unwrapped(module: Any) -> Any:
    while type(module).__name__ in _WRAPPERS:
        module = module._modules[_WRAPPERS[type(module).__name__]]
    return module


def set_modes(replica: Any, training: Callable[[str, Any], bool]) -> Any:
    """Puts the modules of a replica in training or evaluation mode, by name and module, and returns it."""
    for path, module in replica.named_modules():
        wanted = training(path, module)
        if not isinstance(module, torch.jit.ScriptModule):
            module.training = wanted
        elif getattr(module, "training", wanted) != wanted:
            raise TypeError(
                f"{where(path, module)} is scripted and in {'evaluation' if wanted else 'training'} mode, which cannot be"
                " changed for one caller alone; expected the torch.nn.Module that it was made from"
            )
    return replica


def trained(model: Any) -> tuple[set[str], list[str]]:
    """Returns what model.train() does, without calling it: the modules left in evaluation mode, and
    attributes that it sets beside the modes.

    A method train of a model's own may keep parts as they are, or take weights apart that it has
    merged. It is called where tensors have no memory.
    """
    try:
        outline = replicate(model, _outlined, _outlined)
        before = [_settings(module) for module in outline.modules()]
        outline.train()
    except Exception:  # it needs values
        return set(), []
    left, set_too = set(), []
    for (path, module), settings in zip(outline.named_modules(), before):
        left |= set() if getattr(module, "training", True) else {path}
        set_too += [f"{name} of {where(path, module)}" for name, value in _settings(module).items() if settings.get(name) != value]
    return left, set_too


def _outlined(_: str, tensor: Any) -> Any:
    return tensor.detach().to("meta")


def _settings(module: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if type(value) in (bool, int, float, str) and name != "training"}


def changed_buffers(replica: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """Yields the buffers of a replica that differ from those of another, with the names of their modules."""
    others = dict(model.named_modules())
    for path, module in replica.named_modules():
        for name, tensor in getattr(module, "_buffers", {}).items():
            other = others[path]._buffers.get(name)
            if isinstance(tensor, torch.Tensor) and isinstance(other, torch.Tensor) and not _same(tensor, other):
                yield path, tensor


def _same(a: Any, b: Any) -> bool:
    return bool(torch.equal(a, b) or (a.shape == b.shape and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))))


@contextlib.contextmanager
def calls(model: Any) -> Iterator[list[Any]]:
    """Lists the modules of a model that this thread calls meanwhile."""
    thread, called = threading.get_ident(), list[Any]()
    modules = {id(module) for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)}

    def note(module: Any, _: Any) -> None:
        if threading.get_ident() == thread and id(module) in modules:
            called.append(module)

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield called
    finally:
        hook.remove()
