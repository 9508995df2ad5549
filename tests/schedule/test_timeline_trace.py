"""The Chrome trace: valid by its format, and the same as the drawing."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from schedule import Ring, check, policies
from schedule.drawing import Drawing, draw
from schedule.labels import PASS, PREFIX, label
from schedule.operations import COMPUTE, COPY, Copy, Run
from schedule.perfetto import PROCESS, UNIT, trace
from schedule.placed import EMPTY_SLOT
from schedule.properties import IDENTITY, OWNERSHIP
from tests.schedule.test_timeline_placed import drawings

Event = dict[str, Any]

FIELDS = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "pid", "tid", "ts", "dur", "args"},
    "s": {"ph", "name", "cat", "id", "pid", "tid", "ts"},
    "f": {"ph", "name", "cat", "id", "pid", "tid", "ts", "bp"},
    "i": {"ph", "name", "pid", "tid", "ts", "s", "args"},
}


def events(drawing: Drawing, phase: str = "") -> list[Event]:
    found: list[Event] = json.loads(trace(drawing))["traceEvents"]
    return [event for event in found if phase in ("", event["ph"])]


def threads(drawing: Drawing) -> dict[int, str]:
    named = [e for e in events(drawing, "M") if e["name"] == "thread_name"]
    return {event["tid"]: event["args"]["name"] for event in named}


def modular() -> Drawing:
    return draw(check(policies.modular(Ring(3, 2))), 1)


def enclosing(spans: list[Event], event: Event) -> list[Event]:
    """The spans that are open on the event's thread at its time."""
    return [
        one
        for one in spans
        if one["tid"] == event["tid"] and one["ts"] <= event["ts"] < one["ts"] + one["dur"]
    ]


def test_every_event_has_the_fields_of_its_phase() -> None:
    for drawing in drawings():
        for event in events(drawing):
            assert event.keys() == FIELDS[event["ph"]]
            assert event["pid"] == PROCESS
            for name in ("ts", "dur", "tid"):
                assert type(event.get(name, 0)) is int
            assert event.get("ts", 0) >= 0
            assert event.get("dur", 1) > 0
        text = trace(drawing)
        assert text.isascii()
        assert json.loads(text)["displayTimeUnit"] == "ms"


def test_processes_and_threads_are_named_in_order() -> None:
    drawing = modular()
    first, *others = events(drawing, "M")
    assert (first["name"], first["args"]) == (
        "process_name",
        {"name": "ringproof, simulated: modular, 3 modules, 2 slots"},
    )
    assert list(threads(drawing).values()) == ["passes", COMPUTE, COPY, "slot 0", "slot 1"]
    order = [(e["tid"], e["args"]["sort_index"]) for e in others if "sort_index" in e["name"]]
    assert order == [(tid, tid) for tid in threads(drawing)]
    assert 0 not in threads(drawing)


def test_no_real_process_has_this_number() -> None:
    assert PROCESS == 4194304  # the largest of Linux's is one less


def test_spans_are_the_boxes_with_the_runtimes_labels() -> None:
    for drawing in drawings():
        lanes = threads(drawing)
        named = [e for e in events(drawing, "X") if e["name"].startswith(PREFIX)]
        found = [e for e in named if e["name"] != PASS]
        for event, box in zip(found, drawing.placed.boxes, strict=True):
            operation = box.operation
            assert event["name"] == label(operation)
            assert lanes[event["tid"]] == operation.stream
            assert (event["ts"], event["dur"]) == (box.start * UNIT, (box.end - box.start) * UNIT)
            args = event["args"]
            assert (args["module"], args["slot"]) == (operation.module, operation.slot)
        passes = [e for e in named if e["name"] == PASS]
        assert [(e["ts"], e["ts"] + e["dur"]) for e in passes] == [
            (start * UNIT, end * UNIT) for start, end in drawing.passes
        ]
        boundaries = [e["args"]["boundary"] for e in found]
        modules = drawing.findings.schedule.ring.modules
        assert boundaries == [box.boundary.text(modules) for box in drawing.placed.boxes]


def test_slot_lanes_hold_the_contents() -> None:
    for drawing in drawings():
        lanes = threads(drawing)
        found = [e for e in events(drawing, "X") if lanes[e["tid"]].startswith("slot")]
        wanted = [c for c in drawing.contents if c.phase != EMPTY_SLOT]
        assert [(lanes[e["tid"]], e["ts"], e["args"]["module"]) for e in found] == [
            (f"slot {c.slot}", c.start * UNIT, c.module) for c in wanted
        ]
    names = [e["name"] for e in events(modular(), "X") if threads(modular())[e["tid"]] == "slot 0"]
    assert names == [
        "module 0 arrives",
        "module 0, read by module 0",
        "module 2 arrives",
        "module 2",
        "module 0 arrives",
        "module 0, read by module 2",
        "module 0",
    ]


def test_no_spans_overlap_on_a_lane() -> None:
    for drawing in drawings(3):
        for thread in threads(drawing):
            spans = [e for e in events(drawing, "X") if e["tid"] == thread]
            spans.sort(key=lambda event: event["ts"])
            assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(spans))


def test_each_flow_goes_from_inside_one_box_to_the_start_of_another() -> None:
    for drawing in drawings():
        spans = events(drawing, "X")
        starts, ends = events(drawing, "s"), events(drawing, "f")
        assert len(starts) == len(ends) == len(drawing.placed.fences)
        for first, last, fence in zip(starts, ends, drawing.placed.fences, strict=True):
            assert first["id"] == last["id"]
            assert (first["name"], first["cat"]) == (last["name"], last["cat"])
            assert last["bp"] == "e"
            assert first["ts"] < last["ts"]
            for event, number in ((first, fence.earlier), (last, fence.later)):
                (span,) = enclosing(spans, event)
                box = drawing.placed.boxes[number]
                assert span["name"] == label(box.operation)
                assert span["ts"] == box.start * UNIT
        assert len({event["id"] for event in starts}) == len(starts)


def test_violations_are_instants_on_the_stream_and_in_the_slot() -> None:
    drawing = modular()
    lanes = threads(drawing)
    found = [(lanes[e["tid"]], e["ts"] // UNIT, e["name"]) for e in events(drawing, "i")]
    overwrite = (
        f"{OWNERSHIP} VIOLATED: module 0 is copied over module 2 in slot 0, "
        f"and module 2 has yet to run"
    )
    read = f"{IDENTITY} VIOLATED: module 2 runs, and reads module 0's weights in slot 0"
    assert found == [
        (COPY, 5, overwrite),
        ("slot 0", 5, overwrite),
        (COMPUTE, 6, read),
        ("slot 0", 6, read),
    ]
    assert all(event["s"] == "t" for event in events(drawing, "i"))
    for event in events(drawing, "i"):
        assert event["args"] == {"slot": 0, "needs": 2, "has": 0}
        assert len(enclosing(events(drawing, "X"), event)) == 1


def test_a_safe_schedule_has_no_instants() -> None:
    for drawing in drawings():
        assert bool(events(drawing, "i")) != drawing.findings.safe


def test_labels() -> None:
    assert label(Run(COMPUTE, 1, 3)) == "ringproof run module 3, slot 1"
    assert label(Copy(COPY, 0, 5)) == "ringproof copy module 5 -> slot 0"
    assert PASS == "ringproof pass"
