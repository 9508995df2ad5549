"""A schedule lowered to operations on streams. The runtime executes these operations one for one
and adds none: every fence that it has is here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from schedule.operations import (
    COMPUTE,
    HOST,
    ONE_COPY_STREAM,
    RAN,
    Copy,
    Event,
    Issued,
    Listing,
    Operations,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary, Refill, Schedule

RELOAD, RESUME, WRITE = "reload", "resume", "write"
"""Halves of what the runtime adds: the refill of a module that is missed; the wait of one that
resumes after others ran inside its run; the host's write of a module's block."""


@dataclass(frozen=True, slots=True)
class Program:
    """Operations by boundary, in the order in which the host issues them.

    preload: before the first pass.     enter, leave: by pass of the period.
    before:  by step, the refills issued before the step's module.
    begin:   by step, the waits that the module needs, then its Run.
    after:   by step, the refills issued after it.
    streams: the copy streams that it uses.
    """

    preload: Operations
    enter: tuple[Operations, ...]
    before: tuple[Operations, ...]
    begin: tuple[Operations, ...]
    after: tuple[Operations, ...]
    leave: tuple[Operations, ...]
    streams: Streams = ONE_COPY_STREAM

    def period(self) -> Operations:
        """The operations of one period, in host order."""
        return tuple(issued.operation for issued in self._period(0))

    def periods(self, number: int) -> Listing:
        """That many periods, each operation with its boundary."""
        return tuple(issued for period in range(number) for issued in self._period(period))

    def listing(self, periods: int) -> Listing:
        """The preload and that many periods, each operation with its boundary."""
        preload = [Issued(operation, Boundary(PRELOAD, 0)) for operation in self.preload]
        return (*preload, *self.periods(periods))

    def parts(self) -> dict[str, tuple[Listing, ...]]:
        """By half, the operations of each of its boundaries: all that a run may issue, what the
        runtime adds at a miss or for a write included. Steps are positions in the period."""
        modules = len(self.begin) // len(self.enter)
        own = [Refill(run.slot, run.module) for run in map(_run_of, self.begin)]
        by_step = {
            BEFORE: self.before,
            RUN: self.begin,
            AFTER: self.after,
            RELOAD: [lower_refill(refill, self.streams) for refill in own],
            RESUME: [operations[:-1] for operations in self.begin],
            WRITE: [lower_write(refill, self.streams) for refill in own],
            PRELOAD: [self.preload],
        }
        parts = {
            half: tuple(_at(half, step, found) for step, found in enumerate(boundaries))
            for half, boundaries in by_step.items()
        }
        for half, boundaries, first in (ENTER, self.enter, 0), (LEAVE, self.leave, modules - 1):
            parts[half] = tuple(
                _at(half, number * modules + first, found)
                for number, found in enumerate(boundaries)
            )
        return parts

    def _period(self, period: int) -> Iterator[Issued]:
        steps = len(self.begin)
        modules = steps // len(self.enter)
        for position in range(steps):
            number, module = divmod(position, modules)
            halves = [
                (BEFORE, self.before[position]),
                (RUN, self.begin[position]),
                (AFTER, self.after[position]),
            ]
            if module == 0:
                halves.insert(0, (ENTER, self.enter[number]))
            if module == modules - 1:
                halves.append((LEAVE, self.leave[number]))
            for half, operations in halves:
                boundary = Boundary(half, period * steps + position)
                for operation in operations:
                    yield Issued(operation, boundary)

    def __str__(self) -> str:
        return "\n".join(map(str, self.preload + self.period()))


def _at(half: str, step: int, operations: Operations) -> Listing:
    return tuple(Issued(operation, Boundary(half, step)) for operation in operations)


def _run_of(begin: Operations) -> Run:
    run = begin[-1]
    assert isinstance(run, Run), "a module's waits, then its run"
    return run


def lower(schedule: Schedule, streams: Streams = ONE_COPY_STREAM) -> Program:
    """The schedule as a program."""
    modules = schedule.ring.modules

    def refills(table: Iterable[Iterable[Refill]]) -> tuple[Operations, ...]:
        return tuple(lower_refills(found, streams) for found in table)

    return Program(
        preload=lower_refills(schedule.preload, streams),
        enter=refills(schedule.enter),
        before=refills(schedule.before),
        begin=tuple(
            lower_run(slot, step % modules, streams) for step, slot in enumerate(schedule.slot_of)
        ),
        after=refills(schedule.after),
        leave=refills(schedule.leave),
        streams=streams,
    )


def lower_run(slot: int, module: int, streams: Streams = ONE_COPY_STREAM) -> Operations:
    """A module's run, with the wait that it needs."""
    run = Run(COMPUTE, slot, module)
    if streams.shared:
        return (run,)
    # RAW: the module reads only after its slot's last copy landed, which is its own.
    return (Wait(COMPUTE, landed(slot), module), run)


def lower_refills(refills: Iterable[Refill], streams: Streams = ONE_COPY_STREAM) -> Operations:
    """Refills as operations; also for a refill outside the schedule, when a module is missed."""
    return tuple(operation for refill in refills for operation in lower_refill(refill, streams))


def lower_refill(refill: Refill, streams: Streams = ONE_COPY_STREAM) -> Operations:
    """One refill: its fences and its copy."""
    stream = streams.of(refill.module)
    copy = Copy(stream, refill.slot, refill.module)
    if streams.shared:
        return (copy,)
    # WAW: copies on one stream keep their order; on several, a copy waits for the last one
    # into its slot.
    ordered = (Wait(stream, landed(refill.slot)),) if len(streams.copies) > 1 else ()
    return (
        # WAR: the copy starts only after every run that was issued so far; one of them may
        # read the slot. At the preload it is memory that the allocator may have handed out
        # while earlier work still uses it.
        Record(COMPUTE, RAN),
        Wait(stream, RAN),
        *ordered,
        copy,
        Record(stream, landed(refill.slot)),
    )


def lower_write(held: Refill, streams: Streams = ONE_COPY_STREAM) -> Operations:
    """The host keeps what a module wrote into its weights in the slot: it writes them into the
    module's host block. The host runs ahead, so it waits itself."""
    slot, module = held
    stream = streams.of(module)
    drained = Event("drained", streams.copies.index(stream))
    # RAW: the host reads the slot, so its last copy must have landed, and be the module's; and
    # the run that wrote into it must have ended.
    landing = () if streams.shared else (Wait(HOST, landed(slot), module),)
    running = () if stream == COMPUTE else (Record(COMPUTE, RAN), Wait(HOST, RAN))
    return (
        # Block: a copy that was issued may still be reading the block, or not even have begun:
        # that copy stream must be drained.
        Record(stream, drained),
        Wait(HOST, drained),
        *landing,
        *running,
        Write(module, slot),
    )


def lower_join(
    streams: Streams = ONE_COPY_STREAM, among: Collection[str] | None = None
) -> Operations:
    """COMPUTE waits for all that the copy streams (among these) were given so far."""
    return tuple(
        one
        for stream in streams.names[1:]
        if among is None or stream in among
        for one in _join(streams, stream)
    )


def _join(streams: Streams, stream: str) -> Operations:
    drained = Event("drained", streams.copies.index(stream))
    return Record(stream, drained), Wait(COMPUTE, drained)
