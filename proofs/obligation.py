"""An obligation: one statement, a symbolic run that either keeps it or not, and its witness.

A claim is a list of obligations and, where a bound is all that can be shown, of checks by
enumeration. Each obligation is decided for every path, in fresh solvers, under three seeds; what
is not ``unsat`` for each of them is not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import z3

from proofs.integers import SymBool, formula
from proofs.symbolic import (
    NotFollowed,
    Path,
    Run,
    asked,
    explore,
    integers,
    new_solver,
    satisfiable,
)
from schedule import (
    arithmetic,
    graphs,
    guard,
    machine,
    order,
    plan,
    policy,
    program,
    search,
    seeds,
    space,
    verifier,
)
from schedule.budget import OutOfBudget
from schedule.ring import EMPTY

SEEDS = (0, 1, 2)
LARGEST = 12
LARGEST_SUSPECT = 1024
SIZES = ("N", "K")
"""The integers that stand for a ring's sizes in every obligation."""


@dataclass(frozen=True, slots=True)
class System:
    """The code under proof: the modules of ``schedule`` whose functions the obligations run.
    A mutant is a System with one module's source changed."""

    arithmetic: ModuleType = arithmetic
    machine: ModuleType = machine
    policy: ModuleType = policy
    verifier: ModuleType = verifier
    program: ModuleType = program
    order: ModuleType = order
    guard: ModuleType = guard
    graphs: ModuleType = graphs
    space: ModuleType = space
    seeds: ModuleType = seeds
    search: ModuleType = search
    plan: ModuleType = plan


@dataclass(frozen=True, slots=True)
class Failure:
    """A path's result when it went wrong: which property, or what was raised."""

    why: str


Goal = SymBool | bool | Failure


@dataclass(frozen=True, slots=True)
class Obligation:
    """name: short and unique in its claim.     statement: what is shown, in words.
    body: runs the code under proof; its result must be true on every path.
    witness: integers, by name, for which the assumptions hold and a path reaches the end:
    concrete, so that no obligation holds because nothing satisfies it."""

    name: str
    statement: str
    body: Callable[[Run], Goal]
    witness: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an obligation. reason is empty when it is proved.

    formula:   what was shown to have no solution, as SMT-LIB text: some path's conditions hold,
               and its statement does not. Empty if no path came to its end.
    resources: of Z3, all seeds together; the same on every machine.
    pinned:    which of N and K the formula speaks of for one value alone.
    """

    obligation: Obligation
    proved: bool
    vacuous: bool
    paths: int
    reason: str
    formula: str = ""
    resources: int = 0
    pinned: tuple[str, ...] = ()


def discharge(obligation: Obligation) -> Outcome:
    """Decide the obligation on every path, under every seed, and look for its witness."""
    paths: list[Path[Goal]] = []
    try:
        for path in explore(obligation.body):
            paths.append(path)
            if isinstance(path.result, Failure):
                reason = _reason(path)
                if reason:
                    return Outcome(obligation, False, False, len(paths), reason)
    except (NotFollowed, OutOfBudget) as error:
        reason = _first_reason(paths) or f"not followed: {error}"
        return Outcome(obligation, False, False, len(paths), reason)
    except Exception as error:  # of the code under proof: it is not proved, whatever it was
        reason = _first_reason(paths) or f"raised {type(error).__name__}: {error}"
        return Outcome(obligation, False, False, len(paths), reason)
    violated = smtlib(z3.Or([z3.And(*path.conditions, _negated(path)) for path in paths]))
    resources = 0
    for seed in SEEDS:
        answer, used = asked(violated, seed)
        resources += used
        if answer != z3.unsat:
            reason = _first_reason(paths) or f"all paths together ({answer} with seed {seed})"
            return Outcome(obligation, False, False, len(paths), reason)
    return Outcome(
        obligation,
        True,
        not any(_reached(path, obligation.witness) for path in paths),
        len(paths),
        "",
        violated,
        resources,
        tuple(name for name in SIZES if name in obligation.witness and _pinned(paths, name)),
    )


def smallest_integers(obligation: Obligation) -> str:
    """The smallest integers, by absolute value, then in the order of the witness, for which an
    obligation fails, products being true products; "none" if it fails for none up to LARGEST."""
    paths, names = list(explore(obligation.body)), list(obligation.witness)
    failing = [z3.And(*path.conditions, _negated(path), *_true_products(path)) for path in paths]
    known: list[Any] = []
    for bound in range(LARGEST + 1):
        small = [z3.And(z3.Int(name) <= bound, z3.Int(name) >= -bound) for name in names]
        if satisfiable([z3.Or(failing), *small]) == z3.sat:
            for name in names:
                values = sorted(range(-bound, bound + 1), key=lambda value: (abs(value), -value))
                pins = (z3.Int(name) == value for value in values)
                question = [z3.Or(failing), *small, *known]
                known.append(next(p for p in pins if satisfiable([*question, p]) == z3.sat))
            return ", ".join(str(pin).replace(" == ", "=") for pin in known)
    return "none"


def suspects(obligation: Obligation, slots: int | None) -> tuple[tuple[int, int], ...]:
    """Sizes (N, K) to LARGEST_SUSPECT for which the solver thinks that the obligation may fail: for
    each path the smallest N. Products need not be true products there, so a ring of these sizes may
    be safe; but each with fewer modules than all of them is. K: as given, or free. NotFollowed or
    OutOfBudget if that is not known, since a path can't be followed, or not decided."""
    found: dict[tuple[int, int], None] = {}
    for path in explore(obligation.body):
        question = [*path.conditions, _negated(path), z3.Int("K") <= LARGEST_SUSPECT]
        least, most, sizes = 1, LARGEST_SUSPECT, None
        while least <= most:  # where there is a model up to N, there is one up to N + 1
            middle = (least + most) // 2 if sizes else most
            smaller = integers([*question, z3.Int("N") <= middle], SIZES)
            if smaller is None:
                if satisfiable([*question, z3.Int("N") <= middle]) != z3.unsat:
                    raise NotFollowed("the solver does not know")
                least = middle + 1
            else:
                sizes, most = smaller, middle - 1
        if sizes is not None:
            found[(sizes[0], sizes[1] if slots is None else slots)] = None
    return tuple(sorted(found))


def smtlib(condition: Any) -> str:
    """A question whether the condition has a solution, for any solver that reads SMT-LIB."""
    solver = z3.Solver()
    solver.add(condition)
    return f"(set-logic ALL)\n{solver.to_smt2()}"


def _pinned(paths: list[Path[Goal]], name: str) -> bool:
    """Whether the paths leave the integer no two values."""
    integer = z3.Int(name)
    for path in paths:
        solver = new_solver(0)
        solver.add(*path.conditions)
        if solver.check() == z3.sat:
            found = solver.model().eval(integer, model_completion=True)
            solver.add(integer != found)
            if solver.check() == z3.sat:
                return False
    return True


def _negated(path: Path[Goal]) -> Any:
    result = path.result
    return z3.BoolVal(True) if isinstance(result, Failure) else z3.Not(formula(result))


def _first_reason(paths: list[Path[Goal]]) -> str:
    return next(filter(None, map(_reason, paths)), "")


def _reason(path: Path[Goal]) -> str:
    """Why the path is not proved, or an empty text."""
    result = path.result
    for seed in SEEDS:
        answer = satisfiable([*path.conditions, _negated(path)], seed)
        if answer != z3.unsat:
            what = result.why if isinstance(result, Failure) else "the statement may fail"
            return f"{what} ({answer} with seed {seed})"
    return ""


def _reached(path: Path[Goal], witness: Mapping[str, int]) -> bool:
    """Whether the witness takes this path to its end, products being true products."""
    pins: list[Any] = [z3.Int(name) == value for name, value in witness.items()]
    return bool(satisfiable([*path.conditions, *pins, *_true_products(path)]) == z3.sat)


def _true_products(path: Path[Goal]) -> list[Any]:
    return [z3.Int(name) == z3.Int(x) * z3.Int(y) for name, (x, y) in path.products.items()]


__all__ = ["EMPTY", "Failure", "Goal", "Obligation", "Outcome", "System", "discharge"]
