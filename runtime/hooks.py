"""The hooks around each module: they issue the program's operations and guard residency.

Nothing depends on the hook after a module: torch runs none for a KeyboardInterrupt. What it
would have done, the next hook before a module does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.interpreter import Interpreter
from runtime.select import Selection
from schedule.errors import ModuleNotResident, OffloadError
from schedule.ring import EMPTY

RELOAD, RAISE, OFF = "reload", "raise", "off"


class Hooks:
    """One offload's hooks, from their registration to ``remove()``.

    runs, misses: how often a module ran, and how often it was not resident.
    """

    def __init__(self, selection: Selection, interpreter: Interpreter, on_miss: str) -> None:
        self.selection, self.interpreter, self.on_miss = selection, interpreter, on_miss
        self.runs = self.misses = 0
        self._running: list[int] = []
        self._handles: list[Any] = []
        self._register()

    def remove(self) -> None:
        """Take the hooks out, and show the host masters in every module."""
        for handle in self._handles:
            handle.remove()
        for run in set(self._running):
            self.interpreter.arena.unbind(run)
        self._running.clear()

    def _register(self) -> None:
        interpreter, modules = self.interpreter, self.selection.modules
        enter, leave = interpreter.enter[0], interpreter.leave[0]
        if enter or leave:
            # Without the root, a pass begins before its first module and ends after its last.
            root = self.selection.root
            first, last = (modules[0], modules[-1]) if root is None else (root, root)
            self._before(first, lambda *_: interpreter.issue(enter))
            self._hook_modules()
            self._after(last, lambda *_: interpreter.issue(leave))
        else:
            self._hook_modules()

    def _hook_modules(self) -> None:
        for index, module in enumerate(self.selection.modules):
            self._before(module, lambda *_, index=index: self._arrive(index))
            self._after(module, lambda _, __, output, index=index: self._depart(index, output))

    def _before(self, module: nn.Module, hook: Callable[..., None]) -> None:
        self._handles.append(module.register_forward_pre_hook(_closed_to_dynamo(hook)))

    def _after(self, module: nn.Module, hook: Callable[..., None]) -> None:
        # always_call: a module that raised an Exception has left its slot too.
        hook = _closed_to_dynamo(hook)
        self._handles.append(module.register_forward_hook(hook, always_call=True))

    def _arrive(self, index: int) -> None:
        """A module is about to run."""
        interpreter = self.interpreter
        if self._running:
            self._mend(index)
        interpreter.issue(interpreter.before[index])
        if self.on_miss != OFF and not interpreter.holds(index):
            self._miss(index)
        interpreter.issue(interpreter.begin[index])
        self._running.append(index)
        self.runs += 1

    def _depart(self, index: int, output: Any) -> None:
        """A module ran, or raised."""
        if index not in self._running:
            return  # it never arrived: the guard refused it
        interpreter, ended = self.interpreter, None
        while ended != index:  # runs above it ended without their hook
            ended = self._running.pop()
            if ended not in self._running:
                interpreter.arena.unbind(ended)
        interpreter.issue(interpreter.after[index])
        if self._running and self.on_miss != OFF:
            self._give_back()
        self._check_output(index, output)

    def _check_output(self, index: int, output: Any) -> None:
        """What leaves a module must not lead back into its slot, which is refilled from now on."""
        name, grad = self.selection.names[index], torch.is_grad_enabled()
        for leaf in (output,) if isinstance(output, torch.Tensor) else tree_leaves(output):
            if not isinstance(leaf, torch.Tensor):
                continue
            if grad and leaf.requires_grad:
                raise OffloadError(
                    f"an output of {name} requires grad, but by the time of backward its slot "
                    f"holds other weights: run the model under torch.no_grad()"
                )
            if self.interpreter.arena.in_slot(index, leaf):
                raise OffloadError(
                    f"an output of {name} is a view of its weights, but its slot will hold others "
                    f"when the view is read: return a copy, .clone(), or leave the module out"
                )

    def _miss(self, index: int) -> None:
        self.misses += 1
        interpreter = self.interpreter
        if self.on_miss == RAISE:
            slot, held = interpreter.slot_of[index], interpreter.slot[index].module
            last = len(self.selection.modules) - 1
            what = "nothing" if held == EMPTY else f"{self.selection.names[held]} (module {held})"
            if held == index:
                what = "an older version of its weights"
            raise ModuleNotResident(
                f"{self.selection.names[index]} (module {index}) arrived, but its slot {slot} "
                f"holds {what}; modules must run in the order 0 .. {last}, "
                f"and weights must not change between passes; on_miss='reload' allows both"
            )
        interpreter.issue(interpreter.reload[index])

    def _give_back(self) -> None:
        """A module ran inside another one's run; the outer one goes on reading its slot."""
        interpreter = self.interpreter
        for outer in self._running:
            if not interpreter.holds(outer):
                self.misses += 1
                interpreter.issue(interpreter.reload[outer])
                interpreter.issue(interpreter.wait[outer])

    def _mend(self, index: int) -> None:
        """Forget runs that ended without their hook: torch calls none for a KeyboardInterrupt.
        A run is alive if its call is on this thread's stack; the arriving module's call is."""
        calls = Counter(_modules_on_stack())
        calls[id(self.selection.modules[index])] -= 1
        alive = []
        for run in self._running:
            module = id(self.selection.modules[run])
            if calls[module] > 0:
                calls[module] -= 1
                alive.append(run)
        for run in set(self._running) - set(alive):
            self.interpreter.arena.unbind(run)
        self._running = alive


def _closed_to_dynamo(hook: Callable[..., None]) -> Callable[..., None]:
    """A plain Python hook would be traced away by torch.compile, in silence."""
    closed: Callable[..., None] = torch.compiler.disable(hook)
    return closed


def _modules_on_stack() -> Iterator[int]:
    """The ids of the modules whose calls are on this thread's stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is nn.Module._call_impl.__code__:
            yield id(frame.f_locals["self"])
        frame = frame.f_back  # type: ignore[assignment]
