"""Enumeration of concrete rings: what loops and glue make of the functions that were proved.

The obligations speak of one step. Here the finished tables are compared, ring by ring, with the
definitions: with a search for next users, with a run of the machine, with the local check and
with the verdicts that the claims give.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proofs.obligation import System
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import Policy
from schedule.ring import EMPTY, Ring
from schedule.table import Schedule
from schedule.verifier import CLOSURE, IDENTITY, OWNERSHIP

BOUND = 12


def disagreement(system: System) -> str | None:
    """The first ring, by N, then K, then policy, at which anything is not as claimed."""
    return _tables(system) or _closure(system) or _refusals(system)


def _tables(system: System) -> str | None:
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
    findings = system.verifier.check(schedule)
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
        derived = _derived(schedule, users, findings.lints)
        return derived or _distance(policy, schedule, users) or _copies(system, policy, schedule)
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


def _copies(system: System, policy: Policy, schedule: Schedule) -> str | None:
    """Copies a pass: as each policy's rule says, and none where every module has its slot."""
    n, k = schedule.ring.modules, schedule.ring.slots
    shared = {
        "double_buffer": n - k + 2 if k <= n - 2 else n - k + 1,
        "single_buffer": n - k + 1 if n - k else 0,
    }
    most = 0 if k >= n else shared.get(policy.name, system.policy.chain(schedule.ring).copies)
    exact = k >= n or policy.name in shared
    if schedule.copies > most or (exact and schedule.copies != most):
        return f"{schedule.copies} copies a pass, {'not' if exact else 'more than'} {most}"
    default = "double_buffer" if k >= 2 else "single_buffer"
    if system.policy.default(k).name != default:
        return f"the default is {system.policy.default(k).name}, not {default}"
    return None


def _closure(system: System) -> str | None:
    """Without its preload a schedule is not closed, and neither is one without its last refills."""
    for modules, slots in ((1, 1), (3, 1), (3, 2), (5, 2)):
        schedule = system.policy.chain(Ring(modules, slots))
        cut = replace(schedule, after=(*schedule.after[: modules - slots], *((),) * slots))
        faulty = [replace(schedule, preload=())] + [cut] * (modules > slots)
        for one in faulty:
            found = {violation.property for violation in system.verifier.check(one).violations}
            if CLOSURE not in found:
                return f"N={modules}, K={slots}, chain cut short: closure is not violated"
    return None


def _refusals(system: System) -> str | None:
    """What is no target or no slot is refused: the first one past the ring, and other types."""
    policy, ring = system.policy, Ring(3, 2)
    odd: list[tuple[str, Any, Any]] = [
        (f"the target {result!r}", policy.from_target, (lambda *_, result=result: result, ring))
        for result in (3, -1, True, 1.0, "1")
    ]
    odd += [
        (f"the slot {result!r}", policy.Policy("odd", lambda *_, result=result: result), (ring,))
        for result in (2, -1, True, 1.0, None)
    ]
    odd += [(f"the policy {thing!r}", policy.of_target, (thing,)) for thing in (3, int, None)]
    for what, function, arguments in odd:
        try:
            function(*arguments)
        except PolicyError:
            continue
        except Exception as error:
            return f"{what} is not refused but raises {type(error).__name__}"
        return f"{what} is not refused"
    return None
