"""Each property alone, with the two operations; and the program of the rule that vLLM had."""

from __future__ import annotations

import pytest

from schedule import Ring, policies
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    Copy,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.order import order
from schedule.program import lower
from schedule.properties import BLOCK, IDENTITY, MEANING, ORDERING, RAW, WAR, WAW
from tests.schedule.listings import SECOND, SHOWN, TWO, faults, listing, refill, run, shown, three

ALONE: dict[str, tuple[list[Operation], list[SHOWN]]] = {
    RAW: ([Copy(COPY, 0, 0), Run(COMPUTE, 0, 0)], [(RAW, 1, 0)]),
    WAR: ([*refill(0, 0), *run(0, 0), Copy(COPY, 0, 0)], [(WAR, 6, 5)]),
    WAW: ([Copy(COPY, 0, 0), Copy(SECOND, 0, 1)], [(WAW, 1, 0)]),
    BLOCK: ([Copy(COPY, 0, 1), Write(1)], [(BLOCK, 1, 0)]),
    IDENTITY: (
        [*refill(0, 0), Wait(COMPUTE, landed(0)), Run(COMPUTE, 0, 1)],
        [(IDENTITY, 5, None)],
    ),
    MEANING: ([*refill(0, 0), Wait(COMPUTE, landed(0), 1)], [(MEANING, 4, None)]),
}


@pytest.mark.parametrize("name", ALONE)
def test_each_property_alone_with_its_two_operations(name: str) -> None:
    operations, expected = ALONE[name]
    assert faults(*operations, streams=TWO) == expected
    found = order(listing(*operations), TWO)
    assert not found.safe
    others = [each for each in (*ORDERING, IDENTITY, MEANING) if each != name]
    assert found.holds(*others)
    assert not found.holds(name)
    assert found.holds(*ORDERING) is (name not in ORDERING)


def test_nothing_is_wrong_with_nothing() -> None:
    found = order(())
    assert (found.faults, found.tasks, found.lints, found.safe) == ((), (), (), True)
    assert faults(*refill(0, 0), *run(0, 0), *refill(0, 1), *run(0, 1)) == []


# ---- hazards are of one slot


def test_another_slot_conflicts_with_nothing() -> None:
    assert faults(*refill(0, 0), *run(0, 0), Copy(COPY, 1, 1)) == []
    assert faults(Copy(COPY, 0, 0), Copy(SECOND, 1, 0), streams=TWO) == []


def test_every_stream_that_is_not_ordered_is_named() -> None:
    both = Copy(COPY, 0, 0), Copy(SECOND, 0, 1)
    assert faults(*both, Run(COMPUTE, 0, 1), streams=TWO) == [
        (WAW, 1, 0),
        (RAW, 2, 0),
        (RAW, 2, 1),
    ]


def test_of_one_stream_the_latest_access_is_named() -> None:
    twice = Copy(COPY, 0, 0), Copy(COPY, 0, 0)
    assert faults(*twice, Run(COMPUTE, 0, 0)) == [(RAW, 2, 1)]
    first = Copy(COPY, 0, 0), Record(COPY, landed(0)), Copy(COPY, 0, 0)
    assert faults(*first, Wait(COMPUTE, landed(0)), Run(COMPUTE, 0, 0)) == [(RAW, 4, 2)]


def test_copies_of_one_stream_keep_their_order() -> None:
    assert faults(Copy(COPY, 0, 0), Copy(COPY, 0, 1)) == []


# ---- what a wait means


def test_a_wait_that_takes_a_record_from_before_the_copy() -> None:
    stale = Record(COPY, landed(0)), Copy(COPY, 0, 0)
    assert faults(*stale, *run(0, 0)) == [(MEANING, 2, None), (RAW, 3, 1)]


def test_a_wait_that_takes_the_record_of_an_older_copy() -> None:
    newer = *refill(0, 0), Copy(COPY, 0, 1)
    assert faults(*newer, *run(0, 1)) == [(MEANING, 5, None), (RAW, 6, 4)]


def test_a_wait_that_gets_another_modules_copy() -> None:
    assert faults(*refill(0, 1), *run(0, 0)) == [(MEANING, 4, None), (IDENTITY, 5, None)]
    newer = *refill(0, 0), *refill(0, 1)
    assert faults(*newer, *run(0, 0)) == [(MEANING, 8, None), (IDENTITY, 9, None)]


def test_a_wait_that_gets_no_copy_at_all() -> None:
    assert faults(*run(0, 0)) == [(MEANING, 0, None), (IDENTITY, 1, None)]


def test_a_wait_that_means_nothing_in_particular_is_not_wrong() -> None:
    assert faults(Wait(COMPUTE, landed(0)), Wait(COPY, landed(1))) == []


# ---- the old rule: perfectly ordered, and wrong


def test_the_old_rule_is_ordered_and_reads_another_modules_weights() -> None:
    found = three(lower(policies.modular(Ring(3, 2))).listing(2))
    assert found.holds(*ORDERING)
    assert shown(found) == [
        (MEANING, 20, None),
        (IDENTITY, 21, None),
        (MEANING, 38, None),
        (IDENTITY, 39, None),
    ]
    wrong = found.listing[21]
    assert (wrong.operation, wrong.boundary) == (Run(COMPUTE, 0, 2), ("run", 2))
    assert found.listing[39] == (Run(COMPUTE, 0, 2), ("run", 5))


def test_on_one_stream_nothing_but_identity_shows() -> None:
    shared = Streams((COMPUTE,))
    found = three(lower(policies.modular(Ring(3, 2)), shared).listing(1), shared)
    assert shown(found) == [(IDENTITY, 6, None)]


@pytest.mark.parametrize("streams", [Streams(), TWO, Streams((COMPUTE,)), Streams((COMPUTE, COPY))])
@pytest.mark.parametrize("name", ["chain", "slot_local", "balanced"])
def test_a_safe_policy_is_ordered_on_any_streams(name: str, streams: Streams) -> None:
    for modules, slots in ((1, 1), (2, 1), (2, 2), (3, 2)):
        if slots >= policies.NAMED[name].least_slots:
            schedule = policies.NAMED[name](Ring(modules, slots))
            assert three(lower(schedule, streams).listing(2), streams).safe
            assert three(lower_captured(schedule, streams).listing(2), streams).safe
