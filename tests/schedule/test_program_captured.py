"""Lowering to several streams and to a graph: the exact operations, how they print, refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from schedule import Refill, Ring, Schedule, policies
from schedule.errors import ProgramError, ScheduleError
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Event,
    Operation,
    Operations,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.program import lower, lower_join, lower_refill, lower_write
from tests.schedule.listings import DRAINED, SECOND, TWO, refill, run

PASS = "pass"
SHARED = Streams((COMPUTE,))
MIXED = Streams((COMPUTE, COPY))
CHAIN = policies.chain(Ring(3, 2))


def own(event: Event) -> Event:
    return dataclasses.replace(event, graph=PASS)


def own_refill(slot: int, module: int) -> Operations:
    fork = Record(COMPUTE, own(RAN)), Wait(COPY, own(RAN))
    return *fork, Copy(COPY, slot, module), Record(COPY, own(landed(slot)))


def refill_of_two(slot: int, module: int, stream: str) -> Operations:
    """A refill on one of two streams waits for the last copy into the slot as well."""
    record, wait, copy, mark = refill(slot, module, stream)
    return record, wait, Wait(stream, landed(slot)), copy, mark


# ---- eager, by streams


def test_one_copy_stream() -> None:
    program = lower(CHAIN)
    assert program.streams == Streams((COPY,))
    assert program.preload == (*refill(0, 0), *refill(1, 1))
    assert program.period() == (
        *run(0, 0),
        *refill(0, 2),
        *run(1, 1),
        *run(0, 2),
        *refill(0, 0),
    )


def test_two_copy_streams_take_the_modules_in_turn() -> None:
    program = lower(CHAIN, TWO)
    assert program.streams == TWO
    assert program.preload == (*refill_of_two(0, 0, COPY), *refill_of_two(1, 1, SECOND))
    assert program.period() == (
        *run(0, 0),
        *refill_of_two(0, 2, COPY),
        *run(1, 1),
        *run(0, 2),
        *refill_of_two(0, 0, COPY),
    )


def test_the_compute_stream_alone_needs_no_fence() -> None:
    program = lower(CHAIN, SHARED)
    assert program.preload == (Copy(COMPUTE, 0, 0), Copy(COMPUTE, 1, 1))
    assert program.period() == (
        Run(COMPUTE, 0, 0),
        Copy(COMPUTE, 0, 2),
        Run(COMPUTE, 1, 1),
        Run(COMPUTE, 0, 2),
        Copy(COMPUTE, 0, 0),
    )


def test_the_compute_stream_as_one_of_two() -> None:
    assert lower_refill(Refill(1, 4), MIXED) == refill_of_two(1, 4, COMPUTE)
    assert lower_refill(Refill(1, 3), MIXED) == refill_of_two(1, 3, COPY)
    assert lower(CHAIN, MIXED).begin[1] == run(1, 1)


def test_many_copy_streams() -> None:
    many = Streams(tuple("abcde"))
    used = [lower_refill(Refill(0, module), many)[3].stream for module in range(7)]
    assert used == list("abcdeab")


def test_the_boundaries_of_a_listing() -> None:
    found = [(str(each), *boundary) for each, boundary in lower(CHAIN, SHARED).listing(2)]
    assert found == [
        ("compute: copy module 0 into slot 0", "preload", 0),
        ("compute: copy module 1 into slot 1", "preload", 0),
        ("compute: run module 0 from slot 0", "run", 0),
        ("compute: copy module 2 into slot 0", "after", 0),
        ("compute: run module 1 from slot 1", "run", 1),
        ("compute: run module 2 from slot 0", "run", 2),
        ("compute: copy module 0 into slot 0", "after", 2),
        ("compute: run module 0 from slot 0", "run", 3),
        ("compute: copy module 2 into slot 0", "after", 3),
        ("compute: run module 1 from slot 1", "run", 4),
        ("compute: run module 2 from slot 0", "run", 5),
        ("compute: copy module 0 into slot 0", "after", 5),
    ]


# ---- a write, a join


@pytest.mark.parametrize(
    ("streams", "module", "stream", "number"),
    [(Streams(), 3, COPY, 0), (TWO, 3, SECOND, 1), (SHARED, 3, COMPUTE, 0), (MIXED, 3, COPY, 1)],
)
def test_a_write_waits_for_the_stream_of_its_module(
    streams: Streams, module: int, stream: str, number: int
) -> None:
    drained = Event("drained", number)
    landing = () if streams.shared else (Wait(HOST, landed(1), module),)
    running = () if stream == COMPUTE else (Record(COMPUTE, RAN), Wait(HOST, RAN))
    assert lower_write(Refill(1, module), streams) == (
        Record(stream, drained),
        Wait(HOST, drained),
        *landing,
        *running,
        Write(module, 1),
    )


def test_a_join_waits_for_every_copy_stream() -> None:
    first, second = Event("drained", 0), Event("drained", 1)
    assert lower_join() == (Record(COPY, first), Wait(COMPUTE, first))
    assert lower_join(TWO) == (*lower_join(), Record(SECOND, second), Wait(COMPUTE, second))
    assert lower_join(MIXED) == (Record(COPY, second), Wait(COMPUTE, second))
    assert lower_join(SHARED) == ()


# ---- captured


def test_a_captured_chain() -> None:
    captured = lower_captured(CHAIN)
    join = Record(COPY, DRAINED), Wait(COMPUTE, DRAINED)
    assert captured.preload == (*refill(0, 0), *refill(1, 1))
    assert captured.capture == (
        *join,
        Capture(COMPUTE, PASS),
        Run(COMPUTE, 0, 0),
        *own_refill(0, 2),
        Run(COMPUTE, 1, 1),
        Wait(COMPUTE, own(landed(0)), 2),
        Run(COMPUTE, 0, 2),
        *own_refill(0, 0),
        Record(COPY, own(DRAINED)),
        Wait(COMPUTE, own(DRAINED)),
        EndCapture(COMPUTE, PASS),
    )
    assert captured.replay == (
        *join,
        Replay(COMPUTE, PASS),
        Record(COMPUTE, landed(0)),
        Record(COMPUTE, landed(1)),
        Record(COMPUTE, RAN),
        Wait(COPY, RAN),
    )


def test_a_graph_joins_the_streams_that_it_uses() -> None:
    captured = lower_captured(CHAIN, TWO)
    first, again = own_refill(0, 2), own_refill(0, 0)
    ordered = Wait(COPY, own(landed(0)))  # the graph's first copy; that one has none before it
    assert captured.capture == (
        *lower_join(TWO),
        Capture(COMPUTE, PASS),
        Run(COMPUTE, 0, 0),
        *first,
        Run(COMPUTE, 1, 1),
        Wait(COMPUTE, own(landed(0)), 2),
        Run(COMPUTE, 0, 2),
        *again[:2],
        ordered,
        *again[2:],
        Record(COPY, own(DRAINED)),
        Wait(COMPUTE, own(DRAINED)),
        EndCapture(COMPUTE, PASS),
    )
    assert captured.replay[:4] == lower_join(TWO)


def test_a_graph_on_one_stream_has_no_events() -> None:
    captured = lower_captured(CHAIN, SHARED)
    assert captured.capture == (
        Capture(COMPUTE, PASS),
        *lower(CHAIN, SHARED).period(),
        EndCapture(COMPUTE, PASS),
    )
    assert captured.replay == (Replay(COMPUTE, PASS),)


def test_the_boundaries_of_a_captured_listing() -> None:
    listing = lower_captured(CHAIN, SHARED).listing(2)
    assert [boundary for _, boundary in listing] == [
        *[("preload", 0)] * 2,
        *[("capture", 0)] * 7,
        ("replay", 0),
        ("replay", 1),
    ]


def two_passes() -> Schedule:
    """One module, whose slot alternates."""
    none: tuple[tuple[Refill, ...], ...] = ((), ())
    both = (Refill(0, 0), Refill(1, 0))
    return Schedule(Ring(1, 2), "by turns", (0, 1), both, none, none, none, none)


def test_a_schedule_of_two_passes_is_no_graph() -> None:
    assert lower(two_passes()).period() == (*run(0, 0), *run(1, 0))
    with pytest.raises(ScheduleError) as error:
        lower_captured(two_passes())
    assert str(error.value) == (
        "policy by turns repeats after 2 passes, so no graph of one pass can be replayed; "
        "use it eagerly, or with slots that divide the modules"
    )


# ---- the data


OPERATIONS: list[tuple[Operation, str]] = [
    (Copy(COPY, 1, 2), "copy: copy module 2 into slot 1"),
    (Copy(COPY, 1, 2, True), "copy: copy module 2 into slot 1 from pageable memory"),
    (Run(COMPUTE, 1, 2), "compute: run module 2 from slot 1"),
    (Record(COMPUTE, RAN), "compute: record ran"),
    (Record(COPY, own(landed(1))), "copy: record landed[1] of graph pass"),
    (Wait(COPY, own(RAN)), "copy: wait for ran of graph pass"),
    (Wait(HOST, DRAINED), "host: wait for drained[0]"),
    (Wait(COMPUTE, landed(1), 2), "compute: wait for landed[1], the copy of module 2"),
    (Write(2), "host: write the host block of module 2"),
    (Write(2, 1), "host: write the host block of module 2 from slot 1"),
    (Capture(COMPUTE, PASS), "compute: capture graph pass"),
    (EndCapture(COMPUTE, PASS), "compute: end of graph pass"),
    (Replay(COMPUTE, PASS), "compute: replay graph pass"),
]


@pytest.mark.parametrize(("operation", "text"), OPERATIONS)
def test_operations_print_readably_and_are_frozen(operation: Operation, text: str) -> None:
    assert str(operation) == text
    with pytest.raises(dataclasses.FrozenInstanceError):
        operation.stream = "other"  # type: ignore[misc]


@pytest.mark.parametrize("copies", [(), (COPY, COPY), (HOST,), (COPY, HOST)])
def test_copy_streams_are_different_and_not_the_host(copies: tuple[str, ...]) -> None:
    with pytest.raises(ProgramError) as error:
        Streams(copies)
    assert str(error.value) == (
        f"copy streams {copies} must be one or more different names, none 'host'"
    )


def test_streams() -> None:
    assert [Streams().names, TWO.names] == [(COMPUTE, COPY), (COMPUTE, COPY, SECOND)]
    assert [SHARED.names, MIXED.names] == [(COMPUTE,), (COMPUTE, COPY)]
    assert [one.shared for one in (SHARED, MIXED, TWO, Streams())] == [True, False, False, False]
    assert [TWO.of(module) for module in range(3)] == [COPY, SECOND, COPY]


@pytest.mark.parametrize("data", [TWO, RAN, lower(CHAIN), lower_captured(CHAIN)])
def test_programs_are_frozen_data(data: Any) -> None:
    assert isinstance(hash(data), int)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(data, dataclasses.fields(data)[0].name, ())
