"""The integers and truth values that a symbolic run computes with.

A ``SymInt`` is a linear form over named integers; a comparison is a ``SymBool``, which its run
decides where Python asks for the truth. Where Python asks for an integer's value (it is an index,
a key), one that has few is decided too. Whatever an integer can't do for all sizes at once (have
many values as an index, be printed) marks the run as not followed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import z3

if TYPE_CHECKING:
    from proofs.symbolic import Run


KEPT = "a number kept from an earlier call: the policy keeps state, or a cache"
NEVER_EQUAL = (type(None), str, bytes, tuple, list, dict, set)
"""Types whose values no int equals; of others we can't know."""


@lru_cache(maxsize=100_000)  # paths of one run share most of their terms
def linear(terms: tuple[tuple[str, int], ...], constant: int) -> Any:
    """The sum of coefficient * name, plus the constant, as a Z3 term."""
    parts = [z3.Int(name) if n == 1 else n * z3.Int(name) for name, n in terms]
    if constant or not parts:
        parts.append(z3.IntVal(constant))
    return z3.Sum(parts) if len(parts) > 1 else parts[0]


class SymBool:
    """A condition. ``if``, ``and``, ``or`` and ``not`` decide it; as a number it is 0 or 1."""

    __slots__ = ("run", "term")

    def __init__(self, run: Run, term: Any) -> None:
        self.run, self.term = run, term

    def __bool__(self) -> bool:
        return self.run.decide(self)

    def __index__(self) -> int:
        return int(bool(self))

    __int__ = __index__

    def __eq__(self, other: object) -> Any:
        return bool(self) == (bool(other) if isinstance(other, SymBool) else other)

    def __ne__(self, other: object) -> Any:
        return not self == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __getattr__(self, name: str) -> NoReturn:
        self.run.not_followed(f"the attribute {name} of a truth value")

    def __str__(self) -> str:
        return str(bool(self))

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return format(bool(self), how)


class SymInt:
    """An unknown integer: the sum of coefficient * name over ``terms``, plus a constant."""

    __slots__ = ("constant", "run", "terms")

    def __init__(self, run: Run, terms: tuple[tuple[str, int], ...], constant: int) -> None:
        self.run, self.terms, self.constant = run, terms, constant

    @property
    def term(self) -> Any:
        """As a Z3 term."""
        return linear(self.terms, self.constant)

    def __add__(self, other: object) -> SymInt:
        return self._combine(self._number(other, "+"), 1)

    def __radd__(self, other: object) -> SymInt:
        return self._number(other, "+")._combine(self, 1)

    def __sub__(self, other: object) -> SymInt:
        return self._combine(self._number(other, "-"), -1)

    def __rsub__(self, other: object) -> SymInt:
        return self._number(other, "-")._combine(self, -1)

    def __mul__(self, other: object) -> SymInt:
        return self.run.product(self, self._number(other, "*"))

    def __rmul__(self, other: object) -> SymInt:
        return self.run.product(self._number(other, "*"), self)

    def __divmod__(self, other: object) -> tuple[SymInt, SymInt]:
        return self.run.divide(self, self._number(other, "divmod"))

    def __rdivmod__(self, other: object) -> tuple[SymInt, SymInt]:
        return self.run.divide(self._number(other, "divmod"), self)

    def __floordiv__(self, other: object) -> SymInt:
        return self.__divmod__(other)[0]

    def __rfloordiv__(self, other: object) -> SymInt:
        return self.__rdivmod__(other)[0]

    def __mod__(self, other: object) -> SymInt:
        return self.__divmod__(other)[1]

    def __rmod__(self, other: object) -> SymInt:
        return self.__rdivmod__(other)[1]

    def __neg__(self) -> SymInt:
        return self.scale(-1)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> SymInt:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==", operator.eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "!=", operator.ne)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, "<", operator.lt)

    def __le__(self, other: object) -> Any:
        return self._compare(other, "<=", operator.le)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, ">", operator.gt)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, ">=", operator.ge)

    def __getattr__(self, name: str) -> NoReturn:
        self.run.not_followed(f"the attribute {name} of an integer")

    def __index__(self) -> int:
        return self.run.value(self, "__index__")

    def __int__(self) -> int:
        return self.run.value(self, "__int__")

    def __hash__(self) -> int:
        return hash(self.run.value(self, "__hash__"))

    def scale(self, factor: int) -> SymInt:
        """This integer times a known one."""
        terms = tuple((name, n * factor) for name, n in self.terms if factor)
        return SymInt(self.run, terms, self.constant * factor)

    def _combine(self, other: SymInt, sign: int) -> SymInt:
        terms = dict(self.terms)
        for name, n in other.terms:
            terms[name] = terms.get(name, 0) + sign * n
        kept = tuple(sorted((name, n) for name, n in terms.items() if n))
        return SymInt(self.run, kept, self.constant + sign * other.constant)

    def _number(self, other: object, sign: str) -> SymInt:
        if isinstance(other, SymInt | SymBool) and (other.run is not self.run or self.run.over):
            self.run.lost = other.run.lost = KEPT
            self.run.not_followed(KEPT)
        if isinstance(other, SymInt):
            return other
        if isinstance(other, SymBool | int):
            return SymInt(self.run, (), int(other))
        self.run.not_followed(f"{sign} between an integer and a {type(other).__name__}")

    def _compare(self, other: object, sign: str, of: Callable[[Any, Any], Any]) -> Any:
        if sign in ("==", "!=") and isinstance(other, NEVER_EQUAL):
            return NotImplemented  # as ints do: unequal to None, to text, to a tuple
        difference = self._combine(self._number(other, sign), -1)
        known = not difference.terms
        return SymBool(self.run, of(difference.constant if known else difference.term, 0))


def _refusal(name: str, what: str) -> Callable[..., NoReturn]:
    def refuse(self: SymInt | SymBool, *_: object) -> NoReturn:
        self.run.not_followed(f"{name} of {what} that stands for every size")

    return refuse


def _as_bool(name: str, swap: bool) -> Callable[..., Any]:
    """The operator on the decided truth value, which Python, too, takes for 0 or 1."""
    apply = getattr(operator, f"__{name}__")

    def decided(self: SymBool, other: Any) -> Any:
        mine, its = bool(self), bool(other) if isinstance(other, SymBool) else other
        return apply(its, mine) if swap else apply(mine, its)

    return decided


_PAIRS = ("truediv", "pow", "lshift", "rshift", "and", "or", "xor", "matmul")
_ALONE = ("float", "complex", "str", "repr", "format", "round", "trunc")
for _name in _PAIRS + tuple(f"r{name}" for name in _PAIRS):
    setattr(SymInt, f"__{_name}__", _refusal(f"__{_name}__", "an integer"))
for _name in (*_ALONE, "floor", "ceil", "invert", "iter", "len", "getitem", "contains"):
    setattr(SymInt, f"__{_name}__", _refusal(f"__{_name}__", "an integer"))
for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor"):
    setattr(SymBool, f"__{_name}__", _as_bool(_name, False))
    setattr(SymBool, f"__r{_name}__", _as_bool(_name, True))
for _name in ("lshift", "rshift"):
    setattr(SymBool, f"__r{_name}__", _as_bool(_name, True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(SymBool, f"__{_name}__", _as_bool(_name, False))
for _name in ("truediv", "rtruediv", "pow", "rpow", "lshift", "rshift", "invert", "neg", "float"):
    setattr(SymBool, f"__{_name}__", _refusal(f"__{_name}__", "a truth value"))
for _name in ("round", "trunc", "abs", "pos", "divmod", "rdivmod", "getitem", "iter"):
    setattr(SymBool, f"__{_name}__", _refusal(f"__{_name}__", "a truth value"))


def formula(condition: SymBool | bool) -> Any:
    """The condition as a Z3 term."""
    term = condition.term if isinstance(condition, SymBool) else condition
    return z3.BoolVal(term) if isinstance(term, bool) else term


def both(run: Run, *conditions: SymBool | bool) -> SymBool:
    """All of the conditions, undecided."""
    return SymBool(run, z3.And(*map(formula, conditions)))


def either(run: Run, *conditions: SymBool | bool) -> SymBool:
    """At least one of the conditions, undecided."""
    return SymBool(run, z3.Or(*map(formula, conditions)))


def opposite(run: Run, condition: SymBool | bool) -> SymBool:
    """The condition's negation, undecided."""
    return SymBool(run, z3.Not(formula(condition)))


def implies(run: Run, premise: SymBool | bool, conclusion: SymBool | bool) -> SymBool:
    """The conclusion, where the premise holds; undecided."""
    return either(run, opposite(run, premise), conclusion)
