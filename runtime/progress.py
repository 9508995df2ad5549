"""A bar for whoever watches while gigabytes of host memory are filled and locked."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TextIO, TypeVar

T = TypeVar("T")
CELLS = 30


def with_bar(
    items: Sequence[T],
    sizes: Sequence[int],
    what: str,
    *,
    least: int = 1 << 30,
    stream: TextIO | None = None,
) -> Iterator[T]:
    """The items, one by one. sizes: the bytes of each.

    If that is ``least`` or more in all and the stream, by default standard error, is a terminal,
    a bar on it shows how far it got, and is wiped away at the end. Else nothing is written.
    """
    stream, total, done = stream or sys.stderr, sum(sizes), 0
    if total < least or stream is None or not stream.isatty():
        yield from items
        return
    line = ""
    try:
        for item, size in zip(items, sizes, strict=True):
            bar = "#" * (CELLS * done // total)
            line = f"{what} [{bar:<{CELLS}}] {done / 1e9:.1f} of {total / 1e9:.1f} GB"
            stream.write(f"\r{line}")
            stream.flush()
            yield item
            done += size
    finally:
        stream.write(f"\r{' ' * len(line)}\r")
        stream.flush()
