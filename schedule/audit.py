"""Does a real run's trace fit its schedule?

Four checks, each by itself: the schedule is safe; the operations are its program's (``conform``);
the machine allows them, in host order, from what the slots held; and the clocks order them, from
the weakest state in which a run can be. The first operation that fails one is named, with what
was allowed there.

A trace is what the host issued. That the device did so is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedule import machine
from schedule.conform import Misfit, conform
from schedule.errors import ProgramError
from schedule.faults import WHAT, missing
from schedule.graphs import complete
from schedule.operations import (
    COMPUTE,
    Capture,
    Copy,
    EndCapture,
    Issued,
    Replay,
    Run,
    Wait,
    Write,
)
from schedule.order import Ordering, order, somewhere
from schedule.policy import Policy
from schedule.program import RELOAD, RESUME
from schedule.properties import IDENTITY, MEANING, OWNERSHIP
from schedule.ring import EMPTY, Ring, Slots
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary, Schedule
from schedule.tasks import EARLIER, Fault
from schedule.trace import REFILLS, Trace, line_of, operation_json, place, tables_json
from schedule.verifier import Findings, check

OLD = -2
"""What a slot holds of module m that was copied before the host wrote its block: OLD - m."""

GRAPHS = (Capture, EndCapture, Replay)
COUNTS = ("operations", "copies", "runs", "abandoned", "unentered", "passes", "misses")


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found.

    misfits:  the first operation that does not fit, by each property; the first of all first.
    findings: whether the schedule itself is safe.
    abandoned: how many runs have refills after them that never came.
    unentered: how many passes began without what comes on enter, if anything does.
    passes:   how often modules 0 .. N-1 ran in this order.     misses: how many reloads came.
    """

    trace: Trace
    findings: Findings
    misfits: tuple[Misfit, ...]
    operations: int
    copies: int
    runs: int
    abandoned: int
    unentered: int
    passes: int
    misses: int

    @property
    def fits(self) -> bool:
        """The trace is right, and so is its schedule."""
        return self.findings.safe and not self.misfits

    def line(self, misfit: Misfit) -> str:
        """An operation that does not fit, by its line."""
        line = f"line {line_of(misfit.at)}"
        if misfit.at == EARLIER:
            return f"{line}: a graph that was captured before"
        if misfit.at == len(self.trace.issued):
            return f"{line}: the end of the trace"
        issued = self.trace.issued[misfit.at]
        return f"{line}: [{issued.operation}] ({place(issued.boundary, self.trace.schedule)})"

    def __str__(self) -> str:
        schedule = self.trace.schedule
        counts = f"{self.operations} operations, {self.copies} copies, {self.runs} runs, "
        counts += f"{self.passes} passes in order, {self.misses} misses"
        counts += f", {self.abandoned} runs abandoned" if self.abandoned else ""
        counts += f", {self.unentered} passes without enter" if self.unentered else ""
        lines = [
            f"{schedule.policy}, {schedule.ring.modules} modules, {schedule.ring.slots} slots, "
            f"on {self.trace.device}: {counts}"
        ]
        lines += [f"unsafe schedule: {violation}" for violation in self.findings.violations]
        for misfit in self.misfits:
            lines.append(f"does not fit: {self.line(misfit)}")
            lines.append(f"  {misfit.property}: {misfit.why}")
            lines.append(f"  allowed there: {misfit.allowed}")
        if not self.misfits:
            lines.append("fits" if self.fits else "fits the program of an unsafe schedule")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON data."""
        schedule, issued = self.trace.schedule, self.trace.issued
        return {
            "fits": self.fits,
            "policy": schedule.policy,
            "modules": schedule.ring.modules,
            "slots": schedule.ring.slots,
            "device": self.trace.device,
            **{name: getattr(self, name) for name in COUNTS},
            "unsafe": [str(violation) for violation in self.findings.violations],
            "misfits": [
                {
                    "line": line_of(misfit.at),
                    "operation": operation_json(issued[misfit.at])
                    if EARLIER < misfit.at < len(issued)
                    else None,
                    "property": misfit.property,
                    "why": misfit.why,
                    "allowed": misfit.allowed,
                }
                for misfit in self.misfits
            ],
        }


def audit(trace: Trace) -> Audited:
    """Check a trace. ProgramError for one without operations: it shows nothing."""
    if not trace.issued:
        raise ProgramError("line 2: the trace has no operations, so it shows nothing")
    broken, abandoned, unentered = conform(trace)
    found = [broken, *_content(trace), *_ordering(trace, broken)]
    misfits: dict[str, Misfit] = {}
    for misfit in sorted((one for one in found if one), key=lambda one: one.at):
        misfits.setdefault(misfit.property, misfit)
    executed = [issued for _, issued in trace.executed()]
    runs = [one.boundary.step for one in executed if isinstance(one.operation, Run)]
    boundaries = [one.boundary for one in executed if isinstance(one.operation, Copy)]
    return Audited(
        trace=trace,
        findings=check(trace.schedule),
        misfits=tuple(misfits.values()),
        operations=len(trace.issued),
        copies=len(boundaries),
        runs=len(runs),
        abandoned=abandoned,
        unentered=unentered,
        passes=_passes(runs, trace.schedule.ring.modules),
        misses=sum(boundary.half == RELOAD for boundary in boundaries),
    )


def _passes(steps: list[int], modules: int) -> int:
    passes = in_order = 0
    for module in (step % modules for step in steps):
        in_order = in_order + 1 if module == in_order else int(module == 0)
        if in_order == modules:
            passes, in_order = passes + 1, 0
    return passes


# ---- what the slots hold


def _content(trace: Trace) -> Iterator[Misfit]:
    """What the machine objects to, in host order."""
    schedule, steps = trace.schedule, len(trace.schedule.slot_of)
    users = schedule.users()
    state = replace(machine.start(schedule.ring.slots), holds=Slots(trace.holds))
    in_order = _regular(trace)
    for number, (at, issued) in enumerate(trace.executed()):
        for event in _events(issued, trace):
            if isinstance(event, machine.ModuleArrives) and number > 0:
                in_order = in_order and event.step % steps == state.step % steps
            after = machine.transition(state, event, lambda s, n: schedule.next_user(users, s, n))
            if isinstance(after, machine.Objection):
                # Out of order the slots' next runs are others than the schedule's.
                if after.property != OWNERSHIP or in_order:
                    yield _objection(at, issued, after, state)
                after = machine.effect(state, event)
            state = after
        if isinstance(issued.operation, Write):
            state = _written(state, issued.operation.module)


def _written(state: machine.State, module: int) -> machine.State:
    """What was copied of a module before the host wrote its block is old."""
    holds = [OLD - held if held == module else held for held in state.holds]
    return replace(state, holds=Slots(holds))


def _regular(trace: Trace) -> bool:
    """Whether the trace starts where a period does, with what the schedule has there."""
    schedule = trace.schedule
    first = next((issued.boundary for _, issued in trace.executed()), Boundary(PRELOAD, 0))
    holds = [EMPTY] * schedule.ring.slots
    starts: list[tuple[int, ...]] = []
    for moment in schedule.walk(1):
        if moment.half != PRELOAD and not starts:
            starts.append(tuple(holds))
        if moment.half != RUN:
            holds[moment.slot] = moment.module
    starts.append(tuple(holds))
    at_start = first.step == 0 and first.half in (ENTER, BEFORE, RUN)
    return first.half == PRELOAD or (at_start and trace.holds in starts)


def _events(issued: Issued, trace: Trace) -> Iterator[machine.Event]:
    """An operation as what happens on the device. The step is that of the next run, as the
    boundary says it: modules may come out of order."""
    operation, (half, step) = issued
    reads_next = step + 1 if half in (AFTER, LEAVE) else step
    match operation:
        case Copy(_, slot, module):
            yield machine.ModuleArrives(reads_next)
            yield machine.CopyBegins(slot, module)
            yield machine.CopyLands(slot)
        case Run(_, slot, module):
            yield machine.ModuleArrives(reads_next)
            yield machine.ModuleBegins(slot, module)
            yield machine.ModuleEnds(slot)
        case Wait() if half == RESUME:
            yield from _read_again(step, _reads_on(issued, trace))
        case Write(_, slot) if slot is not None:
            yield from _read_again(step, operation)


def _read_again(step: int, reading: Any) -> Iterator[machine.Event]:
    """A slot is read once more during the step's run."""
    yield machine.ModuleArrives(step)
    yield machine.ModuleBegins(reading.slot, reading.module)
    yield machine.ModuleEnds(reading.slot)


def _reads_on(issued: Issued, trace: Trace) -> Run:
    """The rest of the run of a module that resumes."""
    step, schedule = issued.boundary.step, trace.schedule
    return Run(COMPUTE, schedule.slot_of[step], step % schedule.ring.modules)


def _objection(at: int, issued: Issued, found: machine.Objection, state: machine.State) -> Misfit:
    held = state.holds[found.slot]
    what = "nothing" if held == EMPTY else f"module {held}"
    if held <= OLD:
        what = f"module {OLD - held} as it was before the host wrote its block"
    if found.property == OWNERSHIP:
        why = f"slot {found.slot} holds {what}, which its next run reads"
        return Misfit(at, found.property, why, f"no copy into slot {found.slot} but of {what}")
    module = getattr(issued.operation, "module", None)
    why = f"slot {found.slot} holds {what}"
    return Misfit(at, found.property, why, f"a copy of module {module} into slot {found.slot}")


# ---- what is ordered


def _ordering(trace: Trace, broken: Misfit | None) -> Iterator[Misfit]:
    """What the clocks object to. Identity is the machine's: it knows what the slots held."""
    origin, listing = _with_reads(trace.issued, trace)
    graphs = [
        complete(graph.name, tuple(_with_reads(graph.body, trace)[1])) for graph in trace.graphs
    ]
    state = somewhere(trace.holds, trace.schedule.ring.modules, trace.streams)
    try:
        ordering = order(tuple(listing), trace.streams, state, graphs)
    except ProgramError:
        if broken is None or not any(isinstance(one, GRAPHS) for one in trace.operations):
            raise
        return  # a capture that makes no sense: the program has none like it, which is said
    for fault in ordering.faults:
        if fault.property != IDENTITY:
            at = origin[ordering.tasks[fault.later].at]
            yield Misfit(at, fault.property, *_unordered(ordering, fault, origin))


def _with_reads(issued: Sequence[Issued], trace: Trace) -> tuple[list[int], list[Issued]]:
    """The operations, and behind each wait to resume the rest of that run; and where each was."""
    origin, listing = [], []
    for at, one in enumerate(issued):
        added = [one]
        if one.boundary.half == RESUME and isinstance(one.operation, Wait):
            added.append(Issued(_reads_on(one, trace), one.boundary))
        listing += added
        origin += [at] * len(added)
    return origin, listing


def _unordered(ordering: Ordering, fault: Fault, origin: list[int]) -> tuple[str, str]:
    """What is not ordered, and the fence that would order it."""
    if fault.property == MEANING:
        why = "what it waits for is not the latest copy into the slot, or not that module's"
        return why, "a wait for the latest copy into the slot, recorded after it"
    if fault.earlier is None:
        return f"it {WHAT[fault.property]} what came before the trace", "a wait for that before it"
    earlier = ordering.tasks[fault.earlier]
    there = f"[{earlier.operation}] (line {line_of(origin[earlier.at])})"
    return f"it {WHAT[fault.property]} {there}", missing(ordering, fault)


# ---- which schedule it is of


def compare(
    schedule: Schedule, modules: int | None, slots: int | None, policy: Policy | None
) -> None:
    """ProgramError, with what differs first, unless the trace's schedule is the one asked for."""
    ring = schedule.ring
    for name, asked, there in ("modules", modules, ring.modules), ("slots", slots, ring.slots):
        if asked is not None and asked != there:
            raise ProgramError(f"line 1: {name}: {there}, but {asked} is asked for")
    if policy is None:
        return
    own, other = tables_json(schedule), tables_json(policy(Ring(ring.modules, ring.slots)))
    for name in ("slot_of", *REFILLS):
        if len(own[name]) != len(other[name]):
            raise ProgramError(
                f"line 1: {name}: {len(own[name])} entries, but policy {policy.name} has "
                f"{len(other[name])}"
            )
        for at, (there, asked) in enumerate(zip(own[name], other[name], strict=True)):
            if there != asked:
                raise ProgramError(
                    f"line 1: {name}[{at}]: {there}, but policy {policy.name} has {asked}"
                )
