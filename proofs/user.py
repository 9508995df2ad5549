"""Prove or refute a policy that anybody wrote, for all sizes.

Refutation is enumeration in order (N, then K), with the local check: what it finds is the
smallest ring. Proof is symbolic execution of the policy's own functions. A policy that can't be
followed, or whose obligations the solver does not prove, is UNKNOWN, with the reason. A rule for
refills is enumerated and not yet followed, unless it is a named one, whose proof is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from proofs.follow import followed
from proofs.obligation import Obligation, System, discharge
from proofs.refills import own_pass_obligation, refill_obligations
from proofs.refutation import Refutation, explain, replayed
from proofs.report import Verdict
from proofs.sizes import (
    FIVE_TWO,
    any_step,
    closure,
    every_step,
    in_range,
    passes_in_range,
    preload,
    step,
    target_in_range,
)
from proofs.slotfile import SymbolicRing
from proofs.symbolic import NotFollowed, Run, explore, integers
from schedule.arithmetic import Target, every_pass, rotating_passes
from schedule.budget import OutOfBudget
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import NAMED, Policy, guarded_policy, of_target
from schedule.ring import Ring
from schedule.users import bare, guarded
from schedule.verifier import Findings, check

SMALL, LARGE = 12, 64
LARGE_TABLES = 24
"""The larger bound where a table has about N * K entries: periods of many passes, and rules that
are asked for every slot at every boundary."""

ENUMERATED = "a rule for refills is enumerated, not yet followed"


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """verdict, engine and bound: what was shown, how, and for which sizes.
    reason: why not more. smallest: the findings at the smallest ring that is violated.
    refutation: the same for the policy's author."""

    policy: str
    verdict: Verdict
    engine: str
    bound: str
    obligations: int
    paths: int
    reason: str = ""
    smallest: Findings | None = None
    refutation: Refutation | None = None


def prove_policy(policy: Policy | Target, loaded: str | None = None) -> PolicyResult:
    """PROVED for all N and K, VIOLATED with the smallest ring, USAGE if it is no policy, or
    UNKNOWN. loaded: the name by which ``schedule.loading.load`` finds the policy."""
    loaded = loaded or _importable(policy)
    try:
        policy = guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
        large = _large(policy)
        violated = smallest_violation(policy, rings(policy, SMALL, 0))
        if violated is not None:
            return _violated(policy, violated, SMALL, loaded)
        reason = differs(policy)
        count = paths = 0
        for obligation in [] if reason else policy_obligations(policy):
            outcome = discharge(obligation)
            count, paths = count + 1, paths + outcome.paths
            if outcome.vacuous:
                reason = f"{obligation.name}: vacuous, its witness reaches no path"
            elif not outcome.proved:
                reason = f"{obligation.name}: {outcome.reason}"
            if reason:
                break
        # Enumeration is another engine: what it refutes is refuted, whatever was proved.
        violated = smallest_violation(policy, rings(policy, large, SMALL))
        if violated is not None:
            return _violated(policy, violated, large, loaded)
        if not reason:
            bound = "all N and K" + (f" >= {policy.least_slots}" * (policy.least_slots > 1))
            return PolicyResult(policy.name, Verdict.PROVED, "z3", bound, count, paths)
        reason = f"{reason}; no ring to {large}x{large} is violated, which proves nothing beyond"
        return PolicyResult(
            policy.name, Verdict.UNKNOWN, "z3", "not all N and K", count, paths, reason
        )
    except (PolicyError, ScheduleError) as error:
        name = policy.name if isinstance(policy, Policy) else repr(policy)
        return PolicyResult(name, Verdict.USAGE, "none", "none", 0, 0, str(error))


def _large(policy: Policy) -> int:
    one_pass = bare(policy.passes) is every_pass
    return LARGE if policy.refill is None and one_pass else LARGE_TABLES


def _importable(policy: Policy | Target) -> str | None:
    """The name of a plain function for ``load``; a Policy has none of its own."""
    module, name = getattr(policy, "__module__", None), getattr(policy, "__qualname__", "<")
    found = isinstance(module, str) and not isinstance(policy, Policy) and "<" not in name
    return f"{module}:{name}" if found else None


def _violated(policy: Policy, findings: Findings, bound: int, loaded: str | None) -> PolicyResult:
    """Refuted: by the local check, and by the machine as well, or the two disagree."""
    same = replayed(findings)
    return PolicyResult(
        policy.name,
        Verdict.VIOLATED if same else Verdict.DISAGREE,
        "enumeration",
        f"smallest of the rings to {bound}x{bound}",
        0,
        0,
        "" if same else "the machine does not come to the same violations",
        findings,
        explain(policy, findings, loaded),
    )


def rings(policy: Policy, bound: int, done: int) -> Iterator[Ring]:
    """Rings by N, then K, up to the bound, without those up to ``done``."""
    for modules, slots in product(range(1, bound + 1), repeat=2):
        if slots >= policy.least_slots and max(modules, slots) > done:
            yield Ring(modules, slots)


def smallest_violation(policy: Policy, among: Iterator[Ring]) -> Findings | None:
    """The findings at the first of these rings that is violated."""
    return next((f for ring in among if not (f := check(policy(ring))).safe), None)


def differs(policy: Policy) -> str:
    """Why the policy must not be taken for followed, or an empty text."""
    if policy.refill is not None:
        return "" if policy is NAMED.get(policy.name) else ENUMERATED
    try:
        return differs_when_wrapped(policy) or differs_on_a_path(policy)
    except (NotFollowed, OutOfBudget) as error:
        return f"not followed: {error}"
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
    bodies = [in_range(followed(policy.slot_of), policy.least_slots, _steps(policy))]
    if _own_period(policy):
        bodies.append(passes_in_range(followed(policy.passes), policy.least_slots))
    if policy.target is not None:
        bodies.append(target_in_range(followed(policy.target), _enough(policy)))
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
        except (NotFollowed, OutOfBudget) as error:
            return f"not followed: {error}"
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
    if _own_period(policy):
        yield bare(policy.passes), of_ring
    if policy.target is not None:
        yield bare(policy.target), of_goal


def _enough(policy: Policy) -> Callable[[Run, Any], Any]:
    """The rings that the policy is for."""
    return lambda _, ring: ring.slots >= policy.least_slots


def _own_period(policy: Policy) -> bool:
    """Whether the period is by a function that must be followed: of the named ones, ``gcd`` can't
    be, and K // g is at least 1 since g divides K."""
    passes = bare(policy.passes)
    return passes is not every_pass and passes is not rotating_passes


def _steps(policy: Policy) -> Callable[[Run, Any], Any]:
    """The steps for which the slot map is asked; in a longer period, those of every pass."""
    return any_step if bare(policy.passes) is every_pass else every_step


def policy_obligations(policy: Policy) -> list[Obligation]:
    """All that this policy has to show to be safe for every N and K."""
    system = System()
    least = policy.least_slots
    if policy.refill is not None:
        in_slots = in_range(followed(policy.slot_of), least)
        slots = Obligation("slots", "every step's slot is one of the ring's", in_slots, FIVE_TWO)
        return [slots, *refill_obligations(system, policy), own_pass_obligation(policy)]
    slot_of = followed(policy.slot_of)
    target = None if policy.target is None else followed(policy.target)
    enough = _enough(policy)
    at = {**FIVE_TWO, "K": max(2, least), "N": 5 * max(2, least) // 2}
    if least > 2:
        at.pop("i"), at.pop("s")
    first = {name: value for name, value in at.items() if name != "i"}
    found = [
        Obligation(
            "slots",
            "every step's slot is one of the ring's",
            in_range(slot_of, least, _steps(policy)),
            at,
        ),
        Obligation("base", "the preload makes every slot ready", preload(system), first),
        Obligation(
            "closure", "what is ready at a pass's end is at its start", closure(None), first
        ),
    ]
    if _own_period(policy):
        passes = passes_in_range(followed(policy.passes), least)
        found.append(Obligation("period", "a period has at least one pass", passes, first))
    if target is not None:
        found.append(
            Obligation("range", "targets are modules", target_in_range(target, enough), at)
        )
    # Derived refills are right for any slot map, so the policy's own need not be followed again.
    maps = slot_of if target is not None else None
    text = "a step keeps every slot ready: ownership and progress"
    found.append(Obligation("step", text, step(system, maps, target, enough), at))
    return found


def assert_policy_safe(policy: Policy | Target) -> None:
    """Fail unless the policy is proved safe for all N and K.

    policy: a function ``(index, slots, modules) -> target | None``, or a Policy.
    The AssertionError names the smallest ring that is violated, and how; or, for a policy that
    is no violation in sight but can't be proved, why not.
    """
    result = prove_policy(policy)
    if result.verdict is Verdict.PROVED:
        return
    text = f"policy {result.policy} is {result.verdict.name}"
    if result.smallest is None or result.refutation is None:
        raise AssertionError(f"{text}: {result.reason}")
    ring = result.smallest.schedule.ring
    violations = "\n".join(map(str, result.smallest.violations))
    more = f"\n{result.refutation.sentence}\n{result.refutation.instead}"
    raise AssertionError(f"{text} at N={ring.modules}, K={ring.slots}\n{violations}{more}")
