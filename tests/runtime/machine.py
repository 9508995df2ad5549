"""A machine of fakes that notes what its streams and events are told, and a model on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from runtime import Offloaded, device
from runtime.device import AcceleratorStreams
from runtime.hooks import RAISE
from runtime.placement import Placement
from runtime.select import select
from schedule import Schedule
from schedule.operations import COMPUTE, COPY, HOST, Copy, Record, Run, Wait, Write
from schedule.program import lower
from tests.runtime.models import Stack

Note = tuple[object, ...]
CPU = torch.device("cpu")


@dataclass
class Machine:
    """What the fakes were told, and how many of them were made."""

    told: list[Note] = field(default_factory=list)
    streams: list[FakeStream] = field(default_factory=list)
    events: list[FakeEvent] = field(default_factory=list)
    within: list[FakeStream] = field(default_factory=list)
    current: FakeStream | None = None


class FakeStream:
    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        machine.streams.append(self)

    def record_event(self, event: FakeEvent) -> FakeEvent:
        self.machine.told.append(("record", self.name, event.number))
        return event

    def wait_event(self, event: FakeEvent) -> None:
        self.machine.told.append(("wait", self.name, event.number))

    def wait_stream(self, other: FakeStream) -> None:
        self.machine.told.append(("wait for", self.name, other.name))

    def synchronize(self) -> None:
        self.machine.told.append(("synchronize", self.name))

    def __enter__(self) -> None:
        self.machine.within.append(self)

    def __exit__(self, *_: object) -> None:
        self.machine.within.pop()


class FakeEvent:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.number = machine, len(machine.events)
        machine.events.append(self)

    def synchronize(self) -> None:
        self.machine.told.append(("wait", HOST, self.number))


@contextmanager
def faked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Torch makes fakes in this test; in the end all streams are left again."""
    made = Machine()
    made.current = FakeStream(made, COMPUTE)

    def stream(device: torch.device) -> FakeStream:
        assert device == CPU
        return FakeStream(made, COPY)

    def event(device: torch.device) -> FakeEvent:
        assert device == CPU
        return FakeEvent(made)

    def current(device: torch.device) -> FakeStream:
        assert device == CPU
        return made.current

    def copy(pieces: device.Pieces) -> None:
        ((target, source),) = pieces
        made.told.append(("copy", made.within[-1].name, target.data_ptr(), source.data_ptr()))
        plain_copy(pieces)

    plain_copy = device._copy
    monkeypatch.setattr(torch, "Stream", stream)
    monkeypatch.setattr(torch, "Event", event)
    monkeypatch.setattr(torch.accelerator, "current_stream", current)
    monkeypatch.setattr(device, "_copy", copy)
    monkeypatch.setattr(AcceleratorStreams, "locks", False)
    yield made
    assert made.within == []


def accelerated(model: Stack, schedule: Schedule, on_miss: str = RAISE) -> Offloaded:
    placement = Placement(select(model, None), schedule, AcceleratorStreams(CPU), sys.maxsize)
    return Offloaded(placement, lower(schedule), on_miss, True)


def translated(operations: Any, offloaded: Offloaded, numbers: dict[object, int]) -> list[Note]:
    """What the operations should tell the fakes; an event's number is its first appearance."""
    arena, found = offloaded.arena, []
    for operation in operations:
        match operation:
            case Record(stream, event):
                found.append(("record", stream, numbers.setdefault(event, len(numbers))))
            case Wait(stream, event):
                found.append(("wait", stream, numbers.setdefault(event, len(numbers))))
            case Copy(stream, slot, module):
                slot_, block = (
                    arena.slots[slot].data_ptr(),
                    arena.blocks[module][0].bytes.data_ptr(),
                )
                found.append(("copy", stream, slot_, block))
            case Run() | Write():
                pass  # the module itself; the host itself
    return found
