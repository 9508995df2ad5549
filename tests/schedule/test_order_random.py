"""Random programs, right and wrong: clocks, interleavings and the solver find the same faults."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedule.explore import explore
from schedule.operations import (
    COMPUTE,
    COPY,
    Copy,
    Listing,
    Operation,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.order import order
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, PAGEABLE, RAW, WAR, WAW
from tests.schedule.listings import TWO, assemble, at_random, differences, graph_pieces, pieces

STREAMS = {
    "one copy stream": Streams(),
    "two copy streams": TWO,
    "copies on the compute stream": Streams((COMPUTE,)),
    "compute stream and a copy stream": Streams((COMPUTE, COPY)),
}
STATES = 20_000
SEEDS = 600


@st.composite
def programs(draw: st.DrawFn) -> tuple[Listing, Streams]:
    """What is eager, maybe a graph and its replay, what comes after."""
    streams = STREAMS[draw(st.sampled_from(sorted(STREAMS)))]
    eager, own_pieces = pieces(streams), graph_pieces(streams)
    body = st.lists(st.sampled_from(own_pieces), max_size=3)
    captured = draw(st.none() | st.none() | body)
    most = 5 if captured is None else 2
    before = draw(st.lists(st.sampled_from(eager), max_size=most))
    after = draw(st.lists(st.sampled_from(eager), max_size=2))
    return assemble(before, captured, after, streams), streams


@settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(programs())
def test_three_engines_agree(program: tuple[Listing, Streams]) -> None:
    listing, streams = program
    assert differences(order(listing, streams), explore(listing, streams, STATES)) == []


@pytest.mark.parametrize("name", STREAMS)
def test_three_engines_agree_on_programs_from_seeds(name: str) -> None:
    streams = STREAMS[name]
    for seed in range(40):
        listing = at_random(Random(seed), streams)
        clocks, explored = order(listing, streams), explore(listing, streams, STATES)
        assert differences(clocks, explored) == [], seed


def test_a_few_states_show_a_part_of_the_faults() -> None:
    """Most programs do not end within so few states; then nothing else is found."""
    met = 0
    for seed in range(60):
        listing = at_random(Random(seed), TWO)
        found, whole = explore(listing, TWO, 3), explore(listing, TWO)
        assert whole.complete
        assert found.faults <= whole.faults, seed
        met += not found.complete
    assert 20 <= met < 60


# ---- the programs are of all kinds


def concerned(name: str, operations: list[Operation]) -> bool:
    """Whether the property can be violated at all in such a program."""
    kinds = Counter(type(one) for one in operations)
    copied = Counter(one.slot for one in operations if isinstance(one, Copy))
    read = {one.slot for one in operations if isinstance(one, Run)}
    copies, reads = set(copied), {one.module for one in operations if isinstance(one, Write)}
    return {
        RAW: bool(copies & read),
        WAR: bool(copies & read),
        WAW: max(copied.values(), default=0) > 1,
        BLOCK: bool(reads & {one.module for one in operations if isinstance(one, Copy)}),
        IDENTITY: bool(read),
        MEANING: any(isinstance(one, Wait) and one.module is not None for one in operations),
        JOINED: kinds[Replay] > 0 and kinds[Copy] > 0,
        PAGEABLE: kinds[Replay] > 0 and any(getattr(one, "pageable", False) for one in operations),
    }[name]


LEAST = {
    RAW: (15, 60),
    WAR: (8, 60),
    WAW: (15, 40),
    BLOCK: (8, 5),
    IDENTITY: (60, 40),
    MEANING: (40, 40),
    JOINED: (30, 30),
    PAGEABLE: (5, 3),
}
"""By property: of the programs that it concerns, at least so many violate it, and so many not."""


@pytest.mark.parametrize("name", LEAST)
def test_faulty_and_faultless_programs_of_each_property_occur(name: str) -> None:
    count: Counter[bool] = Counter()
    for seed in range(SEEDS):
        streams = list(STREAMS.values())[seed % 2]
        listing = at_random(Random(seed), streams)
        if concerned(name, [issued.operation for issued in listing]):
            count[order(listing, streams).holds(name)] += 1
    faulty, faultless = LEAST[name]
    assert (count[False] >= faulty, count[True] >= faultless) == (True, True), count


def test_every_kind_of_operation_occurs_and_whole_programs_are_safe() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(SEEDS):
        listing = at_random(Random(seed), TWO)
        kinds.update(type(issued.operation).__name__ for issued in listing)
        found = order(listing, TWO)
        kinds["safe"] += found.safe and len(listing) > 4
        graph = any(isinstance(issued.operation, Replay) for issued in listing)
        kinds["safe graph"] += found.safe and graph and len(found.tasks) > 8
        records = [one.operation for one in listing if isinstance(one.operation, Record)]
        kinds["re-recorded"] += len({record.event for record in records}) < len(records)
    names = ("Copy", "Run", "Record", "Wait", "Write", "Capture", "EndCapture", "Replay")
    assert min(kinds[name] for name in (*names, "re-recorded")) >= 50, kinds
    assert min(kinds["safe"], kinds["safe graph"]) >= 15, kinds
