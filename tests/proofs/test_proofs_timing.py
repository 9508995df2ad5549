"""The solver over real times: what it finds by itself, and that it leans on no other engine."""

from __future__ import annotations

import ast
import inspect

import pytest

from proofs import timing
from proofs.timing import overlaps
from schedule import Ring, policies
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    ONE_COPY_STREAM,
    RAN,
    Copy,
    Operation,
    Operations,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.program import lower
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, PAGEABLE, RAW, WAR, WAW
from schedule.tasks import Fault, write_out
from tests.schedule.listings import (
    DRAINED,
    REPLAY,
    SECOND,
    TWO,
    graph,
    listing,
    own_refill,
    refill,
    run,
)

COPIED = Copy(COPY, 0, 0)
RUNS = Run(COMPUTE, 0, 0)


def found(*operations: Operation, streams: Streams = ONE_COPY_STREAM) -> set[Fault]:
    return set(overlaps(write_out(listing(*operations), streams)))


def test_it_shares_only_the_tasks_with_the_other_engines() -> None:
    tree = ast.parse(inspect.getsource(timing))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert {name for name in modules if name and name.startswith(("schedule", "proofs"))} == {
        "schedule.operations",
        "schedule.properties",  # names alone
        "schedule.tasks",
    }
    assert names == {"z3"}


FENCED = (*refill(0, 0), *run(0, 0), *refill(0, 1), *run(0, 1))
SHOWN: list[tuple[str, Operations, set[Fault]]] = [
    ("nothing", (), set()),
    ("all fenced", FENCED, set()),
    (RAW, (COPIED, RUNS), {Fault(RAW, 1, 0)}),
    (WAR, (*FENCED[:6], COPIED), {Fault(WAR, 6, 5)}),
    (WAW, (COPIED, Copy(SECOND, 0, 0)), {Fault(WAW, 1, 0)}),
    (BLOCK, (COPIED, Write(0)), {Fault(BLOCK, 1, 0)}),
    (IDENTITY, (RUNS,), {Fault(IDENTITY, 0)}),
    (MEANING, (*refill(0, 1), Wait(COMPUTE, landed(0), 0)), {Fault(MEANING, 4)}),
    (JOINED, (COPIED, *graph()), {Fault(JOINED, 1, 0)}),
    (
        PAGEABLE,
        graph(*own_refill(0, 0)[:2], Copy(COPY, 0, 0, True)),
        {
            Fault(PAGEABLE, 3, None, "inside graph g it copies from pageable memory"),
            Fault(JOINED, 4, 3),
        },
    ),
]


@pytest.mark.parametrize(
    ("operations", "expected"), [each[1:] for each in SHOWN], ids=[each[0] for each in SHOWN]
)
def test_what_some_timing_shows(operations: Operations, expected: set[Fault]) -> None:
    assert found(*operations, streams=TWO) == expected


# ---- each inequality


def test_a_stream_is_first_in_first_out() -> None:
    assert found(COPIED, COPIED) == set()
    assert found(COPIED, COPIED, RUNS) == {Fault(RAW, 2, 1)}


def test_a_wait_ends_after_the_record_that_it_takes() -> None:
    fence = Record(COPY, landed(0)), Wait(COMPUTE, landed(0))
    assert found(COPIED, *fence, RUNS) == set()
    assert found(COPIED, *fence[::-1], RUNS) == {Fault(RAW, 3, 0)}
    assert found(COPIED, *fence[:1], *fence, RUNS) == set()
    assert found(COPIED, fence[0], Record(COMPUTE, landed(0)), fence[1], RUNS) == {Fault(RAW, 4, 0)}


def test_what_the_host_issues_after_its_wait_starts_after_that() -> None:
    waited = Record(COPY, DRAINED), Wait(HOST, DRAINED)
    assert found(COPIED, *waited, RUNS) == set()
    assert found(COPIED, *waited, Write(0)) == set()
    assert found(COPIED, *waited[:1], RUNS, *waited[1:]) == {Fault(RAW, 2, 0)}


def test_every_stream_has_its_own_fault_with_its_latest_task() -> None:
    copies = COPIED, COPIED, Copy(SECOND, 0, 0)
    assert found(*copies, RUNS, streams=TWO) == {
        Fault(WAW, 2, 1),
        Fault(RAW, 3, 1),
        Fault(RAW, 3, 2),
    }


def test_a_wait_means_a_copy_that_is_done_when_it_is_over() -> None:
    means = Wait(COMPUTE, landed(0), 0)
    assert found(COPIED, Record(COPY, landed(0)), means) == set()
    assert found(Record(COPY, landed(0)), COPIED, means) == {Fault(MEANING, 2)}
    assert found(means) == {Fault(MEANING, 0)}


def test_a_join_is_of_all_work_of_its_streams_before_it() -> None:
    loose = graph(*own_refill(0, 0))
    assert found(*loose, REPLAY) == {
        Fault(JOINED, 5, 3),
        Fault(JOINED, 6, 3),  # the replay begins: what the capture left
        Fault(JOINED, 11, 9),  # and it ends
    }
    drained = Record(COPY, DRAINED), Wait(COMPUTE, DRAINED)
    assert found(COPIED, *drained, *graph(), REPLAY) == set()
    assert found(COPIED, *drained, COPIED, *graph()) == {Fault(JOINED, 4, 3)}


def test_pageable_memory_is_free_at_once() -> None:
    pageable = Copy(COPY, 0, 0, True)
    assert found(pageable, Write(0)) == set()
    assert found(pageable, RUNS) == {Fault(RAW, 1, 0)}


# ---- whole programs


@pytest.mark.parametrize("name", ["chain", "slot_local", "single_buffer"])
@pytest.mark.parametrize("streams", [Streams(), TWO, Streams((COMPUTE, COPY))])
def test_a_safe_policys_program_shows_nothing(name: str, streams: Streams) -> None:
    program = lower(policies.NAMED[name](Ring(2, 1)), streams).listing(2)
    assert set(overlaps(write_out(program, streams))) == set()


def test_the_old_rule_is_ordered_and_wrong() -> None:
    program = lower(policies.modular(Ring(3, 2))).listing(1)
    assert set(overlaps(write_out(program, Streams()))) == {Fault(MEANING, 20), Fault(IDENTITY, 21)}


def test_a_fork_that_is_missing_shows_at_each_refill() -> None:
    whole = lower(policies.chain(Ring(2, 1))).listing(1)
    program = tuple(issued for issued in whole if issued.operation != Record(COMPUTE, RAN))
    assert set(overlaps(write_out(program, Streams()))) == {Fault(WAR, 6, 4), Fault(WAR, 11, 9)}
