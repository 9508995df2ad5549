"""Streams and events of the current accelerator, by one path for all; inline on a plain CPU.

A device turns each operation of a program into an action, once, when a model is wrapped; the
hooks then only call actions. No ordering is decided here: Record, Wait and Copy do what the
program says, on the stream that it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from schedule.errors import OffloadError
from schedule.operations import COMPUTE, HOST, Event, Record, Wait

Action = Callable[[], None]
Pieces = tuple[tuple[torch.Tensor, torch.Tensor], ...]


class Inline:
    """A moment on a CPU, with the face of an event that is recorded: all before it is done."""

    def __init__(self) -> None:
        self._time = time.perf_counter_ns()

    def elapsed_time(self, end: Inline) -> float:
        """Milliseconds until then."""
        return (end._time - self._time) / 1e6

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing is under way."""


Mark = Inline | torch.Event
"""A moment on a stream, which may not have come yet."""


def nanoseconds(begin: Mark, end: Mark) -> int:
    """From one moment to the other; both have come."""
    return max(0, round(begin.elapsed_time(end) * 1e6))  # type: ignore[arg-type]


class InlineStreams:
    """A plain CPU: every operation is done when it is issued, so the program's order is the order
    of everything, and fences have nothing to wait for."""

    locks = False  # page-locked memory would be no use

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._nowhere: AbstractContextManager[Any] = nullcontext()  # entered again and again

    def fence(self, operation: Record | Wait) -> Action:
        del operation
        return _nothing

    def copy(self, stream: str, pieces: Pieces) -> Action:
        del stream
        return lambda: _copy(pieces)

    def mark(self, stream: str) -> Mark:
        del stream
        return Inline()

    def current(self) -> AbstractContextManager[Any]:
        return self._nowhere

    def captures(self) -> bool:
        """Whether a graph is being captured."""
        return False

    def synchronize(self) -> None:
        """Nothing is ever under way."""


class AcceleratorStreams:
    """Copy streams of its own, by name; the compute stream is the one that is current at each
    call. A program has one compute stream, first in, first out: where the current one changes,
    the new one first waits for the one before."""

    locks = True

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copy_streams: dict[str, torch.Stream] = {}
        self._events: dict[Event, torch.Event] = {}
        self._last: torch.Stream | None = None
        self._captures = _capture_state(device)

    def fence(self, operation: Record | Wait) -> Action:
        """Record the operation's event on its stream, or let the stream (or the host) wait for
        it. An event is made once and recorded again and again; a wait takes its latest record."""
        if operation.event not in self._events:
            self._events[operation.event] = torch.Event(device=self.device)
        event = self._events[operation.event]
        if operation.stream == HOST:
            return event.synchronize
        stream = self._stream(operation.stream)
        if isinstance(operation, Record):
            return lambda: stream().record_event(event) and None
        return lambda: stream().wait_event(event)

    def forget(self, graph: str) -> None:
        """The events of a graph are of no use once it is complete."""
        self._events = {event: one for event, one in self._events.items() if event.graph != graph}

    def copy(self, stream: str, pieces: Pieces) -> Action:
        """All pieces of a refill, (target, source), one after the other."""
        of = self._stream(stream)

        def copy() -> None:
            with of():
                _copy(pieces)

        return copy

    def mark(self, stream: str) -> Mark:
        """An event that tells the time, recorded on the stream now."""
        event = torch.Event(device=self.device, enable_timing=True)
        self._stream(stream)().record_event(event)
        return event

    def current(self) -> AbstractContextManager[Any]:
        """The stream that is current now, which it makes current again as a context."""
        stream: AbstractContextManager[Any] = torch.accelerator.current_stream(self.device)
        return stream

    def captures(self) -> bool:
        """Whether what is issued now on the compute stream goes into a graph."""
        return self._captures()

    def synchronize(self) -> None:
        """Wait until every copy has landed, so that host blocks and slots may be given up."""
        for stream in self._copy_streams.values():
            stream.synchronize()
        self._compute().synchronize()

    def _stream(self, name: str) -> Callable[[], torch.Stream]:
        if name == COMPUTE:
            return self._compute
        if name not in self._copy_streams:
            self._copy_streams[name] = torch.Stream(device=self.device)
        stream = self._copy_streams[name]
        return lambda: stream

    def _compute(self) -> torch.Stream:
        current, last = torch.accelerator.current_stream(self.device), self._last
        if last is not None and last != current:
            current.wait_stream(last)
        self._last = current
        return current


Streams = InlineStreams | AcceleratorStreams


def streams_of(device: torch.device | str | None) -> Streams:
    """The streams of a device; of the current accelerator by default, else of the CPU."""
    current = torch.accelerator.current_accelerator(True)  # is there one, not only support for it
    if device is None:
        chosen = torch.device("cpu") if current is None else current
    else:
        try:
            chosen = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise OffloadError(f"device {device!r} is no device: {error}") from error
    if chosen.type == "cpu":
        if chosen.index:
            raise OffloadError(f"device {chosen}: there is one CPU; pass device='cpu'")
        return InlineStreams(chosen)
    if current is None or chosen.type != current.type:
        raise OffloadError(
            f"device {chosen} was asked for, but this process's accelerator is "
            f"{current or 'none'}; leave device out, or pass device='cpu'"
        )
    if chosen.index is None:
        chosen = torch.device(chosen.type, torch.accelerator.current_device_index())
    return AcceleratorStreams(chosen)


def _capture_state(device: torch.device) -> Callable[[], bool]:
    """What says whether the current stream is captured into a graph."""
    if hasattr(torch.Stream, "is_capturing"):
        return lambda: bool(torch.accelerator.current_stream(device).is_capturing())
    # An older torch: each device type has its own.
    asked = getattr(getattr(torch, device.type, None), "is_current_stream_capturing", None)
    return asked or (lambda: False)


def _copy(pieces: Pieces) -> None:
    for target, source in pieces:
        target.copy_(source, non_blocking=True)


def _nothing() -> None:
    """A fence on a CPU."""
