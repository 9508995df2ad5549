"""The tasks of a listing: graphs written out, each replay on streams of its own."""

from __future__ import annotations

from typing import Any

from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Event,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.properties import JOINED
from schedule.tasks import Fault, Idle, Join, Task, TaskOperation, write_out
from tests.schedule.listings import (
    DRAINED,
    GRAPH,
    REPLAY,
    graph,
    listing,
    own,
    own_refill,
    own_run,
    refill,
    run,
)

WHOLE = graph(*own_refill(0, 0), *own_run(0, 0))
CAPTURED, ONCE, TWICE = (f"copy: {where} of g" for where in ("capture", "replay 0", "replay 1"))


def written(*operations: Operation) -> list[Task]:
    return list(write_out(listing(*operations), Streams()).tasks)


def idle() -> list[Task]:
    """The graph while it is captured: in its streams, but nothing is copied or run."""
    operations: list[TaskOperation] = [
        Join(COMPUTE, (COMPUTE, COPY)),
        Record(COMPUTE, own(RAN)),
        Wait(CAPTURED, own(RAN)),
        Idle(CAPTURED),
        Record(CAPTURED, own(landed(0))),
        Wait(COMPUTE, own(landed(0))),  # nothing was copied, so it means no copy
        Idle(COMPUTE),
        Join(COMPUTE, (COMPUTE, CAPTURED)),
    ]
    return [Task(operation, at, None) for at, operation in enumerate(operations)]


def replayed(stream: str, at: int, before: tuple[str, ...]) -> list[Task]:
    operations: list[tuple[TaskOperation, int]] = [
        (Join(COMPUTE, before), at),
        (Record(COMPUTE, own(RAN)), 1),
        (Wait(stream, own(RAN)), 2),
        (Copy(stream, 0, 0), 3),
        (Record(stream, own(landed(0))), 4),
        (Wait(COMPUTE, own(landed(0)), 0), 5),
        (Run(COMPUTE, 0, 0), 6),
        (Join(COMPUTE, (COMPUTE, stream)), at),
    ]
    return [Task(operation, where, at) for operation, where in operations]


def test_eager_operations_are_their_own_tasks() -> None:
    operations: list[Any] = [*refill(0, 0), *run(0, 0), Wait(HOST, DRAINED), Write(0)]
    assert written(*operations) == [Task(one, at, None) for at, one in enumerate(operations)]


def test_a_capture_executes_nothing() -> None:
    assert written(*WHOLE) == idle()


def test_each_replay_has_streams_of_its_own_and_joins_all_before_it() -> None:
    assert written(*WHOLE, REPLAY, REPLAY) == [
        *idle(),
        *replayed(ONCE, 8, (COMPUTE, COPY, CAPTURED)),
        *replayed(TWICE, 9, (COMPUTE, COPY, CAPTURED, ONCE)),
    ]


def test_the_host_does_its_own_part_while_capturing_once() -> None:
    tasks = written(*graph(Write(1), Wait(HOST, DRAINED)), REPLAY)
    assert tasks == [
        Task(Join(COMPUTE, (COMPUTE, COPY)), 0, None),
        Task(Write(1), 1, None),
        Task(Wait(HOST, DRAINED), 2, None),
        Task(Join(COMPUTE, ()), 3, None),
        Task(Join(COMPUTE, (COMPUTE, COPY)), 4, 4),
        Task(Join(COMPUTE, ()), 4, 4),
    ]


def test_a_wait_from_outside_orders_nothing_when_replayed() -> None:
    found = write_out(listing(*graph(Wait(COMPUTE, DRAINED)), REPLAY), Streams())
    nothing = Record(COMPUTE, Event("nothing", None, GRAPH))
    assert [task for task in found.tasks if task.at == 1] == [
        Task(nothing, 1, None),
        Task(nothing, 1, 3),
    ]
    why = "inside graph g it waits for drained[0] from outside"
    assert found.faults == (Fault(JOINED, 1, None, why),)


def test_what_is_no_part_of_the_graph_is_not_replayed() -> None:
    found = write_out(listing(*graph(Copy(COPY, 0, 0)), REPLAY), Streams())
    assert [task for task in found.tasks if task.at == 1] == [Task(Idle(COPY), 1, None)]
    assert found.faults == (Fault(JOINED, 1, None, "copy is not part of graph g: it did not fork"),)


def test_an_eager_wait_for_a_graphs_event_takes_its_place_and_waits_for_nothing() -> None:
    found = write_out(listing(*WHOLE, Wait(COPY, own(RAN))), Streams())
    assert found.tasks[-1] == Task(Idle(COPY), 8, None)
    why = "ran of graph g can't be waited for outside of it"
    assert found.faults == (Fault(JOINED, 8, None, why),)
