"""How long it takes to check schedules and their programs, ring by ring."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from schedule import Ring, check, policies
from schedule.order import order
from schedule.program import lower

LOCAL_POLICY = "balanced"


@dataclass(frozen=True, slots=True)
class Line:
    """what: in words.   rings, operations: how many were checked; a ring counts once a policy.
    violated: of these rings.   seconds: by the clock, with that many processes."""

    what: str
    rings: int
    operations: int
    violated: int
    seconds: float
    processes: int

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.rings:,} rings, {self.operations:,} operations, "
            f"{self.violated:,} violated, {self.seconds:.1f} s on {self.processes} processes, "
            f"{self.rings / self.seconds:,.0f} rings a second"
        )

    def json(self) -> dict[str, Any]:
        return asdict(self)


def lines(modules: int, local: int) -> Iterable[Line]:
    """Ordering and identity of every policy's program on all rings up to ``modules``; the local
    check of one policy's schedules on all rings up to ``local``."""
    rows = [(name, n, modules) for n in range(modules, 0, -1) for name in policies.NAMED]
    yield _measure(f"ordering and identity, every policy, all rings to {modules}x{modules}", rows)
    rows = [(LOCAL_POLICY, n, local) for n in range(local, 0, -1)]
    what = f"building and local check of {LOCAL_POLICY}, all rings to {local}x{local}"
    yield _measure(what, rows, check_row)


Row = tuple[str, int, int]
Count = tuple[int, int, int]


def order_row(row: Row) -> Count:
    """Rings, operations and violated ones of a policy's programs with N modules."""
    name, modules, most = row
    policy, rings, operations, violated = policies.NAMED[name], 0, 0, 0
    for slots in range(policy.least_slots, most + 1):
        listing = lower(policy(Ring(modules, slots))).listing(2)
        rings, operations = rings + 1, operations + len(listing)
        violated += not order(listing).safe
    return rings, operations, violated


def check_row(row: Row) -> Count:
    """The same for the local check; its operations are the schedule's runs and refills."""
    name, modules, most = row
    policy, rings, operations, violated = policies.NAMED[name], 0, 0, 0
    for slots in range(policy.least_slots, most + 1):
        schedule = policy(Ring(modules, slots))
        rings, operations = rings + 1, operations + len(schedule.slot_of) + schedule.copies
        violated += not check(schedule).safe
    return rings, operations, violated


def _measure(what: str, rows: list[Row], count: Callable[[Row], Count] = order_row) -> Line:
    processes = os.cpu_count() or 1
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(count, rows[-1:] * processes))  # the processes are up by then
        start = time.perf_counter()
        counts = list(pool.map(count, rows))
        seconds = time.perf_counter() - start
    rings, operations, violated = (sum(column) for column in zip(*counts, strict=True))
    return Line(what, rings, operations, violated, seconds, processes)
