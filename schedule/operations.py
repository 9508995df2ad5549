"""The operations on streams that a schedule is lowered to, and what they mean.

- A stream is first in, first out. COMPUTE runs the modules; copies have streams of their own,
  usually one, or share COMPUTE. HOST is the program that issues all this, and runs ahead.
- ``Record`` marks a point of a stream in an event; ``Wait`` makes a stream wait for the event's
  most recent record at the time of the call. A wait for an event that was never recorded waits
  for nothing.
- Between ``Capture`` and ``EndCapture`` nothing is executed: the operations on the capturing
  stream, and on streams that waited for an event of the capture, become a graph. ``Replay``
  executes the graph after what its stream was given before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schedule.errors import ProgramError
from schedule.table import Boundary

COMPUTE, COPY, HOST = "compute", "copy", "host"
RESERVED = ",:"
"""In no stream's name: the streams of a replay, and those before a trace, have one of these."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The copy streams; a module is always copied on the same one of them.

    ``Streams()`` is one copy stream, ``Streams((COMPUTE,))`` copies on the compute stream.
    Raises ProgramError unless the names are different, and none is the host's.
    """

    copies: tuple[str, ...] = (COPY,)

    def __post_init__(self) -> None:
        named = isinstance(self.copies, tuple) and all(
            isinstance(name, str) and name and not set(name) & set(RESERVED) for name in self.copies
        )
        if not named:
            raise ProgramError(
                f"copy streams {self.copies!r} must be a tuple of names without {RESERVED!r}"
            )
        if not self.copies or len(set(self.copies)) < len(self.copies) or HOST in self.copies:
            raise ProgramError(
                f"copy streams {self.copies} must be one or more different names, none {HOST!r}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Every stream of the device."""
        return (COMPUTE, *(name for name in self.copies if name != COMPUTE))

    @property
    def shared(self) -> bool:
        """Whether all is on one stream, whose order is then the only fence needed."""
        return self.copies == (COMPUTE,)

    def of(self, module: int) -> str:
        """The stream on which the module is copied."""
        return self.copies[module % len(self.copies)]


ONE_COPY_STREAM = Streams()


@dataclass(frozen=True, slots=True)
class Event:
    """``ran``: what the compute stream was given so far. ``landed``: a slot's last copy, by the
    slot's number. ``drained``: what a copy stream was given so far, by the stream's number.
    graph: the graph whose own event it is, recorded anew by each replay."""

    name: str
    number: int | None = None
    graph: str | None = None

    def __str__(self) -> str:
        text = self.name if self.number is None else f"{self.name}[{self.number}]"
        return text if self.graph is None else f"{text} of graph {self.graph}"


RAN = Event("ran")


def landed(slot: int) -> Event:
    """The event that guards a slot's bytes."""
    return Event("landed", slot)


@dataclass(frozen=True, slots=True)
class Copy:
    """The module's host block is copied into the slot, on the stream. pageable: from memory that
    is not pinned; then the block is free again when the call returns, but no order is taken from
    that: the bytes have landed when an event after the copy has."""

    stream: str
    slot: int
    module: int
    pageable: bool = False

    def __str__(self) -> str:
        how = " from pageable memory" * self.pageable
        return f"{self.stream}: copy module {self.module} into slot {self.slot}{how}"


@dataclass(frozen=True, slots=True)
class Run:
    """The module runs, reading the slot, on the stream."""

    stream: str
    slot: int
    module: int

    def __str__(self) -> str:
        return f"{self.stream}: run module {self.module} from slot {self.slot}"


@dataclass(frozen=True, slots=True)
class Record:
    """The event now stands for everything that the stream was given so far."""

    stream: str
    event: Event

    def __str__(self) -> str:
        return f"{self.stream}: record {self.event}"


@dataclass(frozen=True, slots=True)
class Wait:
    """The stream (or the host) goes on when what the event stood for at this call is done.
    module: the copy that the wait means, of that module into the event's slot."""

    stream: str
    event: Event
    module: int | None = None

    def __str__(self) -> str:
        means = "" if self.module is None else f", the copy of module {self.module}"
        return f"{self.stream}: wait for {self.event}{means}"


@dataclass(frozen=True, slots=True)
class Write:
    """The host writes into the module's host block. slot: what it writes is there, what the
    module wrote into its weights; None: it comes from elsewhere."""

    module: int
    slot: int | None = None
    stream: str = HOST

    def __str__(self) -> str:
        of = "" if self.slot is None else f" from slot {self.slot}"
        return f"{self.stream}: write the host block of module {self.module}{of}"


@dataclass(frozen=True, slots=True)
class Capture:
    """From here the stream's operations go into the graph."""

    stream: str
    graph: str

    def __str__(self) -> str:
        return f"{self.stream}: capture graph {self.graph}"


@dataclass(frozen=True, slots=True)
class EndCapture:
    """The graph is complete."""

    stream: str
    graph: str

    def __str__(self) -> str:
        return f"{self.stream}: end of graph {self.graph}"


@dataclass(frozen=True, slots=True)
class Replay:
    """The graph is executed, after what the stream was given before."""

    stream: str
    graph: str

    def __str__(self) -> str:
        return f"{self.stream}: replay graph {self.graph}"


Operation = Copy | Run | Record | Wait | Write | Capture | EndCapture | Replay
Operations = tuple[Operation, ...]


class Issued(NamedTuple):
    """An operation, and the boundary at which the host issues it. For a run and its waits the
    half is RUN."""

    operation: Operation
    boundary: Boundary


Listing = tuple[Issued, ...]
