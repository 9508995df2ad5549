"""Each planted fault is refuted with exactly the smallest counterexample; repaired, with none."""

from __future__ import annotations

import pytest

from proofs import enumeration, prove_policy, user, wrapped
from proofs.enumeration import rings
from proofs.report import Verdict
from schedule import Policy, Ring, check
from schedule.policy import of_target
from tests.quality.planted import PLANTED, right, twice
from tests.walk import walk

Found = tuple[str, int, int, int]
"""Property, slot, the module that is needed there, and the one that is there (-1: none)."""

OWN, LATE, WRONG, OPEN = "ownership", "progress", "identity", "closure"
LOST = "and that destroyed the weights of module {} in slot {}, which runs from it next"
NONE = "and no other call brought module {} into slot {} before its run, which reads {}"
THEIRS = NONE.replace("reads {}", "reads module {}'s weights")
REFUTED: dict[str, tuple[tuple[int, int], list[Found], str]] = {
    "wrong_modulus": (
        (2, 1),
        [(LATE, 0, 1, 0), (WRONG, 0, 1, 0)],
        "wrong_modulus(index=0, slots=1, modules=2) returned 0, " + THEIRS.format(1, 0, 0),
    ),
    "off_by_one": (
        (2, 1),
        [(OWN, 0, 0, 1), (LATE, 0, 1, 0), (WRONG, 0, 1, 0), (OPEN, 0, 0, 1)],
        "off_by_one(index=1, slots=1, modules=2) returned 1, " + LOST.format(0, 0),
    ),
    "wrong_at_the_last": (
        (4, 2),
        [(LATE, 1, 1, 3), (WRONG, 1, 1, 3), (OPEN, 1, 1, 3)],
        "wrong_at_the_last(index=3, slots=2, modules=4) returned 0, " + THEIRS.format(1, 1, 3),
    ),
    "wrong_for_sevens": (
        (7, 5),
        [(OWN, 0, 5, 0), (LATE, 0, 0, 0), (WRONG, 0, 5, 0)],
        "wrong_for_sevens(index=2, slots=5, modules=7) returned 0, " + LOST.format(5, 0),
    ),
    "wrong_if_it_divides": (
        (4, 2),
        [(LATE, 0, 2, 0), (WRONG, 0, 2, 0)],
        "wrong_if_it_divides(index=0, slots=2, modules=4) returned 0, " + THEIRS.format(2, 0, 0),
    ),
    "wrong_for_one_less": (
        (3, 2),
        [(OWN, 0, 2, 0), (LATE, 0, 0, 0), (WRONG, 0, 2, 0)],
        "wrong_for_one_less(index=1, slots=2, modules=3) returned 0, " + LOST.format(2, 0),
    ),
    "stops_early": (
        (2, 1),
        [(LATE, 0, 0, 1), (WRONG, 0, 0, 1), (OPEN, 0, 0, 1)],
        "stops_early(index=1, slots=1, modules=2) returned None, " + THEIRS.format(0, 0, 1),
    ),
    "wraps_to_the_first": (
        (3, 2),
        [(OWN, 0, 2, 0), (WRONG, 0, 2, 0)],
        "wraps_to_the_first(index=1, slots=2, modules=3) returned 0, " + LOST.format(2, 0),
    ),
    "one_comparison_off": (
        (2, 1),
        [(LATE, 0, 1, 0), (WRONG, 0, 1, 0)],
        "one_comparison_off(index=0, slots=1, modules=2) returned 0, " + THEIRS.format(1, 0, 0),
    ),
    "wrong_from_twenty": (
        (20, 3),
        [(OWN, 0, 18, 0), (LATE, 0, 0, 0), (WRONG, 0, 18, 0)],
        "wrong_from_twenty(index=17, slots=3, modules=20) returned 0, " + LOST.format(18, 0),
    ),
    "table_one_wrong": (
        (5, 1),
        [(LATE, 0, 0, 4), (WRONG, 0, 0, 4), (OPEN, 0, 0, 4)],
        "table_one_wrong(index=4, slots=1, modules=5) returned 4, " + THEIRS.format(0, 0, 4),
    ),
    "swapped": (
        (3, 2),
        [(OWN, 1, 1, 2), (LATE, 1, 2, 1), (WRONG, 1, 1, 2)],
        "swapped(index=0, slots=2, modules=3) returned 2, " + LOST.format(1, 1),
    ),
    "halves": (
        (3, 2),
        [(OWN, 0, 0, 0), (LATE, 0, 1, 0), (WRONG, 0, 1, 0), (OPEN, 0, 1, 0)],
        "halves(index=1, slots=2, modules=3) returned 1, " + LOST.format(0, 0),
    ),
    "one_short": (
        (1, 1),
        [(LATE, 0, 0, -1), (WRONG, 0, 0, -1), (OPEN, 0, 0, -1)],
        "one_short.refill(Boundary('preload', 0), slot=0, ring=Ring(modules=1, slots=1)) "
        "returned None, " + NONE.format(0, 0, "nothing"),
    ),
    "before_it_ended": (
        (2, 1),
        [(OWN, 0, 0, 1), (LATE, 0, 1, 0), (WRONG, 0, 0, 1)],
        "before_it_ended.refill(Boundary('before', 0), slot=0, ring=Ring(modules=2, slots=1)) "
        "returned 1, " + LOST.format(0, 0),
    ),
    "no_enter": (
        (2, 1),
        [(LATE, 0, 0, 1), (WRONG, 0, 0, 1), (OPEN, 0, 0, 1)],
        "no_enter.refill(Boundary('after', 1), slot=0, ring=Ring(modules=2, slots=1)) "
        "returned None, " + THEIRS.format(0, 0, 1),
    ),
    "twice_another": (
        (2, 1),
        [(OWN, 0, 0, 1), (WRONG, 0, 0, 1), (OPEN, 0, 0, 1)],
        "twice_another.refill(Boundary('leave', 1), slot=0, ring=Ring(modules=2, slots=1)) "
        "returned 1, " + LOST.format(0, 0),
    ),
    "wrong_in_the_second_pass": (
        (2, 1),
        [(LATE, 0, 0, 1), (WRONG, 0, 0, 1), (OPEN, 0, 0, 1)],
        "second.refill(Boundary('after', 3), slot=0, ring=Ring(modules=2, slots=1)) "
        "returned 1, " + THEIRS.format(0, 0, 1),
    ),
}


def test_every_planted_fault_is_in_the_table() -> None:
    assert list(REFUTED) == list(PLANTED)
    assert len(REFUTED) == 18
    assert len({(ring, tuple(found)) for ring, found, _ in REFUTED.values()}) >= 14


@pytest.mark.parametrize("name", REFUTED)
def test_the_smallest_counterexample_is_exactly_this(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "LARGE", 24)  # to save time
    (modules, slots), violations, sentence = REFUTED[name]
    result = prove_policy(PLANTED[name][0])
    assert (result.verdict, result.reason) == (Verdict.VIOLATED, "")
    bound = 24 if modules > 12 else 12
    assert result.bound == f"smallest of the rings to {bound}x{bound}"
    assert result.smallest is not None
    assert result.smallest.schedule.ring == Ring(modules, slots)
    found = [(v.property, v.slot, v.needs, v.has) for v in result.smallest.violations]
    assert found == violations
    assert result.refutation is not None
    assert result.refutation.sentence == sentence


@pytest.mark.parametrize("name", REFUTED)
def test_a_walk_written_apart_sees_the_same_there_and_nothing_in_smaller_rings(name: str) -> None:
    (modules, slots), violations, _ = REFUTED[name]
    policy = PLANTED[name][0]
    for ring in rings(policy, modules, 0):
        if (ring.modules, ring.slots) < (modules, slots) and ring.slots <= 12:
            assert walk(policy(ring)).violated == {}, ring
    assert set(walk(policy(Ring(modules, slots))).violated) == {found[0] for found in violations}


# ---- repaired


REPAIRED = {repaired.name: repaired for _, repaired in PLANTED.values()}


@pytest.mark.parametrize("name", REPAIRED)
def test_repaired_it_is_safe_for_all_rings_to_a_bound(name: str) -> None:
    policy = REPAIRED[name]
    assert all(check(policy(ring)).safe for ring in rings(policy, 12, 0))


@pytest.fixture
def few_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rings are enumerated, to save time."""
    monkeypatch.setattr(enumeration, "LARGE", 13)
    monkeypatch.setattr(enumeration, "LARGE_TABLES", 13)
    monkeypatch.setattr(enumeration, "RANDOM", 4)
    monkeypatch.setattr(wrapped, "SMALL", 6)
    monkeypatch.setattr(user, "EACH", 1)


@pytest.mark.usefixtures("few_rings")
def test_repaired_it_is_proved() -> None:
    result = prove_policy(PLANTED["swapped"][1])
    assert (result.verdict, result.bound) == (Verdict.PROVED, "all N and K")


@pytest.mark.usefixtures("few_rings")
@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("table_one_wrong", ""),
        ("no_enter", ""),
        ("twice_another", "every N for each K to 1, "),
        ("wrong_in_the_second_pass", ""),
    ],
)
def test_repaired_it_holds_to_a_bound_where_it_is_not_followed(name: str, each: str) -> None:
    """``int`` of a number that has few values for a known K is followed then."""
    result = prove_policy(PLANTED[name][1])
    assert result.verdict is Verdict.HOLDS_TO_BOUND
    assert result.bound == f"{each}all rings to 13x13, and 4 random ones to 52"


# ---- useless, and no fault


@pytest.mark.usefixtures("few_rings")
def test_a_self_refill_is_a_lint_and_is_not_refuted() -> None:
    """A module with a slot of its own is copied over itself."""
    result = prove_policy(of_target(right))
    assert (result.verdict, result.smallest) == (Verdict.PROVED, None)
    lints = check(of_target(right)(Ring(3, 2))).lints
    assert [lint.refill[1:] for lint in lints] == [(1, 1, 1)]
    assert [lint.sentence for lint in lints] == ["slot 1 already holds module 1"]


def test_two_refills_without_a_run_between_are_a_lint_if_the_last_one_is_right() -> None:
    findings = check(Policy("twice", lambda s, r: s % r.slots, refill=twice)(Ring(2, 1)))
    assert findings.safe
    assert [lint.sentence for lint in findings.lints] == ["slot 0 already holds module 0"]
