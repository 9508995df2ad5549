"""What leaves a module must not lead back into its slot, which is refilled from now on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.arena import Arena
from runtime.sets import DeviceSet
from runtime.views import in_attributes
from schedule.errors import OffloadError


def check_output(output: Any, name: str, weights: DeviceSet, arena: Arena) -> None:
    """OffloadError if an output of the module of this name requires grad, or is a view of its
    weights."""
    for leaf in (output,) if isinstance(output, torch.Tensor) else _tensors(output):
        if leaf.requires_grad and (torch.is_grad_enabled() or leaf.grad_fn is not None):
            raise OffloadError(
                f"an output of {name} requires grad, but by the time of backward its slot holds "
                f"other weights: run the model under torch.no_grad()"
            )
        if arena.in_slot(weights, leaf):
            raise OffloadError(
                f"an output of {name} is a view of its weights, but its slot will hold others when "
                f"the view is read: return a copy, .clone(), or leave the module out"
            )


def check_kept(module: nn.Module, name: str, weights: DeviceSet, arena: Arena) -> None:
    """OffloadError if an attribute within the module that ran keeps a view of its weights."""
    for part in module.modules():
        for where, tensor in in_attributes(part):
            if arena.in_slot(weights, tensor):
                raise OffloadError(
                    f"attribute {where} of a {type(part).__name__} in {name} keeps a view of its "
                    f"weights, but its slot will hold others when the view is read: keep a copy, "
                    f".clone(), or leave the module out"
                )


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
