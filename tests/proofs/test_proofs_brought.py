"""Rules that refill later than at once: proved where each module is brought in time, else not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proofs import enumeration, prove_policy, user
from proofs.enumeration import rings, smallest_violation
from proofs.report import Verdict
from proofs.user import attempt
from schedule import Policy, Ring, check
from schedule.policy import of_target

Rule = Callable[[str, Any, Any, Any], Any]
"""(half, step, slot, ring) -> module or None."""


def cyclic(step: int, ring: Any) -> Any:
    return step % ring.slots


def blocks_of_three(step: int, ring: Any) -> Any:
    return step // 3 % ring.slots


def policy_of(rule: Rule, slot_of: Any = cyclic) -> Policy:
    return Policy("mine", slot_of, refill=lambda at, slot, ring: rule(*at, slot, ring))


# ---- rules for targets


def one_ahead(index: int, slots: int, modules: int) -> int:
    """Slots are idle until shortly before their next run."""
    del slots
    return (index + 1) % modules


def test_a_rule_that_looks_one_step_ahead_is_proved() -> None:
    policy = of_target(one_ahead)
    assert smallest_violation(policy, rings(policy, 12, 0)) is None
    assert attempt(policy).reason == ""


# ---- rules for refills


def at_once(half: str, step: Any, slot: Any, ring: Any) -> Any:
    """``slot_local`` as a rule for refills: what is carried into the next pass, too."""
    if half == "preload":
        return slot if slot < ring.modules else None
    if half == "after" and step % ring.slots == slot and ring.slots < ring.modules:
        return step + ring.slots if step + ring.slots < ring.modules else slot
    return None


def in_its_pass(half: str, step: Any, slot: Any, ring: Any) -> Any:
    """``restart``: several refills when a pass begins."""
    if half == "enter":
        return slot if slot < ring.modules else None
    ahead = step + ring.slots
    wanted = half == "after" and step % ring.slots == slot and ahead < ring.modules
    return ahead if wanted else None


def just_in_time(half: str, step: Any, slot: Any, ring: Any) -> Any:
    return step if half == "before" and step % ring.slots == slot else None


def in_time_for_blocks(half: str, step: Any, slot: Any, ring: Any) -> Any:
    return step if half == "before" and blocks_of_three(step, ring) == slot else None


def when_a_pass_ends(half: str, step: Any, slot: Any, ring: Any) -> Any:
    """The first module of each slot comes at the end of the pass before, the rest one ahead."""
    if half in ("preload", "leave"):
        return slot if slot < ring.modules and half == "preload" else _first(slot, ring)
    if ring.slots == 1:
        return step + 1 if half == "after" and step + 1 < ring.modules else None
    ahead = step + 1
    wanted = half == "before" and ahead < ring.modules and ahead >= ring.slots
    return ahead if wanted and ahead % ring.slots == slot else None


def _first(slot: Any, ring: Any) -> Any:
    return slot if slot < ring.modules else None


RIGHT: list[tuple[Rule, Any]] = [
    (at_once, cyclic),
    (in_its_pass, cyclic),
    (just_in_time, cyclic),
    (in_time_for_blocks, blocks_of_three),
    (when_a_pass_ends, cyclic),
]


@pytest.mark.parametrize(("rule", "slot_of"), RIGHT)
def test_a_rule_that_brings_each_module_in_time_is_proved(rule: Rule, slot_of: Any) -> None:
    policy = policy_of(rule, slot_of)
    assert smallest_violation(policy, rings(policy, 12, 0)) is None
    tried = attempt(policy)
    assert (tried.reason, tried.obligations) == ("", 4)


def unless(rule: Rule, wrong: Callable[[str, Any, Any, Any], bool], instead: Any = None) -> Rule:
    """The rule, with another answer in rings of more than 1,000 modules."""

    def changed(half: str, step: Any, slot: Any, ring: Any) -> Any:
        if ring.modules > 1000 and wrong(half, step, slot, ring):
            return instead(step, slot, ring) if instead else None
        return rule(half, step, slot, ring)

    return changed


def last(half: str, step: Any, _: Any, ring: Any) -> bool:
    del half
    return bool(step == ring.modules - 1)


WRONG: list[tuple[str, Rule, str, Ring]] = [
    (
        "the last module is not brought",
        unless(just_in_time, last),
        "brought: nothing brings it behind the slot's run before",
        Ring(1001, 2),
    ),
    (
        "nothing is preloaded",
        unless(at_once, lambda half, *_: half == "preload"),
        "brought: nothing brings it in the first pass",
        Ring(1001, 2),
    ),
    (
        "nothing is carried into the next pass",
        unless(
            at_once,
            lambda half, step, _, ring: half == "after" and step + ring.slots >= ring.modules,
        ),
        "brought: nothing brings it in later passes",
        Ring(1001, 2),
    ),
    (
        "a module comes into its slot before the reader ran",
        unless(
            in_its_pass,
            lambda half, step, slot, ring: (
                half == "before" and step + ring.slots < ring.modules and step % ring.slots == slot
            ),
            lambda step, _, ring: step + ring.slots,
        ),
        "next user: ownership",
        Ring(1001, 2),
    ),
]


@pytest.mark.parametrize(
    ("rule", "reason", "ring"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG]
)
def test_one_that_does_not_is_suspected_where_it_is_wrong(
    rule: Rule, reason: str, ring: Ring
) -> None:
    policy = policy_of(rule)
    assert smallest_violation(policy, rings(policy, 12, 0)) is None
    tried = attempt(policy)
    assert tried.reason.startswith(reason)
    assert tried.least == 1001
    assert tried.suspected
    assert not check(policy(ring)).safe


def test_what_came_before_the_slots_run_before_is_not_this_module() -> None:
    """One slot for all: what comes before the run of module i-1 is module i-1."""

    def one_slot(step: int, ring: Any) -> int:
        del step, ring
        return 0

    def before_each(half: str, step: Any, slot: Any, ring: Any) -> Any:
        del ring
        return step if half == "before" and slot == 0 else None

    assert attempt(policy_of(before_each, one_slot)).reason == ""
    policy = policy_of(unless(before_each, last), one_slot)
    assert attempt(policy).reason.startswith("brought: nothing brings it behind the slot's run")
    assert not check(policy(Ring(1001, 1))).safe


# ---- each K alone


def by_a_lookup(index: int, slots: int, modules: int) -> int:
    """Targets are looked up in a list of the slots' modules, from behind."""
    ahead = index + slots
    firsts = [slots - 1 - place for place in range(slots)]
    return ahead if ahead < modules else firsts[slots - 1 - index % slots]


def wrong_for_two(index: int, slots: int, modules: int) -> int:
    """Beyond the bound of the tests, and of what is followed for all K."""
    wrong = modules > 60 and len(range(slots)) == 2
    return 0 if wrong else by_a_lookup(index, slots, modules)


@pytest.fixture
def few_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "LARGE", 14)
    monkeypatch.setattr(user, "EACH", 2)


@pytest.mark.usefixtures("few_rings")
def test_what_is_followed_for_a_known_number_of_slots_is_proved_for_each() -> None:
    result = prove_policy(by_a_lookup)
    assert (result.verdict, result.engine) == (Verdict.HOLDS_TO_BOUND, "z3 and enumeration")
    assert result.bound == "every N for each K to 2, all rings to 14x14, and 40 random ones to 56"
    assert result.reason.startswith("not followed: __index__ of an integer that stands for every")


def test_there_are_eight_of_them() -> None:
    assert user.EACH == 8


@pytest.mark.usefixtures("few_rings")
def test_where_one_of_them_fails_the_smallest_ring_is_found() -> None:
    assert not attempt(of_target(wrong_for_two), 1).reason
    result = prove_policy(wrong_for_two)
    assert result.verdict is Verdict.VIOLATED
    assert result.smallest is not None
    assert result.smallest.schedule.ring == Ring(61, 2)
