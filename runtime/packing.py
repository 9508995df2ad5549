"""Tensors packed into slabs of exact powers of two, for a page-locking allocator that rounds each
request up to one: asked for a slab it locks just what it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

SLACK = 20
"""At most one byte in so many is locked beyond the weights: 1.05 times in all."""
REACH = 512
"""How many of the next tensors are looked at to fill a slab: its tensors lie near each other in
execution order, and a model of ten thousand tensors is packed in a second or two."""


@dataclass(frozen=True, slots=True)
class Slab:
    """size: in bytes, a power of two. used: the bytes of its tensors. pieces: their indices, in
    the order in which they lie, one behind the other from the slab's start."""

    size: int
    used: int
    pieces: tuple[int, ...]


def pack(sizes: Sequence[int]) -> tuple[Slab, ...]:
    """Every tensor of so many bytes in one slab, whole; those of no bytes in none.

    Each slab begins with the first tensor that is left, and takes of the next ones, in order,
    what still fits. It is the smallest slab that this fills well enough; if there is none, the
    one that it fills best.
    """
    left = dict.fromkeys(index for index, size in enumerate(sizes) if size > 0)
    least = min((sizes[index] for index in left), default=0)
    slabs = []
    while left:
        near = list(islice(left, REACH))
        total, size = sum(sizes[index] for index in near), _power(sizes[near[0]])
        best = tried = _fill(size, near, sizes, least)
        while not _is_full(tried) and tried.used < total:
            size *= 2
            tried = _fill(size, near, sizes, least)
            if tried.used * best.size > best.used * tried.size:
                best = tried
        slabs.append(best)
        for index in best.pieces:
            del left[index]
    return tuple(slabs)


def _power(size: int) -> int:
    """The smallest power of two that is not below the size."""
    return 1 << (size - 1).bit_length()


def _is_full(slab: Slab) -> bool:
    return (slab.size - slab.used) * SLACK <= slab.used


def _fill(size: int, near: Iterable[int], sizes: Sequence[int], least: int) -> Slab:
    pieces, free = [], size
    for index in near:
        if sizes[index] <= free:
            pieces.append(index)
            free -= sizes[index]
            if free < least:
                break
    return Slab(size, size - free, tuple(pieces))


def affordable(
    slabs: Sequence[Slab], weights: Sequence[int], pages: int, limit: int
) -> frozenset[int]:
    """The slabs, by index, that may be locked, those filled best first: together at most ``limit``
    bytes, and at most 1.05 times the weights in them (given by tensor) and ``pages`` bytes."""
    of = [sum(weights[piece] for piece in slab.pieces) for slab in slabs]
    locked = inside = 0
    chosen = []
    for index in sorted(range(len(slabs)), key=lambda i: slabs[i].size / max(of[i], 1)):
        size = locked + slabs[index].size
        excess = size - inside - of[index] - pages
        if size <= limit and excess * SLACK <= inside + of[index]:
            chosen.append(index)
            locked, inside = size, inside + of[index]
    return frozenset(chosen)
