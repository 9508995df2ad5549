"""Plans: what they are at least, what they hold, and what bad budgets get."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest

from schedule import CostsError, Ring, policies, verify
from schedule.certificate import document
from schedule.costs import Costs, Link, Module, Part, Workload, equal_times
from schedule.faults import groups
from schedule.plan import Plan, Planner, plan
from schedule.recheck import recheck
from schedule.space import Candidate, planned
from schedule.timing import pass_time
from tests.schedule.models import drawn, equal


@pytest.mark.parametrize(
    ("modules", "captured", "vllm", "most", "ours"),
    [
        # By hand for the first: 14 units, of which seven copies of two fill all.
        (9, False, 19, 15, 14),
        (10, False, 20, 16, 16),
        (9, True, 19, 17, 15),
        (10, True, 21, 19, 17),
    ],
)
def test_the_figures_of_the_design(
    modules: int, captured: bool, vllm: int, most: int, ours: int
) -> None:
    found = plan(equal(modules), 4 * 2, captured=captured, parts=False)
    assert pass_time(policies.slot_local(Ring(modules, 4)), equal_times(modules), captured) == vllm
    assert found.time == ours <= most
    assert found.memory == 8


def consistent(found: Plan) -> None:
    """What holds of every plan."""
    costs, schedule = found.costs, found.schedule
    assert verify(schedule) == found.verified
    assert not found.verified.lints
    assert not any(groups(schedule).values())
    recheck(document(found.verified))
    sizes = [
        module.size - sum(part.size for part in module.parts if part.name in kept)
        for module, kept in zip(costs.modules, found.kept, strict=True)
    ]
    assert sizes == list(found.moved)
    stays = sum(costs.sizes) - sum(sizes) + costs.resident
    assert found.memory == stays + sum(schedule.slot_sizes(sizes)) <= found.budget
    for workload in costs.workloads:
        times = costs.times(workload, found.moved)
        assert found.times[workload.name] == pass_time(schedule, times, found.captured)
        assert found.times[workload.name] >= found.bounds[workload.name]
    assert all(found.time <= option.time for option in found.others)
    assert all(option.memory <= found.budget for option in found.others)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("streams", [0, 1, 2])
def test_plans_are_what_they_say(captured: bool, streams: int) -> None:
    random = Random(streams)
    for _ in range(12):
        costs = drawn(random, random.randint(1, 9), random.randint(1, 3), streams)
        planner = Planner(costs, captured=captured)
        consistent(planner.plan(random.randint(planner.least, costs.whole + 3)))


def test_a_quarter_of_uneven_models_is_better_off_than_by_any_named_policy() -> None:
    random, better = Random(5), []
    for _ in range(24):
        costs = drawn(random, random.randint(4, 10))
        planner = Planner(costs, parts=False)
        found = planner.plan(random.randint(planner.least, costs.whole))
        named = [option.time for option in found.others if "vLLM" not in option.name]
        better.append(found.time < min(named))
    assert sum(better) >= len(better) / 4


def test_more_memory_is_never_slower_where_the_search_is_exact() -> None:
    random = Random(8)
    for _ in range(6):
        costs = drawn(random, 5)
        planner = Planner(costs, parts=False)
        budgets = range(planner.least, costs.whole + 1, 5)
        times = [planner.plan(budget) for budget in budgets]
        assert all(found.exact for found in times)
        assert [found.time for found in times] == sorted((f.time for f in times), reverse=True)


def test_parts_are_kept_where_copies_take_longest() -> None:
    costs = equal(10, run=10, size=80, parts=8)
    cut, uncut = plan(costs, 400), plan(costs, 400, parts=False)
    # d = (800 - 400) / (10 - 1) bytes must move of each; in tens, at two slots, 50: 500 a pass.
    # Uncut, four are kept, and one slot brings six of 80, of which the other runs hide nothing.
    assert (cut.time, uncut.time) == (500, 6 * 80 + 6 * 10)
    assert cut.moved == (50,) * 10
    assert cut.schedule.ring.slots == 2
    # Of 80 bytes c = 10 are copied beside a run, and y stay: 9 y + c = 400 - 80.
    assert cut.bound == 10 * 10 + 10 * (80 - 10 - Fraction(310, 9))
    assert cut.gap == pytest.approx(500 * 9 / 4100 - 1)
    assert [len(kept) for kept in cut.kept] == [3] * 10


def test_what_was_not_all_looked_at_is_not_exact() -> None:
    """Of 1023 sums of parts 256 are looked at; the best one keeps 377 bytes: 323 + 300 move."""
    parts = tuple(Part(f"p{bit}", 1 << bit) for bit in range(10))
    modules = (Module("a", parts), Module("b", (Part("w", 700),)))
    costs = Costs(modules, (Workload("decode", (0, 0), (0, 0, 0)),), Link(10**9))
    found = plan(costs, 1100)
    assert found.time > 700 + 1023 + 700 - 1100
    assert not found.exact
    assert plan(costs, 1100, parts=False).exact


def test_a_copy_stream_that_falls_behind_slowly_is_not_taken_for_fast() -> None:
    """Each pass copies a thousandth more than it computes: it takes many passes to wait."""
    million = 10**6
    run = (900_000, 1_098_000, *[999_000] * 4)
    modules = tuple(Module(f"m{at}", (Part("w", million),)) for at in range(6))
    costs = Costs(modules, (Workload("decode", run, (0,) * 7),), Link(10**9))
    found = plan(costs, 3 * million, parts=False)
    by_hand = Candidate((million,) * 6, (0, 1, 0, 2, 0, 2), by_use=True)
    times = costs.times(costs.workloads[0], by_hand.moved)
    assert found.exact
    assert found.time <= pass_time(planned(by_hand, 6), times) == 5_997_000


def test_on_a_cpu_the_fewest_bytes_count() -> None:
    found = plan(equal(10, run=1, size=90, parts=9, streams=0), 500)
    # One slot of 50, and 40 of each are kept, is 450; another 50 are left for five more parts.
    assert found.time == 10 + 10 * 50 - 50
    assert found.schedule.ring.slots == 1
    assert found.unused == 0


def test_with_room_for_all_nothing_is_copied() -> None:
    costs = equal(6, size=10)
    found = plan(costs, 1000)
    assert found.is_resident
    assert (found.memory, found.unused) == (60, 940)
    assert found.time == found.bound == 6
    assert not plan(costs, 59).is_resident


def test_of_equal_times_the_one_that_moves_the_fewest_bytes() -> None:
    found = plan(equal(6, run=10, size=10), 59, parts=False)
    assert found.time == 60  # two slots would hide everything
    assert (found.memory, found.unused) == (50, 9)
    assert found.schedule.copies == 2


def test_a_mix_is_planned_by_its_weights() -> None:
    long, short = (100,) * 6, (1,) * 6
    link, between = Link(10**9), (0,) * 7
    modules = tuple(Module(f"m{at}", (Part("w", 60),)) for at in range(6))
    costs = Costs(
        modules, (Workload("a", short, between, 2.0), Workload("b", long, between, 6.0)), link
    )
    found = plan(costs, 180)
    assert found.time == (found.times["a"] + 3 * found.times["b"]) / 4
    assert found.bound == (found.bounds["a"] + 3 * found.bounds["b"]) / 4
    assert found.times["b"] == 600


def test_a_budget_that_is_too_small() -> None:
    modules = (Module("small", (Part("w", 10),)), Module("experts", (Part("w", 70),), 5))
    costs = Costs(modules, (Workload("decode", (1, 1), (0, 0, 0)),), Link(10**9), resident=100)
    with pytest.raises(CostsError) as error:
        plan(costs, 174)
    assert str(error.value) == (
        "memory: 174 bytes are too few: 100 bytes stay on the device, and experts needs a slot of "
        "75; the smallest that works is 175"
    )
    assert plan(costs, 175).memory == 175


@pytest.mark.parametrize("budget", [-1, True, 1.5, "6GiB", None, 10**18 + 1, 10**400])
def test_a_budget_that_is_none(budget: object) -> None:
    with pytest.raises(CostsError, match=r"^memory: .* is no whole number of bytes"):
        plan(equal(3), budget)  # type: ignore[arg-type]


def test_the_same_question_has_the_same_answer() -> None:
    costs = drawn(Random(3), 14, 3)
    assert plan(costs, costs.whole // 2) == plan(costs, costs.whole // 2)


def test_large_models_come_close_to_the_bound() -> None:
    found = plan(equal(61, run=100, size=4000, parts=10), 20 * 4000)
    assert found.gap < 0.025
