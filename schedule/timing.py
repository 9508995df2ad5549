"""How long a pass takes in the steady state, for given times of runs and copies: exactly.

The program is executed period by period, until what is under way at a period's end is what it was
some periods before: from then on it repeats. The host is taken to be ahead of the device, so that
nothing is issued late. In a captured pass the copies are joined before the end, and nothing is
under way between two passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from schedule.costs import Times
from schedule.errors import CostsError
from schedule.operations import COMPUTE, RAN, Copy, Issued, Record, Run, Wait
from schedule.recurrence import CLOCK, Recurrence, State, cycle_mean, recurrence_of
from schedule.table import Schedule

MOST_PERIODS = 500
"""A transient that is longer than this is not followed to its end: two cycles of the program take
so nearly the same time that the larger one's mean says all."""


@dataclass(frozen=True, slots=True)
class Span:
    """A copy or a run, from ``begin`` to ``end``; or a wait of the compute stream for all copies,
    at a graph's begin or end. ready: when its stream came to its waits, for a run or a wait; for
    a copy, when the runs ended that were issued before it, after which its slot is free."""

    issued: Issued
    ready: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Steady:
    """time: of a pass, exactly, in the unit of the times.
    spans:  of a period, and then of those periods in which all repeats, in the order of issue.
    start:  where the latter begin among the spans.      passes: how many they are.
    exact:  whether they do repeat; else they do so nearly."""

    time: Fraction
    spans: tuple[Span, ...]
    start: int
    passes: int
    exact: bool = True


def steady(schedule: Schedule, times: Times, captured: bool = False) -> Steady:
    """The schedule's steady state. captured: each pass is a replay of one graph; ScheduleError for
    a schedule that is not where it began after one pass."""
    require_times(times, schedule.ring.modules)
    recurrence = recurrence_of(schedule, times, captured)
    # However much is under way at first, a period takes as long in the end. Where copies take
    # a little longer than what hides them, it is there soon if they are behind already.
    for start in recurrence.start, recurrence.behind:
        state, periods, took = _followed(recurrence, start)
        if periods:
            time = Fraction(took, periods * schedule.period)
            return _steady(recurrence, state, time, periods, schedule.period, exact=True)
    time = cycle_mean(recurrence) / schedule.period
    return _steady(recurrence, state, time, 1, schedule.period, exact=False)


def _followed(recurrence: Recurrence, state: State) -> tuple[State, int, int]:
    """From this state on: one that was there before, but for the time, how many periods before, and
    how long these took; 0 and 0 if there is none within MOST_PERIODS."""
    seen = dict[tuple[int, ...], tuple[int, int]]()
    for number in range(MOST_PERIODS):
        key, now = recurrence.relative(state), state[CLOCK]
        if key in seen:
            first, then = seen[key]
            return state, number - first, now - then
        seen[key] = number, now
        state = recurrence.advance(state)
    return state, 0, 0


def pass_time(schedule: Schedule, times: Times, captured: bool = False) -> Fraction:
    """The same time of a pass, as the largest cycle mean of the program's event graph."""
    require_times(times, schedule.ring.modules)
    return cycle_mean(recurrence_of(schedule, times, captured)) / schedule.period


def require_times(times: Times, modules: int) -> None:
    """CostsError unless these are times of so many modules."""
    for name, needed in ("run", modules), ("between", modules + 1), ("copy", modules):
        found = getattr(times, name)
        if len(found) != needed:
            raise CostsError(f"{name}: {len(found)} times, where {modules} modules need {needed}")
        for at, time in enumerate(found):
            if type(time) is not int or time < 0:
                raise CostsError(f"{name}[{at}]: {time!r} is no whole number, at least 0")


def _steady(
    recurrence: Recurrence, state: State, time: Fraction, periods: int, period: int, exact: bool
) -> Steady:
    state = state.copy()
    before = tuple(_spans(recurrence, state))
    rest = tuple(span for _ in range(periods) for span in _spans(recurrence, state))
    return Steady(time, (*before, *rest), len(before), periods * period, exact)


def _spans(recurrence: Recurrence, state: State) -> Iterator[Span]:
    """The spans of a period, which the state is moved on by."""
    came = state[CLOCK]  # when the compute stream came to its latest waits
    free = 0
    for one in recurrence.assignments:
        before = state[one.target]
        begin = max(state[source] for source in one.sources)
        state[one.target] = begin + one.cost
        operation = one.issued and one.issued.operation
        match operation:
            case Run():
                assert one.issued is not None, "a run is issued"
                yield Span(one.issued, came, begin, state[CLOCK])
                came = state[CLOCK]
            case Copy():
                assert one.issued is not None, "a copy is issued"
                shared = operation.stream == COMPUTE
                yield Span(one.issued, before if shared else free, begin, state[one.target])
                came = state[CLOCK] if shared else came
            case Wait(stream, event) if stream == COMPUTE and event.name == "drained":
                assert one.issued is not None, "a wait is issued"
                yield Span(one.issued, came, begin, begin)
                came = begin
            case None:
                came = state[CLOCK]
            case Record(stream, event) if stream == COMPUTE and event.name == RAN.name:
                free = state[one.target]
