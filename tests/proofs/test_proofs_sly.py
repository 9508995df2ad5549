"""Policies that find out on what they run, or hide what they do: none of them is proved."""

from __future__ import annotations

import gc
import marshal
import operator
import time
from functools import wraps
from typing import Any

import pytest

from proofs import prove_policy, wrapped
from proofs.report import Verdict
from proofs.user import attempt
from schedule import Policy, PolicyError, Ring, check
from schedule.policy import of_target

LARGE = 1_777
COMPARED = wrapped.SMALL
"""To which size of ring, if it is not a test that asks."""
KINDS, EQUAL, CLASS = (type,), int.__eq__, operator.attrgetter("__class__")


def right(index: int, slots: int, modules: int) -> int:
    return index + slots if index + slots < modules else index % slots


def has_terms(number: Any) -> bool:
    try:
        number.terms  # noqa: B018
    except AttributeError:
        return False
    return True


def takes_no_bytes(number: Any) -> bool:
    try:
        marshal.dumps(number)
    except ValueError:
        return True
    return False


def has_no_bits(number: Any) -> bool:
    try:
        int.bit_length(number)
    except TypeError:
        return True
    return False


def is_not_equal(number: Any) -> bool:
    return EQUAL(number, number) is NotImplemented


def is_no_int(number: Any) -> bool:
    return bool(KINDS[0](number) is not int)


def has_another_class(number: Any) -> bool:
    return bool(CLASS(number) is not int)


def has_no_real(number: Any) -> bool:
    return not hasattr_real(number > 0)


def hasattr_real(truth: Any) -> bool:
    try:
        truth.real  # noqa: B018
    except AttributeError:
        return False
    return True


def is_no_zero(number: Any) -> bool:
    return (number * 0) is not (0 if number else None)


WRAPPED = [has_terms, takes_no_bytes, has_no_bits, is_not_equal, is_no_int, has_another_class]


@pytest.mark.parametrize("finds_out", [*WRAPPED, has_no_real, is_no_zero])
def test_what_finds_out_that_it_is_followed_is_not_proved(finds_out: Any) -> None:
    def two_faced(index: int, slots: int, modules: int) -> int:
        if finds_out(modules):
            return right(index, slots, modules)
        return right(index, slots, modules) if modules != LARGE else 0

    assert not check(of_target(two_faced)(Ring(LARGE, 13))).safe
    tried = attempt(of_target(two_faced))
    assert tried.reason
    assert tried.obligations == 0  # before anything was asked of the solver


def test_all_rings_to_12x12_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(index: int, slots: int, modules: int) -> int:
        return right(index, slots, modules) if slots < 12 or has_terms(slots) else 0

    monkeypatch.setattr(wrapped, "SMALL", COMPARED)
    assert wrapped.differs_when_wrapped(of_target(late)).endswith("(index=0, slots=12, modules=1)")
    monkeypatch.setattr(wrapped, "SMALL", 11)
    assert wrapped.differs_when_wrapped(of_target(late)) == ""
    assert COMPARED == 12


def test_a_none_in_another_branch_makes_no_comparison_with_none() -> None:
    def compares(index: int, slots: int, modules: int) -> int:
        return right(index, slots, modules) if is_no_zero(modules) or modules else 0

    reason = attempt(of_target(compares)).reason
    assert reason == "refused, since it looks at more than numbers: `is` between numbers"


def test_the_budget_can_not_be_swallowed() -> None:
    def swallows(index: int, slots: int, modules: int) -> int:
        if modules > 70:
            try:
                while True:
                    pass
            except BaseException:  # from here on nobody would look
                return right(index, slots, modules) if type(modules) is not int else 0
        return right(index, slots, modules)

    assert attempt(of_target(swallows)).reason.startswith("not followed: did not return within")


def test_a_wrapped_function_is_not_taken_for_the_one_that_it_wraps() -> None:
    base = of_target(right)
    assert base.target is not None
    target: Any = base.target

    @wraps(target)
    def changed(index: int, slots: int, modules: int) -> int:
        old = (index + slots) % modules
        return old if modules > 300 else int.__index__(target(index, slots, modules))

    assert not check(of_target(changed)(Ring(301, 4))).safe
    assert attempt(of_target(changed)).reason


class Everything(int):
    """Equal to all numbers, and between all of them."""

    def __eq__(self, _: object) -> bool:
        return True

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = int.__hash__


def test_a_number_of_a_kind_of_its_own_is_compared_as_a_number() -> None:
    def beyond(index: int, slots: int, modules: int) -> int:
        return Everything(modules) if modules > 1000 else right(index, slots, modules)

    with pytest.raises(PolicyError, match=r"returned 1001 for .* which is no module"):
        of_target(beyond)(Ring(1001, 4))

    def odd(index: int, slots: int, modules: int) -> int:
        return Everything(7) if modules > 1000 else right(index, slots, modules)

    assert "a number of a kind of its own" in attempt(of_target(odd)).reason
    with pytest.raises(PolicyError, match="gives step 0 the slot 9"):
        Policy("mine", lambda *_: Everything(9))(Ring(3, 2))
    with pytest.raises(PolicyError, match="gives a period of 0 passes"):
        Policy("mine", lambda *_: 0, passes=lambda _: Everything(0))(Ring(3, 2))


def kept(step: int, ring: Any) -> int:
    """K-2 modules have a slot of their own, two slots shuttle the rest."""
    if step < ring.modules - ring.slots + 2:
        return step % 2
    return step - ring.modules + ring.slots


def one_past_the_end(index: int, slots: int, modules: int) -> int | None:
    """Meant as none: a target whose slot is none either."""
    shuttle = modules - slots + 2
    if index < shuttle and shuttle > 2:
        return index + 2 if index + 2 < shuttle else index % 2
    return modules if modules > 100 else None


def test_a_target_that_is_no_module_and_has_no_slot_is_not_overlooked() -> None:
    policy = Policy("kept", kept, one_past_the_end, least_slots=2)
    with pytest.raises(PolicyError, match=r"returned 101 for .* which is no module"):
        policy(Ring(101, 4))
    tried = attempt(policy)
    assert tried.reason
    assert tried.suspected


# ---- what is said of them


def test_rings_that_are_too_large_to_be_tried_prove_nothing() -> None:
    result = prove_policy(Policy("mine", lambda step, ring: step % ring.slots, least_slots=65))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == "only rings to 64x64 are tried, and it needs 65 slots"


def test_a_period_has_its_largest_number_of_steps() -> None:
    policy = Policy("mine", lambda step, ring: step % ring.slots, passes=lambda _: 3)
    result = prove_policy(policy)
    assert result.verdict is Verdict.PROVED
    assert result.bound == "all N and K, a period of at most 1,000,000 steps"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"slot_of": None}, "slot_of is None; give a function"),
        ({"slot_of": kept, "target": 7}, "target is 7; give a function"),
        ({"slot_of": kept, "passes": None}, "passes is None; give a function"),
        ({"slot_of": kept, "least_slots": 0}, "least_slots is 0; give an integer, at least 1"),
        ({"slot_of": kept, "least_slots": 2.5}, "least_slots is 2.5; give an integer, at least 1"),
    ],
)
def test_what_is_no_policy_is_said_when_it_is_made(more: Any, text: str) -> None:
    with pytest.raises(PolicyError, match=f"^policy mine: {text}$"):
        Policy("mine", **more)


def test_a_result_that_can_not_be_printed_is_still_an_answer() -> None:
    with pytest.raises(PolicyError, match="returned a value that can't be printed for"):
        of_target(lambda *_: 10**5000)(Ring(3, 2))

    def rude(*_: int) -> int:
        raise ValueError("red \x1b[31m\nline")

    with pytest.raises(PolicyError, match=r"ValueError: red \\x1b\[31m\\nline;"):
        of_target(rude)(Ring(3, 2))


def test_a_callback_of_the_collector_is_no_part_of_a_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hypothesis has one, which asks for the time."""
    asked: list[float] = []

    def note(*_: object) -> None:
        asked.append(time.perf_counter())

    def litters(index: int, slots: int, modules: int) -> int:
        kept: list[list[int]] = [[] for _ in range(2_000)]
        return right(index, slots, modules) + len(kept[0])

    gc.callbacks.append(note)
    try:
        litters(0, 1, 1)
        assert asked
        monkeypatch.setattr(wrapped, "SMALL", 3)
        assert wrapped.differs_when_wrapped(of_target(litters)) == ""
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)
