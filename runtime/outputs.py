"""What leaves a module must not lead back into its slot, which is refilled from now on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from schedule.errors import OffloadError


def check_output(output: Any, name: str) -> None:
    """OffloadError if an output of the module of this name requires grad."""
    for leaf in (output,) if isinstance(output, torch.Tensor) else tensors(output):
        if leaf.requires_grad and (torch.is_grad_enabled() or leaf.grad_fn is not None):
            raise OffloadError(
                f"an output of {name} requires grad, but by the time of backward its slot holds "
                f"other weights: run the model under torch.no_grad()"
            )


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in an output: in tuples, lists, dicts, and in the attributes of an object."""
    if type(output) is tuple or type(output) is list:  # most outputs; tree_leaves is slow
        for one in output:
            yield from (one,) if isinstance(one, torch.Tensor) else tensors(one)
    elif output is not None:
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor):
                yield leaf
            elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
                inside = tree_leaves(list(vars(leaf).values()))
                yield from (one for one in inside if isinstance(one, torch.Tensor))
