"""The search for the best candidate: exact for few modules, from good ones uphill for many.

Exact is branch and bound: module by module each slot and each part that may be kept is tried, with
refills issued as slots fall free and in the order of use; a branch is left when it has no room, or
when the copies that it has by then alone take as long as the best that is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import prod
from random import Random

from schedule.seeds import filled, seeds
from schedule.space import Candidate, Space, needed, shuttled

EXACT = 60_000
"""Searched exactly are spaces of at most so many ways to choose slots and parts: nine modules that
can't be cut, or five of four equal parts. Most ways are left early."""
STEPS, MOST_STEPS = 40_000, 1_500
"""Candidates that are tried on the way uphill: so many, over how long a period is; at most."""
LOOSE = Fraction(1, 2)
"""How much worse ones are gone through, at first: by so much of a module's part of the time."""
STARTS = 4


@dataclass(frozen=True, slots=True)
class Found:
    """candidate: the best one.     exact: whether none of one pass is better."""

    candidate: Candidate
    exact: bool


def search(space: Space, known: Iterable[Candidate] = ()) -> Found:
    """The best candidate that is found; known: some that fit. There must be room for the largest
    module: then one slot for all fits."""
    uncut = space.uncut
    known = [filled(space, one) for one in known]
    found = dict.fromkeys([*known, *seeds(space), *(seeds(uncut) if uncut != space else ())])
    ranked = sorted(found, key=partial(_rank, space))
    assert ranked, "one slot for all fits"
    best, bound, few = ranked[0], space.bound, ways(space) <= EXACT
    exact = few and all(one.complete for one in space.choices)
    if few and space.time(best) > bound:
        best = _Exact(space, best).best
    elif space.time(best) > bound:
        starts = _different(ranked)
        if ways(uncut) <= EXACT:
            starts.append(_Exact(uncut, best).best)
        best = min((_climb(space, start) for start in starts), key=partial(_rank, space))
    return Found(best, exact)


def _different(ranked: Iterable[Candidate]) -> list[Candidate]:
    """The best ones of different kinds: by the number of slots that are shared."""
    found: dict[int, Candidate] = {}
    for one in ranked:
        shared = {one.slot_of[module] for module in shuttled(one)}
        found.setdefault(len(shared), one)
    return list(found.values())[:STARTS]


Rank = tuple[Fraction, int, int]


def _rank(space: Space, candidate: Candidate) -> Rank:
    """Of equal times the one that moves fewer bytes, and then that needs less memory."""
    time = space.time(candidate)
    copied = sum(candidate.moved[module] for module in shuttled(candidate))
    return time, copied, needed(candidate, space.sizes)


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

    def __init__(self, space: Space, best: Candidate) -> None:
        self.space, self.best, self.time = space, best, space.time(best)
        self.sizes = space.sizes
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
        shared = (one for modules in users.values() if len(modules) > 1 for one in modules)
        copies = Fraction(sum(self.copy_time(moved[one]) for one in shared))
        least = self.compute + copies if self.streams == 0 else copies / self.streams
        return least >= self.time

    def _try(self, moved: tuple[int, ...], slot_of: tuple[int, ...]) -> None:
        for by_use in (False, True):
            candidate = Candidate(moved, slot_of, by_use)
            time = self.space.time(candidate)
            if time < self.time:
                self.best, self.time = candidate, time


def _climb(space: Space, start: Candidate) -> Candidate:
    """From this candidate to better ones, one change at a time; a little worse ones are gone
    through too, less and less. By numbers from a seed: the same question has the same answer."""
    random, bound = Random(0), space.bound
    here = best = start
    rank = least = _rank(space, start)
    steps = min(MOST_STEPS, STEPS // len(start.slot_of))
    for step in range(steps):
        if least[0] <= bound:
            break
        changed = _changed(space, here, random)
        if changed is None:
            continue
        other = _rank(space, changed)
        allowed = rank[0] * (1 + LOOSE * (steps - step) / (steps * space.modules))
        if other <= rank or other[0] < allowed:
            here, rank = changed, other
        if rank < least:
            best, least = here, rank
    return best


def _changed(space: Space, candidate: Candidate, random: Random) -> Candidate | None:
    """One change: another slot for a module, two that change places, other parts that are kept, or
    another order of refills. What then has no room keeps less, and what is left over keeps more."""
    modules, one_pass = space.modules, len(candidate.slot_of) == space.modules
    one, other = random.randrange(modules), random.randrange(modules)
    moved, slot_of, by_use = list(candidate.moved), list(candidate.slot_of), candidate.by_use
    what = random.randrange(6)
    if what <= 1 and one_pass:
        slot_of[one] = random.choice([*dict.fromkeys(slot_of), max(slot_of) + 1])
    elif what == 2 and one_pass:
        slot_of[one], slot_of[other] = slot_of[other], slot_of[one]
    elif what == 3 and space.choices[one] == space.choices[other]:
        moved[one], moved[other] = moved[other], moved[one]
    elif what == 4:
        by_use = not by_use
    else:
        moved[one] = random.choice(space.choices[one].moved)
    changed = _fitted(space, Candidate(tuple(moved), tuple(slot_of), by_use), random)
    if changed is None or changed == candidate:
        return None
    return filled(space, changed)


def _fitted(space: Space, candidate: Candidate, random: Random) -> Candidate | None:
    """The candidate with less kept, module by module in any order, until it has room: as much moves
    as its slot is large, and what has a slot of its own moves through another's."""
    modules = space.modules
    if len(candidate.slot_of) > modules:
        return candidate if space.fits(candidate) else None
    for module in random.sample(range(modules), modules):
        if space.fits(candidate):
            return candidate
        moved, slot_of = list(candidate.moved), list(candidate.slot_of)
        shared = [slot_of[one] for one in shuttled(candidate)]
        if module not in shuttled(candidate):
            if not shared:
                continue
            slot_of[module] = random.choice(shared)
        sharing = (one for one in range(modules) if slot_of[one] == slot_of[module])
        size = max(moved[one] for one in sharing if one != module)
        most = space.choices[module].at_most(size)
        moved[module] = space.choices[module].moved[0] if most is None else most
        candidate = Candidate(tuple(moved), tuple(slot_of), candidate.by_use)
    return candidate if space.fits(candidate) else None
