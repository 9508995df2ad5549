"""Does a program order every pair of conflicting accesses, whatever the device's timing?

Happens-before by vector clocks. A tick counts a stream's copies and runs; a clock says, for each
stream, up to which tick all is done for certain. An access that must come after another one is
ordered if the clock of its stream covers the other's tick. ``advance`` is pure but for its
tables, which a walk over integers writes in place; the proofs execute it with symbolic ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from schedule.graphs import Graph
from schedule.operations import (
    COMPUTE,
    HOST,
    ONE_COPY_STREAM,
    Copy,
    Event,
    Listing,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, RAW, WAR, WAW
from schedule.ring import EMPTY
from schedule.tasks import Fault, Idle, Join, Task, TaskOperation, Tasks, write_out

Clock = Mapping[str, int]
"""By stream: all up to this tick is done. A stream that is not there: nothing is known."""

NOTHING: Clock = {}


class Table(Protocol):
    """``table[key]`` reads, ``table.put(key, value)`` is the table after a write."""

    def __getitem__(self, key: Any, /) -> Any: ...
    def put(self, key: Any, value: Any) -> Self: ...


class Ledger(dict[Any, Any]):
    """A table for one walk: ``put`` writes in place. What was never put reads as the default."""

    __slots__ = ("default",)

    def __init__(self, default: Any) -> None:
        super().__init__()
        self.default = default

    def __missing__(self, key: Any) -> Any:
        return self.default

    def put(self, key: Any, value: Any) -> Self:
        self[key] = value
        return self


class State(NamedTuple):
    """clock:   by stream, what is done before its next operation starts; of the host, before it
             issues the next one.
    record:  by event, the clock that its latest record stands for.
    stands:  by event of a slot, the module of the slot's latest copy when it was recorded.
    copied, read: by slot, the latest tick of each stream that copied into it or ran from it.
    content: by slot, the module of the latest copy.
    version: by slot, how often its block had been written when that copy was issued.
    written: by module, how often the host has written its block.
    reading: by module, the latest tick of each stream that copied its host block.
    """

    clock: Table
    record: Table
    stands: Table
    copied: Table
    read: Table
    content: Table
    version: Table
    written: Table
    reading: Table


class Conflict(NamedTuple):
    """A property that an operation violates; with which tick of which stream, if with one."""

    property: str
    stream: str | None = None
    tick: int = 0


def start() -> State:
    """Nothing was issued."""
    clock, record, copied, read, reading = (Ledger(NOTHING) for _ in range(5))
    stands, content, version, written = Ledger(EMPTY), Ledger(EMPTY), Ledger(0), Ledger(0)
    return State(clock, record, stands, copied, read, content, version, written, reading)


def somewhere(holds: Sequence[int], modules: int, streams: Streams = ONE_COPY_STREAM) -> State:
    """Between two boundaries of a run of which nothing else is known. holds: by slot, the module
    of its latest copy.

    Claim 5's invariant allows no weaker state. It says that ``landed`` of a slot stands for all
    copies into it; that, if there is only one copy stream, this stream comes after them; and that
    runs are on the compute stream alone. So every slot's last copy may still be under way, every
    run may not have ended, every block may be being read, and the host waited for nothing.
    Copies into different slots are on streams of their own here, so that what covers one of them
    covers no other.
    """
    state, one = start(), streams.copies[0] if len(streams.copies) == 1 else None
    past = {f"before, into slot {slot}": 1 for slot in range(len(holds))}
    for stream in streams.names:
        state.clock.put(stream, {stream: 1, **(past if stream == one else NOTHING)})
    for slot, (module, (name, tick)) in enumerate(zip(holds, past.items(), strict=True)):
        state.copied.put(slot, {name: tick})
        state.record.put(landed(slot), {name: tick})
        state.stands.put(landed(slot), module)
        state.read.put(slot, {COMPUTE: 1})
        state.content.put(slot, module)
    for module in range(modules):
        state.reading.put(module, {streams.of(module): 1})
    return state


def later(first: Clock, second: Clock) -> Clock:
    """The clock of what waited for both."""
    merged = dict(first)
    for stream, tick in second.items():
        merged[stream] = max(merged[stream], tick) if stream in merged else tick
    return merged


def uncovered(name: str, clock: Clock, accesses: Clock) -> list[Conflict]:
    """A conflict for each stream whose tick the clock does not cover."""
    return [
        Conflict(name, stream, tick)
        for stream, tick in accesses.items()
        if stream not in clock or clock[stream] < tick
    ]


def starts(state: State, stream: str) -> Clock:
    """What is done before the stream's next operation starts: it comes after what the stream
    did and waited for, and after what the host waited for before it issued it."""
    own: Clock = state.clock[stream]
    host: Clock = state.clock[HOST]
    return later(own, host) if host else own


def tick_of(clock: Clock, stream: str) -> int:
    """The stream's own tick."""
    return clock.get(stream, 0)


def advance(state: State, operation: TaskOperation) -> tuple[State, list[Conflict]]:
    """The state after the operation was issued, and what it violates."""
    stream = operation.stream
    clock = starts(state, stream)
    match operation:
        case Copy(_, slot, module, pageable):
            found = uncovered(WAR, clock, state.read[slot])
            found += uncovered(WAW, clock, state.copied[slot])
            tick = tick_of(clock, stream) + 1
            copied = state.copied.put(slot, {**state.copied[slot], stream: tick})
            reading = state.reading
            if not pageable:  # else the block is free again when the call returns
                reading = reading.put(module, {**reading[module], stream: tick})
            return state._replace(
                clock=state.clock.put(stream, {**clock, stream: tick}),
                copied=copied,
                content=state.content.put(slot, module),
                version=state.version.put(slot, state.written[module]),
                reading=reading,
            ), found
        case Run(_, slot, module):
            found = reads(state, slot, module, clock)
            tick = tick_of(clock, stream) + 1
            read = state.read.put(slot, {**state.read[slot], stream: tick})
            ticked = state.clock.put(stream, {**clock, stream: tick})
            return state._replace(clock=ticked, read=read), found
        case Record(_, event):
            stands = state.stands
            if event.name == "landed":
                stands = stands.put(event, state.content[event.number])
            return state._replace(record=state.record.put(event, clock), stands=stands), []
        case Wait(_, event, module):
            clock = later(clock, state.record[event])
            found = [] if module is None else means(state, event, module, clock)
            return state._replace(clock=state.clock.put(stream, clock)), found
        case Write(module, slot):
            found = uncovered(BLOCK, clock, state.reading[module])
            if slot is not None:
                found += reads(state, slot, module, clock)
            written = state.written.put(module, state.written[module] + 1)
            return state._replace(written=written), found
        case Idle():
            ticked = state.clock.put(stream, {**clock, stream: tick_of(clock, stream) + 1})
            return state._replace(clock=ticked), []
        case Join(_, streams):
            work = {other: tick_of(state.clock[other], other) for other in streams}
            return state, uncovered(JOINED, clock, {s: tick for s, tick in work.items() if tick})


def reads(state: State, slot: int, module: int, clock: Clock) -> list[Conflict]:
    """A run, or the host that keeps what one wrote, reads the module's weights in the slot. They
    come from the latest copy, and from the runs before, which may have written into them; and
    what was copied before the host wrote the block is old."""
    found = uncovered(RAW, clock, later(state.copied[slot], state.read[slot]))
    if state.content[slot] != module or state.version[slot] != state.written[module]:
        found.append(Conflict(IDENTITY))
    return found


def means(state: State, event: Event, module: int, clock: Clock) -> list[Conflict]:
    """A wait means the copy of this module: it must be the slot's latest, and have been when the
    event was recorded; and all copies into the slot are done when the wait is over."""
    right = state.stands[event] == module and state.content[event.number] == module
    if right and not uncovered(MEANING, clock, state.copied[event.number]):
        return []
    return [Conflict(MEANING)]


@dataclass(frozen=True, slots=True)
class Ordering:
    """What the clocks found in a listing.

    faults: every fault, in order.    lints: the numbers of tasks that copy from pageable memory,
    which overlaps nothing.
    """

    listing: Listing
    tasks: tuple[Task, ...]
    faults: tuple[Fault, ...]
    lints: tuple[int, ...]

    @property
    def safe(self) -> bool:
        return not self.faults

    def holds(self, *names: str) -> bool:
        """Whether none of these properties is violated; ``ORDERING`` names the hazards."""
        return not any(fault.property in names for fault in self.faults)


def order(
    listing: Listing,
    streams: Streams = ONE_COPY_STREAM,
    state: State | None = None,
    graphs: Iterable[Graph] = (),
) -> Ordering:
    """All faults of a listing, from an empty device or from a given state, whose tables are
    written into, with graphs that were captured before.

    ProgramError if the listing makes no sense.
    """
    written = write_out(listing, streams, graphs)
    return Ordering(
        listing,
        written.tasks,
        tuple(sorted((*written.faults, *_walk(written, state or start())), key=_position)),
        tuple(n for n, task in enumerate(written.tasks) if getattr(task.operation, "pageable", 0)),
    )


def _position(fault: Fault) -> tuple[int, str, int]:
    earlier = -1 if fault.earlier is None else fault.earlier
    return fault.later, fault.property, earlier


def _walk(written: Tasks, state: State) -> Iterable[Fault]:
    numbers: dict[tuple[str | None, int], int] = {}
    for number, task in enumerate(written.tasks):
        state, found = advance(state, task.operation)
        if isinstance(task.operation, Copy | Run | Idle):
            stream = task.operation.stream
            numbers[stream, state.clock[stream][stream]] = number
        for conflict in found:
            earlier = numbers.get((conflict.stream, conflict.tick))
            yield Fault(conflict.property, number, earlier)
