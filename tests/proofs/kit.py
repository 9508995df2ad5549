"""What the tests of ``proofs`` share: subprocesses, and a symbolic run pinned to integers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import z3

from proofs.integers import SymBool, SymInt
from proofs.symbolic import Path as SymbolicPath
from proofs.symbolic import Run, explore, satisfiable

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


def paths(
    function: Callable[..., Any], *names: str, where: Callable[..., Any] | None = None
) -> list[SymbolicPath[Any]]:
    """Every path of the function on unknown integers of these names."""

    def body(run: Run) -> Any:
        unknowns = [run.integer(name) for name in names]
        if where is not None:
            run.assume(*where(*unknowns))
        return function(*unknowns)

    return list(explore(body))


def outcome(path: SymbolicPath[Any], pins: Mapping[str, int], expected: object) -> str:
    """What the path gives for integers of these values, products being true products: "not
    taken", "as expected" if it can give nothing else, or "other"."""
    values = [(z3.Int(name), z3.IntVal(value)) for name, value in pins.items()]
    products = [z3.Int(name) == z3.Int(x) * z3.Int(y) for name, (x, y) in path.products.items()]

    def possible(*more: Any) -> bool:
        every = z3.And(*path.conditions, *products, *more)
        pinned = z3.simplify(z3.substitute(every, *values))
        if z3.is_true(pinned) or z3.is_false(pinned):
            return bool(z3.is_true(pinned))
        answer = satisfiable([pinned])
        assert answer != z3.unknown, f"the solver gave up at {dict(pins)}"
        return bool(answer == z3.sat)

    if not possible():
        return "not taken"
    same = _equal(path.result, expected)
    return "as expected" if possible(same) and not possible(z3.Not(same)) else "other"


def _equal(result: object, expected: object) -> Any:
    if isinstance(result, tuple):
        assert isinstance(expected, tuple)
        return z3.And(*(_equal(a, b) for a, b in zip(result, expected, strict=True)))
    if isinstance(result, SymInt | SymBool):
        return result.term == expected
    return z3.BoolVal(result == expected)
