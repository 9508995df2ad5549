"""Rules for refills, and periods of several passes: tables by hand, verdicts, lints, bad rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schedule import Policy, PolicyError, Ring, check, policies, verify
from schedule.policy import NAMED
from schedule.ring import LARGEST, Sizes
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary
from tests.schedule.compare import by_check, difference, machine_difference
from tests.walk import walk

LIMIT = 24
RINGS = [Ring(modules, slots) for modules in range(1, LIMIT + 1) for slots in range(1, LIMIT + 1)]
NEW = ("rotating", "restart", "one_ahead", "on_demand")
RULES = NEW[1:]


def rings_for(policy: Policy) -> list[Ring]:
    return [ring for ring in RINGS if ring.slots >= policy.least_slots]


# ---- tables by hand

Table = dict[str, Any]


def rotating(slots: list[int], preload: list[int], after: list[int | None]) -> Table:
    """Slots by step, the preload by slot, and by step the module refilled into the step's slot."""
    refills = [
        [] if module is None else [(slot, module)]
        for slot, module in zip(slots, after, strict=True)
    ]
    return {"slot_of": slots, "preload": list(enumerate(preload)), "after": refills}


BY_HAND: dict[tuple[str, int, int], Table] = {
    ("rotating", 1, 1): rotating([0], [0], [None]),
    ("rotating", 1, 3): rotating([0, 1, 2], [0, 0, 0], [None] * 3),
    ("rotating", 3, 1): rotating([0, 0, 0], [0], [1, 2, 0]),
    ("rotating", 2, 2): rotating([0, 1], [0, 1], [None, None]),
    ("rotating", 4, 2): rotating([0, 1, 0, 1], [0, 1], [2, 3, 0, 1]),
    # Two passes: module 0 in slot 0, then in slot 1.
    ("rotating", 3, 2): rotating([0, 1, 0, 1, 0, 1], [0, 1], [2, 0, 1, 2, 0, 1]),
    ("rotating", 2, 4): rotating([0, 1, 2, 3], [0, 1, 0, 1], [None] * 4),
    ("rotating", 2, 3): rotating([0, 1, 2, 0, 1, 2], [0, 1, 0], [1, 0, 1, 0, 1, 0]),
    ("restart", 1, 1): {"slot_of": [0], "enter": [[(0, 0)]]},
    ("restart", 2, 1): {"slot_of": [0, 0], "enter": [[(0, 0)]], "after": [[(0, 1)], []]},
    ("restart", 2, 3): {"slot_of": [0, 1], "enter": [[(0, 0), (1, 1)]]},
    ("restart", 5, 2): {
        "slot_of": [0, 1, 0, 1, 0],
        "enter": [[(0, 0), (1, 1)]],
        "after": [[(0, 2)], [(1, 3)], [(0, 4)], [], []],
    },
    ("one_ahead", 1, 2): {"slot_of": [0], "enter": [[(0, 0)]]},
    ("one_ahead", 3, 2): {
        "slot_of": [0, 1, 0],
        "enter": [[(0, 0)]],
        "before": [[(1, 1)], [(0, 2)], []],
    },
    ("one_ahead", 2, 5): {"slot_of": [0, 1], "enter": [[(0, 0)]], "before": [[(1, 1)], []]},
    ("on_demand", 1, 1): {"slot_of": [0], "before": [[(0, 0)]]},
    ("on_demand", 3, 1): {"slot_of": [0, 0, 0], "before": [[(0, 0)], [(0, 1)], [(0, 2)]]},
    ("on_demand", 3, 2): {"slot_of": [0, 1, 0], "before": [[(0, 0)], [(1, 1)], [(0, 2)]]},
    ("on_demand", 2, 3): {"slot_of": [0, 1], "before": [[(0, 0)], [(1, 1)]]},
}


@pytest.mark.parametrize(("name", "modules", "slots"), BY_HAND)
def test_tables(name: str, modules: int, slots: int) -> None:
    schedule = NAMED[name](Ring(modules, slots))
    expected = BY_HAND[name, modules, slots]
    steps = len(expected["slot_of"])
    empty: dict[str, list[Any]] = {"preload": []}
    empty |= {"enter": [[]] * (steps // modules), "leave": [[]] * (steps // modules)}
    empty |= {"before": [[]] * steps, "after": [[]] * steps}
    found = {
        table: [list(entry) for entry in getattr(schedule, table)]
        for table in ("enter", "before", "after", "leave")
    }
    found |= {"slot_of": list(schedule.slot_of), "preload": list(schedule.preload)}
    assert found == empty | expected
    assert schedule.period == steps // modules


def test_rotating_goes_on_where_the_period_ends() -> None:
    for ring in RINGS:
        schedule = policies.rotating(ring)
        steps = len(schedule.slot_of)
        assert schedule.slot_of == tuple(step % ring.slots for step in range(steps))
        assert steps % ring.slots == steps % ring.modules == 0
        # No shorter period would do.
        assert all(p * ring.modules % ring.slots for p in range(1, schedule.period)), ring


# ---- verdicts


@pytest.mark.parametrize("name", NEW)
def test_they_are_safe(name: str) -> None:
    for ring in rings_for(NAMED[name]):
        verify(NAMED[name](ring))


@pytest.mark.parametrize("name", NEW)
def test_check_machine_and_walk_agree(name: str) -> None:
    for ring in rings_for(NAMED[name]):
        if ring.modules <= 9 and ring.slots <= 9:
            schedule = NAMED[name](ring)
            verdict = walk(schedule, periods=3)
            assert not difference(schedule, verdict), ring
            assert not machine_difference(schedule, verdict), ring


@pytest.mark.parametrize("name", RULES)
def test_they_copy_every_module_in_every_pass_and_the_lint_says_where_that_is_useless(
    name: str,
) -> None:
    policy = NAMED[name]
    for ring in rings_for(policy):
        schedule = policy(ring)
        assert schedule.copies == ring.modules
        used = min(ring.modules, 2 if name == "one_ahead" else ring.slots)
        alone = [i for i, slot in enumerate(schedule.slot_of) if schedule.slot_of.count(slot) == 1]
        assert len(set(schedule.slot_of)) == used
        assert sorted(lint.refill.module for lint in check(schedule).lints) == alone, ring


def test_rotating_copies_nothing_useless() -> None:
    for ring in RINGS:
        schedule = policies.rotating(ring)
        assert check(schedule).lints == ()
        kept = ring.slots % ring.modules == 0
        assert schedule.copies == (0 if kept else len(schedule.slot_of)), ring


# ---- a user's rules


def cyclic(step: int, ring: Any) -> int:
    slot: int = step % ring.slots
    return slot


def test_a_rule_is_asked_for_every_slot_at_every_boundary() -> None:
    asked: list[tuple[Boundary, int]] = []

    def rule(boundary: Boundary, slot: int, ring: Ring) -> None:
        assert ring == Ring(2, 3)
        asked.append((boundary, slot))

    Policy("asks", cyclic, refill=rule, passes=lambda _: 3)(Ring(2, 3))
    boundaries = [(PRELOAD, 0), (ENTER, 0), (ENTER, 2), (ENTER, 4)]
    boundaries += [(half, step) for half in (BEFORE, AFTER) for step in range(6)]
    boundaries += [(LEAVE, 1), (LEAVE, 3), (LEAVE, 5)]
    assert asked == [(Boundary(*one), slot) for one in boundaries for slot in range(3)]


def test_a_rule_over_two_passes() -> None:
    """Module 0 in turn from two slots, module 1 from slot 0 after it: by hand."""

    def slot_of(step: int, _: Ring) -> int:
        return (0, 1, 1, 0)[step]

    def refill(boundary: Boundary, slot: int, _: Ring) -> int | None:
        return {
            (PRELOAD, 0, 0): 0,
            (ENTER, 0, 1): 1,
            (LEAVE, 1, 1): 0,
            (AFTER, 2, 0): 1,
            (LEAVE, 3, 0): 0,
        }.get((*boundary, slot))

    schedule = Policy("two", slot_of, refill=refill, passes=lambda _: 2)(Ring(2, 2))
    assert schedule.preload == ((0, 0),)
    assert schedule.enter == (((1, 1),), ())
    assert schedule.leave == (((1, 0),), ((0, 0),))
    assert schedule.after == ((), (), ((0, 1),), ())
    assert schedule.before == ((),) * 4
    assert check(schedule).safe
    assert not difference(schedule, walk(schedule, periods=3))


def test_a_rule_that_brings_too_late_is_violated_where_the_walk_says_so() -> None:
    late = Policy(
        "late",
        cyclic,
        refill=lambda at, slot, ring: (
            at.step if at.half == AFTER and slot == at.step % ring.slots else None
        ),
    )
    for ring in RINGS[: 3 * LIMIT]:
        schedule = late(ring)
        findings = check(schedule)
        assert not findings.safe
        assert by_check(findings) == walk(schedule, periods=3).violated, ring


def returning(result: Any) -> Callable[..., Any]:
    return lambda *_: result


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"policy x has both target and refill; give one of them"):
        Policy("x", cyclic, returning(0), refill=returning(None))
    with pytest.raises(PolicyError, match=r"policy x has a target and a period of its own"):
        Policy("x", cyclic, returning(0), passes=returning(2))


BAD_MODULES = {3: "which is no module; return 0 .. 2, or None", -1: "which is no module"}
BAD_TYPES: list[Any] = [True, 1.0, "1", (0, 1)]


@pytest.mark.parametrize("module", BAD_MODULES)
def test_a_refill_of_no_module_is_refused(module: int) -> None:
    rule = Policy("x", cyclic, refill=lambda at, *_: module if at.half == LEAVE else None)
    with pytest.raises(PolicyError) as error:
        rule(Ring(3, 2))
    text = "policy x returned {} for (boundary=Boundary(half='leave', step=2), slot=0, ring=Ring(mo"
    assert str(error.value).startswith(text.format(module))
    assert BAD_MODULES[module] in str(error.value)


@pytest.mark.parametrize("module", BAD_TYPES)
def test_a_refill_of_another_type_is_refused(module: object) -> None:
    message = rf"a {type(module).__name__}; return an integer, or None for no refill"
    with pytest.raises(PolicyError, match=message):
        Policy("x", cyclic, refill=returning(module))(Ring(3, 2))


@pytest.mark.parametrize("passes", [0, -1, *BAD_TYPES, None])
def test_a_period_of_no_passes_is_refused(passes: object) -> None:
    with pytest.raises(PolicyError, match=r"policy x gives a period of .*; passes is an integer, "):
        Policy("x", cyclic, passes=returning(passes))(Ring(3, 2))


def test_a_period_that_is_too_long_is_refused() -> None:
    with pytest.raises(PolicyError, match=rf"a period has at most {LARGEST} steps"):
        policies.rotating(Ring(2_003, 2_001))
    with pytest.raises(PolicyError, match=rf"a period has at most {LARGEST} steps"):
        Policy("x", cyclic, passes=returning(LARGEST))(Ring(2, 2))


@pytest.mark.parametrize("field", ["slot_of", "refill", "passes"])
def test_what_a_rule_raises_is_said(field: str) -> None:
    def fails(*_: object) -> int:
        raise RuntimeError("planned")

    functions: dict[str, Any] = {"slot_of": cyclic, field: fails}
    mine = policies.guarded_policy(Policy("mine", **functions))
    with pytest.raises(PolicyError, match=rf"{field} of mine\(.*\) raised RuntimeError: planned"):
        mine(Ring(3, 2))


@pytest.mark.parametrize("field", ["refill", "passes"])
def test_a_rule_that_does_not_return_is_stopped(field: str) -> None:
    def endless(*_: object) -> int:
        while True:
            pass

    mine = policies.guarded_policy(Policy("mine", cyclic, **{field: endless}))
    with pytest.raises(PolicyError, match=r"did not return within"):
        mine(Ring(3, 2))


def test_guarded_a_policy_is_the_same() -> None:
    for name in NEW:
        guarded = policies.guarded_policy(NAMED[name])
        assert guarded is NAMED[name]
        copied = Policy(
            "copy",
            NAMED[name].slot_of,
            least_slots=NAMED[name].least_slots,
            refill=NAMED[name].refill,
            passes=NAMED[name].passes,
        )
        mine, its = policies.guarded_policy(copied)(Ring(5, 3)), NAMED[name](Ring(5, 3))
        for table in ("slot_of", "preload", "enter", "before", "after", "leave"):
            assert getattr(mine, table) == getattr(its, table)


class Number(int):
    """An int of a user's own."""


def test_ints_of_their_own_kind_become_plain_ones() -> None:
    """So that the lowering, the runtime and a trace's file take them too."""
    numbers = (
        policies.from_target(lambda i, k, n: Number((i + k) % n), Ring(4, 2)),
        policies.Policy("odd", lambda i, ring: Number(i % ring.slots))(Ring(4, 2)),
        policies.Policy("odd", lambda *_: 0, refill=_before)(Ring(4, 2)),
    )
    for schedule in numbers:
        modules = [refill.module for refills in schedule.after for refill in refills]
        modules += [refill.module for refills in schedule.before for refill in refills]
        assert {type(number) for number in (*schedule.slot_of, *modules)} == {int}
        assert check(schedule).safe


def _before(boundary: Boundary, slot: int, _: Sizes) -> int | None:
    half, step = boundary
    return Number(step) if half == "before" and slot == 0 else None
