"""Traces in which graphs are captured and replayed: what fits, and what any other one gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proofs.hosted import Host
from proofs.obligation import System
from schedule import Ring, Schedule, policies
from schedule.audit import audit
from schedule.conform import PROGRAM
from schedule.errors import ProgramError
from schedule.graphs import CAPTURE, REPLAY, Graph
from schedule.operations import (
    COMPUTE,
    ONE_COPY_STREAM,
    Capture,
    Copy,
    EndCapture,
    Issued,
    Listing,
    Replay,
)
from schedule.policy import NAMED
from schedule.program import lower
from schedule.properties import IDENTITY
from schedule.table import Boundary
from schedule.trace import Trace
from schedule.tracefile import parse

CHAIN = policies.chain(Ring(4, 2))


def hosted(schedule: Schedule, script: Callable[[Host], None]) -> Trace:
    """What a host issues that follows the script."""
    host = Host(System(), schedule, ONE_COPY_STREAM)
    script(host)
    trace = Trace("cpu", schedule, (-1,) * schedule.ring.slots)
    trace.issued = list(host.listing)
    return trace


def prefill_and_decode(host: Host) -> None:
    host.run(range(4))
    graph = host.capture("graph 0", range(4))
    for _ in range(3):
        host.replay(graph)


def disturbed(host: Host) -> None:
    graph = host.capture("graph 0", range(4))
    host.run((0, 1, 2))  # cut short
    host.replay(graph)
    host.run((3, 1))
    host.replay(graph)
    host.run(range(4))


def in_pieces(host: Host) -> None:
    graphs = [host.capture(f"graph {at}", steps) for at, steps in enumerate(([0, 1], [2, 3]))]
    for at in (0, 1, 1, 0):
        host.replay(graphs[at])


SCRIPTS = (prefill_and_decode, disturbed, in_pieces)
PASSES = {prefill_and_decode: (5, 20), disturbed: (4, 21), in_pieces: (3, 16)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_host_issues_fits(script: Callable[[Host], None]) -> None:
    for policy in NAMED.values():
        schedule = policy(Ring(4, max(2, policy.least_slots)))
        if schedule.period > 1:
            continue
        found = audit(hosted(schedule, script))
        assert found.fits, f"{policy.name}: {found}"
        assert found.abandoned <= 1


def test_a_replay_counts_as_the_passes_that_it_is() -> None:
    found = audit(hosted(CHAIN, prefill_and_decode))
    # The preload's copies, four a pass in chain of (4, 2): one eager, one before the capture.
    assert (found.runs, found.copies, found.passes, found.misses) == (20, 2 + 5 * 4, 5, 0)


def test_what_the_replays_need_is_reloaded_and_counted() -> None:
    found = audit(hosted(CHAIN, disturbed))
    assert (found.runs, found.passes) == (3 * 4 + 4 + 5, 4)
    # After modules 0, 1, 2 slot 0 holds 0, slot 1 holds 3; after 3, 1: slot 1 holds 3.
    assert found.misses == 2 + 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_is_read_back(script: Callable[[Host], None]) -> None:
    trace = hosted(CHAIN, script)
    assert parse("\n".join(trace.lines()).encode() + b"\n") == trace


def split(trace: Trace) -> Trace:
    """The trace from the end of its last capture on, with the graphs that were captured before."""
    last = max(at for at, one in enumerate(trace.issued) if isinstance(one.operation, EndCapture))
    before = replace(trace, issued=trace.issued[: last + 1])
    holds = list(trace.holds)
    for _, one in before.executed():
        if isinstance(one.operation, Copy):
            holds[one.operation.slot] = one.operation.module
    graphs: list[Graph] = []
    for one in before.issued:
        if isinstance(one.operation, Capture):
            graphs.append(Graph(one.operation.graph))
        elif one.boundary.half != CAPTURE and graphs:
            graphs[-1] = replace(graphs[-1], body=(*graphs[-1].body, one))
    return replace(trace, holds=tuple(holds), issued=trace.issued[last + 1 :], graphs=tuple(graphs))


@pytest.mark.parametrize("script", [prefill_and_decode])
def test_a_trace_may_begin_after_the_capture(script: Callable[[Host], None]) -> None:
    trace = split(hosted(CHAIN, script))
    assert [one.operation for one in trace.issued].count(Replay(COMPUTE, "graph 0")) == 3
    found = audit(trace)
    assert found.fits, str(found)
    assert (found.runs, found.copies, found.misses) == (12, 12, 0)
    again = parse("\n".join(trace.lines()).encode() + b"\n")
    assert [graph.body for graph in again.graphs] == [graph.body for graph in trace.graphs]
    assert audit(again).fits


def without(trace: Trace, drop: Callable[[Issued], bool]) -> Trace:
    """Without the first operation like this."""
    at = next(n for n, one in enumerate(trace.issued) if drop(one))
    return replace(trace, issued=[*trace.issued[:at], *trace.issued[at + 1 :]])


def of(kind: type, half: str = "") -> Callable[[Issued], bool]:
    return lambda one: isinstance(one.operation, kind) and half in ("", one.boundary.half)


def reload_of(module: int) -> Listing:
    return lower(CHAIN).parts()["reload"][module]


TAMPERED: dict[str, tuple[Callable[[Trace], Trace], str]] = {
    "no end": (lambda trace: without(trace, of(EndCapture)), PROGRAM),
    "no begin": (lambda trace: without(trace, of(Capture)), PROGRAM),
    "no replay": (lambda trace: without(trace, of(Replay)), PROGRAM),
    "no join": (lambda trace: without(trace, lambda one: one.boundary.half == REPLAY), PROGRAM),
    "a copy less in the graph": (
        lambda trace: without(trace, lambda one: "ran of graph" in str(one.operation)), PROGRAM),
    "no reload": (
        lambda trace: replace(
            trace, issued=[one for one in trace.issued if one.boundary.half != "reload"]),
        IDENTITY),
    "a reload that no replay needs": (
        lambda trace: replace(trace, issued=[
            other
            for one in trace.issued
            for other in (*(reload_of(2) if of(Replay)(one) else ()), one)]),
        PROGRAM),
    "another graph": (
        lambda trace: replace(trace, issued=[
            Issued(Replay(COMPUTE, "other"), one.boundary) if of(Replay)(one) else one
            for one in trace.issued]),
        PROGRAM),
    "captured twice": (lambda trace: replace(trace, issued=trace.issued * 2), PROGRAM),
    "a preload in a graph": (
        lambda trace: replace(trace, issued=[
            Issued(one.operation, Boundary("preload", 0)) if of(Capture)(one) else one
            for one in trace.issued]),
        PROGRAM),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERED)
def test_what_does_not_fit_is_named(how: str) -> None:
    change, wanted = TAMPERED[how]
    found = audit(change(hosted(CHAIN, disturbed)))
    assert wanted in [misfit.property for misfit in found.misfits], str(found)


def test_a_graph_that_was_captured_before_must_be_the_programs() -> None:
    trace = split(hosted(CHAIN, prefill_and_decode))
    (graph,) = trace.graphs
    wrong = replace(graph, body=graph.body[:-1])
    found = audit(replace(trace, graphs=(wrong,)))
    assert (found.misfits[0].at, found.misfits[0].property) == (-1, PROGRAM)
    assert "line 1: a graph that was captured before\n  program: in graph graph 0: " in str(found)
    assert found.as_json()["misfits"][0]["operation"] is None


def changed(**fields: Any) -> bytes:
    """The trace after the capture, with its first graph's fields changed."""
    header, *lines = map(json.loads, split(hosted(CHAIN, prefill_and_decode)).lines())
    header["graphs"][0] |= fields
    return "".join(f"{json.dumps(each)}\n" for each in (header, *lines)).encode()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": 1}, "graphs[0].name: a text is needed, not 1"),
        ({"body": 1}, "graphs[0].body: a list is needed, not 1"),
        ({"body": [1]}, "graphs[0].body[0]: an object is needed, not 1"),
        ({"body": [{"op": "run"}]}, "graphs[0].body[0].stream: missing"),
        ({"colour": 1}, "graphs[0].colour: unknown field"),
    ],
)
def test_a_headers_graphs(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError) as error:
        parse(changed(**fields))
    assert str(error.value) == f"line 1: {message}"
