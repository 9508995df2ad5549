"""Claim 12: what it compares with, and that each thing that may be wrong with a plan is found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from proofs.claims import SEARCHED, claims
from proofs.obligation import System
from proofs.planning import (
    BOUND,
    Static,
    as_slots_fall_free,
    budgets,
    bytes_of,
    in_order_of_use,
    model,
    partitions,
    planning,
    statics,
    wrong_with,
)
from proofs.search import Search, first
from schedule.costs import SECOND, Costs, Link, Module, Part, Workload
from schedule.plan import Plan, plan
from schedule.search import bell
from schedule.space import Candidate, needed, planned
from schedule.table import Refill

(CLAIM,) = (claim for claim in claims(System()) if claim.number == 12)


def test_models_of_few_modules_are_planned_for_at_best() -> None:
    """All of them are looked at by ``make prove``."""
    assert first(planning(System(), modules) for modules in (1, 2)) == Search(40)
    assert (CLAIM.largest, SEARCHED[12]) == (BOUND, 374)


# ---- what it is compared with


def test_every_way_to_share_out_modules_is_there_once() -> None:
    assert [*partitions(3)] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)]
    for modules in range(1, 8):
        every = [*partitions(modules)]
        assert len(set(every)) == len(every) == bell(modules)
        assert all([*dict.fromkeys(one)] == [*range(max(one) + 1)] for one in every)


@pytest.mark.parametrize("modules", range(1, 7))
def test_the_planner_means_the_same_by_its_two_orders(modules: int) -> None:
    for slot_of in partitions(modules):
        for by_use, other in (False, as_slots_fall_free(slot_of)), (True, in_order_of_use(slot_of)):
            own = planned(Candidate((1,) * modules, slot_of, by_use), modules)
            assert (own.slot_of, own.after) == (other.slot_of, other.after)


def test_refills_in_the_order_of_use_by_hand() -> None:
    """Slots 0 1 1 0: 2 waits for 1, and 3, whose slot is free before, for 2's refill; 0 waits for
    3, and 1, whose slot is free before that, for 0's."""
    assert as_slots_fall_free((0, 1, 1, 0)).after == (
        (Refill(0, 3),),
        (Refill(1, 2),),
        (Refill(1, 1),),
        (Refill(0, 0),),
    )
    assert in_order_of_use((0, 1, 1, 0)).after == (
        (),
        (Refill(1, 2), Refill(0, 3)),
        (),
        (Refill(0, 0), Refill(1, 1)),
    )


@pytest.mark.parametrize(
    ("slot_of", "moved", "expected"),
    [
        ((0, 0, 0), (5, 3, 4), 5),
        ((0, 1, 2), (5, 3, 4), 12),
        ((0, 1, 0), (5, 3, 4), 8),
        ((0, 0, 0), (2, 3, 1), 3 + 3 + 0 + 3),
        ((0, 1, 0), (2, 3, 4), 4 + 3 + 3),
        ((0, 1, 0, 1, 0, 1), (5, 3, 4), 10),  # of two passes
    ],
)
def test_bytes_by_hand(slot_of: tuple[int, ...], moved: tuple[int, ...], expected: int) -> None:
    assert bytes_of(slot_of, moved, (5, 3, 4)) == expected
    assert needed(Candidate(moved, slot_of), (5, 3, 4)) == expected


def test_every_choice_of_parts_is_there() -> None:
    """Two modules in one slot: of the first 7, 6, 5, 4, 3, 2 or 1 move, of the other 2; or each in
    its own."""
    parts = tuple(Part(f"p{size}", size) for size in (1, 2, 3))
    modules = Module("a", parts, 1), Module("b", (Part("p", 2),))
    costs = Costs(modules, (Workload("decode", (1, 1), (0, 0, 0)),), Link(SECOND))
    every = [*statics(costs, False)]
    shared = [(7 if size > 1 else 8, size, 2 + size + 2) for size in range(1, 8)]
    expected = {Static((0, 0), (size, 2), memory, Fraction(time)) for memory, size, time in shared}
    assert {*every} == {*expected, Static((0, 1), (7, 2), 9, Fraction(2))}
    assert budgets(every) == [7, 8, 9]


def test_the_models_are_of_every_kind() -> None:
    found = [model(modules, number) for modules in range(1, BOUND + 1) for number in range(4)]
    assert {one.link.streams for one in found} == {0, 1, 2}
    assert {one.link.latency > 0 for one in found} == {False, True}
    assert {len(one.workloads) for one in found} == {1, 2}
    assert any(len(module.parts) > 1 and module.fixed for one in found for module in one.modules)
    assert sum(len(set(one.sizes)) > 1 for one in found) >= 12
    assert sum(one.workloads[0].total < one.link.time(sum(one.sizes)) for one in found) >= 12


def test_times_that_are_almost_equal_are_told_apart() -> None:
    """Copies that take a little longer than the runs beside them fall behind for hundreds of
    passes, and look as if they did not."""
    sizes, run = (998, 1002, 1002, 1001, 1002, 1000), (999, 998, 1002, 999, 997, 999)
    modules = tuple(Module(f"m{at}", (), size) for at, size in enumerate(sizes))
    costs = Costs(modules, (Workload("decode", run, (0,) * 7),), Link(SECOND))
    every = [*statics(costs, False)]
    for memory, expected in (3005, 6003), (3006, 6002), (4003, 5994):
        best = min((one for one in every if one.memory <= memory), key=lambda one: one.time)
        assert best.time == expected
        assert wrong_with(plan(costs, memory), best) is None


# ---- what may be wrong with a plan

COSTS = Costs(
    tuple(Module(f"m{at}", (Part("w", 3), Part("b", 1))) for at in range(3)),
    (Workload("decode", (1, 2, 1), (0,) * 4),),
    Link(SECOND),
    resident=5,
)


def good() -> tuple[Plan, Static]:
    every = [one for one in statics(COSTS, False) if one.memory <= 10]
    return plan(COSTS, 15), min(every, key=lambda one: one.time)


def test_a_good_plan() -> None:
    found, best = good()
    assert wrong_with(found, best) is None
    assert (found.time, best.time) == (7, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": Fraction(15, 2)}, "it takes 15/2; slots (0, "),
        ({"exact": False}, "it takes 7, not exact; slots (0, "),
        ({"moved": (4, 4, 4)}, "are kept and (4, 4, 4) bytes moved of (4, 4, 4)"),
        ({"kept": ((), (), ())}, "((), (), ()) are kept and "),
        ({"memory": 14}, "it needs 15 bytes and says 14"),
        ({"budget": 14}, "it needs 15 bytes and says 15"),
        ({"times": {"decode": Fraction(6)}}, "decode takes 7 and not 6"),
        ({"bounds": {"decode": Fraction(8)}}, "decode takes 7, less than 8"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(change: dict[str, Any], message: str) -> None:
    found, best = good()
    assert message in (wrong_with(replace(found, **change), best) or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preload": ()}, "its program is not ordered"),
        ({"policy": "two\nlines"}, "its certificate is refused: names can be printed"),
    ],
)
def test_a_plan_that_is_not_safe_is_found(change: dict[str, Any], message: str) -> None:
    """Nothing makes one: here the schedule is changed behind the back of who verified it."""
    found, best = good()
    changed = replace(found.verified)
    object.__setattr__(changed, "schedule", replace(found.schedule, **change))
    assert wrong_with(replace(found, verified=changed), best) == message
