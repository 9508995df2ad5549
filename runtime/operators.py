"""The hooks of a module as two operators, which compiled code keeps: it runs no Python hook.

A compiler may move whatever it takes for independent. So that every read of a module's weights
stays between its two operators, and those of all modules in their order, each of them declares
that it writes into

- a token, one tensor for the whole ring: no operator passes another;
- every tensor among the module's inputs, or its outputs: nothing that is made of them passes it;
- all weights of the module, each with a storage of its own: no read of one passes it, nor what is
  made of weights alone;
- the module's number, a tensor too, so that equal modules are one graph. Whoever counts a write
  that none was, into the weights, counts it here: see ``StaticSet``.

They write nothing that a graph could see but the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

import torch

from runtime.freezing import refuse

Tensors = Sequence[torch.Tensor]


class Operated(Protocol):
    """What the operators call: one offload's hooks."""

    def arrive(self, index: int, weights: Tensors) -> None:
        """The module is about to run, with these weights."""

    def depart(self, index: int, outputs: Tensors, weights: Tensors) -> None:
        """The module ran."""


OFFLOADS: WeakValueDictionary[int, Operated] = WeakValueDictionary()
"""The open offloads by key. An operator is a function of the whole process and a graph can hold
nothing but numbers and tensors, so that what it works on must be found by number; nothing is kept
alive by it."""

SCHEMA = (
    "(int key, Tensor(n!) number, Tensor(t!) token, Tensor(a!)[] activations, Tensor(w!)[] weights)"
    " -> ()"
)

Operator = torch._ops.OpOverload


def define(library: torch.library.Library, schema: str) -> tuple[Operator, Operator]:
    """The operators ``arrive`` and ``depart`` in this library, before and after a module."""
    for name, kernel in ("arrive", _arrive), ("depart", _depart):
        library.define(name + schema, tags=(torch.Tag.cudagraph_unsafe,))
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{name}", _known, lib=library)
    operators = getattr(torch.ops, library.ns)
    return operators.arrive.default, operators.depart.default


def _arrive(
    key: int, number: torch.Tensor, token: torch.Tensor, activations: Tensors, weights: Tensors
) -> None:
    del token, activations
    offload = OFFLOADS.get(key)
    if offload is not None:  # else it is gone
        offload.arrive(int(number), weights)


def _depart(
    key: int, number: torch.Tensor, token: torch.Tensor, activations: Tensors, weights: Tensors
) -> None:
    del token
    offload = OFFLOADS.get(key)
    if offload is not None:
        offload.depart(int(number), activations, weights)


def _known(*_: object) -> None:
    """What is known of a call without its values: nothing comes of it."""
    refuse()


NAMESPACE = "ringproof"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
ARRIVE, DEPART = define(_LIBRARY, SCHEMA)
