"""The tables of the named policies: targets, slot maps, distances, copies and thrift."""

from __future__ import annotations

import pytest

from schedule import Policy, Ring, Schedule, check, policies
from schedule.table import Moment
from tests.walk import walk

LIMIT = 64
RINGS = [Ring(modules, slots) for modules in range(1, LIMIT + 1) for slots in range(1, LIMIT + 1)]
TIGHT = [ring for ring in RINGS if ring.slots < ring.modules]
DERIVED = ("chain", "balanced", "double_buffer", "single_buffer")


def rings_for(policy: Policy, rings: list[Ring]) -> list[Ring]:
    return [ring for ring in rings if ring.slots >= policy.least_slots]


def targets(schedule: Schedule) -> list[int | None]:
    """By step: the one module refilled after it, or None."""
    assert all(len(refills) <= 1 for refills in schedule.after)
    return [refills[0].module if refills else None for refills in schedule.after]


def smallest_distance(schedule: Schedule) -> int:
    """Over all modules: steps from its run to the next run from the same slot, its own run in
    the next pass if it is alone there."""
    slot_of, modules = schedule.slot_of, schedule.ring.modules
    distances = []
    for module in range(modules):
        distance = 1
        while slot_of[(module + distance) % modules] != slot_of[module]:
            distance += 1
        distances.append(distance)
    return min(distances)


def lints_of(name: str, ring: Ring) -> list[Moment]:
    return [lint.refill for lint in check(policies.NAMED[name](ring)).lints]


@pytest.mark.parametrize(
    ("modules", "slots", "expected"),
    [
        (3, 1, [1, 2, 0]),
        (3, 2, [2, 1, 0]),
        (4, 2, [2, 3, 0, 1]),
        (5, 2, [2, 3, 4, 1, 0]),
        (3, 3, [0, 1, 2]),
        (3, 4, [1, 2, 0]),
    ],
)
def test_slot_local_targets(modules: int, slots: int, expected: list[int]) -> None:
    assert targets(policies.slot_local(Ring(modules, slots))) == expected


def test_slot_local_closed_form() -> None:
    for ring in TIGHT:
        n, k = ring.modules, ring.slots
        expected = [i + k if i + k < n else i % k for i in range(n)]
        assert targets(policies.slot_local(ring)) == expected, ring


def test_chain_is_slot_local_without_refills_of_what_is_there() -> None:
    for ring in TIGHT:
        slot_local, chain = policies.slot_local(ring), policies.chain(ring)
        useless = {place.step for place in walk(slot_local, periods=2).own}
        kept = tuple(() if i in useless else refills for i, refills in enumerate(slot_local.after))
        assert chain.slot_of == slot_local.slot_of, ring
        assert chain.preload == slot_local.preload, ring
        assert chain.after == kept, ring


@pytest.mark.parametrize("name", ["modular", "slot_local", *DERIVED])
def test_preload_is_the_first_user_of_each_used_slot(name: str) -> None:
    policy = policies.NAMED[name]
    for ring in rings_for(policy, RINGS):
        if ring.modules % 3 and ring.slots % 3:
            continue
        schedule = policy(ring)
        used = sorted(set(schedule.slot_of))
        assert len(schedule.slot_of) == ring.modules
        assert set(used) <= set(range(ring.slots)), ring
        assert list(schedule.preload) == [(s, schedule.slot_of.index(s)) for s in used], ring
        assert not any([*schedule.enter, *schedule.before, *schedule.leave]), ring
        # Spare memory is never left idle.
        assert len(used) == min(ring.slots, ring.modules), ring


def test_balanced_reaches_the_best_distance() -> None:
    for ring in TIGHT:
        blocks = -(-ring.modules // ring.slots)
        assert smallest_distance(policies.balanced(ring)) >= ring.modules // blocks, ring


def test_chain_distance_is_the_remainder() -> None:
    for ring in TIGHT:
        expected = ring.modules % ring.slots or ring.slots
        assert smallest_distance(policies.chain(ring)) == expected, ring


@pytest.mark.parametrize(
    ("modules", "slots", "chain", "balanced"), [(7, 3, 1, 2), (20, 8, 4, 6), (61, 8, 5, 7)]
)
def test_distance_figures(modules: int, slots: int, chain: int, balanced: int) -> None:
    ring = Ring(modules, slots)
    assert smallest_distance(policies.chain(ring)) == chain
    assert smallest_distance(policies.balanced(ring)) == balanced


def test_balanced_never_copies_more_than_chain() -> None:
    for ring in RINGS:
        assert policies.balanced(ring).copies <= policies.chain(ring).copies, ring
    assert policies.balanced(Ring(10, 9)).copies == policies.chain(Ring(10, 9)).copies == 2
    assert policies.balanced(Ring(30, 4)).copies == policies.chain(Ring(30, 4)).copies == 30


def test_double_buffer_copies() -> None:
    for ring in TIGHT:
        if 2 <= ring.slots <= ring.modules - 2:
            expected = ring.modules - ring.slots + 2
            assert policies.double_buffer(ring).copies == expected, ring
    assert policies.double_buffer(Ring(9, 8)).copies == 2  # K = N-1: one of the three is alone


def test_single_buffer_copies() -> None:
    for ring in TIGHT:
        expected = ring.modules - ring.slots + 1
        assert policies.single_buffer(ring).copies == expected, ring


@pytest.mark.parametrize("name", DERIVED)
def test_derived_policies_are_thrifty_and_safe(name: str) -> None:
    """And when every module has a slot, nothing is copied after the preload."""
    policy = policies.NAMED[name]
    for ring in rings_for(policy, RINGS):
        schedule = policy(ring)
        assert (schedule.copies == 0) == (ring.slots >= ring.modules), ring
        findings = check(schedule)
        assert findings.safe, ring
        assert findings.lints == (), ring


def test_slot_local_lint_names_the_modules_that_own_their_slot_alone() -> None:
    for ring in RINGS:
        schedule = policies.slot_local(ring)
        if ring.slots >= ring.modules:  # it refills every module, each into its own slot
            alone = list(range(ring.modules))
            expected = [((i + ring.slots) % ring.modules) for i in alone]
        else:
            alone = [i for i, slot in enumerate(schedule.slot_of) if lonely(schedule, slot)]
            expected = alone
        findings = check(schedule)
        found = [lint.refill for lint in findings.lints]
        assert sorted(refill.step for refill in found) == alone, ring
        assert sorted(refill.module for refill in found) == sorted(expected), ring
        assert all(refill.half == "after" for refill in found), ring
        assert findings.safe, ring


def lonely(schedule: Schedule, slot: int) -> bool:
    return schedule.slot_of.count(slot) == 1


@pytest.mark.parametrize(
    ("modules", "slots", "wasted"), [(3, 2, 1), (10, 9, 8), (3, 3, 3), (3, 4, 3), (4, 2, 0)]
)
def test_slot_local_lint_figures(modules: int, slots: int, wasted: int) -> None:
    ring = Ring(modules, slots)
    assert len(lints_of("slot_local", ring)) == wasted
    assert policies.slot_local(ring).copies == modules


def test_the_lint_says_why() -> None:
    (lint,) = check(policies.slot_local(Ring(3, 2))).lints
    assert lint.refill == Moment("after", 1, 1, 1)
    assert lint.sentence == "slot 1 already holds module 1"


def test_default_policy() -> None:
    assert [policies.default(slots).name for slots in (1, 2, 3)] == [
        "single_buffer",
        "double_buffer",
        "double_buffer",
    ]


@pytest.mark.parametrize(
    ("policy", "modules", "slots", "kept"),
    [
        (policies.double_buffer, 9, 4, (7, 8)),
        (policies.single_buffer, 5, 3, (3, 4)),
        (policies.slot_local, 3, 2, (1,)),
        (policies.chain, 3, 3, (0, 1, 2)),
        (policies.restart, 3, 2, (1,)),  # though it is copied anew in every pass
        (policies.rotating, 3, 2, ()),
    ],
)
def test_kept_are_the_modules_that_share_no_slot(
    policy: policies.Policy, modules: int, slots: int, kept: tuple[int, ...]
) -> None:
    assert policy(Ring(modules, slots)).kept() == kept
