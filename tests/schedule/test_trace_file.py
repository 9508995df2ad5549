"""A trace's file: what is written, and what anything else gets: an error, with line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schedule import Ring, policies
from schedule.audit import audit
from schedule.errors import ProgramError
from schedule.operations import COPY, Copy, Event, Issued, Record, Run
from schedule.program import lower, lower_write
from schedule.table import Boundary, Refill
from schedule.trace import Trace, place
from schedule.tracefile import parse, read
from tests.schedule.test_lowering import everywhere

CHAIN = policies.chain(Ring(3, 2))
Line = dict[str, Any]


def small() -> Trace:
    """Module 0's run, its refill, and a write: an operation of each kind."""
    trace = Trace("cpu", CHAIN, (0, 1), (2,))
    trace.issued = list(lower(CHAIN).listing(1)[8:14])
    at = Boundary("write", 0)
    trace.issued += [Issued(operation, at) for operation in lower_write(Refill(0, 0))]
    return trace


LINES = list(small().lines())


def test_the_lines_of_a_trace() -> None:
    header = json.loads(LINES[0])
    refill = {"slot": 0, "module": 0}
    assert header == {
        "ringproof_trace": 2,
        "device": "cpu",
        "copy_streams": ["copy"],
        "policy": "chain",
        "modules": 3,
        "slots": 2,
        "slot_of": [0, 1, 0],
        "preload": [refill, {"slot": 1, "module": 1}],
        "enter": [[]],
        "before": [[], [], []],
        "after": [[{"slot": 0, "module": 2}], [], [refill]],
        "leave": [[]],
        "holds": [0, 1],
        "running": [2],
        "graphs": [],
    }
    run, after, write = ({"half": half, "step": 0} for half in ("run", "after", "write"))
    landed, drained = ({"name": name, "number": 0} for name in ("landed", "drained"))
    assert [json.loads(line) for line in LINES[1:]] == [
        {"op": "wait", "stream": "compute", "event": landed, "module": 0, **run},
        {"op": "run", "stream": "compute", "slot": 0, "module": 0, **run},
        {"op": "record", "stream": "compute", "event": {"name": "ran"}, **after},
        {"op": "wait", "stream": "copy", "event": {"name": "ran"}, **after},
        {"op": "copy", "stream": "copy", "slot": 0, "module": 2, **after},
        {"op": "record", "stream": "copy", "event": landed, **after},
        {"op": "record", "stream": "copy", "event": drained, **write},
        {"op": "wait", "stream": "host", "event": drained, **write},
        {"op": "wait", "stream": "host", "event": landed, "module": 0, **write},
        {"op": "record", "stream": "compute", "event": {"name": "ran"}, **write},
        {"op": "wait", "stream": "host", "event": {"name": "ran"}, **write},
        {"op": "write", "stream": "host", "slot": 0, "module": 0, **write},
        {"end": 12},
    ]


def text(lines: list[Any]) -> bytes:
    return "".join(
        f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines
    ).encode()


def test_it_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    small().save(path)
    assert path.read_bytes() == text(LINES)
    assert read(path) == read(str(path)) == small() == parse(text(LINES))
    several = Trace("cuda:0", everywhere(), (-1, 0))
    several.issued = [Issued(Copy(COPY, 0, 1, pageable=True), Boundary("after", 3))]
    assert parse(text(list(several.lines()))) == several


def test_an_event_may_name_its_device() -> None:
    lines = [json.loads(line) for line in LINES]
    lines[1]["event"]["device"] = "cpu"
    assert parse(text(lines)) == small()


def test_places_in_words() -> None:
    words = [place(Boundary(half, 1), CHAIN) for half in ("run", "after", "reload", "resume")]
    assert words == [
        "module 1 begins",
        "after module 1",
        "reload of module 1",
        "module 1 resumes",
    ]
    assert place(Boundary("before", 3), everywhere()) == "pass 1 of the period, before module 1"
    assert place(Boundary("preload", 0), everywhere()) == "preload"


# ---- lines that are none


def refused(content: bytes) -> str:
    with pytest.raises(ProgramError) as error:
        parse(content)
    return str(error.value)


OBJECT = LINES[:1]
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "line 1: the file is empty; a trace begins with its header"),
    "blank line": (
        text([*LINES[:2], "", *LINES[2:]]),
        "line 3: column 1: no JSON: Expecting value",
    ),
    "only a newline": (b"\n", "line 1: column 1: no JSON: Expecting value"),
    "half a line": (
        text([LINES[0], '{"op": "run"']),
        "line 2: column 13: no JSON: Expecting ',' delimiter",
    ),
    "a list": (text([LINES[0], "[1, 2]"]), "line 2: an object is needed, not [1, 2]"),
    "a number": (text(["7"]), "line 1: an object is needed, not 7"),
    "not ASCII": (text(LINES).replace(b'"cpu"', b'"c\xffu"'), "line 1: byte 36 is not ASCII"),
    "UTF-16": (text(LINES).decode().encode("utf-16"), "line 1: byte 1 is not ASCII"),
    "NaN": (text([LINES[0], '{"end": NaN}']), "line 2: no JSON: NaN"),
    "too deep": (
        text([LINES[0], "[" * 100_000]),
        "line 2: no JSON of a trace: it is nested too deep",
    ),
    "a field twice": (text([LINES[0], '{"end": 0, "end": 0}']), "line 2: end: is there twice"),
    "a second header": (text([LINES[0], *LINES]), "line 2: ringproof_trace: a second header"),
    "no header": (
        text(LINES[1:]),
        "line 1: ringproof_trace: missing; a trace begins with its header",
    ),
    "after the end": (text([*LINES, LINES[1]]), "line 15: the trace has ended on line 14"),
    "two ends": (text([*LINES, LINES[-1]]), "line 15: the trace has ended on line 14"),
    "cut off": (
        text(LINES[:-1]),
        'line 14: the trace is cut off: its last line, {"end": number of operations}, is missing',
    ),
    "header alone": (
        text(LINES[:1]),
        'line 2: the trace is cut off: its last line, {"end": number of operations}, is missing',
    ),
    "another number": (
        text([*LINES[:3], LINES[-1]]),
        "line 4: end: says 12 operations, but 2 are there: lines are missing, or were added",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str) -> None:
    content, said = BROKEN[name]
    assert refused(content) == said


def test_a_number_that_is_too_long() -> None:
    said = refused(text([LINES[0], f'{{"end": {"9" * 5000}}}']))
    assert said.startswith("line 2: Exceeds the limit (4300 digits)")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ProgramError) as error:
            read(path)
        assert str(error.value).startswith(f"{path} can't be read: {why}")


# ---- fields


def changed(line: int, name: str, value: Any) -> bytes:
    """The small trace with a field (of a field, by a dot) of a line changed; ... removes it."""
    lines = [json.loads(each) for each in LINES]
    *path, last = name.split(".")
    target = lines[line - 1]
    for part in path:
        target = target[int(part) if part.isdigit() else part]
    if value is ...:
        del target[last]
    else:
        target[int(last) if isinstance(target, list) else last] = value
    return text(lines)


HEADER: list[tuple[str, Any, str]] = [
    ("ringproof_trace", 1, "ringproof_trace: 1 is another schema version; this one reads 2"),
    ("ringproof_trace", True, "ringproof_trace: True is another schema version; this one reads 2"),
    ("ringproof_trace", "1", "ringproof_trace: '1' is another schema version; this one reads 2"),
    ("device", ..., "device: missing"),
    ("device", 0, "device: a text is needed, not 0"),
    ("colour", 1, "colour: unknown field"),
    ("x\x1b[31m\nfits", 1, "'x\\x1b[31m\\nfits': unknown field"),
    ("policy", None, "policy: a text is needed, not null"),
    ("modules", 0, "modules must be at least 1, got 0; a ring has at least one"),
    ("modules", True, "modules: an integer is needed, not true"),
    ("slots", 2.0, "slots: an integer is needed, not 2.0"),
    ("slots", "2", 'slots: an integer is needed, not "2"'),
    ("slots", 10**7, "slots must be at most 1000000, got 10000000"),
    ("modules", 4,
     "slot_of has 3 steps; give one slot a module and pass, a positive multiple of 4"),
    ("slot_of", [],
     "slot_of has 0 steps; give one slot a module and pass, a positive multiple of 3"),
    ("slot_of", {}, "slot_of: a list is needed, not {}"),
    ("slot_of.1", 2, "slot_of[1] of policy chain: slot 2 is outside this ring: 0 .. 1"),
    ("slot_of.1", False, "slot_of[1]: an integer is needed, not false"),
    ("preload.0.module", 3, "preload of policy chain: module 3 is outside this ring: 0 .. 2"),
    ("preload.1.slot", ..., "preload[1].slot: missing"),
    ("preload.1.size", 5, "preload[1].size: unknown field"),
    ("after.0.0.module", -1, "after[0] of policy chain: module -1 is outside this ring: 0 .. 2"),
    ("after.0.0", [0, 2], "after[0][0]: an object is needed, not [0, 2]"),
    ("after.0.0.slot", None, "after[0][0].slot: an integer is needed, not null"),
    ("before", [[]], "before has 1 entries; this period needs 3"),
    ("enter.0", 7, "enter[0]: a list is needed, not 7"),
    ("leave", ..., "leave: missing"),
    ("holds", [0], "holds: has 1 entries; there are 2 slots"),
    ("holds.1", 3, "holds[1]: 3 is outside of -1 .. 2"),
    ("holds.1", -2, "holds[1]: -2 is outside of -1 .. 2"),
    ("running.0", 3, "running[0]: 3 is outside of 0 .. 2"),
    ("running.0", -1, "running[0]: -1 is outside of 0 .. 2"),
    ("copy_streams.0", 3, "copy_streams[0]: a text is needed, not 3"),
    ("copy_streams.0", "host",
     "copy_streams: copy streams ('host',) must be one or more different names, none 'host'"),
    ("copy_streams", [],
     "copy_streams: copy streams () must be one or more different names, none 'host'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "said"), HEADER, ids=lambda v: str(v)[:30])
def test_the_headers_fields(name: str, value: Any, said: str) -> None:
    assert refused(changed(1, name, value)) == f"line 1: {said}"


KINDS = "copy, run, record, wait, write, capture, end_capture, replay"
OPERATIONS: list[tuple[int, str, Any, str]] = [
    (2, "op", "launch", f"op: 'launch' is no operation; these are {KINDS}"),
    (2, "op", "capture", "graph: missing"),
    (2, "op", ["wait"], f"op: ['wait'] is no operation; these are {KINDS}"),
    (2, "op", ..., f"op: None is no operation; these are {KINDS}"),
    (2, "stream", "copies", "stream: 'copies' is unknown; streams are compute, copy, host"),
    (2, "stream", 1, "stream: a text is needed, not 1"),
    (3, "stream", "copy", "stream: a run is on compute, not on copy"),
    (6, "stream", "compute", "stream: a copy is on copy, not on compute"),
    (4, "stream", "host", "stream: a record is on compute or copy, not on host"),
    (13, "stream", "copy", "stream: a write is on host, not on copy"),
    (2, "event", "landed", 'event: an object is needed, not "landed"'),
    (2, "event", ..., "event: missing"),
    (2, "event.name", "lost", "event.name: 'lost' is unknown; events are ran, landed, drained"),
    (2, "event.name", ..., "event.name: missing"),
    (2, "event.name", "ran", "event.number: landed and drained have one, ran has none"),
    (5, "event.number", 0, "event.number: landed and drained have one, ran has none"),
    (2, "event.number", ..., "event.number: landed and drained have one, ran has none"),
    (2, "event.number", 2, "event.number: 2 is outside of 0 .. 1"),
    (2, "event.number", -1, "event.number: -1 is outside of 0 .. 1"),
    (2, "event.number", True, "event.number: an integer is needed, not true"),
    (8, "event.number", 1, "event.number: 1 is outside of 0 .. 0"),
    (2, "event.device", "cuda:1",
     "event.device: the event is of device cuda:1, but the trace is of cpu"),
    (2, "event.device", 0, "event.device: a text is needed, not 0"),
    (2, "event.graph", 1, "event.graph: a text is needed, not 1"),
    (3, "slot", 2, "slot: 2 is outside of 0 .. 1"),
    (3, "slot", -1, "slot: -1 is outside of 0 .. 1"),
    (3, "slot", ..., "slot: missing"),
    (3, "module", 3, "module: 3 is outside of 0 .. 2"),
    (3, "module", 1.0, "module: an integer is needed, not 1.0"),
    (3, "module", False, "module: an integer is needed, not false"),
    (5, "module", 1, "module: a wait for ran means no copy"),
    (3, "speed", "x" * 50, "speed: unknown field"),
    (3, "pageable", True, "pageable: unknown field"),
    (6, "pageable", 1, "pageable: true or false is needed, not 1"),
    (3, "half", "during",
     "half: 'during' is unknown; halves are preload, enter, before, run, after, leave, reload, "
     "resume, write, capture, replay"),
    (3, "half", None, "half: a text is needed, not null"),
    (3, "step", -1, "step: -1 is outside of 0 .. 2"),
    (3, "step", 3, "step: 3 is outside of 0 .. 2"),
    (3, "step", "x" * 50, f'step: an integer is needed, not "{"x" * 36}...'),
    (3, "step", ..., "step: missing"),
    (13, "slot", None, "slot: an integer is needed, not null"),
    (13, "slot", 2, "slot: 2 is outside of 0 .. 1"),
    (14, "end", "9", 'end: an integer is needed, not "9"'),
    (14, "end", True, "end: an integer is needed, not true"),
    (14, "end", 8, "end: says 8 operations, but 12 are there: lines are missing, or were added"),
    (14, "at", 9, "at: unknown field"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name", "value", "said"), OPERATIONS, ids=lambda v: str(v)[:30])
def test_an_operations_fields(line: int, name: str, value: Any, said: str) -> None:
    assert refused(changed(line, name, value)) == f"line {line}: {said}"


def test_every_field_is_asked_for_and_no_other_is_let_in() -> None:
    """Each field of each line, removed; and one more put in. A wait's module may be missing."""
    free = 0
    for number, line in enumerate(LINES, start=1):
        for name in json.loads(line):
            if (json.loads(line).get("op"), name) == ("wait", "module"):
                free += 1
                continue
            wrong = "op: None" if name in ("op", "end") else f"{name}: missing"
            assert refused(changed(number, name, ...)).startswith(f"line {number}: {wrong}")
        assert refused(changed(number, "more", 1)) == f"line {number}: more: unknown field"
    assert free == 2


def test_operations_in_memory_that_make_no_sense_are_refused_by_the_audit() -> None:
    for operation in (Record("lost", Event("ran")), Run(COPY, 0, 0), Copy(COPY, -1, 0)):
        trace = small()
        trace.issued[1] = Issued(operation, Boundary("run", 0))
        with pytest.raises(ProgramError, match=r"^operation 1 "):
            audit(trace)
