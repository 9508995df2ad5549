"""How much host memory there is, as the system and the process's control group say; and what was
freed goes back to the system.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from schedule.errors import OffloadError

ROOT = Path("/")
WORTH = 1 << 20
"""Bytes; giving back less than this costs more than it brings."""


def require(size: int, purpose: str) -> None:
    """OffloadError if so many bytes are not available; nothing where that can't be found out."""
    there = available()
    if there is not None and size > there:
        raise OffloadError(
            f"{size} bytes are needed: {purpose}; {there} are available, so {size - there} bytes "
            f"are missing. Free memory, raise the container's limit, or load the model in a "
            f"smaller dtype"
        )


def return_freed(size: int) -> None:
    """So many bytes were just freed: let the system have them. The C library of Linux keeps what
    it took from its heap, tensors of up to 32 MiB among them, for requests that fit in the holes;
    a block that is a little larger than the tensors it replaces does not."""
    if size >= WORTH:
        _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    with suppress(AttributeError, OSError, TypeError):  # other systems, other C libraries
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    return lambda _: None


def available(root: Path = ROOT) -> int | None:
    """Bytes of memory that can be had without swapping; None if nothing says.

    root: the folder in which ``proc`` and ``sys`` lie.
    """
    limits = [*_system(root), *_groups(root)]
    return max(0, min(limits)) if limits else None


def _system(root: Path) -> Iterator[int]:
    found = _table(root / "proc/meminfo").get("MemAvailable:")
    if found is not None:
        yield found * 1024
        return
    try:  # free pages alone: less than can be had, but better than nothing
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return


def _groups(root: Path) -> Iterator[int]:
    """What is left in each control group that this process is in, of either version."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, files = "", "memory.max", "memory.current", ""
        elif "memory" in controllers.split(","):
            mount, files = "memory", "total_"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        top = root / "sys/fs/cgroup" / mount
        group = top / path.lstrip("/")
        # A limit of any group above holds too. Inside a container the path may be the host's,
        # and only the top is there.
        while True:
            most, used = _number(group / limit), _number(group / usage)
            if most is not None and used is not None:
                stat = _table(group / "memory.stat")
                cache = (stat.get(f"{files}{kind}_file", 0) for kind in ("active", "inactive"))
                yield most - used + sum(cache)  # cached files make way
            if group == top or top not in group.parents:
                break
            group = group.parent


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None  # "max" is no limit


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
