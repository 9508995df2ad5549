"""A second solver on the very formulas that Z3 answered, as SMT-LIB text.

cvc5 is optional (the extra ``crosscheck``). Without it nothing is cross-checked, and the report
says so: what was not asked is no agreement.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

RESOURCES = 2_000_000
"""cvc5's own unit; over ten times what the hardest obligation takes."""

AGREES = "unsat"


def second_solver() -> str | None:
    """Its name and version, or None if it is not installed."""
    try:
        return f"cvc5 {version('cvc5')}" if find_spec("cvc5") else None
    except PackageNotFoundError:
        return "cvc5"


def second_answer(formula: str) -> str | None:
    """What the solver says: unsat, sat, unknown, or an error; None if there is no solver."""
    if second_solver() is None:
        return None
    try:
        import cvc5

        return _answer(cvc5, formula)
    except Exception as error:  # the solver's own: it is broken, or could not read or answer
        return f"error: {type(error).__name__}: {error}"


def _answer(cvc5: Any, formula: str) -> str:
    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("rlimit", str(RESOURCES))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, formula, "obligation")
    symbols, said = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, symbols)
    return said.strip()
