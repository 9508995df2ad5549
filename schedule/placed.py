"""A program's copies and runs on an axis of time, under a device with made-up costs.

The streams are queues: an operation starts when its stream is done with the one before, and with
the records that it waits for. So the picture shows one timing among many; its order, which is
what the fences allow, is the program's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

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
)
from schedule.order import advance, start, starts, uncovered
from schedule.ring import EMPTY
from schedule.table import Boundary
from schedule.tasks import Task, write_out

RUN_TIME, COPY_TIME = 2, 1
"""Units of time. With a copy shorter than a run, one that landed stands in its slot for a while
before the next thing happens to it, and can be seen there; and copies hide behind runs."""

EMPTY_SLOT, ARRIVING, WHOLE, READ = "empty", "arriving", "whole", "read"
"""Phases of a slot's content."""


class Box(NamedTuple):
    """A copy or a run, from ``start`` to ``end`` on its stream."""

    operation: Copy | Run
    boundary: Boundary
    start: int
    end: int


class Fence(NamedTuple):
    """Box ``later`` waits for box ``earlier``, of another stream, and nothing else makes it."""

    earlier: int
    later: int


class Content(NamedTuple):
    """What a slot holds from ``start`` to ``end``; ``module`` is EMPTY while it holds nothing.
    ``box``: the copy that brings it, or the run that reads it, in these phases."""

    slot: int
    start: int
    end: int
    phase: str
    module: int
    box: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """boxes: the copies and runs, in the order in which the host issues them.
    fences: those that order something.    end: when the last box ends."""

    boxes: tuple[Box, ...]
    fences: tuple[Fence, ...]
    end: int


def place(listing: Listing, streams: Streams = ONE_COPY_STREAM) -> Placed:
    """The listing's copies and runs, placed. ProgramError if it makes no sense."""
    tasks = write_out(listing, streams).tasks
    boxes = tuple(_boxes(listing, tasks))
    return Placed(boxes, tuple(_fences(tasks)), max((box.end for box in boxes), default=0))


def _boxes(listing: Listing, tasks: Iterable[Task]) -> Iterator[Box]:
    ready: dict[str, int] = {}
    recorded: dict[Event, int] = {}
    for operation, at, replay in tasks:
        stream = operation.stream
        # The host issues nothing before what it waited for is done.
        begin = max(ready.get(stream, 0), ready.get(HOST, 0))
        match operation:
            case Copy() | Run():
                ready[stream] = begin + (COPY_TIME if isinstance(operation, Copy) else RUN_TIME)
                boundary = listing[at if replay is None else replay].boundary
                yield Box(operation, boundary, begin, ready[stream])
            case Record(_, event):
                recorded[event] = begin
            case Wait(_, event):
                ready[stream] = max(begin, recorded.get(event, 0))


def _fences(tasks: Iterable[Task]) -> Iterator[Fence]:
    """What each box waits for, by clocks: a wait that adds nothing to its stream's is left out."""
    state = start()
    number = 0
    ticks: dict[tuple[str | None, int], int] = {}
    recorder: dict[Event, str] = {}
    waiting: dict[str, dict[int, None]] = {}
    for operation, _, _ in tasks:
        stream = operation.stream
        before = starts(state, stream)
        state, _ = advance(state, operation)
        match operation:
            case Copy() | Run():
                yield from (Fence(one, number) for one in waiting.pop(stream, ()))
                ticks[stream, state.clock[stream][stream]] = number
                number += 1
            case Record(_, event):
                recorder[event] = stream
            case Wait(_, event):
                added = uncovered("", before, state.record[event])
                # What the recording stream had waited for comes with its own operations.
                own = [one for one in added if one.stream == recorder[event]] or added
                boxes = (ticks.get((one.stream, one.tick)) for one in own)
                waiting.setdefault(stream, {}).update({b: None for b in boxes if b is not None})


def contents(placed: Placed, slots: int) -> tuple[Content, ...]:
    """What each slot holds from the start to the end, slot by slot, without gaps."""
    numbers: list[list[int]] = [[] for _ in range(slots)]
    for number, box in enumerate(placed.boxes):
        numbers[box.operation.slot].append(number)
    return tuple(one for slot in range(slots) for one in _content(slot, placed, numbers[slot]))


def _content(slot: int, placed: Placed, numbers: Sequence[int]) -> Iterator[Content]:
    boxes = placed.boxes
    cuts = {0, placed.end}
    for number in numbers:
        cuts |= {boxes[number].start, boxes[number].end}
    times = sorted(cuts)
    coming = sorted(numbers, key=lambda number: boxes[number].start, reverse=True)
    arrived = read = None
    for begin, end in pairwise(times):
        while coming and boxes[coming[-1]].start <= begin:
            number = coming.pop()
            if isinstance(boxes[number].operation, Copy):
                arrived = number
            else:
                read = number
        if arrived is not None and begin < boxes[arrived].end:
            phase, box = ARRIVING, arrived
        elif read is not None and begin < boxes[read].end:
            phase, box = READ, read
        else:
            phase, box = (EMPTY_SLOT if arrived is None else WHOLE), None
        module = EMPTY if arrived is None else boxes[arrived].operation.module
        yield Content(slot, begin, end, phase, module, box)
