"""Verdicts, exit codes, and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """The value is the exit code. Only PROVED is green; a claim that is itself one to a bound
    counts as green with HOLDS_TO_BOUND."""

    PROVED = 0
    VIOLATED = 1
    USAGE = 2
    UNKNOWN = 3
    VACUOUS = 4
    MUTANT_SURVIVED = 5
    DISAGREE = 6
    HOLDS_TO_BOUND = 7


WORST_FIRST = (
    Verdict.USAGE,
    Verdict.VIOLATED,
    Verdict.DISAGREE,
    Verdict.UNKNOWN,
    Verdict.VACUOUS,
    Verdict.MUTANT_SURVIVED,
    Verdict.HOLDS_TO_BOUND,
    Verdict.PROVED,
)


def word(verdict: Verdict | None) -> str:
    """As it is printed; None is of what asked nothing."""
    return verdict.name if verdict else "NOT_ASKED"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole: that of its worst part. Nothing at all proves nothing."""
    found = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in found), Verdict.UNKNOWN)


def row(verdict: Verdict, name: str, statement: str, engine: str, bound: str, size: str) -> str:
    """One claim, on two lines."""
    return f"{verdict.name:<15} {name}: {statement}\n{'':<15} {engine}, {bound}; {size}"
