"""A drawing as Chrome trace events, for Perfetto and chrome://tracing.

Streams and slots are threads of one process. Its number is one that no real process has, so that
the events can be put into a real profiler's file; copies, runs and passes have the labels that
the runtime gives them there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from schedule.drawing import Drawing, caption
from schedule.labels import PASS, label
from schedule.operations import COMPUTE, COPY, Run
from schedule.placed import EMPTY_SLOT, Content

PROCESS = 1 << 22
"""Linux numbers processes below this."""

UNIT = 100
"""Microseconds, a format's unit of time, for a unit of the drawing's: 0.2 ms a run."""

PASSES = "passes"

Event = dict[str, Any]


def trace(drawing: Drawing) -> str:
    """The trace, as JSON."""
    return json.dumps({"traceEvents": trace_events(drawing), "displayTimeUnit": "ms"}, indent=1)


def trace_events(drawing: Drawing) -> list[Event]:
    """The names of process and threads, spans, fences as flows, violations as instants."""
    slots = range(drawing.findings.schedule.ring.slots)
    threads = [PASSES, COMPUTE, COPY, *(f"slot {slot}" for slot in slots)]
    number = {name: at for at, name in enumerate(threads, 1)}
    # A flow binds to the span that is open at its time: spans come first.
    found = [*_names(drawing, number), *_spans(drawing), *_flows(drawing), *_instants(drawing)]
    return [event | {"pid": PROCESS, "tid": number.get(event["tid"], 0)} for event in found]


def _names(drawing: Drawing, number: dict[str, int]) -> Iterator[Event]:
    name = f"ringproof, simulated: {drawing.title}"
    yield {"ph": "M", "name": "process_name", "tid": None, "args": {"name": name}}
    for thread, at in number.items():
        yield {"ph": "M", "name": "thread_name", "tid": thread, "args": {"name": thread}}
        yield {"ph": "M", "name": "thread_sort_index", "tid": thread, "args": {"sort_index": at}}


def _span(thread: str, name: str, start: int, end: int, args: Event) -> Event:
    ts, dur = start * UNIT, (end - start) * UNIT
    return {"ph": "X", "name": name, "tid": thread, "ts": ts, "dur": dur, "args": args}


def _spans(drawing: Drawing) -> Iterator[Event]:
    modules = drawing.findings.schedule.ring.modules
    for number, (start, end) in enumerate(drawing.passes):
        yield _span(PASSES, PASS, start, end, {"pass": number})
    for operation, boundary, start, end in drawing.placed.boxes:
        args = {
            "module": operation.module,
            "slot": operation.slot,
            "boundary": boundary.text(modules),
        }
        yield _span(operation.stream, label(operation), start, end, args)
    for content in drawing.contents:
        if content.phase != EMPTY_SLOT:
            args = {"module": content.module, "slot": content.slot}
            name = _holds(drawing, content)
            yield _span(f"slot {content.slot}", name, content.start, content.end, args)


def _holds(drawing: Drawing, content: Content) -> str:
    name = f"module {content.module}"
    if content.box is None:
        return name
    operation = drawing.placed.boxes[content.box].operation
    if not isinstance(operation, Run):
        return f"{name} arrives"
    return f"{name}, read by module {operation.module}"


def _flows(drawing: Drawing) -> Iterator[Event]:
    boxes = drawing.placed.boxes
    for number, (earlier, later) in enumerate(drawing.placed.fences):
        event = {"name": "fence", "cat": "fence", "id": number}
        # Just before the end, which is no longer inside of the span.
        ts = boxes[earlier].end * UNIT - 1
        yield {"ph": "s", "tid": boxes[earlier].operation.stream, "ts": ts} | event
        ts = boxes[later].start * UNIT
        yield {"ph": "f", "bp": "e", "tid": boxes[later].operation.stream, "ts": ts} | event


def _instants(drawing: Drawing) -> Iterator[Event]:
    for mark in drawing.marks:
        box = drawing.placed.boxes[mark.moment]
        name = f"{mark.property} VIOLATED: {caption(mark)}"
        args = {"slot": mark.slot, "needs": mark.needs, "has": mark.has}
        for thread in (box.operation.stream, f"slot {mark.slot}"):
            ts = box.start * UNIT
            yield {"ph": "i", "s": "t", "name": name, "tid": thread, "ts": ts, "args": args}
