"""Where a schedule's pass waits for copies in the steady state: by module, how long, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from schedule.costs import Times
from schedule.operations import COMPUTE, Copy, Run, Wait
from schedule.reasons import Delay, Load, Queued, Words, reason
from schedule.table import Schedule
from schedule.timing import Span, Steady, steady


@dataclass(frozen=True, slots=True)
class Stall:
    """What a module's copies do to a pass, in the unit of the times.

    window: of compute, from a refill's issue (its slot is free) to the module's run, or to the
            end of a captured pass if that comes first: so much can hide a copy. The mean of its
            refills; None for a module that is not copied.
    copy:   of one copy.        copies: how many a pass, on average.
    time:   how long the compute stream waits for them in a pass, on average. All stalls and what
            is computed in a pass are together exactly the time of a pass.
    reason: why it waits, where it does so longest; empty if it does not.
    """

    module: int
    window: Fraction | None
    copy: int
    copies: Fraction
    time: Fraction
    reason: str


def stalls(
    schedule: Schedule,
    times: Times,
    captured: bool = False,
    names: Sequence[str] = (),
    said: Callable[[int], str] = str,
) -> tuple[Stall, ...]:
    """By module, its stall. names: of the modules, for the reasons.    said: a time in words."""
    found = steady(schedule, times, captured)
    walk = _Walk(times.streams.copies)
    for span in found.spans[: found.start]:
        walk.follow(span)
    walk.forget()
    for span in found.spans[found.start :]:
        walk.follow(span)
    words = Words(times, captured, tuple(names), said)
    return tuple(_stall(module, found, walk, words) for module in range(schedule.ring.modules))


def _stall(module: int, found: Steady, walk: _Walk, words: Words) -> Stall:
    delays = [one for one in walk.delays if one.module == module]
    windows = [window for one, window in walk.windows if one == module]
    why = ""
    if delays:
        # Of those that are equally long the last: it has the longest past.
        longest = max(reversed(delays), key=lambda one: one.time)
        copied = Fraction(walk.busy[longest.copy.operation.stream], found.passes)
        why = reason(longest, Load(found.time, words.compute, copied), words)
    return Stall(
        module,
        Fraction(sum(windows), len(windows)) if windows else None,
        words.times.copy[module],
        Fraction(walk.copied.count(module), found.passes),
        Fraction(sum(one.time for one in delays), found.passes),
        why,
    )


class _Walk:
    """A walk over spans in the order of issue.

    delays:  where the compute stream waited.    windows: of the refills, each with its module.
    copied:  the modules that were.              busy: by stream, how long it copied.
    """

    def __init__(self, streams: Sequence[str]) -> None:
        self.streams = streams
        self.stalled = 0  # in all: what remains of the time is the clock of compute
        self.runs: list[int] = []  # the modules that ran
        self.ended: dict[int, int] = {}  # by slot, after how many runs its last one was over
        self.last: dict[str, Queued] = {}  # by stream, its last copy
        self.held: dict[int, Queued] = {}  # by slot, the last copy into it
        self.needed: dict[int, Queued] = {}  # by slot, the same until its module runs
        self.cut: dict[int, int] = {}  # by slot, its window if a captured pass has ended since
        self.forget()

    def forget(self) -> None:
        """What was found up to now does not count."""
        self.delays: list[Delay] = []
        self.windows: list[tuple[int, int]] = []
        self.copied: list[int] = []
        self.busy = dict.fromkeys(self.streams, 0)

    def follow(self, span: Span) -> None:
        """The next span."""
        operation = span.issued.operation
        if isinstance(operation, Copy):
            self._copy(operation, span)
        elif isinstance(operation, Run):
            self._run(operation, span)
        else:
            assert isinstance(operation, Wait), "spans are copies, runs and joins"
            assert operation.event.number is not None, "a join is of a numbered stream"
            self._join(self.streams[operation.event.number], span)

    def _copy(self, copy: Copy, span: Span) -> None:
        ahead = [one for one in (self.last.get(copy.stream), self.held.get(copy.slot)) if one]
        behind = next((one for one in ahead if one.span.end == span.begin > span.ready), None)
        there = self.held.get(copy.slot)
        anew = there is not None and there.operation.module == copy.module
        ended, clock = self.ended.get(copy.slot), span.ready - self.stalled
        since = () if ended is None else tuple(self.runs[ended - 1 :])
        queued = Queued(copy, span, clock, since, anew, behind)
        self.last[copy.stream] = self.held[copy.slot] = self.needed[copy.slot] = queued
        self.cut.pop(copy.slot, None)
        self.copied.append(copy.module)
        self.busy[copy.stream] += span.end - span.begin
        if copy.stream == COMPUTE:
            self._wait(queued, span, span.end - span.begin, clock)

    def _run(self, run: Run, span: Span) -> None:
        queued, clock = self.needed.pop(run.slot, None), span.ready - self.stalled
        if queued is not None:
            self.windows.append((run.module, self.cut.pop(run.slot, clock - queued.clock)))
        self._wait(queued, span, span.begin - span.ready, clock)
        self.runs.append(run.module)
        self.ended[run.slot] = len(self.runs)

    def _join(self, stream: str, span: Span) -> None:
        clock = span.ready - self.stalled
        for slot, queued in self.needed.items():
            if queued.operation.stream == stream:
                self.cut.setdefault(slot, clock - queued.clock)
        self._wait(self.last.get(stream), span, span.begin - span.ready, clock)

    def _wait(self, queued: Queued | None, span: Span, time: int, clock: int) -> None:
        """The compute stream waits for this copy; for one before the first span, if for none."""
        self.stalled += time
        if time and queued is not None:
            self.delays.append(Delay(queued, span, time, clock - queued.clock))
