"""The front of memory against pass time; sizes and times as they are said; axes."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule import CostsError, Ring, policies, spoken
from schedule.bounds import lower_bound
from schedule.front import BOUNDS_WORK, MOST_POINTS, WORK, Front, budgets, front, undominated
from schedule.plan import Option, Plan, Planner
from schedule.scale import axis, spread
from schedule.sizes import bytes_of
from schedule.timing import steady
from tests.schedule.small_costs import MB, costs
from tests.schedule.test_random_tables import FIXED

PLANNER = Planner(costs())


@pytest.fixture(scope="module")
def found() -> Front:
    return front(PLANNER, 6)


def test_budgets_are_from_the_least_to_the_whole() -> None:
    assert PLANNER.least == 450 * MB
    assert budgets(PLANNER, 2) == [450 * MB, 950 * MB]
    # Two slots of the largest; three are more than the whole model.
    assert budgets(PLANNER, 3) == [450 * MB, 850 * MB, 950 * MB]
    assert budgets(PLANNER, 5) == [450 * MB, 616666666, 783333333, 850 * MB, 950 * MB]
    equal = Planner(costs((100,) * 4))
    assert budgets(equal, 4) == [one * MB for one in (150, 250, 350, 450)]
    for count in range(2, 30):
        for planner in (PLANNER, equal):
            several = budgets(planner, count)
            assert len(several) <= count
            assert [*several] == sorted(set(several))
            assert (several[0], several[-1]) == (planner.least, planner.costs.whole)
    assert budgets(Planner(costs((100,), (1,), (1,))), 9) == [150 * MB]


def test_the_front_falls_and_is_verified(found: Front) -> None:
    assert 2 <= len(found.plans) <= 6
    for one, other in itertools.pairwise(found.plans):
        assert one.memory < other.memory
        assert one.time > other.time
    assert found.plans[0].memory == PLANNER.least
    assert found.plans[-1].is_resident
    tried = [PLANNER.plan(budget) for budget in budgets(PLANNER, 6)]
    for plan in tried:
        assert any(one.memory <= plan.memory and one.time <= plan.time for one in found.plans)


def test_no_point_is_in_the_forbidden_region(found: Front) -> None:
    """What is drawn between two budgets is the bound of the larger."""
    edges = found.edges
    assert [edges[0].budget, edges[-1].budget] == [PLANNER.least, PLANNER.costs.whole]
    for edge in edges:
        for workload in PLANNER.costs.workloads:
            memory = edge.budget - PLANNER.costs.resident
            assert edge.times[workload.name] == lower_bound(PLANNER.costs, workload, memory)
    points: list[Plan | Option] = [*found.plans, *found.slot_local]
    for one in points:
        below = next(edge for edge in edges if edge.budget >= one.memory)
        assert all(one.times[name] >= time for name, time in below.times.items())


def test_slot_locals_front_is_of_all_numbers_of_slots(found: Front) -> None:
    model = PLANNER.costs
    workload = model.workloads[0]
    expected = []
    for slots in range(1, 5):
        schedule = policies.slot_local(Ring(4, slots))
        time = steady(schedule, model.times(workload, model.sizes)).time
        expected.append((model.resident + sum(schedule.slot_sizes(model.sizes)), time))
    got = [(one.memory, one.times["decode"]) for one in found.slot_local]
    assert set(got) <= set(expected)
    assert expected[0] in got
    assert expected[3] in got
    assert found.slot_local[-1].memory == model.whole


def test_how_many_points_there_are_without_being_asked() -> None:
    few = Planner(costs((100, 200), (1, 1), (1, 1)))
    assert len(front(few).edges) > MOST_POINTS
    assert MOST_POINTS < WORK < BOUNDS_WORK


def option(memory: int, time: int) -> Option:
    return Option(f"{memory}", memory, {}, Fraction(time))


def test_what_is_dominated_is_left_out() -> None:
    some = [option(3, 6), option(1, 9), option(2, 9), option(2, 8), option(3, 5), option(4, 5)]
    assert undominated(some) == (some[1], some[3], some[4])
    assert undominated(some[:1]) == (some[0],)


# ---- what people read


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (3 << 30, "3 GiB"),
        (3 * 2**30 + 2**29, "3.500 GiB"),
        (2**30 - 1, "1.000 GiB"),
        (12_345_678_901, "11.50 GiB"),
        (Fraction(2**21, 3), "682.7 KiB"),
        (5 * 2**50, "5242880 GiB"),
    ],
)
def test_a_size_in_words(number: int | Fraction, said: str) -> None:
    assert spoken.size(number) == said


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (0, "0.00 ms"),
        (1500, "0.002 ms"),
        (9_994_000, "9.994 ms"),
        (9_999_999, "10.00 ms"),
        (99_990_000, "100.0 ms"),
        (Fraction(10**10, 3), "3,333.3 ms"),
        (123_456_789_012, "123,457 ms"),
    ],
)
def test_a_time_in_words(time: int | Fraction, said: str) -> None:
    assert spoken.milliseconds(time) == said


def test_modules_in_words() -> None:
    names = [f"m{one}" for one in range(40)]
    assert spoken.listed(names, [3]) == "m3"
    assert spoken.listed(names, [0, 1, 4, 5, 6, 9]) == "m0, m1, m4 to m6, m9"
    assert spoken.listed(names, range(0, 40, 2)) == "m0, m2, m4, m6, m8 and 15 more"
    assert spoken.listed(names, []) == ""


def test_a_size_from_words() -> None:
    assert bytes_of("6GiB", "memory") == 6 << 30
    for text in ("six", "6 gigs", "-1GB", ""):
        with pytest.raises(CostsError, match="memory="):
            bytes_of(text, "memory")


# ---- axes


def test_an_axis_from_zero_or_logarithmic() -> None:
    linear = axis([20, 100], 200, 0, log=True)
    assert (linear.low, linear.logarithmic) == (0, False)
    assert linear.at(0) == 200
    assert linear.ticks(8) == [0, 20, 40, 60, 80, 100]
    wide = axis([2, 1000], 0, 300, log=True)
    assert wide.logarithmic
    assert wide.ticks(9) == [2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert wide.ticks(6) == [3, 10, 30, 100, 300, 1000]
    assert wide.ticks(3) == [10, 100, 1000]
    assert wide.ticks(2) == [10, 1000]
    assert wide.at(2000**0.5) == 150
    assert wide.at(0) == 0  # at the edge
    assert wide.at(10**9) == 300
    plain = axis([5, 5], 0, 100)
    assert plain.low < 5 < plain.high
    assert axis([0, 0], 0, 100, log=True).at(0) == 0


@FIXED
@given(st.lists(st.floats(1e-3, 1e15), min_size=1, max_size=5), st.booleans())
def test_an_axis_has_room_for_all_and_some_ticks(values: list[float], log: bool) -> None:
    made = axis(values, 10, 110, log)
    places = [made.at(one) for one in sorted(values)]
    assert places == sorted(places)
    assert places[0] >= 10
    assert places[-1] <= 110
    ticks = made.ticks(8)
    assert len(ticks) <= 9
    assert all(made.low <= one * (1 + 1e-9) and one <= made.high * (1 + 1e-9) for one in ticks)


@FIXED
@given(st.lists(st.integers(0, 100), min_size=1, max_size=10))
def test_labels_are_spread(places: list[int]) -> None:
    found = spread(sorted(places), 10, 0, 100)
    assert all(b - a >= 10 for a, b in itertools.pairwise(found))
    assert found[0] >= 0
    assert found[-1] <= 100
    apart = [20.0, 40.0, 70.0]
    assert spread(apart, 10, 0, 100) == apart
