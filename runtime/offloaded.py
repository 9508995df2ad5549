"""An offloaded model: from its wrapping to ``close()``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Any
from weakref import WeakSet

import torch

from runtime.around import Around
from runtime.graph import Captured, by_number, capture
from runtime.hooks import Hooks
from runtime.interpreter import Interpreter
from runtime.log import log
from runtime.outliving import check_outliving, who_keeps
from runtime.placement import Placement
from runtime.report import Report, closing, report_of
from runtime.select import Selection
from runtime.sizes import counted, megabytes
from schedule.errors import OffloadError
from schedule.graphs import require_closed
from schedule.plan import Plan
from schedule.program import Program
from schedule.trace import Trace


class Offloaded:
    """A model whose modules' weights pass through slots, until ``close()``.

    Made by ``offload``. ``report()`` gives the counts, ``trace()`` the operations as issued.
    plan: what was planned for a memory budget, if one was given.
    """

    def __init__(
        self,
        placement: Placement,
        program: Program,
        on_miss: str,
        verified: bool,
        chunk: int | None = None,
        hooks: type[Hooks] = Hooks,
        plan: Plan | None = None,
    ) -> None:
        self.placement, self.arena, self.streams = placement, placement.arena, placement.streams
        self.schedule, self.program = placement.schedule, program
        self.on_miss, self.verified, self.plan = on_miss, verified, plan
        self._kind = hooks
        self._hooks: Hooks | None = None
        self._around: Around | None = None
        self._closed = False
        self._graphs: WeakSet[Captured] = WeakSet()
        self._names = map("graph {}".format, count())  # no generator: an interrupt would end it
        # Masters outside inference mode: their version counters are the guard's.
        with torch.inference_mode(False), torch.no_grad():
            try:
                placement.fill()
                self._interpreter = Interpreter(
                    program, self.schedule, self.arena, self.streams, chunk
                )
                self._preloaded = self._interpreter.start()
                self._register()
            except BaseException:
                self.close()
                raise
        placement.settle()

    @property
    def selection(self) -> Selection:
        """Which modules are offloaded, and what of them stays."""
        return self.placement.selection

    @property
    def hooks(self) -> Hooks:
        """The hooks around the modules, and what runs between them."""
        assert self._hooks is not None, "a wrapped model has hooks"
        return self._hooks

    def _register(self) -> None:
        self._hooks = self._kind(self.selection, self._interpreter, self.on_miss, self._adopt_order)
        self._hooks.register()
        self._around = Around(
            self.arena, self._hooks, wait=self.streams.synchronize, adopt=self._adopt_changes
        )
        self._around.register()

    # ---- the model changes

    def refresh(self) -> None:
        """Adopt Parameters and modules that were replaced, added or deleted within the offloaded
        ones or beside them, and load every module again before it next runs. Needed after such a
        change, and after writes that torch does not count: through ``.data``, through numpy, by
        another process. OffloadError for a change while a module runs, or of an offloaded module
        as a whole."""
        if self._closed:
            raise OffloadError("this offload is closed; the model is an ordinary one again")
        with self.hooks.lock:
            self.hooks.require_no_capture("refresh()")
            self._adopt_changes(None)
            self._interpreter.forget()
        log.info("refresh: every module is loaded again before it next runs")

    def _adopt_changes(self, module: int | None) -> None:
        """Adopt what changed in one module, or in all of them and beside them."""
        if self._closed:
            return
        with torch.inference_mode(False), torch.no_grad(), self.arena.hosts_shown():
            changed = self.placement.changed(module)
            if changed:
                self._renew(changed)
            if module is None:
                self.placement.move_the_rest()
        self._warn_of_growth()

    def _warn_of_growth(self) -> None:
        plan = self.plan
        if plan is not None and (there := self.report().bytes_device) > plan.budget:
            log.warning(
                "%s are on the device now, more than the %s that were given: the model was "
                "changed; close() and offload it again",
                *(megabytes(there), megabytes(plan.budget)),
            )

    def _renew(self, changed: list[int]) -> None:
        assert self._around is not None, "a wrapped model has hooks"
        self.hooks.saved()  # an interrupted run is none
        if self.hooks.running:
            raise OffloadError(
                f"{self.arena.change(changed[0])} while a module was running; change the model "
                f"between passes, then call refresh()"
            )
        self._refuse_outliving()
        self.streams.synchronize()
        self._end_graphs("refresh() adopted a change of the model; capture it again")
        sets = self.arena.sets
        try:
            self.placement.renew(changed)
            self._interpreter.bind(self.program, self.schedule)
            self._interpreter.forget()
            self._around.register()
        except BaseException:
            if self.arena.sets is not sets:
                self.hooks.remove()  # half done: from now on every module has its host masters
            raise

    def _adopt_order(self, order: Sequence[int]) -> bool:
        """Offload the modules in the order in which they ran, if they were found, so that theirs
        was a guess; unless something is under way, or larger slots don't fit the device."""
        with self.hooks.lock, torch.inference_mode(False), torch.no_grad():
            traced = self._interpreter.log is not None
            if not self.selection.found or traced or self.arena.changed or self._graphs:
                return False
            if not self.hooks.can_reorder():
                return False
            assert self._around is not None, "a wrapped model has hooks"
            self._refuse_outliving()
            self.streams.synchronize()
            try:
                self.placement.reorder(order)
                self._interpreter.bind(self.program, self.schedule)
                self._preloaded += self._interpreter.start()
                self.hooks.reorder(self.selection)
                self._around.register()
            except torch.OutOfMemoryError as error:  # before anything was changed
                log.warning("the order in which the modules ran is not adopted: %s", error)
                return False
            except BaseException:
                self.hooks.remove()  # half done: from now on every module has its host masters
                raise
        return True

    def _refuse_outliving(self) -> None:
        """OffloadError if anything keeps a view of a slot: the sets over it are made anew, and
        nobody would look at the old ones again."""
        for one in self.arena.sets.values():
            check_outliving(self.selection.modules[one.module], one, self._interpreter)

    # ---- graphs

    def capture(self, function: Callable[[], Any]) -> Captured:
        """Run a function that calls the model, or some of its modules, and capture it into a graph
        of the device, which ``replay()`` then does again without any Python: with the same inputs,
        in place, and the weights as they are then. Refills are in the graph; what it takes for
        granted is loaded before each replay, whatever ran in between.

        The function takes no arguments, and runs twice: once to warm up, and once captured, when
        nothing is done; for a part of a pass it may be captured twice. What it writes beside its
        output, a cache for instance, it must write in place. Whatever holds for graphs of torch
        holds here: no value may come back to the host.

        OffloadError on a CPU, for a module that writes into its weights, and if no offloaded module
        runs; ScheduleError for a schedule that is not where it began after one pass."""
        if self._closed:
            raise OffloadError("this offload is closed; capture while it is open")
        if self.plan is not None and self.schedule.period > 1:
            raise OffloadError(
                f"the plan for this memory repeats after {self.schedule.period} passes, so no "
                f"graph of one pass can be replayed; with static=True a plan for graphs is made"
            )
        require_closed(self.schedule)
        captured = capture(self, function, self._names)
        self._graphs.add(captured)
        return captured

    def _end_graphs(self, why: str) -> None:
        """No replay is under way."""
        for one in self._graphs:
            one.end(why)
        self._graphs.clear()

    # ---- for people

    def report(self) -> Report:
        """The counts since the model was wrapped."""
        return report_of(self, self.hooks, self._interpreter.counts, self._preloaded)

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """Collect the program's operations, as they are issued, while the context is open. Its
        ``save(path)`` writes them to a file that ``python -m schedule audit`` checks. OffloadError
        after ``close()``, when nothing is issued any more."""
        if self._closed:
            raise OffloadError(
                "this offload is closed and issues nothing; trace it while it is open"
            )
        interpreter, hooks = self._interpreter, self.hooks
        hooks.require_no_capture("a trace")
        holds = tuple(last.module for last in interpreter.last)
        device, running = str(self.streams.device), hooks.running
        trace = Trace(device, self.schedule, holds, running, self.program.streams)
        trace.graphs = tuple(sorted((one.graph for one in self._graphs), key=by_number))
        outer, interpreter.log = interpreter.log, trace.issued
        try:
            yield trace
        finally:
            interpreter.log = outer
            if outer is not None:
                outer.extend(trace.issued)

    def recorded_order(self) -> tuple[str, ...] | None:
        """The names of the modules in the order in which they arrived in the first complete
        pass, fit for ``layers``; None before. Another order than that of the layers, and modules
        that did not run, are said once in the log."""
        return self.hooks.recorder.order

    def close(self) -> None:
        """Remove the hooks and give the model its weights back, where they came from. Twice is
        once."""
        if self._closed:
            return
        if self._hooks is not None:
            self._hooks.remove()
            self._warn_of_views()
        if self._around is not None:
            self._around.remove()
        self.streams.synchronize()
        self._end_graphs("its offload is closed")
        if hasattr(self, "_interpreter"):
            self._interpreter.drop()
        with torch.inference_mode(False), torch.no_grad():
            self.placement.release()
        self._closed = True  # not before: what was interrupted half way is finished by another call
        if self._hooks is not None and log.isEnabledFor(logging.INFO):
            log.info("%s", closing(self.report()))

    def _warn_of_views(self) -> None:
        """What is kept of a slot shows what was there last. (An error is no end.)"""
        for one in self.arena.sets.values():
            if one.held is not None and one.references() != one.held:
                who = who_keeps(self.selection.modules[one.module], one, self._interpreter)
                if who is not None:
                    log.warning("%s, which shows what its slot held last", who)

    def __enter__(self) -> Offloaded:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ring = self.schedule.ring
        state = "closed" if self._closed else f"{self.schedule.policy} on {self.streams.device}"
        sizes = f"{counted(ring.modules, 'module')} over {counted(ring.slots, 'slot')}"
        return f"<Offloaded {sizes}, {state}>"
