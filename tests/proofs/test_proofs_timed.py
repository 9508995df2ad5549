"""A program under one delay pattern: times and readings by hand, and against the other engines."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs import strategies
from proofs.cases import cases
from proofs.faulty import FAULTY
from proofs.obligation import System
from proofs.strategies import LabelledProgram
from proofs.strategies.programs import HARMLESS, places
from proofs.timed import Executed, execute
from schedule import Ring, policies
from schedule.guard import Copied
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    ONE_COPY_STREAM,
    Copy,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.program import lower
from schedule.tasks import write_out
from tests.schedule.listings import DRAINED, SECOND, TWO, listing, refill, run

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=70)


def executed(
    operations: tuple[Operation, ...], *delays: int, streams: Streams = ONE_COPY_STREAM
) -> Executed:
    return execute(listing(*operations), delays or (1,) * len(operations), streams)


def found(
    operations: tuple[Operation, ...], *delays: int, streams: Streams = ONE_COPY_STREAM
) -> list[tuple[int, ...]]:
    """The modules that each reading found."""
    readings = executed(operations, *delays, streams=streams).readings
    return [tuple(one.module for one in reading.found) for reading in readings]


# ---- by hand


def test_a_refill_and_its_run() -> None:
    """Record, wait, copy, record; wait, run."""
    result = executed((*refill(0, 2), *run(0, 2)), 1, 2, 3, 4, 5, 6)
    #                    ran  ran  copy landed landed run
    assert result.begins == (0, 0, 2, 5, 1, 9)
    assert result.ends == (1, 2, 5, 9, 9, 15)
    (reading,) = result.readings
    assert (reading.task, reading.slot, reading.needs) == (5, 0, Copied(2, 0))
    assert reading.found == (Copied(2, 0),)
    assert result.right


def test_a_run_that_does_not_wait_finds_what_the_copy_has_not_replaced_yet() -> None:
    late = (*refill(0, 1), *run(0, 1), *refill(0, 2), Run(COMPUTE, 0, 2))
    assert found(late) == [(1,), (1, 2)]  # it runs while the copy goes on
    assert not executed(late).right
    slow = (1, 1, 1, 1, 1, 1, 1, 9, 1, 1, 1)  # the copy stream is late
    assert found(late, *slow) == [(1,), (1,)]


def test_a_copy_that_does_not_wait_writes_under_the_run() -> None:
    program = (*refill(0, 1), *run(0, 1), Copy(COPY, 0, 2))
    assert found(program) == [(1, 2)]
    assert found(program, 1, 1, 1, 1, 9, 1, 1) == [(2,)]  # the compute stream is late


def test_two_copies_at_a_time_leave_a_mixture() -> None:
    """Until a copy that is alone."""
    mixture = (Copy(SECOND, 0, 1), Copy(COPY, 0, 2), Record(COPY, landed(0)), *run(0, 2))
    assert found(mixture, streams=TWO) == [(1, 2)]
    assert found(mixture, 1, 9, 1, 1, 1, streams=TWO) == [(1, 2)]
    after = (*mixture, *refill(0, 2), *run(0, 2))
    assert found(after, streams=TWO) == [(1, 2), (2,)]


def test_nothing_was_copied() -> None:
    assert found((Run(COMPUTE, 0, 0),)) == [()]
    assert not executed((Run(COMPUTE, 0, 0),)).right


def test_a_block_that_is_written_while_it_is_copied_is_a_mixture_of_versions() -> None:
    program = (Copy(COPY, 0, 1), Write(1), Record(COPY, landed(0)), *run(0, 1))
    (reading,) = executed(program).readings
    assert (reading.needs, reading.found) == (Copied(1, 1), (Copied(1, 0), Copied(1, 1)))
    program = (Copy(COPY, 0, 1, True), *program[1:])  # a pageable block was read at the call
    (reading,) = executed(program).readings
    assert reading.found == (Copied(1, 0),)


def test_a_pageable_copy_brings_what_was_in_the_block_at_the_call() -> None:
    """The copy stream is late, and the host writes meanwhile."""
    for pageable, version in ((False, 1), (True, 0)):
        copy = (Record(COPY, DRAINED), Copy(COPY, 0, 1, pageable))
        program = (*copy, Write(1), Record(COPY, landed(0)), *run(0, 1))
        (reading,) = executed(program, 9, 1, 1, 1, 1, 1).readings
        assert reading.found == (Copied(1, version),)


def test_a_write_from_a_slot_reads_it_and_is_in_every_copy_that_goes_on() -> None:
    shared = Streams((COMPUTE,))
    copy, drained, write = Copy(COMPUTE, 0, 1), Record(COMPUTE, DRAINED), Write(1, 0)
    (reading,) = executed((copy, drained, Wait(HOST, DRAINED), write), streams=shared).readings
    assert (reading.task, reading.needs, reading.found) == (3, Copied(1, 0), (Copied(1, 0),))
    (reading,) = executed((copy, drained, write), streams=shared).readings
    assert (reading.needs, reading.found) == (Copied(1, 0), (Copied(1, 0), Copied(1, 1)))


@pytest.mark.parametrize("delay", [0, -1, True, 1.0, "1"])
def test_a_delay_is_a_whole_number_of_units(delay: object) -> None:
    with pytest.raises(ValueError, match=r"delay 1 is .*; a task takes an integer, at least 1"):
        execute(lower(policies.chain(Ring(1, 1))).listing(1), [1, delay, 1, 1, 1, 1])  # type: ignore[list-item]


def test_every_task_takes_its_time() -> None:
    with pytest.raises(ValueError, match="2 delays for 6 tasks; give one for each task of"):
        execute(lower(policies.chain(Ring(1, 1))).listing(1), [1, 1])


# ---- against the other engines


@FIXED
@given(strategies.programs(), st.data())
def test_what_the_clocks_call_safe_is_right_under_every_delay(
    program: LabelledProgram, data: st.DataObject
) -> None:
    delays = data.draw(strategies.delays(program.listing, program.streams))
    result = execute(program.listing, delays, program.streams)
    assert result.right or not program.safe
    for begin, end, delay in zip(result.begins, result.ends, delays, strict=True):
        assert end - begin >= delay


@pytest.mark.parametrize("fault", [name for name in FAULTY if name not in HARMLESS])
def test_each_fault_makes_some_program_read_what_is_not_its_own_under_some_delay(
    fault: str,
) -> None:
    wrong = 0
    for case in cases(System(), policies.chain, Ring(2, 1)):
        for _, faulty in places(case.listing, fault):
            count = len(write_out(faulty, case.streams).tasks)
            for seed in range(8):
                delays = Random(seed).choices(range(1, 10), k=count)
                wrong += not execute(faulty, delays, case.streams).right
    assert wrong >= 8
