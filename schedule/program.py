"""A schedule lowered to operations on streams, with one copy stream.

The runtime executes these operations one for one and adds none: every fence it has is here.

- Two streams, each first in, first out: COMPUTE, which runs the modules, and COPY.
- ``Record`` marks a point of a stream in an event; ``Wait`` makes a stream wait for the event's
  most recent record at the time of the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schedule.table import Refill, Schedule

COMPUTE, COPY = "compute", "copy"


@dataclass(frozen=True, slots=True)
class Event:
    """``ran``: what the compute stream did so far (slot None). ``landed``: a slot's last copy."""

    name: str
    slot: int | None = None

    def __str__(self) -> str:
        return self.name if self.slot is None else f"{self.name}[{self.slot}]"


RAN = Event("ran")


def landed(slot: int) -> Event:
    """The event that guards a slot's bytes."""
    return Event("landed", slot)


@dataclass(frozen=True, slots=True)
class Copy:
    """The module's host block is copied into the slot, on the stream."""

    stream: str
    slot: int
    module: int

    def __str__(self) -> str:
        return f"{self.stream}: copy module {self.module} into slot {self.slot}"


@dataclass(frozen=True, slots=True)
class Run:
    """The module runs, reading the slot, on the stream."""

    stream: str
    slot: int
    module: int

    def __str__(self) -> str:
        return f"{self.stream}: run module {self.module} from slot {self.slot}"


@dataclass(frozen=True, slots=True)
class Record:
    """The event now stands for everything that the stream was given so far."""

    stream: str
    event: Event

    def __str__(self) -> str:
        return f"{self.stream}: record {self.event}"


@dataclass(frozen=True, slots=True)
class Wait:
    """The stream goes on when what the event stood for at this call is done."""

    stream: str
    event: Event

    def __str__(self) -> str:
        return f"{self.stream}: wait for {self.event}"


Operation = Copy | Run | Record | Wait
Operations = tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Operations by boundary, in the order in which the host issues them.

    preload: before the first pass.     enter, leave: by pass of the period.
    before:  by step, the refills issued before the step's module.
    begin:   by step, the waits that the module needs, then its Run.
    after:   by step, the refills issued after it.
    """

    preload: Operations
    enter: tuple[Operations, ...]
    before: tuple[Operations, ...]
    begin: tuple[Operations, ...]
    after: tuple[Operations, ...]
    leave: tuple[Operations, ...]

    def period(self) -> Operations:
        """The operations of one period, in host order."""
        return tuple(self._period())

    def _period(self) -> Iterable[Operation]:
        modules = len(self.begin) // len(self.enter)
        for step in range(len(self.begin)):
            number, module = divmod(step, modules)
            if module == 0:
                yield from self.enter[number]
            yield from self.before[step] + self.begin[step] + self.after[step]
            if module == modules - 1:
                yield from self.leave[number]

    def __str__(self) -> str:
        return "\n".join(map(str, self.preload + self.period()))


def lower(schedule: Schedule) -> Program:
    """The schedule as a program."""
    modules = schedule.ring.modules
    return Program(
        preload=lower_refills(schedule.preload),
        enter=tuple(map(lower_refills, schedule.enter)),
        before=tuple(map(lower_refills, schedule.before)),
        begin=tuple(
            # RAW: the module reads only after its slot's last copy landed.
            (Wait(COMPUTE, landed(slot)), Run(COMPUTE, slot, step % modules))
            for step, slot in enumerate(schedule.slot_of)
        ),
        after=tuple(map(lower_refills, schedule.after)),
        leave=tuple(map(lower_refills, schedule.leave)),
    )


def lower_refills(refills: Iterable[Refill]) -> Operations:
    """Refills as operations; also for a refill outside the schedule, when a module is missed."""
    return tuple(operation for refill in refills for operation in _refill(refill))


def _refill(refill: Refill) -> Operations:
    return (
        # WAR: the copy starts only after every run that was issued so far; one of them may
        # read the slot. At the preload it is memory that the allocator may have handed out
        # while earlier work still uses it.
        Record(COMPUTE, RAN),
        Wait(COPY, RAN),
        # WAW: copies into one slot are on one stream, so they keep their order.
        Copy(COPY, refill.slot, refill.module),
        Record(COPY, landed(refill.slot)),
    )
