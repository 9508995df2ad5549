"""Sizes for people: given as text (read by ``schedule.sizes``), and said."""

from __future__ import annotations

from typing import SupportsIndex

from schedule import sizes
from schedule.errors import OffloadError


def bytes_of(value: SupportsIndex | str, name: str) -> int:
    """A size in bytes, >= 0; parts of a byte are dropped. OffloadError says what is wrong with
    the argument of that name."""
    return sizes.bytes_of(value, name, OffloadError)


def megabytes(size: float) -> str:
    """A size for people: in MB of 10**6 bytes; what is less than 0.1 MB, in KB of 10**3 bytes, or
    in bytes."""
    if not size or size >= 1e5:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} KB" if size >= 100 else f"{size:g} B"


def counted(number: int, word: str, plural: str = "") -> str:
    """So many of them: "1 miss", "2 misses"."""
    return f"{number} {word if number == 1 else plural or word + 's'}"


def misses_in(misses: int, runs: int) -> str:
    """How often modules were not resident, of so many runs."""
    return f"{counted(misses, 'miss', 'misses')} in {counted(runs, 'run')}"
