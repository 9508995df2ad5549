"""The stateful machine: every rule runs, safe policies hold, wrong ones are found and shrunk."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from proofs import strategies
from proofs.stateful import PolicyMachine, policy_machine
from schedule import Policy, PolicyError, Ring, machine, policies
from tests.quality.planted import IN_TIME, PLANTED, right

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    stateful_step_count=40,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
QUICK = settings(FIXED, phases=[Phase.generate])
MARK = "hypothesis_stateful_rule"
RULES = {
    "pass_begins",
    "pass_ends",
    "pass_ends_early",
    "module_arrives",
    "module_arrives_out_of_order",
    "guard_reloads",
    "copy_begins",
    "copy_lands",
    "module_begins",
    "module_ends",
}


def run(model: type[PolicyMachine], examples: int = 50, how: settings = FIXED) -> None:
    run_state_machine_as_test(model, settings=settings(how, max_examples=examples))


def rarely(model: type[PolicyMachine], least: int) -> set[str]:
    """The rules that ran less than so often."""
    return {name for name in RULES if model.ran[name] < least}


def test_every_rule_runs_often() -> None:
    """So no precondition is one that never holds; and the counts are of this class alone."""
    model, other = policy_machine(policies.chain), policy_machine(policies.chain)
    run(model, 200)
    marked = (name for name in dir(model) if hasattr(getattr(model, name), MARK))
    assert set(model.ran) == {*marked} == RULES
    assert rarely(model, 8) == set(), model.ran
    assert model.ran["copy_lands"] <= model.ran["copy_begins"]
    assert not other.ran


@pytest.mark.parametrize("number", range(3))
def test_the_old_rule_is_found_with_the_settings_that_a_user_gets(number: int) -> None:
    model = seed(number)(policy_machine(policies.modular))
    how = settings(model.TestCase.settings, database=None, phases=[Phase.generate])
    assert (how.max_examples, how.stateful_step_count) == (300, 60)
    with pytest.raises(AssertionError, match=r"ownership|identity"):
        run_state_machine_as_test(model, settings=how)


def test_a_rule_that_never_runs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyMachine, "misses", lambda _: False)
    model = policy_machine(policies.on_demand)
    run(model, 20)
    assert "guard_reloads" in rarely(model, 1)


@pytest.mark.parametrize(
    "policy",
    [policies.slot_local, policies.rotating, policies.restart, policies.one_ahead, right, IN_TIME],
    ids=lambda one: getattr(one, "name", "right"),
)
def test_a_safe_policy_holds_whatever_comes(policy: Any) -> None:
    run(policy_machine(policy), 20)


@pytest.mark.parametrize(
    "name", ["stops_early", "one_short", "before_it_ended", "wrong_in_the_second_pass"]
)
def test_a_wrong_policy_is_found(name: str) -> None:
    small = strategies.rings(max_modules=3, max_slots=2)
    with pytest.raises(AssertionError, match=r"^(ownership|identity): .*, Ring\(modules="):
        run(policy_machine(PLANTED[name][0], small), 400, QUICK)


def test_a_wrong_policy_shrinks_to_the_smallest_ring_and_its_first_wrong_event() -> None:
    small = strategies.rings(max_modules=3, max_slots=2)
    with pytest.raises(AssertionError) as failure:
        run(policy_machine(PLANTED["wraps_to_the_first"][0], small), 400)
    first = "ownership: CopyBegins(slot=0, module=0), pass 0 of 1, Ring(modules=3, slots=2)"
    assert str(failure.value).splitlines()[0] == first
    lines = [line for line in failure.value.__notes__ if line.startswith("state.")]
    count = Counter(line.partition("(")[0].removeprefix("state.") for line in lines)
    assert (count["copy_begins"], count["copy_lands"]) == (4, 3)
    assert (count["module_begins"], count["module_ends"]) == (2, 2)
    assert (count["pass_begins"], count["pass_ends"], count["guard_reloads"]) == (1, 0, 0)


@pytest.mark.parametrize("answer", [None, machine.Objection("WAR", 0)], ids=str)
def test_a_machine_that_answers_wrongly_is_found(
    answer: machine.Objection | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dict is of its own: it sees what the machine lets pass, and what it forbids."""
    monkeypatch.setattr(machine, "objection", lambda *_: answer)
    with pytest.raises(AssertionError, match=r"^the machine says .* at "):
        run(policy_machine(policies.modular, st.just(Ring(3, 2))), 200, QUICK)


def test_a_machine_that_forgets_a_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = machine.effect

    def forgets(state: machine.State, event: machine.Event) -> machine.State:
        return state if isinstance(event, machine.CopyLands) else effect(state, event)

    monkeypatch.setattr(machine, "effect", forgets)
    with pytest.raises(AssertionError):
        run(policy_machine(policies.chain, st.just(Ring(1, 1))), 20, QUICK)


class TestMine(policy_machine(right, strategies.rings(max_modules=3, max_slots=2)).TestCase):  # type: ignore[misc]
    """As a user would write it."""

    settings = settings(FIXED, max_examples=10)


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(PolicyError, match="a policy is a function"):
        policy_machine(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rings are drawn from a strategy, got 3"):
        policy_machine(right, 3)  # type: ignore[arg-type]


def test_the_policy_s_least_slots_are_kept() -> None:
    three = Policy("three", lambda step, _: step % 3, least_slots=3)
    run(policy_machine(three), 10)
    five = policy_machine(Policy("five", lambda step, _: step % 5, least_slots=5))
    run(five, 5)
    assert five.ran["pass_begins"] > 0
