"""A program under one delay pattern: when each task begins and ends, and what each run reads.

A task begins as soon as its stream and the host let it, and takes as long as the pattern says; a
wait goes on to the end of the record that it takes. The inequalities are those of ``timing``, of
which this is one solution; what a slot holds is kept byte for byte: who is copied into a slot
while it is read, or while another copy goes on, is found there as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedule.guard import Copied
from schedule.operations import (
    HOST,
    ONE_COPY_STREAM,
    Copy,
    Event,
    Listing,
    Record,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.tasks import Tasks, write_out


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run, or a write of the host that keeps a slot, read.

    task: its number.   slot: from which.   needs: its module, and the version of the module's
    block at that call.   found: all that was in the slot while it was read, in order of module.
    """

    task: int
    slot: int
    needs: Copied
    found: tuple[Copied, ...]

    @property
    def right(self) -> bool:
        return self.found == (self.needs,)


@dataclass(frozen=True, slots=True)
class Executed:
    """begins, ends: by task, in units of the delay pattern.   readings: by end of the read."""

    tasks: Tasks
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    readings: tuple[Reading, ...]

    @property
    def right(self) -> bool:
        """Whether every run read its own module's weights, as they were, and no others."""
        return all(reading.right for reading in self.readings)


def execute(
    listing: Listing, delays: Sequence[int], streams: Streams = ONE_COPY_STREAM
) -> Executed:
    """Execute the listing under a delay pattern.

    delays: how long each task takes, in any unit, at least 1; one for each task of
    ``schedule.tasks.write_out``, where every replay of a graph is written out.
    ValueError for other delays; ProgramError for a listing that makes no sense.
    """
    written = write_out(listing, streams)
    if len(delays) != len(written.tasks):
        raise ValueError(
            f"{len(delays)} delays for {len(written.tasks)} tasks; give one for each task of "
            f"write_out(listing, streams)"
        )
    for number, delay in enumerate(delays):
        if isinstance(delay, bool) or not isinstance(delay, int) or delay < 1:
            raise ValueError(f"delay {number} is {delay!r}; a task takes an integer, at least 1")
    begins, ends = _times(written, delays)
    readings = tuple(_Slots(written).readings(begins, ends))
    return Executed(written, tuple(begins), tuple(ends), readings)


def _times(written: Tasks, delays: Sequence[int]) -> tuple[list[int], list[int]]:
    """When each task begins and ends."""
    begins: list[int] = []
    ends: list[int] = []
    over: dict[str, int] = {}  # by stream, when its latest task is over
    recorded: dict[Event, int] = {}
    for task, delay in zip(written.tasks, delays, strict=True):
        operation = task.operation
        # Behind its stream's, and behind what the host did and waited for before it issued it.
        begin = max(over.get(operation.stream, 0), over.get(HOST, 0))
        end = begin + delay
        if isinstance(operation, Record):
            recorded[operation.event] = end
        elif isinstance(operation, Wait):
            end = max(end, recorded.get(operation.event, 0))
        over[operation.stream] = end
        begins.append(begin)
        ends.append(end)
    return begins, ends


class _Slots:
    """What slots and host blocks hold, from moment to moment.

    holds:   by slot, all that may be there.      block: by module, the versions in its host block.
    copying, reading: by task under way, what it brings; all that it found.
    mixed:   copies that met another copy into their slot: what is left is a mixture.
    """

    def __init__(self, written: Tasks) -> None:
        self.operations = [task.operation for task in written.tasks]
        self.holds: dict[int, set[Copied]] = {}
        self.block: dict[int, set[Copied]] = {}
        self.copying: dict[int, set[Copied]] = {}
        self.reading: dict[int, set[Copied]] = {}
        self.mixed: set[int] = set()
        self.needs = list(self._needs())

    def _needs(self) -> Iterator[Copied]:
        """By task, its module and the version of the block when it is issued."""
        writes: Counter[int] = Counter()
        for operation in self.operations:
            module = getattr(operation, "module", None)
            yield Copied() if module is None else Copied(module, writes[module])
            if isinstance(operation, Write):
                writes[operation.module] += 1

    def readings(self, begins: Sequence[int], ends: Sequence[int]) -> Iterator[Reading]:
        """At one time, what ends does so before what begins."""
        numbers = range(len(self.operations))
        moments = [(begins[number], True, number) for number in numbers]
        moments += [(ends[number], False, number) for number in numbers]
        for _, starts, number in sorted(moments):
            operation = self.operations[number]
            if isinstance(operation, Copy):
                (self.copy_begins if starts else self.copy_lands)(number, operation)
            elif isinstance(operation, Write) and starts:
                self.write_begins(number, operation)
            elif isinstance(operation, Write):
                self.block[operation.module] = {self.after(number)}
            slot = operation.slot if isinstance(operation, Run | Write) else None
            if slot is not None and starts:
                self.reading[number] = set(self.holds.get(slot, ()))
            elif slot is not None:
                found = sorted(self.reading.pop(number), key=lambda one: (one.module, one.version))
                yield Reading(number, slot, self.needs[number], tuple(found))

    def after(self, number: int) -> Copied:
        """What the host writes into the block: its next version."""
        return Copied(self.needs[number].module, self.needs[number].version + 1)

    def copy_begins(self, number: int, copy: Copy) -> None:
        # A pageable block is read at the call, any other while the copy goes on.
        own = {Copied(copy.module, 0)}
        brings = {self.needs[number]} if copy.pageable else set(self.block.get(copy.module, own))
        others = {other for other in self.copying if self.slot(other) == copy.slot}
        self.mixed |= {number, *others} if others else set()
        self.copying[number] = brings
        self.arrive(copy.slot, brings)

    def copy_lands(self, number: int, copy: Copy) -> None:
        brings = self.copying.pop(number)
        if number not in self.mixed:
            self.holds[copy.slot] = brings

    def write_begins(self, number: int, write: Write) -> None:
        new = self.after(number)
        self.block[write.module] = {self.needs[number], new}
        for other, brings in self.copying.items():
            copy = self.operations[other]
            if isinstance(copy, Copy) and copy.module == write.module and not copy.pageable:
                brings.add(new)
                self.arrive(copy.slot, {new})

    def arrive(self, slot: int, brings: set[Copied]) -> None:
        """These bytes begin to be in the slot, under whoever is reading it."""
        self.holds.setdefault(slot, set()).update(brings)
        for other, found in self.reading.items():
            if self.slot(other) == slot:
                found |= brings

    def slot(self, number: int) -> int | None:
        operation = self.operations[number]
        return operation.slot if isinstance(operation, Copy | Run | Write) else None
