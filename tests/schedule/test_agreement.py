"""Every named policy on every ring up to 64 x 64, those with longer periods or rules for refills to
24 x 24: ``check``, the machine and the walk agree."""

from __future__ import annotations

import pytest

from schedule import Ring, Schedule, policies
from tests.schedule.compare import difference, machine_difference
from tests.walk import walk

LIMIT = 64
SLICES = 4
"""Each slice takes every fourth N, so that the slices cost about the same."""
NAMES = tuple(policies.NAMED)


def limit_of(policy: policies.Policy) -> int:
    """A period of several passes has up to N * K steps; rules for refills are asked N * K times."""
    return 24 if policy is policies.rotating or policy.refill is not None else LIMIT


def in_machine_sample(ring: Ring) -> bool:
    """All rings up to 24 x 24, and about one in sixty above."""
    small = ring.modules <= 24 and ring.slots <= 24
    return small or (7 * ring.modules + 11 * ring.slots) % 61 == 0


def slice_of_rings(policy: policies.Policy, number: int) -> list[Ring]:
    return [
        Ring(modules, slots)
        for modules in range(1 + number, limit_of(policy) + 1, SLICES)
        for slots in range(policy.least_slots, limit_of(policy) + 1)
    ]


def disagreements(schedule: Schedule) -> list[str]:
    verdict = walk(schedule, periods=3)
    found = difference(schedule, verdict)
    if in_machine_sample(schedule.ring):
        found += machine_difference(schedule, verdict)
    return found


@pytest.mark.parametrize("number", range(SLICES))
@pytest.mark.parametrize("name", NAMES)
def test_check_machine_and_walk_agree(name: str, number: int) -> None:
    policy = policies.NAMED[name]
    rings = slice_of_rings(policy, number)
    limit = limit_of(policy)
    assert len(rings) == limit // SLICES * (limit + 1 - policy.least_slots)
    wrong = {ring: found for ring in rings if (found := disagreements(policy(ring)))}
    assert not wrong


def test_the_machine_sample_reaches_large_rings() -> None:
    rings = [Ring(n, k) for n in range(1, LIMIT + 1) for k in range(1, LIMIT + 1)]
    sample = [ring for ring in rings if in_machine_sample(ring)]
    assert len(sample) == 633
    assert max(ring.modules for ring in sample) == max(ring.slots for ring in sample) == LIMIT
