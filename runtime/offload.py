"""Offload a model: its modules' weights pass through a few slots, by a verified schedule.

The hooks around each module interpret the program and decide nothing. The guard before a module
compares what its slot holds with what it needs; a module that is not resident, whatever order the
modules ran in, is loaded then and there, or is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

import torch
from torch import nn

from runtime.arena import Arena
from runtime.around import Around
from runtime.choice import (
    AnyCertificate,
    AnyPolicy,
    certified,
    choice,
    require_ordered,
    schedule_for,
)
from runtime.device import Streams, streams_of
from runtime.hooks import OFF, RAISE, RELOAD, Hooks
from runtime.interpreter import Interpreter
from runtime.layout import Layout, Segment, lay_out, require_worth
from runtime.leaves import is_wrapper, place_at
from runtime.report import Report
from runtime.select import Selection, renewed, select, tensors_that_stay
from runtime.views import refuse_views
from schedule.errors import OffloadError
from schedule.program import Program, lower
from schedule.ring import Ring
from schedule.table import Schedule
from schedule.trace import Trace
from schedule.verifier import verify

log = logging.getLogger("ringproof.runtime")


def offload(
    model: nn.Module | Iterable[nn.Module],
    layers: Iterable[nn.Module] | None = None,
    *,
    slots: int | None = None,
    policy: AnyPolicy = None,
    certificate: AnyCertificate | None = None,
    on_miss: str = RELOAD,
    device: torch.device | str | None = None,
) -> Offloaded:
    """Move the layers' weights to host memory and run them through that many device slots.

    model:   the whole model, whose other tensors move to the device; or a list of modules, and
             then nothing else is touched.
    layers:  the modules to offload, in execution order; by default the model's blocks.
    slots:   K >= 1, each as large as the largest module that uses it; 2 by default.
    policy:  a name, ``pkg.module:function``, a Policy, a function (index, slots, modules) ->
             target or None, or a Schedule or Verified for exactly this ring. Default:
             ``double_buffer``, for one slot ``single_buffer``.
    certificate: instead of slots and policy: a file, or its data, that
             ``python -m schedule check --certificate`` wrote; it is checked anew.
    on_miss: what to do when a module is not resident: "reload" it, or "raise" ModuleNotResident.
    device:  the current accelerator by default, else the CPU.

    For inference: an output that requires grad is an error. Raises ScheduleViolation for a
    schedule that is not safe, OffloadError and other ValueErrors for what can't be offloaded;
    nothing is changed then. Use the result as a context manager, or call ``close()``.
    """
    if on_miss not in (RELOAD, RAISE):
        raise OffloadError(f"on_miss must be 'reload' or 'raise', got {on_miss!r}")
    selection = select(model, layers)
    modules = len(selection.modules)
    if certificate is None:
        schedule = schedule_for(policy, Ring(modules, 2 if slots is None else slots))
    else:
        schedule = policy = certified(certificate, modules, slots, policy)
    verify(schedule)
    program = lower(schedule)
    require_ordered(program, schedule.ring.modules)
    offloaded = Offloaded(selection, schedule, program, on_miss, True, streams_of(device))
    if log.isEnabledFor(logging.INFO):
        log.info("%s", choice(offloaded, policy))
    return offloaded


class Offloaded:
    """A model whose modules' weights pass through slots, until ``close()``.

    Made by ``offload``. ``report()`` gives the counts, ``trace()`` the operations as issued.
    """

    def __init__(
        self,
        selection: Selection,
        schedule: Schedule,
        program: Program,
        on_miss: str,
        verified: bool,
        streams: Streams,
    ) -> None:
        self.selection, self.schedule, self.program = selection, schedule, program
        self.on_miss, self.verified, self.streams = on_miss, verified, streams
        layouts = self._lay_out()
        self._moved: list[tuple[dict[str, torch.Tensor], str, torch.device]] = []
        self._hooks: Hooks | None = None
        self._around: Around | None = None
        self._closed = False
        # Arena and masters outside inference mode: their version counters are the guard's.
        with torch.inference_mode(False), torch.no_grad():
            self.arena = Arena(layouts, schedule, streams.device)
            try:
                for module in range(len(layouts)):
                    self._adopt(module)
                self._move_the_rest()
                self._interpreter = Interpreter(self.program, schedule, self.arena, streams)
                self._interpreter.issue(self._interpreter.preload)
                self._preloaded = self._interpreter.counts.copies
                self._register()
            except BaseException:
                self.close()
                raise

    def _lay_out(self) -> list[Layout]:
        selection = self.selection
        layouts = [
            lay_out(module, name, selection.stay)
            for module, name in zip(selection.modules, selection.names, strict=True)
        ]
        require_worth(layouts)
        root = selection.root
        scope = selection.modules if root is None else (root,)
        refuse_views([part for module in scope for part in module.modules()], layouts)
        return layouts

    def _adopt(self, module: int) -> None:
        size = self.arena.layouts[module].size
        self.arena.adopt(module, (Segment(0, self.streams.host_block(size)),))

    def _register(self) -> None:
        self._hooks = Hooks(self.selection, self._interpreter, self.on_miss)
        self._hooks.register()
        self._around = Around(
            self.selection,
            self.arena,
            mend=self._hooks.saved,
            keep=self._hooks.keep,
            wait=self.streams.synchronize,
            adopt=self._adopt_changes,
        )
        self._around.register()

    # ---- the model changes

    def refresh(self) -> None:
        """Adopt Parameters and modules that were replaced, added or deleted within the offloaded
        ones or beside them, and load every module again before it next runs. Needed after such a
        change, and after writes that torch does not count: through ``.data``, through numpy, by
        another process. OffloadError for a change while a module runs, or of an offloaded module
        as a whole."""
        self._adopt_changes(None)
        self._interpreter.forget()

    def _adopt_changes(self, module: int | None) -> None:
        """Adopt what changed in one module, or in all of them and beside them."""
        if self._closed:
            return
        selection = renewed(self.selection) if module is None else self.selection
        some = range(len(self.arena.layouts)) if module is None else (module,)
        changed = [one for one in some if self.arena.change(one) is not None]
        with torch.inference_mode(False), torch.no_grad():
            if changed:
                self._renew(changed)
            if module is None:
                self.selection = selection
                self._move_the_rest()

    def _renew(self, changed: list[int]) -> None:
        assert self._hooks is not None, "a wrapped model has hooks"
        assert self._around is not None, "a wrapped model has hooks"
        self._hooks.saved()  # an interrupted run is none
        if self._hooks.running:
            raise OffloadError(
                f"{self.arena.change(changed[0])} while a module was running; change the model "
                f"between passes, then call refresh()"
            )
        self.selection = renewed(self.selection)
        layouts = self._lay_out()
        self.streams.synchronize()
        self.arena.plan(layouts)
        for module in changed:
            self._adopt(module)
        self._interpreter.bind(self.program, self.schedule)
        self._interpreter.forget()
        self._around.register()

    # ---- the rest of the model

    def _move_the_rest(self) -> None:
        for tensors, name in tensors_that_stay(self.selection):
            tensor = tensors[name]
            if tensor.device != self.streams.device:
                self._moved.append((tensors, name, tensor.device))
                _move(tensors, name, self.streams.device)

    # ---- for people

    def report(self) -> Report:
        """The counts since the model was wrapped."""
        hooks, layouts, counts = self._hooks, self.arena.layouts, self._interpreter.counts
        assert hooks is not None, "a wrapped model has hooks"
        offloaded = sum(layout.weights for layout in layouts)
        stays = {
            id(tensors[name]): tensors[name].numel() * tensors[name].element_size()
            for tensors, name in tensors_that_stay(self.selection)
        }
        rest = sum(stays.values())
        return Report(
            policy=self.schedule.policy,
            modules=self.schedule.ring.modules,
            slots=self.schedule.ring.slots,
            device=str(self.streams.device),
            verified=self.verified,
            guard=self.on_miss != OFF,
            bytes_whole=offloaded + rest,
            bytes_offloaded=offloaded,
            bytes_slots=self.arena.bytes_slots,
            bytes_rest=rest,
            preloaded=self._preloaded,
            copies=counts.copies - self._preloaded,
            bytes_copied=counts.bytes_copied,
            redundant=counts.redundant,
            runs=hooks.runs,
            misses=hooks.misses,
            stay=self.selection.stay_names,
        )

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """Collect the program's operations, as they are issued, while the context is open. Its
        ``save(path)`` writes them to a file that ``python -m schedule audit`` checks."""
        interpreter, hooks = self._interpreter, self._hooks
        assert hooks is not None, "a wrapped model has hooks"
        holds = tuple(last.module for last in interpreter.last)
        device, running = str(self.streams.device), hooks.running
        trace = Trace(device, self.schedule, holds, running, self.program.streams)
        outer, interpreter.log = interpreter.log, trace.issued
        try:
            yield trace
        finally:
            interpreter.log = outer
            if outer is not None:
                outer.extend(trace.issued)

    def close(self) -> None:
        """Remove the hooks and give the model its weights back, where they came from. Twice is
        once."""
        if self._closed:
            return
        self._closed = True
        if self._hooks is not None:
            self._hooks.remove()
        if self._around is not None:
            self._around.remove()
        self.streams.synchronize()
        if hasattr(self, "_interpreter"):
            self._interpreter.drop()
        with torch.inference_mode(False), torch.no_grad():
            self.arena.release()
            for tensors, name, device in self._moved:
                if name in tensors:
                    _move(tensors, name, device)

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


def _move(tensors: dict[str, torch.Tensor], name: str, device: torch.device) -> None:
    """Let the tensor, the same object where that can be, live on the device."""
    tensor = tensors[name]
    if tensor.is_inference():  # its object can't be given other bytes
        tensors[name] = tensor.to(device)
    elif is_wrapper(tensor):
        moved = tensor.to(device)
        if isinstance(tensor, nn.Parameter):
            moved = nn.Parameter(moved, requires_grad=tensor.requires_grad)
        torch.utils.swap_tensors(tensor, moved)
    else:
        place_at(tensor, tensor.data.to(device))
