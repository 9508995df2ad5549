"""Reads a trace's file. Whatever is not exactly what ``Trace.save`` writes is an error with its
line and field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from schedule.errors import ProgramError
from schedule.fields import kind_of, list_of, number_of, once, only, text_of, within
from schedule.graphs import Graph, complete
from schedule.known import Known
from schedule.operations import (
    Capture,
    Copy,
    EndCapture,
    Event,
    Issued,
    Operation,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.ring import EMPTY, Ring
from schedule.table import TABLES, Boundary, Refill, Schedule
from schedule.trace import HALVES, KINDS, REFILLS, SCHEMA, Trace

MARK = "ringproof_trace"
HEADER = (
    *(MARK, "device", "copy_streams", "policy", "modules", "slots", "slot_of"),
    *(*REFILLS, "holds", "running", "graphs"),
)
FIELDS: dict[str, tuple[str, ...]] = {
    "copy": ("stream", "slot", "module"),
    "run": ("stream", "slot", "module"),
    "record": ("stream", "event"),
    "wait": ("stream", "event"),
    "write": ("stream", "slot", "module"),
    "capture": ("stream", "graph"),
    "end_capture": ("stream", "graph"),
    "replay": ("stream", "graph"),
}
OPTIONAL = {"copy": ("pageable",), "wait": ("module",)}


MOST_BYTES = 1 << 28


def read(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file. ProgramError, with line and field, for what is no whole trace: a file
    that is cut off, too."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ProgramError(f"{path} can't be read: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise ProgramError(f"{path} has more than {MOST_BYTES:,} bytes; trace fewer passes")
    return parse(content)


def parse(content: bytes) -> Trace:
    """The trace in a file's content."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        raise ProgramError("line 1: the file is empty; a trace begins with its header")
    trace: Trace = _at(1, _header, lines[0])
    known = Known(trace.streams, trace.schedule.ring.slots)
    for number, line in enumerate(lines[1:], start=2):
        found = _at(number, _object, line)
        if "end" in found:
            _at(number, _end, found, trace)
            if number < len(lines):
                raise ProgramError(f"line {number + 1}: the trace has ended on line {number}")
            return trace
        trace.issued.append(_at(number, _issued, found, trace, known))
    raise ProgramError(
        f"line {len(lines) + 1}: the trace is cut off: its last line, "
        f'{{"end": number of operations}}, is missing'
    )


def _at(number: int, what: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return what(*arguments)
    except ValueError as error:
        raise ProgramError(f"line {number}: {error}") from None


def _object(line: bytes) -> dict[str, Any]:
    """A line's object."""
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError as error:
        raise ProgramError(f"byte {error.start + 1} is not ASCII") from None
    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ProgramError(f"column {error.colno}: no JSON: {error.msg}") from None
    except RecursionError:
        raise ProgramError("no JSON of a trace: it is nested too deep") from None
    if not isinstance(found, dict):
        raise ProgramError(f"an object is needed, not {kind_of(found)}")
    return found


def _no_constant(name: str) -> Any:
    raise ProgramError(f"no JSON: {name}")


# ---- header


def _header(line: bytes) -> Trace:
    found = _object(line)
    if MARK not in found:
        raise ProgramError(f"{MARK}: missing; a trace begins with its header")
    if type(found[MARK]) is not int or found[MARK] != SCHEMA:
        raise ProgramError(
            f"{MARK}: {found[MARK]!r} is another schema version; this one reads {SCHEMA}"
        )
    only(found, HEADER)
    texts = {name: text_of(name, found[name]) for name in ("device", "policy")}
    streams = _copy_streams(list_of("copy_streams", found["copy_streams"], text_of))
    ring = Ring(number_of("modules", found["modules"]), number_of("slots", found["slots"]))
    refills = {name: list_of(name, found[name], _refills) for name in TABLES}
    schedule = Schedule(
        ring=ring,
        policy=texts["policy"],
        slot_of=list_of("slot_of", found["slot_of"], number_of),
        preload=_refills("preload", found["preload"]),
        **refills,
    )
    holds = list_of("holds", found["holds"], number_of)
    if len(holds) != ring.slots:
        raise ProgramError(f"holds: has {len(holds)} entries; there are {ring.slots} slots")
    for slot, module in enumerate(holds):
        within(f"holds[{slot}]", module, ring.modules, EMPTY)
    running = list_of("running", found["running"], number_of)
    for at, step in enumerate(running):
        within(f"running[{at}]", step, len(schedule.slot_of))
    trace = Trace(texts["device"], schedule, holds, running, streams)
    trace.graphs = list_of("graphs", found["graphs"], partial(_graph, trace))
    return trace


def _graph(trace: Trace, name: str, value: Any) -> Graph:
    if not isinstance(value, dict):
        raise ProgramError(f"{name}: an object is needed, not {kind_of(value)}")
    only(value, ("name", "body"), f"{name}.")
    known = Known(trace.streams, trace.schedule.ring.slots)

    def operation(where: str, line: Any) -> Issued:
        if not isinstance(line, dict):
            raise ProgramError(f"{where}: an object is needed, not {kind_of(line)}")
        try:
            return _issued(line, trace, known)
        except ProgramError as error:
            raise ProgramError(f"{where}.{error}") from None

    own = text_of(f"{name}.name", value["name"])
    return complete(own, list_of(f"{name}.body", value["body"], operation))


def _copy_streams(names: tuple[str, ...]) -> Streams:
    try:
        return Streams(names)
    except ProgramError as error:
        raise ProgramError(f"copy_streams: {error}") from None


def _refills(name: str, value: Any) -> tuple[Refill, ...]:
    return list_of(name, value, _refill)


def _refill(name: str, value: Any) -> Refill:
    if not isinstance(value, dict):
        raise ProgramError(f"{name}: an object is needed, not {kind_of(value)}")
    only(value, ("slot", "module"), f"{name}.")
    return Refill(*(number_of(f"{name}.{field}", value[field]) for field in ("slot", "module")))


# ---- operations


def _end(found: dict[str, Any], trace: Trace) -> None:
    only(found, ("end",))
    if number_of("end", found["end"]) != len(trace.issued):
        raise ProgramError(
            f"end: says {found['end']} operations, but {len(trace.issued)} are there: "
            f"lines are missing, or were added"
        )


def _issued(found: dict[str, Any], trace: Trace, known: Known) -> Issued:
    if MARK in found:
        raise ProgramError(f"{MARK}: a second header")
    kind = found.get("op")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ProgramError(f"op: {kind!r} is no operation; these are {', '.join(KINDS)}")
    needed = ("op", *FIELDS[kind], "half", "step")
    only(found, needed, "", OPTIONAL.get(kind, ()))
    schedule = trace.schedule
    boundary = Boundary(text_of("half", found["half"]), number_of("step", found["step"]))
    if boundary.half not in HALVES:
        raise ProgramError(f"half: {boundary.half!r} is unknown; halves are {', '.join(HALVES)}")
    within("step", boundary.step, len(schedule.slot_of))
    operation = _operation(kind, found, trace)
    known.check_operation(operation)
    return Issued(operation, boundary)


def _operation(kind: str, found: dict[str, Any], trace: Trace) -> Operation:
    """The operation, its slot and module within the ring."""
    ring, stream = trace.schedule.ring, text_of("stream", found["stream"])
    numbers = {}
    for name, size in (("slot", ring.slots), ("module", ring.modules)):
        if name in found:
            numbers[name] = within(name, found[name], size)
    if kind == "copy":
        pageable = found.get("pageable", False)
        if not isinstance(pageable, bool):
            raise ProgramError(f"pageable: true or false is needed, not {kind_of(pageable)}")
        return Copy(stream, **numbers, pageable=pageable)
    if kind == "run":
        return Run(stream, **numbers)
    if kind == "write":
        return Write(stream=stream, **numbers)
    of_graph = KINDS[kind]
    if of_graph in (Capture, EndCapture, Replay):
        made: Operation = of_graph(stream, text_of("graph", found["graph"]))
        return made
    event = _event(found["event"], trace.device)
    return Record(stream, event) if kind == "record" else Wait(stream, event, **numbers)


def _event(value: Any, device: str) -> Event:
    if not isinstance(value, dict):
        raise ProgramError(f"event: an object is needed, not {kind_of(value)}")
    only(value, ("name",), "event.", ("number", "graph", "device"))
    of = text_of("event.device", value.get("device", device))
    if of != device:
        raise ProgramError(
            f"event.device: the event is of device {of}, but the trace is of {device}"
        )
    name = text_of("event.name", value["name"])
    number = number_of("event.number", value["number"]) if "number" in value else None
    graph = text_of("event.graph", value["graph"]) if "graph" in value else None
    return Event(name, number, graph)
