"""Does a policy behave on wrapped numbers as on ints? One that does not must not be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from proofs.brought import refill_in_range
from proofs.enumeration import SMALL, rings
from proofs.follow import LooksBehind, Way, aliased, followed
from proofs.purity import boundaries
from proofs.sizes import any_step, every_step, in_range, passes_in_range, target_in_range
from proofs.slotfile import SymbolicRing, with_slots
from proofs.symbolic import NotFollowed, Run, explore, integers
from schedule.arithmetic import every_pass, rotating_passes
from schedule.budget import OutOfBudget
from schedule.policy import Policy
from schedule.ring import Ring
from schedule.table import Boundary
from schedule.users import bare

BEHIND = "refused, since it looks at more than numbers: "
NOT_FOLLOWED = "not followed: "
Wrap = Callable[[int], Any]
Call = tuple[Callable[..., Any], Callable[[Wrap, Wrap], tuple[Any, ...]]]
"""A function of the policy; and its arguments, given how numbers and how K are wrapped."""


def differs(policy: Policy, slots: int | None = None) -> str:
    """Why the policy must not be taken for followed, or an empty text. slots: K, where K is an
    int for the policy, and only the other numbers are wrapped."""
    if policy.refill is not None and bare(policy.passes) is not every_pass:
        return f"{NOT_FOLLOWED}a rule for refills over several passes is only enumerated"
    try:
        for function in (policy.slot_of, policy.target, policy.refill, policy.passes):
            why = "" if function is None else aliased(bare(function))
            if why:
                return f"{BEHIND}{why}"
        return differs_when_wrapped(policy, slots) or differs_on_a_path(policy, slots)
    except LooksBehind as error:
        return f"{BEHIND}{error}"
    except (NotFollowed, OutOfBudget) as error:
        return f"{NOT_FOLLOWED}{error}"
    except Exception as error:
        return str(error)


def differs_when_wrapped(policy: Policy, slots: int | None = None) -> str:
    """How the policy tells wrapped numbers from ints, or an empty text. A policy that looks at
    types, or at anything else than the numbers' values, must not be followed. Compared are all
    rings to 12x12; if K is given, those with so many slots."""
    for ring in rings(policy, SMALL, 0):
        if slots in (None, ring.slots):
            for index in range(policy.steps(ring)):
                for slot in range(ring.slots if policy.refill is not None else 1):
                    point = (index, slot, ring.slots, ring.modules)
                    different = _differs_at(policy, point, slots)
                    if different:
                        return different
    return ""


def differs_on_a_path(policy: Policy, slots: int | None = None) -> str:
    """The same, at one point of every path; NotFollowed if a path can't be followed."""
    bodies = [in_range(followed(policy.slot_of), policy.least_slots, steps_of(policy))]
    if own_period(policy):
        bodies.append(passes_in_range(followed(policy.passes), policy.least_slots))
    if policy.target is not None:
        bodies.append(target_in_range(followed(policy.target), enough(policy)))
    if policy.refill is not None:
        bodies.append(refill_in_range(followed(policy.refill), policy.least_slots))
    for body in bodies:
        for path in explore(with_slots(body, slots)):
            point = integers(path.conditions, ("i", "s", "K", "N"))
            if point is not None:
                index, slot, free, modules = point
                known = free if slots is None else slots
                different = _differs_at(policy, (index, slot, known, modules), slots)
                if different:
                    return different
    return ""


def _differs_at(policy: Policy, point: tuple[int, int, int, int], slots: int | None) -> str:
    """At one step, slot, K and N."""
    index, _, many, modules = point
    call = f"(index={index}, slots={many}, modules={modules})"
    run = Run()
    wrapped_way: Way = []
    plain_way: Way = []
    for function, arguments in _calls(policy, *point):
        try:
            given = arguments(run.number, run.number if slots is None else int)
            wrapped = followed(function, wrapped_way)(*given)
        except LooksBehind as error:
            return f"{BEHIND}{error}"
        except (NotFollowed, OutOfBudget) as error:
            return f"{NOT_FOLLOWED}{error}"
        except Exception as error:
            return f"on wrapped numbers {error} at {call}"
        plain = followed(function, plain_way)(*arguments(int, int))
        same = (wrapped is None) == (plain is None) and bool(wrapped == plain)
        # The very same instructions: whatever it may have found out, nothing came of it.
        if not same or wrapped_way != plain_way:
            return f"it behaves differently on wrapped numbers than on ints at {call}"
    return ""


def _calls(policy: Policy, index: int, slot: int, slots: int, modules: int) -> Iterator[Call]:
    """The policy's bare functions, and their arguments."""

    def ring(number: Wrap, size: Wrap) -> Any:
        kind: Any = Ring if number is int else SymbolicRing
        return kind(number(modules), size(slots))

    def of_boundary(half: str) -> Callable[[Wrap, Wrap], tuple[Any, ...]]:
        return lambda number, size: (
            Boundary(half, number(index)),
            number(slot),
            ring(number, size),
        )

    yield bare(policy.slot_of), lambda number, size: (number(index), ring(number, size))
    if own_period(policy):
        yield bare(policy.passes), lambda number, size: (ring(number, size),)
    if policy.target is not None:
        goal = bare(policy.target)
        yield goal, lambda number, size: (number(index), size(slots), number(modules))
    if policy.refill is not None:
        for at in boundaries(index, modules):
            yield bare(policy.refill), of_boundary(at.half)


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
