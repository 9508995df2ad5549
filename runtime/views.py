"""Tensors that share memory with a weight to be offloaded, found before anything moves.

A view that some module cached, say of a fused weight, would go on showing the weight's old
memory: the values at the time of wrapping, whatever is loaded or written later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import nn

from runtime.layout import Layout
from runtime.leaves import extent, leaves, tensors_in
from schedule.errors import OffloadError

Span = tuple[str, int, int]
"""A device, the address of a tensor's first byte, and that behind its last."""


def refuse_views(scope: Iterable[nn.Module], layouts: Sequence[Layout]) -> None:
    """OffloadError if anything within these modules shares memory with an offloaded tensor, or
    keeps one of its module's own tensors in an attribute that no binding reaches."""
    spans = sorted(_spans_of(layouts))
    for (first, one), (second, other) in pairwise(spans):
        if first[0] == second[0] and second[1] < first[2]:
            raise OffloadError(
                f"{one} and {other} share memory, but are two tensors; tie them by using one "
                f"Parameter in both places, or give each its own memory with .clone()"
            )
    items = {id(item.tensor) for layout in layouts for item in layout.items}
    inside = {id(part) for layout in layouts for part in layout.module.modules()}
    for module in scope:
        for where, tensor in _candidates(module):
            if id(tensor) in items:
                if where in module._parameters or where in module._buffers:
                    continue  # the registered tensor itself
                if id(module) not in inside:
                    continue  # it is read outside the module's run, and is the host master there
            name = _overlaps(tensor, spans)
            if name is not None:
                raise OffloadError(
                    f"attribute {where} of a {type(module).__name__} shares memory with {name}, "
                    f"and would not see what is loaded there; delete it before offloading, or "
                    f"leave the module of {name} out of layers"
                )


def _candidates(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in [*module._parameters.items(), *module._buffers.items()]:
        if value is not None:
            yield name, value
    yield from in_attributes(module)


def in_attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that the module has in attributes without having registered them."""
    for name, value in vars(module).items():
        flat = name == "_flat_weights" and isinstance(module, nn.RNNBase)  # bound as parameters are
        if name not in ("_parameters", "_buffers", "_modules") and not flat:
            yield from ((name, tensor) for tensor in tensors_in(value))


def _spans_of(layouts: Iterable[Layout]) -> Iterator[tuple[Span, str]]:
    for layout in layouts:
        for item in layout.items:
            for leaf in item.leaves:
                yield from ((span, f"{layout.name}.{item.path}") for span in _spans(leaf))


def _spans(tensor: torch.Tensor) -> Iterator[Span]:
    for leaf in leaves(tensor):
        size = extent(leaf) * leaf.element_size() if leaf.layout is torch.strided else 0
        try:
            start = leaf.data_ptr()
        except RuntimeError:  # it has no memory of its own: made within a function transform
            continue
        if size and start:
            yield str(leaf.device), start, start + size


def _overlaps(tensor: torch.Tensor, spans: Sequence[tuple[Span, str]]) -> str | None:
    """The name of an offloaded tensor that shares a byte with this one. The spans are disjoint,
    so that only the last one that begins before the tensor's end can."""
    for device, start, end in _spans(tensor):
        at = bisect_left(spans, ((device, end), "")) - 1
        if at >= 0 and spans[at][0][0] == device and spans[at][0][2] > start:
            return spans[at][1]
    return None
