"""Random and exhaustive small tables: ``check``, the machine and the walk agree on all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from schedule import Refill, Ring, Schedule, check, verify
from schedule.operations import Copy, Run
from schedule.program import lower
from schedule.verifier import PROPERTIES, Violation
from tests.schedule.compare import by_check, difference, lints, machine_difference
from tests.walk import NOTHING, RUN, Place, Verdict, walk

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=800,
    suppress_health_check=[HealthCheck.too_slow],
)

Spot = tuple[str, int]
"""A half of a boundary, and its position in that half's table."""
Plan = dict[Spot, list[Refill]]
SMALL = 6064
"""How many tables ``small_tables`` makes."""


# ---- strategies


def line_of(modules: int, passes: int) -> list[Spot]:
    """The boundary halves and the runs of one period, in host order."""
    line: list[Spot] = []
    for number in range(passes):
        line.append(("enter", number))
        for step in range(number * modules, (number + 1) * modules):
            line += [("before", step), (RUN, step), ("after", step)]
        line.append(("leave", number))
    return line


def gap(line: list[Spot], slot_of: tuple[int, ...], step: int) -> tuple[list[Spot], int]:
    """The boundary halves between a step's run and its slot's next one, and that one's step."""
    spots = []
    at = line.index((RUN, step))
    while True:
        at = (at + 1) % len(line)
        half, position = line[at]
        if half != RUN:
            spots.append(line[at])
        elif slot_of[position] == slot_of[step]:
            return spots, position


def build(ring: Ring, slot_of: tuple[int, ...], preload: list[Refill], plan: Plan) -> Schedule:
    passes = len(slot_of) // ring.modules
    halves = {
        half: tuple(tuple(plan.get((half, position), ())) for position in range(length))
        for half, length in (
            ("enter", passes),
            ("before", len(slot_of)),
            ("after", len(slot_of)),
            ("leave", passes),
        )
    }
    return Schedule(ring, "random", slot_of, tuple(preload), **halves)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Ring, tuple[int, ...]]:
    """A ring up to 6 x 5 and a slot for each step of one or two passes."""
    ring = Ring(draw(st.integers(1, 6)), draw(st.integers(1, 5)))
    passes = draw(st.integers(1, 2))
    slots = st.integers(0, ring.slots - 1)
    count = ring.modules * passes
    return ring, tuple(draw(st.lists(slots, min_size=count, max_size=count)))


def refills_of(ring: Ring) -> st.SearchStrategy[Refill]:
    return st.builds(Refill, st.integers(0, ring.slots - 1), st.integers(0, ring.modules - 1))


def first_modules(ring: Ring, slot_of: tuple[int, ...]) -> list[Refill]:
    return [Refill(slot, slot_of.index(slot) % ring.modules) for slot in sorted(set(slot_of))]


@st.composite
def safe_schedules(draw: st.DrawFn) -> Schedule:
    """Each release is followed, somewhere before the slot's next run, by that run's module."""
    ring, slot_of = draw(shapes())
    line = line_of(ring.modules, len(slot_of) // ring.modules)
    plan: Plan = {}
    for step in range(len(slot_of)):
        spots, reader = gap(line, slot_of, step)
        same = (reader - step) % ring.modules == 0
        if not same or draw(st.integers(0, 4)) == 0:
            spot = draw(st.sampled_from(spots))
            plan.setdefault(spot, []).append(Refill(slot_of[step], reader % ring.modules))
    return build(ring, slot_of, first_modules(ring, slot_of), plan)


@st.composite
def bent_schedules(draw: st.DrawFn) -> Schedule:
    """A safe one with a few refills dropped, added or moved in front."""
    schedule = draw(safe_schedules())
    passes = schedule.period
    line = [spot for spot in line_of(schedule.ring.modules, passes) if spot[0] != RUN]
    plan: Plan = {(half, at): list(getattr(schedule, half)[at]) for half, at in line}
    preload = list(schedule.preload)
    for _ in range(draw(st.integers(1, 3))):
        there = draw(st.sampled_from([preload, *plan.values()]))
        filled = [refills for refills in [preload, *plan.values()] if refills]
        kind = draw(st.integers(0, 3))
        if kind == 0 and filled:
            refills = draw(st.sampled_from(filled))
            refills.pop(draw(st.integers(0, len(refills) - 1)))
        elif kind == 1 and filled:
            refills = draw(st.sampled_from(filled))
            moved = refills.pop(draw(st.integers(0, len(refills) - 1)))
            there.insert(0, moved)
        else:
            there.insert(draw(st.integers(0, len(there))), draw(refills_of(schedule.ring)))
    return build(schedule.ring, schedule.slot_of, preload, plan)


@st.composite
def wild_schedules(draw: st.DrawFn) -> Schedule:
    """Any refills anywhere."""
    ring, slot_of = draw(shapes())
    refills = refills_of(ring)
    line = [spot for spot in line_of(ring.modules, len(slot_of) // ring.modules) if spot[0] != RUN]
    chosen = draw(st.lists(st.tuples(st.sampled_from(line), refills), max_size=14))
    plan: Plan = {}
    for spot, refill in chosen:
        plan.setdefault(spot, []).append(refill)
    preload = draw(st.lists(refills, max_size=6))
    if draw(st.booleans()):
        preload += first_modules(ring, slot_of)
    return build(ring, slot_of, preload, plan)


def schedules() -> st.SearchStrategy[Schedule]:
    return st.one_of(safe_schedules(), bent_schedules(), bent_schedules(), wild_schedules())


# ---- agreement


def broken_implications(schedule: Schedule, verdict: Verdict) -> list[str]:
    """Ownership and progress together imply identity; identity implies progress and closure;
    and with closure, identity is violated in the first period or never. The walk alone decides
    here, over four periods."""
    violated = verdict.violated
    if "identity" not in violated:
        return [f"identity holds without {name}" for name in {*violated} - {"ownership"}]
    broken = []
    if not {"ownership", "progress"} & set(violated):
        broken.append("ownership and progress hold, identity does not")
    if "closure" not in violated and violated["identity"].step >= len(schedule.slot_of):
        broken.append("closure holds, identity fails in a later period only")
    return broken


@FIXED
@given(schedules())
def test_check_machine_and_implications_agree_with_the_walk(schedule: Schedule) -> None:
    verdict = walk(schedule)
    assert difference(schedule, verdict) == []
    assert machine_difference(schedule, verdict) == []
    assert broken_implications(schedule, verdict) == []


@settings(FIXED, max_examples=300)
@given(safe_schedules())
def test_a_refill_of_the_next_user_anywhere_in_the_gap_is_safe(schedule: Schedule) -> None:
    assert verify(schedule).schedule is schedule


def small_tables() -> Iterator[Schedule]:
    """Every table of these shapes (N, K, passes) with at most one refill in each of these halves
    of a boundary, after each of a few preloads."""
    for modules, slots, passes, halves in (
        (1, 1, 1, "enter before after leave"),
        (1, 2, 1, "enter after"),
        (1, 1, 2, "before after"),
        (2, 1, 1, "enter after leave"),
        (2, 2, 1, "enter after"),
        (2, 1, 2, "after"),
        (3, 1, 1, "enter after"),
    ):
        ring = Ring(modules, slots)
        refills = [Refill(*pair) for pair in product(range(slots), range(modules))]
        spots = [spot for spot in line_of(modules, passes) if spot[0] in halves.split()]
        preloads = [[], *([refill] for refill in refills), refills, refills[::-1]]
        for slot_of in product(range(slots), repeat=modules * passes):
            for preload in preloads:
                for chosen in product([None, *refills], repeat=len(spots)):
                    pairs = zip(spots, chosen, strict=True)
                    plan: Plan = {spot: [one] for spot, one in pairs if one is not None}
                    yield build(ring, slot_of, preload, plan)


def test_all_small_tables() -> None:
    count = 0
    for schedule in small_tables():
        verdict = walk(schedule)
        assert difference(schedule, verdict) == [], schedule
        assert machine_difference(schedule, verdict) == [], schedule
        assert broken_implications(schedule, verdict) == [], schedule
        count += 1
    assert count == SMALL


# ---- what the random tables reach


def is_exactly(*names: str) -> Callable[[Schedule], bool]:
    return lambda schedule: set(by_check(check(schedule))) == set(names)


def shows_late(schedule: Schedule) -> bool:
    """Identity is first violated in the second period."""
    found = by_check(check(schedule)).get("identity")
    return found is not None and found.step >= len(schedule.slot_of)


REACHED: dict[str, Callable[[Schedule], bool]] = {
    "ownership alone": is_exactly("ownership"),
    "progress and identity": is_exactly("progress", "identity"),
    "ownership and identity": is_exactly("ownership", "identity"),
    "ownership, progress and identity": is_exactly("ownership", "progress", "identity"),
    "progress, identity and closure": is_exactly("progress", "identity", "closure"),
    "everything": is_exactly(*PROPERTIES),
    "late": shows_late,
    "safe over two passes": lambda s: check(s).safe and s.period == 2 and s.copies > 2,
    "safe with a lint": lambda s: check(s).safe and bool(lints(check(s))),
    "own": lambda s: bool(walk(s).own),
    "idle": lambda s: bool(walk(s).idle),
    "unread": lambda s: bool(walk(s).unread) and not walk(s).own,
    "a module in two slots": lambda s: (
        check(s).safe
        and s.period == 2
        and s.slot_of[: s.ring.modules] != s.slot_of[s.ring.modules :]
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_the_random_tables_reach(name: str) -> None:
    """Nothing vacuous: each outcome occurs among 800 of the random tables."""
    quick = settings(FIXED, phases=[Phase.generate], derandomize=False)
    assert REACHED[name](find(schedules(), REACHED[name], settings=quick, random=Random(0)))


# ---- traces


def last_before(log: tuple[Place, ...], stop: int, wanted: Callable[[Place], bool]) -> int | None:
    return max((at for at in range(stop) if wanted(log[at])), default=None)


def trace_faults(violation: Violation, schedule: Schedule) -> list[str]:
    """What is wrong with a violation's trace, against the walk's own list of moments."""
    verdict = walk(schedule)
    log, slot, needs, run = verdict.log, violation.slot, violation.needs, violation.run
    owned = violation.property == "ownership"
    stop = verdict.first[violation.property]
    brought = last_before(log, stop, lambda p: p.half != RUN and p[2:] == (slot, needs))
    others = [
        at
        for at in range(run)
        if log[at].half != RUN and log[at].slot == slot and log[at].module != needs
    ]
    after_brought = [at for at in others if brought is None or at > brought]
    replaced = stop if owned else min(after_brought, default=None)
    read = next(at for at in range(stop, len(log)) if log[at].half == RUN and log[at].slot == slot)
    facts = {
        "trace": (tuple(Place(*moment) for moment in violation.trace), log[: run + 1]),
        "the run": (run, read),
        "needs": (needs, verdict.held[stop] if owned else log[stop].module),
        "needs is what runs": (needs, log[run].module),
        "has": (violation.has, verdict.held[run]),
        "brought": (violation.brought, brought),
        "replaced": (violation.replaced, replaced),
    }
    return [f"{what}: {pair}" for what, pair in facts.items() if pair[0] != pair[1]]


@settings(FIXED, max_examples=500)
@given(schedules())
def test_traces_and_sentences(schedule: Schedule) -> None:
    for violation in check(schedule).violations:
        assert violation.trace[-1].half == RUN
        assert violation.trace[-1].slot == violation.slot
        assert trace_faults(violation, schedule) == []
        has = violation.has
        assert str(violation).startswith(f"{violation.property}: pass ") or (
            str(violation).startswith("ownership: preload: ")
        )
        assert f"slot {violation.slot}" in violation.sentence
        assert f"module {violation.needs}" in violation.sentence
        if has == NOTHING:
            assert "a slot that nothing was copied into" in violation.sentence
        elif has != violation.needs:
            assert f"module {has}'s weights" in violation.sentence


# ---- the program


@settings(FIXED, max_examples=300)
@given(schedules())
def test_program_and_schedule_tell_the_walk(schedule: Schedule) -> None:
    """Copies and runs of the program, moments and next users of the schedule: as the walk."""
    log = walk(schedule).log
    program = lower(schedule)
    operations = program.preload + program.period() * 4
    said = [
        (isinstance(each, Run), each.slot, each.module)
        for each in operations
        if isinstance(each, Copy | Run)
    ]
    assert said == [(half == RUN, slot, module) for half, _, slot, module in log]
    assert tuple(Place(*moment) for moment in schedule.walk(4)) == log
    users = schedule.users()
    for at in range(0, len(log) // 2, 2):
        step = log[at].step + (log[at].half in (RUN, "after", "leave"))
        for slot in range(schedule.ring.slots):
            runs = (p.module for p in log[at + 1 :] if p.half == RUN and p.slot == slot)
            assert schedule.next_user(users, slot, step) == next(runs, NOTHING)


@settings(FIXED, max_examples=300)
@given(schedules(), st.data())
def test_removing_a_lint_keeps_a_safe_schedule_safe(
    schedule: Schedule, data: st.DataObject
) -> None:
    """A refill that is useless in every period can be dropped."""
    verdict = walk(schedule)
    useless = sorted(place for place in verdict.unread | verdict.idle if place.half != "preload")
    if verdict.violated or not useless:
        return
    place = data.draw(st.sampled_from(useless))
    table = list(getattr(schedule, place.half))
    number = place.step // schedule.ring.modules
    at = number if place.half in ("enter", "leave") else place.step
    kept = list(table[at])
    kept.remove((place.slot, place.module))
    table[at] = tuple(kept)
    changed: dict[str, Any] = {place.half: tuple(table)}
    assert check(dataclasses.replace(schedule, **changed)).safe
