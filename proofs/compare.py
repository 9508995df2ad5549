"""The engines on every ring to a bound, with every lowering and every fault: a long comparison.

Claims 9 and 11 look at the same programs, as far as there is time in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from proofs.cases import Bounds, programs
from proofs.engines import compare
from proofs.obligation import System
from schedule.ring import Ring

STATES = 10_000
SOLVER = 3
"""The solver is asked about rings to 3x3: its questions grow fastest."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One ring's programs. wholly: of how many every interleaving was visited; of the others
    ten thousand states.   found: how the engines differ, in words, or None."""

    ring: Ring
    programs: int
    wholly: int
    found: str | None

    def __str__(self) -> str:
        n, k = self.ring.modules, self.ring.slots
        return self.found or f"N={n}, K={k}: {self.programs:,} programs, {self.wholly:,} wholly"


def at(ring: Ring, bounds: Bounds, system: System) -> Compared:
    """Every named policy's programs of one ring, up to the first on which the engines differ."""
    seen: set[Any] = set()
    count = wholly = 0
    for policy in system.policy.NAMED.values():
        if ring.slots >= policy.least_slots:
            for program, solver in programs(system, policy, ring, bounds, seen):
                found, complete = compare(system, program, solver, STATES)
                count, wholly = count + 1, wholly + complete
                if found:
                    return Compared(ring, count, wholly, found)
    return Compared(ring, count, wholly, None)


def compare_all(bound: int, processes: int) -> Iterator[Compared]:
    """Ring by ring, as that many processes decide them."""
    bounds = Bounds(bound, bound, bound, bound, min(bound, SOLVER))
    rings = [Ring(n, k) for n in range(1, bound + 1) for k in range(1, bound + 1)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        # The largest take longest: begun first, none of them is left alone at the end.
        started = [pool.submit(_at, ring, bounds) for ring in reversed(rings)]
        try:
            yield from (future.result() for future in as_completed(started))
        finally:
            for future in started:
                future.cancel()


def _at(ring: Ring, bounds: Bounds) -> Compared:
    return at(ring, bounds, System())
