"""The symbolic slots, slot maps and next users admit everything that is real, and little else."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import z3

from proofs.integers import SymInt
from proofs.slotfile import AnySlotMap, NextUserAt, OneSlot, any_ring, next_users
from proofs.symbolic import Run, explore, satisfiable
from schedule import Ring, policies
from schedule.ring import EMPTY


def admits(run: Run, *conditions: Any) -> bool:
    """Whether the path allows these conditions, products being true products."""
    products = [z3.Int(name) == z3.Int(x) * z3.Int(y) for name, (x, y) in run.products.items()]
    answer = satisfiable([*run.conditions, *products, *(one.term for one in conditions)])
    assert answer != z3.unknown
    return bool(answer == z3.sat)


# ---- sizes


@pytest.mark.parametrize("least", [1, 2, 5])
def test_any_ring_is_any_ring(least: int) -> None:
    run = Run()
    ring = any_ring(run, least)
    for modules, slots in [(1, least), (10**9, least), (1, 10**9), (10**9, 10**9 + 7)]:
        assert admits(run, ring.modules == modules, ring.slots == slots)
    assert not admits(run, ring.modules < 1)
    assert not admits(run, ring.slots < least)


# ---- one slot of many


def test_a_write_is_read_from_its_slot_and_from_no_other() -> None:
    def body(run: Run) -> tuple[Run, Any, Any, Any]:
        s, t, m = (run.integer(name) for name in "stm")
        table = OneSlot(run, s, EMPTY).put(t, m)
        return run, s == t, table[s], table[t]

    found = [path.result for path in explore(body)]
    assert len(found) == 2
    for run, same, mine, its in found:
        if admits(run, same):
            assert mine is its
            assert mine.terms == (("m", 1),)
        else:
            assert mine == EMPTY  # the write went elsewhere
            assert admits(run, its == -1)  # of which nothing is known
            assert admits(run, its == 1_000_000)


# ---- slot maps


def test_any_slot_map_is_every_map_into_the_slots() -> None:
    run = Run()
    ring = any_ring(run)
    maps = AnySlotMap(run, [])
    run.assume(ring.slots == 3)
    slots = [maps(run.number(step), ring) for step in range(3)]
    for values in product(range(3), repeat=3):
        assert admits(run, *(slot == value for slot, value in zip(slots, values, strict=True)))
    assert not admits(run, slots[1] == 3)
    assert not admits(run, slots[1] == -1)


def test_any_slot_map_gives_equal_steps_equal_slots() -> None:
    run = Run()
    ring = any_ring(run)
    maps = AnySlotMap(run, [])
    i, j, other = (run.integer(name) for name in "ijo")
    at_i, _, at_j = maps(i, ring), maps(other, ring), maps(j, ring)
    assert admits(run, at_i != at_j)
    run.assume(i == j)
    assert admits(run, at_i == at_j)
    assert not admits(run, at_i != at_j)


# ---- next users

RINGS = [Ring(1, 1), Ring(2, 3), Ring(3, 2), Ring(4, 2)]
NAMED = [policies.chain, policies.balanced, policies.single_buffer]


@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("ring", RINGS)
def test_next_users_are_those_of_the_finished_table(ring: Ring, policy: Any) -> None:
    schedule = policy(ring)
    users = schedule.users()
    for slot in range(ring.slots):
        for step in range(ring.modules + 1):
            expected = schedule.next_user(users, slot, step)
            assert admitted(ring, schedule.slot_of, slot, step) == ({expected} - {EMPTY})


def admitted(ring: Ring, slot_of: tuple[int, ...], slot: int, step: int) -> set[int]:
    """The next users that are possible for this table, if every step is given as a point."""

    def body(run: Run) -> tuple[Run, SymInt]:
        sizes, maps = any_ring(run), AnySlotMap(run, [])
        run.assume(sizes.modules == ring.modules, sizes.slots == ring.slots)
        for index, its_slot in enumerate(slot_of):
            run.assume(maps(run.number(index), sizes) == its_slot)
        points = [run.number(index) for index in range(ring.modules)]
        (user,) = next_users(run, sizes, maps, run.number(slot), [run.number(step)], points)
        return run, user

    possible = set()
    for path in explore(body):
        run, user = path.result
        possible |= {value for value in range(-1, ring.modules + 2) if admits(run, user == value)}
    return possible


def test_a_step_that_is_no_point_may_be_used_by_anyone() -> None:
    """Weaker than the definition, hence sound: the true next user is among those possible."""

    def body(run: Run) -> tuple[Run, Any]:
        ring = any_ring(run)
        run.assume(ring.modules == 6, ring.slots == 2)
        (user,) = next_users(run, ring, policies.cyclic_slot, run.number(1), [run.number(0)], [])
        return run, user

    found = [path.result for path in explore(body)]
    possible = {v for run, user in found for v in range(-1, 8) if admits(run, user == v)}
    assert possible == {1, 3, 5}


def test_the_next_user_is_known_where_it_was_asked_for_only() -> None:
    run = Run()
    s, i, user = (run.integer(name) for name in ("s", "i", "user"))
    run.assume(user == 7)
    known = NextUserAt(run, s, ((i, user),))
    assert known(s, i) is user
    assert known(s, i + 1 - 1) is user
    elsewhere = known(s, i + 1)
    assert admits(run, elsewhere == 7)
    assert admits(run, elsewhere == -1)


def test_the_next_user_of_another_slot_is_not_known() -> None:
    def body(run: Run) -> tuple[Run, Any]:
        s, i = run.integer("s"), run.integer("i")
        run.assume(run.integer("t") != s)
        return run, NextUserAt(run, s, ((i, run.number(7)),))(run.integer("t"), i)

    (path,) = explore(body)
    run, user = path.result
    assert admits(run, user == 7)
    assert admits(run, user == 8)
