"""Enumeration of concrete rings: what loops and glue make of the functions that were proved.

The obligations speak of one step. Here the finished tables are compared, ring by ring, with the
definitions: with a search for next users, with a run of the machine, with the local check and
with the verdicts that the claims give.
"""

from __future__ import annotations

from typing import Any

from proofs.obligation import System
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import Policy
from schedule.ring import EMPTY, Ring
from schedule.table import Schedule
from schedule.verifier import IDENTITY, OWNERSHIP, check

BOUND = 12


def disagreement(system: System) -> str | None:
    """The first ring, by N, then K, then policy, at which anything is not as claimed."""
    for modules in range(1, BOUND + 1):
        for slots in range(1, BOUND + 1):
            for policy in system.policy.NAMED.values():
                if slots >= policy.least_slots:
                    ring = Ring(modules, slots)
                    wrong = wrong_at(system, policy, ring)
                    if wrong:
                        return f"N={modules}, K={slots}, {policy.name}: {wrong}"
    return None


def wrong_at(system: System, policy: Policy, ring: Ring) -> str | None:
    """What is not as claimed for this policy at this ring, in words."""
    try:
        schedule = policy(ring)
    except (PolicyError, ScheduleError) as error:
        return str(error)
    findings = check(schedule)
    violated = {violation.property for violation in findings.violations}
    n, k = ring.modules, ring.slots
    expected = policy.name == "modular" and 1 < k < n and n % k != 0
    if bool(violated) != expected:
        return f"{'safe' if not violated else str(findings.violations[0])}"
    executed = set(system.machine.run(schedule, 3))
    if executed != violated & {OWNERSHIP, IDENTITY}:
        return f"a run of the machine violates {executed}, the local check {violated}"
    users = schedule.users()
    if [slot for slot, _ in schedule.preload] != [s for s in range(k) if users[s]]:
        return "the preload does not fill exactly the slots that are used"
    for slot, module in schedule.preload:
        if module != schedule.next_user(users, slot, 0):
            return f"the preload of slot {slot} is not its first user"
    if policy.target is None:
        return _derived(schedule, users, findings.lints) or _distance(policy, schedule, users)
    return None


def _derived(schedule: Schedule, users: Any, lints: Any) -> str | None:
    """Derived refills are exactly the next users, and none is useless."""
    for step, slot in enumerate(schedule.slot_of):
        user = schedule.next_user(users, slot, step + 1)
        expected = () if user in (step, EMPTY) else ((slot, user),)
        if schedule.after[step] != expected:
            return f"the refill after module {step} is {schedule.after[step]}, not {expected}"
    return f"useless refill: {lints[0].sentence}" if lints else None


def _distance(policy: Policy, schedule: Schedule, users: Any) -> str | None:
    """``balanced`` keeps the distance g* = N // ceil(N / K), the largest that a map can."""
    n, k = schedule.ring.modules, schedule.ring.slots
    best = n // -(-n // k)
    for steps in users:
        for step, after in zip(steps, steps[1:] + steps[:1], strict=True):
            distance = (after - step) % n or n
            if policy.name == "balanced" and distance < best:
                return f"distance {distance} between modules {step} and {after}; g* is {best}"
    return None
