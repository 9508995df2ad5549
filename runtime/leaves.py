"""Tensors as they really are: the plain dense ones of which a Parameter or a buffer is made.

A quantised weight is often a tensor subclass over several plain tensors, which it names in
``__tensor_flatten__``. What is moved, and checked, are these, its *leaves*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter
from types import FunctionType, MethodType

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from schedule.errors import OffloadError

_version = attrgetter("_version")  # in C, as map calls it: the hooks ask for each tensor's


def leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor itself if it is plain, else those that it is made of."""
    if is_wrapper(tensor):
        for inner in _parts(tensor).values():
            yield from leaves(inner)
    else:
        yield tensor


def counted(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """All tensors whose version grows when torch writes into this one: itself and its leaves."""
    yield tensor
    if is_wrapper(tensor):
        for inner in _parts(tensor).values():
            yield from counted(inner)


def version(counted: Iterable[torch.Tensor]) -> int:
    """Grows whenever torch writes into one of these."""
    return sum(map(_version, counted))


def rebuilt(tensor: torch.Tensor, new: Iterator[torch.Tensor]) -> torch.Tensor:
    """A tensor like this one, over new leaves in the same order."""
    if not is_wrapper(tensor):
        return next(new)
    names, context = tensor.__tensor_flatten__()
    parts = _parts(tensor)
    inner = {
        name: rebuilt(parts[name], new) if name in parts else getattr(tensor, name)
        for name in names
    }
    made: torch.Tensor = type(tensor).__tensor_unflatten__(
        inner, context, tensor.size(), tensor.stride()
    )
    return made


def _parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a subclass is made of; a DTensor names its mesh too, which is no tensor."""
    values = {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}
    return {name: one for name, one in values.items() if isinstance(one, torch.Tensor)}


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a subclass that is made of others, and says of which."""
    return type(tensor) is not torch.Tensor and is_traceable_wrapper_subclass(tensor)


def extent(tensor: torch.Tensor) -> int:
    """How many elements lie between a tensor's first and last one, both included."""
    if tensor.numel() == 0:
        return 0
    lengths = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((length - 1) * stride for length, stride in lengths)


def refuse_unless_plain(tensor: torch.Tensor, name: str) -> None:
    """OffloadError unless every leaf has values, bytes of its own and a version counter."""
    if type(tensor) not in (nn.Parameter, torch.Tensor) and not is_wrapper(tensor):
        _refuse_kind(tensor, type(tensor.data), name)
    for leaf in leaves(tensor):
        kind = type(leaf.data)
        if kind is not torch.Tensor:
            _refuse_kind(tensor, kind, name)
        if leaf.is_meta and is_wrapper(tensor):
            raise OffloadError(
                f"{name}, a {type(tensor).__name__}, is on the meta device and has no values; load "
                f"the checkpoint before offloading"
            )
        if leaf.is_inference():
            raise OffloadError(
                f"{name} was made under torch.inference_mode and has no version counter; build or "
                f"load the model outside of it"
            )
        if leaf.layout is not torch.strided:
            raise OffloadError(
                f"{name} has layout {leaf.layout}, and only strided tensors can be offloaded; make "
                f"it dense, or leave its module out of layers"
            )
        if extent(leaf) < leaf.numel():
            raise OffloadError(
                f"{name} overlaps itself (shape {tuple(leaf.shape)}, stride {leaf.stride()}); make "
                f"it contiguous before offloading"
            )


def _refuse_kind(tensor: torch.Tensor, kind: type, name: str) -> None:
    raise OffloadError(
        f"{name} is a {type(tensor).__name__} over a {kind.__name__}; only plain dense tensors can "
        f"be offloaded, and subclasses that say what they are made of (__tensor_flatten__): leave "
        f"its module out of layers"
    )


def place_at(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Let the plain tensor, the same object, be over the other's bytes. Between some device types
    its ``.data`` can't be set; then the two change contents, as ``nn.Module.to`` does it."""
    if torch._has_compatible_shallow_copy_type(tensor, other):
        tensor.data = other
        return
    if isinstance(tensor, nn.Parameter):
        other = nn.Parameter(other, requires_grad=tensor.requires_grad)
        other.grad = None if tensor.grad is None else tensor.grad.to(other.device)
    other.__dict__.update(tensor.__dict__)  # attributes are swapped too
    torch.utils.swap_tensors(tensor, other)


def follow_leaves(tensor: torch.Tensor) -> None:
    """Let a tensor that is made of others, the same object, be on the device that these were moved
    to. A DTensor has its own from when it was made, and can't be detached while they differ."""
    if not is_wrapper(tensor) or tensor.device == next(leaves(tensor)).device:
        return
    made = rebuilt(tensor, leaves(tensor)).requires_grad_(tensor.requires_grad)
    for name, value in vars(tensor).items():
        vars(made).setdefault(name, value)
    torch.utils.swap_tensors(tensor, made)


def tensors_in(value: object, depth: int = 3) -> Iterable[torch.Tensor]:
    """The tensors in an attribute's value: itself, or within lists, tuples, sets and dicts, and in
    the attributes of an object that is no module, as quantised layers have one for their state."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, list | tuple | set | frozenset | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(one, depth - 1)
    elif depth > 1 and type(value) not in PLAIN and not isinstance(value, nn.Module | type):
        for one in list(getattr(value, "__dict__", {}).values()):
            yield from tensors_in(one, min(depth - 1, 1))


PLAIN = frozenset({type(None), bool, int, float, str, FunctionType, MethodType, partial})
"""Types whose values hold no tensors, or none in attributes."""
