"""What the strategies draw is what they say: labels, bounds, kinds, what they shrink towards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from proofs import strategies
from proofs.cases import STREAMS
from proofs.faulty import AS_IT_IS, FAULTY
from proofs.planted import PLANTED
from proofs.strategies import KINDS, LabelledProgram, LabelledSchedule, Pass
from proofs.strategies.programs import HARMLESS, places
from schedule import Ring, check, machine, policies
from schedule.explore import explore
from schedule.order import order
from schedule.program import lower
from schedule.properties import IDENTITY, OWNERSHIP
from schedule.table import TABLES
from tests.proofs.kit import python
from tests.walk import walk

FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def simplest(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool] = bool) -> Any:
    quick = settings(FIXED, phases=[Phase.generate, Phase.shrink])
    return find(strategy, wanted, settings=quick)


# ---- rings and slot maps


def test_rings_are_within_their_bounds_and_reach_them() -> None:
    seen: Counter[Ring] = Counter()

    @settings(FIXED, max_examples=200)
    @given(strategies.rings(min_modules=2, max_modules=4, min_slots=3, max_slots=5))
    def collect(ring: Ring) -> None:
        seen[ring] += 1

    collect()
    assert set(seen) == {Ring(n, k) for n in (2, 3, 4) for k in (3, 4, 5)}


def test_rings_shrink_by_modules_then_slots() -> None:
    assert simplest(strategies.rings()) == Ring(1, 1)
    assert simplest(strategies.rings(min_modules=2, min_slots=3)) == Ring(2, 3)
    assert simplest(strategies.rings(), lambda r: r.modules + r.slots > 8) == Ring(1, 8)


@given(strategies.slot_maps(Ring(3, 2), passes=2))
@settings(FIXED, max_examples=100)
def test_slot_maps_have_a_slot_for_each_step(slots: tuple[int, ...]) -> None:
    assert len(slots) == 6
    assert set(slots) <= {0, 1}


def test_slot_maps_shrink_to_slot_0() -> None:
    assert simplest(strategies.slot_maps(Ring(3, 2))) == (0, 0, 0)
    assert simplest(strategies.slot_maps(Ring(3, 4)), lambda slots: sum(slots) > 0) == (0, 0, 1)


# ---- schedules


@FIXED
@given(strategies.schedules())
def test_a_schedule_s_label_is_true(drawn: LabelledSchedule) -> None:
    """By the check, by the machine, and by a walk written apart."""
    schedule, violated = drawn.schedule, walk(drawn.schedule).violated
    assert set(violated) == {one.property for one in check(schedule).violations}
    assert set(machine.run(schedule, 3)) == set(violated) & {OWNERSHIP, IDENTITY}
    if drawn.safe:
        assert (drawn.fault, drawn.violates, drawn.at, drawn.slot) == ("", "", None, None)
        assert violated == {}
    else:
        assert drawn.violates in violated
        assert PLANTED[drawn.fault][0] == drawn.violates
        assert drawn.at is not None


REACHED: dict[str, Callable[[LabelledSchedule], bool]] = {
    **{
        f"{kind}, safe": lambda drawn, kind=kind: drawn.made == kind and drawn.safe
        for kind in KINDS
    },
    **{
        f"{kind}, not": lambda drawn, kind=kind: drawn.made == kind and not drawn.safe
        for kind in KINDS
    },
    **{
        f"safe, with refills of {half}": lambda drawn, half=half: (
            drawn.safe and drawn.made == KINDS[-1] and any(getattr(drawn.schedule, half))
        )
        for half in TABLES
    },
    "three passes": lambda drawn: drawn.safe and drawn.schedule.period == 3,
    "as many slots as modules": lambda drawn: (
        drawn.safe and drawn.schedule.ring.slots == drawn.schedule.ring.modules > 2
    ),
    "useless refills": lambda drawn: (
        drawn.safe and drawn.made == KINDS[-1] and len(check(drawn.schedule).lints) > 1
    ),
}


@pytest.mark.parametrize("name", REACHED)
def test_schedules_reach(name: str) -> None:
    """Nothing vacuous: each kind, and what matters. (``tests/quality`` finds every fault.)"""
    wanted = settings(FIXED, max_examples=3000)
    assert REACHED[name](find(strategies.schedules(), REACHED[name], settings=wanted))


def test_schedules_shrink_to_one_module_and_one_slot() -> None:
    plain = policies.chain(Ring(1, 1))
    for kind in strategies.KINDS:
        found = simplest(strategies.safe_schedules(), lambda drawn, kind=kind: drawn.made == kind)
        assert (found.schedule.ring, found.schedule.preload) == (plain.ring, plain.preload)
    found = simplest(strategies.schedules())
    assert (found.made, found.schedule.after, found.safe) == ("derived", plain.after, True)


def test_schedules_of_a_strategy_of_rings() -> None:
    among = st.just(Ring(5, 2))
    assert simplest(strategies.safe_schedules(among)).schedule.ring == Ring(5, 2)
    assert simplest(strategies.unsafe_schedules(among)).schedule.ring == Ring(5, 2)


# ---- execution orders


TRUE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "in order": lambda ran, every: ran == every,
    "ended early": lambda ran, every: ran == every[: len(ran)] and len(ran) < len(every),
    "skipped": lambda ran, every: ran == tuple(sorted({*ran})) and every[-1] in ran != every,
    "repeated": lambda ran, every: {*ran} == {*every} and len(ran) > len(every),
    "backwards": lambda ran, every: tuple(sorted(ran)) == every != ran,
    "any": lambda ran, every: {*ran} <= {*every} and len(ran) <= 2 * len(every),
}


@settings(FIXED, max_examples=150)
@given(st.data())
def test_an_order_s_kinds_are_true(data: st.DataObject) -> None:
    modules = data.draw(st.integers(1, 6))
    passes = data.draw(strategies.orders(modules, max_passes=3))
    assert 1 <= len(passes) <= 3
    for kind, ran in passes:
        assert TRUE[kind](ran, tuple(range(modules))), (kind, ran)
        assert ran


@pytest.mark.parametrize("kind", strategies.ORDERS)
def test_every_kind_of_pass_occurs_and_shrinks_to_its_plainest(kind: str) -> None:
    plainest = {
        "in order": (0, 1, 2, 3),
        "ended early": (0, 1, 2),
        "skipped": (1, 2, 3),
        "repeated": (0, 0, 1, 2, 3),
        "backwards": (1, 0, 2, 3),
        "any": (0,),
    }
    found = simplest(strategies.orders(4), lambda order: any(one.kind == kind for one in order))
    assert found == (Pass(kind, plainest[kind]),)


def test_one_module_has_no_order_but_its_own() -> None:
    seen = set()

    @settings(FIXED, max_examples=60)
    @given(strategies.orders(1))
    def collect(order: tuple[Pass, ...]) -> None:
        seen.update(one.kind for one in order)

    collect()
    assert seen == {"in order", "repeated", "any"}


# ---- programs and delays


@settings(FIXED, max_examples=120)
@given(strategies.programs(strategies.rings(max_modules=3, max_slots=2)))
def test_a_program_s_label_is_what_every_interleaving_shows(program: LabelledProgram) -> None:
    """The label is from the clocks; where all interleavings can be tried they say the same."""
    explored = explore(program.listing, program.streams, 3000)
    shown = {fault.property for fault in explored.faults}
    assert program.safe or program.fault not in HARMLESS
    assert (program.at is None) == (program.fault == AS_IT_IS)
    if explored.complete:
        assert shown - {IDENTITY} == program.violates - {IDENTITY}
    assert not shown or not program.safe


@pytest.mark.parametrize("fault", FAULTY)
def test_every_fault_occurs_and_so_do_harmless_ones(fault: str) -> None:
    wanted, small = settings(FIXED, max_examples=3000), strategies.rings(max_modules=2, max_slots=2)
    if fault not in HARMLESS:
        faulty = strategies.faulty_programs(small)
        assert not find(faulty, lambda program: program.fault == fault, settings=wanted).safe
    if fault in (*HARMLESS, "no fork", "pageable"):
        found = find(
            strategies.programs(small),
            lambda program: program.fault == fault and program.safe,
            settings=wanted,
        )
        assert order(found.listing, found.streams).safe


def test_faulty_programs_are_faulty_and_of_all_streams() -> None:
    seen = set()

    @settings(FIXED, max_examples=60)
    @given(strategies.faulty_programs())
    def collect(program: LabelledProgram) -> None:
        assert program.violates == {
            fault.property for fault in order(program.listing, program.streams).faults
        }
        assert program.violates
        seen.add(program.streams)

    collect()
    assert seen == {*STREAMS.values()}


def test_a_fault_is_at_one_place_each() -> None:
    """The preload's copy and the one after each run: three forks, one of them missing."""
    listing = lower(policies.chain(Ring(2, 1))).listing(1)
    found = places(listing, "no fork")
    assert [position for (_, position), _ in found] == [0, 6, 12]
    for (boundary, position), changed in found:
        assert listing[position].boundary == boundary
        assert changed == (*listing[:position], *listing[position + 1 :])
    assert places(listing, "no join") == []
    assert places(listing, AS_IT_IS) == []


def test_programs_shrink_to_the_smallest_as_it_is() -> None:
    found = simplest(strategies.programs())
    assert (found.name, found.fault) == ("N=1, K=1, slot_local, one copy stream", AS_IT_IS)
    assert found.at is None
    assert found.safe


def test_delays_are_for_each_task_and_shrink_to_ones() -> None:
    listing = lower(policies.chain(Ring(2, 1))).listing(1)
    count = len(explore(listing).tasks.tasks)
    assert simplest(strategies.delays(listing), lambda _: True) == (1,) * count
    seen: set[int] = set()

    @settings(FIXED, max_examples=100)
    @given(strategies.delays(listing, max_delay=3))
    def collect(delays: tuple[int, ...]) -> None:
        assert len(delays) == count
        seen.update(delays)

    collect()
    assert seen == {1, 2, 3}


# ---- what is refused, at the call


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: strategies.rings(min_modules=0), "min_modules must be an integer, at least 1, got 0"),
    (lambda: strategies.rings(max_slots=True), "max_slots must be an integer, at least 1, got Tr"),
    (lambda: strategies.rings(max_slots=2.0), "max_slots must be an integer, at least 1, got 2.0"),
    (
        lambda: strategies.rings(min_slots=4, max_slots=3),
        "max_slots=3 is less than min_slots=4; nothing is between",
    ),
    (lambda: strategies.slot_maps((3, 2)), r"slot_maps is given (3, 2); give it a Ring"),
    (lambda: strategies.slot_maps(Ring(3, 2), 0), "passes must be an integer, at least 1, got 0"),
    (lambda: strategies.safe_schedules(Ring(3, 2)), r"rings are drawn from a strategy, got Ring"),
    (lambda: strategies.unsafe_schedules(3), "rings are drawn from a strategy, got 3; give rings("),
    (lambda: strategies.schedules("3x2"), "rings are drawn from a strategy, got '3x2'"),
    (lambda: strategies.programs([]), r"rings are drawn from a strategy, got []; give rings"),
    (lambda: strategies.faulty_programs(0), "rings are drawn from a strategy, got 0"),
    (lambda: strategies.orders(0), "modules must be an integer, at least 1, got 0"),
    (lambda: strategies.orders(2, max_passes=-1), "max_passes must be an integer, at least 1, got"),
    (lambda: strategies.delays((), max_delay=0), "max_delay must be an integer, at least 1, got 0"),
    (lambda: strategies.delays("no"), "operation 0: 'n' is no Issued"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_bad_arguments_are_refused_at_the_call(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize("name", ["strategies", "stateful"])
def test_without_hypothesis_the_error_says_what_to_install(name: str, tmp_path: Path) -> None:
    (tmp_path / "hypothesis.py").write_text("raise ImportError('none here')\n")
    run = python("-c", f"import proofs\nfrom proofs import {name}", first=tmp_path)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "ImportError: proofs.strategies and proofs.stateful need Hypothesis: "
        "pip install 'ringproof[fuzz]', or pip install hypothesis"
    )


def test_the_public_names_are_there() -> None:
    assert all(hasattr(strategies, name) for name in strategies.__all__)
