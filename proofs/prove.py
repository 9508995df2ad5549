"""Everything that ``python -m proofs`` shows: the claims, then the mutants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from proofs.claims import EXPECTED_CLAIMS, EXPECTED_OBLIGATIONS, Claim, claims
from proofs.mutants import MUTANTS
from proofs.mutation import Mutant, StaleMutant, apply, smallest
from proofs.obligation import System, discharge
from proofs.report import Verdict, worst


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one claim or one mutant. ``size`` says how much was decided."""

    name: str
    statement: str
    verdict: Verdict
    engine: str
    bound: str
    size: str
    reason: str = ""
    obligations: int = 0


def prove_claim(claim: Claim) -> Result:
    """Decide a claim: every obligation by Z3, or the claim's search by enumeration."""
    name = f"{claim.number} {claim.title}"
    if claim.search is not None:
        try:
            found = claim.search()
            verdict = claim.found if found else Verdict.HOLDS_TO_BOUND
        except Exception as error:  # of the code under proof: it is not shown, whatever it was
            verdict, found = Verdict.UNKNOWN, f"raised {type(error).__name__}: {error}"
        size = "every ring of the bound"
        return Result(name, claim.statement, verdict, "enumeration", claim.bound, size, found or "")
    outcomes = [discharge(obligation) for obligation in claim.obligations]
    verdicts, reasons = [], []
    for outcome in outcomes:
        if not outcome.proved:
            verdicts.append(Verdict.UNKNOWN)
            reasons.append(f"{outcome.obligation.name}: {outcome.reason}")
        elif outcome.vacuous:
            verdicts.append(Verdict.VACUOUS)
            reasons.append(f"{outcome.obligation.name}: its witness reaches no path")
        else:
            verdicts.append(Verdict.PROVED)
    count, paths = len(outcomes), sum(outcome.paths for outcome in outcomes)
    size = f"{count} obligations on {paths} paths, 3 seeds"
    return Result(
        name,
        claim.statement,
        worst(verdicts),
        "z3",
        claim.bound,
        size,
        "; ".join(reasons),
        count,
    )


def try_mutant(mutant: Mutant, system: System) -> Result:
    """Refute a mutant by the obligation that it names, and find its smallest counterexample."""
    try:
        mutated = apply(mutant, system)
        found = smallest(mutant, mutated)
        killed = _killed(mutant, mutated, found)
    except StaleMutant as error:
        return Result(mutant.name, "", Verdict.UNKNOWN, "", "", "", f"stale: {error}")
    except Exception as error:  # of the mutated code: then nothing was refuted
        why = f"raised {type(error).__name__}: {error}"
        return Result(mutant.name, "", Verdict.UNKNOWN, "", "", "", why)
    by = f"claim {mutant.claim}, {mutant.obligation or 'enumeration'}"
    if not killed:
        verdict, reason = Verdict.MUTANT_SURVIVED, f"{by} holds in spite of it"
    elif found != mutant.smallest:
        verdict = Verdict.DISAGREE
        reason = f"smallest counterexample {found!r}; pinned is {mutant.smallest!r}"
    else:
        verdict, reason = Verdict.PROVED, ""
    return Result(mutant.name, f"refuted by {by}", verdict, "", "", found, reason)


def _killed(mutant: Mutant, mutated: System, found: str) -> bool:
    if mutant.module == "order" and mutant.obligation is None:
        return found != "none"  # the search for the smallest is the claim's own
    claim = next(claim for claim in claims(mutated) if claim.number == mutant.claim)
    if mutant.obligation is None:
        assert claim.search is not None, f"claim {claim.number} has obligations: name one"
        return claim.search() is not None
    named = [one for one in claim.obligations if one.name == mutant.obligation]
    assert len(named) == 1, f"claim {claim.number} has no obligation {mutant.obligation!r}"
    return not discharge(named[0]).proved


def prove_all(processes: int) -> Iterator[Result]:
    """Each claim's result, then each mutant's, in order, decided by that many processes."""
    kinds = [(number, True) for number in range(EXPECTED_CLAIMS)]
    kinds += [(number, False) for number in range(len(MUTANTS))]
    # Started afresh: a fork would copy the solver's state.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        # The last claim takes longest: begun first, it does not keep one process after all others.
        longest_first = sorted(kinds, key=lambda which: which != (EXPECTED_CLAIMS - 1, True))
        started = {which: pool.submit(_decide, which) for which in longest_first}
        try:
            yield from (started[which].result() for which in kinds)
        finally:
            for future in started.values():
                future.cancel()


def _decide(which: tuple[int, bool]) -> Result:
    number, claim = which
    if claim:
        return prove_claim(claims(System())[number])
    return try_mutant(MUTANTS[number], System())


def total(results: Iterable[Result]) -> tuple[Verdict, str]:
    """The verdict of a whole run, and its last line."""
    results = list(results)
    proper = [result for result in results if result.engine]
    mutants = [result for result in results if not result.engine]
    obligations = sum(result.obligations for result in proper)
    verdicts = [
        # The claim that is one to a bound holds as claimed.
        Verdict.PROVED if result.verdict is Verdict.HOLDS_TO_BOUND else result.verdict
        for result in results
    ]
    expected = (EXPECTED_CLAIMS, EXPECTED_OBLIGATIONS, len(MUTANTS))
    if (len(proper), obligations, len(mutants)) != expected:
        verdicts.append(Verdict.UNKNOWN)
    verdict = worst(verdicts)
    refuted = sum(result.verdict is Verdict.PROVED for result in mutants)
    line = (
        f"{verdict.name}: {len(proper)} claims, {obligations} of {EXPECTED_OBLIGATIONS} "
        f"obligations, {refuted} of {len(MUTANTS)} mutants refuted"
    )
    return verdict, line
