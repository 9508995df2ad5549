"""The hooks around each module: they issue the program's operations and guard residency.

Nothing depends on the hook after a module: torch runs none for a KeyboardInterrupt. What it
would have done, the next hook before a module does. The interrupt may come inside a hook, too, at
any line: a run is known before it shows its slot, and until it no longer does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from runtime.annotate import Spans
from runtime.interpreter import Interpreter, Step
from runtime.misses import MissLog
from runtime.recorder import Recorder
from runtime.select import Selection
from schedule.errors import ModuleNotResident, OffloadError
from schedule.guard import arrives, innermost, resumes
from schedule.program import WRITE
from schedule.ring import EMPTY
from schedule.table import AFTER, BEFORE

RELOAD, RAISE, OFF = "reload", "raise", "off"


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One run under way. stream: the one that was current when it began, on which it resumes."""

    step: Step
    stream: AbstractContextManager[Any]


class Hooks:
    """One offload's hooks, from their registration to ``remove()``.

    runs, misses: how often a module ran, and how often it was not resident.

    At which pass of the period the model is, is known at each enter of the root; without the
    root a pass is taken to begin where a module arrives that is no later than the one before. A
    wrong guess costs misses alone, since the guard compares what the step's own slot holds.
    """

    def __init__(self, selection: Selection, interpreter: Interpreter, on_miss: str) -> None:
        self.selection, self.interpreter, self.on_miss = selection, interpreter, on_miss
        self.runs = self.misses = 0
        self._pass = self._next_pass = 0
        self._arrived = len(selection.modules)
        self._running: list[Call] = []
        self._handles: list[Any] = []
        self._removed = False
        self._spans = Spans(len(selection.modules))
        self._misses = MissLog(selection.names)
        self.recorder = Recorder(selection.names, lambda: self.misses, on_miss != OFF)

    @property
    def running(self) -> tuple[int, ...]:
        """The steps whose modules are running, the outermost first."""
        return tuple(call.step.position for call in self._running)

    def remove(self) -> None:
        """Take the hooks out, and show the host masters in every module."""
        self._removed = True
        for handle in self._handles:
            handle.remove()
        self._show_hosts()
        self._running.clear()
        self._spans.close()

    def register(self) -> None:
        """Put the hooks in. Should it fail half way, ``remove`` takes out those that are in."""
        root, passes = self.selection.root, self.interpreter.passes
        if root is not None and (len(passes) > 1 or any(one.enter for one in passes)):
            self._before(root, lambda *_: self._enter())
        if root is not None:
            self._handles += self.recorder.watch(root)
        self._hook_modules()
        if any(one.leave for one in passes):
            # Without the root, a pass ends after its last module.
            last = self.selection.modules[-1] if root is None else root
            self._after(last, lambda *_: self._leave())

        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()  # what was compiled before knows no hooks

    def _enter(self) -> None:
        """The root is called: a pass begins."""
        if not self._removed:
            self._mend(None)
            self._begin_pass()

    def _begin_pass(self) -> None:
        passes = self.interpreter.passes
        self._pass = self._next_pass
        self._next_pass = (self._pass + 1) % len(passes)
        self.interpreter.issue(passes[self._pass].enter)

    def _leave(self) -> None:
        """A pass ended, maybe inside a module's run, which then goes on."""
        if not self._removed:
            self._mend(None)
            self.interpreter.issue(self.interpreter.passes[self._pass].leave)
            self._resume()

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
        if self._removed:
            return  # close() came during this call
        self._mend(index)
        if self.selection.root is None and index <= self._arrived:
            self._begin_pass()
        before, self._arrived = self._arrived, index
        step = interpreter.passes[self._pass].steps[index]
        self._spans.arrive(index, len(self._running))
        interpreter.issue(step.halves[BEFORE])
        resident = self._resident(step, before)
        if not resident and self.on_miss == RAISE:
            raise self._not_resident(step)
        self._running.append(Call(step, interpreter.streams.current()))
        try:
            for half in arrives(resident):
                interpreter.issue(step.halves[half])
        except Exception:
            interpreter.unbind(step)
            self._running.pop()
            raise
        self._spans.begin(step.label, len(self._running) - 1)
        self.runs += 1
        if self.recorder.order is None:
            self.recorder.arrive(index)

    def _depart(self, index: int, output: Any) -> None:
        """A module ran, or raised."""
        if not self._is_running(index):
            return  # it never arrived: the guard refused it, or close() came during this call
        interpreter, ended = self.interpreter, self._ended()
        while ended.module != index:  # runs above it ended without their hook
            ended = self._ended()
        self._spans.end(len(self._running))
        self._mend(index)
        interpreter.issue(ended.halves[AFTER])
        self._resume()
        self._spans.depart(index, len(self._running))
        self._check_output(ended, output)

    def _ended(self) -> Step:
        """The innermost run is over."""
        step = self._running[-1].step
        self.interpreter.unbind(step)
        self._running.pop()
        return step

    def _is_running(self, index: int) -> bool:
        for call in self._running:  # noqa: SIM110, no generator in the hot path
            if call.step.module == index:
                return True
        return False

    def _check_output(self, step: Step, output: Any) -> None:
        """What leaves a module must not lead back into its slot, which is refilled from now on."""
        name, grad = self.selection.names[step.module], torch.is_grad_enabled()
        for leaf in (output,) if isinstance(output, torch.Tensor) else _tensors(output):
            if leaf.requires_grad and (grad or leaf.grad_fn is not None):
                raise OffloadError(
                    f"an output of {name} requires grad, but by the time of backward its slot "
                    f"holds other weights: run the model under torch.no_grad()"
                )
            if self.interpreter.arena.in_slot(step.weights, leaf):
                raise OffloadError(
                    f"an output of {name} is a view of its weights, but its slot will hold others "
                    f"when the view is read: return a copy, .clone(), or leave the module out"
                )

    def _resident(self, step: Step, before: int) -> bool:
        """Whether the guard finds the module in its slot, or is off; what it misses is counted.
        before: the module that arrived last before it."""
        resident = self.on_miss == OFF or self.interpreter.holds(step)
        if not resident:
            self.misses += 1
            held = self.interpreter.last[step.slot].module
            self._misses.missed(step.module, before, held, self.runs + 1, self.misses)
        return resident

    def _not_resident(self, step: Step) -> ModuleNotResident:
        index, held = step.module, self.interpreter.last[step.slot].module
        last = len(self.selection.modules) - 1
        what = "nothing" if held == EMPTY else f"{self.selection.names[held]} (module {held})"
        if held == index:
            what = "an older version of its weights"
        return ModuleNotResident(
            f"{self.selection.names[index]} (module {index}) arrived, but its slot {step.slot} "
            f"holds {what}; modules must run in the order 0 .. {last}, "
            f"and weights must not change between passes; on_miss='reload' allows both"
        )

    def _resume(self) -> None:
        """A module ran inside others' runs; these resume reading their slots."""
        if not self._running:
            return
        interpreter = self.interpreter
        for at in innermost([(call.step.module, call.step.slot) for call in self._running]):
            outer = self._running[at].step  # the others show their host masters until then
            with self._running[at].stream:  # what ran inside may have made another current
                for half in resumes(self._resident(outer, self._arrived)):
                    interpreter.issue(outer.halves[half])
            interpreter.arena.bind(outer.weights)

    def saved(self) -> None:
        """A state dict is asked for: a run that was interrupted must not show its slot in it."""
        if not self._removed and len(self._alive(None)) < len(self._running):
            self._mend(None)
            self._resume()

    def keep(self, index: int) -> None:
        """What the module wrote into its slot so far goes into its masters."""
        for call in self._running:
            if call.step.module == index and call.step.weights.was_written:
                self.interpreter.issue(call.step.halves[WRITE])

    def _mend(self, index: int | None) -> None:
        """Forget runs that ended without their hook: torch calls none for a KeyboardInterrupt."""
        alive = self._alive(index)
        # Those alive resume with their slots when the inner run ends, if it does: until then
        # they show their host masters, since their slots may be refilled.
        self._show_hosts()
        self._running = alive

    def _show_hosts(self) -> None:
        for step in {call.step for call in self._running}:
            self.interpreter.unbind(step)

    def _alive(self, index: int | None) -> list[Call]:
        """The runs whose calls are on this thread's stack, beside that of the module whose hook
        this is."""
        if not self._running:
            return []
        calls = Counter(_modules_on_stack())
        if index is not None:
            calls[id(self.selection.modules[index])] -= 1
        alive = []
        for call in self._running:
            module = id(self.selection.modules[call.step.module])
            if calls[module] > 0:
                calls[module] -= 1
                alive.append(call)
        return alive


def _closed_to_dynamo(hook: Callable[..., None]) -> Callable[..., None]:
    """A plain Python hook would be traced away by torch.compile, in silence."""
    closed: Callable[..., None] = torch.compiler.disable(hook)
    return closed


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """The tensors in an output: in tuples, lists, dicts, and in the attributes of an object."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            inside = tree_leaves(list(vars(leaf).values()))
            yield from (one for one in inside if isinstance(one, torch.Tensor))


def _modules_on_stack() -> Iterator[int]:
    """The ids of the modules whose calls are on this thread's stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is nn.Module._call_impl.__code__:
            yield id(frame.f_locals["self"])
        frame = frame.f_back  # type: ignore[assignment]
