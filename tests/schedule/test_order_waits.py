"""What records, waits, host writes and pageable copies mean: every engine, by listings by hand."""

from __future__ import annotations

import pytest

from schedule import Refill, Ring, policies
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Operations,
    Record,
    Run,
    Wait,
    Write,
    landed,
)
from schedule.order import NOTHING, order, start
from schedule.program import lower, lower_join, lower_refills
from schedule.properties import BLOCK, IDENTITY, MEANING, RAW, WAR, WAW
from tests.schedule.listings import DRAINED, SECOND, TWO, faults, host_write, listing, refill, run

COPIED = Copy(COPY, 0, 0)
RUNS = Run(COMPUTE, 0, 0)

# ---- the latest record at the time of the call


def test_a_wait_for_what_was_never_recorded_waits_for_nothing() -> None:
    assert faults(COPIED, Wait(COMPUTE, landed(0)), RUNS) == [(RAW, 2, 0)]


def test_a_wait_for_a_record_that_is_issued_later_waits_for_nothing() -> None:
    wait, record = Wait(COMPUTE, landed(0)), Record(COPY, landed(0))
    assert faults(COPIED, wait, record, RUNS) == [(RAW, 3, 0)]
    assert faults(COPIED, record, wait, RUNS) == []


def test_a_wait_keeps_the_record_of_the_time_of_its_call() -> None:
    assert faults(
        COPIED,
        Record(COPY, DRAINED),
        Wait(COMPUTE, DRAINED),
        Copy(COPY, 1, 1),
        Record(COPY, DRAINED),
        RUNS,
        Run(COMPUTE, 1, 1),
    ) == [(RAW, 6, 3)]


def test_a_wait_takes_the_latest_of_two_records() -> None:
    twice = COPIED, Record(COPY, DRAINED), Copy(COPY, 1, 1), Record(COPY, DRAINED)
    assert faults(*twice, Wait(COMPUTE, DRAINED), RUNS, Run(COMPUTE, 1, 1)) == []


def test_a_record_does_not_cover_what_its_stream_is_given_later() -> None:
    record = Record(COPY, landed(0))
    assert faults(record, COPIED, Wait(COMPUTE, landed(0)), RUNS) == [(RAW, 3, 1)]


def test_a_record_by_another_stream_takes_the_place_of_the_first() -> None:
    again = COPIED, Record(COPY, landed(0)), Record(COMPUTE, landed(0))
    assert faults(*again, Wait(COMPUTE, landed(0)), RUNS) == [(RAW, 4, 0)]
    assert faults(*again, *run(0, 0)) == [(MEANING, 3, None), (RAW, 4, 0)]
    ordered = COPIED, Record(COPY, RAN), Wait(COMPUTE, RAN), Record(COMPUTE, landed(0))
    assert faults(*ordered, *run(0, 0)) == []


def test_order_goes_on_through_a_third_stream() -> None:
    through = Record(COPY, RAN), Wait(SECOND, RAN), Record(SECOND, DRAINED)
    last = Wait(COMPUTE, DRAINED), RUNS
    assert faults(COPIED, *through, *last, streams=TWO) == []
    assert faults(COPIED, *through[:1], *through[2:], *last, streams=TWO) == [(RAW, 4, 0)]


# ---- the host


def test_a_wait_of_the_host_orders_what_is_issued_later_on_every_stream() -> None:
    waited = COPIED, Record(COPY, DRAINED), Wait(HOST, DRAINED)
    assert faults(*waited, RUNS) == []
    assert faults(*waited, Copy(SECOND, 0, 1), streams=TWO) == []


def test_a_wait_of_the_host_orders_nothing_that_was_issued_before() -> None:
    before = COPIED, Record(COPY, DRAINED), RUNS, Wait(HOST, DRAINED), RUNS
    assert faults(*before) == [(RAW, 2, 0)]


def test_the_host_waits_for_what_the_stream_waited_for() -> None:
    fence = COPIED, Record(COPY, landed(0)), Wait(COMPUTE, landed(0)), Record(COMPUTE, RAN)
    assert faults(*fence, Wait(HOST, RAN), Copy(SECOND, 0, 1), streams=TWO) == []
    assert faults(*fence, Wait(HOST, RAN), Write(0)) == []


# ---- a host block


def test_the_host_may_not_write_a_block_that_is_copied() -> None:
    assert faults(COPIED, Write(0)) == [(BLOCK, 1, 0)]
    assert faults(COPIED, Record(COPY, DRAINED), Write(0)) == [(BLOCK, 2, 0)]


def test_a_write_waits_for_its_readers_and_for_no_other_block() -> None:
    assert faults(COPIED, *host_write(0)) == []
    assert faults(COPIED, Write(1)) == []
    assert faults(Write(0), COPIED) == []
    assert faults(RUNS, Write(0)) == [(IDENTITY, 0, None)]


def test_a_write_meets_each_stream_that_reads_its_block() -> None:
    both = COPIED, Copy(SECOND, 1, 0)
    assert faults(*both, Write(0), streams=TWO) == [(BLOCK, 2, 0), (BLOCK, 2, 1)]
    assert faults(*both, *host_write(0, TWO), streams=TWO) == [(BLOCK, 4, 1)]


def test_a_write_waits_for_the_latest_copy_too() -> None:
    early = COPIED, Record(COPY, DRAINED), COPIED, Wait(HOST, DRAINED), Write(0)
    assert faults(*early) == [(BLOCK, 4, 2)]


# ---- pageable memory

PAGED = Copy(COPY, 0, 0, True)


def test_no_order_is_taken_from_a_pageable_copy() -> None:
    assert faults(PAGED, RUNS) == [(RAW, 1, 0)]
    assert faults(PAGED, Copy(SECOND, 0, 1), streams=TWO) == [(WAW, 1, 0)]
    assert faults(*run_then(PAGED)) == [(WAR, 4, 3)]


def run_then(copy: Copy) -> Operations:
    return *refill(0, 0)[2:], *run(0, 0), copy


def test_an_event_after_a_pageable_copy_orders_it() -> None:
    assert faults(PAGED, Record(COPY, landed(0)), *run(0, 0)) == []


def test_a_pageable_block_is_free_when_the_call_returns() -> None:
    assert faults(PAGED, Write(0)) == []
    assert faults(COPIED, PAGED, Write(0)) == [(BLOCK, 2, 0)]


def test_pageable_copies_are_named_as_lints_and_are_no_faults() -> None:
    found = order(listing(PAGED, COPIED, Copy(COPY, 1, 1, True)))
    assert (found.lints, found.faults, found.safe) == ((0, 2), (), True)


# ---- what came before the listing


def earlier_model() -> Operations:
    """Another model's pass, that still reads memory which slot 0 is given now."""
    return *refill(0, 2), *run(0, 2)


@pytest.mark.parametrize("policy", ["chain", "slot_local", "single_buffer"])
def test_the_preload_waits_for_the_compute_stream(policy: str) -> None:
    preload = lower(policies.NAMED[policy](Ring(3, 2))).preload
    assert faults(*earlier_model(), *preload) == []
    unfenced = [one for one in preload if one not in (Record(COMPUTE, RAN), Wait(COPY, RAN))]
    assert faults(*earlier_model(), *unfenced) == [(WAR, 6, 5)]


def test_a_refill_of_two_streams_waits_for_the_other_copy_into_the_slot() -> None:
    twice = lower_refills([Refill(0, 0), Refill(0, 1)], TWO)
    assert faults(*twice, streams=TWO) == []
    unfenced = [one for one in twice if one != Wait(SECOND, landed(0))]
    assert faults(*unfenced, streams=TWO) == [(WAW, 7, 3)]


def test_a_join_orders_every_copy_stream() -> None:
    both = COPIED, Copy(SECOND, 1, 1)
    reads = RUNS, Run(COMPUTE, 1, 1)
    assert faults(*both, *lower_join(TWO), *reads, streams=TWO) == []
    assert faults(*both, *lower_join(), *reads, streams=TWO) == [(RAW, 5, 1)]


def test_an_order_from_a_given_state_knows_what_came_before() -> None:
    begun = start()
    begun = begun._replace(read=begun.read.put(0, {COMPUTE: 1}))
    (fault,) = order(listing(COPIED), state=begun).faults
    assert (fault.property, fault.later, fault.earlier) == (WAR, 0, None)
    covered = start()
    covered = covered._replace(read=covered.read.put(0, NOTHING))
    assert order(listing(COPIED), state=covered).safe
