"""A third engine for one concrete program: start and end of every task as real numbers.

A stream's tasks follow each other, a wait ends after the record that it takes, and what the host
issues after it waited starts after that. A hazard exists if and only if two conflicting tasks can
overlap under these inequalities. It shares with the clocks and the interleavings the tasks, and
what is wrong with their form, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import z3

from schedule.operations import HOST, Copy, Event, Record, Run, Wait, Write
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, RAW, WAR, WAW
from schedule.tasks import Fault, Idle, Join, Tasks


def overlaps(written: Tasks) -> frozenset[Fault]:
    """Every fault that some timing of these tasks shows, and those of the form."""
    return frozenset((*written.faults, *_Timing(written).faults()))


@cache
def begin(number: int) -> Any:
    """When the task begins, in seconds of no known origin; the same unknown in every program."""
    return z3.Real(f"begin {number}")


@cache
def end(number: int) -> Any:
    """When the task ends."""
    return z3.Real(f"end {number}")


@cache
def runs(number: int) -> Any:
    return begin(number) < end(number)


@cache
def follows(number: int, earlier: int) -> Any:
    return begin(number) >= end(earlier)


@cache
def waits(number: int, record: int) -> Any:
    return end(number) >= end(record)


@cache
def together(number: int, other: int) -> Any:
    return z3.And(begin(other) < end(number), begin(number) < end(other))


@cache
def outlasts(other: int, number: int) -> Any:
    return end(other) > end(number)


@cache
def any_together(number: int, others: tuple[int, ...]) -> Any:
    return z3.Or([together(number, other) for other in others])


@cache
def any_outlasts(number: int, others: tuple[int, ...]) -> Any:
    return z3.Or([outlasts(other, number) for other in others])


class _Timing:
    """The inequalities of one program."""

    def __init__(self, written: Tasks) -> None:
        self.operations = [task.operation for task in written.tasks]
        self.record: dict[int, int] = {}  # by wait, the latest record at the time of the call
        self.solver = z3.SolverFor("QF_RDL")  # differences of reals
        self.solver.add(*self.inequalities())

    def inequalities(self) -> Iterator[Any]:
        last: dict[str, int] = {}
        recorded: dict[Event, int] = {}
        for number, operation in enumerate(self.operations):
            yield runs(number)
            for stream in {operation.stream, HOST} & last.keys():
                # Its own stream is first in, first out; and the host issued it after what the
                # host itself did and waited for.
                yield follows(number, last[stream])
            if isinstance(operation, Record):
                recorded[operation.event] = number
            elif isinstance(operation, Wait) and operation.event in recorded:
                self.record[number] = recorded[operation.event]
                yield waits(number, recorded[operation.event])
            last[operation.stream] = number

    def possible(self, *conditions: Any) -> bool:
        self.solver.push()
        self.solver.add(*conditions)
        answer = self.solver.check()
        self.solver.pop()
        assert answer != z3.unknown, "linear inequalities over the reals are decidable"
        return bool(answer == z3.sat)

    def overlap(self, number: int, others: list[int]) -> bool:
        """Whether this task and one of the others can be under way at one time."""
        return bool(others) and self.possible(any_together(number, tuple(others)))

    def late(self, number: int, others: list[int]) -> bool:
        """Whether one of the other tasks can end after this one is over."""
        return bool(others) and self.possible(any_outlasts(number, tuple(others)))

    def faults(self) -> Iterator[Fault]:
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Copy | Run):
                yield from self.slot_faults(number, operation)
            elif isinstance(operation, Write):
                copies = self.before(number, Copy)
                readers = [n for n, one in copies if one.module == operation.module]
                pinned = [n for n in readers if not self.pageable(n)]
                yield from self.overlapping(BLOCK, number, pinned)
                if operation.slot is not None:
                    yield from self.reads(number, operation.slot, operation.module)
            elif isinstance(operation, Wait) and operation.module is not None:
                if self.means_another(number, operation):
                    yield Fault(MEANING, number)
            elif isinstance(operation, Join):
                work = [n for n, _ in self.before(number, Copy | Run | Idle)]
                for others in self.by_stream(work):
                    joined = self.operations[others[-1]].stream in operation.streams
                    if joined and self.late(number, others):
                        yield Fault(JOINED, number, others[-1])

    def before(self, number: int, kind: Any) -> Iterator[tuple[int, Any]]:
        """The tasks of this kind that were issued before."""
        for other, theirs in enumerate(self.operations[:number]):
            if isinstance(theirs, kind):
                yield other, theirs

    def by_stream(self, numbers: list[int]) -> list[list[int]]:
        """The tasks, stream by stream; a fault names the latest one of its stream."""
        found: dict[str, list[int]] = {}
        for number in numbers:
            found.setdefault(self.operations[number].stream, []).append(number)
        return list(found.values())

    def pageable(self, number: int) -> bool:
        operation = self.operations[number]
        return isinstance(operation, Copy) and operation.pageable

    def overlapping(self, name: str, number: int, others: list[int]) -> Iterator[Fault]:
        for same in self.by_stream(others):
            if self.overlap(number, same):
                yield Fault(name, number, same[-1])

    def slot_faults(self, number: int, operation: Copy | Run) -> Iterator[Fault]:
        if isinstance(operation, Run):
            yield from self.reads(number, operation.slot, operation.module)
        else:
            numbers = [n for n, one in self.before(number, Copy) if one.slot == operation.slot]
            runs = [n for n, one in self.before(number, Run) if one.slot == operation.slot]
            yield from self.overlapping(WAR, number, runs)
            yield from self.overlapping(WAW, number, numbers)

    def reads(self, number: int, slot: int, module: int) -> Iterator[Fault]:
        """A run, or a write of the host, reads the module's weights in the slot: what the last
        copy brought, and what the runs since wrote into it. It is old if the block was written
        after that copy."""
        copies = [(n, one) for n, one in self.before(number, Copy) if one.slot == slot]
        runs = [n for n, one in self.before(number, Run) if one.slot == slot]
        # A stream that both copied and ran is one that must be waited for, once.
        yield from self.overlapping(RAW, number, sorted([*(n for n, _ in copies), *runs]))
        writes = [n for n, one in self.before(number, Write) if one.module == module]
        if not copies or copies[-1][1].module != module or copies[-1][0] < max(writes, default=-1):
            yield Fault(IDENTITY, number)

    def means_another(self, number: int, wait: Wait) -> bool:
        """Whether the slot's copies are not all done when the wait is over, or another module's
        is the latest, or was so at the record."""
        slot = wait.event.number
        copies = [(other, one) for other, one in self.before(number, Copy) if one.slot == slot]
        recorded = [(n, one) for n, one in copies if n < self.record.get(number, 0)]
        for found in (copies, recorded):
            if not found or found[-1][1].module != wait.module:
                return True
        return self.late(number, [other for other, _ in copies])
