"""Policies that anybody wrote: proved, refuted at the smallest ring, or honestly neither."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from proofs import PolicyResult, assert_policy_safe, enumeration, prove_policy, user
from proofs.enumeration import rings
from proofs.report import Verdict
from schedule import Policy, Ring, check, policies
from schedule.policy import of_target


def fixed(index: int, slots: int, modules: int) -> int:
    target = (index + slots) % modules
    if slots < modules and target % slots != index % slots:
        return index % slots
    return target


def right(index: int, slots: int, modules: int) -> int:
    """The same with fewer decisions: what is about another thing is sooner done."""
    return index + slots if index + slots < modules else index % slots


def old(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules


def half(index: int, slots: int, modules: int) -> float:
    del index, slots, modules
    return 0.5


def thrifty(index: int, slots: int, modules: int) -> int | None:
    if index + slots < modules:
        return index + slots
    return None if index % slots == index else index % slots


LIMITS = (enumeration.SMALL, enumeration.LARGE)


@pytest.fixture(autouse=True)
def few_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumerate to 24x24 only, to save time; the README's command does not."""
    monkeypatch.setattr(enumeration, "LARGE", 24)
    monkeypatch.setattr(user, "EACH", 2)


# ---- for a user's own tests


def test_the_fixed_rule_is_safe() -> None:
    assert_policy_safe(fixed)


def test_the_old_rule_fails_with_the_smallest_ring() -> None:
    with pytest.raises(AssertionError) as failure:
        assert_policy_safe(old)
    text = str(failure.value)
    assert text.startswith(f"policy {__name__}:old is VIOLATED at N=3, K=2\nownership: pass 0, ")
    assert "identity: pass 0: module 2 runs from slot 0, and reads module 0's weights" in text


def test_what_is_no_policy_fails_with_the_reason() -> None:
    with pytest.raises(
        AssertionError, match=r"is USAGE: .*half.* a float; return an integer, or None"
    ):
        assert_policy_safe(half)  # type: ignore[arg-type]


def test_what_is_not_proved_fails_with_the_reason() -> None:
    def bits(index: int, slots: int, modules: int) -> int:
        return right(index, slots, modules) & -1

    with pytest.raises(AssertionError, match="bits is HOLDS_TO_BOUND: not followed: __and__ of"):
        assert_policy_safe(bits)
    assert_policy_safe(bits, to_bound=True)


# ---- what is proved


def uneven(step: int, ring: Any) -> int:
    """The first third of the modules in the first half of the slots, the rest in the others."""
    half = ring.slots // 2
    if half > 0 and step < ring.modules // 3:
        return step % half
    return half + step % (ring.slots - half)


def one_slot(step: int, ring: Any) -> int:
    del step, ring
    return 0


def last_slot(step: int, ring: Any) -> int:
    return min(step, ring.slots - 1)


def from_the_end(step: int, ring: Any) -> int:
    return (ring.modules - 1 - step) % ring.slots


PROVED = [
    (Policy("uneven", uneven), 4, "all N and K"),
    (Policy("one_slot", one_slot), 4, "all N and K"),
    (Policy("last_slot", last_slot), 4, "all N and K"),
    (Policy("from_the_end", from_the_end), 4, "all N and K"),
    (Policy("three", lambda step, _: step % 3, least_slots=3), 4, "all N and K >= 3"),
    (policies.double_buffer, 4, "all N and K >= 2"),
    (thrifty, 5, "all N and K"),
]


@pytest.mark.parametrize(("policy", "count", "bound"), PROVED)
def test_a_policy_that_is_proved(policy: Any, count: int, bound: str) -> None:
    result = prove_policy(policy)
    assert (result.verdict, result.reason) == (Verdict.PROVED, "")
    assert (result.engine, result.bound, result.obligations) == ("z3", bound, count)
    assert result.paths >= count
    assert result.smallest is None
    made = policy if isinstance(policy, Policy) else of_target(policy)
    assert all(check(made(ring)).safe for ring in rings(made, 20, 15))


# ---- what is violated


def one_short(index: int, slots: int, modules: int) -> int | None:
    return None if index + slots >= modules else index + slots


def late(index: int, slots: int, modules: int) -> int:
    return (
        old(index, slots, modules) if modules > 20 and slots == 3 else fixed(index, slots, modules)
    )


def never(index: int, slots: int, modules: int) -> None:
    del index, slots, modules


VIOLATED: list[tuple[Any, int, int, int]] = [
    (old, 3, 2, 12),
    (never, 2, 1, 12),
    (one_short, 2, 1, 12),
    (late, 22, 3, 24),
    (policies.modular, 3, 2, 12),
    (Policy("backward", from_the_end, old), 3, 2, 12),
]


@pytest.mark.parametrize(("policy", "modules", "slots", "bound"), VIOLATED)
def test_a_policy_that_is_violated(policy: Any, modules: int, slots: int, bound: int) -> None:
    result = prove_policy(policy)
    assert result.verdict is Verdict.VIOLATED
    assert result.engine == "enumeration"
    assert result.bound == f"smallest of the rings to {bound}x{bound}"
    assert result.smallest is not None
    assert not result.smallest.safe
    assert result.smallest.schedule.ring == Ring(modules, slots)


def test_the_rings_that_are_tried() -> None:
    every = [(ring.modules, ring.slots) for ring in rings(policies.balanced, 3, 0)]
    assert every == [(n, k) for n in (1, 2, 3) for k in (1, 2, 3)]
    new = [(ring.modules, ring.slots) for ring in rings(policies.double_buffer, 3, 2)]
    assert new == [(1, 3), (2, 3), (3, 2), (3, 3)]
    assert LIMITS == (12, 64)


# ---- what is no policy, and what is none or another one beyond the bound


def leaves_the_ring(step: int, ring: Any) -> int:
    return int(step % (ring.slots + 1))


def leaves_later(step: int, ring: Any) -> int:
    return int(step % (ring.slots + (ring.modules > 20)))


USAGE: list[tuple[Any, str]] = [
    (Policy("leaves", leaves_the_ring), "policy leaves gives step 1 the slot 1 in Ring(modules=2"),
    (Policy("later", leaves_later), "policy later gives step 1 the slot 1 in Ring(modules=21"),
    (Policy("half", lambda step, _: step / 2), "policy half gives step 0 the slot 0.0 in Ring("),
    (lambda _, __: 0, "can't be called with (index, slots, modules)"),
    (7, "a policy is a function (index, slots, modules) -> target or None; got 7"),
    (int, "a policy is a function (index, slots, modules) -> target or None; got <class 'int'>"),
]


@pytest.mark.parametrize(("policy", "reason"), USAGE)
def test_what_is_no_policy(policy: Any, reason: str) -> None:
    result = prove_policy(policy)
    assert (result.verdict, result.engine, result.bound) == (Verdict.USAGE, "none", "none")
    assert reason in result.reason


def map_beyond(step: int, ring: Any) -> int:
    return int(step % (ring.slots + 1) if ring.modules > 100 else step % ring.slots)


def swallows(index: int, slots: int, modules: int) -> int:
    try:
        range(modules)
    except BaseException:
        return right(index, slots, modules)
    return right(index, slots, modules) if modules < 1000 else old(index, slots, modules)


def looks_beyond(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if modules < 1000 else int(str(index))


def endless_beyond(index: int, slots: int, modules: int) -> int:
    while modules > 1000:
        pass
    return right(index, slots, modules)


def stuck_beyond(index: int, slots: int, modules: int) -> int:
    if modules > 1000:
        while True:
            pass
    return right(index, slots, modules)


def raises_beyond(index: int, slots: int, modules: int) -> int:
    if modules > 1000:
        raise ValueError("too many")
    return right(index, slots, modules)


def float_beyond(index: int, slots: int, modules: int) -> float:
    return right(index, slots, modules) * 1.0 if modules > 1000 else right(index, slots, modules)


def depends_on_type(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if isinstance(modules, int) else 0


def never_beyond(index: int, slots: int, modules: int) -> int | None:
    return None if modules > 1000 else right(index, slots, modules)


def guarded_by_type(index: int, slots: int, modules: int) -> int:
    if modules > 1000 and isinstance(modules, int):
        return old(index, slots, modules)
    return right(index, slots, modules)


def guarded_by_identity(index: int, slots: int, modules: int) -> int:
    if modules > 1000 and (index >= 0) is True:
        return old(index, slots, modules)
    return right(index, slots, modules)


def guarded_by_error(index: int, slots: int, modules: int) -> int:
    if modules > 1000:
        try:
            int.__add__(index, slots)
        except TypeError:
            return right(index, slots, modules)
        return old(index, slots, modules)
    return right(index, slots, modules)


def map_guarded_by_type(step: int, ring: Any) -> int:
    return 0 if ring.modules > 1000 and isinstance(step, int) else min(1, ring.slots - 1)


def type_and_size(step: int, ring: Any) -> int:
    bad = ring.modules > 1000 and isinstance(step, int) and ring.modules == 5001
    return ring.slots if bad else 0


def identity_and_size(step: int, ring: Any) -> int:
    bad = ring.modules > 1000 and (step >= 0) is True and ring.modules == 5001
    return ring.slots if bad else 0


def error_and_size(step: int, ring: Any) -> int:
    if ring.modules > 1000:
        try:
            int.__add__(step, 1)
        except TypeError:
            return 0
        return ring.slots if ring.modules == 5001 else 0
    return 0


def alias_and_size(step: int, ring: Any) -> int:
    bad = ring.modules > 1000 and operator.is_(step >= 0, True) and ring.modules == 5001
    return ring.slots if bad else 0


def bool_beyond(step: int, ring: Any) -> int:
    del step
    return False if ring.modules > 1000 else 0


NOT, BEHIND = "not followed: ", "refused, since it looks at more than numbers: "
BEYOND = "; no ring to 24x24 is violated, which proves nothing beyond"


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (raises_beyond, "it raises ValueError"),
        (depends_on_type, BEHIND + "the name isinstance"),
        (guarded_by_type, BEHIND + "the name isinstance"),
        (guarded_by_identity, BEHIND + "`is` between numbers"),
        (guarded_by_error, BEHIND + "the attribute __add__"),
        (Policy("map_by_type", map_guarded_by_type), BEHIND + "the name isinstance"),
        (Policy("type_and_size", type_and_size), BEHIND + "the name isinstance"),
        (Policy("identity_and_size", identity_and_size), BEHIND + "`is` between numbers"),
        (Policy("error_and_size", error_and_size), BEHIND + "the attribute __add__"),
        (Policy("alias", alias_and_size), BEHIND + "operator.is_ is is_"),
    ],
)
def test_what_looks_at_more_than_numbers_is_unknown(policy: Any, reason: str) -> None:
    result = prove_policy(policy)
    assert (result.verdict, result.engine) == (Verdict.UNKNOWN, "z3")
    assert result.bound == "not all N and K"
    assert result.reason == reason + BEYOND
    assert result.smallest is None


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (swallows, "__index__ of an integer that stands for every size"),
        (endless_beyond, "a loop or recursion with more than 250 decisions"),
        (stuck_beyond, "did not return within 1,000,000 instructions"),
        (float_beyond, "* between an integer and a float"),
        (looks_beyond, "__str__ of an integer that stands for every size"),
    ],
)
def test_what_cannot_be_followed_holds_to_the_bound(policy: Any, reason: str) -> None:
    result = prove_policy(policy)
    assert (result.verdict, result.engine) == (Verdict.HOLDS_TO_BOUND, "enumeration")
    assert result.bound == "all rings to 24x24, and 40 random ones to 96"
    assert result.reason == f"{NOT}{reason}; so it is not proved, and nothing is said beyond"
    assert result.smallest is None


def test_what_the_solver_suspects_beyond_the_bound_is_replayed_and_shrunk() -> None:
    result = prove_policy(never_beyond)
    assert (result.verdict, result.engine) == (Verdict.VIOLATED, "enumeration")
    assert result.smallest is not None
    assert result.smallest.schedule.ring == Ring(1001, 1)
    assert str(result).startswith(
        f"VIOLATED        {__name__}:never_beyond: N=1001, K=1 (enumeration, "
        "shrunk from a larger ring; all rings to 24x24 are safe)\nownership  holds\n"
    )


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy("int_beyond", map_beyond), "gives step 1 the slot 1 in Ring(modules=101, slots=1)"),
        (Policy("bool_beyond", bool_beyond), "gives step 0 the slot False in Ring(modules=1001"),
    ],
)
def test_nor_is_it_a_policy_if_it_is_none_beyond_the_bound(policy: Any, reason: str) -> None:
    result = prove_policy(policy)
    assert (result.verdict, result.engine) == (Verdict.USAGE, "none")
    assert reason in result.reason


# ---- what the witness must not miss


def test_a_rule_for_targets_over_one_slot_is_proved() -> None:
    policy = Policy("one", one_slot, lambda i, _, n: None if n == 1 else (i + 1) % n)
    assert prove_policy(policy).verdict is Verdict.PROVED


def test_a_result_is_plain_data() -> None:
    result = prove_policy(old)
    assert isinstance(result, PolicyResult)
    assert result.policy == f"{__name__}:old"
    assert (result.obligations, result.paths, result.reason) == (0, 0, "")


# ---- beyond what is enumerated


def wrong_from_thirty(index: int, slots: int, modules: int) -> int:
    """Can't be followed; and is the old rule from N = 30 on, beyond what is enumerated here."""
    rule = policies.NAMED["modular" if modules >= 30 else "slot_local"].target
    assert rule is not None
    target = rule(index, slots, modules)
    assert target is not None
    return target & -1


def test_a_fault_beyond_the_bound_is_found_by_chance_and_shrunk() -> None:
    result = prove_policy(wrong_from_thirty)
    assert (result.verdict, result.engine) == (Verdict.VIOLATED, "enumeration")
    assert result.smallest is not None
    assert result.bound == "shrunk from a larger ring; all rings to 24x24 are safe"
    assert result.smallest.schedule.ring == Ring(30, 4)  # 2 and 3 divide 30, and are right there


def test_the_random_rings_are_the_same_each_time_and_beyond_the_bound() -> None:
    policy = policies.NAMED["double_buffer"]
    found = enumeration.random_rings(policy, 64)
    assert found == enumeration.random_rings(policy, 64)
    assert len(found) == 40
    assert {64 < ring.modules <= 256 for ring in found} == {True}
    assert min(ring.slots for ring in found) >= 2
    assert len({ring.slots for ring in found}) > 15
