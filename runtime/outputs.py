"""What leaves a module must not lead back into its slot, which is refilled from now on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.arena import Arena
from runtime.interpreter import Interpreter
from runtime.sets import DeviceSet
from runtime.views import in_attributes
from schedule.errors import OffloadError


def check_output(output: Any, name: str) -> None:
    """OffloadError if an output of the module of this name requires grad."""
    for leaf in (output,) if isinstance(output, torch.Tensor) else _tensors(output):
        if leaf.requires_grad and (torch.is_grad_enabled() or leaf.grad_fn is not None):
            raise OffloadError(
                f"an output of {name} requires grad, but by the time of backward its slot holds "
                f"other weights: run the model under torch.no_grad()"
            )


def check_kept(
    module: nn.Module, weights: DeviceSet, interpreter: Interpreter, output: Any
) -> None:
    """OffloadError if anything keeps a view of the weights with which this module ran, or one of
    them: there are more references than before the run. Where it is, is only looked for then."""
    if weights.held is None or weights.references() == weights.held:
        return
    arena = interpreter.arena
    arena.refuse_moved(weights)
    name, what = arena.layouts[weights.module].name, _where(module, weights, arena, output)
    if what is None:
        # What waits in a queue to be launched keeps nothing, nor does a cycle that none refers to.
        interpreter.streams.synchronize()
        gc.collect()
        kept = weights.grown()
        if kept is None:
            weights.held = weights.references()
            return
        path = arena.layouts[weights.module].path(kept)
        what = f"something (a cache, an argument, a closure, a traceback) keeps a view of {path},"
    raise OffloadError(
        f"{what} but the slot of {name} will hold others when the view is read: keep or return a "
        f"copy, .clone(), or leave the module out"
    )


def _where(module: nn.Module, weights: DeviceSet, arena: Arena, output: Any) -> str | None:
    """Which output of the module, or attribute within it, is a view of its weights."""
    name = arena.layouts[weights.module].name
    if any(arena.in_slot(weights, leaf) for leaf in _tensors([output])):
        return f"an output of {name} is a view of its weights,"
    for part in module.modules():
        for where, tensor in in_attributes(part):
            if arena.in_slot(weights, tensor):
                return (
                    f"attribute {where} of a {type(part).__name__} in {name} keeps a view of its "
                    f"weights,"
                )
    return None


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in an output: in tuples, lists, dicts, and in the attributes of an object."""
    if type(output) is tuple or type(output) is list:  # most outputs; tree_leaves is slow
        for one in output:
            yield from (one,) if isinstance(one, torch.Tensor) else _tensors(one)
    elif output is not None:
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor):
                yield leaf
            elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
                inside = tree_leaves(list(vars(leaf).values()))
                yield from (one for one in inside if isinstance(one, torch.Tensor))
