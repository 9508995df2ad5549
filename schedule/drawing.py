"""What text, picture and trace show of a schedule: its moments on an axis of time, and a mark
wherever a property is violated.

Moment k of the walk is box k: a schedule's moments are its program's copies and runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedule.machine import objections
from schedule.operations import Run
from schedule.placed import Content, Placed, contents, place
from schedule.program import lower
from schedule.properties import IDENTITY, OWNERSHIP
from schedule.ring import EMPTY
from schedule.table import Moment, Schedule
from schedule.verifier import Findings


@dataclass(frozen=True, slots=True)
class Mark:
    """A violation at one moment: a copy over what is still needed (ownership), or a run that
    reads another module's weights (identity).

    moment: its position.    needs: the module that the slot must hold then.
    has:    the module that it holds then, or EMPTY.
    """

    property: str
    moment: int
    slot: int
    needs: int
    has: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """A schedule's first passes, ready to be drawn.

    moments: in host order; placed.boxes has one box for each.
    contents: of every slot.     marks: in the order of the moments.
    passes: by pass, when its first run starts and its last one ends.
    """

    findings: Findings
    moments: tuple[Moment, ...]
    placed: Placed
    contents: tuple[Content, ...]
    marks: tuple[Mark, ...]
    passes: tuple[tuple[int, int], ...]

    @property
    def title(self) -> str:
        """The schedule's name and sizes."""
        ring = self.findings.schedule.ring
        sizes = f"{many(ring.modules, 'module')}, {many(ring.slots, 'slot')}"
        return f"{self.findings.schedule.policy}, {sizes}"

    @property
    def verdict(self) -> str:
        """VERIFIED or VIOLATED."""
        return "VERIFIED" if self.findings.safe else "VIOLATED"


def draw(findings: Findings, passes: int) -> Drawing:
    """That many passes, or as many as lead to the first overwrite and the first wrong read."""
    schedule = findings.schedule
    modules = schedule.ring.modules
    seen = [v.trace[-1].step for v in findings.violations if v.property in (OWNERSHIP, IDENTITY)]
    passes = max([passes, *(step // modules + 1 for step in seen)])
    periods = -(-passes // schedule.period)
    last = passes * modules
    moments = tuple(one for one in schedule.walk(periods) if one.step < last)
    listing = tuple(one for one in lower(schedule).listing(periods) if one.boundary.step < last)
    placed = place(listing)
    assert len(placed.boxes) == len(moments), "every moment is one copy or one run"
    return Drawing(
        findings=findings,
        moments=moments,
        placed=placed,
        contents=contents(placed, schedule.ring.slots),
        marks=tuple(find_marks(schedule, moments)),
        passes=tuple(_passes(placed, modules, passes)),
    )


def find_marks(schedule: Schedule, moments: Sequence[Moment]) -> Iterator[Mark]:
    """Every overwrite of what is still needed, and every run that reads another module: all that
    the machine objects to, of which the verifier names the first."""
    for position, refused, state in objections(schedule, moments):
        moment, held = moments[position], state.holds[refused.slot]
        if refused.property == IDENTITY:
            needs, has = moment.module, held
        else:
            needs, has = held, moment.module
        yield Mark(refused.property, position, refused.slot, needs, has)


def caption(mark: Mark) -> str:
    """The mark in a short sentence."""
    where = f"in slot {mark.slot}"
    if mark.property == OWNERSHIP:
        over = f"module {mark.has} is copied over module {mark.needs} {where}"
        return f"{over}, and module {mark.needs} has yet to run"
    reads = "nothing that was copied" if mark.has == EMPTY else f"module {mark.has}'s weights"
    return f"module {mark.needs} runs, and reads {reads} {where}"


def _passes(placed: Placed, modules: int, passes: int) -> Iterator[tuple[int, int]]:
    runs = [box for box in placed.boxes if isinstance(box.operation, Run)]
    for number in range(passes):
        own = runs[number * modules : (number + 1) * modules]
        yield own[0].start, own[-1].end


def many(count: int, word: str) -> str:
    """``1 slot``, ``2 slots``."""
    return f"{count} {word}" + "s" * (count != 1)
