"""Every interleaving: how many states there are, the shortest ways to a fault, and the bound."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from schedule import Ring, machine, policies
from schedule import explore as explorer
from schedule.explore import LIMIT, explore
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    ONE_COPY_STREAM,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Event,
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
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, RAW, WAR, WAW
from schedule.tasks import Fault
from tests.schedule.listings import DRAINED, SECOND, TWO, graph, listing, own_refill, refill, run

SHARED = Streams((COMPUTE,))
COPIED = Copy(COPY, 0, 0)
RUNS = Run(COMPUTE, 0, 0)


def eager(name: str, ring: tuple[int, int], streams: Streams = ONE_COPY_STREAM) -> Listing:
    """Preload and two passes."""
    return lower(policies.NAMED[name](Ring(*ring)), streams).listing(2)


# ---- how many states

COUNTS = [
    ("slot_local", (1, 1), ONE_COPY_STREAM, 11),
    ("slot_local", (3, 2), ONE_COPY_STREAM, 49),
    ("slot_local", (5, 3), ONE_COPY_STREAM, 119),
    ("slot_local", (3, 2), TWO, 81),
    ("chain", (3, 2), ONE_COPY_STREAM, 37),
    ("chain", (3, 2), TWO, 45),
    ("chain", (3, 2), SHARED, 25),
    ("modular", (3, 2), ONE_COPY_STREAM, 45),
]


@pytest.mark.parametrize(("name", "ring", "streams", "states"), COUNTS)
def test_the_states_of_a_schedule(
    name: str, ring: tuple[int, int], streams: Streams, states: int
) -> None:
    found = explore(eager(name, ring, streams), streams)
    assert (found.states, found.complete) == (states, True)
    assert bool(found.faults) is (name == "modular")


@pytest.mark.parametrize(("ring", "states"), [((1, 1), 8), ((2, 1), 23), ((3, 2), 39)])
def test_the_states_of_a_captured_chain(ring: tuple[int, int], states: int) -> None:
    found = explore(lower_captured(policies.chain(Ring(*ring))).listing(2))
    assert (found.states, found.complete, found.faults) == (states, True, frozenset())


def test_the_states_of_one_copy_stream_can_be_counted_by_hand() -> None:
    fenced = (*refill(0, 0), *run(0, 0))
    assert explore(()).states == 1
    assert explore(listing(*fenced)).states == 5  # nothing; begun and over, one after the other
    assert explore(listing(COPIED, Run(COMPUTE, 1, 0))).states == 3 * 3  # side by side
    three = COPIED, Copy(SECOND, 1, 1), Run(COMPUTE, 2, 2)
    assert explore(listing(*three), TWO).states == 3 * 3 * 3
    assert explore(listing(*refill(0, 0), Write(1))).states == 3 * 2
    assert explore(listing(Write(1), *refill(0, 0))).states == 2 + 2  # issued after the write


# ---- shortest interleavings


def shortest(*operations: Operation, streams: Streams = ONE_COPY_STREAM) -> dict[str, list[str]]:
    found = explore(listing(*operations), streams)
    assert found.complete
    return _words(found.shortest)


def _words(found: dict[str, tuple[tuple[int, str], ...]]) -> dict[str, list[str]]:
    return {name: [f"{n} {what}" for n, what in moves] for name, moves in found.items()}


def test_a_hazard_shows_as_soon_as_both_have_begun() -> None:
    assert shortest(COPIED, RUNS) == {
        IDENTITY: ["1 begins"],
        RAW: ["0 begins", "1 begins"],
    }
    assert shortest(COPIED, Copy(SECOND, 0, 1), streams=TWO) == {WAW: ["0 begins", "1 begins"]}


def test_a_hazard_is_named_by_the_order_of_issue_whichever_begins_first() -> None:
    found = explore(listing(*refill(0, 0), *run(0, 0), COPIED))
    assert found.faults == {Fault(WAR, 6, 5)}
    assert _words(found.shortest) == {WAR: ["2 begins", "2 ends", "5 begins", "6 begins"]}
    late = explore(listing(COPIED, RUNS))
    assert late.faults == {Fault(IDENTITY, 1), Fault(RAW, 1, 0)}


def test_a_host_write_shows_while_a_copy_is_under_way() -> None:
    assert shortest(COPIED, Write(0)) == {BLOCK: ["0 begins", "1 ends"]}
    assert shortest(Write(0), COPIED) == {}


def test_a_form_that_shows_at_once_takes_no_step() -> None:
    assert shortest(Wait(COMPUTE, landed(0), 0)) == {MEANING: []}
    assert shortest(COPIED, *graph()) == {JOINED: []}
    assert shortest(*graph(*own_refill(0, 0))) == {JOINED: []}


def test_the_host_goes_on_when_its_wait_is_over() -> None:
    waited = COPIED, Record(COPY, DRAINED), Wait(HOST, DRAINED), Run(COMPUTE, 0, 1)
    assert shortest(*waited) == {IDENTITY: ["0 begins", "0 ends", "3 begins"]}


def test_the_old_rule_needs_every_copy_before_the_wrong_run() -> None:
    found = explore(eager("modular", (3, 2)))
    assert ", ".join(_words(found.shortest)[IDENTITY]) == (
        "2 begins, 2 ends, 9 begins, 9 ends, 6 begins, 6 ends, "
        "15 begins, 15 ends, 12 begins, 12 ends, 18 begins, 18 ends, 21 begins"
    )
    assert found.faults == {
        Fault(MEANING, 20),
        Fault(IDENTITY, 21),
        Fault(MEANING, 38),
        Fault(IDENTITY, 39),
    }


def test_a_chain_without_its_fork() -> None:
    fork = Record(COMPUTE, RAN)
    whole = eager("chain", (2, 1))
    found = explore(tuple(issued for issued in whole if issued.operation != fork))
    assert (found.states, found.complete) == (59, True)
    assert _words(found.shortest) == {
        WAR: ["1 begins", "1 ends", "6 begins", "4 begins"],
        IDENTITY: ["1 begins", "1 ends", "6 begins", "6 ends", "4 begins"],
    }
    assert {fault for fault in found.faults if fault.property == WAR} == {
        Fault(WAR, copy, read) for copy in (6, 11, 16, 21) for read in (4, 9, 14, 19) if read < copy
    }


# ---- what it leans on


def test_the_machine_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(*_: Any) -> None:
        return None

    assert explore(listing(COPIED, RUNS)).faults == {Fault(RAW, 1, 0), Fault(IDENTITY, 1)}
    monkeypatch.setattr(machine, "objection", lenient)
    assert explore(listing(COPIED, RUNS)).faults == frozenset()


def test_it_knows_nothing_of_the_clocks() -> None:
    tree = ast.parse(inspect.getsource(explorer))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {str(name) for name in modules if str(name).startswith("schedule")} == {
        "schedule",  # the machine
        "schedule.operations",
        "schedule.properties",  # names alone
        "schedule.queues",
        "schedule.ring",
        "schedule.tasks",
    }


# ---- the bound


def wide(streams: int) -> tuple[Listing, Streams]:
    """Two copies into one slot on each stream, none ordered with another stream's."""
    names = tuple(f"s{number}" for number in range(streams))
    copies: Operations = tuple(Copy(name, 0, 0) for name in names for _ in range(2))
    return listing(*copies), Streams(names)


@pytest.mark.parametrize("limit", [0, 1, 10, 100])
def test_past_the_bound_it_says_so_and_what_it_found_is_true(limit: int) -> None:
    program, streams = wide(3)
    found, whole = explore(program, streams, limit), explore(program, streams)
    assert whole.complete
    assert not found.complete
    assert limit < found.states <= limit + 4  # what the last state leads to is counted too
    assert found.faults <= whole.faults
    assert whole.faults >= {Fault(WAW, 2, 0), Fault(WAW, 5, 3)}
    assert bool(found.faults) is (limit > 1)


def test_a_bound_that_is_not_met() -> None:
    program, streams = wide(2)
    states = explore(program, streams).states
    assert explore(program, streams, states).complete
    assert explore(program, streams, states).states == states
    assert not explore(program, streams, states - 2).complete


def test_a_big_program_ends_at_its_bound() -> None:
    program, streams = wide(12)
    found = explore(program, streams, 2_000)
    assert (found.complete, found.states >= 2_000) == (False, True)
    assert found.faults <= set(order_pairs(program, streams))
    assert LIMIT == 200_000


def order_pairs(program: Listing, streams: Streams) -> list[Fault]:
    """Every pair of copies on different streams; the clocks name the later one of each stream."""
    assert not order(program, streams).safe
    one_slot = [issued.operation for issued in program]
    return [
        Fault(WAW, later, earlier)
        for later, second in enumerate(one_slot)
        for earlier, first in enumerate(one_slot[:later])
        if first.stream != second.stream
    ]


def test_two_runs_of_one_slot_at_once() -> None:
    """A run may write into its weights. The machine knows of one run at a time."""
    inside = Wait(COMPUTE, Event("landed", 0, "g")), Run(COMPUTE, 0, 0)
    back = Record(COMPUTE, Event("ran", None, "g")), Wait(COPY, Event("ran", None, "g"))
    body = Capture(COPY, "g"), Record(COPY, Event("landed", 0, "g")), *inside, *back
    whole = listing(*body, EndCapture(COPY, "g"), Replay(COPY, "g"), Run(COMPUTE, 0, 0))
    found = explore(whole)
    assert {fault.property for fault in found.faults} == {RAW, IDENTITY}
    assert {fault.property for fault in order(whole).faults} == {RAW, IDENTITY}
