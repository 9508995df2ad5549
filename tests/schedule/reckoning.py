"""A schedule's operations one by one on an axis of time, each as soon as it may: what the tests of
steady states compare with. It takes the tasks that all engines take, and knows no recurrence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from schedule.costs import Times
from schedule.graphs import CAPTURE, GRAPH, CapturedProgram, Graph
from schedule.operations import (
    COMPUTE,
    RAN,
    Copy,
    Event,
    Issued,
    Listing,
    Operations,
    Record,
    Run,
    Wait,
)
from schedule.program import lower
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary, Schedule
from schedule.tasks import Join, write_out
from schedule.timing import Steady

BEGIN = (CAPTURE, None)
"""What is done while a graph is captured: nothing is under way then."""


class Shown(NamedTuple):
    """A span: ("run", slot, module), ("copy", slot, module) or ("wait", -1, -1), and its times."""

    kind: str
    slot: int
    module: int
    ready: int
    begin: int
    end: int


@dataclass
class Reckoned:
    """ends: by pass, when the compute stream was done with it.    spans: by period."""

    ends: list[int]
    spans: list[list[Shown]]

    def time(self, period: int) -> Fraction | None:
        """Of a pass, if the last half of these passes repeats."""
        half = len(self.ends) // 2
        for length in range(period, half, period):
            before = zip(self.ends[half:], self.ends[half - length :], strict=False)
            steps = {end - earlier for end, earlier in before}
            if len(steps) == 1:
                return Fraction(steps.pop(), length)
        return None


def listing_of(
    schedule: Schedule, times: Times, periods: int, captured: bool, beside: bool = True
) -> Listing:
    """The program's listing. What the compute stream does beside is a run of a module behind the
    last one: number N + j takes ``times.between[j]``."""
    program, modules = lower(schedule, times.streams), schedule.ring.modules

    def issued(half: str, step: int, operations: Operations) -> Iterator[Issued]:
        yield from (Issued(one, Boundary(half, step)) for one in operations)

    def rest(module: int, step: int) -> Iterator[Issued]:
        if beside:
            yield from issued(RUN, step, (Run(COMPUTE, schedule.ring.slots, modules + module),))

    def pass_of(number: int) -> Iterator[Issued]:
        first, last = number * modules, number * modules + modules - 1
        yield from issued(ENTER, first, program.enter[number])
        for step in range(first, last + 1):
            yield from rest(step - first, step)
            yield from issued(BEFORE, step, program.before[step])
            yield from issued(RUN, step, program.begin[step])
            yield from issued(AFTER, step, program.after[step])
        yield from rest(modules, last)
        yield from issued(LEAVE, last, program.leave[number])

    preload = tuple(Issued(one, Boundary(PRELOAD, 0)) for one in program.preload)
    one_period = [one for number in range(schedule.period) for one in pass_of(number)]
    if not captured:
        return (*preload, *(one for _ in range(periods) for one in one_period))
    graph, body = Graph(GRAPH).take_all(one_period)
    begin, end = graph.lower_begin(times.streams), graph.lower_end(times.streams)
    return CapturedProgram(
        preload=program.preload,
        capture=(*begin, *(one.operation for one in body), *end),
        replay=graph.lower_replay(sorted(set(schedule.slot_of)), times.streams),
        streams=times.streams,
    ).listing(periods)


def reckon(schedule: Schedule, times: Times, periods: int, captured: bool = False) -> Reckoned:
    """So many periods. The preload takes no time: nothing is under way at the start."""
    modules = schedule.ring.modules
    at: dict[str, int] = defaultdict(int)
    marks: dict[Event, int] = defaultdict(int)
    free: dict[str, int] = defaultdict(int)  # by stream, the runs' end that it waited for last
    came = 0  # when the compute stream had done all but its latest waits
    ends: list[int] = []
    found: list[Shown] = []
    listing = listing_of(schedule, times, periods, captured)
    for operation, place, replay in write_out(listing, times.streams).tasks:
        stream = operation.stream
        begin = at[stream]
        half = listing[place].boundary.half
        match operation:
            case Join(_, streams):
                at[stream] = max(begin, *(at[one] for one in streams))
            case Record(_, event):
                marks[event] = begin
            case Wait(_, event):
                at[stream] = max(begin, marks[event])
                if event.name == RAN.name:
                    free[stream] = marks[event]
                if stream == COMPUTE and event.name == "drained" and (half, replay) != BEGIN:
                    found.append(Shown("wait", -1, -1, came, at[stream], at[stream]))
                    came = at[stream]
            case Copy() if half == PRELOAD:
                pass
            case Copy(_, slot, module):
                at[stream] = begin + times.copy[module]
                ready = begin if stream == COMPUTE else free[stream]
                found.append(Shown("copy", slot, module, ready, begin, at[stream]))
                came = at[stream] if stream == COMPUTE else came
            case Run(_, slot, module) if module < modules:
                at[stream] = begin + times.run[module]
                found.append(Shown("run", slot, module, came, begin, at[stream]))
                came = at[stream]
            case Run(_, _, module):
                at[stream] = came = begin + times.between[module - modules]
                if module == 2 * modules:
                    ends.append(at[stream])
            case _:
                pass
    each, more = divmod(len(found), periods)
    assert more == 0, "every period has as many spans"
    return Reckoned(ends, [found[each * number :][:each] for number in range(periods)])


def shown(steady: Steady) -> list[Shown]:
    """A steady state's spans in this form."""
    found = []
    for span in steady.spans:
        one = span.issued.operation
        times = span.ready, span.begin, span.end
        if isinstance(one, Run | Copy):
            kind = "run" if isinstance(one, Run) else "copy"
            found.append(Shown(kind, one.slot, one.module, *times))
        else:
            assert isinstance(one, Wait), one
            found.append(Shown("wait", -1, -1, *times))
    return found
