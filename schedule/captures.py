"""The graphs of a trace, while it is followed: which is captured now, and which can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedule.graphs import CAPTURE, REPLAY, Graph
from schedule.operations import Capture, Issued, Listing, Operations, Replay, Streams
from schedule.program import WRITE
from schedule.table import PRELOAD, Boundary

ANOTHER = "another boundary's"


class Captures:
    """graph: the one that is captured now.     complete: the others, by name.
    slots: those that the program uses."""

    def __init__(self, slots: Iterable[int], streams: Streams) -> None:
        self._slots, self._streams = sorted(set(slots)), streams
        self.graph: Graph | None = None
        self.complete: dict[str, Graph] = {}

    def issued(self, listing: Listing) -> Listing:
        """What a boundary of the program issues now: in a capture, what the graph takes of it."""
        return listing if self.graph is None else self.graph.take_all(listing)[1]

    def take(self, listing: Listing) -> None:
        """A boundary of the program issued this."""
        if self.graph is not None:
            self.graph, _ = self.graph.take_all(listing)

    def refuse(self, half: str, rest: Sequence[Issued]) -> tuple[str, str] | None:
        """Why this half may not come here, and what may. rest: it and all that follows."""
        name = "" if self.graph is None else self.graph.name
        if name and half in (WRITE, PRELOAD, REPLAY):
            return f"graph {name} is captured, which can't hold that", ANOTHER
        if half == CAPTURE and not name and _named(Capture, rest) in self.complete:
            return f"graph {_named(Capture, rest)} was captured before", "a new name"
        if half == REPLAY and _named(Replay, rest) not in self.complete:
            return f"no graph is called {_named(Replay, rest)!r}", "one that was captured"
        return None

    def wanted(self, half: str, rest: Sequence[Issued]) -> Listing:
        """What a capture's begin or end, or a replay, issues here."""
        if half == REPLAY:
            graph = self.complete[_named(Replay, rest)]
            return _at(REPLAY, graph.lower_replay(self._slots, self._streams))
        if self.graph is None:
            return _at(CAPTURE, Graph(_named(Capture, rest)).lower_begin(self._streams))
        return _at(CAPTURE, self.graph.lower_end(self._streams))

    def begin_or_end(self, issued: Listing) -> None:
        """A capture begins, or ends."""
        if self.graph is None:
            self.graph = Graph(_named(Capture, issued))
        else:
            self.complete[self.graph.name], self.graph = self.graph, None

    def needs(self, rest: Sequence[Issued]) -> list[int]:
        """The modules that the graph which is replayed next takes for granted."""
        return [*self.complete[_named(Replay, rest)].needs.values()]

    def replayed(self, issued: Listing) -> Listing:
        """The operations of the graph that these replay."""
        return self.complete[_named(Replay, issued)].body

    def whole(self, graph: Graph) -> Listing:
        """A graph with its capture's begin and end."""
        begin, end = graph.lower_begin(self._streams), graph.lower_end(self._streams)
        return (*_at(CAPTURE, begin), *graph.body, *_at(CAPTURE, end))


def _at(half: str, operations: Operations) -> Listing:
    return tuple(Issued(operation, Boundary(half, 0)) for operation in operations)


def _named(kind: type[Capture | Replay], rest: Iterable[Issued]) -> str:
    """The graph that the first operation of this kind names."""
    found = (one.operation for one in rest if isinstance(one.operation, kind))
    return next((one.graph for one in found), "")
