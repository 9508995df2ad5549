"""Claim 8: g* against every static slot map of small rings, and each lemma against its fault."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from proofs.claims import claims
from proofs.mutation import Mutant, apply
from proofs.obligation import System, discharge
from schedule import Ring, policies
from schedule.arithmetic import balanced_slot, best_distance, block_count

RINGS = [Ring(n, k) for n in range(1, 8) for k in range(1, 5)]
(CLAIM,) = (claim for claim in claims(System()) if claim.number == 8)


def distance(slot_of: tuple[int, ...]) -> int:
    """By definition: the fewest steps from one user of a slot to the next, round the ring."""
    n = len(slot_of)
    least = n
    for slot in set(slot_of):
        users = [step for step in range(n) if slot_of[step] == slot]
        least = min(least, *(b - a for a, b in pairwise([*users, users[0] + n])))
    return least


@pytest.mark.parametrize("ring", RINGS, ids=str)
def test_no_static_map_of_a_small_ring_keeps_a_larger_distance(ring: Ring) -> None:
    n, k = ring.modules, ring.slots
    best = max(distance(slot_of) for slot_of in product(range(min(n, k)), repeat=n))
    assert best == best_distance(ring) == n // -(-n // k)
    assert distance(tuple(balanced_slot(step, ring) for step in range(n))) == best


@pytest.mark.parametrize(
    ("ring", "blocks", "best"),
    [((1, 1), 1, 1), ((7, 3), 3, 2), ((20, 8), 3, 6), ((61, 8), 8, 7), ((5, 9), 1, 5)],
)
def test_the_figures_of_some_rings(ring: tuple[int, int], blocks: int, best: int) -> None:
    assert (block_count(Ring(*ring)), best_distance(Ring(*ring))) == (blocks, best)


def test_the_cyclic_map_keeps_less() -> None:
    """So the claim says something: of 7 modules in 3 slots the last and the first are 1 apart."""
    assert distance(policies.modular(Ring(7, 3)).slot_of) == 1 < best_distance(Ring(7, 3))


def test_its_lemmas() -> None:
    """That each is proved and has its witness, ``make prove`` says."""
    names = ["reached", "start", "spread", "round", "counts", "at most", "bound"]
    assert [obligation.name for obligation in CLAIM.obligations] == names


def test_a_larger_distance_is_not_reached_and_a_smaller_one_is_no_bound() -> None:
    formula = "return ring.modules // block_count(ring)"
    for change, broken in (("{} + 1", "reached"), ("max(1, {} - 1)", "bound")):
        after = "return " + change.format(formula.removeprefix("return "))
        mutant = Mutant("g*", "arithmetic", formula, after, 8, broken, "")
        # balanced follows the formula, and so it is only one of the two that is wrong with it
        (claim,) = (one for one in claims(apply(mutant, System())) if one.number == 8)
        (obligation,) = (one for one in claim.obligations if one.name == broken)
        assert not discharge(obligation).proved
