"""Candidates, their schedules and their pace, against the program itself; and parts of modules."""

from __future__ import annotations

from random import Random

import pytest

from schedule import Ring, check, policies
from schedule.arithmetic import in_order_of_use
from schedule.costs import Module, Part, Times
from schedule.operations import COMPUTE, Streams
from schedule.pace import actions_of, pace, replay_pace
from schedule.parts import MOST, choices
from schedule.space import Candidate, needed, planned, shuttled
from schedule.table import Refill
from schedule.timing import steady

STREAMS = {0: Streams((COMPUTE,)), 1: Streams(), 2: Streams(("one", "other"))}


def times(random: Random, modules: int, streams: int) -> Times:
    return Times(
        tuple(random.randint(0, 4) for _ in range(modules)),
        tuple(random.randint(0, 2) for _ in range(modules + 1)),
        tuple(random.randint(0, 6) for _ in range(modules)),
        STREAMS[streams],
    )


@pytest.mark.parametrize("streams", STREAMS)
def test_the_pace_is_the_programs_own(streams: int) -> None:
    random = Random(streams)
    for _ in range(60):
        ring = Ring(random.randint(1, 9), random.randint(1, 6))
        took = times(random, ring.modules, streams)
        for policy in policies.NAMED.values():
            if policy.least_slots > ring.slots:
                continue
            schedule = policy(ring)
            actions = actions_of(schedule, took)
            found = pace(actions, ring.slots, streams) / schedule.period
            assert found == steady(schedule, took).time
            if schedule.period == 1:
                found = replay_pace(actions, ring.slots, streams)
                assert found == steady(schedule, took, captured=True).time


def test_every_candidate_is_safe_and_copies_nothing_in_vain() -> None:
    random = Random(2)
    sooner = 0
    for _ in range(400):
        modules, passes = random.randint(1, 8), random.choice((1, 1, 2, 3))
        slot_of = tuple(random.randrange(random.randint(1, 5)) for _ in range(modules * passes))
        took, found = times(random, modules, 1), []
        for by_use in (False, True):
            schedule = planned(Candidate((1,) * modules, slot_of, by_use), modules)
            assert check(schedule).safe
            assert not check(schedule).lints
            found.append(steady(schedule, took).time)
        sooner += found[1] < found[0]
    assert sooner > 20  # the order of use is better in some, in others not


def test_the_order_of_use_by_hand() -> None:
    # Slot 0 is released by 0, and used next by 4; slot 1 is released by 1, and used by 2, first.
    # 0 and 1 are used in the next period, and counted on.
    assert in_order_of_use((0, 1, 1, 2, 0), 5) == ((), (2, 4), (), (), (5, 6))
    schedule = planned(Candidate((1,) * 5, (0, 1, 1, 2, 0), by_use=True), 5)
    assert schedule.after == (
        (),
        (Refill(1, 2), Refill(0, 4)),
        (),
        (),
        (Refill(0, 0), Refill(1, 1)),
    )
    assert schedule.preload == (Refill(0, 0), Refill(1, 1), Refill(2, 3))


def test_a_slot_is_as_large_as_what_moves_through_it() -> None:
    # 0 and 2 share a slot of 6; 1 has its own; of 0 two bytes stay.
    candidate = Candidate((3, 9, 6), (0, 1, 0))
    assert needed(candidate, (5, 9, 6)) == 6 + 9 + 2
    assert shuttled(candidate) == {0, 2}
    assert shuttled(Candidate((1, 1), (0, 1, 0, 0))) == {0, 1}


def test_what_may_move_of_a_module() -> None:
    parts = (Part("a", 5), Part("b", 3), Part("c", 2), Part("none", 0))
    found = choices(Module("m", parts, 1), parts=True)
    assert found.moved == (1, 3, 4, 6, 8, 9, 11)  # all but nothing, and 6 in two ways
    assert [sum(parts[one].size for one in kept) for kept in found.kept] == [10, 8, 7, 5, 3, 2, 0]
    assert found.parts(4) == {0, 2}
    assert (found.at_most(10), found.at_most(2), found.at_most(0)) == (9, 1, None)
    assert choices(Module("m", parts, 1), parts=False).moved == (11,)


def test_of_many_parts_many_sums_are_looked_at() -> None:
    parts = tuple(Part(f"expert {at}", 1000 + at) for at in range(64))
    module = Module("m", parts, 512)
    found = choices(module, parts=True)
    assert len(found.moved) == MOST
    assert found.moved[-1] == module.size
    for moved, kept in zip(found.moved, found.kept, strict=True):
        assert moved == module.size - sum(parts[one].size for one in kept)
    gaps = [b - a for a, b in zip(found.moved, found.moved[1:], strict=False)]
    assert max(gaps) < 3000
