"""Every claim about this code is proved, for sizes that nothing pins."""

from __future__ import annotations

import pytest

from proofs.claims import EXPECTED_OBLIGATIONS, claims
from proofs.obligation import Obligation, System, _reached
from proofs.prove import prove_claim
from proofs.report import Verdict
from proofs.symbolic import explore

CLAIMS = {claim.number: claim for claim in claims(System())}
OBLIGATIONS = {0: 9, 1: 7, 2: 17, 3: 7, 4: 2, 5: 41, 6: 6, 7: 13, 8: 7}


# make prove does it for all of them.
@pytest.mark.parametrize("number", [0, 3, 4])
def test_the_claim_is_proved(number: int) -> None:
    result = prove_claim(CLAIMS[number])
    assert (result.verdict, result.reason) == (Verdict.PROVED, "")
    assert (result.engine, result.obligations) == ("z3", OBLIGATIONS[number])
    assert result.size.startswith(f"{OBLIGATIONS[number]} obligations on ")
    assert result.size.endswith(" paths, 3 seeds")
    assert result.bound == ("all N and K" if number else "every state and event")


def test_the_agreement_holds_to_its_bound() -> None:
    result = prove_claim(CLAIMS[10])
    assert (result.verdict, result.reason) == (Verdict.HOLDS_TO_BOUND, "")
    assert (result.engine, result.obligations) == ("enumeration", 0)
    assert result.bound == "all rings to 12x12"


def test_there_are_as_many_obligations_as_expected() -> None:
    assert {n: len(claim.obligations) for n, claim in CLAIMS.items()} == OBLIGATIONS | {
        9: 0,
        10: 0,
        11: 0,
        12: 0,
    }
    assert sum(OBLIGATIONS.values()) == EXPECTED_OBLIGATIONS == 109


def test_the_claims_are_in_order_and_their_names_unique() -> None:
    assert list(CLAIMS) == sorted(CLAIMS)
    assert len(CLAIMS) == len(claims(System()))
    assert len({claim.title for claim in CLAIMS.values()}) == len(CLAIMS)


@pytest.mark.parametrize("number", CLAIMS)
def test_the_names_of_its_obligations_are_unique(number: int) -> None:
    claim = CLAIMS[number]
    names = [obligation.name for obligation in claim.obligations]
    assert len(set(names)) == len(names)
    assert all(names)
    assert all(obligation.statement for obligation in claim.obligations)


# ---- N and K are free

BIG = [(1_000_002, 2), (1_000_002, 999_999), (5, 2), (1, 1), (3, 1_000_003), (6, 6)]
IN_THE_SET = [(1_000_003, 2), (1_000_003, 999_999), (5, 3), (3, 2)]
MORE_MODULES = [(1_000_003, 7), (1_000_003, 1_000_001), (5, 3), (2, 1)]
SHUTTLED = [(1_000_002, 2), (1_000_002, 999_999), (3, 1_000_003), (6, 6)]
SIZES = {
    "reached": [(5, 2)],
    "balanced: slots": [(1_000_002, 2), (5, 2)],
    "slot_local: step": [(1_000_003, 7), (3, 2)],
    "outside the set: range": [(1_000_002, 2), (1_000_003, 1), (4, 2), (3, 1_000_003)],
    "outside the set: step": [(1_000_002, 2), (1_000_003, 1), (4, 2), (3, 1_000_003)],
    "first steps: range": IN_THE_SET,
    "first steps: step": IN_THE_SET,
    "replaced": IN_THE_SET,
    "not restored": [(1_000_003, 7), (1_000_003, 999_999), (7, 5)],
    "read": IN_THE_SET,
    "closed form": MORE_MODULES,
    "modular": [(1_000_003, 7), (1_000_003, 1_000_001), (5, 3), (3, 2)],
    "double_buffer: slots": SHUTTLED,
    "one_ahead: slots": SHUTTLED,
    "one_ahead: next user": SHUTTLED,
    "one_ahead: brought": SHUTTLED,
    "one_ahead: own pass": SHUTTLED,
}
SIZED = [
    pytest.param(obligation, id=f"{claim.number} {obligation.name}")
    for claim in CLAIMS.values()
    for obligation in claim.obligations
    if "N" in obligation.witness
]


def test_the_claims_for_all_sizes_speak_of_sizes() -> None:
    assert len(SIZED) == 17 + 7 + 2 + 6 + 3  # claims 2, 3, 4, 6 and 8


@pytest.mark.parametrize("obligation", SIZED)
def test_small_and_big_sizes_are_among_those_proved(obligation: Obligation) -> None:
    start = {name: 0 for name in "is" if name in obligation.witness}
    unseen = set(SIZES.get(obligation.name, BIG))
    for path in explore(obligation.body):
        unseen -= {(n, k) for n, k in unseen if _reached(path, {"N": n, "K": k, **start})}
        if not unseen:
            break
    assert unseen == set()


LAST_STEPS = {"first steps: range": (1_000_003, 2, 1_000_000), "first steps: step": (9, 2, 6)}
LAST_STEPS |= {"reached": (5, 2, 2)}
STEPPED = [param for param in SIZED if "i" in param.values[0].witness]


@pytest.mark.parametrize("obligation", STEPPED)
def test_late_steps_are_among_those_proved(obligation: Obligation) -> None:
    modules, slots, step = LAST_STEPS.get(obligation.name, (1_000_002, 2, 1_000_001))
    late = {"N": modules, "K": slots, "i": step}
    assert any(_reached(path, late) for path in explore(obligation.body))


SLOTTED = [
    pytest.param(obligation, id=f"{number} {obligation.name}")
    for number in (0, 1)
    for obligation in CLAIMS[number].obligations
    if "holds" in obligation.witness
]


@pytest.mark.parametrize("obligation", SLOTTED)
def test_any_slot_and_any_step_are_among_those_proved(obligation: Obligation) -> None:
    assert len(SLOTTED) == 9 + 5
    moved = 1_000_000 * (obligation.witness["s"] != obligation.witness["t"])
    other = {"s": 7_000_000, "t": 7_000_000 + moved, "step": 1_000_003}
    assert any(_reached(path, {**obligation.witness, **other}) for path in explore(obligation.body))
