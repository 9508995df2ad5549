"""Candidates by construction: those that a planner begins with.

Where copies are what takes longest only bytes count, and fewest move if of every module the same
bytes d move, and the rest stays (``bounds.fewest_bytes``); two slots of d hide the copies, one does
not. Where modules can't be cut, some are kept whole, and the rest passes through few slots; kept
ones that lie far apart hide a copy each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from schedule.arithmetic import balanced_slot, cyclic_slot, rotating_passes
from schedule.ring import Ring
from schedule.space import Candidate, Space, needed, shuttled

MOST_SLOTS = 6
"""Slots that modules pass through. More of them hide longer copies, but keep less."""
MOST_KEPT = 8
"""So many numbers of kept modules are tried, from none to all that fit."""

Order = Callable[[Space], list[int]]
"""The modules, those first that are to be kept first."""


def seeds(space: Space) -> Iterator[Candidate]:
    """Candidates that fit, from several ideas of what is good."""
    for slots in range(1, min(MOST_SLOTS, space.modules) + 1):
        for order in (spread, largest, last, hardest):
            for kept in _kept_sets(space, order(space), slots):
                yield from _shuttled(space, frozenset(kept), slots)


def spread(space: Space) -> list[int]:
    """Such that the first n lie as far apart as they can: by halving the ring again and again."""
    modules = space.modules
    bits = max(1, (modules - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < modules]


def largest(space: Space) -> list[int]:
    """The largest first: slots are then small; of equal ones, spread."""
    return sorted(spread(space), key=lambda module: -space.sizes[module])


def last(space: Space) -> list[int]:
    """Those at the end of the pass: they hide the copies for the next one."""
    return list(reversed(range(space.modules)))


def hardest(space: Space) -> list[int]:
    """Those first whose copy is longest beside what is computed before them."""
    costs = space.costs
    workload = max(costs.workloads, key=lambda one: one.weight)
    idle = [
        costs.link.time(size) - workload.between[module] - workload.compute[module - 1]
        for module, size in enumerate(costs.sizes)
    ]
    return sorted(spread(space), key=lambda module: -idle[module])


def _kept_sets(space: Space, order: Sequence[int], slots: int) -> Iterator[Sequence[int]]:
    """The first modules of this order, as many as fit beside so many slots for the others."""
    sizes = space.sizes
    fitting = []
    for number in range(space.modules):
        rest = order[number:]
        least = min(slots, len(rest)) * max(space.choices[module].moved[0] for module in rest)
        if sum(sizes[module] for module in order[:number]) + least <= space.memory:
            fitting.append(number)
    if len(fitting) > MOST_KEPT:
        end = len(fitting) - 1
        fitting = [fitting[at * end // (MOST_KEPT - 1)] for at in range(MOST_KEPT)]
    yield from (order[:number] for number in fitting)


def _shuttled(space: Space, kept: frozenset[int], slots: int) -> Iterator[Candidate]:
    """These kept whole, the others through so many slots, by several slot maps."""
    others = [module for module in range(space.modules) if module not in kept]
    slots = min(slots, len(others))
    moved = _moved(space, others, slots)
    if moved is None:
        return
    ring = Ring(len(others), slots)
    for slot_map in (cyclic_slot, balanced_slot):
        place = {module: slot_map(at, ring) for at, module in enumerate(others)}
        yield from _both_orders(space, moved, _slots(space.modules, place, slots))
    if not space.captured and len(others) % slots:
        passes = rotating_passes(ring)
        steps: list[int] = []
        for number in range(passes if passes * space.modules <= 2048 else 0):
            place = {m: cyclic_slot(number * len(others) + at, ring) for at, m in enumerate(others)}
            steps += _slots(space.modules, place, slots)
        if steps:
            yield from _both_orders(space, moved, tuple(steps))


def _both_orders(
    space: Space, moved: tuple[int, ...], slot_of: tuple[int, ...]
) -> Iterator[Candidate]:
    found = Candidate(moved, slot_of)
    if space.fits(found):
        found = filled(space, found)
        yield found
        yield Candidate(found.moved, slot_of, by_use=True)


def _slots(modules: int, place: dict[int, int], slots: int) -> tuple[int, ...]:
    """By module its slot: the given one, or one for itself."""
    return tuple(place.get(module, slots + module) for module in range(modules))


def _moved(space: Space, others: Sequence[int], slots: int) -> tuple[int, ...] | None:
    """By module, what moves if these pass through so many slots and the rest is kept: of each at
    most as much as is the least that fits."""
    sizes = space.sizes
    caps = sorted({one for module in others for one in space.choices[module].moved})
    caps = caps[:: max(1, len(caps) // 256)] + caps[-1:]

    def at_most(cap: int) -> tuple[int, ...] | None:
        found = [space.choices[module].at_most(cap) for module in others]
        if None in found:
            return None
        place = dict(zip(others, found, strict=True))
        return tuple(place.get(module) or sizes[module] for module in range(len(sizes)))

    slot_of = _slots(len(sizes), {m: at % slots for at, m in enumerate(others)}, slots)
    for cap in caps:
        moved = at_most(cap)
        if moved is not None and needed(Candidate(moved, slot_of), sizes) <= space.memory:
            return moved
    return None


def filled(space: Space, candidate: Candidate) -> Candidate:
    """The candidate with what memory is left used to keep more parts, the largest that fit."""
    moved = list(candidate.moved)
    left = space.memory - needed(candidate, space.sizes)
    moves = shuttled(candidate)
    for module in spread(space):
        if module not in moves:
            continue
        least = next(one for one in space.choices[module].moved if one >= moved[module] - left)
        if least < moved[module]:
            left -= moved[module] - least
            moved[module] = least
    return Candidate(tuple(moved), candidate.slot_of, candidate.by_use)
