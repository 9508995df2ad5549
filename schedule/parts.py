"""A module kept in part: which of its parts stay on the device, so that fewer bytes move."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from schedule.costs import Module

MOST = 256
"""Of a module with many parts so many choices are looked at, evenly spread."""


Kept: TypeAlias = "tuple[int, Kept] | None"
"""The last of the parts that stay, and those before it: sums share what they have in common."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What can move of a module, ascending; the last is all of it. kept: for each, the numbers of
    the parts that then stay. complete: whether these are all that there are."""

    moved: tuple[int, ...]
    kept: tuple[frozenset[int], ...]
    complete: bool = True

    def at_most(self, size: int) -> int | None:
        """The most that can move without being more than this; None if even the least is."""
        at = bisect_right(self.moved, size)
        return self.moved[at - 1] if at else None

    def parts(self, moved: int) -> frozenset[int]:
        """Which parts stay if so much moves."""
        return self.kept[self.moved.index(moved)]


def choices(module: Module, parts: bool) -> Choices:
    """Every sum of parts that may move, or many of them; without parts, all or nothing."""
    if not parts:
        return Choices((module.size,), (frozenset(),))
    return _choices(module.fixed, tuple(part.size for part in module.parts))


@lru_cache(maxsize=1024)
def _choices(fixed: int, sizes: tuple[int, ...]) -> Choices:
    """By bytes that move, the parts that stay: of those of one sum, the first found."""
    found: dict[int, Kept] = {fixed + sum(sizes): None}
    complete = True
    for part in sorted(range(len(sizes)), key=lambda one: -sizes[one]):
        if sizes[part] == 0:
            continue
        for moved, kept in list(found.items()):
            found.setdefault(moved - sizes[part], (part, kept))
        if len(found) > 2 * MOST:
            complete = False
            found = {moved: found[moved] for moved in _spread(sorted(found))}
    # All of it kept is the module kept, which needs no copy at all.
    some = [moved for moved in sorted(found) if moved]
    all_moved = tuple(_spread(some))
    complete = complete and len(all_moved) == len(some)
    return Choices(all_moved, tuple(_numbers(found[one]) for one in all_moved), complete)


def _numbers(kept: Kept) -> frozenset[int]:
    found = []
    while kept is not None:
        part, kept = kept
        found.append(part)
    return frozenset(found)


def _spread(values: Sequence[int]) -> list[int]:
    """So many of them, the first and the last among them."""
    if len(values) <= MOST:
        return list(values)
    last = len(values) - 1
    return [values[round(at * last / (MOST - 1))] for at in range(MOST)]
