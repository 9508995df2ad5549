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
from proofs.symbolic import NotFollowed, Path, Run, explore, satisfiable
from schedule import arithmetic, guard, machine, order, policy, program, verifier
from schedule.budget import OutOfBudget
from schedule.ring import EMPTY

SEEDS = (0, 1, 2)


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
    """What came of an obligation. reason is empty when it is proved."""

    obligation: Obligation
    proved: bool
    vacuous: bool
    paths: int
    reason: str


def discharge(obligation: Obligation) -> Outcome:
    """Decide the obligation on every path up to the first failure, and look for its witness."""
    reached, count = False, 0
    try:
        for path in explore(obligation.body):
            count += 1
            reason = _reason(path)
            if reason:
                return Outcome(obligation, False, False, count, reason)
            reached = reached or _reached(path, obligation.witness)
    except (NotFollowed, OutOfBudget) as error:
        return Outcome(obligation, False, False, count, f"not followed: {error}")
    except Exception as error:  # of the code under proof: it is not proved, whatever it was
        return Outcome(obligation, False, False, count, f"raised {type(error).__name__}: {error}")
    return Outcome(obligation, True, not reached, count, "")


def _reason(path: Path[Goal]) -> str:
    """Why the path is not proved, or an empty text."""
    result = path.result
    negated = True if isinstance(result, Failure) else z3.Not(formula(result))
    for seed in SEEDS:
        answer = satisfiable([*path.conditions, negated], seed)
        if answer != z3.unsat:
            what = result.why if isinstance(result, Failure) else "the statement may fail"
            return f"{what} ({answer} with seed {seed})"
    return ""


def _reached(path: Path[Goal], witness: Mapping[str, int]) -> bool:
    """Whether the witness takes this path to its end, products being true products."""
    pins: list[Any] = [z3.Int(name) == value for name, value in witness.items()]
    products = [z3.Int(name) == z3.Int(x) * z3.Int(y) for name, (x, y) in path.products.items()]
    return bool(satisfiable([*path.conditions, *pins, *products]) == z3.sat)


__all__ = ["EMPTY", "Failure", "Goal", "Obligation", "Outcome", "System", "discharge"]
