"""A check of every operator that torch runs: none may touch a slot but through the weights of the
module that runs from it.

The hooks guard what a module reads through its own parameters, and see what outlives its run. This
sees all else, at the price of a look at each operator's tensors; it is for tests, and for looking
into a wrong output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runtime.interpreter import Step
from runtime.leaves import leaves
from runtime.offloaded import Offloaded
from runtime.operators import NAMESPACE
from schedule.errors import OffloadError
from schedule.ring import EMPTY


def sanitize(offloaded: Offloaded) -> Sanitizer:
    """A context in which an operator that touches a slot outside its owner's run, through a view
    that something kept for instance, is an OffloadError that names the operator, the slot and the
    weights. For the operators of this thread; torch runs compiled models uncompiled meanwhile."""
    return Sanitizer(offloaded)


class Sanitizer(TorchDispatchMode):
    """The context that ``sanitize`` gives."""

    def __init__(self, offloaded: Offloaded) -> None:
        super().__init__()
        self._offloaded = offloaded

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        given = kwargs or {}
        # An operator that only makes a view reads nothing; what then reads the view is looked at.
        skipped = func.is_view or func.namespace == NAMESPACE  # our own, which reads none
        for one in () if skipped else tree_leaves((args, given)):
            if isinstance(one, torch.Tensor):
                for leaf in leaves(one):
                    self._check(func, leaf)
        return func(*args, **given)

    def _check(self, operator: object, tensor: torch.Tensor) -> None:
        slot = self._slot_of(tensor)
        if slot is None:
            return
        last = self._offloaded.hooks.interpreter.last[slot].module
        why = "outside its run"
        for step in self._running():
            if step.slot == slot and step.weights.lies_here(tensor):
                if last == step.module:
                    return
                why = f"while the slot holds {self._name(last)}"
        raise OffloadError(
            f"{operator} touches slot {slot} through {self._whose(tensor)}, {why}: keep a copy, "
            f".clone(), of what is read later"
        )

    def _name(self, module: int) -> str:
        return "nothing" if module == EMPTY else self._offloaded.arena.layouts[module].name

    def _slot_of(self, tensor: torch.Tensor) -> int | None:
        """The slot in which a tensor begins; None for the slots themselves, which refills write."""
        try:
            address, storage = tensor.data_ptr(), tensor.untyped_storage()._cdata
        except RuntimeError:  # it has no storage
            return None
        if tensor.device.type != self._offloaded.streams.device.type:
            return None
        for number, slot in enumerate(self._offloaded.arena.slots):
            if slot.data_ptr() <= address < slot.data_ptr() + slot.numel():
                return None if storage == slot.untyped_storage()._cdata else number
        return None

    def _running(self) -> Iterator[Step]:
        hooks = self._offloaded.hooks
        modules = self._offloaded.schedule.ring.modules
        for position in hooks.running:
            yield hooks.interpreter.passes[position // modules].steps[position % modules]

    def _whose(self, tensor: torch.Tensor) -> str:
        arena = self._offloaded.arena
        for weights in arena.sets.values():
            if weights.lies_here(tensor):
                return f"a weight of {arena.layouts[weights.module].name}"
        return "a weight of before a refresh()"
