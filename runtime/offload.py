"""Offload a model: its modules' weights pass through a few slots, by a verified schedule.

The hooks around each module interpret the program and decide nothing. The guard before a module
compares what its slot holds with what it needs; a module that is not resident, whatever order the
modules ran in, is loaded then and there, or is an error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from runtime.arena import Arena, Source
from runtime.around import Around
from runtime.choice import (
    AnyCertificate,
    AnyPolicy,
    choice,
    planned,
    require_ordered,
    require_safe,
    require_source,
)
from runtime.device import streams_of
from runtime.graph import Captured, by_number, capture
from runtime.hooks import RAISE, RELOAD, Hooks
from runtime.host import chunk_of, limit_of
from runtime.interpreter import Interpreter
from runtime.log import log
from runtime.outliving import check_outliving, who_keeps
from runtime.placement import Placement
from runtime.report import Report, closing, report_of
from runtime.select import Layers, Selection, device_of
from runtime.static import kinds_of
from schedule.errors import OffloadError
from schedule.graphs import require_closed
from schedule.program import Program, lower
from schedule.table import Schedule
from schedule.trace import Trace


def offload(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    slots: int | None = None,
    policy: AnyPolicy = None,
    certificate: AnyCertificate | None = None,
    group_size: int | None = None,
    num_in_group: int | None = None,
    keep: Layers = None,
    parameters: str | Iterable[str] | None = None,
    on_miss: str = RELOAD,
    device: torch.device | str | None = None,
    pin: bool | int | str = True,
    chunk: int | str | None = None,
    source: Source | None = None,
    static: bool = False,
) -> Offloaded:
    """Move the layers' weights to host memory and run them through that many device slots.

    model:   the whole model, whose other tensors move to the device; or a list of modules, and
             then nothing else is touched.
    layers:  the modules to offload, in execution order: modules, and name patterns such as
             "model.layers.*", where * goes across dots too, and of modules within one another
             the outermost is meant. By default the model's blocks, in the order in which they run
             in the first complete pass.
    slots:   K >= 1, each as large as the largest module that uses it; 2 by default, or those of
             the Schedule that is given as policy.
    policy:  a name, ``pkg.module:function``, a Policy, a function (index, slots, modules) ->
             target or None, or a Schedule or Verified for exactly this ring. Default:
             ``double_buffer``, for one slot ``single_buffer``.
    certificate: instead of slots and policy: a file, or its data, that
             ``python -m schedule check --certificate`` wrote; it is checked anew.
    group_size, num_in_group: of every so many layers only the last so many, 1 by default, are
             offloaded, as vLLM counts; the others stay on the device.
    keep:    layers that stay on the device for good: modules or name patterns.
    parameters: name patterns, such as "experts": of each module only the parameters that have
             one among their names' segments are offloaded.
    on_miss: what to do when a module is not resident: "reload" it, or "raise" ModuleNotResident.
    device:  by default the accelerator that the model is on, else the current one, else the CPU.
    pin:     how much host memory may be page-locked: all, nothing, or a size, "16GiB", and then
             that of the modules refilled most comes first.
    chunk:   a size, "32MiB": refills of more than two chunks are copied chunk by chunk, so that
             small uploads of other streams need not wait for a whole one. One copy by default.
    source:  for tensors on the meta device: a function (full name, target) that writes the values
             into the target, once a tensor; ``runtime.load`` brings one for checkpoints.
    static:  for ``torch.compile(model, fullgraph=True)``: weights stay bound to their slots, and
             the hooks are operators of the graph. Then parameters() outside their module's run
             show what the slot holds; state_dict() shows the weights. A module must have one slot.

    For inference: an output that requires grad is an error. Raises ScheduleViolation for a
    schedule that is not safe, OffloadError and other ValueErrors for what can't be offloaded;
    nothing is changed then. Use the result as a context manager, or call ``close()``.
    """
    if on_miss not in (RELOAD, RAISE):
        raise OffloadError(f"on_miss must be 'reload' or 'raise', got {on_miss!r}")
    require_source(source)
    limit, longest = limit_of(pin), chunk_of(chunk)
    selection, schedule = planned(
        model,
        layers,
        slots=slots,
        policy=policy,
        certificate=certificate,
        needs_values=source is None,
        group_size=group_size,
        num_in_group=num_in_group,
        keep=keep,
        parameters=parameters,
    )
    require_safe(schedule)
    program = lower(schedule)
    require_ordered(program, schedule.ring.modules)
    arena, hooks = kinds_of(static)
    placement = placed(selection, schedule, device, limit, source, arena)
    offloaded = Offloaded(placement, program, on_miss, True, longest, hooks)
    if log.isEnabledFor(logging.INFO):
        log.info("%s", choice(offloaded, policy if certificate is None else schedule))
    return offloaded


def placed(
    selection: Selection,
    schedule: Schedule,
    device: torch.device | str | None,
    limit: int = sys.maxsize,
    source: Source | None = None,
    arena: type[Arena] = Arena,
) -> Placement:
    """A placement, planned; outside inference mode, as all that is made for it must be."""
    with torch.inference_mode(False), torch.no_grad():
        streams = streams_of(device_of(selection) if device is None else device)
        return Placement(selection, schedule, streams, limit, source, arena)


class Offloaded:
    """A model whose modules' weights pass through slots, until ``close()``.

    Made by ``offload``. ``report()`` gives the counts, ``trace()`` the operations as issued.
    """

    def __init__(
        self,
        placement: Placement,
        program: Program,
        on_miss: str,
        verified: bool,
        chunk: int | None = None,
        hooks: type[Hooks] = Hooks,
    ) -> None:
        self.placement, self.arena, self.streams = placement, placement.arena, placement.streams
        self.schedule, self.program = placement.schedule, program
        self.on_miss, self.verified = on_miss, verified
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
        return f"<Offloaded {ring.modules} modules over {ring.slots} slots, {state}>"
