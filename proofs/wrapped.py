"""Does a policy behave on wrapped numbers as on ints? One that does not must not be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from proofs.enumeration import SMALL, rings
from proofs.follow import LooksBehind, followed
from proofs.sizes import any_step, every_step, in_range, passes_in_range, target_in_range
from proofs.slotfile import SymbolicRing
from proofs.symbolic import NotFollowed, Run, explore, integers
from schedule.arithmetic import every_pass, rotating_passes
from schedule.budget import OutOfBudget
from schedule.policy import NAMED, Policy
from schedule.ring import Ring
from schedule.users import bare, guarded

BEHIND = "refused, since it looks at more than numbers: "
NOT_FOLLOWED = "not followed: "
ENUMERATED = "a rule for refills is enumerated, not yet followed"


def differs(policy: Policy) -> str:
    """Why the policy must not be taken for followed, or an empty text."""
    if policy.refill is not None:
        return "" if policy is NAMED.get(policy.name) else ENUMERATED
    try:
        return differs_when_wrapped(policy) or differs_on_a_path(policy)
    except LooksBehind as error:
        return f"{BEHIND}{error}"
    except (NotFollowed, OutOfBudget) as error:
        return f"{NOT_FOLLOWED}{error}"
    except Exception as error:
        return str(error)


def differs_when_wrapped(policy: Policy) -> str:
    """How the policy tells wrapped numbers from ints, or an empty text. A policy that looks at
    types, or at anything else than the numbers' values, must not be followed. Compared are all
    rings to 12x12."""
    for ring in rings(policy, SMALL, 0):
        for index in range(policy.steps(ring)):
            different = _differs_at(policy, index, ring.slots, ring.modules)
            if different:
                return different
    return ""


def differs_on_a_path(policy: Policy) -> str:
    """The same, at one point of every path; NotFollowed if a path can't be followed."""
    bodies = [in_range(followed(policy.slot_of), policy.least_slots, steps_of(policy))]
    if own_period(policy):
        bodies.append(passes_in_range(followed(policy.passes), policy.least_slots))
    if policy.target is not None:
        bodies.append(target_in_range(followed(policy.target), enough(policy)))
    for body in bodies:
        for path in explore(body):
            point = integers(path.conditions, ("i", "K", "N"))
            different = _differs_at(policy, *point) if point else ""
            if different:
                return different
    return ""


def _differs_at(policy: Policy, index: int, slots: int, modules: int) -> str:
    call = f"(index={index}, slots={slots}, modules={modules})"
    for function, arguments in _calls(policy, index, slots, modules):
        run = Run()
        try:
            wrapped = followed(function)(*arguments(run.number))
        except LooksBehind as error:
            return f"{BEHIND}{error}"
        except (NotFollowed, OutOfBudget) as error:
            return f"{NOT_FOLLOWED}{error}"
        except Exception as error:
            return f"on wrapped numbers {error} at {call}"
        plain = guarded(function, policy.name)(*arguments(int))
        if (wrapped is None) != (plain is None) or not bool(wrapped == plain):
            return f"it behaves differently on wrapped numbers than on ints at {call}"
    return ""


def _calls(
    policy: Policy, index: int, slots: int, modules: int
) -> Iterator[tuple[Callable[..., Any], Callable[[Callable[[int], Any]], tuple[Any, ...]]]]:
    """The policy's bare functions, and their arguments as a given kind of number."""

    def of_slot(number: Callable[[int], Any]) -> tuple[Any, ...]:
        kind: Any = Ring if number is int else SymbolicRing
        return number(index), kind(number(modules), number(slots))

    def of_goal(number: Callable[[int], Any]) -> tuple[Any, ...]:
        return number(index), number(slots), number(modules)

    def of_ring(number: Callable[[int], Any]) -> tuple[Any, ...]:
        return of_slot(number)[1:]

    yield bare(policy.slot_of), of_slot
    if own_period(policy):
        yield bare(policy.passes), of_ring
    if policy.target is not None:
        yield bare(policy.target), of_goal


def enough(policy: Policy) -> Callable[[Run, Any], Any]:
    """The rings that the policy is for."""
    return lambda _, ring: ring.slots >= policy.least_slots


def own_period(policy: Policy) -> bool:
    """Whether the period is by a function that must be followed: of the named ones, ``gcd`` can't
    be, and K // g is at least 1 since g divides K."""
    passes = bare(policy.passes)
    return passes is not every_pass and passes is not rotating_passes


def steps_of(policy: Policy) -> Callable[[Run, Any], Any]:
    """The steps for which the slot map is asked; in a longer period, those of every pass."""
    return any_step if bare(policy.passes) is every_pass else every_step
