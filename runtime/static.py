"""Weights that stay bound to their slots, and hooks that are operators: for compiled code, which
has its inputs in hand before any module runs, and runs no hook.

What is always bound is no host master, also outside its module's run. Saving and loading show the
masters nevertheless; who reads a parameter elsewhere reads what the slot holds, and who writes one
gets an error at the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import torch
from torch import nn

from runtime.arena import Arena
from runtime.hooks import Hooks
from runtime.layout import BOUND, Layout
from runtime.leaves import version
from runtime.log import log
from runtime.operators import ARRIVE, DEPART, OFFLOADS
from runtime.outputs import tensors
from runtime.sets import DeviceSet
from schedule.errors import OffloadError
from schedule.table import RUN, Schedule

_keys = count()
_address = torch.Tensor.data_ptr


@dataclass(slots=True, eq=False)
class StaticSet(DeviceSet):
    """A set that is always bound.

    number: the module's, as the operators get it. A compiled graph counts a write for every tensor
    that its operators declare, this one too: what is counted beyond it are real writes.
    weights, addresses: the tensors, as the operators get them, and where they must lie.
    """

    number: torch.Tensor = field(init=False)
    weights: list[torch.Tensor] = field(init=False)
    addresses: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.number = torch.tensor(self.module, device="cpu")
        self.weights = [device for device, _ in self.pairs]
        self.addresses = list(map(_address, self.weights))
        DeviceSet.__post_init__(self)

    def writes(self) -> int:
        return version(self.counted) - len(self.counted) * self.number._version

    def references(self) -> list[int]:
        """None: graphs, their guards and whoever asks for parameters() hold these tensors."""
        return []


@dataclass(slots=True, eq=False)
class Bound:
    """What a module's hooks hand to the operators; compiled code reads it from the module."""

    key: int
    number: torch.Tensor
    token: torch.Tensor
    weights: list[torch.Tensor]


class StaticArena(Arena):
    """An arena whose second sets stay bound: each module has one, over its only slot."""

    set_type = StaticSet

    def __init__(self, layouts: Sequence[Layout], schedule: Schedule, device: torch.device) -> None:
        self.key, self.token = next(_keys), torch.zeros(1, device=device)
        super().__init__(layouts, schedule, device)

    def plan(self, layouts: Sequence[Layout]) -> None:
        _refuse_several_slots(layouts, self._schedule)
        for layout in layouts:
            for item in layout.items:
                if item.composed:
                    raise OffloadError(
                        f"{layout.name}.{item.path}, a {type(item.tensor).__name__}, is made of "
                        f"other tensors or has some in attributes, which compiled code would take "
                        f"apart: offload without static=True, or leave its module out of layers"
                    )
        super().plan(layouts)

    def unbind(self, weights: DeviceSet) -> None:
        """They stay."""

    def bind(self, weights: DeviceSet) -> None:
        _follow(weights)
        super().bind(weights)

    def show_hosts(self, module: int | None = None) -> None:
        for weights in self.sets.values():
            if module is None or weights.module == module:
                _follow(weights)
                super().unbind(weights)

    def show_slots(self) -> None:
        """Show the weights in the slots, and hand them to the hooks, if there are any."""
        if self.key not in OFFLOADS:
            return
        for weights in self.sets.values():
            for table, name, host, device in weights.rows:
                if table.get(name) is host:
                    table[name] = device
            one = cast(StaticSet, weights)
            bound = Bound(self.key, one.number, self.token, one.weights)
            vars(self.layouts[one.module].module)[BOUND] = bound

    @contextmanager
    def hosts_shown(self) -> Iterator[None]:
        self.show_hosts()
        try:
            yield
        finally:
            self.show_slots()


def _follow(weights: DeviceSet) -> None:
    """Whether a parameter requires grad is set where people see it, in the slot."""
    for table, name, host, device in weights.rows:
        if table.get(name) is device and host.requires_grad is not device.requires_grad:
            host.requires_grad_(device.requires_grad)


def _refuse_several_slots(layouts: Sequence[Layout], schedule: Schedule) -> None:
    slots: dict[int, set[int]] = {}
    for moment in schedule.walk(1):
        if moment.half == RUN:
            slots.setdefault(moment.module, set()).add(moment.slot)
    for module, several in slots.items():
        if len(several) > 1:
            raise OffloadError(
                f"static=True binds each module's weights to one slot, but policy "
                f"{schedule.policy!r} runs {layouts[module].name} (module {module}) from slots "
                f"{sorted(several)}: choose another policy, or with 'rotating' a number of slots "
                f"that divides the {schedule.ring.modules} modules"
            )


class StaticHooks(Hooks):
    """Hooks that are operators. A pass begins where a module arrives that is no later than the one
    before: the root has no hooks, which would be traced.

    A run that ended without its operator is not told from one within which another module runs:
    compiled code leaves no call on the stack. The latter is an error when it ends.
    """

    @property
    def root(self) -> None:
        """Unknown."""

    @property
    def arena(self) -> StaticArena:
        """The arena that these hooks bind."""
        return cast(StaticArena, self.interpreter.arena)

    def register(self) -> None:
        OFFLOADS[self.arena.key] = self
        self.arena.show_slots()
        super().register()

    def remove(self) -> None:
        with self.lock:
            OFFLOADS.pop(self.arena.key, None)
            super().remove()
            for weights in self._written():
                log.warning("%s; it is lost", self._was_written(weights))
            self.arena.show_hosts()
            for module in self.selection.modules:
                vars(module).pop(BOUND, None)

    def hook(self, index: int, module: nn.Module) -> None:
        del index  # it is in what is bound
        before = module.register_forward_pre_hook(_before, prepend=True, with_kwargs=True)
        self._handles += [before, module.register_forward_hook(_after)]

    def can_reorder(self) -> bool:
        """Never: compiled code has them in hand, and in the order that it was compiled in."""
        return False

    def hook_leave(self) -> None:
        """The last module's operator sees to it."""

    def arrive(self, index: int, weights: Sequence[torch.Tensor]) -> None:
        """The operator before a module."""
        with self.lock:
            self._refuse_others(index, weights)
            self._arrive(index)

    def depart(
        self, index: int, outputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
    ) -> None:
        """The operator after a module."""
        with self.lock:
            if self._removed:
                return
            name = self.selection.names[index]
            if not self.is_running(index):
                raise OffloadError(
                    f"another module, or thread, ran inside the run of {name} in compiled code, "
                    f"and may have taken its slot: compile without static=True"
                )
            self._refuse_others(index, weights)
            bound = self._set(index)
            self._depart(index, self.selection.modules[index], None, outputs)
            for one in outputs:
                if self.arena.in_slot(bound, one):
                    raise OffloadError(
                        f"an output of {name} is a view of its weights, but its slot will hold "
                        f"others when it is read: return a copy, .clone()"
                    )
            last = index == len(self.selection.modules) - 1
            if last and self.interpreter.passes[self._pass].leave:
                self._leave()

    def _begin_pass(self) -> None:
        written = list(self._written())
        if written:
            for weights in written:
                weights.written = weights.writes()
            self.interpreter.forget()
            raise OffloadError(
                f"{self._was_written(written[0])}: write into model.state_dict(), or load one"
            )
        super()._begin_pass()

    def _set(self, index: int) -> StaticSet:
        """The module's, which is the same in every pass."""
        return cast(StaticSet, self.interpreter.passes[self._pass].steps[index].weights)

    def _written(self) -> Iterator[DeviceSet]:
        """The sets that were written since their modules last ran."""
        return (one for one in self.arena.sets.values() if one.written != one.writes())

    def _was_written(self, weights: DeviceSet) -> str:
        name = self.selection.names[weights.module]
        return (
            f"a weight of {name} was written outside its run, where static=True has whatever its "
            f"slot holds"
        )

    def _refuse_others(self, index: int, weights: Sequence[torch.Tensor]) -> None:
        """OffloadError unless these are the module's weights, in its slot."""
        if self._removed or list(map(_address, weights)) == self._set(index).addresses:
            return
        raise OffloadError(
            f"compiled code runs {self.selection.names[index]} with copies of its weights, not "
            f"with those in its slot: it writes into them, or trains them (compile it under "
            f"torch.no_grad()), or was compiled by a backend that copies what is declared as "
            f"written (use inductor); else call refresh(), or offload it without static=True"
        )


def kinds_of(static: bool) -> tuple[type[Arena], type[Hooks]]:
    """The arena and the hooks of an offload."""
    return (StaticArena, StaticHooks) if static else (Arena, Hooks)


def _before(module: nn.Module, arguments: Any, options: Any) -> None:
    bound = vars(module)[BOUND]
    ARRIVE(bound.key, bound.number, bound.token, _tensors((arguments, options)), bound.weights)


def _after(module: nn.Module, _: Any, output: Any) -> None:
    bound = vars(module)[BOUND]
    DEPART(bound.key, bound.number, bound.token, _tensors(output), bound.weights)


def _tensors(values: Any) -> list[torch.Tensor]:
    """As a list, which is what the operators take."""
    return list(tensors(values))
