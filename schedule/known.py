"""What a program may name: its streams, events, slots and modules."""

from __future__ import annotations

from schedule.errors import ProgramError
from schedule.operations import (
    COMPUTE,
    HOST,
    Copy,
    EndCapture,
    Event,
    Issued,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.table import Boundary


class Known:
    """The names of one program, which has these copy streams, and so many slots if that is known.
    Every error is a ProgramError that begins with the field."""

    def __init__(self, streams: Streams, slots: int | None = None) -> None:
        self.device, self.all = streams.names, (*streams.names, HOST)
        self.streams: dict[type, tuple[str, ...]] = {
            Run: (COMPUTE,),
            Wait: self.all,
            Write: (HOST,),
            Copy: streams.copies,
        }
        self.limits = {"ran": 0, "landed": slots, "drained": len(streams.copies)}
        self.events: set[Event] = set()

    def check(self, issued: Issued) -> None:
        """Refuses a stream, event, slot, module or boundary that can't be."""
        operation, boundary = issued
        if not isinstance(operation, Operation) or not isinstance(boundary, Boundary):
            raise ProgramError("give one of the operations, and a Boundary")
        self.check_operation(operation)
        if not isinstance(boundary.half, str):
            raise ProgramError(f"boundary.half: {boundary.half!r} is no text")
        refuse_negative("boundary.step", boundary.step)

    def check_operation(self, operation: Operation) -> None:
        self.check_stream(operation)
        if isinstance(operation, Record | Wait):
            refuse_no_event(operation.event)
            if operation.event not in self.events:
                self.check_event(operation.event)
                self.events.add(operation.event)
            if isinstance(operation, Wait) and operation.module is not None:
                if operation.event.name != "landed":
                    raise ProgramError(f"module: a wait for {operation.event} means no copy")
                refuse_negative("module", operation.module)
        elif isinstance(operation, Copy | Run):
            refuse_negative("slot", operation.slot)
            refuse_negative("module", operation.module)
            if isinstance(operation, Copy) and not isinstance(operation.pageable, bool):
                raise ProgramError(f"pageable: {operation.pageable!r} is no bool")
        elif isinstance(operation, Write):
            refuse_negative("module", operation.module)
            if operation.slot is not None:
                refuse_negative("slot", operation.slot)
        elif not isinstance(operation.graph, str):
            raise ProgramError(f"graph: {operation.graph!r} is no name")

    def check_stream(self, operation: Operation) -> None:
        allowed = self.streams.get(type(operation), self.device)
        if operation.stream in allowed:
            return
        if operation.stream not in self.all:
            raise ProgramError(
                f"stream: {operation.stream!r} is unknown; streams are {', '.join(self.all)}"
            )
        end = isinstance(operation, EndCapture)
        what = "capture's end" if end else type(operation).__name__.lower()
        on = " or ".join(allowed)
        raise ProgramError(f"stream: a {what} is on {on}, not on {operation.stream}")

    def check_event(self, event: Event) -> None:
        if event.name not in self.limits:
            known = ", ".join(self.limits)
            raise ProgramError(f"event.name: {event.name!r} is unknown; events are {known}")
        if (event.number is None) != (event.name == "ran"):
            raise ProgramError("event.number: landed and drained have one, ran has none")
        if event.number is None:
            return
        limit = self.limits[event.name]
        if limit is None or type(event.number) is not int:
            refuse_negative("event.number", event.number)
        elif not 0 <= event.number < limit:
            raise ProgramError(f"event.number: {event.number} is outside of 0 .. {limit - 1}")


def refuse_no_event(event: object) -> None:
    """ProgramError unless this is an Event of a name, a number or none, and a graph or none."""
    right = (
        isinstance(event, Event)
        and isinstance(event.name, str)
        and isinstance(event.number, int | None)
        and isinstance(event.graph, str | None)
    )
    if not right:
        raise ProgramError(f"event: {event!r} is no Event")


def refuse_negative(name: str, value: object) -> None:
    """ProgramError unless the value is an integer of at least 0; a bool is none."""
    if type(value) is not int or value < 0:
        raise ProgramError(f"{name}: {value!r} is not an integer of at least 0")
