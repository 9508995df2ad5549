"""A policy's rings, in order and by chance: what is wrong at one of them is refuted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

from schedule.arithmetic import every_pass
from schedule.policy import Policy
from schedule.ring import Ring
from schedule.users import bare
from schedule.verifier import Findings, check

SMALL, LARGE = 12, 64
LARGE_TABLES = 24
"""The larger bound where a table has about N * K entries: periods of many passes, and rules that
are asked for every slot at every boundary."""

RANDOM, FUZZ = 40, 4
"""How many random rings, and to how many times the larger bound."""


def large_bound(policy: Policy) -> int:
    one_pass = bare(policy.passes) is every_pass
    return LARGE if policy.refill is None and one_pass else LARGE_TABLES


def rings(policy: Policy, bound: int, done: int) -> Iterator[Ring]:
    """Rings by N, then K, up to the bound, without those up to ``done``."""
    for modules, slots in product(range(1, bound + 1), repeat=2):
        if slots >= policy.least_slots and max(modules, slots) > done:
            yield Ring(modules, slots)


def smallest_violation(policy: Policy, among: Iterator[Ring]) -> Findings | None:
    """The findings at the first of these rings that is violated."""
    return next((f for ring in among if not (f := check(policy(ring))).safe), None)


def random_rings(policy: Policy, large: int) -> tuple[Ring, ...]:
    """Rings beyond the bound, the same ones each time, the smaller first."""
    draw = Random(large)
    sizes = [(draw.randint(large + 1, FUZZ * large), draw.random()) for _ in range(RANDOM)]
    least = policy.least_slots
    found = [Ring(n, max(least, round(n**share))) for n, share in sizes]
    return tuple(sorted(found, key=lambda ring: (ring.modules, ring.slots)))


def shrunk(policy: Policy, findings: Findings, safe: int) -> Findings:
    """The smallest N with the same number of slots, then the smallest K with that N. safe: all
    rings up to that bound are."""
    ring = findings.schedule.ring
    first = 1 if ring.slots > safe else safe + 1
    fewer = (Ring(n, ring.slots) for n in range(first, ring.modules + 1))
    by_modules = smallest_violation(policy, fewer) or findings
    modules = by_modules.schedule.ring.modules
    slots = range(policy.least_slots, ring.slots + 1)
    return smallest_violation(policy, (Ring(modules, k) for k in slots)) or by_modules
