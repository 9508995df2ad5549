"""What each obligation costs, and the whole of ``python -m proofs`` beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from proofs.claims import claims
from proofs.crosscheck import second_answer
from proofs.gates import total
from proofs.obligation import System, discharge
from proofs.prove import prove_all, search


@dataclass(frozen=True, slots=True)
class Line:
    """what: in words.   resources: Z3's, all seeds together, the same on every machine; of a claim
    to a bound, and of the whole, None.   seconds: by the clock.   second: the second solver's
    seconds, or None if it was not asked."""

    what: str
    resources: int | None
    seconds: float
    second: float | None

    def __str__(self) -> str:
        work = "" if self.resources is None else f", {self.resources:,} resources"
        other = "" if self.second is None else f", the second solver {self.second:.2f} s"
        return f"{self.what}: {self.seconds:.2f} s{work}{other}"

    def json(self) -> dict[str, Any]:
        return asdict(self)


def lines(only: list[int] | None = None) -> Iterator[Line]:
    """Every obligation of every claim, or of some, one after the other; then the whole run, mutants
    and all, on as many processes as there are cores."""
    for claim in claims(System()):
        if only and claim.number not in only:
            continue
        if claim.search is not None:
            start = time.perf_counter()
            search(claim)
            yield Line(f"claim {claim.number}, {claim.title}", None, since(start), None)
        for obligation in claim.obligations:
            start = time.perf_counter()
            outcome = discharge(obligation)
            first, start = since(start), time.perf_counter()
            asked = second_answer(outcome.formula) is not None
            what = f"claim {claim.number}, {obligation.name}"
            yield Line(what, outcome.resources, first, since(start) if asked else None)
    processes = os.cpu_count() or 1
    start = time.perf_counter()
    _, line = total(list(prove_all(processes, only or ())), only or ())
    yield Line(f"all of it, {processes} processes, {line}", None, since(start), None)


def since(start: float) -> float:
    return time.perf_counter() - start
