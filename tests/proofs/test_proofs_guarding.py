"""Claim 7, the guard: each obligation holds, each planted fault breaks the one that it names."""

from __future__ import annotations

import pytest

from proofs.claims import claims
from proofs.guarding import GUARDS, guard_claim, wrong_order
from proofs.mutants_guard import GUARD_MUTANTS
from proofs.mutation import Mutant, apply
from proofs.obligation import System, discharge
from proofs.ordering import KINDS

CLAIM = {obligation.name: obligation for obligation in guard_claim(System())}
SHARED = "copies on the compute stream"
QUICK = ["resident", *GUARDS, *(f"{name}, {SHARED}" for name in GUARDS)]
ONE = [f"{name}, one copy stream" for name in GUARDS]
BREAKS = {
    "an older version is resident": ["resident", *GUARDS, *ONE],
    "a miss is not reloaded": ["arrives", "arrives, one copy stream"],
    "reloaded too late": ["arrives, one copy stream"],
    "what is resident resumes without a wait": ["resumes, one copy stream"],
    "what lost its slot resumes": ["resumes", "resumes, one copy stream"],
}


def test_the_obligations() -> None:
    by_kind = [f"{name}, {kind}" for kind in KINDS for name in GUARDS]
    assert list(CLAIM) == ["resident", *GUARDS, *by_kind]
    (claim,) = (claim for claim in claims(System()) if claim.number == 7)
    assert [one.name for one in claim.obligations] == list(CLAIM)
    assert (claim.title, claim.bound, claim.search) == ("guard", "all N and K", None)


@pytest.mark.parametrize("name", [*QUICK, *ONE])
def test_the_obligation_is_proved_and_not_vacuous(name: str) -> None:
    outcome = discharge(CLAIM[name])
    assert (outcome.proved, outcome.vacuous, outcome.reason) == (True, False, "")


@pytest.mark.parametrize("mutant", GUARD_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_breaks_what_it_names(mutant: Mutant) -> None:
    system = apply(mutant, System())
    mutated = {one.name: one for one in guard_claim(system)}
    broken = [name for name in [*QUICK[:3], *ONE] if not discharge(mutated[name]).proved]
    assert broken == BREAKS[mutant.name]
    assert mutant.obligation in broken
    assert wrong_order(system) == mutant.smallest


def test_the_guard_as_it_is_goes_wrong_in_no_order() -> None:
    assert wrong_order(System()) == "none"
    assert {mutant.name for mutant in GUARD_MUTANTS} == {*BREAKS}
