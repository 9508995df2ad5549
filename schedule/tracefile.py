"""Reads a trace's file. Whatever is not exactly what ``Trace.save`` writes is an error with its
line and field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedule.errors import ProgramError
from schedule.known import Known
from schedule.operations import (
    Copy,
    Event,
    Issued,
    Operation,
    Record,
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
    *(*REFILLS, "holds", "running"),
)
FIELDS: dict[str, tuple[str, ...]] = {
    "copy": ("stream", "slot", "module"),
    "run": ("stream", "slot", "module"),
    "record": ("stream", "event"),
    "wait": ("stream", "event"),
    "write": ("stream", "slot", "module"),
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
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ProgramError(f"column {error.colno}: no JSON: {error.msg}") from None
    except RecursionError:
        raise ProgramError("no JSON of a trace: it is nested too deep") from None
    if not isinstance(found, dict):
        raise ProgramError(f"an object is needed, not {_kind(found)}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ProgramError(f"{_plain(name)}: is there twice")
        found[name] = value
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
    _only(found, HEADER)
    texts = {name: _text(name, found[name]) for name in ("device", "policy")}
    streams = _copy_streams(_list("copy_streams", found["copy_streams"], _text))
    ring = Ring(_number("modules", found["modules"]), _number("slots", found["slots"]))
    refills = {name: _list(name, found[name], _refills) for name in TABLES}
    schedule = Schedule(
        ring=ring,
        policy=texts["policy"],
        slot_of=_list("slot_of", found["slot_of"], _number),
        preload=_refills("preload", found["preload"]),
        **refills,
    )
    holds = _list("holds", found["holds"], _number)
    if len(holds) != ring.slots:
        raise ProgramError(f"holds: has {len(holds)} entries; there are {ring.slots} slots")
    for slot, module in enumerate(holds):
        _within(f"holds[{slot}]", module, ring.modules, EMPTY)
    running = _list("running", found["running"], _number)
    for at, step in enumerate(running):
        _within(f"running[{at}]", step, len(schedule.slot_of))
    return Trace(texts["device"], schedule, holds, running, streams)


def _copy_streams(names: tuple[str, ...]) -> Streams:
    try:
        return Streams(names)
    except ProgramError as error:
        raise ProgramError(f"copy_streams: {error}") from None


def _refills(name: str, value: Any) -> tuple[Refill, ...]:
    return _list(name, value, _refill)


def _refill(name: str, value: Any) -> Refill:
    if not isinstance(value, dict):
        raise ProgramError(f"{name}: an object is needed, not {_kind(value)}")
    _only(value, ("slot", "module"), f"{name}.")
    return Refill(*(_number(f"{name}.{field}", value[field]) for field in ("slot", "module")))


# ---- operations


def _end(found: dict[str, Any], trace: Trace) -> None:
    _only(found, ("end",))
    if _number("end", found["end"]) != len(trace.issued):
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
    _only(found, needed, "", OPTIONAL.get(kind, ()))
    schedule = trace.schedule
    boundary = Boundary(_text("half", found["half"]), _number("step", found["step"]))
    if boundary.half not in HALVES:
        raise ProgramError(f"half: {boundary.half!r} is unknown; halves are {', '.join(HALVES)}")
    _within("step", boundary.step, len(schedule.slot_of))
    operation = _operation(kind, found, trace)
    known.check_operation(operation)
    return Issued(operation, boundary)


def _operation(kind: str, found: dict[str, Any], trace: Trace) -> Operation:
    """The operation, its slot and module within the ring."""
    ring, stream = trace.schedule.ring, _text("stream", found["stream"])
    numbers = {}
    for name, size in (("slot", ring.slots), ("module", ring.modules)):
        if name in found:
            numbers[name] = _within(name, found[name], size)
    if kind == "copy":
        pageable = found.get("pageable", False)
        if not isinstance(pageable, bool):
            raise ProgramError(f"pageable: true or false is needed, not {_kind(pageable)}")
        return Copy(stream, **numbers, pageable=pageable)
    if kind == "run":
        return Run(stream, **numbers)
    if kind == "write":
        return Write(stream=stream, **numbers)
    event = _event(found["event"], trace.device)
    return Record(stream, event) if kind == "record" else Wait(stream, event, **numbers)


def _event(value: Any, device: str) -> Event:
    if not isinstance(value, dict):
        raise ProgramError(f"event: an object is needed, not {_kind(value)}")
    _only(value, ("name",), "event.", ("number", "device"))
    of = _text("event.device", value.get("device", device))
    if of != device:
        raise ProgramError(
            f"event.device: the event is of device {of}, but the trace is of {device}"
        )
    name = _text("event.name", value["name"])
    return Event(name, _number("event.number", value["number"]) if "number" in value else None)


# ---- fields


Names = tuple[str, ...]


def _only(found: dict[str, Any], needed: Names, inside: str = "", optional: Names = ()) -> None:
    """Exactly these fields."""
    for name in needed:
        if name not in found:
            raise ProgramError(f"{inside}{name}: missing")
    for name in found:
        if name not in needed and name not in optional:
            raise ProgramError(f"{inside}{_plain(name)}: unknown field")


def _list(name: str, value: Any, entry: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ProgramError(f"{name}: a list is needed, not {_kind(value)}")
    return tuple(entry(f"{name}[{at}]", each) for at, each in enumerate(value))


def _plain(name: str) -> str:
    """A field's name, so that it can be printed."""
    return name if name.isascii() and name.isprintable() else ascii(name)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"{name}: a text is needed, not {_kind(value)}")
    if not value.isprintable():  # it is printed again, and must not look like a verdict
        raise ProgramError(f"{name}: {value!a} has characters that can't be printed")
    return value


def _number(name: str, value: Any) -> int:
    if type(value) is not int:  # a bool is no number
        raise ProgramError(f"{name}: an integer is needed, not {_kind(value)}")
    return value


def _within(name: str, value: Any, size: int, least: int = 0) -> int:
    if not least <= _number(name, value) < size:
        raise ProgramError(f"{name}: {value} is outside of {least} .. {size - 1}")
    return int(value)


def _kind(value: Any) -> str:
    """A JSON value, short."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
