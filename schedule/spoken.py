"""Sizes, times and lists of modules, as people say them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

MOST_NAMES = 5
"""More are counted, not listed."""


def size(number: float | Fraction) -> str:
    """So many bytes."""
    value = float(number)
    for unit, name in (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"):
        if value >= 0.9995 * unit:
            whole = number % unit == 0
            return f"{int(number // unit) if whole else digits(value / unit)} {name}"
    return f"{value:.0f} bytes"


def milliseconds(nanoseconds: float | Fraction) -> str:
    """A time."""
    return f"{digits(float(nanoseconds) / 1e6)} ms"


def digits(value: float) -> str:
    """With at least three digits that say something."""
    if value >= 99.95:
        return f"{value:,.1f}" if value < 9999.5 else f"{value:,.0f}"
    return f"{value:.2f}" if value >= 9.995 or not value else f"{value:.3f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def listed(names: Sequence[str], numbers: Iterable[int]) -> str:
    """The names with these numbers, ascending; those that follow each other as "a to b"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [_run(names, run) for run in runs[:MOST_NAMES]]
    more = sum(map(len, runs[MOST_NAMES:]))
    return ", ".join(words) + (f" and {more} more" if more else "")


def _run(names: Sequence[str], run: Sequence[int]) -> str:
    first, last = names[run[0]], names[run[-1]]
    if len(run) == 1:
        return first
    return f"{first} to {last}" if len(run) > 2 else f"{first}, {last}"


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Rows as lines of columns: these to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
