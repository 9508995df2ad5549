"""What a graph takes of what is issued, what it needs, what it leaves, and where passes come to."""

from __future__ import annotations

import pytest

from schedule import Ring, policies
from schedule.errors import ProgramError
from schedule.graphs import Graph, held_at
from schedule.guard import Copied, missing
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
    Listing,
    Operation,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.program import lower
from schedule.table import AFTER, RUN, Boundary, Refill, Schedule

CHAIN = policies.chain(Ring(3, 2))
SHARED = Streams((COMPUTE,))


def at(half: str, step: int, *operations: Operation) -> Listing:
    return tuple(Issued(one, Boundary(half, step)) for one in operations)


def piece(*steps: int) -> Graph:
    """What CHAIN's program issues for these steps, as a graph."""
    parts = lower(CHAIN).parts()
    graph = Graph("g")
    for step in steps:
        graph, _ = graph.take_all(parts[RUN][step] + parts[AFTER][step])
    return graph


def own(event: Event) -> Event:
    return Event(event.name, event.number, "g")


def test_a_graph_has_events_of_its_own_and_waits_for_nothing_outside() -> None:
    graph = Graph("g")
    graph, first = graph.take_all(
        at(RUN, 1, Wait(COMPUTE, landed(1), 1), Run(COMPUTE, 1, 1))  # joined before it
    )
    assert first == at(RUN, 1, Run(COMPUTE, 1, 1))
    graph, second = graph.take_all(
        at(AFTER, 1, Record(COMPUTE, RAN), Wait(COPY, RAN), Copy(COPY, 1, 2))
        + at(AFTER, 1, Record(COPY, landed(1)), Wait(COMPUTE, landed(1), 2))
    )
    assert second == at(
        *(AFTER, 1, Record(COMPUTE, own(RAN)), Wait(COPY, own(RAN)), Copy(COPY, 1, 2)),
        *(Record(COPY, own(landed(1))), Wait(COMPUTE, own(landed(1)), 2)),
    )
    assert graph.body == first + second
    assert graph.recorded == {RAN, landed(1)}


def test_the_host_is_in_no_graph() -> None:
    for one in (Write(1, 0), Wait(HOST, RAN)):
        with pytest.raises(ProgramError, match=r"graph g can't hold \[host: "):
            Graph("g").take_all(at(RUN, 0, one))


def test_it_begins_with_a_join_and_ends_with_one_of_what_it_forked() -> None:
    drained = Event("drained", 0)
    join = (Record(COPY, drained), Wait(COMPUTE, drained))
    assert Graph("g").lower_begin() == (*join, Capture(COMPUTE, "g"))
    assert Graph("g").lower_begin(SHARED) == (Capture(COMPUTE, "g"),)
    end = EndCapture(COMPUTE, "g")
    assert Graph("g").lower_end() == (end,)  # nothing was forked
    own_join = (Record(COPY, own(drained)), Wait(COMPUTE, own(drained)))
    assert piece(0).lower_end() == (*own_join, end)
    two = Streams((COPY, "copy 1"))
    assert piece(0).lower_end(two) == (*own_join, end)  # of two streams, the one that it uses


def test_after_a_replay_what_waits_outside_finds_records() -> None:
    drained = Event("drained", 0)
    assert piece(0).lower_replay((0, 1)) == (
        *(Record(COPY, drained), Wait(COMPUTE, drained), Replay(COMPUTE, "g")),
        *(Record(COMPUTE, landed(0)), Record(COMPUTE, landed(1))),
        *(Record(COMPUTE, RAN), Wait(COPY, RAN)),
    )
    assert piece(0).lower_replay((0, 1), SHARED) == (Replay(COMPUTE, "g"),)


def test_what_pieces_need_and_leave() -> None:
    # Slots 0, 1, 0: module 0 is followed by 2, 2 by 0, and 1 has a slot to itself.
    assert (piece(0).needs, piece(0).leaves) == ({0: 0}, {0: 2})
    assert (piece(1).needs, piece(1).leaves) == ({1: 1}, {})
    assert (piece(2).needs, piece(2).leaves) == ({0: 2}, {0: 0})
    assert (piece(0, 1, 2).needs, piece(0, 1, 2).leaves) == ({0: 0, 1: 1}, {0: 0})
    assert (piece(2, 0).needs, piece(2, 0).leaves) == ({0: 2}, {0: 2})
    assert (Graph("g").needs, Graph("g").leaves) == ({}, {})


def test_what_a_pass_brings_itself_it_does_not_need() -> None:
    listing = lower(policies.restart(Ring(3, 2))).periods(1)
    graph, _ = Graph("g").take_all(listing)
    assert graph.needs == {}
    assert graph.leaves == {0: 2, 1: 1}


def test_what_is_missing_before_a_replay() -> None:
    versions = {0: 7, 1: 3}
    last = [Copied(0, 7), Copied(1, 3)]
    assert missing({0: 0, 1: 1}, last, versions.__getitem__) == []
    assert missing({0: 0, 1: 1}, [Copied(0, 6), Copied()], versions.__getitem__) == [0, 1]
    assert missing({1: 1}, [Copied(), Copied(0, 7)], versions.__getitem__) == [1]
    assert missing({}, [Copied(), Copied()], versions.__getitem__) == []


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (CHAIN, [{0: 0, 1: 1}, {0: 2, 1: 1}, {0: 2, 1: 1}]),
        (policies.slot_local(Ring(4, 2)), [{0: 0, 1: 1}, {0: 2, 1: 1}, {0: 2, 1: 3}, {0: 0, 1: 3}]),
        (policies.single_buffer(Ring(2, 1)), [{0: 0}, {0: 1}]),
        (policies.restart(Ring(3, 2)), [{0: 2, 1: 1}, {0: 2, 1: 1}, {0: 2, 1: 1}]),
        (policies.on_demand(Ring(2, 1)), [{0: 1}, {0: 0}]),
        (policies.chain(Ring(1, 2)), [{0: 0}]),
    ],
)
def test_where_passes_come_to(schedule: Schedule, wanted: list[dict[int, int]]) -> None:
    assert [held_at(schedule, step) for step in range(schedule.ring.modules)] == wanted


def test_a_module_in_another_slot_than_its_own_can_not_be_loaded_there() -> None:
    none: tuple[()] = ()
    refills = (Refill(0, 0), Refill(1, 0))
    odd = Schedule(Ring(1, 2), "odd", (0,), refills, (none,), (none,), (none,), (none,))
    assert held_at(odd, 0) == {0: 0}
