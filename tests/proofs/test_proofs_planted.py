"""Faults planted into schedules: each violates what it says, by the check, the machine, a walk."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from proofs.enumeration import rings
from proofs.planted import PLANTED, gap, line_of, put, refills_at
from schedule import Policy, Refill, Ring, Schedule, check, machine, policies
from schedule.properties import CLOSURE, IDENTITY, OWNERSHIP, PROGRESS
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary
from tests.walk import walk

SAFE = [policy for policy in policies.NAMED.values() if policy is not policies.modular]


def mapped(ring: Ring, slot_of: tuple[int, ...]) -> Schedule:
    passes = len(slot_of) // ring.modules
    return Policy("mapped", lambda step, _: slot_of[step], passes=lambda _: passes)(ring)


def schedules() -> list[Schedule]:
    """Every named policy's to 3x3, and every slot map's of three modules, or two passes of two."""
    found = [policy(ring) for policy in SAFE for ring in rings(policy, 3, 0)]
    found += [mapped(Ring(3, 2), slots) for slots in product(range(2), repeat=3)]
    return [*found, *(mapped(Ring(2, 2), slots) for slots in product(range(2), repeat=4))]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_violates_what_it_says_at_every_place(fault: str) -> None:
    violates, plant = PLANTED[fault]
    by_machine = OWNERSHIP if violates == OWNERSHIP else IDENTITY
    places = 0
    for schedule in schedules():
        for planted in plant(schedule):
            places += 1
            assert violates in [one.property for one in check(planted.schedule).violations]
            assert violates in walk(planted.schedule).violated
            if fault != "a module is overwritten and restored":
                assert by_machine in machine.run(planted.schedule, 3)
            assert planted.slot in range(schedule.ring.slots)
    assert places >= 30, places


def test_only_what_is_restored_violates_ownership_alone() -> None:
    _, plant = PLANTED["a module is overwritten and restored"]
    for schedule in schedules():
        for planted in plant(schedule):
            assert [one.property for one in check(planted.schedule).violations] == [OWNERSHIP]
            assert set(machine.run(planted.schedule, 3)) == {OWNERSHIP}


def test_every_property_is_violated_by_some_fault() -> None:
    assert {name for name, _ in PLANTED.values()} == {OWNERSHIP, PROGRESS, IDENTITY, CLOSURE}


def test_the_places_of_one_schedule() -> None:
    """Two modules to and fro in slot 0, the third one alone."""
    schedule = policies.chain(Ring(3, 2))
    count = Counter({name: len(list(plant(schedule))) for name, (_, plant) in PLANTED.items()})
    assert count == {
        "a module is never copied": 3,
        "a refill is lost": 2,
        "another module is copied": 4,
        "a refill goes into another slot": 2,
        "a refill comes late": 2,
        "a refill comes early": 2,
        "a half's refills are missing": 1,
        "a module is overwritten": 6,
        "a module is overwritten and restored": 6,
        "a preload is missing": 2,
        "another module is preloaded": 4,
    }


# ---- the tables, boundary by boundary


def test_a_period_s_boundaries_are_the_walk_s() -> None:
    line = line_of(2, 2)
    halves = [(ENTER, 0), (BEFORE, 0), (RUN, 0), (AFTER, 0), (BEFORE, 1), (RUN, 1), (AFTER, 1)]
    halves += [(LEAVE, 1)]
    assert line == (*halves, *((half, step + 2) for half, step in halves))


def test_a_gap_reaches_across_the_end_of_the_period() -> None:
    line = line_of(3, 1)
    assert gap(line, (0, 1, 0), 2) == ((*line[3:5], *line[6:8]), 0)
    assert gap(line, (0, 1, 0), 0) == ((*line[9:], *line[:2]), 2)
    own, before = gap(line, (0, 1, 0), 1)
    assert (before, len(own)) == (1, 8)


@pytest.mark.parametrize("half", [PRELOAD, ENTER, BEFORE, AFTER, LEAVE])
def test_refills_are_put_where_they_are_found(half: str) -> None:
    schedule = mapped(Ring(2, 2), (0, 1, 1, 0))
    at = Boundary(half, {PRELOAD: 0, ENTER: 2}.get(half, 3))
    changed = put(schedule, at, [Refill(1, 1)])
    assert refills_at(changed, at) == (Refill(1, 1),)
    assert put(changed, at, refills_at(schedule, at)) == schedule
    moments = [moment for moment in changed.walk(1) if moment.half == half]
    assert (half, at.step, 1, 1) in moments
