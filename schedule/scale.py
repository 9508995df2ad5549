"""Axes: where a value is on a page, and which values to write beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

SPAN = 8
"""Values that span more are shown on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``low`` at the place ``start`` to ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float | Fraction) -> float:
        """Where a value is, at the nearest edge if outside; with one digit behind the point."""
        low, high, number = self.low, self.high, min(max(float(value), self.low), self.high)
        if self.logarithmic:
            low, high, number = math.log(low), math.log(high), math.log(number)
        share = (number - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int) -> list[float]:
        """At most about so many round values."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in (1, 2, 5), (1, 3), (1,):
                found = [digit * 10.0**power for power in powers for digit in digits]
                found = [one for one in found if self.low <= one <= self.high]
                if len(found) <= most:
                    return found
            return found[:: -(-len(found) // most)]
        step = _round((self.high - self.low) / most)
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, math.floor(self.high / step) + 1)]


def axis(values: Iterable[float | Fraction], start: float, end: float, log: bool = False) -> Axis:
    """An axis on which all of these have their place, and some room. log: where they span much, and
    none is zero."""
    found = [float(value) for value in values]
    low, high = min(found), max(found)
    if log and low > 0 and high > SPAN * low:
        return Axis(low / 1.15, high * 1.15, start, end, True)
    if log:  # from zero, so that lengths can be compared
        return Axis(0.0, high * 1.06 or 1.0, start, end)
    room = (high - low) * 0.04 or abs(high) * 0.04 or 1.0
    return Axis(max(0.0, low - room), high + room, start, end)


def _round(step: float) -> float:
    """The next larger of 1, 2, 5, 10, 20 and so on."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * 0.999)


def spread(places: Iterable[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the same order, at least so far apart, as near to where they were as it goes; all
    between low and high while they have room there. Ascending places are needed."""
    found: list[float] = []
    for place in places:
        found.append(max(place, low if not found else found[-1] + gap))
    for at in range(len(found) - 1, -1, -1):
        limit = high if at == len(found) - 1 else found[at + 1] - gap
        found[at] = min(found[at], limit)
    return found
