"""A trace: the operations of a real run, as they were issued, and what they started from.

It is saved as JSON lines: a header with the whole schedule, a line an operation, and an end that
says how many there were. ``read`` in ``tracefile`` is the way back, ``audit`` says whether the
trace fits its schedule.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schedule.graphs import CAPTURE, REPLAY, Graph
from schedule.operations import (
    ONE_COPY_STREAM,
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
from schedule.program import RELOAD, RESUME, WRITE
from schedule.table import (
    AFTER,
    BEFORE,
    ENTER,
    LEAVE,
    PRELOAD,
    RUN,
    TABLES,
    Boundary,
    Refill,
    Schedule,
)

SCHEMA = 2
"""The version of the file's form. A trace of another one is refused."""

HALVES = (PRELOAD, ENTER, BEFORE, RUN, AFTER, LEAVE, RELOAD, RESUME, WRITE, CAPTURE, REPLAY)
KINDS = {
    "copy": Copy,
    "run": Run,
    "record": Record,
    "wait": Wait,
    "write": Write,
    "capture": Capture,
    "end_capture": EndCapture,
    "replay": Replay,
}
"""Operations by their names in a file."""

REFILLS = ("preload", *TABLES)


@dataclass(slots=True)
class Trace:
    """What a run issued.

    device:   where it ran.             schedule, streams: what it was lowered from.
    holds:    by slot, the module that was there when the trace began, or EMPTY.
    running:  the steps whose modules were running then, the outermost first.
    issued:   the operations, each with its boundary; a step is a position in the period.
    graphs:   those that were captured before it began.
    """

    device: str
    schedule: Schedule
    holds: tuple[int, ...]
    running: tuple[int, ...] = ()
    streams: Streams = ONE_COPY_STREAM
    issued: list[Issued] = field(default_factory=list)
    graphs: tuple[Graph, ...] = ()

    @property
    def operations(self) -> list[Operation]:
        """The operations alone, in the order in which they were issued."""
        return [issued.operation for issued in self.issued]

    def executed(self) -> Iterator[tuple[int, Issued]]:
        """The operations that the device was given, in host order, each with its position here: not
        what was captured, but what was replayed."""
        bodies = {graph.name: graph.body for graph in self.graphs}
        captured: list[Issued] | None = None
        for at, issued in enumerate(self.issued):
            match issued.operation:
                case Capture():
                    captured = []
                case EndCapture(_, name) if captured is not None:
                    bodies[name], captured = tuple(captured), None
                case Replay(_, name):
                    yield from ((at, one) for one in bodies.get(name, ()))
                case _ if captured is not None:
                    captured.append(issued)
                case _:
                    yield at, issued

    def lines(self) -> Iterator[str]:
        """The lines of its file."""
        yield json.dumps(_header(self))
        for issued in self.issued:
            yield json.dumps(operation_json(issued))
        yield json.dumps({"end": len(self.issued)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file. ``python -m schedule audit`` reads it."""
        with open(path, "w", encoding="ascii", newline="\n") as file:
            file.writelines(f"{line}\n" for line in self.lines())


def line_of(position: int) -> int:
    """The line of a file on which the operation at this position is; of the end, one further."""
    return position + 2


def _header(trace: Trace) -> dict[str, Any]:
    schedule = trace.schedule
    return {
        "ringproof_trace": SCHEMA,
        "device": trace.device,
        "copy_streams": list(trace.streams.copies),
        "policy": schedule.policy,
        "modules": schedule.ring.modules,
        "slots": schedule.ring.slots,
        **tables_json(schedule),
        "holds": list(trace.holds),
        "running": list(trace.running),
        "graphs": [
            {"name": graph.name, "body": [*map(operation_json, graph.body)]}
            for graph in trace.graphs
        ],
    }


def tables_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule's tables."""

    def refills(found: tuple[Refill, ...]) -> list[dict[str, int]]:
        return [refill._asdict() for refill in found]

    return {
        "slot_of": list(schedule.slot_of),
        "preload": refills(schedule.preload),
        **{name: [refills(found) for found in getattr(schedule, name)] for name in TABLES},
    }


def operation_json(issued: Issued) -> dict[str, Any]:
    """An operation and its boundary. ValueError for one that no trace has."""
    operation, boundary = issued
    where = {"half": boundary.half, "step": boundary.step}
    match operation:
        case Copy(stream, slot, module, pageable):
            line: dict[str, Any] = {"op": "copy", "stream": stream, "slot": slot, "module": module}
            return {**line, **({"pageable": True} if pageable else {}), **where}
        case Run(stream, slot, module):
            return {"op": "run", "stream": stream, "slot": slot, "module": module, **where}
        case Record(stream, event):
            return {"op": "record", "stream": stream, "event": _event(event), **where}
        case Wait(stream, event, module):
            line = {"op": "wait", "stream": stream, "event": _event(event)}
            return {**line, **({} if module is None else {"module": module}), **where}
        case Write(module, slot, stream) if slot is not None:
            return {"op": "write", "stream": stream, "slot": slot, "module": module, **where}
        case Capture(stream, graph) | EndCapture(stream, graph) | Replay(stream, graph):
            (kind,) = (name for name, of in KINDS.items() if type(operation) is of)
            return {"op": kind, "stream": stream, "graph": graph, **where}
    raise ValueError(f"no run of the runtime issues [{operation}]")


def _event(event: Event) -> dict[str, Any]:
    number = {} if event.number is None else {"number": event.number}
    graph = {} if event.graph is None else {"graph": event.graph}
    return {"name": event.name, **number, **graph}


def place(boundary: Boundary, schedule: Schedule) -> str:
    """A trace's boundary in words: modules may have run in any order, so it has no pass's number,
    but of a period of several passes it says which of them."""
    number, module = divmod(boundary.step, schedule.ring.modules)
    words = {
        PRELOAD: "preload",
        ENTER: "on enter",
        BEFORE: f"before module {module}",
        RUN: f"module {module} begins",
        AFTER: f"after module {module}",
        LEAVE: "on leave",
        RELOAD: f"reload of module {module}",
        RESUME: f"module {module} resumes",
        WRITE: f"what module {module} wrote is kept",
        CAPTURE: "capture of a graph",
        REPLAY: "replay of a graph",
    }.get(boundary.half, f"{boundary.half} {boundary.step}")
    of_several = schedule.period > 1 and boundary.half not in (PRELOAD, WRITE, CAPTURE, REPLAY)
    return f"pass {number} of the period, {words}" if of_several else words
