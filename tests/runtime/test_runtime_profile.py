"""What torch's profiler sees of an offloaded model: copies, runs and passes under their labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import runtime
from runtime import Offloaded, annotate
from schedule import Ring, check, policies
from schedule.drawing import draw
from schedule.labels import PASS, PREFIX, label
from schedule.operations import Copy, Run
from schedule.perfetto import trace_events
from schedule.program import lower
from tests.runtime.models import WIDTH, Stack, batches, before_run, outputs, same, stack

SIZES = [(3, 1), (3, 2), (5, 3), (4, 4)]


class Span(NamedTuple):
    """A span of ours in an exported trace."""

    name: str
    start: float
    end: float

    def inside(self, other: Span) -> bool:
        return other.start <= self.start and self.end <= other.end


def profiled(action: Callable[[], object], folder: Path) -> list[Span]:
    """Our spans in the trace that the profiler exports, in the order of their starts."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        action()
    file = folder / "trace.json"
    found.export_chrome_trace(str(file))
    events: Sequence[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    spans = [
        Span(event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["ph"] == "X" and event["name"].startswith(PREFIX)
    ]
    return sorted(spans, key=lambda span: (span.start, -span.end))


def names(spans: Sequence[Span]) -> list[str]:
    return [span.name for span in spans]


def labels(offloaded: Offloaded) -> list[str]:
    """Of one pass, as the program has it."""
    period = lower(offloaded.schedule).period()
    return [PASS, *(label(one) for one in period if isinstance(one, Copy | Run))]


def run_module(model: Stack, index: int) -> None:
    with torch.no_grad():
        model.layers[index](torch.zeros(1, WIDTH))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("bare", [False, True], ids=["model", "bare list"])
def test_a_pass_is_exactly_the_labels_of_its_program(
    size: tuple[int, int], bare: bool, tmp_path: Path
) -> None:
    model = stack(size[0])
    with runtime.offload(model.layers if bare else model, slots=size[1]) as offloaded:
        found = profiled(lambda: outputs(model, batches(2)), tmp_path)
        assert names(found) == labels(offloaded) * 2


def test_the_labels_of_a_small_model(tmp_path: Path) -> None:
    model = stack(3)
    with runtime.offload(model, slots=2, policy="balanced"):
        assert names(profiled(lambda: outputs(model, batches(1)), tmp_path)) == [
            "ringproof pass",
            "ringproof run module 0, slot 0",
            "ringproof copy module 2 -> slot 0",
            "ringproof run module 1, slot 1",
            "ringproof run module 2, slot 0",
            "ringproof copy module 0 -> slot 0",
        ]


def test_the_preload_is_seen_while_wrapping(tmp_path: Path) -> None:
    made: list[Offloaded] = []
    found = profiled(lambda: made.append(runtime.offload(stack(3), slots=2)), tmp_path)
    preload = lower(made[0].schedule).preload
    assert names(found) == [label(one) for one in preload if isinstance(one, Copy)]
    assert len(found) == 2
    made[0].close()


def test_a_run_holds_its_modules_work_and_no_copy(tmp_path: Path) -> None:
    model = stack(5)
    with runtime.offload(model, slots=2):
        found = profiled(lambda: outputs(model, batches(1)), tmp_path)
    whole, *parts = found
    assert all(part.inside(whole) for part in parts)
    for first, second in pairwise(parts):
        assert first.end <= second.start
    assert Counter(name.split()[1] for name in names(parts))["run"] == 5


def test_a_module_run_by_another_one_lies_inside_its_span(tmp_path: Path) -> None:
    model = stack(3)
    inner = model.layers[2]
    with runtime.offload(model, slots=3):
        before_run(model.layers[1].down, lambda: inner(batches(1)[0]))
        found = profiled(lambda: run_module(model, 1), tmp_path)
    runs = [span for span in found if " run " in span.name]
    assert [span.name.split()[3] for span in runs] == ["1,", "2,"]
    assert runs[1].inside(runs[0])


class Interrupt:
    """Raises a KeyboardInterrupt in a layer's run, once."""

    def __init__(self, model: Stack, index: int) -> None:
        self.handle = before_run(model.layers[index].down, self)

    def __call__(self) -> None:
        self.handle.remove()
        raise KeyboardInterrupt


def interrupted(model: Stack) -> None:
    with pytest.raises(KeyboardInterrupt):
        outputs(model, batches(1))


def test_what_an_interrupt_left_open_is_closed_by_the_next_module(tmp_path: Path) -> None:
    model, plain = stack(4), stack(4)
    made: list[torch.Tensor] = []
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        Interrupt(model, 1)

        def action() -> None:
            interrupted(model)
            made.extend(outputs(model, batches(1)))

        found = profiled(action, tmp_path)
        assert same(made, outputs(plain, batches(1)))
        spans = offloaded._hooks._spans
        assert (spans._passes, spans._runs) == ([], [])
        # The second pass meets a slot that the first one refilled for module 2.
        reload = label(Copy("copy", 0, 0))
    broken = found[: names(found).index(PASS, 1)]
    assert [name.split()[1:4] for name in names(broken)] == [
        ["pass"],
        ["run", "module", "0,"],
        ["copy", "module", "2"],
        ["run", "module", "1,"],
    ]
    whole = found[len(broken)]
    assert all(span.end <= whole.start for span in broken)
    first, *rest = labels(offloaded)
    assert names(found[len(broken) :]) == [first, reload, *rest]
    assert all(span.inside(whole) for span in found[len(broken) :])


def test_an_interrupt_at_the_end_of_a_profile_breaks_nothing(tmp_path: Path) -> None:
    """The span is closed after the profiler is gone."""
    model, plain = stack(4), stack(4)
    with runtime.offload(model, slots=2) as offloaded:
        Interrupt(model, 2)
        profiled(lambda: interrupted(model), tmp_path)
        assert len(offloaded._hooks._spans._runs) == 1
        assert same(outputs(model, batches(2)), outputs(plain, batches(2)))
        assert offloaded._hooks._spans._runs == []
        again = profiled(lambda: outputs(model, batches(1)), tmp_path)
        assert names(again) == labels(offloaded)


def test_close_inside_of_a_pass_closes_the_spans(tmp_path: Path) -> None:
    model = stack(3)
    offloaded = runtime.offload(model, slots=2)
    before_run(model.layers[1].down, offloaded.close)
    found = profiled(lambda: outputs(model, batches(1)), tmp_path)
    assert names(found)[0] == PASS
    spans = offloaded._hooks._spans
    assert (spans._passes, spans._runs) == ([], [])
    assert sum(" run " in name for name in names(found)) == 2


def test_a_module_that_raises_closes_its_span(tmp_path: Path) -> None:
    model = stack(3)

    def fail() -> None:
        raise ValueError("planned")

    before_run(model.layers[1].down, fail)

    def action() -> None:
        with pytest.raises(ValueError, match="planned"):
            outputs(model, batches(1))

    with runtime.offload(model, slots=2) as offloaded:
        profiled(action, tmp_path)
        assert offloaded._hooks._spans._runs == []


def test_without_a_profiler_no_span_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise AssertionError(f"a span {name}")

    monkeypatch.setattr(annotate, "record_function", refuse)
    model = stack(3)
    with runtime.offload(model, slots=2):
        outputs(model, batches(2))
        assert annotate.span("a") is annotate.span("b")
        with pytest.raises(AssertionError, match="ringproof pass"), profile():
            outputs(model, batches(1))


def test_the_labels_are_those_of_the_simulated_trace(tmp_path: Path) -> None:
    simulated = trace_events(draw(check(policies.default(2)(Ring(5, 2))), 1))
    model = stack(5)

    def action() -> None:
        with runtime.offload(model, slots=2):
            outputs(model, batches(1))

    real = Counter(names(profiled(action, tmp_path)))
    wanted = [e["name"] for e in simulated if e["ph"] == "X" and e["name"].startswith(PREFIX)]
    assert real == Counter(wanted)
