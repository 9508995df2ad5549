"""What the author of a refuted policy is told: the call, the loss, the safe target, a test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from proofs import __main__ as command
from proofs import user
from proofs.refutation import Refutation, replayed
from proofs.report import Verdict
from proofs.user import assert_policy_safe, prove_policy
from schedule import Policy, Ring, ScheduleViolation, check, policies
from schedule.arithmetic import cyclic_slot, slot_local_target
from schedule.table import Boundary


def old(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules


def sevens(index: int, slots: int, modules: int) -> int:
    """Wrong only where N is a multiple of 7 and K is 5."""
    wrong = modules % 7 == 0 and slots == 5
    return old(index, slots, modules) if wrong else slot_local_target(index, slots, modules)


def nothing(index: int, slots: int, modules: int) -> None:
    del index, slots, modules


def late(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """Each module is copied into its slot after it ran."""
    half, step = boundary
    return step if half == "after" and slot == cyclic_slot(step, ring) else None


SAID: dict[str, tuple[Any, str, str]] = {
    "old": (
        old,
        "old(index=1, slots=2, modules=3) returned 0, and that destroyed the weights of module 2 "
        "in slot 0, which runs from it next",
        "safe there: None, since no other module runs from slot 1",
    ),
    "sevens": (
        sevens,
        "sevens(index=2, slots=5, modules=7) returned 0, and that destroyed the weights of module "
        "5 in slot 0, which runs from it next",
        "safe there: None, since no other module runs from slot 2",
    ),
    "nothing": (
        nothing,
        "nothing(index=0, slots=1, modules=2) returned None, and no other call brought module 1 "
        "into slot 0 before its run, which reads module 0's weights",
        "safe there: 1, the next user of slot 0, which module 0 has just released",
    ),
    "late": (
        Policy("late", cyclic_slot, refill=late),
        "late.refill(Boundary('preload', 0), slot=0, ring=Ring(modules=1, slots=1)) returned None, "
        "and no other call brought module 0 into slot 0 before its run, which reads nothing",
        "safe there: 0, the next user of slot 0",
    ),
}


def refuted(policy: Any) -> Refutation:
    result = prove_policy(policy)
    assert result.verdict is Verdict.VIOLATED
    assert result.refutation is not None
    return result.refutation


@pytest.mark.parametrize("name", SAID)
def test_the_call_and_what_it_destroyed_are_named(name: str) -> None:
    policy, sentence, instead = SAID[name]
    found = refuted(policy)
    assert (found.sentence, found.instead) == (sentence, instead)


def pasted(text: str, module: ModuleType) -> Callable[[], None]:
    """The test, as it would be in a file of the author's."""
    space: dict[str, Any] = {}
    sys.modules[module.__name__] = module
    exec(text, space)
    (test,) = (found for name, found in space.items() if name.startswith("test_"))
    found: Callable[[], None] = test
    return found


def test_the_pasted_test_fails_until_the_policy_is_right() -> None:
    rules = ModuleType("my_rules_to_mend")
    rules.rule = old  # type: ignore[attr-defined]
    result = prove_policy(old, "my_rules_to_mend:rule")
    assert result.refutation is not None
    text = result.refutation.test
    assert "def test_rule_with_3_modules_and_2_slots():" in text
    test = pasted(text, rules)
    with pytest.raises(ScheduleViolation, match="slot 0"):
        test()
    rules.rule = slot_local_target  # type: ignore[attr-defined]
    test()
    del sys.modules["my_rules_to_mend"]


def test_the_name_is_the_function_s_own_if_there_is_no_other() -> None:
    assert f'load("{__name__}:old")(Ring(modules=3, slots=2))' in refuted(old).test
    assert 'load("your.module:your_policy")' in refuted(SAID["late"][0]).test
    assert 'load("your.module:your_policy")' in refuted(lambda i, k, n: old(i, k, n)).test


@pytest.mark.parametrize("ring", [Ring(3, 2), Ring(5, 2), Ring(7, 3), Ring(9, 4)], ids=str)
@pytest.mark.parametrize("name", ["old", "nothing"])
def test_the_safe_target_taken_call_by_call_ends_in_a_safe_schedule(ring: Ring, name: str) -> None:
    """It is no advice if it only moves the fault."""
    changed: dict[int, int | None] = {}

    def rule(index: int, slots: int, modules: int) -> int | None:
        found: int | None = SAID[name][0](index, slots, modules)
        return changed.get(index, found)

    for _ in range(ring.modules + 1):
        policy = policies.of_target(rule)
        findings = check(policy(ring))
        if findings.safe:
            break
        said = user.explain(policy, findings, None)
        index = re.search(r"index=(\d+)", said.sentence)
        target = re.match(r"safe there: (\d+|None)", said.instead)
        assert index is not None
        assert target is not None
        assert int(index[1]) not in changed
        changed[int(index[1])] = None if target[1] == "None" else int(target[1])
    assert check(policies.of_target(rule)(ring)).safe
    assert changed


def restart_but(half: str, step: int, slot: int, module: int | None) -> Policy:
    """A rule that is right but for one call, at N=4, K=2: preloaded, then each slot's next user."""

    def rule(boundary: Boundary, own: int, ring: Any) -> int | None:
        at, index = boundary[0], boundary[1] % ring.modules
        if (ring.modules, ring.slots) == (4, 2) and (*boundary, own) == (half, step, slot):
            return module
        if at == "preload":
            return own if own < ring.modules else None
        if at == "after" and index % ring.slots == own:
            return index + ring.slots if index + ring.slots < ring.modules else own
        return None

    return Policy("mine", cyclic_slot, refill=rule)


@pytest.mark.parametrize(
    ("half", "step", "slot", "module", "advice"),
    [
        ("before", 2, 0, 0, 2),
        ("enter", 0, 0, 3, 0),
        ("preload", 0, 1, 3, 1),
        ("preload", 0, 1, None, 1),
        ("after", 0, 0, 1, 2),
        ("after", 3, 1, None, 1),
        ("leave", 3, 1, 2, 1),
    ],
)
def test_of_a_rule_for_refills_the_call_is_named_and_its_advice_is_safe(
    half: str, step: int, slot: int, module: int | None, advice: int
) -> None:
    policy = restart_but(half, step, slot, module)
    said = user.explain(policy, check(policy(Ring(4, 2))), None)
    assert said.sentence.startswith(
        f"mine.refill(Boundary({half!r}, {step}), slot={slot}, ring=Ring(modules=4, slots=2)) "
        f"returned {module}, and "
    )
    assert said.instead.startswith(f"safe there: {advice}, the next user of slot {slot}")
    assert check(restart_but(half, step, slot, advice)(Ring(4, 2))).safe


def test_all_of_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["policy", "modular"]) == Verdict.VIOLATED.value
    out = capsys.readouterr().out
    at = 0
    for text in (
        "VIOLATED        modular: smallest N=3, K=2",
        "ownership  VIOLATED",
        "modular(index=1, slots=2, modules=3) returned 0, and that destroyed",
        "safe there: None",
        "from schedule.loading import load",
        '    verify(load("modular")(Ring(modules=3, slots=2)))\n',
    ):
        at = out.index(text, at)


def test_a_users_test_says_it_too() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_policy_safe(old)
    assert SAID["old"][1] in str(caught.value)
    assert SAID["old"][2] in str(caught.value)


def test_what_the_machine_does_not_replay_is_a_disagreement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replayed(check(policies.modular(Ring(3, 2))))
    monkeypatch.setattr(user, "replayed", lambda _: False)
    assert command.main(["policy", "modular"]) == Verdict.DISAGREE.value
    assert "the machine does not come to the same violations" in capsys.readouterr().out
