"""The hooks around each module: they issue the program's operations and guard residency.

Nothing depends on the hook after a module: torch runs none for a KeyboardInterrupt. What it
would have done, the next hook before a module does. The interrupt may come inside a hook, too, at
any line: a run is known before it shows its slot, and until it no longer does.

The slots are shared, so modules run in one thread at a time: each hook holds the lock, and where
another thread's module is under way a hook leaves everything as it is, or is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock, get_ident
from typing import Any, NamedTuple

import torch
from torch import nn

from runtime.annotate import Spans
from runtime.calls import Call, alive, overlap
from runtime.freezing import watch
from runtime.interpreter import Interpreter, Step
from runtime.misses import MissLog, not_resident
from runtime.outliving import check_outliving, raised
from runtime.outputs import check_output
from runtime.recorder import Recorder
from runtime.refuse import refuse_recording
from runtime.select import Selection
from schedule.errors import OffloadError
from schedule.guard import arrives, innermost, resumes
from schedule.program import WRITE
from schedule.table import AFTER, BEFORE

RELOAD, RAISE, OFF = "reload", "raise", "off"


class Standing(NamedTuple):
    """Where the passes are: how often a module ran, and was not resident; which came last."""

    runs: int
    misses: int
    arrived: int


class Hooks:
    """One offload's hooks, from their registration to ``remove()``.

    runs, misses: how often a module ran, and how often it was not resident.

    At which pass of the period the model is, is known at each enter of the root; without the
    root a pass is taken to begin where a module arrives that is no later than the one before. A
    wrong guess costs misses alone, since the guard compares what the step's own slot holds.
    adopt: called with the order, as positions, in which the modules ran in the first pass.
    """

    def __init__(
        self,
        selection: Selection,
        interpreter: Interpreter,
        on_miss: str,
        adopt: Callable[[Sequence[int]], bool],
    ) -> None:
        self.selection, self.interpreter, self.on_miss = selection, interpreter, on_miss
        self.runs = self.misses = 0
        self._pass = self._next_pass = 0
        self._arrived = len(selection.modules)
        self._running: list[Call] = []  # all of them in one thread
        self._thread = get_ident()
        self.lock = RLock()  # not Lock: a signal's handler may ask for a state dict
        self._handles: list[Any] = []
        self._cut: set[int] = set()  # modules of which a run was cut short
        self._removed = False
        self._spans = Spans(len(selection.modules))
        self._misses = MissLog(selection.names)
        self.recorder = Recorder(selection.names, lambda: self.misses, on_miss != OFF, adopt)

    @property
    def running(self) -> tuple[int, ...]:
        """The steps under way, the outermost first."""
        return tuple(step.position for step, _ in self._running)

    def remove(self) -> None:
        """Take the hooks out, and show the host masters in every module."""
        with self.lock:
            self._removed = True
            for handle in self._handles:
                handle.remove()
            self._show_hosts()
            self._running.clear()
            self._spans.close()

    def register(self) -> None:
        """Put the hooks in. Should it fail half way, ``remove`` takes out those that are in."""
        root, passes = self.root, self.interpreter.passes
        if root is not None and (len(passes) > 1 or any(one.enter for one in passes)):
            self._before(root, self._enter)
        if root is not None and self.recorder.order is None:
            self._handles += self.recorder.watch(root)
        for index, module in enumerate(self.selection.modules):
            self.hook(index, module)
        if any(one.leave for one in passes):
            self.hook_leave()
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()  # what was compiled before knows no hooks

    @property
    def root(self) -> nn.Module | None:
        """Whose calls are the passes, if that is known."""
        return self.selection.root

    def hook(self, index: int, module: nn.Module) -> None:
        """The hooks of one module."""
        self._before(module, partial(self._arrive, index))
        self._after(module, partial(self._depart, index))

    def hook_leave(self) -> None:
        """The hook at the end of a pass: without the root, after its last module."""
        self._after(self.selection.modules[-1] if self.root is None else self.root, self._leave)

    def can_reorder(self) -> bool:
        """Whether no run is under way, and none was cut short."""
        return not self._removed and self._mend(None) and not self._running and not self._cut

    def reorder(self, selection: Selection) -> None:
        """The same modules in another order, at the start of a period. None runs."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.selection, self._misses = selection, MissLog(selection.names)
        self._pass, self._next_pass, self._arrived = 0, 0, len(selection.modules)
        self.register()

    def _enter(self, *_: Any) -> None:
        """The root is called: a pass begins."""
        with self.lock:
            if self._removed:
                return
            if self.interpreter.graph is None:
                refuse_recording(self.interpreter.streams)
            if not self._mend(None):
                raise self._overlap("the model")
            self._begin_pass()

    def _begin_pass(self) -> None:
        passes = self.interpreter.passes
        self._pass = self._next_pass
        self._next_pass = (self._pass + 1) % len(passes)
        self.interpreter.issue(passes[self._pass].enter)

    def _leave(self, *_: Any) -> None:
        """A pass ended, maybe inside a module's run, which then goes on."""
        with self.lock:
            if not self._removed and self._mend(None):
                self.interpreter.issue(self.interpreter.passes[self._pass].leave)
                self._resume()

    def _before(self, module: nn.Module, hook: Callable[..., None]) -> None:
        hook = _closed_to_dynamo(hook)  # before those that may read weights: old weight_norm does
        self._handles.append(module.register_forward_pre_hook(hook, prepend=True))

    def _after(self, module: nn.Module, hook: Callable[..., None]) -> None:
        # always_call: a module that raised an Exception has left its slot too.
        hook = _closed_to_dynamo(hook)
        self._handles.append(module.register_forward_hook(hook, always_call=True))

    def _arrive(self, index: int, *_: Any) -> None:
        """A module is about to run."""
        with self.lock:
            if self._removed:
                return  # close() came during this call
            if self.interpreter.graph is None:
                refuse_recording(self.interpreter.streams)
            if self._running and not self._mend(index):
                raise self._overlap(f"{self.selection.names[index]} (module {index})")
            if self.root is None and index <= self._arrived:
                self._begin_pass()
            before, self._arrived = self._arrived, index
            if index <= before:
                watch(self)
            step = self.interpreter.passes[self._pass].steps[index]
            spans = self._spans.wanted()
            if spans:
                self._spans.arrive(index, len(self._running))
            self._begin(step, before)
            if spans:
                self._spans.begin(step.label, len(self._running) - 1)
            self.runs += 1

    def _begin(self, step: Step, before: int) -> None:
        """The module gets its weights, or is refused. before: the one that arrived before it."""
        interpreter = self.interpreter
        if step.module in self._cut and not self.is_running(step.module):
            self._check_cut(step.module)
        interpreter.issue(step.halves[BEFORE])
        resident = self._resident(step, before)
        if not resident and self.on_miss == RAISE and interpreter.graph is None:
            held = interpreter.last[step.slot].module
            raise not_resident(self.selection.names, step.module, step.slot, held)
        self._thread = get_ident()
        self._running.append((step, interpreter.streams.current()))
        try:
            for half in arrives(resident):
                interpreter.issue(step.halves[half])
        except Exception:
            interpreter.unbind(step)
            self._running.pop()
            raise
        if self.recorder.order is None and interpreter.graph is None:
            self.recorder.arrive(step.module)

    def _check_cut(self, module: int) -> None:
        """A run of the module was cut short, and nobody looked whether it kept its weights."""
        for weights in self.interpreter.arena.sets.values():
            if weights.module == module:
                check_outliving(self.selection.modules[module], weights, self.interpreter)
        self._cut.discard(module)

    def _depart(self, index: int, _: nn.Module, __: Any, output: Any) -> None:
        """A module ran, or raised."""
        with self.lock:
            if not self.is_running(index):
                return  # it never arrived: it was refused, or close() came during this call
            ended = self._ended()
            while ended.module != index:  # runs above it ended without their hook
                self._cut.add(ended.module)
                ended = self._ended()
            spans = self._spans.wanted()
            if spans:
                self._spans.end(len(self._running))
            if self._running:
                self._mend(index)
            self.interpreter.issue(ended.halves[AFTER])
            if self._running:
                self._resume()
            if spans:
                self._spans.depart(index, len(self._running))
            module = self.selection.modules[index]
            if output is None and raised(module):
                self._cut.add(index)
                return
            check_output(output, self.selection.names[index])
            if not self.is_running(index):  # else an outer run has its weights in hand
                check_outliving(module, ended.weights, self.interpreter, output)

    def _ended(self) -> Step:
        """The innermost run is over."""
        step, _ = self._running[-1]
        self.interpreter.unbind(step)
        self._running.pop()
        return step

    def is_running(self, index: int) -> bool:
        """Whether this thread runs the module."""
        if self._thread != get_ident():
            return False
        for step, _ in self._running:  # noqa: SIM110, no generator in the hot path
            if step.module == index:
                return True
        return False

    def _resident(self, step: Step, before: int) -> bool:
        """Whether the guard finds the module in its slot, or is off; what it misses is counted.
        before: the module that arrived last before it."""
        resident = self.on_miss == OFF or self.interpreter.holds(step)
        if not resident:
            self.misses += 1
            if self.interpreter.graph is not None:
                return False  # who captures says it
            held = self.interpreter.last[step.slot].module
            # Where the order was said to be another, that there are misses was said too.
            runs = 0 if self.recorder.differs else self.runs + 1
            self._misses.missed(step.module, before, held, runs, self.misses)
        return resident

    def _resume(self) -> None:
        """A module ran inside others' runs; these resume reading their slots."""
        if not self._running:
            return
        interpreter = self.interpreter
        for at in innermost([(step.module, step.slot) for step, _ in self._running]):
            outer, stream = self._running[at]  # the others show their host masters until then
            with stream:  # what ran inside may have made another current
                for half in resumes(self._resident(outer, self._arrived)):
                    interpreter.issue(outer.halves[half])
            interpreter.arena.bind(outer.weights)

    # ---- around the runs

    @property
    def standing(self) -> Standing:
        """Where the passes are."""
        return Standing(self.runs, self.misses, self._arrived)

    @standing.setter
    def standing(self, standing: Standing) -> None:
        self.runs, self.misses, self._arrived = standing

    def require_idle(self, what: str) -> None:
        """OffloadError if a module is running in any thread, or while a graph is captured."""
        self.require_no_capture(what)
        alive = self._alive(None)
        if alive and self._thread != get_ident():
            raise self._overlap(what)
        if alive:
            runs = self.selection.names[alive[-1][0].module]
            raise OffloadError(f"{what} was asked for while {runs} runs; do so between passes")
        self._mend(None)

    def require_no_capture(self, what: str) -> None:
        """OffloadError while a graph is captured."""
        captured = self.interpreter.graph
        if captured is not None:
            raise OffloadError(
                f"{what} was asked for while {captured.name} is captured; do so before or after"
            )

    def drop_writes(self) -> None:
        """What runs that are under way wrote was captured, and not done: an interrupt left them
        without their hook."""
        for step, _ in self._running:
            self.interpreter.arena.drop_writes(step.weights)

    def saved(self) -> None:
        """A state dict is asked for: a run that was interrupted must not show its slot in it."""
        with self.lock:
            ended = not self._removed and len(self._alive(None)) < len(self._running)
            if ended and self._mend(None):
                self._resume()

    def keep(self, index: int) -> None:
        """What the module wrote into its slot so far goes into its masters, if this thread is the
        one that runs it."""
        with self.lock:
            for step, _ in self._running if self._thread == get_ident() else ():
                if step.module == index and step.weights.was_written:
                    self.interpreter.issue(step.halves[WRITE])

    def _mend(self, index: int | None) -> bool:
        """Forget runs that ended without their hook: torch calls none for a KeyboardInterrupt.
        False, and nothing is changed, while another thread's are under way."""
        if not self._running:
            return True
        alive = self._alive(index)
        if alive and self._thread != get_ident():
            return False
        # Those alive resume with their slots when the inner run ends, if it does: until then
        # they show their host masters, since their slots may be refilled.
        self._show_hosts()
        still = {id(step) for step, _ in alive}
        self._cut.update(step.module for step, _ in self._running if id(step) not in still)
        self._running = alive
        return True

    def _show_hosts(self) -> None:
        for step in {step for step, _ in self._running}:
            self.interpreter.unbind(step)

    def _alive(self, index: int | None) -> list[Call]:
        """The runs whose calls are on their thread's stack, beside that of the module whose hook
        this is."""
        if not self._running:
            return []
        asks = index is not None and self._thread == get_ident()
        but = self.selection.modules[index] if asks else None
        return alive(self._running, self.selection.modules, self._thread, but)

    def _overlap(self, what: str) -> OffloadError:
        runs = self._running[-1][0].module
        return overlap(what, f"{self.selection.names[runs]} (module {runs})", self._thread)


def _closed_to_dynamo(hook: Callable[..., None]) -> Callable[..., None]:
    """A plain Python hook would be traced away by torch.compile, in silence."""
    closed: Callable[..., None] = torch.compiler.disable(hook)
    return closed
