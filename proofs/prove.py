"""Everything that ``python -m proofs`` shows: the claims, then the mutants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from proofs.claims import EXPECTED_CLAIMS, Claim, claims
from proofs.crosscheck import second_answer
from proofs.engines import Explorer, remembering
from proofs.mutants import MUTANTS
from proofs.mutation import Mutant, StaleMutant, apply, faulty_claims, of_lemma, smallest
from proofs.obligation import SEEDS, Outcome, System, discharge, smallest_integers
from proofs.report import Verdict, worst
from proofs.search import Search, first
from schedule.explore import explore

HERE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Part:
    """What came of one obligation.

    statement: in words.             where: the file and line of what was run.
    paths, resources: how much was decided, and what Z3 used for it, all seeds together.
    second: the second solver's answer to the same formula; None if there is no second solver.
    formula: that formula, as SMT-LIB text.
    pinned: which of N and K it speaks of for one value alone.
    """

    name: str
    statement: str
    verdict: Verdict
    where: tuple[str, int]
    reason: str
    paths: int
    resources: int
    second: str | None
    formula: str
    pinned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one claim or one mutant. ``size`` says how much was decided; parts: a claim's
    obligations, one by one; killed: those that a mutant refuted, by claim and name; looked_at: of a
    claim to a bound, how many schedules or programs."""

    name: str
    statement: str
    verdict: Verdict
    engine: str
    bound: str
    size: str
    reason: str = ""
    parts: tuple[Part, ...] = ()
    killed: tuple[tuple[int, str], ...] = ()
    looked_at: int = 0

    @property
    def obligations(self) -> int:
        """How many."""
        return len(self.parts)


def prove_claim(claim: Claim) -> Result:
    """Decide a claim: every obligation by Z3, or the claim's search by enumeration."""
    if claim.search is not None:
        return of_search(claim, search(claim))
    parts = tuple(part_of(discharge(obligation)) for obligation in claim.obligations)
    count, paths = len(parts), sum(part.paths for part in parts)
    return Result(
        f"{claim.number} {claim.title}",
        claim.statement,
        worst(part.verdict for part in parts),
        "z3",
        claim.bound,
        f"{count} obligations on {paths} paths, {len(SEEDS)} seeds",
        "; ".join(f"{part.name}: {part.reason}" for part in parts if part.reason),
        parts,
    )


def search(claim: Claim) -> Search:
    """The claim's search, ring by ring."""
    assert claim.search is not None, f"claim {claim.number} has obligations: name one"
    return first(search_at(claim, modules, explore) for modules in range(1, claim.largest + 1))


def search_at(claim: Claim, modules: int, explorer: Explorer) -> Search:
    """The part of a claim's search that is about rings of so many modules."""
    assert claim.search is not None, "of a claim to a bound"
    try:
        return claim.search(modules, explorer)
    except Exception as error:  # of the code under proof: it is not shown, whatever it was
        return Search(0, raised=f"raised {type(error).__name__}: {error}")


def of_search(claim: Claim, found: Search) -> Result:
    """What came of a claim that is searched."""
    verdict = claim.found if found.found else Verdict.HOLDS_TO_BOUND
    return Result(
        f"{claim.number} {claim.title}",
        claim.statement,
        Verdict.UNKNOWN if found.raised else verdict,
        "enumeration",
        claim.bound,
        f"{found.looked_at:,} {claim.looks_at}",
        found.raised or found.found or "",
        looked_at=found.looked_at,
    )


def part_of(outcome: Outcome) -> Part:
    """The verdict on an obligation, and what the second solver says."""
    obligation, code = outcome.obligation, outcome.obligation.body.__code__
    verdict, reason = Verdict.PROVED, ""
    if not outcome.proved:
        verdict, reason = Verdict.UNKNOWN, outcome.reason
    elif outcome.vacuous:
        verdict, reason = Verdict.VACUOUS, "its witness reaches no path"
    file = Path(code.co_filename)
    return Part(
        obligation.name,
        obligation.statement,
        verdict,
        (
            file.relative_to(HERE).as_posix() if file.is_relative_to(HERE) else "",
            code.co_firstlineno,
        ),
        reason,
        outcome.paths,
        outcome.resources,
        second_answer(outcome.formula) if outcome.formula else None,
        outcome.formula,
        outcome.pinned,
    )


def try_mutant(mutant: Mutant, system: System) -> Result:
    """Refute a mutant by the obligations that it names, and find its smallest counterexample."""
    try:
        found = _smallest(mutant, system)
        survived = _survived(mutant, system, found)
    except StaleMutant as error:
        return Result(mutant.name, "", Verdict.UNKNOWN, "", "", "", f"stale: {error}")
    except Exception as error:  # of the mutated code: then nothing was refuted
        why = f"raised {type(error).__name__}: {error}"
        return Result(mutant.name, "", Verdict.UNKNOWN, "", "", "", why)
    by = f"claim {mutant.claim}, {mutant.obligation or 'enumeration'}"
    verdict, reason = Verdict.PROVED, ""
    if survived:
        verdict, reason = Verdict.MUTANT_SURVIVED, f"{survived} holds in spite of it"
    elif found != mutant.smallest:
        verdict = Verdict.DISAGREE
        reason = f"smallest counterexample {found!r}; pinned is {mutant.smallest!r}"
    killed = () if verdict is not Verdict.PROVED else tuple(_named(mutant))
    statement = f"refuted by {by}"
    return Result(mutant.name, statement, verdict, "", "", found, reason, killed=killed)


def _named(mutant: Mutant) -> Iterator[tuple[int, str]]:
    """The obligations that must be refuted of this mutant, by claim."""
    if mutant.obligation is not None:
        yield mutant.claim, mutant.obligation
    yield from mutant.also


def _smallest(mutant: Mutant, system: System) -> str:
    if not of_lemma(mutant):
        return smallest(mutant, apply(mutant, system))
    by_claim = {claim.number: claim for claim in faulty_claims(mutant, system)}
    (one,) = (o for o in by_claim[mutant.claim].obligations if o.name == mutant.obligation)
    return smallest_integers(one)


def _survived(mutant: Mutant, system: System, found: str) -> str | None:
    """The first of the claims and obligations that the mutant names which holds of it."""
    named = list(_named(mutant))
    if not named and mutant.module in OWN_SEARCH:
        return OWN_SEARCH[mutant.module] if found == "none" else None
    by_claim = {claim.number: claim for claim in faulty_claims(mutant, system)}
    if not named:
        holds = search(by_claim[mutant.claim]).found is None
        return f"claim {mutant.claim}, enumeration," if holds else None
    for number, name in named:
        found_there = [one for one in by_claim[number].obligations if one.name == name]
        assert len(found_there) == 1, f"claim {number} has no obligation {name!r}"
        if discharge(found_there[0]).proved:
            return f"claim {number}, {name}"
    return None


OWN_SEARCH = {
    "order": "the comparison of engines",
    **dict.fromkeys(("space", "search"), "the comparison of plans"),
}
"""Of which modules the search for the smallest is the claim's own, and what it then says."""

Which = tuple[bool, int]
"""Whether it is a claim, and its number; or the mutant's, in MUTANTS."""


def chosen(only: Sequence[int] = ()) -> list[Which]:
    """What there is to decide: all of it, or some claims and the mutants that these refute."""
    claim_numbers = [n for n in range(EXPECTED_CLAIMS) if not only or n in only]
    named = [{mutant.claim, *(claim for claim, _ in mutant.also)} for mutant in MUTANTS]
    mutants = [n for n, numbers in enumerate(named) if not only or numbers.intersection(only)]
    return [*((True, number) for number in claim_numbers), *((False, n) for n in mutants)]


def prove_all(processes: int, only: Sequence[int] = ()) -> Iterator[Result]:
    """Each claim's result, then each mutant's, in order, decided by that many processes."""
    whole, known = chosen(only), claims(System())
    searched = [known[n] for claim, n in whole if claim and known[n].search is not None]
    numbers = [claim.number for claim in searched]
    # Started afresh: a fork would copy the solver's state.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        proved = {
            which: pool.submit(_decide, which)
            for which in whole
            if which[0] and which[1] not in numbers
        }
        # The largest rings take longest: begun first, none of them is left alone at the end.
        largest = max((claim.largest for claim in searched), default=0)
        rings = {n: pool.submit(_search, numbers, n) for n in range(largest, 0, -1)}
        refuted = {which: pool.submit(_decide, which) for which in whole if not which[0]}
        started: list[Future[Any]] = [*proved.values(), *rings.values(), *refuted.values()]
        try:
            for which in whole:
                if which[0] and which[1] in numbers:
                    claim = known[which[1]]
                    parts = (rings[n].result()[claim.number] for n in range(1, claim.largest + 1))
                    yield of_search(claim, first(parts))
                else:
                    yield (proved if which[0] else refuted)[which].result()
        finally:
            for future in started:
                future.cancel()


def _search(numbers: list[int], modules: int) -> dict[int, Search]:
    """By claim, its search among rings of so many modules."""
    explorer = remembering()
    wanted = [claim for claim in claims(System()) if claim.number in numbers]
    return {
        claim.number: search_at(claim, modules, explorer)
        for claim in wanted
        if modules <= claim.largest
    }


def _decide(which: Which) -> Result:
    claim, number = which
    if claim:
        return prove_claim(claims(System())[number])
    return try_mutant(MUTANTS[number], System())
