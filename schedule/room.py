"""How many bytes may stay in memory or be copied while modules run, at most: what is left must be
copied when nothing runs.

Let y_j be the bytes of module j that stay from one run of it to its next, on average, Y their sum,
and c_j those that are copied while j runs. The link brings no more in that time than ``caps`` says;
and since j is in memory whole, with what stays of the others, c_j has at most the room
memory - s_j - (Y - y_j). Sought is the largest sum of all y_j and c_j.

With A = memory - Y the room is A - s_j + y_j, so y_j is s_j - A at least. Given A, each byte that
is more than these least ones makes room for another of c_j, until that meets its cap or y_j its
size. By A the sum is concave, since it is a linear program's; it bends only where A is a size, a
cap or the sum of both, and where the bytes that are more come to be too few for the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Sums:
    """For one A. base: bytes that stay, and those copied though no more than the least stay.
    more: bytes that stay beside the least.    room: how many of them make room for a copied one."""

    base: Fraction
    more: Fraction
    room: Fraction

    @property
    def most(self) -> Fraction:
        """The sum of what stays and what is copied meanwhile."""
        return self.base + min(self.more, self.room)


def most_beside(
    sizes: Sequence[int], caps: Sequence[Fraction], memory: int, least: Fraction
) -> Fraction:
    """The largest sum. least: the smallest A, for which as much stays as can."""
    ends = {*map(Fraction, sizes), *caps}
    ends |= {Fraction(size + cap) for size, cap in zip(sizes, caps, strict=True)}
    points = [least, *sorted(one for one in ends if least < one < memory), Fraction(memory)]

    def sums(at: Fraction) -> Sums:
        return _sums(sizes, caps, memory, at)

    low, high = 0, len(points) - 1
    while low < high:  # a concave function's largest value lies where it no longer grows
        middle = (low + high) // 2
        if sums(points[middle + 1]).most > sums(points[middle]).most:
            low = middle + 1
        else:
            high = middle
    near = points[max(0, low - 1) : low + 2]
    found = [sums(point) for point in near]
    crossings = (_crossing(one, other) for one, other in pairwise(found))
    return max(*(one.most for one in found), *crossings)


def _crossing(one: Sums, other: Sums) -> Fraction:
    """Between two points where all is linear: the sum where ``more`` is ``room``, if it is."""
    before, after = one.more - one.room, other.more - other.room
    if before * after >= 0:
        return max(one.most, other.most)
    share = before / (before - after)
    return one.base + one.more + share * (other.base + other.more - one.base - one.more)


def _sums(sizes: Sequence[int], caps: Sequence[Fraction], memory: int, free: Fraction) -> Sums:
    base: Fraction = memory - free
    more, room = base, Fraction(0)
    for size, cap in zip(sizes, caps, strict=True):
        least = max(Fraction(0), size - free)
        copied = min(cap, max(Fraction(0), free - size))
        base += copied
        more -= least
        room += min(size - least, cap - copied)
    return Sums(base, more, room)
