"""A policy that is no function of its arguments alone is refused, with that reason."""

from __future__ import annotations

import datetime
import functools
import itertools
import logging
import math
import os
import random
import secrets
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from random import randint
from typing import Any

import pytest

from proofs import assert_policy_safe, enumeration, prove_policy
from proofs.purity import impure
from proofs.reach import assigned, reached
from proofs.report import Verdict
from proofs.user import attempt
from proofs.wrapped import differs_when_wrapped
from schedule import Policy, PolicyError
from schedule.policy import NAMED, guarded_policy, of_target

DRAW = random.Random(0)
CALLS: list[int] = []
MEMO: dict[tuple[int, int], int] = {}
SEEN: dict[str, list[int]] = {"all": []}
COUNTER = itertools.count()
LARGE = 10**9
LOG = logging.getLogger(__name__)


def right(index: int, slots: int, modules: int) -> int:
    return index + slots if index + slots < modules else index % slots


def helper(index: int, slots: int) -> int:
    return index % slots if DRAW.random() < 2 else 0


def by_chance(index: int, slots: int, modules: int) -> int:
    return random.choice([right(index, slots, modules)])


def by_a_name(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) + randint(0, 0)


def by_a_helper(index: int, slots: int, modules: int) -> int:
    return index + slots if index + slots < modules else helper(index, slots)


def by_secrets(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) + secrets.randbelow(1)


def by_the_clock(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if time.time() > 0 else 0


def by_the_date(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if datetime.date.today().year > 2000 else 0


def by_the_clock_of_large_rings(index: int, slots: int, modules: int) -> int:
    if modules > 1000 and time.monotonic() > LARGE:
        return 0
    return right(index, slots, modules)


def by_the_environment(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if os.environ.get("RULE") is None else 0


def by_a_file(index: int, slots: int, modules: int) -> int:
    with open("rule") as file:
        return right(index, slots, modules) + int(file.read())


def by_an_iterator(index: int, slots: int, modules: int) -> int:
    return right(index, slots, modules) if next(COUNTER) < LARGE else 0


def by_a_default(index: int, slots: int, modules: int, draw: Any = DRAW) -> int:
    return right(index, slots, modules) + draw.randrange(1)


def by_a_global(index: int, slots: int, modules: int) -> int:
    global LARGE
    LARGE += 1
    return right(index, slots, modules)


def by_a_list(index: int, slots: int, modules: int) -> int:
    CALLS.append(index)
    return right(index, slots, modules) if len(CALLS) < LARGE else 0


def by_a_list_in_a_table(index: int, slots: int, modules: int) -> int:
    SEEN["all"].append(index)
    return right(index, slots, modules) if len(SEEN["all"]) < LARGE else 0


def by_a_memo(index: int, slots: int, modules: int) -> int:
    if (index, slots) not in MEMO:
        MEMO[index, slots] = index % slots
    return index + slots if index + slots < modules else MEMO[index, slots]


def by_its_own_attribute(index: int, slots: int, modules: int) -> int:
    by_its_own_attribute.calls = index  # type: ignore[attr-defined]
    return right(index, slots, modules)


def made() -> Any:
    calls = 0

    def by_a_closure(index: int, slots: int, modules: int) -> int:
        nonlocal calls
        calls += 1
        return right(index, slots, modules) if calls < LARGE else 0

    return by_a_closure


class Counts:
    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, index: int, slots: int, modules: int) -> int:
        self.calls.append(index)
        return right(index, slots, modules)

    def method(self, index: int, slots: int, modules: int) -> int:
        return self(index, slots, modules)


IMPURE: list[tuple[Any, str]] = [
    (by_chance, "it depends on chance: it uses random.choice"),
    (by_a_name, "it depends on chance: it uses randint"),
    (by_a_helper, "it depends on chance: it uses DRAW"),
    (by_secrets, "it depends on chance: it uses secrets.randbelow"),
    (by_the_clock, "it depends on the clock: it uses time.time"),
    (by_the_date, "it depends on the clock: it uses datetime.date"),
    (by_the_clock_of_large_rings, "it depends on the clock: it uses time.monotonic"),
    (by_the_environment, "it depends on the world outside: it uses os.environ"),
    (by_a_file, "it depends on the world outside: it uses open"),
    (by_an_iterator, "it keeps state: COUNTER is a count"),
    (by_a_default, "it depends on chance: it uses the default of draw"),
    (by_a_global, "it keeps state: it assigns LARGE"),
    (by_a_list, "it keeps state: CALLS changes from call to call"),
    (by_a_list_in_a_table, "it keeps state: SEEN changes from call to call"),
    (by_a_memo, "it keeps state: MEMO changes from call to call"),
    (by_its_own_attribute, "it keeps state: itself changes from call to call"),
    (made(), "it keeps state: it assigns calls"),
    (Counts(), "it keeps state: itself changes from call to call"),
    (Counts().method, "it keeps state: self changes from call to call"),
    (functools.partial(by_a_list), "it keeps state: CALLS changes from call to call"),
]


@pytest.mark.parametrize(("policy", "why"), IMPURE, ids=[why for _, why in IMPURE])
def test_it_is_refused_with_the_reason(
    policy: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "LARGE", 13)  # to save time
    MEMO.clear()
    result = prove_policy(policy)
    assert (result.verdict, result.smallest) == (Verdict.UNKNOWN, None)
    assert result.reason == f"refused, since {why}; its answers prove nothing"
    MEMO.clear()  # filled for all that is asked, it would not change again
    with pytest.raises(AssertionError, match="is UNKNOWN: refused, since it "):
        assert_policy_safe(policy, to_bound=True)


def hidden_state() -> Any:
    """State where the walk does not look: behind an object without attributes."""

    def endless() -> Iterator[int]:
        yield from itertools.count()

    class Hides:
        __slots__ = ("numbers",)

        def __init__(self) -> None:
            self.numbers = endless()

    hides = Hides()

    def drifts(index: int, slots: int, modules: int) -> int:
        return right(index, slots, modules) if next(hides.numbers) < 500 else 0

    return drifts


def test_other_answers_when_asked_again_are_state() -> None:
    assert impure(of_target(hidden_state())) == (
        "it keeps state or is random: target(index=0, slots=1, modules=2) returned 1, and 0 "
        "when asked again"
    )


# ---- what is pure, and must not be refused

TABLE = {"few": (1, 2, 3), "bound": 7}


@functools.cache
def cached(slots: int) -> int:
    return slots


def with_a_cache(index: int, slots: int, modules: int) -> int:
    return right(index, cached(slots), modules)


def with_a_table(index: int, slots: int, modules: int) -> int:
    assert TABLE["bound"], "read, not written"
    return right(index, slots, modules)


def with_locals_that_change(index: int, slots: int, modules: int) -> int:
    found: list[int] = []
    count = 0

    def keep(value: int) -> None:
        nonlocal count
        count += 1
        found.append(value)

    keep(right(index, slots, modules))
    return found[0] if count == 1 else 0


def with_the_largest(index: int, slots: int, modules: int) -> int:
    return min(sys.maxsize, right(index, slots, modules))


class Keeps:
    """An object that is only read."""

    def __init__(self) -> None:
        self.more = 0

    def __call__(self, index: int, slots: int, modules: int) -> int:
        return right(index, slots, modules) + self.more


PURE = [right, with_a_cache, with_a_table, with_locals_that_change, with_the_largest, Keeps()]


@pytest.mark.parametrize("policy", PURE)
def test_a_pure_one_is_not_refused(policy: Any) -> None:
    assert impure(of_target(policy)) == ""


@pytest.mark.parametrize("name", NAMED)
def test_nor_is_a_named_one(name: str) -> None:
    assert impure(NAMED[name]) == ""


def test_every_function_of_a_policy_is_looked_at() -> None:
    def slot(step: int, ring: Any) -> int:
        return int(step % ring.slots)

    def random_slot(step: int, ring: Any) -> int:
        return int((step + DRAW.randrange(1)) % ring.slots)

    def refill(boundary: Any, slot: int, ring: Any) -> int | None:
        CALLS.append(slot)
        wanted = boundary.half == "before" and slot == boundary.step % ring.slots
        return int(boundary.step) if wanted else None

    for policy, why in (
        (Policy("mine", random_slot), "it depends on chance: it uses DRAW"),
        (Policy("mine", slot, refill=refill), "it keeps state: CALLS changes from call to call"),
        (
            Policy("mine", slot, passes=lambda _: 1 + DRAW.randrange(1)),
            "it depends on chance: it uses DRAW",
        ),
    ):
        assert impure(guarded_policy(policy)) == why


def test_what_is_no_policy_is_an_error() -> None:
    with pytest.raises(PolicyError, match="raised ZeroDivisionError"):
        impure(of_target(lambda index, slots, _: index // (slots - 3)))


# ---- the walk


def test_the_walk_goes_through_functions_and_modules_and_ends() -> None:
    names = [name for name, _ in reached(by_a_helper)]
    assert names[:3] == ["itself", "helper", "DRAW"]

    def again(depth: int) -> int:
        return again(depth - 1) if depth else 0

    assert [name for name, _ in reached(again)] == ["itself"]
    assert "math.gcd" in [name for name, _ in reached(with_gcd)]
    assert "slots" not in [name for name, _ in reached(with_gcd)]


def with_gcd(slots: int) -> int:
    return math.gcd(slots, 2)


def test_what_a_function_assigns_outside_itself() -> None:
    assert list(assigned(by_a_global)) == ["LARGE"]
    assert list(assigned(made())) == ["calls"]
    assert list(assigned(with_locals_that_change)) == []


# ---- where no small ring goes


class Coin:
    def flip(self) -> bool:
        return random.random() < 2


COIN, LATER, LISTED = Coin(), ContextVar("LATER", default=0), [itertools.count()]
RULES = {"now": lambda: time.time() > 0}


def on(large: Any) -> Any:
    def rule(index: int, slots: int, modules: int) -> int:
        if modules > 1000 and large(index):
            return 0
        return right(index, slots, modules)

    return rule


BEYOND: list[tuple[Any, str]] = [
    (lambda _: os.path.exists("flag"), "it depends on the world outside: it uses posixpath.exists"),
    (lambda _: next(LISTED[0]) < 0, "it keeps state: what is in a container is a count"),
    (lambda _: LATER.get() > 0, "it keeps state: LATER is a ContextVar"),
    (lambda _: CALLS.append(1), "it keeps state: CALLS changes from call to call"),
]


@pytest.mark.parametrize(("large", "why"), BEYOND)
def test_what_only_large_rings_do_is_found(
    large: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "LARGE", 13)
    result = prove_policy(on(large))
    assert (result.verdict, result.smallest) == (Verdict.UNKNOWN, None)
    assert result.reason == f"refused, since {why}; its answers prove nothing"


@pytest.mark.parametrize(
    ("large", "why"),
    [
        (lambda _: not COIN.flip(), "it depends on chance: it calls random"),
        (lambda _: not RULES["now"](), "it depends on the clock: it uses time.time"),
    ],
)
def test_nor_is_it_proved_if_it_is_first_seen_when_it_is_called(large: Any, why: str) -> None:
    rule = of_target(on(large))
    assert why in impure(rule) + attempt(rule).reason
    assert not attempt(rule).believed


def test_a_log_is_no_state() -> None:
    def logs(index: int, slots: int, modules: int) -> int:
        LOG.debug("asked")
        return right(index, slots, modules)

    assert impure(of_target(logs)) == ""


def test_a_rule_for_refills_is_asked_for_boundaries_that_there_are() -> None:
    def refill(boundary: Any, slot: int, ring: Any) -> int | None:
        half, step = boundary
        assert half in ("before", "after") or step == (ring.modules - 1 if half == "leave" else 0)
        return int(step) if half == "before" and slot == step % ring.slots else None

    def cyclic(step: int, ring: Any) -> int:
        return int(step % ring.slots)

    rule = Policy("mine", cyclic, refill=refill)
    assert impure(guarded_policy(rule)) == ""
    assert differs_when_wrapped(guarded_policy(rule)) == ""
