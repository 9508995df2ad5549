"""Plans beside what else the same memory could be used for, and beside what no schedule can beat.

All times are predicted, exactly, from costs; ``--simulated`` holds such predictions against passes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

from benchmarks.plan_grid import (
    BEST,
    EQUAL,
    EXACTLY,
    Answer,
    Question,
    answers,
    questions,
    slots_of,
    tiny_questions,
)
from benchmarks.plan_models import UNIT, equal

UNEQUAL = "the three models"
BOUND = "the lower bound"
FIGURES = {(9, False): 15, (10, False): 16, (9, True): 17, (10, True): 19}
"""By N, and whether passes are captured: units of a run that one over 4 slots takes at most."""
BRIEFLY = (BOUND, EXACTLY, BEST)
"""What the plans of one model are held against; those of all of them, against everything."""
SLOTS, RATIO = 4, Fraction(2)


@dataclass(frozen=True, slots=True)
class PlanLine:
    """Plans against one other thing to do, in the cases in which both fit.

    what:    the modules, how passes run, and what may be kept.     against: the other thing.
    mean, most, least: how many times the plan's time the other's is: geometric mean, and limits.
    better:  the share of cases in which the plan takes less; None for the lower bound.
    failed:  in one case it takes more, or less than the bound.
    """

    what: str
    against: str
    cases: int
    mean: float
    most: float
    least: float
    better: float | None
    failed: bool

    def __str__(self) -> str:
        better = "" if self.better is None else f"{self.better:.0%}"
        return (
            f"{self.what:<36} {self.against:<21} {self.cases:>5} {self.mean:>7.3f} "
            f"{self.most:>7.3f} {self.least:>7.3f} {better:>7}{'  FAILED' * self.failed}"
        ).rstrip()

    def json(self) -> dict[str, Any]:
        return {"part": "plan"} | asdict(self)


@dataclass(frozen=True, slots=True)
class FigureLine:
    """Units of a run that a pass takes, for N equal modules over K=4 slots, whose copies take two:
    by the plan, which is to take ``most`` at most, and by slot_local."""

    what: str
    planned: float
    most: int
    by_slot_local: float
    failed: bool

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.planned:g} units a pass, at most {self.most}; "
            f"{self.by_slot_local:g} by slot_local{'  FAILED' * self.failed}"
        )

    def json(self) -> dict[str, Any]:
        return {"part": "figures"} | asdict(self)


@dataclass(frozen=True, slots=True)
class Heading:
    """Of the columns."""

    def __str__(self) -> str:
        return (
            f"{'plans for':<36} {'against':<21} {'cases':>5} {'mean':>7} {'most':>7} {'least':>7} "
            f"{'better':>7}"
        )

    def json(self) -> dict[str, Any]:
        return {"part": "heading", "ratios": "the other's time to the plan's"}


def lines(*, tiny: bool) -> Iterator[Heading | PlanLine | FigureLine]:
    """The grid's lines by group, and then the figures. tiny: a few small cases of each."""
    found = _answered(list(tiny_questions() if tiny else questions()))
    yield Heading()
    unequal = [replace(one, group=UNEQUAL) for one in found if one.group != EQUAL]
    groups = EQUAL, UNEQUAL, *dict.fromkeys(one.group for one in found if one.group != EQUAL)
    for group in groups:
        own = [one for one in (*found, *unequal) if one.group == group]
        for captured, parts in product((False, True), repeat=2):
            row = [one for one in own if (one.captured, one.parts) == (captured, parts)]
            for line in _against(row):
                if group in (EQUAL, UNEQUAL) or line.against in BRIEFLY:
                    yield line
    for modules, captured in FIGURES:
        yield figure(modules, captured)


def _answered(asked: Sequence[Question]) -> list[Answer]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return [one for found in pool.map(answers, asked) for one in found]


def _what(one: Answer) -> str:
    how = "captured" if one.captured else "eager"
    return f"{one.group}, {how}, {'in parts' if one.parts else 'whole'}"


def _against(row: Sequence[Answer]) -> Iterator[PlanLine]:
    """A line for each other thing that fits in any case."""
    what = _what(row[0])
    bounds = [(one.bound, one.time) for one in row]
    lower = _line(what, BOUND, bounds)
    yield replace(lower, better=None, failed=bool(lower.better))
    for name in sorted({name for one in row for name in one.others}, key=_place):
        yield _line(what, name, [(one.others[name], one.time) for one in row if name in one.others])


def _place(name: str) -> tuple[bool, bool, str]:
    """What sums up comes first."""
    return name != EXACTLY, name != BEST, name


def _line(what: str, against: str, pairs: Sequence[tuple[Fraction, Fraction]]) -> PlanLine:
    """pairs: of the other thing's time and the plan's."""
    ratios = [float(other / time) for other, time in pairs]
    return PlanLine(
        what=what,
        against=against,
        cases=len(ratios),
        mean=math.exp(math.fsum(map(math.log, ratios)) / len(ratios)),
        most=max(ratios),
        least=min(ratios),
        better=sum(other > time for other, time in pairs) / len(ratios),
        failed=any(other < time for other, time in pairs),
    )


def figure(modules: int, captured: bool) -> FigureLine:
    """One of the figures, by whole modules."""
    memory = slots_of([SLOTS])
    (found,) = answers(Question(EQUAL, equal(modules, RATIO), memory, captured, parts=False))
    most = FIGURES[modules, captured]
    planned, merged = found.time / UNIT, found.others[EXACTLY] / UNIT
    how = "captured" if captured else "eager"
    return FigureLine(
        what=f"N={modules}, K={SLOTS}, copies twice as long as runs, {how}",
        planned=float(planned),
        most=most,
        by_slot_local=float(merged),
        failed=planned > most,
    )
