"""What the tests of ``proofs`` share: subprocesses, and a symbolic run pinned to integers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import z3

from proofs.integers import SymBool, SymInt, formula
from proofs.symbolic import Run, explore

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str, first: Path, then: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """This Python, run in ``first``, with ``first`` and ``then`` on its path and nothing else."""
    path = os.pathsep.join(map(str, (first, then)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(
        command, cwd=first, env=environment, capture_output=True, text=True, check=False
    )


def copy_of_the_code(to: Path, *packages: str) -> None:
    """The packages as they are now, without what Python compiled."""
    for package in packages:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))


def edit(file: Path, before: str, after: str) -> None:
    """Replace the text, which must be there exactly once."""
    text = file.read_text()
    assert text.count(before) == 1, f"{before!r} is {text.count(before)} times in {file}"
    file.write_text(text.replace(before, after))


class Way:
    """One path of a function: the run that took it, and its result."""

    def __init__(self, run: Run, result: Any) -> None:
        self.run, self.result = run, result
        self.test: Any = None

    def taken_by(self, pins: Mapping[str, int]) -> bool:
        """Whether integers of these values fulfil every condition of the path."""
        if self.test is None:
            text = " and ".join(map(python_text, self.run.conditions)) or "True"
            self.test = compile(text, "<conditions>", "eval")
        return bool(eval(self.test, {"v": self._values(pins)}))

    def value(self, pins: Mapping[str, int]) -> Any:
        """The path's result for integers of these values."""
        return _value(self.result, self._values(pins))

    def _values(self, pins: Mapping[str, int]) -> dict[str, int]:
        """Each name's value: quotients, remainders and products as Python computes them."""
        values = _Values(self.run.products)
        values.update(pins)
        for (a, a_constant, b, b_constant), pair in self.run.quotients.items():
            divisor = _linear(b, b_constant, values)
            known = divmod(_linear(a, a_constant, values), divisor) if divisor else (0, 0)
            for unknown, number in zip(pair, known, strict=True):
                ((name, _),) = unknown.terms
                values[name] = number
        for name in self.run.products:
            values[name]
        return values


class _Values(dict[str, int]):
    """Values by name; a product's is computed when it is first asked for."""

    def __init__(self, products: Mapping[str, tuple[str, str]]) -> None:
        self.products = products

    def __missing__(self, name: str) -> int:
        x, y = self.products[name]
        self[name] = self[x] * self[y]
        return self[name]


def paths(
    function: Callable[..., Any], *names: str, where: Callable[..., Any] | None = None
) -> list[Way]:
    """Every path of the function on unknown integers of these names."""

    def body(run: Run) -> Way:
        unknowns = [run.integer(name) for name in names]
        if where is not None:
            run.assume(*where(*unknowns))
        return Way(run, function(*unknowns))

    return [path.result for path in explore(body)]


SIGNS = {
    z3.Z3_OP_ADD: "+",
    z3.Z3_OP_MUL: "*",
    z3.Z3_OP_EQ: "==",
    z3.Z3_OP_DISTINCT: "!=",  # of two
    z3.Z3_OP_LT: "<",
    z3.Z3_OP_LE: "<=",
    z3.Z3_OP_GT: ">",
    z3.Z3_OP_GE: ">=",
    z3.Z3_OP_AND: "and",
    z3.Z3_OP_OR: "or",
    z3.Z3_OP_IMPLIES: "<=",  # of two truth values
}


@cache  # the paths of a run share most of their conditions
def python_text(term: Any) -> str:
    """A Z3 term as Python on the values ``v``; KeyError for what no linear condition has."""
    if z3.is_int_value(term) or z3.is_true(term) or z3.is_false(term):
        return str(term)
    if z3.is_const(term):
        return f"v[{term.decl().name()!r}]"
    parts = [python_text(part) for part in term.children()]
    if z3.is_not(term):
        return f"(not {parts[0]})"
    return f"({f' {SIGNS[term.decl().kind()]} '.join(parts)})"


def _linear(terms: tuple[tuple[str, int], ...], constant: int, values: Mapping[str, int]) -> int:
    return sum(n * values[name] for name, n in terms) + constant


def _value(result: Any, values: Mapping[str, int]) -> Any:
    if isinstance(result, tuple):
        return tuple(_value(part, values) for part in result)
    if isinstance(result, SymInt):
        return _linear(result.terms, result.constant, values)
    if isinstance(result, SymBool):
        return bool(eval(python_text(formula(result)), {"v": values}))
    return result
