"""The gates that a whole run must pass, beside every claim: none of them is left to good will.

Each has its verdict; the run's is the worst of them all, and its exit code the verdict's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofs.claims import EXPECTED, EXPECTED_CLAIMS, EXPECTED_OBLIGATIONS, SEARCHED
from proofs.crosscheck import AGREES, second_solver
from proofs.mutants import MUTANTS
from proofs.prove import Part, Result, chosen
from proofs.report import Verdict, worst

INSTALL = "not installed, so nothing was asked: pip install 'ringproof[crosscheck]'"


@dataclass(frozen=True, slots=True)
class Gate:
    """name: of the gate.   text: what it found, in words.   verdict: None if it asked nothing."""

    name: str
    verdict: Verdict | None
    text: str


def gates(results: Sequence[Result], only: Sequence[int] = ()) -> tuple[Gate, ...]:
    """Every gate's verdict on the results of a run: of all claims, or of some alone."""
    proper = [result for result in results if result.engine]
    mutants = [result for result in results if not result.engine]
    parts = {(_number(result), part.name): part for result in proper for part in result.parts}
    return (
        _count(proper, mutants, len(parts), only),
        _each("witnesses", parts, "obligations hold of their witness", Verdict.VACUOUS, _witnessed),
        _each("sizes", parts, "obligations leave N and K free", Verdict.VACUOUS, _free),
        _mutants(mutants),
        _killed(parts, mutants),
        _second(parts),
        _engines(proper),
    )


def total(results: Sequence[Result], only: Sequence[int] = ()) -> tuple[Verdict, str]:
    """The verdict of a whole run, and its last line."""
    proper = [result for result in results if result.engine]
    mutants = [result for result in results if not result.engine]
    verdict = worst(
        [
            *(gate.verdict for gate in gates(results, only) if gate.verdict),
            *(_as_claimed(result.verdict) for result in results),
            *(part.verdict for result in results for part in result.parts),
        ]
    )
    obligations = sum(result.obligations for result in proper)
    refuted = sum(result.verdict is Verdict.PROVED for result in mutants)
    whole = f" of {EXPECTED_OBLIGATIONS}" if not only else ""
    return verdict, (
        f"{verdict.name}: {len(proper)} claims, {obligations}{whole} "
        f"obligations, {refuted} of {len(MUTANTS) if not only else len(mutants)} mutants refuted"
    )


def _as_claimed(verdict: Verdict) -> Verdict:
    """A claim that is one to a bound holds as claimed."""
    return Verdict.PROVED if verdict is Verdict.HOLDS_TO_BOUND else verdict


def _number(result: Result) -> int:
    return int(result.name.partition(" ")[0])


Parts = dict[tuple[int, str], Part]


def _count(proper: list[Result], mutants: list[Result], parts: int, only: Sequence[int]) -> Gate:
    """Nothing was dropped unseen, nor hidden by another of its name."""
    asked = [claim for claim, _ in chosen(only)]
    obligations = sum(result.obligations for result in proper)
    same = (len(proper), len(mutants)) == (sum(asked), len(asked) - sum(asked))
    expected = {_number(result): EXPECTED[_number(result)] for result in proper}
    same = same and {_number(r): len(r.parts) for r in proper} == expected
    same = same and obligations == parts == sum(expected.values())
    # A search that found something ends there, and is not green for that.
    held = [one for one in proper if one.verdict is Verdict.HOLDS_TO_BOUND]
    few = [one.name for one in held if one.looked_at != SEARCHED.get(_number(one), 0)]
    text = f"{len(proper)} claims, {obligations} obligations, {len(mutants)} mutants"
    if not same:
        text += f"; expected are {EXPECTED_CLAIMS}, {EXPECTED_OBLIGATIONS}, {len(MUTANTS)}"
    if few:
        text += f"; claim {few[0]} did not look at all that it should"
    return Gate("count", Verdict.UNKNOWN if few or not same else Verdict.PROVED, text)


def _witnessed(part: Part) -> bool:
    return part.verdict is not Verdict.VACUOUS


def _free(part: Part) -> bool:
    return not part.pinned


def _each(name: str, parts: Parts, what: str, bad: Verdict, holds: Callable[[Part], bool]) -> Gate:
    wrong = [f"claim {n}, {one}" for (n, one), part in parts.items() if not holds(part)]
    text = f"{len(parts) - len(wrong)} of {len(parts)} {what}" + _but(wrong)
    return Gate(name, bad if wrong else Verdict.PROVED, text)


def _but(wrong: list[str]) -> str:
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"; not {'; '.join(wrong[:3])}{more}" if wrong else ""


def _mutants(mutants: list[Result]) -> Gate:
    wrong = [result.name for result in mutants if result.verdict is not Verdict.PROVED]
    text = f"{len(mutants) - len(wrong)} of {len(mutants)} are refuted, their smallest pinned"
    return Gate(
        "mutants",
        worst([Verdict.PROVED, *(result.verdict for result in mutants)]),
        text + _but(wrong),
    )


def _killed(parts: Parts, mutants: list[Result]) -> Gate:
    """An obligation that no fault can break says nothing."""
    killed = {one for result in mutants for one in result.killed}
    wrong = [f"claim {number}, {name}" for number, name in parts if (number, name) not in killed]
    text = f"{len(parts) - len(wrong)} of {len(parts)} obligations fail of some mutant"
    verdict = Verdict.MUTANT_SURVIVED if wrong else Verdict.PROVED
    return Gate("kills", verdict, text + _but(wrong))


def _second(parts: Parts) -> Gate:
    """The second solver, on the formulas of all that Z3 proved."""
    asked = {key: part for key, part in parts.items() if part.verdict is not Verdict.UNKNOWN}
    if second_solver() is None:
        return Gate("second solver", None, INSTALL)
    wrong = {key: part.second for key, part in asked.items() if part.second != AGREES}
    said = [f"claim {number}, {name}: {answer}" for (number, name), answer in wrong.items()]
    verdict = Verdict.UNKNOWN if wrong else Verdict.PROVED
    if "sat" in wrong.values():
        verdict = Verdict.DISAGREE
    text = f"{second_solver()} agrees on {len(asked) - len(wrong)} of {len(asked)} obligations"
    return Gate("second solver", verdict, text + _but(said))


def _engines(proper: list[Result]) -> Gate:
    """The claims to a bound: clocks, interleavings, enumeration, and what is executed."""
    bounded = [result for result in proper if result.engine != "z3"]
    if not bounded:
        return Gate("engines", None, "no claim to a bound was asked for")
    held = [result for result in bounded if result.verdict is Verdict.HOLDS_TO_BOUND]
    wrong = [f"claim {result.name}" for result in bounded if result not in held]
    verdict = worst([Verdict.PROVED, *(_as_claimed(result.verdict) for result in bounded)])
    text = f"{len(held)} of {len(bounded)} claims to a bound hold, in which engines agree"
    return Gate("engines", verdict, text + _but(wrong))
