"""Sizes in bytes, as people write them: ``"16GiB"``, ``"20 GB"``, or a whole number."""

from __future__ import annotations

import re
from fractions import Fraction
from operator import index
from typing import SupportsIndex

from schedule.errors import CostsError

UNITS = {"B": 1} | {
    f"{prefix}{kind}": base**power
    for kind, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}
"""Bytes by unit: GB is 10**9, GiB is 2**30. Read in any case, since "gib" can mean nothing else."""

_BY_LOWER = {unit.lower(): size for unit, size in UNITS.items()}
_TEXT = re.compile(r"\s*(\d{1,400}(?:\.\d{1,400})?)\s*([A-Za-z]*)\s*", re.ASCII)


def bytes_of(value: SupportsIndex | str, name: str, error: type[ValueError] = CostsError) -> int:
    """A size in bytes, >= 0; parts of a byte are dropped. The error says what is wrong with the
    argument of that name."""
    if isinstance(value, str):
        return _of_text(value, name, error)
    size = whole(value)
    if size is None:
        raise error(f"{name} must be a size in whole bytes or text like '16GiB', got {value!r}")
    if size < 0:
        raise error(f"{name} is {size} bytes; a size can't be negative")
    return size


def _of_text(text: str, name: str, error: type[ValueError]) -> int:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise error(f"{name}={text!r} is no size; write a number and a unit, like '16GiB'")
    number, unit = found.groups()
    if unit and unit.lower() not in _BY_LOWER:
        raise error(
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
