"""What a program gives the device to do: its operations with every graph written out.

A replay of a graph becomes the graph's operations, on streams of that replay's own: nothing
orders them but the graph's events and what its capturing stream did before. While a graph is
captured its operations stand idle in their streams, so that loose ends show there too.

All engines (the clocks, the interleavings, the solver) take these tasks; what is wrong with the
form of a capture, whatever the timing, is found here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from schedule.errors import ProgramError
from schedule.graphs import Graph
from schedule.known import Known
from schedule.operations import (
    COMPUTE,
    HOST,
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
from schedule.properties import JOINED, PAGEABLE

EARLIER = -1
"""The place of what was captured before the listing."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Work that is captured now and executed by a replay."""

    stream: str


@dataclass(frozen=True, slots=True)
class Join:
    """All that these streams were given so far must be done when the stream gets here."""

    stream: str
    streams: tuple[str, ...]


TaskOperation = Copy | Run | Record | Wait | Write | Idle | Join


class Task(NamedTuple):
    """operation: what is done, on which stream.   at: its position in the listing.
    replay: the position of the Replay that it is part of, or None."""

    operation: TaskOperation
    at: int
    replay: int | None


class Fault(NamedTuple):
    """One thing that is wrong, by task numbers.

    property: RAW, WAR, WAW, BLOCK, IDENTITY, MEANING, JOINED or PAGEABLE.
    later:    the task at which it shows.     earlier: the one that it is not ordered with.
    why:      what is wrong with the form, where no timing is needed.
    """

    property: str
    later: int
    earlier: int | None = None
    why: str = ""


class Tasks(NamedTuple):
    """tasks: in the order in which the host issues them.   faults: of the form."""

    tasks: tuple[Task, ...]
    faults: tuple[Fault, ...]


@dataclass(slots=True)
class _Graph:
    """A graph while it is captured, and after. forked: the streams that are part of it."""

    name: str
    stream: str
    forked: set[str]
    recorded: set[Event] = field(default_factory=set)
    body: list[tuple[Operation, int]] = field(default_factory=list)
    replays: int = 0


def write_out(listing: Iterable[Issued], streams: Streams, graphs: Iterable[Graph] = ()) -> Tasks:
    """The tasks of a listing. graphs: captured before it. ProgramError for one that makes no
    sense: unknown streams, events or graphs, captures that nest or never end."""
    if not isinstance(listing, Iterable):
        raise ProgramError(f"{listing!r} is no listing; give Issued(operation, boundary) in order")
    writer, known = _Writer(streams), Known(streams)
    for graph in graphs:
        writer.know(graph)
    at = -1
    for at, issued in enumerate(listing):
        if not isinstance(issued, Issued):
            raise ProgramError(f"operation {at}: {issued!r} is no Issued(operation, boundary)")
        try:
            known.check(issued)
            writer.add(issued.operation, at)
        except ProgramError as error:
            raise ProgramError(f"operation {at} ({_shown(issued.operation)}): {error}") from None
    if writer.capturing is not None:
        raise ProgramError(f"operation {at} is the last, but graph {writer.capturing.name} is open")
    return Tasks(tuple(writer.tasks), tuple(writer.faults))


def _shown(operation: object) -> str:
    try:
        return str(operation)
    except TypeError:  # one of its parts is odd
        return repr(operation)


class _Writer:
    """Writes the tasks; keeps the graphs that it knows."""

    def __init__(self, streams: Streams) -> None:
        self.tasks: list[Task] = []
        self.faults: list[Fault] = []
        self.graphs: dict[str, _Graph] = {}
        self.capturing: _Graph | None = None
        self.known = streams
        self.streams = dict.fromkeys(streams.names)  # in order, those of graphs too

    def know(self, graph: Graph) -> None:
        """A graph that was captured before; what was wrong with that is not told."""
        ends = (*(one.operation for one in graph.body), *graph.lower_end(self.known))
        for operation in (Capture(COMPUTE, graph.name), *ends):
            self.add(operation, EARLIER)
        self.tasks.clear()
        self.faults.clear()

    def add(self, operation: Operation, at: int) -> None:
        if isinstance(operation, Record | Wait):
            name = operation.event.graph
            capturing = self.capturing and self.capturing.name
            unknown = name is not None and name != capturing and name not in self.graphs
            self.refuse(unknown, f"event.graph: no graph is called {name}")
        match operation:
            case Capture(stream, name):
                self.refuse(self.capturing is not None, "a capture is open already")
                self.refuse(name in self.graphs, f"graph {name} was captured before")
                self.task(Join(stream, tuple(self.streams)), at)
                self.capturing = _Graph(name, stream, {stream})
            case EndCapture(stream, name):
                graph = self.capturing
                if graph is None or (graph.name, graph.stream) != (name, stream):
                    raise ProgramError(f"no capture of graph {name} on {stream} is open")
                self.end(graph, at, "capture", None)
                self.graphs[name], self.capturing = graph, None
            case Replay(stream, name):
                self.refuse(self.capturing is not None, "a capture is open")
                self.refuse(name not in self.graphs, f"no graph is called {name}")
                self.replay(self.graphs[name], stream, at)
            case _ if self.capturing is not None:
                self.capture(self.capturing, operation, at)
            case Wait(stream, event) | Record(stream, event) if event.graph is not None:
                word = "waited for" if isinstance(operation, Wait) else "recorded"
                self.fault(JOINED, f"{event} can't be {word} outside of it")
                self.task(Idle(stream), at)
            case _:
                self.task(operation, at)

    def refuse(self, wrong: bool, why: str) -> None:
        if wrong:
            raise ProgramError(why)

    def task(self, operation: TaskOperation, at: int, replay: int | None = None) -> None:
        self.tasks.append(Task(operation, at, replay))

    def fault(self, name: str, why: str) -> None:
        """What is wrong with the task that comes next."""
        self.faults.append(Fault(name, len(self.tasks), None, why))

    def capture(self, graph: _Graph, operation: Operation, at: int) -> None:
        """An operation while the graph is captured."""
        own = replace(operation)
        match operation:
            case Wait(_, event) if operation.stream == HOST and event.graph is not None:
                self.fault(JOINED, f"the host can't wait for {event}: it is captured, not done")
                self.task(Idle(HOST), at)
                return
            case Write() | Wait() if operation.stream == HOST:
                self.task(operation, at)  # the host's own: it is done, not captured
                return
            case Wait(stream, event) if event in graph.recorded:
                graph.forked.add(stream)
            case Wait(stream, event):
                self.fault(JOINED, f"inside graph {graph.name} it waits for {event} from outside")
                own = Record(stream, Event("nothing", None, graph.name))  # it orders nothing
            case Record(stream, event) if event.graph == graph.name:
                graph.recorded.add(event)
            case Record(stream, event):
                # Outside it would stand for work that is not done, but captured.
                self.fault(JOINED, f"inside graph {graph.name} it records {event}, not its own")
                own = Record(stream, Event("nothing", None, graph.name))
            case Copy(pageable=True):
                self.fault(PAGEABLE, f"inside graph {graph.name} it copies from pageable memory")
        if own.stream not in graph.forked:
            self.fault(JOINED, f"{own.stream} is not part of graph {graph.name}: it did not fork")
            self.task(Idle(own.stream), at)
            return
        graph.body.append((own, at))
        self.part(graph, own, at, "capture", None)

    def part(
        self, graph: _Graph, operation: Operation, at: int, where: str, replay: int | None
    ) -> None:
        """One operation of a graph's body, while captured or in a replay."""
        stream = self.own_stream(graph, operation.stream, where)
        if where == "capture" and isinstance(operation, Copy | Run):
            self.task(Idle(stream), at)
        elif where == "capture" and isinstance(operation, Wait):
            self.task(Wait(stream, operation.event), at)  # what it means is copied in a replay
        else:
            assert not isinstance(operation, Capture | EndCapture | Replay), "graphs do not nest"
            self.task(replace(operation, stream=stream), at, replay)

    def own_stream(self, graph: _Graph, stream: str, where: str) -> str:
        """A stream of one replay; the capturing one stays itself."""
        name = stream if stream == graph.stream else f"{stream}: {where} of {graph.name}"
        self.streams[name] = None
        return name

    def end(self, graph: _Graph, at: int, where: str, replay: int | None) -> None:
        """A graph's end: its forks must be joined."""
        used = dict.fromkeys(operation.stream for operation, _ in graph.body)
        forks = tuple(self.own_stream(graph, stream, where) for stream in used)
        self.task(Join(graph.stream, forks), at, replay)

    def replay(self, graph: _Graph, stream: str, at: int) -> None:
        self.refuse(stream != graph.stream, f"graph {graph.name} was captured on {graph.stream}")
        self.task(Join(stream, tuple(self.streams)), at, at)
        where = f"replay {graph.replays}"
        graph.replays += 1
        for operation, position in graph.body:
            self.part(graph, operation, at if position == EARLIER else position, where, at)
        self.end(graph, at, where, at)
