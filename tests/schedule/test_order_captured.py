"""Captures and replays: forks joined, nothing from outside, everything from before joined."""

from __future__ import annotations

import pytest

from schedule import Ring, policies
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Listing,
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
from schedule.program import lower
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, ORDERING, PAGEABLE, RAW, WAR, WAW
from tests.schedule.listings import (
    DRAINED,
    REPLAY,
    SECOND,
    TWO,
    faults,
    graph,
    listing,
    own,
    own_refill,
    own_run,
    refill,
    run,
    shown,
    three,
)

FORK = own_refill(0, 0)[:2]
JOIN = Record(COPY, own(DRAINED)), Wait(COMPUTE, own(DRAINED))
OUTER = Record(COPY, DRAINED), Wait(COMPUTE, DRAINED)
WHOLE = graph(*own_refill(0, 0), *own_run(0, 0))


def test_a_graph_whose_forks_are_joined() -> None:
    assert faults(*WHOLE, REPLAY, REPLAY) == []
    assert faults(*graph(*own_refill(0, 0), *JOIN), REPLAY) == []


# ---- forks are joined before the end


def test_a_fork_that_is_not_joined_shows_at_the_end_and_at_each_replay() -> None:
    loose = graph(*own_refill(0, 0))
    assert faults(*loose) == [(JOINED, 5, 3)]
    # At the replay: what the capture left, then what the replay itself leaves.
    assert faults(*loose, REPLAY) == [(JOINED, 5, 3), (JOINED, 6, 3), (JOINED, 6, 3)]


def test_a_join_covers_what_was_given_before_it() -> None:
    early = graph(*FORK, Copy(COPY, 0, 0), *JOIN, Copy(COPY, 1, 1))
    assert faults(*early) == [(JOINED, 7, 6)]


def test_one_of_two_forks_is_not_joined() -> None:
    other = Wait(SECOND, own(RAN)), Copy(SECOND, 1, 1)
    assert faults(*graph(*FORK, *other, Copy(COPY, 0, 0), *JOIN), streams=TWO) == [(JOINED, 8, 4)]


# ---- nothing from outside


def test_no_wait_in_a_graph_reaches_outside() -> None:
    found = order(listing(Record(COPY, DRAINED), *graph(Wait(COMPUTE, DRAINED))))
    assert shown(found) == [(JOINED, 2, None)]
    assert found.faults[0].why == "inside graph g it waits for drained[0] from outside"


def test_an_outside_wait_orders_nothing() -> None:
    outside = *refill(0, 0), *OUTER, *graph(*run(0, 0))
    assert faults(*outside, REPLAY) == [(JOINED, 7, None)]
    loose = *graph(Wait(COMPUTE, DRAINED)), Copy(COPY, 0, 0), Record(COPY, DRAINED), REPLAY
    assert faults(*loose, Run(COMPUTE, 0, 0)) == [
        (JOINED, 1, None),
        (JOINED, 5, 3),
        (RAW, 6, 3),
    ]


def test_a_stream_that_did_not_fork_is_no_part_of_the_graph() -> None:
    found = order(listing(*graph(Copy(COPY, 0, 0))))
    assert shown(found) == [(JOINED, 1, None)]
    assert found.faults[0].why == "copy is not part of graph g: it did not fork"
    assert faults(*graph(Record(COPY, own(DRAINED)))) == [(JOINED, 1, None)]


def test_a_wait_for_what_came_before_is_no_fork() -> None:
    outside = Record(COMPUTE, RAN), *graph(Wait(COPY, RAN), Copy(COPY, 0, 0))
    found = order(listing(*outside))
    assert shown(found) == [(JOINED, 2, None), (JOINED, 2, None), (JOINED, 3, None)]
    assert [fault.why for fault in found.faults] == [
        "inside graph g it waits for ran from outside",
        "copy is not part of graph g: it did not fork",
        "copy is not part of graph g: it did not fork",
    ]


def test_an_eager_wait_does_not_reach_into_a_graph() -> None:
    after = *WHOLE, REPLAY, Wait(COPY, own(RAN)), Copy(COPY, 0, 0)
    found = three(listing(*after))
    assert shown(found) == [(JOINED, 9, None), (WAR, 10, 6), (WAW, 10, 3)]
    assert found.faults[0].why == "ran of graph g can't be waited for outside of it"
    assert faults(*WHOLE, REPLAY, Wait(HOST, own(RAN)))[0] == (JOINED, 9, None)


def test_pageable_memory_can_not_be_captured() -> None:
    found = three(listing(*graph(*FORK, Copy(COPY, 0, 0, True), *JOIN), REPLAY))
    assert shown(found) == [(PAGEABLE, 3, None)]
    assert found.faults[0].why == "inside graph g it copies from pageable memory"
    assert [found.tasks[lint].operation.stream for lint in found.lints] == ["copy: replay 0 of g"]


# ---- everything from before is joined, before capture and before replay


def test_a_copy_from_before_the_capture_is_joined_first() -> None:
    before = Copy(COPY, 0, 0)
    assert faults(before, *graph()) == [(JOINED, 1, 0)]
    assert faults(before, *OUTER, *graph()) == []


def test_a_copy_from_before_a_replay_is_joined_first() -> None:
    before = *graph(), Copy(COPY, 0, 0)
    assert faults(*before, REPLAY) == [(JOINED, 3, 2)]
    assert faults(*before, *OUTER, REPLAY) == []
    assert faults(*graph(), REPLAY, Copy(COPY, 0, 0), REPLAY) == [(JOINED, 4, 3)]


def test_a_wait_of_the_host_joins_too() -> None:
    waited = Copy(COPY, 0, 0), Record(COPY, DRAINED), Wait(HOST, DRAINED)
    assert faults(*waited, *graph()) == []
    assert faults(*graph(), *waited, REPLAY) == []


def test_every_stream_is_joined() -> None:
    both = Copy(COPY, 0, 0), Copy(SECOND, 1, 1)
    assert faults(*both, *graph(), streams=TWO) == [(JOINED, 2, 0), (JOINED, 2, 1)]
    assert faults(*both, *OUTER, *graph(), streams=TWO) == [(JOINED, 4, 1)]


# ---- a replay among eager operations


def test_eager_work_after_a_replay_waits_for_the_stream() -> None:
    assert faults(*WHOLE, REPLAY, *refill(0, 1)) == []
    assert faults(*WHOLE, REPLAY, Copy(COPY, 0, 1)) == [(WAR, 9, 6), (WAW, 9, 3)]


def test_a_replay_reads_and_writes_what_eager_copies_wrote() -> None:
    reads = graph(Run(COMPUTE, 0, 0))
    eager = Copy(COPY, 0, 0), Record(COPY, DRAINED)
    assert faults(*reads, *eager, Wait(COMPUTE, DRAINED), REPLAY) == []
    assert faults(*reads, *eager, REPLAY) == [(JOINED, 5, 3), (RAW, 1, 3)]
    writes = graph(*own_refill(0, 1), *JOIN)
    assert faults(*writes, *eager, REPLAY) == [(JOINED, 10, 8), (WAW, 3, 8)]


def test_the_host_writes_a_block_that_a_replay_reads() -> None:
    copies = graph(*own_refill(0, 0), *JOIN)
    assert faults(*copies, Write(0), REPLAY) == []
    assert faults(*copies, REPLAY, Write(0)) == [(BLOCK, 9, 3)]
    drained = Record(COMPUTE, RAN), Wait(HOST, RAN)
    assert faults(*copies, REPLAY, *drained, Write(0)) == []


def test_a_graph_finds_what_eager_operations_left() -> None:
    reads = graph(Run(COMPUTE, 0, 0))
    assert faults(*reads, *refill(0, 1), *run(0, 1), REPLAY) == [(IDENTITY, 1, None)]
    means = graph(*own_refill(0, 1), *own_run(0, 0))
    assert faults(*means) == []  # nothing was executed yet
    assert faults(*means, REPLAY) == [(MEANING, 5, None), (IDENTITY, 6, None)]


def test_hazards_of_one_replay_are_its_own() -> None:
    fenceless = graph(*FORK, Copy(COPY, 0, 0), Run(COMPUTE, 0, 0), *JOIN)
    once = [(RAW, 4, 3)]
    assert faults(*fenceless, REPLAY) == once
    assert faults(*fenceless, REPLAY, REPLAY) == once * 2


# ---- two graphs


def two_graphs(*between: Operation) -> Operations:
    """A graph that copies and runs, and one that runs."""
    first = graph(*own_refill(0, 0), *JOIN)
    second = Capture(COMPUTE, "h"), Run(COMPUTE, 0, 0), EndCapture(COMPUTE, "h")
    return *first, *second, Replay(COMPUTE, "g"), *between, Replay(COMPUTE, "h")


def test_two_graphs_follow_each_other_on_their_stream() -> None:
    assert faults(*two_graphs()) == []
    assert faults(*two_graphs(Replay(COMPUTE, "h"), Replay(COMPUTE, "g"))) == []
    assert faults(*two_graphs(*refill(0, 1), *run(0, 1))) == [(IDENTITY, 9, None)]


def test_a_graph_that_is_not_joined_shows_in_the_next_one() -> None:
    loose = graph(*own_refill(0, 0))
    other = Capture(COMPUTE, "h"), EndCapture(COMPUTE, "h")
    assert faults(*loose, *other) == [(JOINED, 5, 3), (JOINED, 6, 3)]


def test_a_graph_of_a_copy_stream() -> None:
    fork = Record(COPY, own(landed(0))), Wait(COMPUTE, own(landed(0)), 0)
    back = Record(COMPUTE, own(RAN)), Wait(COPY, own(RAN))
    body = Copy(COPY, 0, 0), *fork, Run(COMPUTE, 0, 0), *back
    whole = Capture(COPY, "g"), *body, EndCapture(COPY, "g"), Replay(COPY, "g")
    assert faults(*whole) == []
    # Of the replay's copy, and of its run, which may write into the weights.
    assert faults(*whole, Run(COMPUTE, 0, 0)) == [(RAW, 9, 1), (RAW, 9, 4)]


# ---- the lowering


IN_EACH_REPLAY = [
    (RAW, 10, 2),
    (WAW, 13, 2),
    (RAW, 15, 6),
    (MEANING, 16, None),
    (RAW, 17, 2),
    (WAW, 20, 2),
]
"""Without a join: the graph's runs 10, 15 and 17 and its copies 13 and 20 against the preload's
copies 2 and 6. The second replay is not ordered with them either."""


def captured(*dropped: object) -> Listing:
    """Capture and two replays of a chain, without some operations."""
    whole = lower_captured(policies.chain(Ring(3, 2))).listing(2)
    return tuple(issued for issued in whole if issued.operation not in dropped)


def test_a_captured_chain_is_safe() -> None:
    assert three(captured()).safe
    program = lower_captured(policies.chain(Ring(3, 2)), TWO)
    assert three(program.listing(3), TWO).safe


def test_capture_and_replay_without_their_joins() -> None:
    assert shown(order(captured(Wait(COMPUTE, DRAINED)))) == [
        (JOINED, 9, 6),
        (JOINED, 26, 6),
        *IN_EACH_REPLAY,
        (JOINED, 32, 6),
        *IN_EACH_REPLAY,
    ]


def test_eager_passes_among_replays() -> None:
    schedule = policies.chain(Ring(2, 1))
    graphs, eager = lower_captured(schedule), lower(schedule)
    passes = eager.listing(1)[len(eager.preload) :]
    replay = graphs.listing(1)[len(graphs.listing(0)) :]
    assert three((*graphs.listing(0), *passes, *replay, *passes, *replay)).safe


@pytest.mark.parametrize("streams", [Streams(), TWO])
def test_the_old_rule_captured_is_ordered_and_wrong(streams: Streams) -> None:
    program = lower_captured(policies.modular(Ring(3, 2)), streams)
    found = three(program.listing(1), streams)
    assert found.holds(*ORDERING, JOINED)
    assert {fault.property for fault in found.faults} == {MEANING, IDENTITY}
    wrong = [fault for fault in found.faults if fault.property == IDENTITY]
    assert [found.tasks[fault.later].operation for fault in wrong] == [Run(COMPUTE, 0, 2)]
