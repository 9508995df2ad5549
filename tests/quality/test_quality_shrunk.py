"""What Hypothesis finds with these strategies shrinks to exactly the smallest counterexample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st

from proofs import strategies
from proofs.arrivals import arrive, misses
from proofs.faulty import FAULTY
from proofs.strategies import LabelledSchedule, Pass
from proofs.timed import execute
from schedule import Policy, Refill, Ring, check, policies
from schedule.operations import Copy, Listing, Record, Run, Wait
from schedule.program import RELOAD, WRITE, lower
from schedule.properties import BLOCK, IDENTITY, MEANING, RAW, WAR, WAW
from schedule.table import AFTER, BEFORE, PRELOAD, RUN, Boundary
from tests.quality.planted import PLANTED, right
from tests.quality.test_quality_refuted import REFUTED

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=3000,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


SMALL = strategies.rings(max_modules=3, max_slots=3)


def smallest(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    return find(strategy, wanted, settings=FIXED)


# ---- rings


@pytest.mark.parametrize("name", REFUTED)
def test_a_ring_shrinks_to_the_smallest_that_enumeration_finds(name: str) -> None:
    policy = PLANTED[name][0]
    found = smallest(strategies.rings(), lambda ring: not check(policy(ring)).safe)
    assert (found.modules, found.slots) == REFUTED[name][0]


# ---- slot maps


def with_map(ring: Ring, slots: tuple[int, ...], target: Any = None) -> Policy:
    assert len(slots) == ring.modules
    return Policy("mapped", lambda step, _: slots[step], target)


def test_a_slot_map_shrinks_to_the_first_that_breaks_its_targets() -> None:
    """The targets are right for ``step % slots`` alone; all in slot 0 is the first map."""
    ring = Ring(4, 2)

    def wrong(slots: tuple[int, ...]) -> bool:
        return not check(with_map(ring, slots, right)(ring)).safe

    assert smallest(strategies.slot_maps(ring), wrong) == (0, 0, 0, 0)

    def wrong_in_two(slots: tuple[int, ...]) -> bool:
        return wrong(slots) and len(set(slots)) == 2

    assert smallest(strategies.slot_maps(ring), wrong_in_two) == (0, 0, 0, 1)


# ---- schedules


def table(*refills: tuple[int, int]) -> tuple[Refill, ...]:
    return tuple(Refill(*pair) for pair in refills)


Tables = tuple[tuple[int, ...], Any, Any, Any]
"""slot_of, preload, before, after; nothing is refilled on enter or leave."""
ONE, SHARED = (0,), (0, 0)
FIRST, TO_AND_FRO = [(0, 0)], [[(0, 1)], [(0, 0)]]
SCHEDULES: dict[str, tuple[int, Tables, Boundary]] = {
    "a module is never copied": (1, (ONE, [], [[]], [[]]), Boundary(RUN, 0)),
    "a refill is lost": (1, (SHARED, FIRST, [[], []], [[(0, 1)], []]), Boundary(RUN, 0)),
    "another module is copied": (
        1,
        (SHARED, FIRST, [[], []], [[(0, 1)], [(0, 1)]]),
        Boundary(RUN, 0),
    ),
    "a refill goes into another slot": (
        2,
        (SHARED, FIRST, [[], []], [[(0, 1)], [(1, 0)]]),
        Boundary(RUN, 0),
    ),
    "a refill comes late": (
        1,
        (SHARED, FIRST, [[], []], [[(0, 0), (0, 1)], []]),
        Boundary(AFTER, 0),
    ),
    "a refill comes early": (
        1,
        (SHARED, FIRST, [[], [(0, 0)]], [[(0, 1)], []]),
        Boundary(BEFORE, 1),
    ),
    "a half's refills are missing": (1, (SHARED, FIRST, [[], []], [[], []]), Boundary(RUN, 0)),
    "a module is overwritten": (
        1,
        (SHARED, FIRST, [[(0, 1)], []], TO_AND_FRO),
        Boundary(BEFORE, 0),
    ),
    "a module is overwritten and restored": (
        1,
        (SHARED, FIRST, [[(0, 1), (0, 0)], []], TO_AND_FRO),
        Boundary(BEFORE, 0),
    ),
    "a preload is missing": (1, (ONE, [], [[]], [[]]), Boundary(PRELOAD, 0)),
    "another module is preloaded": (
        1,
        (SHARED, [*FIRST, (0, 1)], [[], []], TO_AND_FRO),
        Boundary(PRELOAD, 0),
    ),
}


@pytest.mark.parametrize("fault", SCHEDULES)
def test_a_schedule_shrinks_to_the_plainest_with_its_fault(fault: str) -> None:
    slots, (slot_of, preload, before, after), at = SCHEDULES[fault]
    found = smallest(strategies.unsafe_schedules(SMALL), lambda drawn: drawn.fault == fault)
    assert (found.made, found.at, found.slot) == ("derived", at, 0)
    schedule = found.schedule
    assert schedule.ring == Ring(len(slot_of), slots)
    assert (schedule.slot_of, schedule.preload) == (slot_of, table(*preload))
    assert schedule.before == tuple(table(*refills) for refills in before)
    assert schedule.after == tuple(table(*refills) for refills in after)
    assert (schedule.enter, schedule.leave) == (((),), ((),))


def first_shown_late(drawn: LabelledSchedule) -> bool:
    """A user's check that looks at one period only takes this schedule for safe."""
    first = len(list(drawn.schedule.walk(1)))
    violations = check(drawn.schedule).violations
    return bool(violations) and all(violation.run >= first for violation in violations)


def test_a_check_that_stops_after_one_period_is_found_out_by_the_smallest_schedule() -> None:
    found = smallest(strategies.schedules(SMALL), first_shown_late)
    assert (found.fault, found.schedule.ring) == ("a refill is lost", Ring(2, 1))
    assert found.schedule.after == (table((0, 1)), ())


# ---- execution orders


@pytest.mark.parametrize("policy", [policies.chain, policies.restart, policies.rotating])
def test_an_order_that_misses_shrinks_to_one_pass_without_its_first_module(policy: Policy) -> None:
    schedule = policy(Ring(5, 2))

    def missed(order: tuple[Pass, ...]) -> bool:
        return misses(arrive(schedule, [one.modules for one in order])) > 0

    assert smallest(strategies.orders(5), missed) == (Pass("skipped", (1, 2, 3, 4)),)


def test_an_early_exit_that_harms_the_next_pass_is_one_module_short() -> None:
    """What ran had what it needs; the next pass, in order, misses its first module."""
    schedule = policies.chain(Ring(4, 2))

    def harms(order: tuple[Pass, ...]) -> bool:
        kinds = [one.kind for one in order]
        listing = arrive(schedule, [one.modules for one in order])
        return (
            set(kinds[:-1]) == {"ended early"} and kinds[-1] == "in order" and misses(listing) > 0
        )

    found = smallest(strategies.orders(4), harms)
    assert found == (Pass("ended early", (0, 1, 2)), Pass("in order", (0, 1, 2, 3)))


# ---- programs, and delay patterns


PROGRAMS: dict[str, tuple[str, Boundary, set[str]]] = {
    "no fork": ("N=1, K=1, slot_local, one copy stream", Boundary(AFTER, 0), {WAR}),
    "no wait for the copy": ("N=1, K=1, slot_local, one copy stream", Boundary(RUN, 0), {RAW}),
    "stale record": (
        "N=1, K=1, slot_local, one copy stream",
        Boundary(PRELOAD, 0),
        {RAW, MEANING},
    ),
    "another kept": (
        "N=1, K=1, slot_local, one copy stream, written",
        Boundary(WRITE, 0),
        {IDENTITY},
    ),
    "no wait of the host": (
        "N=1, K=1, slot_local, one copy stream, written",
        Boundary(WRITE, 0),
        {RAW, BLOCK},
    ),
    "no order of copies": (
        "N=2, K=1, slot_local, two copy streams, skipped",
        Boundary(RELOAD, 0),
        {RAW, WAW, MEANING},
    ),
}


@pytest.mark.parametrize("fault", PROGRAMS)
def test_a_program_shrinks_to_the_smallest_ring_s_with_its_fault(fault: str) -> None:
    name, at, violates = PROGRAMS[fault]
    small = strategies.rings(max_modules=2, max_slots=2)
    found = smallest(strategies.faulty_programs(small), lambda program: program.fault == fault)
    assert found.at is not None
    assert (found.name, found.at[0], found.violates) == (name, at, violates)


def shown(listing: Listing, delays: tuple[int, ...]) -> list[str]:
    """What takes longer than it must."""
    return [str(one[0]) for one, delay in zip(listing, delays, strict=True) if delay > 1]


def test_a_delay_pattern_shrinks_to_the_one_slow_run_that_shows_the_fault() -> None:
    """Nothing waits for the run to end, and one unit longer is enough for the copy to begin."""
    listing = FAULTY["no fork"](lower(policies.chain(Ring(2, 1))).listing(1))
    found = smallest(strategies.delays(listing), lambda drawn: not execute(listing, drawn).right)
    assert shown(listing, found) == ["compute: run module 1 from slot 0"]
    assert max(found) == 2


def test_a_fault_that_every_timing_shows_shrinks_to_ones() -> None:
    listing = FAULTY["no wait for the copy"](lower(policies.chain(Ring(2, 1))).listing(1))
    found = smallest(strategies.delays(listing), lambda drawn: not execute(listing, drawn).right)
    assert set(found) == {1}
    kinds = {type(one.operation) for one in listing}
    assert kinds == {Copy, Run, Record, Wait}
