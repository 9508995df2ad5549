"""The shortest pass that any refills allow, found by brute force: what the lower bounds of
``schedule.bounds`` must not exceed, and a planner can't beat.

Nothing of a schedule is known here: no slots, no policy, no period. A module is items; it runs
while all of them are in memory, and they stay there while it runs. An item that is not there is
copied, alone or with others of its module, and from a copy's begin its bytes are taken in memory.
One copy goes on at a time, to its end. What no run reads is dropped for nothing. The modules run
one after the other, for ever; each may wait.

What can be is a graph of states between two events, an event being the end of a run or of a copy:
a run or a copy that begins later than at an event may begin at the one before, since what is in
memory, and what of it is read, changes at no other time. What is dropped is the least that makes
room for a copy, as it begins: the rest can still be dropped then. The answer is the least mean of a
cycle of that graph, in units of time a pass. A cycle that is shorter than the shortest known is
looked for until there is none (E. L. Lawler, Combinatorial Optimization, 1976, section 3.13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, count, pairwise
from typing import NamedTuple

Items = int
"""A set of items, as bits."""


@dataclass(frozen=True, slots=True)
class Problem:
    """items:  by module, the bytes of each of its items; a module may have none, then it always
            can run: what stays on the device.
    run:      by module, units of time that its run takes.
    memory:   bytes; ValueError if a module does not fit.
    per_byte, latency: a copy takes so much for each of its bytes, and so much beside.
    """

    items: tuple[tuple[int, ...], ...]
    run: tuple[int, ...]
    memory: int
    per_byte: int = 1
    latency: int = 0

    def __post_init__(self) -> None:
        if len(self.items) != len(self.run) or not self.items:
            raise ValueError(f"{len(self.run)} run times for {len(self.items)} modules")
        if min(self.run) < 0 or min(map(min, filter(None, self.items)), default=1) < 1:
            raise ValueError("a run takes no less than nothing, and an item has at least one byte")
        if max(map(sum, self.items)) > self.memory:
            raise ValueError(f"a module has more than {self.memory} bytes")


class State(NamedTuple):
    """After an event. module: that runs, or runs next.   left: of its run, 0 if it did not begin.
    there: what is in memory.   copied: what is being copied.   copying: what is left of that."""

    module: int
    left: int
    there: Items
    copied: Items
    copying: int


class Edge(NamedTuple):
    """to: the number of the state after the next event.   time: until then.
    passes: 1 if the last module's run ended."""

    to: int
    time: int
    passes: int


def best_pass(problem: Problem) -> Fraction:
    """The least time of a pass in the long run, in units of time."""
    edges = _graph(_Rules(problem))
    copies = sum(problem.latency + problem.per_byte * sum(one) for one in problem.items if one)
    best = Fraction(sum(problem.run) + copies)  # each module is copied, and then run
    while (shorter := _shorter(edges, best)) is not None:
        best = shorter
    return best


class _Rules:
    """What may follow a state. items: of each module, as bits.   sizes: bytes, by item.
    rooms: what was found to stay."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sizes = [size for one in problem.items for size in one]
        self.rooms: dict[tuple[Items, Items, int], list[Items]] = {}
        ends = [sum(map(len, problem.items[:number])) for number in range(len(problem.items) + 1)]
        self.items = [(1 << end) - (1 << begin) for begin, end in pairwise(ends)]

    def size(self, items: Items) -> int:
        return sum(size for number, size in enumerate(self.sizes) if items >> number & 1)

    def after(self, state: State) -> Iterator[tuple[State, int, int]]:
        """The states after the next event, the time until then, and how many passes end."""
        if self._can_run(state) and not self.problem.run[state.module]:
            yield self._ended(state), 0, int(state.module == len(self.items) - 1)
        for begun in self._runs(state):
            for going in self._copies(begun):
                if going.left or going.copied:
                    yield self._event(going)

    def _runs(self, state: State) -> Iterator[State]:
        """The next run begins, or it waits."""
        yield state
        if self._can_run(state) and self.problem.run[state.module]:
            yield state._replace(left=self.problem.run[state.module])

    def _can_run(self, state: State) -> bool:
        return not state.left and not self.items[state.module] & ~state.there

    def _ended(self, state: State) -> State:
        return state._replace(module=(state.module + 1) % len(self.items), left=0)

    def _copies(self, state: State) -> Iterator[State]:
        """A copy begins, or none does."""
        yield state
        if state.copied:
            return
        read = self.items[state.module] if state.left else 0
        for items in self._missing(state.there):
            time = self.problem.latency + self.problem.per_byte * self.size(items)
            for there in self._with_room(state.there, read, self.size(items)):
                yield state._replace(there=there, copied=items, copying=time)

    def _missing(self, there: Items) -> Iterator[Items]:
        """What can be copied at once. Two items one after the other are no worse than together,
        where a copy takes nothing beside its bytes."""
        for module in self.items:
            missing = _each(module & ~there)
            most = len(missing) if self.problem.latency else 1
            for number in range(1, most + 1):
                yield from map(sum, combinations(missing, number))

    def _with_room(self, there: Items, read: Items, size: int) -> list[Items]:
        """What stays in memory when there is room for so many bytes: as much as can."""
        key = there, read & there, size
        if key not in self.rooms:
            self.rooms[key] = self._rooms(there, _each(there & ~read), self.problem.memory - size)
        return self.rooms[key]

    def _rooms(self, there: Items, others: list[Items], most: int) -> list[Items]:
        found: list[Items] = []
        for number in range(len(others) + 1):
            for dropped in map(sum, combinations(others, number)):
                stays = there & ~dropped
                if self.size(stays) <= most and not any(stays & ~more == 0 for more in found):
                    found.append(stays)
        return found

    def _event(self, going: State) -> tuple[State, int, int]:
        """What is there when the run or the copy that goes on has ended, or both."""
        time = min(left for left in (going.left, going.copying) if left)
        after, passes = going._replace(left=max(0, going.left - time)), 0
        if going.left == time:
            after, passes = self._ended(going), int(going.module == len(self.items) - 1)
        if going.copying == time:
            return (
                after._replace(there=going.there | going.copied, copied=0, copying=0),
                time,
                passes,
            )
        return after._replace(copying=max(0, going.copying - time)), time, passes


def _each(items: Items) -> list[Items]:
    """The items of a set, each as a set."""
    return [1 << number for number in range(items.bit_length()) if items >> number & 1]


def _graph(rules: _Rules) -> list[list[Edge]]:
    """By number of a state, what may follow. The first has nothing in memory."""
    numbers = {State(0, 0, 0, 0, 0): 0}
    states, edges = [*numbers], list[list[Edge]]()
    for state in states:
        found = dict[Edge, None]()
        for after, time, passes in rules.after(state):
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            found[Edge(numbers[after], time, passes)] = None
        edges.append([*found])
    return edges


def _shorter(edges: Sequence[Sequence[Edge]], mean: Fraction) -> Fraction | None:
    """The time a pass of a cycle that is shorter than this mean; None if there is none."""
    scale, shift = mean.denominator, mean.numerator
    # The least that a walk from here costs, where each pass costs ``mean`` less than its time.
    least = [0] * len(edges)
    taken: list[Edge | None] = [None] * len(edges)
    for round_ in count(1):
        changed = False
        for number in reversed(range(len(edges))):
            for edge in edges[number]:
                cost = edge.time * scale - edge.passes * shift + least[edge.to]
                if cost < least[number]:
                    least[number], taken[number], changed = cost, edge, True
        if not changed:
            return None
        # Edges that were taken form a cycle only if it costs less than nothing.
        if round_ % 4 == 0 and (found := _cycle(taken)):
            return Fraction(sum(edge.time for edge in found), sum(edge.passes for edge in found))
    raise AssertionError("walks of more and more edges come to an end, or have a cycle")


def _cycle(taken: Sequence[Edge | None]) -> list[Edge]:
    """The edges of a cycle among those taken, empty if there is none."""
    seen = [0] * len(taken)
    for start in range(len(taken)):
        here, way = start, list[int]()
        while not seen[here] and (edge := taken[here]) is not None:
            seen[here] = start + 1
            way.append(here)
            here = edge.to
        if here in way:
            return [edge for at in way[way.index(here) :] if (edge := taken[at]) is not None]
    return []
