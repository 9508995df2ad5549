"""Passes as predicted, and as they are on the tests' simulated device in real time.

Copies and runs take known times there, which are slept, and the runtime's own streams and events do
the rest. So nothing takes less than it should, and what the machine does beside a little more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

import runtime
from benchmarks.plan_cases import CASES, LINK, TINY_CASES, Case, Chain, mark
from benchmarks.simulated import SIMULATED, started
from runtime.graph import Captured
from schedule.costs import SECOND, Times
from schedule.operations import Run
from schedule.table import PRELOAD, RUN, Schedule
from schedule.timing import Steady, steady

if TYPE_CHECKING:
    from tests.simdevice.device import SimDevice

WARM = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """within: how far a prediction may be away, in parts of what is measured."""

    cases: tuple[Case, ...]
    rounds: int
    within: float


FULL = Effort(CASES, rounds=7, within=0.1)
TINY = Effort(TINY_CASES, rounds=2, within=math.inf)


@dataclass(frozen=True, slots=True)
class SimulatedLine:
    """Seconds of a pass.

    what:      the case, in words.          bound: by what it is.
    predicted, measured: of a pass.         stall, stalled: of it, what runs wait for copies.
    apart:     the largest difference of these two of one module; None for replays, in which
               nothing can be looked at.
    equal:     whether the output is the whole model's, bit for bit.
    copies:    of a pass, as counted.       failed: too far away, or not equal, or not as many.
    """

    what: str
    bound: str
    predicted: float
    measured: float
    stall: float
    stalled: float
    apart: float | None
    equal: bool
    copies: float
    failed: bool

    @property
    def away(self) -> float:
        return _away(self.predicted, self.measured)

    def __str__(self) -> str:
        said = "FAILED: " * self.failed + f"{self.what}, bound by {self.bound}"
        apart = "" if self.apart is None else f", of a module {_ms(self.apart)} apart at most"
        differs = "" if self.equal else "; its output DIFFERS"
        return (
            f"{said}: {_ms(self.predicted)} predicted, {_ms(self.measured)} measured, "
            f"{self.away:+.1%}; stalls {_ms(self.stall)} and {_ms(self.stalled)}{apart}{differs}"
        )

    def json(self) -> dict[str, Any]:
        return {"part": "simulated", "away": self.away} | asdict(self)


def lines(*, tiny: bool) -> Iterator[SimulatedLine]:
    """A line a case. OffloadError where the simulated device can't be built."""
    sim, effort = started(), TINY if tiny else FULL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # how work is split changes the rounding
    try:
        for case in effort.cases:
            with torch.no_grad():
                yield _line(sim, case, effort)
    finally:
        torch.set_num_threads(threads)


def _line(sim: SimDevice, case: Case, effort: Effort) -> SimulatedLine:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, x = Chain(case).eval(), torch.rand(4)
    expected, x = model(x), x.to(SIMULATED)
    with runtime.offload(
        model, list(model.layers), slots=case.slots, policy=case.policy, device=SIMULATED
    ) as offloaded:
        times = case.times([layout.size for layout in offloaded.arena.layouts])
        said = steady(offloaded.schedule, times, case.captured)
        with sim.paced(LINK.bandwidth, LINK.latency // 1000):
            call: Callable[[], torch.Tensor] = partial(model, x)
            if case.captured:
                call = partial(_replayed, offloaded.capture(call))
            before = offloaded.report()
            measured = _seconds(call, said.passes, effort.rounds)
            after = offloaded.report()
            stalls = None if case.captured else _stalls(model, call, said.passes, effort.rounds)
            equal = torch.equal(call().cpu(), expected)
        schedule = offloaded.schedule
    predicted = float(said.time) / SECOND
    compute = float(sum(times.run) + sum(times.between)) / SECOND
    copies = (after.copies - before.copies) / (after.passes - before.passes)
    right = equal and 0 < copies == schedule.copies / schedule.period
    return SimulatedLine(
        what=str(case),
        bound=_bound(said, schedule, times),
        predicted=predicted,
        measured=measured,
        stall=predicted - compute,
        stalled=measured - compute if stalls is None else sum(stalls),
        apart=None if stalls is None else _apart(stalls, said),
        equal=equal,
        copies=copies,
        failed=not right or abs(_away(predicted, measured)) > effort.within,
    )


def _replayed(captured: Captured) -> torch.Tensor:
    captured.replay()
    output: torch.Tensor = captured.output
    return output


# ---- as predicted


def _bound(said: Steady, schedule: Schedule, times: Times) -> str:
    refills = (one.module for one in schedule.walk(1) if one.half not in (PRELOAD, RUN))
    if said.time == sum(times.run) + sum(times.between):
        return "compute"
    if said.time == Fraction(sum(times.copy[one] for one in refills), schedule.period):
        return "copies"
    return "both in turn"


def _apart(stalls: Sequence[float], said: Steady) -> float:
    """How far the stall of a module is from the predicted one, at most."""
    waits = [0] * len(stalls)
    for span in said.spans[said.start :]:
        if isinstance(span.issued.operation, Run):
            waits[span.issued.operation.module] += span.begin - span.ready
    predicted = (wait / said.passes / SECOND for wait in waits)
    return max(abs(one - other) for one, other in zip(stalls, predicted, strict=True))


# ---- as measured


def _seconds(call: Callable[[], object], passes: int, rounds: int) -> float:
    """Of a pass among others, the median; after so many passes all repeats, and of these it is
    the mean."""
    for _ in range(WARM * passes):
        call()
    marks = [mark()]
    for _ in range(rounds):
        for _ in range(passes):
            call()
        marks.append(mark())
    marks[-1].synchronize()
    return statistics.median(map(_between, marks, marks[1:])) / passes


def _stalls(model: Chain, call: Callable[[], object], passes: int, rounds: int) -> list[float]:
    """By module, seconds that it waits in a pass, likewise."""
    came, began = list[torch.Event](), list[torch.Event]()
    model.look(came, began)
    for _ in range(rounds * passes):
        call()
    model.look(None, None)
    began[-1].synchronize()
    waits, modules = list(map(_between, came, began)), len(model.layers)
    found = []
    for module in range(modules):
        own = waits[module::modules]
        starts = range(0, len(own), passes)
        found.append(statistics.median(sum(own[at : at + passes]) / passes for at in starts))
    return found


def _between(first: torch.Event, last: torch.Event) -> float:
    return float(first.elapsed_time(last)) / 1e3


def _away(predicted: float, measured: float) -> float:
    """By how much longer it is than predicted, in parts of what was measured."""
    return 1 - predicted / measured


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
