"""A fault in one sentence: the two operations, their boundaries, and the fence that is missing."""

from __future__ import annotations

import re

import pytest

from schedule import Ring, policies
from schedule.faults import explain
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    RAN,
    Copy,
    Event,
    Issued,
    Listing,
    Operation,
    Operations,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.order import Ordering, order, start
from schedule.program import lower
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
    refill,
    run,
    sentences,
)

COPIED = Copy(COPY, 0, 0)
RUNS = Run(COMPUTE, 0, 0)
JOIN = Record(COPY, own(DRAINED)), Wait(COMPUTE, own(DRAINED))

ONE_SENTENCE: list[tuple[str, Operations, str]] = [
    (
        "RAW, nothing recorded",
        (COPIED, RUNS),
        "RAW: [compute: run module 0 from slot 0] (step 1) reads the slot while it may still be "
        "written by [copy: copy module 0 into slot 0] (step 0); record an event on copy after "
        "the copy, and let compute wait for it before the run",
    ),
    (
        "RAW, an event recorded",
        (COPIED, Record(COPY, landed(0)), Record(COPY, DRAINED), RUNS),
        "RAW: [compute: run module 0 from slot 0] (step 3) reads the slot while it may still be "
        "written by [copy: copy module 0 into slot 0] (step 0); let compute wait for landed[0] "
        "before the run",
    ),
    (
        "RAW, recorded by another stream, and before the copy",
        (Record(COPY, DRAINED), COPIED, Record(COMPUTE, RAN), RUNS),
        "RAW: [compute: run module 0 from slot 0] (step 3) reads the slot while it may still be "
        "written by [copy: copy module 0 into slot 0] (step 1); record an event on copy after "
        "the copy, and let compute wait for it before the run",
    ),
    (
        "WAR, nothing recorded",
        (*refill(0, 0), *run(0, 0), Copy(COPY, 0, 1)),
        "WAR: [copy: copy module 1 into slot 0] (step 6) overwrites the slot while it may still "
        "be read by [compute: run module 0 from slot 0] (step 5); record an event on compute "
        "after the run, and let copy wait for it before the copy",
    ),
    (
        "WAR, an event recorded",
        (*refill(0, 0), *run(0, 0), Record(COMPUTE, RAN), Copy(COPY, 0, 1)),
        "WAR: [copy: copy module 1 into slot 0] (step 7) overwrites the slot while it may still "
        "be read by [compute: run module 0 from slot 0] (step 5); let copy wait for ran before "
        "the copy",
    ),
    (
        "WAW, nothing recorded",
        (COPIED, Copy(SECOND, 0, 1)),
        "WAW: [copy 1: copy module 1 into slot 0] (step 1) overwrites the slot while it may still "
        "be written by [copy: copy module 0 into slot 0] (step 0); record an event on copy after "
        "the copy, and let copy 1 wait for it before the copy",
    ),
    (
        "WAW, an event recorded",
        (COPIED, Record(COPY, landed(0)), Copy(SECOND, 0, 1)),
        "WAW: [copy 1: copy module 1 into slot 0] (step 2) overwrites the slot while it may still "
        "be written by [copy: copy module 0 into slot 0] (step 0); let copy 1 wait for landed[0] "
        "before the copy",
    ),
    (
        "block, nothing recorded",
        (COPIED, Write(0)),
        "block: [host: write the host block of module 0] (step 1) changes the block while it may "
        "still be read by [copy: copy module 0 into slot 0] (step 0); record an event on copy "
        "after the copy, and let host wait for it before the write",
    ),
    (
        "block, an event recorded",
        (COPIED, host_write(0)[0], Write(0)),
        "block: [host: write the host block of module 0] (step 2) changes the block while it may "
        "still be read by [copy: copy module 0 into slot 0] (step 0); let host wait for "
        "drained[0] before the write",
    ),
    (
        "identity, another module",
        (*refill(0, 1), Wait(COMPUTE, landed(0)), RUNS),
        "identity: [compute: run module 0 from slot 0] (step 5): the latest copy into slot 0 is of "
        "module 1",
    ),
    (
        "identity, no copy",
        (*refill(1, 0), RUNS),
        "identity: [compute: run module 0 from slot 0] (step 4): the latest copy into slot 0 is "
        "none",
    ),
    (
        "meaning, another module",
        (*refill(0, 1), Wait(COMPUTE, landed(0), 0)),
        "meaning: [compute: wait for landed[0], the copy of module 0] (step 4): the latest copy "
        "into slot 0 is of module 1",
    ),
    (
        "meaning, no copy",
        (*refill(1, 0), Wait(COMPUTE, landed(0), 0)),
        "meaning: [compute: wait for landed[0], the copy of module 0] (step 4): the latest copy "
        "into slot 0 is none",
    ),
    (
        "meaning, a stale record",
        (Record(COPY, landed(0)), COPIED, Wait(COMPUTE, landed(0), 0)),
        "meaning: [compute: wait for landed[0], the copy of module 0] (step 2): landed[0] was "
        "not recorded since that copy was issued",
    ),
    (
        "joined before a capture, nothing recorded",
        (COPIED, *graph()),
        "joined: [compute: capture graph g] (step 1) goes on before this is joined: [copy: copy "
        "module 0 into slot 0] (step 0); record an event on copy after the copy, and let compute "
        "wait for it before the capture",
    ),
    (
        "joined before a replay, an event recorded",
        (*graph(), COPIED, Record(COPY, DRAINED), REPLAY),
        "joined: [compute: replay graph g] (step 4) goes on before this is joined: [copy: copy "
        "module 0 into slot 0] (step 2); let compute wait for drained[0] before the "
        "replay",
    ),
    (
        "joined before the end, nothing recorded",
        graph(*own_refill(0, 0)[:3]),
        "joined: [compute: end of graph g] (step 4) goes on before this is joined: [copy: copy "
        "module 0 into slot 0] (step 3); record an event on copy after the copy, and let compute "
        "wait for it before the end of the capture",
    ),
    (
        "joined, a wait from outside",
        graph(Wait(COMPUTE, landed(1))),
        "joined: [compute: wait for landed[1]] (step 1): inside graph g it waits for landed[1] "
        "from outside",
    ),
    (
        "joined, no fork",
        graph(Copy(COPY, 0, 0)),
        "joined: [copy: copy module 0 into slot 0] (step 1): copy is not part of graph g: it did "
        "not fork",
    ),
    (
        "joined, waited for outside",
        (*graph(Record(COMPUTE, own(RAN))), Wait(COPY, own(RAN))),
        "joined: [copy: wait for ran of graph g] (step 3): ran of graph g can't be waited for "
        "outside of it",
    ),
    (
        "pageable",
        graph(*own_refill(0, 0)[:2], Copy(COPY, 0, 0, True), *JOIN),
        "pageable: [copy: copy module 0 into slot 0 from pageable memory] (step 3): inside graph g "
        "it copies from pageable memory",
    ),
]


@pytest.mark.parametrize(
    ("operations", "text"),
    [each[1:] for each in ONE_SENTENCE],
    ids=[each[0] for each in ONE_SENTENCE],
)
def test_the_fault_in_one_sentence(operations: Operations, text: str) -> None:
    assert sentences(*operations, streams=TWO) == [text]


def test_a_fault_with_what_came_before_the_listing() -> None:
    begun = start()
    begun = begun._replace(read=begun.read.put(0, {COMPUTE: 1}))
    found = order(listing(COPIED), state=begun)
    assert [explain(found, fault, 3) for fault in found.faults] == [
        "WAR: [copy: copy module 0 into slot 0] (step 0) overwrites the slot while it may still be "
        "read by what came before the listing"
    ]


# ---- boundaries in words


def test_the_boundaries_are_those_of_the_schedule() -> None:
    fork = Record(COMPUTE, RAN)
    whole = lower(policies.chain(Ring(3, 2))).listing(2)
    found = order(tuple(issued for issued in whole if issued.operation != fork))
    assert explain(found, found.faults[-1], 3) == (
        "WAR: [copy: copy module 0 into slot 0] (pass 1, after module 2) overwrites the slot while "
        "it may still be read by [compute: run module 2 from slot 0] (pass 1, module 2); record "
        "an event on compute after the run, and let copy wait for it before the copy"
    )


def test_the_sentences_of_the_old_rule() -> None:
    found = order(lower(policies.modular(Ring(3, 2))).listing(1))
    assert [explain(found, fault, 3) for fault in found.faults] == [
        "meaning: [compute: wait for landed[0], the copy of module 2] (pass 0, module 2): the "
        "latest copy into slot 0 is of module 0",
        "identity: [compute: run module 2 from slot 0] (pass 0, module 2): the latest copy into "
        "slot 0 is of module 0",
    ]


def test_an_operation_of_a_replay_is_placed_in_it() -> None:
    program = lower_captured(policies.modular(Ring(3, 2)))
    found = order(program.listing(2))
    assert [explain(found, fault, 3) for fault in found.faults if fault.property == "identity"] == [
        "identity: [compute: run module 2 from slot 0] (replay 0): the latest copy into slot 0 is "
        "of module 0",
        "identity: [compute: run module 2 from slot 0] (replay 1): the latest copy into slot 0 is "
        "of module 0",
    ]


# ---- the advice mends the program

LET = re.compile(r"; let (.+) wait for (\w+)(?:\[(\d+)\])? before the \w+$")
RECORD = re.compile(r"; record an event on (.+) after the \w+, and let (.+) wait for it before the")


def mended(found: Ordering) -> Listing:
    """The listing with the fence that the first fault's sentence asks for."""
    fault = found.faults[0]
    text = explain(found, fault, 3)
    assert fault.earlier is not None
    lines, wait, record = list(found.listing), LET.search(text), RECORD.search(text)
    if wait:
        event = Event(wait[2], int(wait[3]) if wait[3] else None)
        lines.insert(fault.later, _issued(Wait(wait[1], event)))
    else:
        assert record, text
        lines.insert(fault.later, _issued(Wait(record[2], DRAINED)))
        lines.insert(fault.earlier + 1, _issued(Record(record[1], DRAINED)))
    return tuple(lines)


def _issued(operation: Operation) -> Issued:
    return Issued(operation, Boundary("added", 0))


@pytest.mark.parametrize("streams", [Streams(), TWO])
@pytest.mark.parametrize("drop", [Record(COMPUTE, RAN), Wait(COPY, RAN), Wait(COMPUTE, landed(0))])
def test_the_fences_that_are_asked_for_mend_the_program(drop: Operation, streams: Streams) -> None:
    whole = lower(policies.slot_local(Ring(3, 1)), streams).listing(2)
    found = order(tuple(one for one in whole if not _like(one.operation, drop)), streams)
    assert not found.safe
    for _ in range(len(found.faults)):
        if not found.safe:
            found = order(mended(found), streams)
    assert found.safe


def _like(operation: Operation, drop: Operation) -> bool:
    """The same but for what it means."""
    if isinstance(operation, Wait) and isinstance(drop, Wait):
        return (operation.stream, operation.event) == (drop.stream, drop.event)
    return operation == drop
