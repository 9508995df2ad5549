"""The symbolic integers compute what Python's do: known ones, and unknown ones path by path."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs import symbolic
from proofs.integers import SymBool, SymInt
from proofs.slotfile import SymbolicRing
from proofs.symbolic import NotFollowed, Run, product_lemma, satisfiable
from schedule import Ring, policies
from tests.proofs.kit import Way, paths

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=50)
INTEGERS = st.one_of(st.integers(-30, 30), st.integers())
FEW = st.integers(-12, 12)

# ---- known integers


def plain(value: object) -> object:
    """A wrapped value as Python's own; it must be a known one."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, SymInt):
        assert value.terms == ()
        return value.constant
    if isinstance(value, SymBool):
        assert isinstance(value.term, bool)
        return value.term
    return value


def wrappings(*numbers: int) -> list[tuple[Any, ...]]:
    """The numbers with at least one of them wrapped, in every choice."""
    run = Run()
    choices = product(*((run.number(number), number) for number in numbers))
    return list(choices)[:-1]


ARITHMETIC = """
    a + b; a - b; a * b; a < b; a <= b; a > b; a >= b; a == b; a != b; min(a, b); max(a, b, 3)
    a and b; a or b; not (a - b); a < b < 5; -3 <= a != b; a if a else b; 0 if not b else 1
    (a < b) + 1 - a; (a < b) * b - (b < 0); (a < b) == (b < 7); (a < b) != (b < 7)
    ["first", "second"][a < b]; a in (b, 3, -4); abs(a - b) + -a - +b; sum([a, b, a]) - b * 2
    sorted([a, b])[0]; a == None or b != "text"; (a == True) + a; all([a, b]) or any([b])
"""
DIVISION = """a // b; a % b; divmod(a, b); a // b * b + a % b"""
TRUTHS = """(a < b) + (a == 0); 2 * (a < b); 1 + (a < b); b - (a < b); (a < b) & (b < 7)
    -(a < b); (a < b) | (b < 7); (a < b) ^ (b < 7); (a < b) <= (b < 7); (a < b) // 1
    abs(a < b); str(a < b)"""


def expressions(text: str) -> Any:
    """One parameter an expression of a and b, named by its text."""
    found = [part.strip() for line in text.splitlines() for part in line.split(";") if part.strip()]
    return [pytest.param(eval(f"lambda a, b: {part}"), id=part) for part in found]


@pytest.mark.parametrize("function", expressions(ARITHMETIC))
@FIXED
@given(a=INTEGERS, b=INTEGERS)
def test_known_integers_compute_as_pythons_do(function: Any, a: int, b: int) -> None:
    for wrapped in wrappings(a, b):
        assert plain(function(*wrapped)) == function(a, b)


@pytest.mark.parametrize("function", expressions(DIVISION))
@FIXED
@given(a=INTEGERS, b=INTEGERS.filter(bool))
def test_known_integers_divide_as_pythons_do(function: Any, a: int, b: int) -> None:
    for wrapped in wrappings(a, b):
        assert plain(function(*wrapped)) == function(a, b)


@pytest.mark.parametrize("function", expressions(DIVISION))
def test_division_by_zero_is_pythons_error(function: Any) -> None:
    for wrapped in wrappings(7, 0):
        with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
            function(*wrapped)


@pytest.mark.parametrize("function", expressions(TRUTHS))
def test_a_truth_value_is_a_number_or_not_followed(function: Any) -> None:
    for numbers in product(range(-1, 3), repeat=2):
        for wrapped in wrappings(*numbers):
            with contextlib.suppress(NotFollowed):
                assert plain(function(*wrapped)) == function(*numbers)


@FIXED
@given(a=INTEGERS)
def test_one_known_integer(a: int) -> None:
    number = Run().number(a)
    assert plain(abs(number)) == abs(a)
    assert plain(-number) == -a
    assert plain(+number) == a
    assert bool(number) is bool(a)
    assert (not number) is (not a)


LEAF = st.sampled_from(["a", "b", "c", "0", "1", "2", "7"])


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = ["({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})"]
    shapes += ["({} // (abs({}) + 1))", "({} % (abs({}) + 1))", "divmod({}, abs({}) + 1)[1]"]
    shapes += ["(-{} if not {} else 3)", "({0} if {0} < {1} or {1} >= 4 else {1})"]
    shapes += ["({0} if 0 <= {0} < {1} and {0} != 2 else {1})", "(({} == {}) + 1)"]
    filled = [
        st.tuples(parts, parts).map(lambda two, shape=shape: shape.format(*two)) for shape in shapes
    ]
    return st.one_of(filled)


@FIXED
@given(text=st.recursive(LEAF, _larger, max_leaves=12), numbers=st.tuples(FEW, FEW, FEW))
def test_whole_expressions_on_known_integers(text: str, numbers: tuple[int, int, int]) -> None:
    code = compile(text, "<expression>", "eval")
    expected = eval(code, dict(zip("abc", numbers, strict=True)))
    run = Run()
    wrapped = dict(zip("abc", map(run.number, numbers), strict=True))
    assert plain(eval(code, wrapped)) == expected
    assert run.conditions == []  # nothing of it reached the solver


# ---- unknown integers


def least_of_three(x: Any, y: Any, z: Any) -> Any:
    return min(x, y, z)


def median(x: Any, y: Any, z: Any) -> Any:
    return sorted([x, y, z])[1]


def chained(x: Any, y: Any) -> str:
    if 0 <= x < y <= 4:
        return "inside"
    return "below" if not (x >= 0 or y > 4) else "outside"


def mixed(x: Any, y: Any) -> Any:
    return 3 * x - (x > y) + (x == y) * 2 - y


def undecided(x: Any, y: Any) -> Any:
    return x - 1 < 2 * y


def halves(x: Any, y: Any) -> Any:
    return (*divmod(x - y, 2), x // 3, y % 5, abs(x))


def wrapped_around(x: Any, y: Any) -> Any:
    return (x - 3) % y + x // y * y


def polynomial(x: Any, y: Any) -> Any:
    return (x + y) * (x - y) + x * (y - 2)


def of_products(x: Any, y: Any, z: Any) -> Any:
    product = x * y
    return product % z if product > x else product // z


def bounded_loop(x: Any, y: Any) -> Any:
    count = 0
    while x > 0 and count < 4:
        x, count = x - y, count + 1
    return count, x


def recursion(x: Any, y: Any) -> Any:
    return y if not 0 < x < 4 else 1 + recursion(x - 1, y)


def literals(x: Any, y: Any) -> Any:
    match x:
        case 0:
            return y
        case 1 | 2 if y != x:
            return None
    return x in (3, y)


def several(x: Any, y: Any) -> Any:
    return any(x == n for n in range(3)), all(n < y for n in (x, 2))


def positive(*numbers: Any) -> list[Any]:
    return [numbers[-1] > 0]


def anything(*_: Any) -> list[Any]:
    return []


SMALL = range(-3, 6)
FOLLOWED: list[tuple[Callable[..., Any], str, Callable[..., Any], int]] = [
    (least_of_three, "xyz", anything, 4),
    (median, "xyz", anything, 6),
    (chained, "xy", anything, 5),
    (mixed, "xy", anything, 3),
    (undecided, "xy", anything, 1),
    (halves, "xy", anything, 2),
    (wrapped_around, "xy", positive, 1),
    (polynomial, "xy", anything, 1),
    (of_products, "xyz", positive, 2),
    (bounded_loop, "xy", anything, 6),
    (recursion, "xy", anything, 5),
    (literals, "xy", anything, 8),
    (several, "xy", anything, 11),
]


@pytest.mark.parametrize(("function", "names", "where", "count"), FOLLOWED)
def test_each_assignment_takes_exactly_one_path_and_gets_its_result(
    function: Any, names: str, where: Any, count: int
) -> None:
    found = paths(function, *names, where=where)
    assert len(found) == count
    for values in product(SMALL, repeat=len(names)):
        pins = dict(zip(names, values, strict=True))
        taken = [way for way in found if way.taken_by(pins)]
        if all(where(*values)):
            assert [way.value(pins) for way in taken] == [function(*values)], pins
        else:
            assert taken == []  # what is assumed restricts every path


# ---- the paths of known functions, and how none is lost


def a_step(index: Any, slots: Any, modules: Any) -> list[Any]:
    """The assumptions under which a target is asked for."""
    return [slots >= 1, index >= 0, index < modules]


TARGETS = [(policies.modular_target, 1), (policies.slot_local_target, 3)]
MAPS = [
    (policies.cyclic_slot, 1),
    (policies.double_buffer_slot, 2),
    (policies.single_buffer_slot, 2),
    (policies.balanced_slot, 8),
]
RINGS = [Ring(n, k) for n in range(1, 8) for k in range(1, 9)] + [Ring(20, 8)]


@pytest.mark.parametrize(("target", "count"), TARGETS)
def test_targets_on_unknown_sizes_are_those_on_integers(target: Any, count: int) -> None:
    found = paths(target, "i", "K", "N", where=a_step)
    assert len(found) == count
    for ring in RINGS:
        for i in range(ring.modules):
            same_on_integers(found, i, ring, target(i, ring.slots, ring.modules))


@pytest.mark.parametrize(("slot_of", "count"), MAPS)
def test_slot_maps_on_unknown_sizes_are_those_on_integers(slot_of: Any, count: int) -> None:
    def symbolic_map(index: Any, slots: Any, modules: Any) -> Any:
        return slot_of(index, SymbolicRing(modules, slots))

    found = paths(symbolic_map, "i", "K", "N", where=a_step)
    assert len(found) == count
    for ring in RINGS:
        for i in range(ring.modules):
            same_on_integers(found, i, ring, slot_of(i, ring))


def same_on_integers(found: list[Way], step: int, ring: Ring, expected: int) -> None:
    """Exactly one path is taken, and its result is the expected one."""
    pins = {"i": step, "K": ring.slots, "N": ring.modules}
    assert [way.value(pins) for way in found if way.taken_by(pins)] == [expected], pins


def three_decisions(x: Any, y: Any) -> tuple[bool, bool, bool]:
    return bool(x > 3), bool(x > 3), bool(y > x)


def test_what_is_decided_already_is_not_decided_again() -> None:
    every = [path.result for path in paths(three_decisions, "x", "y")]
    twice = [(first, first, last) for first in (True, False) for last in (True, False)]
    assert sorted(every) == sorted(twice)


def test_an_unknown_of_the_solver_drops_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsure:
        def add(self, *_: Any) -> None: ...
        def check(self, *_: Any) -> Any:
            return z3.unknown

    monkeypatch.setattr(symbolic, "new_solver", lambda _: Unsure())
    every = [path.result for path in paths(three_decisions, "x", "y")]
    assert sorted(every) == sorted(product((False, True), repeat=3))


def test_a_contradiction_leaves_no_path() -> None:
    assert paths(three_decisions, "x", "y", where=lambda x, _: [x > 3, x < 4]) == []


@FIXED
@given(f=FEW, x=FEW, y=FEW)
def test_the_product_lemma_is_true_of_integers(f: int, x: int, y: int) -> None:
    values = {"f": f, "x": x, "y": y, "fx": f * x, "fy": f * y}
    pins = [(z3.Int(name), z3.IntVal(value)) for name, value in values.items()]
    instances = product_lemma("f", "x", "fx", "y", "fy") + product_lemma("f", "x", "fx", None, None)
    assert len(instances) == 16
    for instance in instances:
        assert z3.is_true(z3.simplify(z3.substitute(instance, *pins)))


def test_the_product_lemma_is_what_makes_products_grow() -> None:
    run = Run()
    f, x, y = (run.integer(name) for name in "fxy")
    run.assume(f >= 1, x >= y + 1)
    grows = f * x >= f * y + f
    assert satisfiable(run.conditions) == z3.sat
    assert satisfiable([*run.conditions, z3.Not(grows.term)]) == z3.unsat
    assert run.products == {"f*x": ("f", "x"), "f*y": ("f", "y")}


def test_the_same_division_is_the_same_quotient() -> None:
    run = Run()
    x, y = run.integer("x"), run.integer("y")
    run.assume(y > 0)
    assert (x // y).terms == divmod(x, y)[0].terms == ((x + 1 - 1) // y).terms
    assert (x % y).terms != ((x + 1) % y).terms
