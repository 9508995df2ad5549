"""The results of a run in which all is well, without the run."""

from __future__ import annotations

from proofs.claims import SEARCHED, claims
from proofs.mutants import MUTANTS
from proofs.obligation import System
from proofs.prove import Part, Result
from proofs.report import Verdict

MANY = len(MUTANTS)
CLAIMS = claims(System())
BOUNDED = ("9 together", "10 agreement", "11 engines", "12 planner")
FIRST_MUTANT = len(CLAIMS)


def part(name: str, verdict: Verdict = Verdict.PROVED) -> Part:
    where = ("proofs/sizes.py", 7)
    return Part(name, "statement", verdict, where, "", 2, 30, "unsat", "(check-sat)", ())


def claim(name: str, names: list[str], verdict: Verdict = Verdict.PROVED) -> Result:
    parts, count = tuple(map(part, names)), len(names)
    return Result(name, "statement", verdict, "z3", "all N and K", f"{count}", "", parts)


def whole() -> list[Result]:
    """Every claim's result, then every mutant's."""
    results = [
        claim(f"{one.number} {one.title}", [obligation.name for obligation in one.obligations])
        for one in CLAIMS
        if one.obligations
    ]
    results += [
        Result(name, "", Verdict.HOLDS_TO_BOUND, "enumeration", "12x12", "all", looked_at=looked_at)
        for name, looked_at in zip(BOUNDED, SEARCHED.values(), strict=True)
    ]
    for one in MUTANTS:
        killed = [(one.claim, one.obligation)] if one.obligation else []
        refuted = f"refuted by claim {one.claim}"
        results.append(
            Result(
                one.name,
                refuted,
                Verdict.PROVED,
                "",
                "",
                one.smallest,
                killed=(*killed, *one.also),
            )
        )
    return results
