"""The order in which the modules arrive in the first complete pass, beside the order given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from runtime.log import log
from runtime.sizes import counted


class Recorder:
    """Notes each module's first arrival until a pass is complete; then says once, in the log,
    if the order is another one than that of ``names``, or if a module did not run.

    A pass is complete when the root returned. What arrived only before the root was called counts
    too: generate() runs an encoder by itself. Without a call of the root it is complete when
    every module has arrived. order: the names then, in the order of arrival; None until then.
    differs: whether it is another order than that of ``names``, and a warning has said so; where it
    cost no miss, or ``adopt`` took it over, that is said at INFO alone.
    """

    def __init__(
        self,
        names: Sequence[str],
        misses: Callable[[], int],
        guarded: bool,
        adopt: Callable[[Sequence[int]], bool],
    ) -> None:
        self.order: tuple[str, ...] | None = None
        self.differs = False
        self._names, self._misses, self._guarded, self._adopt = names, misses, guarded, adopt
        self._outside: dict[str, None] = {}
        self._inside: dict[str, None] | None = None
        self._missed_before = 0
        self._handles: list[Any] = []

    def watch(self, root: nn.Module) -> list[Any]:
        """Hooks for the root's calls, as handles; they go when a pass is complete. The one after
        it is not called if the root raises: that pass is none."""
        begin = torch.compiler.disable(lambda *_: self._begin())
        end = torch.compiler.disable(lambda *_: self._end())
        self._handles = [
            root.register_forward_pre_hook(begin),
            root.register_forward_hook(end),
        ]
        return self._handles

    def _begin(self) -> None:
        """The root is called. What a call recorded that did not return is forgotten."""
        self._inside = {}
        self._missed_before = 0 if self._outside else self._misses()

    def arrive(self, index: int) -> None:
        """A module arrived."""
        if self._inside is None:
            self._outside[self._names[index]] = None
            if len(self._outside) == len(self._names):
                self._finish()
        else:
            self._inside[self._names[index]] = None

    def _end(self) -> None:
        """The root returned."""
        if self._inside and self.order is None:
            self._finish()

    def _finish(self) -> None:
        inside = self._inside or {}
        before = [name for name in self._outside if name not in inside]
        self.order = (*before, *inside)
        for handle in self._handles:
            handle.remove()
        absent = [name for name in self._names if name not in self.order]
        if self.order != tuple(name for name in self._names if name in self.order):
            missed = self._misses() - self._missed_before
            adopted = (
                self._guarded
                and not absent
                and self._adopt([self._names.index(name) for name in self.order])
            )
            self.differs = (missed > 0 or not self._guarded) and not adopted
            level = logging.WARNING if self.differs else logging.INFO
            log.log(level, "%s", self._other_order(self.order, missed, adopted))
        if absent:
            log.warning(
                "%d of %d modules did not run in the first complete pass; if they never do, their "
                "copies are wasted, and keep= leaves them out: %s",
                *(len(absent), len(self._names), absent),
            )

    def _other_order(self, order: Sequence[str], missed: int, adopted: bool) -> str:
        cost = f"{counted(missed, 'miss', 'misses')} in it; on_miss='raise' forbids them"
        if not self._guarded:
            cost = "and the guard is off: its output may be wrong"
        if adopted:
            return (
                f"in the first complete pass the modules that were found ran in another order than "
                f"they hang in the model; from now on they are offloaded in it: {list(order)}"
            )
        return (
            f"in the first complete pass the modules ran in another order than that of layers: "
            f"{cost}. The order was {list(order)}; offload with layers in this order"
        )
