"""Every small change of a trace's file, by a hand that also mends the number at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from schedule.audit import audit
from schedule.errors import ProgramError
from schedule.graphs import GRAPH
from schedule.trace import HALVES, KINDS, Trace
from schedule.tracefile import parse

Lines = list[dict[str, Any]]


def lines_of(trace: Trace) -> Lines:
    """A trace's lines as JSON."""
    return [json.loads(line) for line in trace.lines()]


def accepted(lines: Lines) -> bool:
    """Whether the lines pass for a trace that fits: else they are refused, by reader or audit."""
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    try:
        return audit(parse(content.encode())).fits
    except ProgramError:
        return False


def whole(header: dict[str, Any], body: Lines) -> Lines:
    return [header, *body, {"end": len(body)}]


def removals(trace: Trace) -> Iterator[tuple[str, Lines]]:
    header, *body, _ = lines_of(trace)
    for at in range(len(body)):
        yield f"without line {at + 2}", whole(header, body[:at] + body[at + 1 :])


def duplications(trace: Trace) -> Iterator[tuple[str, Lines]]:
    header, *body, _ = lines_of(trace)
    for at in range(len(body)):
        yield f"line {at + 2} twice", whole(header, body[: at + 1] + body[at:])


def swaps(trace: Trace) -> Iterator[tuple[str, Lines]]:
    header, *body, _ = lines_of(trace)
    for at, (first, second) in enumerate(pairwise(body)):
        if first != second:
            swapped = [*body[:at], second, first, *body[at + 2 :]]
            yield f"lines {at + 2} and {at + 3} swapped", whole(header, swapped)


def field_changes(trace: Trace) -> Iterator[tuple[str, Lines]]:
    """Each field of each operation, to everything else that it may be."""
    header, *body, _ = lines_of(trace)
    for at, line in enumerate(body):
        for name, value in others(line, header):
            changed = {**line, name: value} if value is not None else without(line, name)
            text = f"line {at + 2} with {name} {json.dumps(value)}"
            yield text, whole(header, [*body[:at], changed, *body[at + 1 :]])


def without(line: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != name}


def others(line: dict[str, Any], header: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(field, another value); None: without it."""
    slots, modules = header["slots"], header["modules"]
    events = [{"name": "ran"}, {"name": "drained", "number": 0}]
    events += [{"name": "landed", "number": slot} for slot in range(slots)]
    events += [{**event, "graph": GRAPH} for event in events]
    values: dict[str, list[Any]] = {
        "op": list(KINDS),
        "stream": ["compute", "copy", "host"],
        "slot": list(range(slots)),
        "module": [*range(modules), *([None] if line["op"] == "wait" else [])],
        "event": events,
        "half": list(HALVES),
        "step": list(range(modules)),
    }
    for name in line:
        yield from ((name, value) for value in values[name] if value != line[name])
    if line["op"] == "copy":
        yield "pageable", True
    yield "graph", GRAPH


def header_changes(trace: Trace) -> Iterator[tuple[str, Lines]]:
    """What the slots held, what was running, and each entry of the schedule."""
    header, *rest = lines_of(trace)
    slots, modules = header["slots"], header["modules"]
    refills = [{"slot": s, "module": m} for s in range(slots) for m in range(modules)]

    def entry(name: str, at: int, value: Any) -> tuple[str, Lines]:
        table = [*header[name][:at], value, *header[name][at + 1 :]]
        return f"{name}[{at}] {json.dumps(value)}", [{**header, name: table}, *rest]

    for name, values in (("holds", range(-1, modules)), ("slot_of", range(slots))):
        for at, old in enumerate(header[name]):
            yield from (entry(name, at, value) for value in values if value != old)
    for name in ("before", "after", "enter", "leave"):
        for at, old in enumerate(header[name]):
            table = [[refill] for refill in refills] + [[], old + old[:1]]
            yield from (entry(name, at, value) for value in table if value != old)
    for step in range(modules):
        yield f"running {step}", [{**header, "running": [*header["running"], step]}, *rest]
