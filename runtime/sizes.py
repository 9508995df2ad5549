"""Sizes in bytes, as people write them: ``"16GiB"``, ``"20 GB"``, or a whole number."""

from __future__ import annotations

import re
from fractions import Fraction
from operator import index
from typing import SupportsIndex

from schedule.errors import OffloadError

UNITS = {"B": 1} | {
    f"{prefix}{kind}": base**power
    for kind, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}
"""Bytes by unit: GB is 10**9, GiB is 2**30. Read in any case, since "gib" can mean nothing else."""

_BY_LOWER = {unit.lower(): size for unit, size in UNITS.items()}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def bytes_of(value: SupportsIndex | str, name: str) -> int:
    """A size in bytes, >= 0; parts of a byte are dropped. OffloadError says what is wrong with
    the argument of that name."""
    if isinstance(value, str):
        return _of_text(value, name)
    size = whole(value)
    if size is None:
        raise OffloadError(
            f"{name} must be a size in whole bytes or text like '16GiB', got {value!r}"
        )
    if size < 0:
        raise OffloadError(f"{name} is {size} bytes; a size can't be negative")
    return size


def _of_text(text: str, name: str) -> int:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise OffloadError(f"{name}={text!r} is no size; write a number and a unit, like '16GiB'")
    number, unit = found.groups()
    if unit and unit.lower() not in _BY_LOWER:
        raise OffloadError(
            f"{name}={text!r} has the unknown unit {unit!r}; the units are {', '.join(UNITS)}"
        )
    return int(Fraction(number) * _BY_LOWER[unit.lower() or "b"])


def whole(value: object) -> int | None:
    """A whole number of any type, numpy's too, as an int; None for anything else, and for bools,
    which are no numbers."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "torch.bool":
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


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
