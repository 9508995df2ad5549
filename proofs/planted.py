"""Faults put into a safe schedule's tables, each with the property that it violates for certain.

The property follows from the fault and from the schedule's being safe: no check is asked. So a
check, a machine or an engine can be tested with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedule.properties import CLOSURE, IDENTITY, OWNERSHIP, PROGRESS
from schedule.table import (
    AFTER,
    BEFORE,
    ENTER,
    LEAVE,
    PRELOAD,
    RUN,
    Boundary,
    Refill,
    Refills,
    Schedule,
    around,
)

Line = tuple[Boundary, ...]
"""Boundaries, and runs as boundaries of half RUN, in host order."""


@dataclass(frozen=True, slots=True)
class Planted:
    """schedule: with the fault.   at: the boundary whose refills it changes, or for several of
    them the run that they are for.   slot: which is violated there."""

    schedule: Schedule
    at: Boundary
    slot: int


# ---- the tables, boundary by boundary


def line_of(modules: int, passes: int) -> Line:
    """A period's boundaries and runs."""
    return tuple(at for step in range(modules * passes) for at in around(step, modules))


def gap(line: Line, slot_of: Sequence[int], step: int) -> tuple[Line, int]:
    """The boundaries since the run before this step's in its slot, across the period's end, and
    the step of that run: the step itself, if nothing else runs from the slot."""
    at = line.index(Boundary(RUN, step))
    found: list[Boundary] = []
    for boundary in reversed((*line[at:], *line[:at])):
        if boundary.half != RUN:
            found.append(boundary)
        elif slot_of[boundary.step] == slot_of[step]:
            return tuple(reversed(found)), boundary.step
    raise AssertionError("the step itself runs from its slot")


def refills_at(schedule: Schedule, at: Boundary) -> Refills:
    """The refills of one boundary."""
    if at.half == PRELOAD:
        return schedule.preload
    table: tuple[Refills, ...] = getattr(schedule, at.half)
    return table[_row(schedule, at)]


def put(schedule: Schedule, at: Boundary, refills: Iterable[Refill]) -> Schedule:
    """The schedule with these refills at that boundary, in place of its own."""
    if at.half == PRELOAD:
        return replace(schedule, preload=tuple(refills))
    table = list(getattr(schedule, at.half))
    table[_row(schedule, at)] = tuple(refills)
    changed: dict[str, Any] = {at.half: tuple(table)}
    return replace(schedule, **changed)


def _row(schedule: Schedule, at: Boundary) -> int:
    return at.step // schedule.ring.modules if at.half in (ENTER, LEAVE) else at.step


def _turned(
    schedule: Schedule, boundaries: Line, old: Refill, new: Refill | None = None
) -> Schedule:
    """At these boundaries, the old refill dropped, or the new one in its place."""
    for at in boundaries:
        refills = refills_at(schedule, at)
        if old in refills:
            turned = (new if one == old else one for one in refills)
            schedule = put(schedule, at, (one for one in turned if one is not None))
    return schedule


# ---- the places


def _needed(schedule: Schedule) -> Iterator[tuple[int, Refill, Line, int]]:
    """Each step whose slot another module ran from before: the refill that it needs, where that
    may be, and the other one's step."""
    modules = schedule.ring.modules
    line = line_of(modules, schedule.period)
    for step, slot in enumerate(schedule.slot_of):
        boundaries, before = gap(line, schedule.slot_of, step)
        if before % modules != step % modules:
            yield step, Refill(slot, step % modules), boundaries, before


def _granted(schedule: Schedule) -> Iterator[tuple[int, Refill]]:
    """Each slot's first step, where nothing refills the slot in the period before it."""
    seen: set[int] = set()
    for at in line_of(schedule.ring.modules, schedule.period):
        if at.half != RUN:
            seen.update(slot for slot, _ in refills_at(schedule, at))
        elif schedule.slot_of[at.step] not in seen:
            seen.add(schedule.slot_of[at.step])
            yield at.step, Refill(schedule.slot_of[at.step], at.step % schedule.ring.modules)


def _others(schedule: Schedule, module: int) -> Iterator[int]:
    """All modules but this one, from the next on."""
    modules = schedule.ring.modules
    return (other % modules for other in range(module + 1, module + modules))


# ---- the faults


def never(schedule: Schedule) -> Iterator[Planted]:
    """No boundary copies the module into the slot any more, the preload neither."""
    line = (Boundary(PRELOAD, 0), *line_of(schedule.ring.modules, schedule.period))
    boundaries = tuple(at for at in line if at.half != RUN)
    for step, slot in enumerate(schedule.slot_of):
        own = Refill(slot, step % schedule.ring.modules)
        yield Planted(_turned(schedule, boundaries, own), Boundary(RUN, step), slot)


def lost(schedule: Schedule) -> Iterator[Planted]:
    """The refill between two modules' runs is not issued."""
    for step, own, boundaries, _ in _needed(schedule):
        yield Planted(_turned(schedule, boundaries, own), Boundary(RUN, step), own.slot)


def another(schedule: Schedule) -> Iterator[Planted]:
    """Another module is copied in its place."""
    for step, own, boundaries, _ in _needed(schedule):
        for module in _others(schedule, own.module):
            changed = _turned(schedule, boundaries, own, Refill(own.slot, module))
            yield Planted(changed, Boundary(RUN, step), own.slot)


def elsewhere(schedule: Schedule) -> Iterator[Planted]:
    """It goes into the next slot."""
    slots = schedule.ring.slots
    for step, own, boundaries, _ in _needed(schedule) if slots > 1 else ():
        into = Refill((own.slot + 1) % slots, own.module)
        yield Planted(_turned(schedule, boundaries, own, into), Boundary(RUN, step), own.slot)


def late(schedule: Schedule) -> Iterator[Planted]:
    """It comes only after the run that needs it."""
    for step, own, boundaries, _ in _needed(schedule):
        changed, at = _turned(schedule, boundaries, own), Boundary(AFTER, step)
        yield Planted(put(changed, at, (own, *refills_at(changed, at))), at, own.slot)


def early(schedule: Schedule) -> Iterator[Planted]:
    """It comes already before the other module's run, whose weights are there."""
    for _, own, boundaries, before in _needed(schedule):
        changed, at = _turned(schedule, boundaries, own), Boundary(BEFORE, before)
        yield Planted(put(changed, at, (*refills_at(changed, at), own)), at, own.slot)


def half_missing(schedule: Schedule) -> Iterator[Planted]:
    """The refills of one half are never issued, at no boundary; some run needs one of them."""
    line = line_of(schedule.ring.modules, schedule.period)
    for half in (AFTER, BEFORE, ENTER, LEAVE):
        empty = schedule
        for at in line:
            empty = put(empty, at, ()) if at.half == half else empty
        for step, own, boundaries, _ in _needed(schedule):
            if all(own not in refills_at(empty, at) for at in boundaries):
                yield Planted(empty, Boundary(RUN, step), own.slot)
                break


def overwritten(schedule: Schedule) -> Iterator[Planted]:
    """Just before a module runs another one is copied over it."""
    for step, slot in enumerate(schedule.slot_of):
        at = Boundary(BEFORE, step)
        for module in _others(schedule, step % schedule.ring.modules):
            refills = (*refills_at(schedule, at), Refill(slot, module))
            yield Planted(put(schedule, at, refills), at, slot)


def restored(schedule: Schedule) -> Iterator[Planted]:
    """And then the module itself again, in time."""
    for found in overwritten(schedule):
        own = Refill(found.slot, found.at.step % schedule.ring.modules)
        refills = (*refills_at(found.schedule, found.at), own)
        yield replace(found, schedule=put(found.schedule, found.at, refills))


def not_preloaded(schedule: Schedule) -> Iterator[Planted]:
    """The preload of a slot is missing."""
    for _, own in _granted(schedule):
        at = Boundary(PRELOAD, 0)
        kept = [one for one in schedule.preload if one.slot != own.slot]
        yield Planted(put(schedule, at, kept), at, own.slot)


def preloaded_another(schedule: Schedule) -> Iterator[Planted]:
    """The preload brings another module than the slot's first user."""
    for _, own in _granted(schedule):
        at = Boundary(PRELOAD, 0)
        for module in _others(schedule, own.module):
            refills = (*schedule.preload, Refill(own.slot, module))
            yield Planted(put(schedule, at, refills), at, own.slot)


PLANTED: dict[str, tuple[str, Callable[[Schedule], Iterator[Planted]]]] = {
    "a module is never copied": (IDENTITY, never),
    "a refill is lost": (PROGRESS, lost),
    "another module is copied": (PROGRESS, another),
    "a refill goes into another slot": (PROGRESS, elsewhere),
    "a refill comes late": (PROGRESS, late),
    "a refill comes early": (OWNERSHIP, early),
    "a half's refills are missing": (PROGRESS, half_missing),
    "a module is overwritten": (OWNERSHIP, overwritten),
    "a module is overwritten and restored": (OWNERSHIP, restored),
    "a preload is missing": (CLOSURE, not_preloaded),
    "another module is preloaded": (IDENTITY, preloaded_another),
}
"""By fault, the property that it violates, and every place where a safe schedule can have it."""
