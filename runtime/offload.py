"""Offload a model: its modules' weights pass through a few slots, by a verified schedule.

The hooks around each module interpret the program and decide nothing. The guard before a module
compares what its slot holds with what it needs; a module that is not resident, whatever order the
modules ran in, is loaded then and there, or is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from types import TracebackType
from typing import Any

import torch
from torch import nn

from runtime.arena import Arena, lay_out, place_at
from runtime.device import Streams, streams_of
from runtime.hooks import OFF, RAISE, RELOAD, Hooks
from runtime.interpreter import Interpreter
from runtime.report import Report, megabytes
from runtime.select import Selection, select, tensors_that_stay
from schedule import policies
from schedule.arithmetic import Target
from schedule.certificate import read as read_certificate
from schedule.errors import OffloadError, ProgramError
from schedule.faults import explain
from schedule.loading import load
from schedule.order import order
from schedule.policy import Policy, of_target
from schedule.program import Program, lower
from schedule.ring import Ring
from schedule.table import Schedule
from schedule.trace import Trace
from schedule.verifier import Verified, check, verify

AnyCertificate = str | PathLike[str] | dict[str, Any]
AnyPolicy = str | Policy | Target | Schedule | Verified | None

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
    _require_ordered(program, schedule.ring.modules)
    offloaded = Offloaded(selection, schedule, program, on_miss, True, streams_of(device))
    if log.isEnabledFor(logging.INFO):
        log.info("%s", _choice(offloaded, policy))
    return offloaded


def _require_ordered(program: Program, modules: int) -> None:
    """ProgramError unless the program's own fences order it, from an empty device on."""
    ordering = order(program.listing(2), program.streams)
    if not ordering.safe:
        raise ProgramError(explain(ordering, ordering.faults[0], modules))


def certified(
    certificate: AnyCertificate, modules: int, slots: int | None, policy: AnyPolicy
) -> Schedule:
    """The schedule of a certificate. OffloadError if it is for another ring, or not alone."""
    if policy is not None:
        raise OffloadError("give a policy or a certificate, which has its own schedule, not both")
    schedule = read_certificate(certificate)
    ring = schedule.ring
    for name, asked, there in ("modules", modules, ring.modules), ("slots", slots, ring.slots):
        if asked is not None and asked != there:
            raise OffloadError(
                f"the certificate is for {there} {name}, but this offload has {asked}; "
                f"make one for it: python -m schedule check --certificate"
            )
    return schedule


def schedule_for(policy: AnyPolicy, ring: Ring) -> Schedule:
    """The schedule of any form of policy, for this ring."""
    if isinstance(policy, Verified):
        policy = policy.schedule
    if isinstance(policy, Schedule):
        if policy.ring != ring:
            raise OffloadError(f"the schedule is for {policy.ring}, but this offload is {ring}")
        return policy
    if policy is None:
        return policies.default(ring.slots)(ring)
    if isinstance(policy, str):
        return load(policy)(ring)
    made = policies.guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
    return made(ring)


def _choice(offloaded: Offloaded, policy: AnyPolicy) -> str:
    """What was chosen, and what one slot more would save."""
    schedule, layouts = offloaded.schedule, offloaded.arena.layouts
    ring, largest = schedule.ring, max(layout.size for layout in layouts)
    text = (
        f"offloaded {ring.modules} modules of up to {megabytes(largest)} over {ring.slots} slots, "
        f"policy {schedule.policy}: {_copies(schedule):g} copies a pass"
    )
    try:
        more = check(schedule_for(policy, Ring(ring.modules, ring.slots + 1)))
    except ValueError:
        return text  # the policy is for this size alone
    saved = max(0, _copies(schedule) - _copies(more.schedule)) if more.safe else 0
    return f"{text}; one slot more ({megabytes(largest)}) would save {saved:g} of them"


def _copies(schedule: Schedule) -> float:
    """Copies a pass, on average over the period."""
    return schedule.copies / schedule.period


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
        layouts = [
            lay_out(module, name, selection.stay)
            for module, name in zip(selection.modules, selection.names, strict=True)
        ]
        self._came_from = {id(p): p.device for layout in layouts for p in layout.parameters}
        self._moved: list[tuple[dict[str, torch.Tensor], str, torch.device]] = []
        self._hooks: Hooks | None = None
        self._closed = False
        # Arena and masters outside inference mode: their version counters are the guard's.
        with torch.inference_mode(False), torch.no_grad():
            self.arena = Arena(layouts, schedule, streams.device)
            self._bytes_slots = sum(slot.numel() for slot in self.arena.slots)
            try:
                for module, layout in enumerate(layouts):
                    self.arena.adopt(module, streams.host_block(layout.size))
                self._move_the_rest()
                self._interpreter = Interpreter(self.program, schedule, self.arena, streams)
                self._interpreter.issue(self._interpreter.preload)
                self._preloaded = self._interpreter.counts.copies
                self._hooks = Hooks(selection, self._interpreter, on_miss)
                self._hooks.register()
            except BaseException:
                self.close()
                raise

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
            bytes_slots=self._bytes_slots,
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

    def refresh(self) -> None:
        """Load every module again before it next runs. Needed after writes that torch does not
        count: through ``.data``, through numpy, by another process."""
        self._interpreter.forget()

    def close(self) -> None:
        """Remove the hooks and give the model its weights back, where they came from. Twice is
        once."""
        if self._closed:
            return
        self._closed = True
        if self._hooks is not None:
            self._hooks.remove()
        self.streams.synchronize()
        if hasattr(self, "_interpreter"):
            self._interpreter.drop()
        with torch.inference_mode(False), torch.no_grad():
            self.arena.release(self._came_from)
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
    tensor = tensors[name]
    if isinstance(tensor, nn.Parameter):
        place_at(tensor, tensor.data.to(device))
    else:
        tensors[name] = tensor.to(device)
