"""Prove or refute a policy that anybody wrote, for all sizes.

Refutation is enumeration in order (N, then K), with the local check: what it finds is the
smallest ring. Proof is symbolic execution of the policy's own functions: for every N and K, else
for every N and each K to a bound, where K is an ordinary int. Whatever was proved, all rings to a
bound are tried. A policy that is no function of its arguments alone is UNKNOWN, as is one that
looks at more than numbers: no answer of theirs means anything. One that can't be followed, or whose
obligations the solver does not prove, holds to a bound at best, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile

from proofs.enumeration import (
    FUZZ,
    SMALL,
    large_bound,
    random_rings,
    rings,
    shrunk,
    smallest_violation,
)
from proofs.obligation import Obligation, discharge, suspects
from proofs.owed import ways
from proofs.purity import changes, impure, state
from proofs.refutation import Refutation, explain, replayed
from proofs.report import Verdict, row
from proofs.symbolic import NotFollowed
from proofs.wrapped import NOT_FOLLOWED, differs
from schedule.arithmetic import Target, every_pass
from schedule.budget import OutOfBudget
from schedule.errors import PolicyError, ScheduleError
from schedule.policy import Policy, guarded_policy, of_target
from schedule.ring import LARGEST, Ring
from schedule.timeline import show_violation
from schedule.users import bare
from schedule.verifier import Findings

NOTHING = "its answers prove nothing"
SMALLEST = "smallest of the rings to"
EACH = 8
"""To which K a policy that is not proved for all of them is proved for each."""


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

    def __str__(self) -> str:
        """The result in words; a violated one with its smallest ring and trace."""
        if self.verdict is Verdict.PROVED:
            size = f"{self.obligations} obligations on {self.paths} paths"
            text = "every schedule of it is safe"
            return row(self.verdict, self.policy, text, self.engine, self.bound, size)
        head = f"{self.verdict.name:<15} {self.policy}: "
        if self.verdict is Verdict.HOLDS_TO_BOUND:
            return f"{head}no violation in {self.bound}\n{'':<15} {self.reason}"
        if self.smallest is None:
            return f"{head}{self.reason}"
        ring = self.smallest.schedule.ring
        small = "smallest " if self.bound.startswith(SMALLEST) else ""
        where = f"{small}N={ring.modules}, K={ring.slots} ({self.engine}, {self.bound})"
        reason = f"\n{'':<15} {self.reason}" if self.reason else ""
        violation = show_violation(self.smallest)
        return f"{head}{where}{reason}\n{violation}\n{self.refutation}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A proof that was tried: how many obligations on how many paths; why it is none, or an empty
    text. believed: what rings the policy is safe for may be found by trying them. suspected: rings
    which the solver thinks may be violated. least: none with fewer modules is."""

    obligations: int
    paths: int
    reason: str
    believed: bool = True
    suspected: tuple[Ring, ...] = ()
    least: int = 1


def prove_policy(policy: Policy | Target, loaded: str | None = None) -> PolicyResult:
    """PROVED for all N and K; VIOLATED with the smallest ring; HOLDS_TO_BOUND if it is proved for
    some K only, or tried; USAGE if it is no policy; UNKNOWN if its answers mean nothing.
    loaded: the name by which ``schedule.loading.load`` finds the policy."""
    loaded = loaded or _importable(policy)
    try:
        policy = guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
        why = impure(policy)
        if why:
            return _unknown(policy, Attempt(0, 0, f"refused, since {why}; {NOTHING}"))
        large, before = large_bound(policy), state(policy)
        if policy.least_slots > large:
            few = (
                f"only rings to {large}x{large} are tried, and it needs {policy.least_slots} slots"
            )
            return _unknown(policy, Attempt(0, 0, few))
        for bound, done in ((SMALL, 0), (large, SMALL)):
            violated = smallest_violation(policy, rings(policy, bound, done))
            if violated is not None:
                return _violated(policy, violated, f"{SMALLEST} {bound}x{bound}", loaded)
        # Enumeration is another engine: what it refutes is refuted, whatever would be proved.
        tried = attempt(policy)
        why = changes(policy, before)  # on paths too that no small ring takes
        if why:
            return _unknown(policy, replace(tried, reason=f"refused, since {why}; {NOTHING}"))
        if not tried.reason:
            bounds = "all N and K" + (f" >= {policy.least_slots}" * (policy.least_slots > 1))
            if bare(policy.passes) is not every_pass:
                bounds += f", a period of at most {LARGEST:,} steps"
            return PolicyResult(
                policy.name, Verdict.PROVED, "z3", bounds, tried.obligations, tried.paths
            )
        if not tried.believed:
            beyond = f"no ring to {large}x{large} is violated, which proves nothing beyond"
            return _unknown(policy, replace(tried, reason=f"{tried.reason}; {beyond}"))
        return _held(policy, tried, large, loaded)
    except (PolicyError, ScheduleError) as error:
        name = policy.name if isinstance(policy, Policy) else repr(policy)
        return PolicyResult(name, Verdict.USAGE, "none", "none", 0, 0, str(error))


def attempt(policy: Policy, slots: int | None = None) -> Attempt:
    """Try to prove the policy for every N; K is free, or as given, and then an int for it."""
    reason = differs(policy, slots)
    if reason:
        return Attempt(0, 0, reason, reason.startswith(NOT_FOLLOWED))
    failed: Attempt | None = None
    for obligations in ways(policy, slots):
        tried = _discharged(obligations, slots)
        if not (tried.reason and tried.believed):
            return tried
        # Either way proves all, so what violates a ring is suspected by both.
        failed = failed or tried
        least = max(failed.least, tried.least)
        failed = replace(failed, suspected=failed.suspected + tried.suspected, least=least)
    assert failed is not None
    return failed


def _discharged(obligations: list[Obligation], slots: int | None) -> Attempt:
    """What comes of these obligations together."""
    reason, paths, found, whole = "", 0, list[tuple[int, int]](), True
    for obligation in obligations:
        outcome = discharge(obligation)
        paths += outcome.paths
        if outcome.vacuous:
            vacuous = f"{obligation.name}: vacuous, its witness reaches no path"
            return Attempt(len(obligations), paths, vacuous, believed=False)
        if not outcome.proved:
            reason = reason or f"{obligation.name}: {outcome.reason}"
            try:
                found += suspects(obligation, slots)
            except (NotFollowed, OutOfBudget, Exception):  # of the policy too
                whole = False
    least = min(found)[0] if whole and found else 1
    suspected = tuple(Ring(*sizes) for sizes in sorted(found))
    return Attempt(len(obligations), paths, reason, suspected=suspected, least=least)


def _held(policy: Policy, tried: Attempt, large: int, loaded: str | None) -> PolicyResult:
    """The result for a policy that is not proved for all sizes, and of which all rings to a bound
    are safe: what the solver suspects is tried, and random larger rings; and then each K alone."""
    chance = random_rings(policy, large)
    violated = smallest_violation(policy, iter((*tried.suspected, *chance)))
    proved = policy.least_slots - 1
    if violated is None:
        each = [attempt(policy, slots) for slots in range(policy.least_slots, EACH + 1)]
        suspected = {ring for one in each for ring in one.suspected}
        in_order = sorted(suspected, key=lambda ring: (ring.modules, ring.slots))
        violated = smallest_violation(policy, iter(in_order))
        proved += len(list(takewhile(lambda one: not one.reason, each)))
    if violated is not None:
        bound = f"shrunk from a larger ring; all rings to {large}x{large} are safe"
        safe = max(large, tried.least - 1)
        return _violated(policy, shrunk(policy, violated, safe), bound, loaded)
    text = f"every N for each K to {proved}, " if proved >= policy.least_slots else ""
    return PolicyResult(
        policy.name,
        Verdict.HOLDS_TO_BOUND,
        "z3 and enumeration" if text else "enumeration",
        f"{text}all rings to {large}x{large}, and {len(chance)} random ones to {FUZZ * large}",
        tried.obligations,
        tried.paths,
        f"{tried.reason}; so it is not proved, and nothing is said beyond",
    )


def _unknown(policy: Policy, tried: Attempt) -> PolicyResult:
    return PolicyResult(
        policy.name,
        Verdict.UNKNOWN,
        "z3",
        "not all N and K",
        tried.obligations,
        tried.paths,
        tried.reason,
    )


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


def assert_policy_safe(policy: Policy | Target, *, to_bound: bool = False) -> None:
    """Fail unless the policy is proved safe for all N and K.

    policy: a function ``(index, slots, modules) -> target | None``, or a Policy.
    to_bound: let a policy pass that is not proved, if it holds to a bound.
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
