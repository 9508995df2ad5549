"""A period of a program as a recurrence of times: each operation ends when the latest of what it
waits for has ended, plus what it takes itself.

So the times at a period's end follow from those at its start by maxima and sums alone, and how long
periods take in the long run is the largest cycle mean of that recurrence (F. Baccelli, G. Cohen,
G. J. Olsder, J.-P. Quadrat, Synchronization and Linearity, Wiley 1992, theorem 3.23), which is
found by Karp's algorithm (R. M. Karp, A characterization of the minimum cycle mean in a digraph,
Discrete Mathematics 23, 1978).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from schedule.costs import Times
from schedule.graphs import GRAPH, Graph, require_closed
from schedule.operations import (
    COMPUTE,
    Copy,
    Event,
    Issued,
    Record,
    Replay,
    Run,
    Wait,
)
from schedule.program import lower
from schedule.table import BEFORE, ENTER, LEAVE, Boundary, Schedule, around

CLOCK = 0
"""The variable of the compute stream: what it was given so far is done then."""

State = list[int]
"""By variable, a time: of a stream, or of an event's latest record."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``state[target] = max(state[source] for each source) + cost``, for this operation; None for
    what the compute stream does beside."""

    target: int
    sources: tuple[int, ...]
    cost: int
    issued: Issued | None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One period. variables: how many; carried: those of which the value at a period's start
    matters to the compute stream's in this period or a later one."""

    assignments: tuple[Assignment, ...]
    variables: int
    carried: tuple[int, ...]

    @property
    def start(self) -> State:
        """All is preloaded, and nothing under way."""
        return [0] * self.variables

    @property
    def behind(self) -> State:
        """All is preloaded, and the copy streams are behind by all that a period does."""
        state, late = self.start, sum(one.cost for one in self.assignments)
        for one in self.assignments:
            if one.target != CLOCK and one.issued and isinstance(one.issued.operation, Copy):
                state[one.target] = late
        return state

    def advance(self, state: State) -> State:
        """One period later."""
        state = state.copy()
        for one in self.assignments:
            sources = one.sources
            latest = state[sources[0]]
            for source in sources[1:]:
                if state[source] > latest:
                    latest = state[source]
            state[one.target] = latest + one.cost
        return state

    def relative(self, state: State) -> tuple[int, ...]:
        """What is still under way when the compute stream gets here, and how long. All that a
        period takes over meets the compute stream's own time before it matters: a run comes after
        the one before, and a copy after the runs issued before it."""
        now = state[CLOCK]
        return tuple(max(0, state[one] - now) for one in self.carried)


def recurrence_of(schedule: Schedule, times: Times, captured: bool = False) -> Recurrence:
    """The recurrence of the schedule's program; captured: of the replay of one graph of a pass."""
    numbers: dict[str | Event, int] = {COMPUTE: CLOCK}
    period = _replay(schedule, times) if captured else _period(schedule, times)
    found = tuple(_assignment(one, times, numbers) for one in period)
    return Recurrence(found, len(numbers), _carried(found))


def _period(schedule: Schedule, times: Times) -> Iterator[Issued | int]:
    """The operations of a period, and between them what the compute stream does beside."""
    program = lower(schedule, times.streams)
    modules = schedule.ring.modules
    beside: dict[Boundary, int] = {}
    for step in range(len(schedule.slot_of)):
        beside[Boundary(BEFORE, step)] = times.between[step % modules]
        if step % modules == modules - 1:
            beside[Boundary(LEAVE, step)] = times.between[modules]
    issued: dict[Boundary, list[Issued]] = {}
    for one in program.periods(1):
        issued.setdefault(one.boundary, []).append(one)
    for step in range(len(schedule.slot_of)):
        for boundary in around(step, modules):
            if beside.get(boundary):
                yield beside[boundary]
            yield from issued.get(boundary, ())


def _replay(schedule: Schedule, times: Times) -> Iterator[Issued | int]:
    """The same of a replay: what is in the graph, between what orders it with the rest."""
    require_closed(schedule)
    graph, streams = Graph(GRAPH), times.streams
    first, last = Boundary(ENTER, 0), Boundary(LEAVE, schedule.ring.modules - 1)
    operations = list(graph.lower_replay(sorted(set(schedule.slot_of)), streams))
    at = operations.index(next(one for one in operations if isinstance(one, Replay)))
    yield from (Issued(operation, first) for operation in operations[:at])
    for one in _period(schedule, times):
        own: Issued | int | None = one
        if isinstance(one, Issued):
            graph, own = graph.take(one)
        if own is not None:
            yield own
    yield from (Issued(operation, last) for operation in graph.lower_end(streams)[:-1])
    yield from (Issued(operation, last) for operation in operations[at + 1 :])


def _assignment(one: Issued | int, times: Times, numbers: dict[str | Event, int]) -> Assignment:
    def number(variable: str | Event) -> int:
        return numbers.setdefault(variable, len(numbers))

    if isinstance(one, int):
        return Assignment(CLOCK, (CLOCK,), one, None)
    stream = number(one.operation.stream)
    match one.operation:
        case Run(_, _, module):
            return Assignment(stream, (stream,), times.run[module], one)
        case Copy(_, _, module):
            return Assignment(stream, (stream,), times.copy[module], one)
        case Record(_, event):
            return Assignment(number(event), (stream,), 0, one)
        case Wait(_, event):
            return Assignment(stream, (stream, number(event)), 0, one)
    raise AssertionError("a period writes no block, and captures nothing")


def _carried(assignments: Sequence[Assignment]) -> tuple[int, ...]:
    """What the compute stream's time at a period's end depends on, of this period or of later ones:
    a copy that nobody waits for may fall behind for ever, and that is no part of a steady state."""
    carried, more = set[int](), {CLOCK}
    while more - carried:
        carried |= more
        more = set(carried)
        for one in reversed(assignments):
            if one.target in more:
                more.discard(one.target)
                more.update(one.sources)
    return tuple(sorted(carried))


def cycle_mean(recurrence: Recurrence) -> Fraction:
    """The largest mean of a cycle of the event graph: the time of a period in the long run."""
    carried = recurrence.carried
    rows = _longest_paths(recurrence)
    # By length k, the heaviest walk of k periods that ends in each variable, from any.
    walks: list[list[int | None]] = [[0] * len(carried)]
    for _ in carried:
        before = walks[-1]
        walks.append([_heaviest(row, before) for row in rows])
    last = walks[-1]
    means = (
        min(
            Fraction(end - shorter, len(carried) - length)
            for length, walk in enumerate(walks[:-1])
            if (shorter := walk[at]) is not None
        )
        for at, end in enumerate(last)
        if end is not None
    )
    return max(means)


def _heaviest(row: Iterable[int | None], before: Iterable[int | None]) -> int | None:
    pairs = zip(row, before, strict=True)
    found = [path + walk for path, walk in pairs if path is not None and walk is not None]
    return max(found, default=None)


def _longest_paths(recurrence: Recurrence) -> list[list[int | None]]:
    """By carried variable at a period's end, the longest path to it from each at its start; None
    where there is none."""
    carried = recurrence.carried
    paths: list[list[int | None]] = [[None] * len(carried) for _ in range(recurrence.variables)]
    for at, variable in enumerate(carried):
        paths[variable][at] = 0
    for one in recurrence.assignments:
        found = paths[one.sources[0]]
        for source in one.sources[1:]:
            found = [_later(a, b) for a, b in zip(found, paths[source], strict=True)]
        paths[one.target] = [None if path is None else path + one.cost for path in found]
    return [paths[variable] for variable in carried]


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
