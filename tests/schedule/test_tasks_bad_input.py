"""Programs that make no sense: an error with the position and the field, from every engine."""

from __future__ import annotations

from typing import Any

import pytest

from schedule.errors import ProgramError
from schedule.explore import explore
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Event,
    Issued,
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
from schedule.order import order
from schedule.table import Boundary
from schedule.tasks import write_out
from tests.schedule.listings import DRAINED, REPLAY, TWO, graph, listing, refill

ENGINES: list[Any] = [order, explore]
FIRST = refill(0, 0)
"""What is right, so that the position is not always the first."""


def refused(wrong: Any, streams: Streams = Streams()) -> str:  # noqa: B008
    """What both engines say, in the same words."""
    texts = set()
    for engine in ENGINES:
        with pytest.raises(ProgramError) as error:
            engine(wrong, streams)
        texts.add(str(error.value))
    (text,) = texts
    return text


KNOWN = "streams are compute, copy, host"
STREAM: list[tuple[Operation, str]] = [
    (Copy("side", 0, 0), f"stream: 'side' is unknown; {KNOWN}"),
    (Run("side", 0, 0), f"stream: 'side' is unknown; {KNOWN}"),
    (Record("copy 1", RAN), f"stream: 'copy 1' is unknown; {KNOWN}"),
    (Wait("", RAN), f"stream: '' is unknown; {KNOWN}"),
    (Write(0, stream="side"), f"stream: 'side' is unknown; {KNOWN}"),
    (Capture("side", "g"), f"stream: 'side' is unknown; {KNOWN}"),
    (EndCapture("side", "g"), f"stream: 'side' is unknown; {KNOWN}"),
    (Replay("side", "g"), f"stream: 'side' is unknown; {KNOWN}"),
    (Copy(COMPUTE, 0, 0), "stream: a copy is on copy, not on compute"),
    (Copy(HOST, 0, 0), "stream: a copy is on copy, not on host"),
    (Run(COPY, 0, 0), "stream: a run is on compute, not on copy"),
    (Write(0, stream=COPY), "stream: a write is on host, not on copy"),
    (Record(HOST, RAN), "stream: a record is on compute or copy, not on host"),
    (Capture(HOST, "g"), "stream: a capture is on compute or copy, not on host"),
    (Replay(HOST, "g"), "stream: a replay is on compute or copy, not on host"),
    (EndCapture(HOST, "g"), "stream: a capture's end is on compute or copy, not on host"),
]
EVENT: list[tuple[Operation, str]] = [
    (Wait(COPY, Event("fork")), "event.name: 'fork' is unknown; events are ran, landed, drained"),
    (
        Record(COPY, Event("nothing")),
        "event.name: 'nothing' is unknown; events are ran, landed, drained",
    ),
    (Wait(COPY, Event("")), "event.name: '' is unknown; events are ran, landed, drained"),
    (
        Wait(COPY, Event("landed")),
        "event.number: landed and drained have one, ran has none",
    ),
    (
        Record(COPY, Event("ran", 0)),
        "event.number: landed and drained have one, ran has none",
    ),
    (Wait(COPY, landed(-1)), "event.number: -1 is not an integer of at least 0"),
    (Wait(COPY, Event("drained", 1)), "event.number: 1 is outside of 0 .. 0"),
    (Wait(COMPUTE, RAN, 0), "module: a wait for ran means no copy"),
    (Wait(COMPUTE, DRAINED, 0), "module: a wait for drained[0] means no copy"),
]
NUMBER: list[tuple[Operation, str]] = [
    (Copy(COPY, -1, 0), "slot: -1 is not an integer of at least 0"),
    (Copy(COPY, 0, -2), "module: -2 is not an integer of at least 0"),
    (Run(COMPUTE, -1, 0), "slot: -1 is not an integer of at least 0"),
    (Run(COMPUTE, 0, -1), "module: -1 is not an integer of at least 0"),
    (Write(0, -1), "slot: -1 is not an integer of at least 0"),
    (Write(-1), "module: -1 is not an integer of at least 0"),
    (Wait(COMPUTE, landed(0), -1), "module: -1 is not an integer of at least 0"),
    (Copy(COPY, True, 0), "slot: True is not an integer of at least 0"),
    (Copy(COPY, 0, "1"), "module: '1' is not an integer of at least 0"),  # type: ignore[arg-type]
    (Run(COMPUTE, 0.0, 0), "slot: 0.0 is not an integer of at least 0"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("operation", "why"), [*STREAM, *EVENT, *NUMBER])
@pytest.mark.parametrize("before", [(), FIRST])
def test_the_position_and_the_field(operation: Operation, why: str, before: Operations) -> None:
    text = refused(listing(*before, operation, Run(COMPUTE, -9, 0)))
    assert text == f"operation {len(before)} ({operation}): {why}"


@pytest.mark.parametrize("step", [-1, -7, True, 0.5, "1"])
def test_a_boundary_is_not_negative(step: Any) -> None:
    wrong = Issued(Copy(COPY, 0, 0), Boundary("after", step))
    assert refused((*listing(*FIRST), wrong)) == (
        "operation 4 (copy: copy module 0 into slot 0): "
        f"boundary.step: {step!r} is not an integer of at least 0"
    )


def test_what_is_known_depends_on_the_streams() -> None:
    copy, drained = Copy("copy 1", 0, 0), Wait(HOST, Event("drained", 1))
    assert order(listing(copy, drained), TWO).safe
    assert refused(listing(drained)).endswith(": event.number: 1 is outside of 0 .. 0")
    assert refused(listing(Copy(COPY, 0, 0)), Streams((COMPUTE,))) == (
        "operation 0 (copy: copy module 0 into slot 0): stream: 'copy' is unknown; "
        "streams are compute, host"
    )


# ---- captures

NEITHER = Replay(COMPUTE, "h")
OPEN, END = graph()
FORM: list[tuple[str, Operations, int, str]] = [
    ("nested", (OPEN, Capture(COMPUTE, "h")), 1, "a capture is open already"),
    ("nested in itself", (OPEN, OPEN), 1, "a capture is open already"),
    ("captured twice", (*graph(), OPEN), 2, "graph g was captured before"),
    ("replay inside", (*graph(), Capture(COMPUTE, "h"), REPLAY), 3, "a capture is open"),
    ("unknown graph", (*graph(), NEITHER), 2, "no graph is called h"),
    ("replay too early", (REPLAY, *graph()), 0, "no graph is called g"),
    ("ended twice", (*graph(), END), 2, "no capture of graph g on compute is open"),
    ("never begun", (END,), 0, "no capture of graph g on compute is open"),
    (
        "another one ends",
        (OPEN, EndCapture(COMPUTE, "h")),
        1,
        "no capture of graph h on compute is open",
    ),
    ("another stream ends", (OPEN, EndCapture(COPY, "g")), 1, "no capture of graph g on copy is"),
    ("another stream replays", (*graph(), Replay(COPY, "g")), 2, "graph g was captured on compute"),
]


@pytest.mark.parametrize(
    ("operations", "at", "why"), [each[1:] for each in FORM], ids=[each[0] for each in FORM]
)
def test_captures_that_make_no_sense(operations: Operations, at: int, why: str) -> None:
    text = refused(listing(*operations))
    assert text.startswith(f"operation {at} ({operations[at]}): {why}")
    assert text.removeprefix(f"operation {at} ({operations[at]}): {why}") in ("", " open")


def test_a_capture_that_never_ends() -> None:
    assert refused(listing(*FIRST, OPEN)) == "operation 4 is the last, but graph g is open"
    assert refused(listing(OPEN, Copy(COPY, 0, 0))) == (
        "operation 1 is the last, but graph g is open"
    )


def test_what_is_right_is_not_refused() -> None:
    assert write_out((), Streams()).tasks == ()
    assert len(write_out(listing(*FIRST, *graph(), REPLAY), Streams()).tasks) == 8
