"""Every small change of a real run's trace is refused, by the reader or by the audit. What is
accepted is listed here, each with the reason why it is another right trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import torch

import runtime
from schedule import Ring, Schedule, policies
from schedule.audit import audit
from schedule.errors import ProgramError
from schedule.graphs import CAPTURE, REPLAY
from schedule.table import PRELOAD, Refill
from schedule.trace import HALVES, Trace
from schedule.tracefile import parse
from tests.runtime.models import batches, before_run, outputs
from tests.runtime.tamper import (
    Lines,
    accepted,
    duplications,
    field_changes,
    header_changes,
    lines_of,
    removals,
    swaps,
)
from tests.runtime.test_runtime_nested import hosts

# Refills in all halves, some of them useless.
BUSY = Schedule(
    ring=Ring(2, 2),
    policy="busy",
    slot_of=(0, 1),
    preload=(Refill(0, 0), Refill(1, 1)),
    enter=((Refill(0, 0),),),
    before=((), (Refill(1, 1),)),
    after=((Refill(0, 0),), ()),
    leave=((Refill(1, 1),),),
)
SCHEDULES = [policies.chain(Ring(3, 1)), policies.chain(Ring(3, 2)), BUSY]
EACH = pytest.mark.parametrize("schedule", SCHEDULES, ids=["chain31", "chain32", "busy"])


def real(schedule: Schedule) -> Trace:
    """Module 1 within module 0, the last one once more, a write that is kept, and a pass."""
    modules = schedule.ring.modules
    model = hosts(modules)
    with torch.no_grad(), runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as one:
        with one.trace() as trace:
            model.layers[0].inner = (model.layers[1],)
            outputs(model, batches(1))
            model.layers[-1](batches(1)[0])
            handle = before_run(model.layers[1].down, lambda: model.layers[1].up.bias.add_(1))
            outputs(model, batches(1))
            handle.remove()
        return trace


TRACES = {schedule.policy + str(schedule.ring): real(schedule) for schedule in SCHEDULES}


def trace_of(schedule: Schedule) -> Trace:
    return TRACES[schedule.policy + str(schedule.ring)]


def test_the_traces_have_every_half_of_an_eager_run_and_are_accepted() -> None:
    halves = set()
    for trace in TRACES.values():
        assert accepted(lines_of(trace))
        halves |= {issued.boundary.half for issued in trace.issued}
    assert halves == set(HALVES) - {PRELOAD, CAPTURE, REPLAY}


@EACH
@pytest.mark.parametrize("changes", [removals, duplications, swaps])
def test_no_line_can_be_removed_doubled_or_swapped(
    schedule: Schedule, changes: Callable[[Trace], Iterator[tuple[str, Lines]]]
) -> None:
    trace = trace_of(schedule)
    found = dict(changes(trace))
    assert len(found) >= len(trace.issued) - 1
    let_in = [name for name, lines in found.items() if accepted(lines)]
    waits = {} if changes is swaps else unseen_waits(trace)
    assert {
        name for name in let_in if not any(f"line {at} " in f"{name} " for at in waits)
    } == set()
    assert len(let_in) == len(waits) < 2


def unseen_waits(trace: Trace) -> list[int]:
    """The lines of waits of a module that resumes, where what ran inside its run issued nothing at
    its end. One more of them, or one less, changes nothing: what it waits for did not change."""
    pairs = enumerate(zip(trace.issued, trace.issued[1:], strict=False), start=3)
    halves = ((line, one.boundary.half, two.boundary.half) for line, (one, two) in pairs)
    return [line for line, before, half in halves if (before, half) == ("run", "resume")]


@EACH
def test_no_field_of_an_operation_can_be_changed(schedule: Schedule) -> None:
    trace = trace_of(schedule)
    found = dict(field_changes(trace))
    assert len(found) > 10 * len(trace.issued)
    assert [name for name, lines in found.items() if accepted(lines)] == []


HARMLESS = {
    # Useless copies, and boundaries that did not come in this trace: those of the whole model
    # belong to a hook that a bare list's modules called by hand have not; a module whose
    # boundary after it does not come was abandoned, which the audit counts.
    "chain31": {
        'enter[0] [{"slot": 0, "module": 0}]',
        'leave[0] [{"slot": 0, "module": 0}]',
    },
    "chain32": {
        'enter[0] [{"slot": 0, "module": 0}]',
        'enter[0] [{"slot": 1, "module": 1}]',
        'leave[0] [{"slot": 0, "module": 0}]',
        'leave[0] [{"slot": 1, "module": 1}]',
        'after[1] [{"slot": 0, "module": 2}]',
        'after[1] [{"slot": 1, "module": 1}]',
    },
    # What a slot held is no matter if it is refilled before a module runs from it.
    "busy": {
        "holds[0] -1",
        "holds[0] 1",
        "holds[1] -1",
        "holds[1] 0",
        'after[1] [{"slot": 0, "module": 0}]',
        'after[1] [{"slot": 1, "module": 1}]',
    },
}


@EACH
def test_of_the_header_only_what_leads_to_other_right_traces_can_be_changed(
    schedule: Schedule, request: pytest.FixtureRequest
) -> None:
    trace = trace_of(schedule)
    found = dict(header_changes(trace))
    name = request.node.callspec.id
    # A module may also have been running when the trace began, and was abandoned then.
    running = {f"running {step}" for step in range(schedule.ring.modules)}
    assert {text for text, lines in found.items() if accepted(lines)} == HARMLESS[name] | running
    assert len(found) > 20


def test_a_boundary_after_a_module_that_never_came_is_counted() -> None:
    trace = trace_of(SCHEDULES[1])
    lines = dict(header_changes(trace))['after[1] [{"slot": 1, "module": 1}]']
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    assert audit(trace).abandoned == 0
    runs = sum(one.boundary == ("run", 1) for one in trace.issued) // 2
    assert audit(parse(content)).abandoned == runs == 3


# ---- cut off


@EACH
def test_cut_off_at_any_byte_it_is_no_trace(schedule: Schedule) -> None:
    content = "".join(f"{line}\n" for line in trace_of(schedule).lines()).encode()
    assert parse(content) == parse(content[:-1])  # the last line's end is not needed
    end = content.rindex(b"{")
    lines = {at for at in range(len(content)) if content[at : at + 1] == b"\n"}
    sample = {*range(0, len(content) - 1, 97), *range(end - 80, len(content) - 1)}
    for at in sorted({0, *lines, *(at + 1 for at in lines), *sample} - {len(content) - 1}):
        if at < len(content):
            with pytest.raises(ProgramError, match=r"^line \d+: "):
                parse(content[:at])


@EACH
def test_cut_off_at_any_line_the_error_says_so(schedule: Schedule) -> None:
    lines = list(trace_of(schedule).lines())
    for kept in range(1, len(lines)):
        with pytest.raises(ProgramError) as error:
            parse("".join(f"{line}\n" for line in lines[:kept]).encode())
        assert str(error.value) == (
            f"line {kept + 1}: the trace is cut off: its last line, "
            f'{{"end": number of operations}}, is missing'
        )


@EACH
def test_without_lines_in_the_middle_the_end_says_so(schedule: Schedule) -> None:
    lines = list(trace_of(schedule).lines())
    for at in range(1, len(lines) - 1):
        with pytest.raises(ProgramError, match=rf"^line {len(lines) - 1}: end: says"):
            parse("\n".join(lines[:at] + lines[at + 1 :]).encode())
