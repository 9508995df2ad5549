"""Rules for refills and periods of several passes: named ones proved, a user's tried honestly."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import pytest

from proofs import enumeration, prove_policy, user
from proofs.claims import claims
from proofs.mutants import MUTANTS
from proofs.obligation import System, discharge
from proofs.refills import BROUGHT, brought, first_run, next_user, own_pass, refill_obligations
from proofs.report import Verdict
from schedule import Policy, policies
from schedule.policy import NAMED
from schedule.table import AFTER, BEFORE, ENTER, Boundary

RULES = ("restart", "one_ahead", "on_demand")


@pytest.fixture(autouse=True)
def few_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "LARGE_TABLES", 13)
    monkeypatch.setattr(user, "EACH", 1)


# ---- the named ones


@pytest.mark.parametrize("name", ["rotating", *RULES])
def test_the_named_policy_is_proved(name: str) -> None:
    result = prove_policy(NAMED[name])
    assert (result.verdict, result.engine, result.obligations) == (Verdict.PROVED, "z3", 4)
    assert result.bound == (
        "all N and K"
        + " >= 2" * (name == "one_ahead")
        + ", a period of at most 1,000,000 steps" * (name == "rotating")
    )


def test_each_named_rule_says_what_brings_a_module() -> None:
    assert {policy.name for policy in NAMED.values() if policy.refill} == set(BROUGHT) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_each_of_their_obligations_has_a_mutant(name: str) -> None:
    killed = {mutant.obligation for mutant in MUTANTS}
    assert {f"{name}: {what}" for what in ("next user", "brought", "own pass")} <= killed
    assert {"rotating", "rotating: slots"} <= killed


@pytest.mark.parametrize("name", RULES)
def test_what_brings_a_module_is_in_the_tables(name: str) -> None:
    """For every ring to 9x9, as the obligations say for all."""
    policy = NAMED[name]
    for ring in enumeration.rings(policy, 9, 0):
        schedule = policy(ring)
        for step, slot in enumerate(schedule.slot_of):
            half, at = BROUGHT[name](step, ring)
            assert (slot, step) in getattr(schedule, half)[at]
            between = schedule.slot_of[first_run(Boundary(half, at)) : step]
            assert slot not in between


def never(*_: Any) -> None:
    return None


def test_a_rule_that_brings_nothing_shows_in_what_is_brought_alone() -> None:
    """Owned it is: it replaces nothing."""
    empty: Any = replace(policies.on_demand, refill=never)
    by = BROUGHT["on_demand"]
    one = refill_obligations(System(), policies.on_demand)[0]
    assert discharge(replace(one, body=next_user(System(), empty))).proved
    for body in (brought(empty, by), own_pass(empty, by)):
        outcome = discharge(replace(one, body=body))
        assert not outcome.proved
        assert "sat with seed 0" in outcome.reason


def wrong_type(*_: Any) -> Any:
    return 0.5


def one_late(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """The first module again, when the second one was brought."""
    half, step = boundary
    return 0 if half == AFTER and step == 0 and slot == 0 and ring.modules > ring.slots else None


@pytest.mark.parametrize("rule", [wrong_type, one_late])
def test_what_is_no_next_user_is_not_proved(rule: Any) -> None:
    faulty: Any = replace(policies.restart, refill=rule)
    one = refill_obligations(System(), policies.restart)[0]
    assert not discharge(replace(one, body=next_user(System(), faulty))).proved


def test_a_boundary_after_the_run_brings_nothing_in_time() -> None:
    """The same rule, said to bring a module after its own run, or in a pass before."""
    restart, one = policies.restart, refill_obligations(System(), policies.restart)[1]
    for by in (lambda i, _: Boundary(AFTER, i), lambda i, _: Boundary(BEFORE, i)):
        assert not discharge(replace(one, body=brought(restart, by))).proved
        assert not discharge(replace(one, body=own_pass(restart, by))).proved
    past: Any = replace(restart, refill=lambda *_: 0)
    late = discharge(replace(one, body=own_pass(past, lambda i, _: Boundary(BEFORE, i + 1))))
    assert not late.proved
    early = discharge(replace(one, body=own_pass(past, lambda i, _: Boundary(ENTER, i - 9))))
    assert not early.proved


def test_the_claims_list_closure_for_every_policy() -> None:
    (closure,) = (claim for claim in claims(System()) if claim.number == 6)
    names = [obligation.name for obligation in closure.obligations]
    assert names == [
        "next pass",
        "modular",
        "rotating",
        *(f"{name}: own pass" for name in RULES),
    ]


# ---- a user's


def cyclic(step: int, ring: Any) -> Any:
    return step % ring.slots


def late(boundary: Boundary, slot: int, ring: Any) -> int | None:
    half, step = boundary
    return step if half == AFTER and step % ring.slots == slot else None


def past_the_ring(_: Boundary, __: int, ring: Any) -> int:
    modules: int = ring.modules
    return modules


def odd(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """Wrong for 13 modules, where a slot keeps its module from one pass to the next."""
    if ring.modules == 13 and boundary == (AFTER, 4):
        return 0
    return policies.on_demand.refill(boundary, slot, ring)  # type: ignore[misc]


def test_a_users_rule_for_refills_is_proved_from_its_own_code() -> None:
    for policy in (replace(policies.restart, name="mine"), replace(policies.restart)):
        result = prove_policy(policy)
        assert (result.verdict, result.engine, result.bound) == (
            Verdict.PROVED,
            "z3",
            "all N and K",
        )
    # And not under the name of one that is.
    assert prove_policy(Policy("restart", cyclic, refill=odd)).verdict is Verdict.VIOLATED


def test_one_over_several_passes_is_enumerated_and_said_to_be() -> None:
    def in_every_pass(boundary: Boundary, slot: int, ring: Any) -> Any:
        half, step = boundary
        wanted = half == BEFORE and step % ring.slots == slot
        return step % ring.modules if wanted else None

    result = prove_policy(Policy("mine", cyclic, refill=in_every_pass, passes=lambda _: 2))
    assert result.verdict is Verdict.HOLDS_TO_BOUND
    assert result.bound == "all rings to 13x13, and 40 random ones to 52"
    assert result.reason == (
        "not followed: a rule for refills over several passes is only enumerated; "
        "so it is not proved, and nothing is said beyond"
    )


@pytest.mark.parametrize(
    ("rule", "modules", "slots", "bound"), [(late, 1, 1, 12), (never, 1, 1, 12), (odd, 13, 7, 13)]
)
def test_one_that_is_wrong_is_violated_at_its_smallest_ring(
    rule: Any, modules: int, slots: int, bound: int
) -> None:
    result = prove_policy(Policy("mine", cyclic, refill=rule))
    assert result.verdict is Verdict.VIOLATED
    assert result.smallest is not None
    ring = result.smallest.schedule.ring
    assert (ring.modules, ring.slots) == (modules, slots)
    assert result.bound == f"smallest of the rings to {bound}x{bound}"


def test_one_that_is_no_rule_is_refused() -> None:
    result = prove_policy(Policy("mine", cyclic, refill=past_the_ring))
    assert result.verdict is Verdict.USAGE
    assert "policy mine returned 1 for (boundary=" in result.reason


def period_of_gcd(ring: Any) -> Any:
    return ring.slots // gcd(ring.slots, ring.modules)


def uneven(ring: Any) -> Any:
    return 2 if ring.modules < 13 else 0


class Equal:
    """Equal to every other period, and none of them."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, ring: Any) -> Any:
        return period_of_gcd(ring)


@pytest.mark.parametrize(
    ("passes", "verdict", "text"),
    [
        (lambda _: 2, Verdict.PROVED, ""),
        (lambda ring: ring.slots + 1, Verdict.PROVED, ""),
        (period_of_gcd, Verdict.HOLDS_TO_BOUND, "not followed: "),
        (Equal(), Verdict.HOLDS_TO_BOUND, "not followed: "),
        (uneven, Verdict.USAGE, "gives a period of 0 passes in Ring(modules=13, slots=1)"),
        (lambda _: 0, Verdict.USAGE, "gives a period of 0 passes in Ring(modules=1, slots=1)"),
    ],
    ids=["two", "slots and one", "gcd", "equal", "uneven", "none"],
)
def test_a_users_period(passes: Any, verdict: Verdict, text: str) -> None:
    result = prove_policy(Policy("mine", cyclic, passes=passes))
    assert (result.verdict, text in result.reason) == (verdict, True)
    if verdict is Verdict.PROVED:
        bound = "all N and K, a period of at most 1,000,000 steps"
        assert (result.obligations, result.bound) == (5, bound)


def by_pass(step: int, ring: Any) -> Any:
    """In its slot only in the first pass of a period."""
    return step % ring.slots if step < ring.modules else ring.slots


def test_slots_are_asked_of_every_pass() -> None:
    assert prove_policy(Policy("mine", by_pass)).verdict is Verdict.PROVED
    result = prove_policy(Policy("mine", by_pass, passes=lambda _: 2))
    assert result.verdict is Verdict.USAGE
    assert "gives step 1 the slot 1 in Ring(modules=1, slots=1)" in result.reason
