"""Known unsafe schedules: which property they violate, where first, and what the trace marks."""

from __future__ import annotations

import dataclasses

import pytest

from schedule import Refill, Ring, Schedule, ScheduleViolation, check, policies, verify
from schedule.verifier import Violation
from tests.schedule.compare import by_check, difference
from tests.walk import NOTHING, walk

LIMIT = 64
FAILING = (932, 868)
"""How many rings up to LIMIT fail, by N odd and N even."""


def modular_fails(modules: int, slots: int) -> bool:
    return 1 < slots < modules and modules % slots != 0


def of(schedule: Schedule, name: str) -> Violation:
    """The violation of this property."""
    (found,) = [each for each in check(schedule).violations if each.property == name]
    return found


def marks(violation: Violation) -> list[object]:
    """The moments that the trace marks: brought, replaced, run."""
    places = (violation.brought, violation.replaced, violation.run)
    return [None if at is None else violation.trace[at] for at in places]


def without(schedule: Schedule, step: int) -> Schedule:
    """The same schedule with no refill after that step."""
    after = tuple(() if i == step else refills for i, refills in enumerate(schedule.after))
    return dataclasses.replace(schedule, after=after)


# ---- the old rule


@pytest.mark.parametrize("half", [0, 1])
def test_modular_fails_exactly_when_slots_do_not_divide(half: int) -> None:
    """And then module 0 replaces the first module of the last turn, which reads module 0."""
    rings = [Ring(n, k) for n in range(1 + half, LIMIT + 1, 2) for k in range(1, LIMIT + 1)]
    failing = set()
    for ring in rings:
        findings = check(policies.modular(ring))
        if findings.safe:
            continue
        failing.add(ring)
        victim = ring.modules - ring.modules % ring.slots
        found = by_check(findings)
        assert found["ownership"] == ("after", ring.modules - ring.slots, 0, 0), ring
        assert found["identity"] == ("run", victim, 0, victim), ring
        for violation in findings.violations:
            if violation.property in ("ownership", "identity"):
                assert (violation.slot, violation.needs, violation.has) == (0, victim, 0), ring
    assert failing == {ring for ring in rings if modular_fails(ring.modules, ring.slots)}
    assert len(failing) == FAILING[half]


def test_modular_at_three_modules_and_two_slots() -> None:
    """Module 2 is brought after module 0, replaced by module 0 after module 1, and reads it."""
    schedule = policies.modular(Ring(3, 2))
    ownership, identity = of(schedule, "ownership"), of(schedule, "identity")
    for violation in (ownership, identity):
        assert marks(violation) == [("after", 0, 0, 2), ("after", 1, 0, 0), ("run", 2, 0, 2)]
        assert (violation.brought, violation.replaced, violation.run) == (3, 5, 6)
        assert (violation.slot, violation.needs, violation.has) == (0, 2, 0)
        assert violation.trace == (
            ("preload", 0, 0, 0),
            ("preload", 0, 1, 1),
            ("run", 0, 0, 0),
            ("after", 0, 0, 2),
            ("run", 1, 1, 1),
            ("after", 1, 0, 0),
            ("run", 2, 0, 2),
        )
    assert str(ownership) == (
        "ownership: pass 0, after module 1: refill of module 0 into slot 0 replaces module 2, "
        "which slot 0's next run reads; module 2 then reads module 0's weights"
    )
    assert str(identity) == (
        "identity: pass 0: module 2 runs from slot 0, and reads module 0's weights"
    )


def test_modular_progress_is_luck() -> None:
    """Module 0 of pass 1 finds its own weights only because they came one run too early."""
    progress = of(policies.modular(Ring(3, 2)), "progress")
    assert marks(progress) == [("after", 1, 0, 0), None, ("run", 3, 0, 0)]
    assert (progress.needs, progress.has) == (0, 0)
    assert "by an earlier refill's luck" in progress.sentence


def test_verify_raises_what_check_finds() -> None:
    schedule = policies.modular(Ring(3, 2))
    with pytest.raises(ScheduleViolation) as caught:
        verify(schedule)
    assert caught.value.violations == check(schedule).violations
    assert str(caught.value).splitlines() == [str(each) for each in check(schedule).violations]
    assert isinstance(caught.value, ValueError)
    good = policies.slot_local(Ring(3, 2))
    assert verify(good).schedule is good
    assert verify(good).lints == check(good).lints


# ---- single faults


def at_one_size(index: int, slots: int, modules: int) -> int:
    """The fixed rule, but the old one for 21 modules and 5 slots."""
    target = (index + slots) % modules
    if (modules, slots) != (21, 5) and slots < modules and target % slots != index % slots:
        return index % slots
    return target


def test_a_bug_at_one_size_is_found_there_alone() -> None:
    rings = [Ring(n, k) for n in range(1, 31) for k in range(1, 31)]
    unsafe = [ring for ring in rings if not check(policies.from_target(at_one_size, ring)).safe]
    assert unsafe == [Ring(21, 5)]
    found = by_check(check(policies.from_target(at_one_size, Ring(21, 5))))
    assert found["ownership"] == ("after", 16, 0, 0)
    assert found["identity"] == ("run", 20, 0, 20)


def test_overwritten_and_restored_in_time_violates_ownership_alone() -> None:
    schedule = policies.from_target(lambda i, *_: (3, 0, 3, 0)[i], Ring(4, 3))
    assert by_check(check(schedule)) == {"ownership": ("after", 1, 0, 0)}
    assert set(walk(schedule).violated) == {"ownership"}
    violation = of(schedule, "ownership")
    assert marks(violation) == [("after", 0, 0, 3), ("after", 1, 0, 0), ("run", 3, 0, 3)]
    assert (violation.needs, violation.has) == (3, 3)
    assert "has its own again by a later refill" in violation.sentence


def test_a_missing_refill_violates_identity_but_not_ownership() -> None:
    """At (3,1) without the refill after module 1, module 2 reads module 1."""
    schedule = without(policies.chain(Ring(3, 1)), 1)
    victim = ("run", 2, 0, 2)
    assert by_check(check(schedule)) == {"progress": victim, "identity": victim}
    assert difference(schedule, walk(schedule)) == []
    assert marks(of(schedule, "identity")) == [None, ("preload", 0, 0, 0), victim]
    assert of(schedule, "identity").has == 1


def test_a_missing_first_refill_violates_closure_too() -> None:
    """At (3,2) without the refill after module 0, module 2 counts on the pass before."""
    schedule = without(policies.chain(Ring(3, 2)), 0)
    victim = ("run", 2, 0, 2)
    found = {"progress": victim, "identity": victim, "closure": victim}
    assert by_check(check(schedule)) == found
    assert difference(schedule, walk(schedule)) == []
    assert marks(of(schedule, "closure")) == [None, ("preload", 0, 0, 0), victim]
    assert of(schedule, "closure").has == 0


def test_a_missing_last_refill_violates_closure_in_the_second_period() -> None:
    """At (3,2) without the refill after module 2, the next pass starts without module 0."""
    schedule = without(policies.chain(Ring(3, 2)), 2)
    victim = ("run", 3, 0, 0)
    found = {"progress": victim, "identity": victim, "closure": victim}
    assert by_check(check(schedule)) == found
    assert difference(schedule, walk(schedule)) == []
    assert marks(of(schedule, "closure")) == [("preload", 0, 0, 0), ("after", 0, 0, 2), victim]
    assert "the period's end leaves module 2's weights there" in of(schedule, "closure").sentence


def test_a_missing_preload_violates_closure_in_the_first_period() -> None:
    schedule = dataclasses.replace(policies.chain(Ring(3, 2)), preload=(Refill(1, 1),))
    victim = ("run", 0, 0, 0)
    found = {"progress": victim, "identity": victim, "closure": victim}
    assert by_check(check(schedule)) == found
    assert difference(schedule, walk(schedule)) == []
    closure = of(schedule, "closure")
    assert marks(closure) == [None, None, victim]
    assert closure.has == NOTHING
    assert "the preload leaves a slot that nothing was copied into" in closure.sentence


def test_a_refill_into_a_slot_that_nobody_runs_from_is_only_a_lint() -> None:
    chain = policies.chain(Ring(2, 3))
    schedule = dataclasses.replace(chain, after=((Refill(2, 0),), (Refill(2, 1),)))
    findings = check(schedule)
    assert findings.safe
    assert [(lint.refill, lint.sentence) for lint in findings.lints] == [
        (("after", 0, 2, 0), "no run reads slot 2"),
        (("after", 1, 2, 1), "no run reads slot 2"),
    ]
    assert difference(schedule, walk(schedule)) == []


def test_a_refill_that_another_one_replaces_unread_is_a_lint() -> None:
    """Into a slot of N=3, K=1, first the module after next and then the next one."""
    chain = policies.chain(Ring(3, 1))
    twice = (Refill(0, 2), Refill(0, 1))
    findings = check(dataclasses.replace(chain, after=(twice, *chain.after[1:])))
    assert findings.safe
    assert [(lint.refill, lint.sentence) for lint in findings.lints] == [
        (("after", 0, 0, 2), "slot 0 is refilled again before a run reads it")
    ]
