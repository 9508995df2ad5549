"""Listings of a host that guards: what the runtime issues where modules are skipped, passes are cut
short, and graphs of a pass or of its pieces are replayed in any order.

It believes of the slots what it issued, and loads what is then missing: before a module runs, and
before a replay what its graph takes for granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proofs.obligation import System
from schedule.graphs import CAPTURE, REPLAY
from schedule.operations import Copy, Issued, Listing, Operations, Streams
from schedule.program import RELOAD
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary, Schedule


def issued(operations: Operations, half: str, step: int) -> Listing:
    return tuple(Issued(operation, Boundary(half, step)) for operation in operations)


def skipped(system: System, schedule: Schedule, streams: Streams) -> Listing:
    """Two passes without module 1; what is then missed is reloaded before it runs."""
    host = Host(system, schedule, streams)
    for _ in range(2):
        host.run(step for step in range(schedule.ring.modules) if step != 1)
    return tuple(host.listing)


def cut_short(system: System, schedule: Schedule, streams: Streams) -> Listing:
    """A pass's graph; a pass that is cut short, a replay; the last modules alone, a replay; and
    a pass."""
    host, modules = Host(system, schedule, streams), schedule.ring.modules
    whole, half = range(modules), range((modules + 1) // 2)
    graph = host.capture("pass", whole)
    host.run(half)
    host.replay(graph)
    host.run(step for step in whole if step not in half)
    host.replay(graph)
    host.run(whole)
    return tuple(host.listing)


def in_pieces(system: System, schedule: Schedule, streams: Streams) -> Listing:
    """Two graphs of a pass's halves, replayed in order, the second once more, and a pass."""
    host, modules = Host(system, schedule, streams), schedule.ring.modules
    first, second = range(modules // 2), range(modules // 2, modules)
    graphs = [host.capture("first", first), host.capture("second", second)]
    for at in (0, 1, 1):
        host.replay(graphs[at])
    host.run((*first, *second))
    return tuple(host.listing)


class Host:
    """What is issued, and what each slot was last given."""

    def __init__(self, system: System, schedule: Schedule, streams: Streams) -> None:
        self._system, self._schedule, self._streams = system, schedule, streams
        self._parts = system.program.lower(schedule, streams).parts()
        self._last = [system.guard.Copied()] * schedule.ring.slots
        self._graph: Any = None
        self.listing: list[Issued] = []
        self._issue(PRELOAD, 0)

    def run(self, steps: Iterable[int]) -> None:
        """These modules run, one after the other."""
        guard, schedule = self._system.guard, self._schedule
        for step in steps:
            if step == 0:
                self._issue(ENTER, 0)
            self._issue(BEFORE, step)
            resident = guard.is_resident(self._last[schedule.slot_of[step]], step, 0)
            for half in (*guard.arrives(resident), AFTER):
                self._issue(half, step)
            if step == schedule.ring.modules - 1:
                self._issue(LEAVE, 0)

    def capture(self, name: str, steps: Sequence[int]) -> Any:
        """The same steps as a graph, from where passes come to the first of them; then the slots
        are what they were."""
        self.run(steps)
        self._load(self._system.graphs.held_at(self._schedule, min(steps, default=0)))
        before = list(self._last)
        self._graph = self._system.graphs.Graph(name)
        self.listing += issued(self._graph.lower_begin(self._streams), CAPTURE, 0)
        self.run(steps)
        graph, self._graph, self._last = self._graph, None, before
        self.listing += issued(graph.lower_end(self._streams), CAPTURE, 0)
        return graph

    def replay(self, graph: Any) -> None:
        """Load what the graph takes for granted and is not there, and replay it."""
        self._load(graph.needs)
        slots = sorted(set(self._schedule.slot_of))
        self.listing += issued(graph.lower_replay(slots, self._streams), REPLAY, 0)
        for slot, module in graph.leaves.items():
            self._last[slot] = self._system.guard.Copied(module, 0)

    def _load(self, needs: Mapping[int, int]) -> None:
        for module in self._system.guard.missing(needs, self._last, lambda _: 0):
            self._issue(RELOAD, module)

    def _issue(self, half: str, step: int) -> None:
        found = self._parts[half][step]
        for operation, _ in found:
            if isinstance(operation, Copy):
                self._last[operation.slot] = self._system.guard.Copied(operation.module, 0)
        if self._graph is not None:
            self._graph, found = self._graph.take_all(found)
        self.listing += found
