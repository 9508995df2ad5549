"""What a symbolic run can't follow is said, with the reason; it never comes out as a result."""

from __future__ import annotations

import contextlib
import math
import operator
import random
import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from proofs import symbolic
from proofs.obligation import Obligation, discharge
from proofs.symbolic import NotFollowed, Run, explore
from proofs.wrapped import differs_on_a_path, differs_when_wrapped
from schedule.policy import of_target
from tests.proofs.kit import paths

TEN = list(range(10))

REFUSED: list[tuple[str, str]] = [
    ("TEN[x]", "__index__ of"),
    ("'text'[x:]", "__index__ of"),
    ("range(x)", "__index__ of"),
    ("bytes(x)", "__index__ of"),
    ("bin(x)", "__index__ of"),
    ("math.gcd(x, y)", "__index__ of"),
    ("math.isqrt(x)", "__index__ of"),
    ("struct.pack('i', x)", "__index__ of"),
    ("int(x)", "__int__ of"),
    ("'%d' % x", "__int__ of"),
    ("float(x)", "__float__ of"),
    ("math.sqrt(x)", "__float__ of"),
    ("complex(x)", "__complex__ of"),
    ("str(x)", "__str__ of"),
    ("f'{x}'", "__format__ of"),
    ("f'{x:3}'", "__format__ of"),
    ("'{}'.format(x)", "__format__ of"),
    ("'%s' % x", "__str__ of"),
    ("f'{x!r}'", "__repr__ of"),
    ("repr([x])", "__repr__ of"),
    ("ascii(x)", "__repr__ of"),
    ("hash(x)", "__hash__ of"),
    ("{x: 1}", "__hash__ of"),
    ("{x, y}", "__hash__ of"),
    ("x in {1, 2}", "__hash__ of"),
    ("{1: 2}.get(x)", "__hash__ of"),
    ("hash((x, 1))", "__hash__ of"),
    ("x / 2", "__truediv__ of"),
    ("2 / x", "__rtruediv__ of"),
    ("x ** 2", "__pow__ of"),
    ("2 ** x", "__rpow__ of"),
    ("pow(x, 2)", "__pow__ of"),
    ("x << 1", "__lshift__ of"),
    ("1 << x", "__rlshift__ of"),
    ("x >> 1", "__rshift__ of"),
    ("1 >> x", "__rrshift__ of"),
    ("x & 1", "__and__ of"),
    ("1 & x", "__rand__ of"),
    ("x | 1", "__or__ of"),
    ("1 | x", "__ror__ of"),
    ("x ^ y", "__xor__ of"),
    ("1 ^ x", "__rxor__ of"),
    ("x @ y", "__matmul__ of"),
    ("~x", "__invert__ of"),
    ("round(x)", "__round__ of"),
    ("round(x, -1)", "__round__ of"),
    ("math.trunc(x)", "__trunc__ of"),
    ("math.floor(x)", "__floor__ of"),
    ("math.ceil(x)", "__ceil__ of"),
    ("len(x)", "__len__ of"),
    ("[*x]", "__iter__ of"),
    ("x[0]", "__getitem__ of"),
    ("1 in x", "__contains__ of"),
    ("x.bit_length()", "the attribute bit_length of"),
    ("x.real", "the attribute real of"),
    ("getattr(x, 'imag', 0)", "the attribute imag of"),
    ("hasattr(x, 'numerator')", "the attribute numerator of"),
    ("x + 1.5", r"\+ between an integer and a float"),
    ("1.5 - x", "- between an integer and a float"),
    ("x * 2.0", r"\* between an integer and a float"),
    ("x // 2.0", "divmod between an integer and a float"),
    ("5.0 % x", "divmod between an integer and a float"),
    ("x == 1.0", "== between an integer and a float"),
    ("x < 0.5", "< between an integer and a float"),
    ("x >= None", ">= between an integer and a NoneType"),
    ("x * 'text'", r"\* between an integer and a str"),
    ("[0] * x", r"\* between an integer and a list"),
    ("x // -2", "division by a negative number"),
    ("x % -y if y > 0 else 0", "division by a negative number"),
    ("divmod(x, y) if y else 0", "division by a negative number"),
]


def function(text: str) -> Callable[[Any, Any], Any]:
    found: Callable[[Any, Any], Any] = eval(
        f"lambda x, y: {text}", {"TEN": TEN, "math": math, "struct": struct}
    )
    return found


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_it_is_not_followed_and_says_why(text: str, why: str) -> None:
    with pytest.raises(NotFollowed, match=f"^{why}"):
        paths(function(text), "x", "y")


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=[text for text, _ in REFUSED])
def test_nor_is_it_when_the_function_swallows_that(text: str, why: str) -> None:
    inner = function(text)

    def swallows(x: Any, y: Any) -> Any:
        try:
            return inner(x, y)
        except BaseException:
            return 0

    with pytest.raises(NotFollowed, match=f"^{why}"):
        paths(swallows, "x", "y")


@pytest.mark.parametrize("text", ["x / 2", "str(x)", "x.real", "x == 1.0", "x << 1"])
def test_nor_a_known_number_in_wrapping(text: str) -> None:
    run = Run()
    with pytest.raises(NotFollowed):
        function(text)(run.number(4), run.number(2))
    assert run.lost


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("TEN[x]", [0, 1, 2]),
        ("TEN[x - 1]", [9, 0, 1]),
        ("'text'[x:]", ["text", "ext", "xt"]),
        ("len(range(x))", [0, 1, 2]),
        ("{0: 5, 1: 6, 2: 7}[x]", [5, 6, 7]),
        ("int(x) & 1", [0, 1, 0]),
    ],
)
def test_an_integer_of_few_values_is_an_index(text: str, values: list[Any]) -> None:
    found = paths(function(text), "x", "y", where=lambda x, _: [x >= 0, x < 3])
    for x, expected in enumerate(values):
        at = {"x": x, "y": 0}
        assert [way.value(at) for way in found if way.taken_by(at)] == [expected]


def test_one_of_many_values_is_none() -> None:
    assert len(paths(function("TEN[x % 3]"), "x", "y")) == 3
    few = symbolic.FEW
    for least, most in ((0, few - 1), (-few, few - 1)):
        count = len(paths(int, "x", where=lambda x, low=least, high=most: [x >= low, x <= high]))
        assert count == most - least + 1
    for least, most in ((0, few), (-few - 1, 0)):
        with pytest.raises(NotFollowed, match=r"^__int__ of an integer"):
            paths(int, "x", where=lambda x, low=least, high=most: [x >= low, x <= high])


def test_only_the_path_that_needs_it_is_to_blame() -> None:
    with pytest.raises(NotFollowed, match="__truediv__"):
        paths(function("x / 2 if x > 1000 else x"), "x", "y")
    inside = paths(function("x / 2 if x > 1000 else x"), "x", "y", where=lambda x, _: [x < 1000])
    assert [way.value({"x": 7, "y": 0}) for way in inside] == [7]


# ---- loops, and too much of anything


def counts_down(x: Any) -> Any:
    while x > 0:
        x = x - 1
    return x


def descends(x: Any) -> Any:
    return 1 + descends(x - 1) if x > 0 else 0


@pytest.mark.parametrize("endless", [counts_down, descends])
def test_a_loop_without_a_bound(endless: Any) -> None:
    with pytest.raises(NotFollowed, match=r"^a loop or recursion with more than 250 decisions"):
        paths(endless, "x")


def test_a_loop_with_a_bound_is_followed() -> None:
    found = paths(counts_down, "x", where=lambda x: [x <= 30])
    assert len(found) == 31
    assert [way.value({"x": 17}) for way in found if way.taken_by({"x": 17})] == [0]


def test_too_many_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubles(*unknowns: Any) -> int:
        return sum(bool(unknown > 0) for unknown in unknowns)

    assert len(paths(doubles, *"abcd")) == 16
    monkeypatch.setattr(symbolic, "PATHS", 15)
    with pytest.raises(NotFollowed, match=r"^more than 15 paths"):
        paths(doubles, *"abcd")


def test_the_limits_are_real_ones() -> None:
    assert symbolic.PATHS == 2_000
    assert symbolic.DECISIONS == 250


# ---- functions that are none


class Stateful:
    """Decides on its first call what it does not decide on later ones."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> int:
        self.calls += 1
        return 1 if self.calls == 1 and x > 3 else 0


def test_a_function_that_decides_less_when_run_again() -> None:
    with pytest.raises(NotFollowed, match="it decides otherwise when run again"):
        paths(Stateful(), "x")


def test_a_random_function() -> None:
    draw = random.Random(0).random

    def flips(x: Any) -> int:
        return sum(bool(x > bound) for bound in range(8) if draw() < 0.5)

    with pytest.raises(NotFollowed, match="it decides otherwise when run again"):
        paths(flips, "x")


def test_a_function_that_decides_otherwise_when_run_again() -> None:
    bounds = iter((3, 1, 1, 1))

    def drifts(x: Any) -> int:
        return 1 if x > next(bounds) else 0  # the paths x > 3 and x <= 1: 2 is lost

    with pytest.raises(NotFollowed, match="it decides otherwise when run again"):
        paths(drifts, "x")


def test_a_number_kept_from_an_earlier_run() -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> Any:
        kept.append(x)
        return x - kept[0] if x > 0 else x + kept[0]

    with pytest.raises(NotFollowed, match="the policy keeps state"):
        paths(keeps, "x")


def test_a_condition_kept_from_an_earlier_run() -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> bool:
        kept.append(x > 7)
        return bool(x > 0) and bool(kept[0])

    with pytest.raises(NotFollowed, match="the policy keeps state"):
        paths(keeps, "x")


# ---- an obligation that is not followed is not proved


def test_an_obligation_of_a_body_that_is_not_followed() -> None:
    def body(run: Run) -> Any:
        x = run.integer("x")
        return x / 2 == 0 if x > 1000 else True

    outcome = discharge(Obligation("half", "", body, {"x": 1}))
    assert (outcome.proved, outcome.vacuous) == (False, False)
    assert outcome.reason == ("not followed: __truediv__ of an integer that stands for every size")


def test_swallowing_needs_no_luck() -> None:
    """The run is marked, so that each path is lost even where the exception is forgotten."""

    def body(run: Run) -> int:
        with contextlib.suppress(BaseException):
            run.not_followed("a reason")
        return 1

    with pytest.raises(NotFollowed, match=r"^a reason$"):
        list(explore(body))


# ---- policies that look at more than the numbers' values


def looks_at_type(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules if type(index) is int else 0


def looks_at_class(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules if isinstance(index, int) else 0


def looks_at_identity(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules if (index >= 0) is True else 0


def matches_class(index: int, slots: int, modules: int) -> int:
    match slots:
        case int():
            return (index + slots) % modules
    return 0


def none_when_wrapped(index: int, slots: int, modules: int) -> int | None:
    return (index + slots) % modules if isinstance(modules, int) else None


def compares_identity(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules if operator.is_(index >= 0, True) else 0


def c_level(index: int, slots: int, modules: int) -> int:
    return int.__mod__(int.__add__(index, slots), modules)


def prints(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules if f"{index}" else 0


def loops_on_wrapped(index: int, slots: int, modules: int) -> int:
    while not isinstance(slots, int):
        pass
    return (index + slots) % modules


REASONS = [
    (looks_at_type, "^refused, since it looks at more than numbers: the name type$"),
    (looks_at_class, "^refused, since it looks at more than numbers: the name isinstance$"),
    (looks_at_identity, "^refused, since it looks at more than numbers: `is` between numbers$"),
    (matches_class, "^refused, since it looks at more than numbers: the instruction MATCH_CLASS$"),
    (none_when_wrapped, "^refused, since it looks at more than numbers: the name isinstance$"),
    (compares_identity, "^refused, since it looks at more than numbers: the name is_$"),
    (c_level, "^refused, since it looks at more than numbers: the attribute __mod__$"),
    (prints, "^not followed: __format__ of an integer"),
    (loops_on_wrapped, "^not followed: did not return within 1,000,000 instructions"),
]


@pytest.mark.parametrize(("policy", "why"), REASONS)
def test_a_policy_that_looks_at_more_than_numbers_is_not_followed(policy: Any, why: str) -> None:
    answer = differs_when_wrapped(of_target(policy))
    assert re.search(why, answer), answer


def test_a_policy_of_plain_arithmetic_does_not_differ() -> None:
    def plain(index: int, slots: int, modules: int) -> int | None:
        target = (index + slots) % modules
        return None if target == index else target

    assert differs_when_wrapped(of_target(plain)) == differs_on_a_path(of_target(plain)) == ""
