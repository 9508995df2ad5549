"""The search for the best candidate: exact for few modules, from good ones uphill for many.

Exact is branch and bound: module by module each slot and each part that may be kept is tried, with
refills issued as slots fall free and in the order of use; a branch is left when it has no room, or
when the copies that it has by then alone take as long as the best that is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from random import Random

from schedule.seeds import filled, seeds
from schedule.space import Candidate, Space, needed, shuttled

EXACT = 20_000
"""Searched exactly are spaces of at most so many ways to choose slots and parts: seven modules that
can't be cut, or four of three equal parts."""
STEPS = 1200
"""Candidates that are tried on the way uphill, by one; fewer where one takes long."""
STARTS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """candidate, time: the best one, None if nothing fits.     exact: whether none is better."""

    candidate: Candidate | None
    time: Fraction | None
    exact: bool


def search(space: Space) -> Found:
    """The best candidate that is found."""
    timed: dict[Candidate, Fraction] = {}
    for seed in seeds(space):
        if seed not in timed:
            timed[seed] = space.time(seed)
    ranked = sorted(timed, key=lambda one: _rank(space, one, timed[one]))
    best = ranked[0] if ranked else None
    exact = ways(space) <= EXACT
    if best is None or timed[best] > space.bound:
        if exact:
            best = _Exact(space, best).best
        else:
            climbed = (_climb(space, start) for start in ranked[:STARTS])
            best = min(climbed, key=lambda one: _rank(space, one, space.time(one)), default=best)
    return Found(best, None if best is None else space.time(best), exact)


def _rank(space: Space, candidate: Candidate, time: Fraction) -> tuple[Fraction, int, int]:
    """Of equal times the one that moves fewer bytes, and then that needs less memory."""
    copied = sum(candidate.moved[module] for module in shuttled(candidate))
    return time, copied, needed(candidate, space.costs.sizes)


def ways(space: Space) -> int:
    """How many ways there are to choose slots and parts."""
    return bell(space.modules) * prod(len(one.moved) for one in space.choices)


def bell(size: int) -> int:
    """In how many ways so many modules can be shared out among slots: Bell's number."""
    row = [1]
    for _ in range(size):
        row = [row[-1], *row]
        for at in range(1, len(row)):
            row[at] += row[at - 1]
    return row[0]


class _Exact:
    """Branch and bound over slots and parts. best: the best candidate so far."""

    def __init__(self, space: Space, best: Candidate | None) -> None:
        self.space, self.best = space, best
        self.time = None if best is None else space.time(best)
        self.sizes = space.costs.sizes
        link, workloads = space.costs.link, space.costs.workloads
        self.copy_time = link.time
        self.streams = link.streams
        weights = sum(Fraction(one.weight) for one in workloads)
        self.compute = sum(Fraction(one.weight) * one.total for one in workloads) / weights
        self._branch((), (), {}, {}, 0)

    def _branch(
        self,
        moved: tuple[int, ...],
        slot_of: tuple[int, ...],
        largest: dict[int, int],
        users: dict[int, tuple[int, ...]],
        kept: int,
    ) -> None:
        module = len(moved)
        if self._is_lost(moved, largest, users, kept):
            return
        if module == self.space.modules:
            self._try(moved, slot_of)
            return
        for slot in range(len(largest) + 1):
            for size in reversed(self.space.choices[module].moved):
                self._branch(
                    (*moved, size),
                    (*slot_of, slot),
                    largest | {slot: max(size, largest.get(slot, 0))},
                    users | {slot: (*users.get(slot, ()), module)},
                    kept + self.sizes[module] - size,
                )

    def _is_lost(
        self,
        moved: tuple[int, ...],
        largest: dict[int, int],
        users: dict[int, tuple[int, ...]],
        kept: int,
    ) -> bool:
        """No room, or too many copies: more modules only add to both."""
        if sum(largest.values()) + kept > self.space.memory:
            return True
        if self.time is None:
            return False
        shared = (one for modules in users.values() if len(modules) > 1 for one in modules)
        copies = Fraction(sum(self.copy_time(moved[one]) for one in shared))
        least = self.compute + copies if self.streams == 0 else copies / self.streams
        return least >= self.time

    def _try(self, moved: tuple[int, ...], slot_of: tuple[int, ...]) -> None:
        for by_use in (False, True):
            candidate = Candidate(moved, slot_of, by_use)
            time = self.space.time(candidate)
            if self.time is None or time < self.time:
                self.best, self.time = candidate, time


def _climb(space: Space, start: Candidate) -> Candidate:
    """From this candidate to better ones, one change at a time; by numbers from a seed, so that
    the same question has the same answer."""
    random, best = Random(0), start
    rank, bound = _rank(space, start, space.time(start)), space.bound
    for _ in range(STEPS * 30 // (30 + len(start.slot_of))):
        if rank[0] <= bound:
            break
        changed = _changed(space, best, random)
        if changed is None or not space.fits(changed):
            continue
        other = _rank(space, changed, space.time(changed))
        if other <= rank:
            best, rank = changed, other
    return best


def _changed(space: Space, candidate: Candidate, random: Random) -> Candidate | None:
    """One change: another slot for a module, two that change places, or other parts kept."""
    modules = space.modules
    one, other = random.randrange(modules), random.randrange(modules)
    moved, slot_of = list(candidate.moved), list(candidate.slot_of)
    what = random.randrange(5)
    if what == 0 and len(slot_of) == modules:
        free = max(slot_of) + 1
        slot_of[one] = random.choice([*set(slot_of), free])
    elif what <= 2 and len(slot_of) == modules:
        slot_of[one], slot_of[other] = slot_of[other], slot_of[one]
        if what == 2 and space.costs.sizes[one] == space.costs.sizes[other]:
            moved[one], moved[other] = moved[other], moved[one]
    elif what == 3:
        moved[one] = _next(space, one, moved[one], -1)
        moved[other] = _next(space, other, moved[other], 1)
    else:
        moved[one] = random.choice(space.choices[one].moved)
    changed = Candidate(tuple(moved), tuple(slot_of), random.random() < 0.5)
    if changed == candidate:
        return None
    return filled(space, changed) if space.fits(changed) else None


def _next(space: Space, module: int, moved: int, by: int) -> int:
    """The next larger or smaller choice of what moves."""
    choices = space.choices[module].moved
    at = choices.index(moved) + by
    return choices[min(max(at, 0), len(choices) - 1)]
