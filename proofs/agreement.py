"""Enumeration of concrete rings: what loops and glue make of the functions that were proved.

The obligations speak of one step. Here the finished tables are compared, ring by ring, with the
definitions: with a search for next users, with a run of the machine, with the local check and
with the verdicts that the claims give.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proofs.cases import rings_of
from proofs.obligation import System
from proofs.search import Search
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import Policy
from schedule.properties import CLOSURE, IDENTITY, OWNERSHIP
from schedule.ring import EMPTY, Ring
from schedule.table import RUN, Schedule

BOUND = 12


def disagreement(system: System, modules: int) -> Search:
    """Claim 10, of rings of so many modules: the first, by K, then policy, at which anything is
    not as claimed. Before the first ring, what should be refused and is not; behind the last one,
    what is not closed and is not found to be so."""
    found = _refusals(system) if modules == 1 else None
    looked_at = 0
    for policy, ring in rings_of(system.policy.NAMED.values(), modules, BOUND):
        if found:
            break
        looked_at += 1
        wrong = wrong_at(system, policy, ring)
        found = f"N={modules}, K={ring.slots}, {policy.name}: {wrong}" if wrong else None
    if not found and modules == BOUND:
        found = _closure(system)
    return Search(looked_at, found)


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
    if policy.refill is not None:
        return _refilled(schedule)
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
        expected = () if user in (step % schedule.ring.modules, EMPTY) else ((slot, user),)
        if schedule.after[step] != expected:
            return f"the refill after step {step} is {schedule.after[step]}, not {expected}"
    return f"useless refill: {lints[0].sentence}" if lints else None


def _distance(policy: Policy, schedule: Schedule, users: Any) -> str | None:
    """``balanced`` keeps the distance g* = N // ceil(N / K), the largest that a map of one pass
    can; ``rotating`` has distance K everywhere, across the ends of passes and period too."""
    n, k, period = schedule.ring.modules, schedule.ring.slots, len(schedule.slot_of)
    least = {"balanced": n // -(-n // k), "rotating": k}.get(policy.name, 1)
    most = k if policy.name == "rotating" else period
    for steps in users:
        for step, after in zip(steps, steps[1:] + steps[:1], strict=True):
            distance = (after - step) % period or period
            if not least <= distance <= most:
                return f"distance {distance} from step {step} to {after}, not {least} to {most}"
    return None


def _copies(system: System, policy: Policy, schedule: Schedule) -> str | None:
    """Copies a pass: as each policy's rule says, and none where every module has its slot."""
    n, k = schedule.ring.modules, schedule.ring.slots
    if policy.name == "rotating":
        expected = len(schedule.slot_of) if k % n else 0
        return f"{schedule.copies} copies, not {expected}" if schedule.copies != expected else None
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


def _refilled(schedule: Schedule) -> str | None:
    """The named rules for refills preload nothing, and copy each module once a pass."""
    modules = [moment.module for moment in schedule.walk(1) if moment.half != RUN]
    if schedule.preload or sorted(modules) != list(range(schedule.ring.modules)):
        return f"preload {schedule.preload}, then copies of modules {modules}"
    return None


def _closure(system: System) -> str | None:
    """Without its preload a schedule is not closed, and neither is one without its last refills;
    nor one without the refills before its first run, if it preloads nothing."""
    for modules, slots in ((1, 1), (3, 1), (3, 2), (5, 2)):
        schedule = system.policy.chain(Ring(modules, slots))
        cut = replace(schedule, after=(*schedule.after[: modules - slots], *((),) * slots))
        faulty = [replace(schedule, preload=())] + [cut] * (modules > slots)
        turning = system.policy.rotating(Ring(modules, slots))
        faulty.append(replace(turning, preload=()))
        if turning.copies:
            faulty.append(replace(turning, after=(*turning.after[:-slots], *((),) * slots)))
        for policy in system.policy.NAMED.values():
            if policy.refill is not None and slots >= policy.least_slots:
                one = policy(Ring(modules, slots))
                before = ((), *one.before[1:])
                faulty.append(replace(one, enter=((),) * one.period, before=before))
        for one in faulty:
            found = {violation.property for violation in system.verifier.check(one).violations}
            if CLOSURE not in found:
                at = f"N={modules}, K={slots}, {one.policy}"
                return f"{at} cut short: closure is not violated"
    return None


def _refusals(system: System) -> str | None:
    """What is no module, slot or number of passes is refused: the first one past the ring, and
    other types."""
    policy, ring = system.policy, Ring(3, 2)
    odd: list[tuple[str, Any, Any]] = [
        (f"the target {result!r}", policy.from_target, (lambda *_, result=result: result, ring))
        for result in (3, -1, True, 1.0, "1")
    ]
    odd += [
        (f"the slot {result!r}", policy.Policy("odd", lambda *_, result=result: result), (ring,))
        for result in (2, -1, True, 1.0, None)
    ]
    odd += [
        (
            f"the refill {result!r}",
            policy.Policy("odd", lambda *_: 0, refill=lambda *_, result=result: result),
            (ring,),
        )
        for result in (3, -1, True, 1.0, "1")
    ]
    odd += [
        (
            f"the period {result!r}",
            policy.Policy("odd", lambda *_: 0, passes=lambda _, result=result: result),
            (ring,),
        )
        for result in (0, -1, True, 1.0, None, 1_000_000)
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
