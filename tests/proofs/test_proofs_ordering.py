"""Claim 5, the fences for all sizes: each obligation holds, and each planted fault breaks one."""

from __future__ import annotations

from functools import cache

import pytest

from proofs import mutation
from proofs.cases import Bounds
from proofs.claims import claims
from proofs.mutants_order import ORDER_MUTANTS
from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutation import Mutant, apply, smallest
from proofs.obligation import Obligation, System, discharge
from proofs.ordering import HERE, KINDS, OTHER, ordering_claim
from schedule.operations import COMPUTE, COPY

ONE, SHARED = "one copy stream", "copies on the compute stream"
CLAIM = {obligation.name: obligation for obligation in ordering_claim(System())}
EACH = ("refill", "run", "keep", "refill elsewhere", "run elsewhere", "block", "write", "join")


def of_kind(kind: str, system: System) -> list[Obligation]:
    return [one for one in ordering_claim(system) if one.name.endswith(f", {kind}")]


def test_there_is_one_obligation_of_each_sort_for_each_way_to_use_streams() -> None:
    assert list(CLAIM) == ["base", *(f"{name}, {kind}" for kind in KINDS for name in EACH)]
    assert len(ordering_claim(System())) == len(CLAIM) == 1 + 5 * 8
    (claim,) = (claim for claim in claims(System()) if claim.number == 5)
    assert [one.name for one in claim.obligations] == list(CLAIM)
    assert (claim.title, claim.bound, claim.search) == ("ordering", "all N and K", None)


def test_the_ways_to_use_streams() -> None:
    assert {kind: (each.copies, each.stream) for kind, each in KINDS.items()} == {
        "one copy stream": ((COPY,), COPY),
        "two copy streams": ((COPY, "copy 1"), COPY),
        "compute stream and a copy stream": ((COMPUTE, COPY), COMPUTE),
        "copy stream and compute stream": ((COMPUTE, COPY), COPY),
        "copies on the compute stream": ((COMPUTE,), COMPUTE),
    }


def test_the_witnesses_tell_this_slot_from_another() -> None:
    assert HERE["s"] == HERE["t"]
    assert OTHER["s"] != OTHER["t"]
    elsewhere = [name for name, one in CLAIM.items() if one.witness == OTHER]
    assert elsewhere == [name for name in CLAIM if "elsewhere" in name]


SMALL = ["base", *(f"{name}, {kind}" for kind in (ONE, SHARED) for name in EACH)]
WIDE = [f"{name}, two copy streams" for name in ("refill", "run", "run elsewhere", "write")]


@pytest.mark.parametrize("name", [*SMALL, *WIDE])
def test_the_obligation_is_proved_and_not_vacuous(name: str) -> None:
    outcome = discharge(CLAIM[name])
    assert (outcome.proved, outcome.vacuous, outcome.reason) == (True, False, "")
    assert outcome.paths >= 1


# ---- planted faults

NAMED = [mutant for mutant in (*PROGRAM_MUTANTS, *ORDER_MUTANTS) if mutant.obligation]
BY_NAME = {mutant.name: mutant for mutant in NAMED}
BREAKS = {
    "no fork event": ["refill"],
    "no wait for the copy": ["run"],
    "stream-wide wait replaced by nothing": ["refill"],
    "wait on a stale record": ["refill"],
    "a host write during a copy": ["write"],
    "the write of another slot": ["keep"],
    "a host write during a run": ["keep"],
    "nothing is joined": ["join"],
    "a wait that waits for nothing": ["refill", "run", "keep", "write", "join"],
    "a wait that forgets the others": [
        *("refill", "run", "refill elsewhere", "run elsewhere", "block", "write")
    ],
}
"""Which obligations of one copy stream a fault breaks; one in the lowering, the one named."""

ELSEWHERE = (
    "two copy streams without order",
    "a stream forgets what it did",
    "a slot that is not empty at first",
)
"""They break obligations of other streams, or the base."""


@cache
def mutated(name: str) -> System:
    return apply(BY_NAME[name], System())


def test_every_fence_has_its_mutant() -> None:
    assert {mutant.claim for mutant in NAMED} == {5}
    assert set(BY_NAME) == {*BREAKS, *ELSEWHERE}
    assert {mutant.obligation for mutant in NAMED if mutant.module == "program"} == {
        *(f"{name}, {ONE}" for name in ("refill", "run", "keep", "write", "join")),
        "refill, two copy streams",
    }


@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_breaks_the_obligation_that_it_names_and_no_other(name: str) -> None:
    broken = [one.name for one in of_kind(ONE, mutated(name)) if not discharge(one).proved]
    assert broken == [f"{each}, {ONE}" for each in BREAKS[name]]
    assert BY_NAME[name].obligation in broken
    assert BY_NAME[name].module == "order" or len(broken) == 1


def test_without_order_of_copies_a_refill_on_two_streams_is_a_waw_and_one_is_safe() -> None:
    system = mutated("two copy streams without order")
    found = {one.name: one for one in ordering_claim(system)}
    outcome = discharge(found["refill, two copy streams"])
    assert (outcome.proved, outcome.reason) == (False, "WAW (sat with seed 0)")
    assert all(discharge(one).proved for one in of_kind(ONE, system))
    assert discharge(found["run, two copy streams"]).proved


REASONS = {
    "no fork event": "WAR (sat with seed 0)",
    "no wait for the copy": "RAW (sat with seed 0)",
    "wait on a stale record": "the statement may fail (sat with seed 0)",
    "a host write during a copy": "block (sat with seed 0)",
    "nothing is joined": "joined (sat with seed 0)",
}


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_the_hazard(name: str) -> None:
    (one,) = (o for o in ordering_claim(mutated(name)) if o.name == BY_NAME[name].obligation)
    assert discharge(one).reason == REASONS[name]


@pytest.mark.parametrize("mutant", PROGRAM_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_smallest_program_with_the_fault_is_pinned(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "EVERY_RUN", Bounds(2, 2, 2, 2, 2))
    assert smallest(mutant, apply(mutant, System())) == mutant.smallest


def test_the_true_lowering_has_no_faulty_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "EVERY_RUN", Bounds(2, 2, 2, 2, 2))
    assert smallest(PROGRAM_MUTANTS[0], System()) == "none"


def test_a_clock_that_starts_full_breaks_the_base() -> None:
    blind = Mutant(
        "full",
        "order",
        "content, version, written = Ledger(EMPTY), Ledger(EMPTY)",
        "content, version, written = Ledger(0), Ledger(0)",
        5,
        "base",
        "none",
    )
    (base,) = (one for one in ordering_claim(apply(blind, System())) if one.name == "base")
    assert not discharge(base).proved
