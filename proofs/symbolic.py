"""Run ordinary Python on symbolic integers, path by path.

Where Python asks for the truth of a condition the run *decides*: if both outcomes are possible,
the other one is put aside and explored later, never dropped. ``explore`` yields every path with
its conditions and its result.

Multiplication and division are not given to the solver. A product of two unknowns is a fresh
integer; ``a // b`` and ``a % b`` are Euclid's equation a = b*q + r, 0 <= r < b; and for every two
products that share a factor the run adds instances of one lemma (PRODUCT_LEMMA), which is an
obligation of its own. What reaches the solver is linear, so that it answers, and the same with
every seed. It may find models that are no integers of this world; hence it proves, and
refutation is left to enumeration.

Anything that can't be followed raises ``NotFollowed`` and marks the run, so that a function
which swallows the exception is still not taken for followed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, NoReturn, TypeVar, cast

import z3

from proofs.integers import KEPT, SymBool, SymInt, either, formula

PRODUCT_LEMMA = "f >= 0 and x >= y + k imply f*x >= f*y + k*f"
PATHS, DECISIONS, RESOURCES, FEW = 2_000, 250, 20_000_000, 16

Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])


class NotFollowed(BaseException):
    """The symbolic run can't go on. Not an Exception: the policy must not swallow it."""


class DeadPath(BaseException):
    """Neither outcome of a decision is possible: no integers take this path."""


def untraced(method: Method) -> Method:
    """The method, during which no instruction of the policy is looked at or counted."""

    def call(*arguments: Any) -> Any:
        before, profile = sys.gettrace(), sys.getprofile()
        sys.settrace(None)
        sys.setprofile(None)
        try:
            return method(*arguments)
        finally:
            sys.setprofile(profile)
            sys.settrace(before)

    return cast(Method, call)


@dataclass(slots=True)
class Run:
    """One execution along one path.

    prefix:     the decisions to repeat: each condition as text, and its outcome.
    conditions: what holds on this path, as Z3 terms.
    forks:      the prefixes of the paths put aside.
    products:   the name of each fresh integer that stands for a product, and its two factors.
    lost:       why the run can't be followed, if so.
    over:       the run has ended; a number kept from it is of no other run's world.
    slots:      K, where it is known and only N is free.
    """

    prefix: tuple[tuple[str, bool], ...] = ()
    conditions: list[Any] = field(default_factory=list)
    decisions: list[tuple[str, bool]] = field(default_factory=list)
    forks: list[tuple[tuple[str, bool], ...]] = field(default_factory=list)
    products: dict[str, tuple[str, str]] = field(default_factory=dict)
    quotients: dict[tuple[Any, ...], tuple[SymInt, SymInt]] = field(default_factory=dict)
    solver: Any = field(default_factory=lambda: new_solver(0))
    count: int = 0
    lost: str | None = None
    over: bool = False
    slots: int | None = None

    def integer(self, name: str) -> SymInt:
        """The unknown integer of that name."""
        return SymInt(self, ((name, 1),), 0)

    def number(self, value: int) -> SymInt:
        """A known integer, in a symbolic one's wrapping."""
        return SymInt(self, (), value)

    def fresh(self, hint: str) -> SymInt:
        """A new unknown; the same one whenever the same path is run again."""
        self.count += 1
        return self.integer(f"{hint}!{self.count}")

    def assume(self, *conditions: SymBool | bool) -> None:
        """Restrict the path to integers for which the conditions hold."""
        for condition in conditions:
            self._hold(formula(condition))

    def _hold(self, condition: Any) -> None:
        self.conditions.append(condition)
        self.solver.add(condition)

    def not_followed(self, why: str) -> NoReturn:
        """Mark the run and stop it."""
        self.lost = self.lost or why
        raise NotFollowed(why)

    @untraced  # our own work is none of the policy's
    def decide(self, condition: SymBool) -> bool:
        """The truth of the condition on this path."""
        if isinstance(condition.term, bool):
            return condition.term
        if self.over:
            self.not_followed(KEPT)
        if len(self.decisions) >= DECISIONS:
            self.not_followed(f"a loop or recursion with more than {DECISIONS} decisions")
        text = condition.term.sexpr()
        if len(self.decisions) < len(self.prefix):
            expected, outcome = self.prefix[len(self.decisions)]
            if text != expected:
                self.not_followed("it decides otherwise when run again: it keeps state")
        else:
            outcome = self._possible(condition.term)
            other = self._possible(z3.Not(condition.term))
            if not outcome and not other:
                raise DeadPath
            if outcome and other:
                self.forks.append((*self.decisions, (text, False)))
        self.decisions.append((text, outcome))
        self._hold(condition.term if outcome else z3.Not(condition.term))
        return outcome

    def value(self, integer: SymInt, asked_by: str) -> int:
        """The value of an integer that has few on this path, each on a path of its own."""
        few = range(-FEW * self._may_be(integer < 0), FEW)
        if self._may_be(integer < few.start) or self._may_be(integer >= few.stop):
            self.not_followed(f"{asked_by} of an integer that stands for every size")
        for value in few:
            if integer == value:
                return value
        raise DeadPath

    @untraced  # our own work is none of the policy's
    def _may_be(self, condition: SymBool) -> bool:
        term = condition.term
        return term if isinstance(term, bool) else self._possible(term)

    def _possible(self, condition: Any) -> bool:
        # An unknown counts as possible: one path too many costs time, one too few the proof.
        return bool(self.solver.check(condition) != z3.unsat)

    @untraced  # our own work is none of the policy's
    def product(self, x: SymInt, y: SymInt) -> SymInt:
        """x * y, multiplied out; each product of two unknowns is a fresh integer."""
        total = x.scale(y.constant) + y.scale(x.constant) - x.constant * y.constant
        for name, n in x.terms:
            for other, m in y.terms:
                total = total + self._known(*sorted((name, other))).scale(n * m)
        return total

    def _known(self, name: str, other: str) -> SymInt:
        product = f"{name}*{other}"
        if product not in self.products:
            for factor, rest in ((name, other), (other, name)):
                self._learn(product_lemma(factor, rest, product, None, None))
                for older, (g, y) in self.products.items():
                    for shared, remaining in ((g, y), (y, g)):
                        if shared == factor:
                            self._learn(product_lemma(factor, rest, product, remaining, older))
            self.products[product] = (name, other)
        return self.integer(product)

    def _learn(self, instances: tuple[Any, ...]) -> None:
        for instance in instances:
            self._hold(instance)

    @untraced  # our own work is none of the policy's
    def divide(self, a: SymInt, b: SymInt) -> tuple[SymInt, SymInt]:
        """Floor quotient and remainder, by Euclid's equation."""
        if b == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if not a.terms and not b.terms:
            quotient, remainder = divmod(a.constant, b.constant)
            return self.number(quotient), self.number(remainder)
        if b < 0:
            self.not_followed("division by a negative number")
        key = (a.terms, a.constant, b.terms, b.constant)
        if key not in self.quotients:
            q, r = self.fresh("q"), self.fresh("r")
            self.assume(a == b * q + r, r >= 0, r < b)
            self.quotients[key] = (q, r)
        return self.quotients[key]


def maximum(first: Any, second: Any) -> Any:
    """Stands in for ``max`` of two, without a path for each outcome: an unknown that is no less
    than both of them and equal to one."""
    unknown = first if isinstance(first, SymInt) else second
    if not isinstance(unknown, SymInt):
        return max(first, second)
    run, largest = unknown.run, unknown.run.fresh("max")
    run.assume(largest >= first, largest >= second)
    run.assume(either(run, largest == first, largest == second))
    return largest


@dataclass(frozen=True, slots=True)
class Path(Generic[Result]):
    """One way through: what holds on it, the products that it used, and what came out."""

    conditions: tuple[Any, ...]
    products: dict[str, tuple[str, str]]
    result: Result


def explore(body: Callable[[Run], Result]) -> Iterator[Path[Result]]:
    """Every path of ``body``. NotFollowed if one can't be followed, or if there are too many."""
    pending: list[tuple[tuple[str, bool], ...]] = [()]
    for _ in range(PATHS):
        if not pending:
            return
        run = Run(prefix=pending.pop())
        try:
            result = body(run)
        except DeadPath:
            continue
        finally:
            run.over = True
            if run.lost is not None:
                raise NotFollowed(run.lost)
            pending += run.forks
        if len(run.decisions) < len(run.prefix):
            raise NotFollowed("it decides otherwise when run again: it is random or keeps state")
        yield Path(tuple(run.conditions), run.products, result)
    raise NotFollowed(f"more than {PATHS} paths")


@lru_cache(maxsize=100_000)  # instances are the same on every path
def product_lemma(f: str, x: str, fx: str, y: str | None, fy: str | None) -> tuple[Any, ...]:
    """Instances of the product lemma between f*x and f*y, both ways round; y None stands for 0."""
    factor, zero = z3.Int(f), z3.IntVal(0)
    left = (z3.Int(x), z3.Int(fx))
    right = (zero, zero) if y is None or fy is None else (z3.Int(y), z3.Int(fy))
    return tuple(
        z3.Implies(z3.And(factor >= 0, a >= b + k), fa >= fb + k * factor)
        for k in (-1, 0, 1, 2)
        for (a, fa), (b, fb) in ((left, right), (right, left))
    )


def satisfiable(conditions: list[Any], seed: int = 0) -> Any:
    """z3.sat, z3.unsat or z3.unknown, in a fresh solver."""
    solver = new_solver(seed)
    solver.add(*conditions)
    return solver.check()


def asked(formula: str, seed: int) -> tuple[Any, int]:
    """The answer to SMT-LIB text, and the resources that it took. In a world of its own: what was
    asked before would change the order of terms, and with it the work."""
    solver = new_solver(seed, z3.Context())
    solver.from_string(formula)
    before = _used(solver)
    answer = solver.check()
    return answer, _used(solver) - before


def _used(solver: Any) -> int:
    statistics = solver.statistics()
    count: int = statistics.get_key_value("rlimit count")
    return count


def integers(conditions: Sequence[Any], names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Integers, by name, for which the solver finds the conditions true; None if it finds none."""
    solver = new_solver(0)
    solver.add(*conditions)
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    return tuple(model.eval(z3.Int(name), model_completion=True).as_long() for name in names)


def new_solver(seed: int, context: Any = None) -> Any:
    """A solver with a limit on its work, not on its time: the same answer on every machine."""
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", RESOURCES)
    solver.set("random_seed", seed)
    return solver
