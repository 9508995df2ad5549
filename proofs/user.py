"""Prove or refute a policy that anybody wrote, for all sizes.

Refutation is enumeration in order (N, then K), with the local check: what it finds is the
smallest ring. Proof is symbolic execution of the policy's own functions. One that can't be followed
holds to a bound at best; one whose obligations the solver does not prove is UNKNOWN, with the
reason. A rule for refills is enumerated, unless it is a named one, whose proof is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofs.enumeration import (
    FUZZ,
    SMALL,
    large_bound,
    random_rings,
    rings,
    shrunk,
    smallest_violation,
)
from proofs.follow import followed
from proofs.obligation import Obligation, System, discharge
from proofs.refills import own_pass_obligation, refill_obligations
from proofs.refutation import Refutation, explain, replayed
from proofs.report import Verdict
from proofs.sizes import (
    FIVE_TWO,
    closure,
    in_range,
    passes_in_range,
    preload,
    step,
    target_in_range,
)
from proofs.wrapped import ENUMERATED, NOT_FOLLOWED, differs, enough, own_period, steps_of
from schedule.arithmetic import Target
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import Policy, guarded_policy, of_target
from schedule.verifier import Findings


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
    """PROVED for all N and K; VIOLATED with the smallest ring; HOLDS_TO_BOUND if it can't be
    followed, and every ring of a bound is safe; USAGE if it is no policy; else UNKNOWN. loaded:
    the name by which ``schedule.loading.load`` finds the policy."""
    loaded = loaded or _importable(policy)
    try:
        policy = guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
        large = large_bound(policy)
        violated = smallest_violation(policy, rings(policy, SMALL, 0))
        if violated is not None:
            return _violated(policy, violated, _smallest_to(SMALL), loaded)
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
            return _violated(policy, violated, _smallest_to(large), loaded)
        if not reason:
            bound = "all N and K" + (f" >= {policy.least_slots}" * (policy.least_slots > 1))
            return PolicyResult(policy.name, Verdict.PROVED, "z3", bound, count, paths)
        return _held(policy, reason, large, loaded) or PolicyResult(
            policy.name,
            Verdict.UNKNOWN,
            "z3",
            "not all N and K",
            count,
            paths,
            f"{reason}; no ring to {large}x{large} is violated, which proves nothing beyond",
        )
    except (PolicyError, ScheduleError) as error:
        name = policy.name if isinstance(policy, Policy) else repr(policy)
        return PolicyResult(name, Verdict.USAGE, "none", "none", 0, 0, str(error))


def _held(policy: Policy, reason: str, large: int, loaded: str | None) -> PolicyResult | None:
    """The result by enumeration alone, and random larger rings beside: of a policy that can't be
    followed. None for one that is followed, and not proved, or that must not be believed."""
    if not reason.startswith(NOT_FOLLOWED) and reason != ENUMERATED:
        return None
    beyond = random_rings(policy, large)
    violated = smallest_violation(policy, iter(beyond))
    if violated is not None:
        bound = f"shrunk from a random ring; all rings to {large}x{large} are safe"
        return _violated(policy, shrunk(policy, violated), bound, loaded)
    bound = f"all rings to {large}x{large}, and {len(beyond)} random ones to {FUZZ * large}"
    text = f"{reason}; so it is not proved, and nothing is said beyond"
    return PolicyResult(policy.name, Verdict.HOLDS_TO_BOUND, "enumeration", bound, 0, 0, text)


def _smallest_to(bound: int) -> str:
    return f"smallest of the rings to {bound}x{bound}"


def _importable(policy: Policy | Target) -> str | None:
    """The name of a plain function for ``load``; a Policy has none of its own."""
    module, name = getattr(policy, "__module__", None), getattr(policy, "__qualname__", "<")
    found = isinstance(module, str) and not isinstance(policy, Policy) and "<" not in name
    return f"{module}:{name}" if found else None


def _violated(policy: Policy, findings: Findings, bound: str, loaded: str | None) -> PolicyResult:
    """Refuted: by the local check, and by the machine as well, or the two disagree."""
    same = replayed(findings)
    return PolicyResult(
        policy.name,
        Verdict.VIOLATED if same else Verdict.DISAGREE,
        "enumeration",
        bound,
        0,
        0,
        "" if same else "the machine does not come to the same violations",
        findings,
        explain(policy, findings, loaded),
    )


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
    where = enough(policy)
    at = {**FIVE_TWO, "K": max(2, least), "N": 5 * max(2, least) // 2}
    if least > 2:
        at.pop("i"), at.pop("s")
    first = {name: value for name, value in at.items() if name != "i"}
    found = [
        Obligation(
            "slots",
            "every step's slot is one of the ring's",
            in_range(slot_of, least, steps_of(policy)),
            at,
        ),
        Obligation("base", "the preload makes every slot ready", preload(system), first),
        Obligation("closure", "what is ready at a pass's end is at its start", closure(), first),
    ]
    if own_period(policy):
        passes = passes_in_range(followed(policy.passes), least)
        found.append(Obligation("period", "a period has at least one pass", passes, first))
    if target is not None:
        found.append(Obligation("range", "targets are modules", target_in_range(target, where), at))
    # Derived refills are right for any slot map, so the policy's own need not be followed again.
    maps = slot_of if target is not None else None
    text = "a step keeps every slot ready: ownership and progress"
    found.append(Obligation("step", text, step(system, maps, target, where), at))
    return found


def assert_policy_safe(policy: Policy | Target, *, to_bound: bool = False) -> None:
    """Fail unless the policy is proved safe for all N and K.

    policy: a function ``(index, slots, modules) -> target | None``, or a Policy.
    to_bound: let a policy that can't be followed pass if all rings of a bound are safe.
    The AssertionError names the smallest ring that is violated, and how; or, for a policy that
    is no violation in sight but can't be proved, why not.
    """
    result = prove_policy(policy)
    if result.verdict is Verdict.PROVED:
        return
    if to_bound and result.verdict is Verdict.HOLDS_TO_BOUND:
        return
    text = f"policy {result.policy} is {result.verdict.name}"
    if result.smallest is None or result.refutation is None:
        raise AssertionError(f"{text}: {result.reason}")
    ring = result.smallest.schedule.ring
    violations = "\n".join(map(str, result.smallest.violations))
    more = f"\n{result.refutation.sentence}\n{result.refutation.instead}"
    raise AssertionError(f"{text} at N={ring.modules}, K={ring.slots}\n{violations}{more}")
