"""The accelerator path without an accelerator: streams and events are replaced by ones that note
what they are told. What reaches them is the program, operation for operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from runtime import Offloaded
from runtime.device import AcceleratorStreams
from runtime.hooks import RELOAD
from runtime.sets import DeviceSet
from schedule import Refill, Ring, Schedule, policies
from schedule.audit import audit
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Event,
    Operation,
    Record,
    Run,
    Wait,
    Write,
    landed,
)
from schedule.program import lower
from schedule.table import Boundary
from tests.runtime.machine import CPU, FakeStream, Machine, accelerated, faked, translated
from tests.runtime.models import WIDTH, batches, before_run, named_schedules, outputs, same, stack

DRAINED = Event("drained", 0)
SIZES = [(1, 1), (3, 1), (3, 2), (5, 3), (4, 4), (3, 5)]
SCHEDULES = [schedule for size in SIZES for schedule in named_schedules(Ring(*size))]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with faked(monkeypatch) as made:
        yield made


def event_numbers(machine: Machine, offloaded: Offloaded) -> dict[object, int]:
    """By event of the program: the number of its one object."""
    known = offloaded.streams._events
    assert sorted(event.number for event in known.values()) == list(range(len(machine.events)))
    return {event: made.number for event, made in known.items()}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.policy}-{s.ring}")
def test_the_streams_are_told_the_program_operation_for_operation(
    machine: Machine, schedule: Schedule
) -> None:
    model = stack(schedule.ring.modules)
    inputs = batches(schedule.period)
    wanted = outputs(stack(schedule.ring.modules), inputs)
    program = lower(schedule)
    with accelerated(model, schedule) as offloaded:
        numbers = event_numbers(machine, offloaded)
        assert machine.told == translated(program.preload, offloaded, numbers)
        for _ in range(3):
            machine.told.clear()
            assert same(outputs(model, inputs), wanted)
            assert machine.told == translated(program.period(), offloaded, numbers)


def test_events_and_streams_are_made_once_while_wrapping(machine: Machine) -> None:
    """One event for what ran, one for each slot that is ever copied into, one for what was
    copied; one stream."""
    for schedule in SCHEDULES:
        machine.events.clear()
        del machine.streams[1:]
        model = stack(schedule.ring.modules)
        with accelerated(model, schedule, RELOAD) as offloaded:
            events, streams = list(machine.events), list(machine.streams)
            assert [stream.name for stream in streams] == [COMPUTE, COPY]
            used = set(schedule.slot_of)
            assert event_numbers(machine, offloaded).keys() == {RAN, DRAINED, *map(landed, used)}
            outputs(model, batches(2))
            with torch.no_grad():
                for index in (0, 0, *reversed(range(schedule.ring.modules))):
                    model.layers[index](torch.zeros(1, WIDTH))
                model.layers[0].up.weight.add_(1)
            outputs(model, batches(1))
            assert (machine.events, machine.streams) == (events, streams)


def test_at_a_miss_the_reload_is_fenced_like_every_refill(machine: Machine) -> None:
    model = stack(3)
    with accelerated(model, policies.chain(Ring(3, 2)), RELOAD) as offloaded:
        numbers = event_numbers(machine, offloaded)
        machine.told.clear()
        with torch.no_grad(), offloaded.trace() as trace:
            model.layers[2](torch.zeros(1, WIDTH))
        assert trace.operations[:6] == [
            Record(COMPUTE, RAN),
            Wait(COPY, RAN),
            Copy(COPY, 0, 2),
            Record(COPY, landed(0)),
            Wait(COMPUTE, landed(0), 2),
            Run(COMPUTE, 0, 2),
        ]
        assert machine.told == translated(trace.operations, offloaded, numbers)


def test_what_a_module_wrote_is_kept_when_no_copy_can_read_its_block_any_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits for the copy stream and the slot's copy, and only then writes into the block;
    a run that writes nothing makes it wait for nothing."""
    model = stack(3)
    weight = model.layers[1].up.weight
    with accelerated(model, policies.chain(Ring(3, 2)), RELOAD) as offloaded:
        keep = offloaded.arena.keep_writes

        def noted(weights: DeviceSet) -> None:
            before = weight.clone()
            keep(weights)
            assert not torch.equal(weight, before)
            machine.told.append(("write", weights.module))

        monkeypatch.setattr(offloaded.arena, "keep_writes", noted)
        numbers = event_numbers(machine, offloaded)
        outputs(model, batches(1))
        assert not [note for note in machine.told if note[0] == "write" or note[1] == HOST]
        handle = before_run(model.layers[1].down, lambda: model.layers[1].up.weight.add_(1))
        machine.told.clear()
        with offloaded.trace() as trace:
            outputs(model, batches(1))
        handle.remove()
        at = machine.told.index(("write", 1))
        drained, copied = numbers[DRAINED], numbers[landed(1)]
        fence = [("record", COPY, drained), ("wait", HOST, drained), ("wait", HOST, copied)]
        fence += [("record", COMPUTE, numbers[RAN]), ("wait", HOST, numbers[RAN])]
        assert machine.told[at - 5 : at] == fence
        assert [note for note in machine.told if note[1] == HOST] == [*fence[1:3], fence[4]]
        assert [one.operation for one in trace.issued if one.boundary == Boundary("write", 1)] == [
            Record(COPY, DRAINED),
            Wait(HOST, DRAINED),
            Wait(HOST, landed(1), 1),
            Record(COMPUTE, RAN),
            Wait(HOST, RAN),
            Write(1, 1),
        ]
        assert audit(trace).fits


def test_the_compute_stream_is_the_one_that_is_current_at_each_call(machine: Machine) -> None:
    model = stack(3)
    schedule = policies.chain(Ring(3, 2))
    with accelerated(model, schedule) as offloaded:
        numbers = event_numbers(machine, offloaded)
        machine.told.clear()
        before, machine.current = machine.current, FakeStream(machine, "another")
        outputs(model, batches(1))
        period: list[Operation] = list(lower(schedule).period())
        wanted = translated(period, offloaded, numbers)
        # It first waits for the one before: the program has one compute stream.
        assert machine.told[0] == ("wait for", "another", before.name)
        assert machine.told[1:] == [
            (kind, "another" if stream == COMPUTE else stream, *rest)
            for kind, stream, *rest in wanted
        ]


def test_each_copy_is_made_within_its_stream_and_left_again(machine: Machine) -> None:
    """A copy that fails leaves the stream too: the fixture checks it."""
    model = stack(3)
    offloaded = accelerated(model, policies.chain(Ring(3, 2)))
    copies = [note for note in machine.told if note[0] == "copy"]
    assert copies
    assert {note[1] for note in copies} == {COPY}
    assert machine.within == []
    offloaded.close()


def test_close_waits_for_both_streams_before_anything_is_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stack(3)
    offloaded = accelerated(model, policies.chain(Ring(3, 2)))
    outputs(model, batches(1))
    machine.told.clear()
    release = offloaded.arena.release

    def noted(*arguments: Any) -> None:
        machine.told.append(("release",))
        release(*arguments)

    monkeypatch.setattr(offloaded.arena, "release", noted)
    offloaded.close()
    assert machine.told == [("synchronize", COPY), ("synchronize", COMPUTE), ("release",)]


@pytest.mark.usefixtures("machine")
def test_each_offload_has_a_copy_stream_of_its_own() -> None:
    first = accelerated(stack(3), policies.chain(Ring(3, 2)))
    second = accelerated(stack(3), policies.chain(Ring(3, 2)))
    assert first.streams._stream(COPY)() is not second.streams._stream(COPY)()
    assert not set(map(id, first.streams._events.values())) & set(
        map(id, second.streams._events.values())
    )
    first.close()
    second.close()


def test_refills_of_one_slot_record_the_same_event_again(machine: Machine) -> None:
    streams = AcceleratorStreams(CPU)
    for operation in (Record(COPY, landed(1)), Wait(COMPUTE, landed(1)), Record(COPY, landed(1))):
        streams.fence(operation)()
    streams.fence(Record(COPY, landed(0)))()
    assert machine.told == [
        ("record", COPY, 0),
        ("wait", COMPUTE, 0),
        ("record", COPY, 0),
        ("record", COPY, 1),
    ]


def test_a_refill_outside_of_the_schedule_is_bound_for_every_module(machine: Machine) -> None:
    """So that a miss makes nothing new."""
    with accelerated(stack(5), policies.balanced(Ring(5, 3))) as offloaded:
        interpreter = offloaded._interpreter
        (only,) = interpreter.passes
        for module, step in enumerate(only.steps):
            slot = offloaded.schedule.slot_of[module]
            (copy,) = [
                one.operation for one, _ in step.halves["reload"] if isinstance(one.operation, Copy)
            ]
            assert (copy.slot, copy.module) == Refill(slot, module)
    assert machine.events
