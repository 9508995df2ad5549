"""A part of a schedule's program as a graph: captured once, and replayed.

While a graph is captured nothing is executed: what is issued is kept, and a replay executes it. No
operation in it may reach outside, so it records and waits for events of its own; what came before
is joined, before the capture and before each replay. What its runs take for granted when a replay
begins, and what it leaves in the slots, follow from its operations: so it may be a pass, or a
piece of one, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from schedule.errors import ProgramError, ScheduleError
from schedule.operations import (
    COMPUTE,
    HOST,
    ONE_COPY_STREAM,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Event,
    Issued,
    Listing,
    Operation,
    Operations,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    landed,
)
from schedule.program import lower, lower_join
from schedule.table import PRELOAD, RUN, Boundary, Schedule

CAPTURE, REPLAY = "capture", "replay"
"""Halves of a captured program, beside those of a schedule."""

GRAPH = "pass"
"""The name of a whole pass's graph."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph, while it is captured or complete.

    name: of no other graph of the program.     body: its operations, each with its boundary.
    recorded: the events that it records.
    """

    name: str
    body: Listing = ()
    recorded: frozenset[Event] = frozenset()

    def take(self, issued: Issued) -> tuple[Graph, Issued | None]:
        """The graph with one operation more, and the operation as it is in it: with the graph's
        own event; None for a wait for what the graph does not record, which was joined before it.
        ProgramError for the host's own, which no graph can hold."""
        operation = issued.operation
        if operation.stream == HOST:
            raise ProgramError(
                f"graph {self.name} can't hold [{operation}]: the host's is done now"
            )
        if isinstance(operation, Wait) and operation.event not in self.recorded:
            return self, None
        recorded = self.recorded
        if isinstance(operation, Record):
            recorded = recorded | {operation.event}
        own = Issued(self._own(operation), issued.boundary)
        return Graph(self.name, (*self.body, own), recorded), own

    def take_all(self, listing: Iterable[Issued]) -> tuple[Graph, Listing]:
        """The same for several operations: those that are in it, as they are in it."""
        graph, found = self, []
        for issued in listing:
            graph, own = graph.take(issued)
            if own is not None:
                found.append(own)
        return graph, tuple(found)

    def lower_begin(self, streams: Streams = ONE_COPY_STREAM) -> Operations:
        """What comes before its first operation."""
        # No wait in the graph reaches outside, so what came before is joined here.
        return (*lower_join(streams), Capture(COMPUTE, self.name))

    def lower_end(self, streams: Streams = ONE_COPY_STREAM) -> Operations:
        """What comes after its last operation."""
        used = {one.operation.stream for one in self.body}
        # Forked copies are joined before the end: a graph with loose ends is no graph.
        ends = tuple(map(self._own, lower_join(streams, used)))
        return (*ends, EndCapture(COMPUTE, self.name))

    def lower_replay(self, slots: Iterable[int], streams: Streams = ONE_COPY_STREAM) -> Operations:
        """One replay. slots: those that its program uses."""
        replay = Replay(COMPUTE, self.name)
        if streams.shared:
            return (replay,)
        return (
            # As before the capture.
            *lower_join(streams),
            replay,
            # The stream now covers the graph's copies: what waits for them outside needs records
            # there, and the copy streams go on behind them.
            *(Record(COMPUTE, landed(slot)) for slot in slots),
            Record(COMPUTE, RAN),
            *(Wait(stream, RAN) for stream in streams.names[1:]),
        )

    @property
    def needs(self) -> dict[int, int]:
        """By slot, the module that must be there when a replay begins: the one that the graph
        runs from it before it copies into it."""
        first: dict[int, Operation] = {}
        for operation, _ in self.body:
            if isinstance(operation, Copy | Run):
                first.setdefault(operation.slot, operation)
        return {slot: one.module for slot, one in first.items() if isinstance(one, Run)}

    @property
    def leaves(self) -> dict[int, int]:
        """By slot that it copies into, the module that is there when a replay has ended."""
        copies = (one.operation for one in self.body if isinstance(one.operation, Copy))
        return {copy.slot: copy.module for copy in copies}

    def _own(self, operation: Operation) -> Operation:
        if isinstance(operation, Record | Wait):
            return replace(operation, event=replace(operation.event, graph=self.name))
        return operation


def complete(name: str, body: Listing) -> Graph:
    """The graph that has this body."""
    records = (one.operation for one in body if isinstance(one.operation, Record))
    return Graph(name, body, frozenset(replace(one.event, graph=None) for one in records))


@dataclass(frozen=True, slots=True)
class CapturedProgram:
    """A pass captured once and replayed.

    preload: before all.        capture: joins, then the pass between Capture and EndCapture.
    replay:  joins, Replay, then records that let operations outside of the graph go on.
    """

    preload: Operations
    capture: Operations
    replay: Operations
    streams: Streams = ONE_COPY_STREAM

    def listing(self, replays: int) -> Listing:
        """Preload, capture and that many replays, each operation with its boundary."""
        parts = [(PRELOAD, 0, self.preload), (CAPTURE, 0, self.capture)]
        parts += [(REPLAY, number, self.replay) for number in range(replays)]
        return tuple(
            Issued(operation, Boundary(half, number))
            for half, number, operations in parts
            for operation in operations
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.preload + self.capture + self.replay))


def lower_captured(schedule: Schedule, streams: Streams = ONE_COPY_STREAM) -> CapturedProgram:
    """The schedule's pass as a graph. ScheduleError if it repeats only after several passes:
    one graph then can't stand for each of them."""
    require_closed(schedule)
    program = lower(schedule, streams)
    graph, body = Graph(GRAPH).take_all(program.periods(1))
    operations = tuple(one.operation for one in body)
    return CapturedProgram(
        preload=program.preload,
        capture=(*graph.lower_begin(streams), *operations, *graph.lower_end(streams)),
        replay=graph.lower_replay(sorted(set(schedule.slot_of)), streams),
        streams=streams,
    )


def held_at(schedule: Schedule, step: int) -> dict[int, int]:
    """By slot, the module that is there when pass after pass comes to this step; of a module that
    runs from another slot, nothing."""
    steps, holds = len(schedule.slot_of), dict[int, int]()
    for moment in schedule.walk(2):
        if moment.step >= steps + step:
            break
        if moment.half != RUN:
            holds[moment.slot] = moment.module
    return {slot: one for slot, one in holds.items() if schedule.slot_of[one] == slot}


def require_closed(schedule: Schedule) -> None:
    """ScheduleError unless the schedule is where it began after one pass."""
    if schedule.period != 1:
        raise ScheduleError(
            f"policy {schedule.policy} repeats after {schedule.period} passes, so no graph of one "
            f"pass can be replayed; use it eagerly, or with slots that divide the modules"
        )
