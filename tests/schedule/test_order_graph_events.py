"""Events of graphs, host writes after replays, and advice that helps: what was wrong once."""

from __future__ import annotations

import pytest

from proofs.cases import STREAMS, Case
from proofs.engines import difference, settled
from proofs.obligation import System
from schedule import Ring, policies
from schedule.errors import ProgramError
from schedule.explore import explore
from schedule.faults import explain
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Event,
    Issued,
    Operations,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.order import order
from schedule.program import lower_join
from schedule.properties import IDENTITY, JOINED, MEANING, RAW
from schedule.table import Boundary
from tests.schedule.listings import (
    DRAINED,
    REPLAY,
    SECOND,
    TWO,
    graph,
    host_write,
    listing,
    own,
    own_refill,
    own_run,
    refill,
    run,
    sentences,
    shown,
    three,
)

FORK = Record(COMPUTE, RAN)


@pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)
def test_the_host_may_write_what_a_replay_copied(streams: Streams) -> None:
    """The copies of a graph lie behind the compute stream, and so do the copy streams then."""
    captured = lower_captured(policies.chain(Ring(3, 2)), streams)
    replayed = captured.listing(1)
    for module in range(3):
        write = (Issued(one, Boundary("write", 0)) for one in host_write(module, streams))
        assert three((*replayed, *write), streams).safe
    bare = (*replayed, Issued(Write(2), Boundary("write", 0)))
    assert [fault.property for fault in three(bare, streams).faults] == ["block"]


OTHERS: list[tuple[str, Operations, int, str]] = [
    (
        "an event that is not the graph's own, waited for outside",
        (*graph(FORK), *refill(0, 0)[2:], *run(0, 0), REPLAY, Wait(COPY, RAN), Copy(COPY, 0, 1)),
        1,
        "inside graph g it records ran, not its own",
    ),
    (
        "the same, without a replay",
        (*refill(0, 0)[2:], *run(0, 0), *lower_join(), *graph(FORK), Wait(COPY, RAN)),
        7,
        "inside graph g it records ran, not its own",
    ),
    (
        "the graph's own event, recorded outside",
        (*graph(Run(COMPUTE, 0, 0)), Record(COMPUTE, own(RAN))),
        3,
        "ran of graph g can't be recorded outside of it",
    ),
    (
        "the graph's own event, and the host",
        (*graph(*own_refill(0, 0), *own_run(0, 0), Wait(HOST, own(landed(0)))), REPLAY),
        7,
        "the host can't wait for landed[0] of graph g: it is captured, not done",
    ),
]


@pytest.mark.parametrize(("_", "operations", "at", "why"), OTHERS, ids=[one[0] for one in OTHERS])
def test_events_inside_and_outside_do_not_mix(
    _: str, operations: Operations, at: int, why: str
) -> None:
    found = three(listing(*operations))
    formal = [fault for fault in found.faults if fault.why]
    assert (formal[0].property, found.tasks[formal[0].later].at, formal[0].why) == (JOINED, at, why)


def test_an_event_of_no_graph() -> None:
    event = Event("ran", None, "none")
    with pytest.raises(ProgramError, match=r"^operation 0 .*graph: no graph is called none$"):
        order(listing(Wait(COPY, event)))


# ---- what a wait means is what its record stands for


def test_a_record_of_another_copy_is_reported_though_all_is_done() -> None:
    program = listing(
        Copy(COPY, 0, 0),
        Record(COPY, landed(0)),
        Copy(COPY, 0, 1),
        Record(COPY, DRAINED),
        Wait(HOST, DRAINED),
        Wait(COMPUTE, landed(0), 1),
        Run(COMPUTE, 0, 1),
    )
    found = three(program)
    assert shown(found) == [(MEANING, 5, None)]
    assert explain(found, found.faults[0], 3).endswith(
        ": landed[0] was not recorded since that copy was issued"
    )


def test_an_older_copy_on_another_stream_may_not_be_done() -> None:
    texts = sentences(
        Copy(COPY, 0, 0),
        Copy(SECOND, 0, 1),
        Record(SECOND, landed(0)),
        Wait(COMPUTE, landed(0), 1),
        streams=TWO,
    )
    assert [text for text in texts if text.startswith("meaning")] == [
        "meaning: [compute: wait for landed[0], the copy of module 1] (step 3): some copy into "
        "the slot may not be done when the wait is over"
    ]


# ---- the advice


def test_what_a_replay_did_is_waited_for_after_it() -> None:
    program = (*lower_captured(policies.chain(Ring(3, 2))).listing(1), *listing(Write(2)))
    found = order(program)
    assert explain(found, found.faults[0], 3).endswith("; let host wait for ran before the write")


def test_what_a_replay_needs_is_waited_for_before_it() -> None:
    text = sentences(*graph(Run(COMPUTE, 0, 0)), Copy(COPY, 0, 0), Record(COPY, DRAINED), REPLAY)[
        -1
    ]
    assert text.startswith("RAW: [compute: run module 0 from slot 0] (step 5)")
    assert text.endswith("let compute wait for drained[0] before the replay")


def test_an_event_that_another_stream_recorded_since_is_no_advice() -> None:
    (text,) = sentences(
        Copy(COPY, 0, 0), Record(COPY, landed(0)), Record(COMPUTE, landed(0)), Run(COMPUTE, 0, 0)
    )
    assert text.endswith(
        "record an event on copy after the copy, and let compute wait for it before the run"
    )


# ---- bounds


def test_what_a_cut_short_search_found_by_luck_is_no_disagreement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proofs.engines.STATES", 1)
    case = Case("x", listing(Copy(COPY, 0, 0), Run(COMPUTE, 0, 0)), Streams())
    assert difference(System(), case, False) is None
    luck, hazard = frozenset({(IDENTITY, 1, None)}), frozenset({(RAW, 1, COPY)})
    assert settled(luck, hazard) == [frozenset(), hazard]


def test_slots_may_have_any_number() -> None:
    far = explore(listing(*refill(10**9, 0), *run(10**9, 0)))
    near = explore(listing(*refill(0, 0), *run(0, 0)))
    assert (far.states, far.faults, far.complete) == (near.states, frozenset(), True)


NO_PROGRAM = [
    (("x",), "operation 0: 'x' is no Issued"),
    ((Issued("x", Boundary("step", 0)),), "give one of the operations, and a Boundary"),
    ((Issued(Wait(COMPUTE, "ran"), Boundary("step", 0)),), "event: 'ran' is no Event"),
    ((Issued(FORK, "step 0"),), "give one of the operations, and a Boundary"),
]


@pytest.mark.parametrize(("program", "why"), NO_PROGRAM)
def test_what_is_no_program(program: object, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        order(program)  # type: ignore[arg-type]


def test_streams_are_a_tuple_of_names() -> None:
    with pytest.raises(ProgramError, match="must be a tuple of names"):
        Streams("compute")  # type: ignore[arg-type]


def test_a_captured_program_prints_its_operations() -> None:
    lines = str(lower_captured(policies.chain(Ring(1, 1)))).splitlines()
    assert lines[4:9] == [
        "copy: record drained[0]",
        "compute: wait for drained[0]",
        "compute: capture graph pass",
        "compute: run module 0 from slot 0",
        "compute: end of graph pass",
    ]
