"""The time of a pass in its steady state, against drawings made by hand.

A drawing has the compute stream, then each copy stream; digits run (or are copied) for one unit
each, letters are what stays on the device, before module 0 (a), 1 (b) and so on.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from schedule import Ring, Schedule, policies
from schedule.costs import Costs, Link, Module, Part, Times, Workload, equal_times
from schedule.errors import CostsError, ScheduleError
from schedule.operations import COMPUTE, Streams
from schedule.pace import actions_of, pace, replay_pace
from schedule.policy import Policy
from schedule.table import AFTER, LEAVE, Boundary
from schedule.timing import MOST_PERIODS, pass_time, require_times, steady
from tests.schedule.reckoning import Shown, reckon, shown

SHARED = Streams((COMPUTE,))


def copies(number: int) -> Streams:
    return Streams(tuple(f"copy {one}" for one in range(number)))


def taken(schedule: Schedule, times: Times, captured: bool = False) -> Fraction:
    """Simulated, as the largest cycle mean, and as a planner reckons."""
    found = steady(schedule, times, captured)
    assert found.exact
    assert pass_time(schedule, times, captured) == found.time
    streams = 0 if times.streams.shared else len(times.streams.copies)
    pacer, actions = replay_pace if captured else pace, actions_of(schedule, times)
    assert pacer(actions, schedule.ring.slots, streams) == found.time * schedule.period
    return found.time


# ---- eager and captured


@pytest.mark.parametrize(
    ("policy", "modules", "slots", "times", "eager", "captured"),
    [
        # 000....11111......  then again: the slot is read, or refilled.
        # ...1111.....000000
        pytest.param("chain", 2, 1, Times((3, 5), (0,) * 3, (6, 4)), 18, 18, id="one slot"),
        # a000.....bb11111ccccccc: 1 is copied beside b and the rest of its copy is waited for;
        # 0 beside c and a, which take longer.
        pytest.param("chain", 2, 1, Times((3, 5), (1, 2, 7), (4, 6)), 22, 22, id="beside"),
        # 0 is copied beside c and a, 8 units; in a graph it must have landed at the end, where c
        # has 3 of the 4 and a comes after.
        pytest.param("chain", 2, 1, Times((3, 5), (5, 2, 3), (4, 6)), 22, 23, id="join"),
        # Slots 0 1 0: 0001111.22222......
        #              ...222222...000000        (2 takes 5 here, one more than 1's run)
        pytest.param("chain", 3, 2, Times((3, 4, 5), (0,) * 4, (6, 9, 5)), 19, 19, id="kept"),
        pytest.param("chain", 3, 2, Times((3, 4, 5), (0,) * 4, (6, 9, 4)), 18, 18, id="hidden"),
        # Slots 0 1 0 1; the copy stream never stops: after 0 comes 2, after 1 comes 3, and so on.
        # As a graph: 01...2...3........
        #             .2222333300001111      which is 17, and ends joined.
        pytest.param("chain", 4, 2, equal_times(4, 1, 4), 16, 17, id="copy-bound"),
        # With 3 units a run they are all hidden but, in a graph, the last one's.
        pytest.param("chain", 4, 2, equal_times(4, 3, 2), 12, 14, id="compute-bound"),
        # 0 and 1 are copied one after the other on enter, 2 when 0 has run.
        # ..01..2
        # 0011.22       (1 lands as 2 begins)
        pytest.param("restart", 3, 2, equal_times(3), 7, 7, id="restart"),
        # ..011.2 where the copy of 1 begins with 0's run and that of 2 with 1's.
        # 001122.
        pytest.param("one_ahead", 3, 2, equal_times(3), 7, 7, id="one ahead"),
        # aa01.  the copy of 0 is issued on enter, beside a; of 1 when a is over.
        # 0011
        pytest.param("one_ahead", 2, 2, Times((1, 1), (2, 0, 0), (2, 2)), 5, 5, id="enter"),
        # ..0.1cc: with nothing before 0 the copies follow each other, and c hides none of them.
        # 0011
        pytest.param("one_ahead", 2, 2, Times((1, 1), (0, 0, 2), (2, 2)), 7, 7, id="rest last"),
        # aa..0b..1..2ccc: each is copied when all before it is over.
        pytest.param(
            "on_demand", 3, 2, Times((1, 1, 1), (2, 1, 0, 3), (2, 3, 4)), 18, 18, id="on demand"
        ),
        # Nothing is copied.
        pytest.param("chain", 3, 3, Times((1, 2, 3), (4, 5, 6, 7), (9, 9, 9)), 28, 28, id="there"),
        pytest.param("chain", 1, 1, Times((0,), (0, 0), (9,)), 0, 0, id="nothing"),
        # slot_local copies 1 over itself, useless as it is: 2 0 1 2 0 1 is one line of copies.
        pytest.param("slot_local", 3, 2, equal_times(3), 7, 7, id="useless"),
    ],
)
def test_a_pass_takes_what_its_drawing_says(
    policy: str, modules: int, slots: int, times: Times, eager: int, captured: int
) -> None:
    schedule = policies.named(policy)(Ring(modules, slots))
    assert (taken(schedule, times), taken(schedule, times, True)) == (eager, captured)


@pytest.mark.parametrize(
    ("policy", "modules", "eager", "captured"),
    [
        ("slot_local", 9, 19, 19),
        ("slot_local", 10, 20, 21),
        ("balanced", 9, 16, 18),
        ("double_buffer", 9, 15, 15),
        ("double_buffer", 10, 16, 17),
    ],
)
def test_passes_with_four_slots(policy: str, modules: int, eager: int, captured: int) -> None:
    """A copy takes two runs. double_buffer keeps two modules: the others' copies are one line."""
    schedule, times = policies.named(policy)(Ring(modules, 4)), equal_times(modules)
    assert (taken(schedule, times), taken(schedule, times, True)) == (eager, captured)


@pytest.mark.parametrize(
    ("run", "copy", "expected"),
    [((1, 1, 1), (2, 2, 2), 6), ((3, 3, 3), (2, 2, 2), 9), ((1, 1, 1), (0, 0, 0), 3)],
)
def test_rotating_over_two_passes(
    run: tuple[int, ...], copy: tuple[int, ...], expected: int
) -> None:
    """Slots 0 1 0 1 0 1: every copy is beside one run."""
    schedule = policies.rotating(Ring(3, 2))
    assert schedule.period == 2
    assert taken(schedule, Times(run, (0,) * 4, copy)) == expected


def test_a_pass_may_take_half_a_unit() -> None:
    """Module 1 runs from slot 0 in one pass and from slot 1, where it stays, in the next one:
    0..1.01, two passes in 7 units."""
    slot_of = (0, 0, 0, 1)
    policy = Policy("two passes", lambda step, _: slot_of[step], passes=lambda _: 2)
    assert taken(policy(Ring(2, 2)), Times((1, 1), (0, 0, 0), (1, 2))) == Fraction(7, 2)


def test_a_schedule_of_one_pass_can_be_captured_and_no_other() -> None:
    turning = policies.rotating(Ring(3, 2))
    for function in steady, pass_time:
        with pytest.raises(ScheduleError, match="repeats after 2 passes"):
            function(turning, equal_times(3), True)


# ---- where what stays on the device is: between the hooks of a pass and those of a module


@pytest.mark.parametrize(
    ("half", "between", "expected"),
    [
        # 0..1ccc, then 0 is copied when c is over, or beside it.
        (LEAVE, (0, 0, 3), 9),
        (AFTER, (0, 0, 3), 7),
        # a comes after either, and hides two of the two units.
        (LEAVE, (3, 0, 0), 7),
        (AFTER, (3, 0, 0), 7),
    ],
)
def test_a_refill_on_leave_comes_after_the_rest_of_the_pass(
    half: str, between: tuple[int, ...], expected: int
) -> None:
    plan = {Boundary(AFTER, 0): 1, Boundary(half, 1): 0}
    policy = Policy("mine", lambda *_: 0, refill=lambda boundary, *_: plan.get(boundary))
    made = replace(policy(Ring(2, 1)), preload=((0, 0),))  # type: ignore[arg-type]
    assert taken(made, Times((1, 1), between, (2, 2))) == expected


# ---- streams


@pytest.mark.parametrize(
    ("streams", "eager", "captured"),
    [
        (copies(1), 16, 17),
        # Slot 0 has 0 and 2: 0....2.... and each slot has its stream; one run later slot 1.
        # 01...23....   the last copy ends at 11, and a graph waits for it.
        # .2222.0000.
        # ..3333.1111
        (copies(2), 10, 11),
        # 3 and 0 are on one stream, but 0 is issued when 3 is there.
        (copies(3), 10, 11),
        (copies(7), 10, 11),
        (SHARED, 20, 20),
    ],
)
def test_copy_streams(streams: Streams, eager: int, captured: int) -> None:
    schedule = policies.chain(Ring(4, 2))
    times = replace(equal_times(4, 1, 4), streams=streams)
    assert (taken(schedule, times), taken(schedule, times, True)) == (eager, captured)


def test_a_copy_waits_for_the_one_before_into_its_slot_whatever_its_stream() -> None:
    """Both modules into slot 0 after each run, the wrong one first: 5 + 2 units on two streams as
    on one, since bytes of both at once would be neither's."""
    refills = {0: (0, 1), 1: (1, 0)}
    made = Schedule(
        Ring(2, 1),
        "by hand",
        (0, 0),
        ((0, 0),),  # type: ignore[arg-type]
        ((),),
        ((), ()),
        tuple(tuple((0, module) for module in refills[step]) for step in (0, 1)),  # type: ignore[misc]
        ((),),
    )
    for streams in copies(1), copies(2), SHARED:
        assert taken(made, Times((1, 1), (0, 0, 0), (5, 2), streams)) == 16


def test_a_copy_that_nobody_waits_for_may_fall_behind_for_ever() -> None:
    """Slot 1 is never read. On a stream of its own its copy takes no time from anyone, however
    long; on a stream with others it does; and a graph waits for it at its end."""
    made = Schedule(
        Ring(2, 2),
        "by hand",
        (0, 0),
        ((0, 0),),  # type: ignore[arg-type]
        ((),),
        ((), ()),
        (((0, 1), (1, 1)), ((0, 0),)),  # type: ignore[arg-type]
        ((),),
    )
    times = Times((1, 1), (0, 0, 0), (2, 50))
    # 0, 1 into slot 0, 1 again into slot 1, and 0 behind that.
    assert taken(made, times) == 1 + 50 + 50 + 2
    own = replace(made, slot_of=(0, 0), after=((), ((1, 1),)))  # type: ignore[arg-type]
    # (A planner would have to ask here: what falls behind never repeats.)
    assert steady(own, replace(times, streams=copies(2))).time == 2
    assert pass_time(own, replace(times, streams=copies(2))) == 2
    assert taken(own, replace(times, streams=copies(2)), True) == 52


# ---- spans


def test_the_spans_of_a_steady_state() -> None:
    """0 waits for its copy, and 2 for its own; 1 does not: slots 0 1 0."""
    found = steady(policies.chain(Ring(3, 2)), equal_times(3))
    assert (found.time, found.passes, found.exact, found.start) == (6, 1, True, 5)
    start = found.spans[0].ready
    period = [
        Shown("run", 0, 0, 0, 2, 3),
        Shown("copy", 0, 2, 3, 3, 5),
        Shown("run", 1, 1, 3, 3, 4),
        Shown("run", 0, 2, 4, 5, 6),
        Shown("copy", 0, 0, 6, 6, 8),
    ]
    later = [(*one[:3], *(time + 6 for time in one[3:])) for one in period]
    moved = [(*one[:3], *(time - start for time in one[3:])) for one in shown(found)]
    assert moved == [*map(tuple, period), *later]


def test_the_spans_of_a_graph_have_its_joins() -> None:
    """The copy of 0 is waited for at the end, beside what comes last; nothing at the next begin."""
    found = steady(policies.chain(Ring(2, 1)), Times((3, 5), (5, 2, 3), (4, 6)), True)
    assert (found.time, found.start) == (23, 6)
    start = found.spans[0].ready
    assert [(*one[:3], *(time - start for time in one[3:])) for one in shown(found)][:6] == [
        ("wait", -1, -1, 0, 0, 0),
        ("run", 0, 0, 5, 5, 8),
        ("copy", 0, 1, 8, 8, 14),
        ("run", 0, 1, 10, 14, 19),
        ("copy", 0, 0, 19, 19, 23),
        ("wait", -1, -1, 22, 23, 23),
    ]


def test_the_spans_of_copies_on_the_compute_stream() -> None:
    times = Times((3, 5), (1, 2, 0), (4, 6), SHARED)
    found = steady(policies.chain(Ring(2, 1)), times)
    start = found.spans[0].ready
    assert [(*one[:3], *(time - start for time in one[3:])) for one in shown(found)][:4] == [
        ("run", 0, 0, 0, 0, 3),
        ("copy", 0, 1, 3, 3, 9),
        ("run", 0, 1, 11, 11, 16),
        ("copy", 0, 0, 16, 16, 20),
    ]


# ---- a transient that does not end


def close(most: int) -> tuple[Schedule, Times]:
    """The copies of a pass take one unit more than its runs. Each has two runs' time, and so they
    may fall behind by one run of ``most`` before a run waits for them."""
    times = Times((most,) * 6, (0,) * 7, (*(most,) * 5, most + 1))
    return policies.chain(Ring(6, 3)), times


def test_a_transient_that_ends_in_time_is_followed() -> None:
    most = MOST_PERIODS // 2
    schedule, times = close(most)
    found = steady(schedule, times)
    assert (found.exact, found.time) == (True, 6 * most + 1)
    assert reckon(schedule, times, most // 2).time(1) == 6 * most  # it is there, and as long


def test_copies_that_fall_behind_slowly_are_followed_from_where_they_are_behind() -> None:
    schedule, times = close(10**6)
    found = steady(schedule, times)
    assert (found.exact, found.time, found.passes) == (True, 6 * 10**6 + 1, 1)
    assert pace(actions_of(schedule, times), 3, 1) == 6 * 10**6 + 1
    # In 700 passes from the preload one sees the runs' own time alone.
    assert reckon(schedule, times, 700).time(1) == 6 * 10**6


def test_of_a_transient_that_is_too_long_the_cycle_mean_is_said() -> None:
    """Two copy streams that take as long as the runs, one of them a unit more: from the preload it
    falls behind slowly, and where both are behind the other one is waited for first."""
    most = 10**6
    copy = (2 * most, 2 * most + 1, *(2 * most,) * 6)
    times = Times((most,) * 8, (0,) * 9, copy, Streams(("one", "other")))
    schedule = policies.chain(Ring(8, 4))
    found = steady(schedule, times)
    assert (found.exact, found.time, found.passes) == (False, 8 * most + 1, 1)
    assert pace(actions_of(schedule, times), 4, 2) is None
    assert reckon(schedule, times, 700).time(1) == 8 * most
    assert found.start == len(found.spans) // 2 == 16
    start, end = found.spans[found.start].ready, found.spans[-1].issued
    assert (end.boundary, found.spans[-2].end - start) == (Boundary(AFTER, 7), 8 * most)


def test_a_graph_has_no_transient() -> None:
    schedule, times = close(10**6)
    found = steady(schedule, times, True)
    assert (found.exact, found.time) == (True, 7 * 10**6 + 1)


# ---- units


def test_times_of_any_size_are_exact() -> None:
    """Larger than a float can hold to the unit."""
    most = 10**17
    times = Times((1, 2), (0,) * 3, (most, most + 1))
    assert taken(policies.chain(Ring(2, 1)), times) == 2 * 10**17 + 4


def test_costs_become_times() -> None:
    """Bytes over the bandwidth, rounded up, and the latency of each copy."""
    modules = (Module("a", (Part("w", 3),), fixed=1), Module("b", (Part("w", 5), Part("x", 2))))
    decode = Workload("decode", (10**9, 2 * 10**9), (7, 8, 9))
    costs = Costs(modules, (decode,), Link(bandwidth=3, latency=11, streams=2))
    times = costs.times(decode, (4, 3))
    assert times == Times((10**9, 2 * 10**9), (7, 8, 9), (1_333_333_345, 10**9 + 11), copies(2))
    shared = replace(costs, link=replace(costs.link, streams=0)).times(decode, costs.sizes)
    assert (shared.copy, shared.streams) == ((1_333_333_345, 2_333_333_345), SHARED)
    # All of it on one line: 7 + 1e9 + copy of b + 8 + 2e9 + copy of a + 9
    expected = 3 * 10**9 + 7 + 8 + 9 + 1_333_333_345 + 2_333_333_345
    assert taken(policies.chain(Ring(2, 1)), shared) == expected


# ---- what are no times


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("run", (1, 1), "run: 2 times, where 3 modules need 3"),
        ("run", (), "run: 0 times"),
        ("between", (0,) * 3, "between: 3 times, where 3 modules need 4"),
        ("copy", (2,) * 4, "copy: 4 times, where 3 modules need 3"),
        ("run", (1, -1, 1), "run[1]: -1 is no whole number, at least 0"),
        ("copy", (1, 2, 1.5), "copy[2]: 1.5 is no whole number"),
        ("copy", (1, 2, float("nan")), "copy[2]: nan is no whole number"),
        ("between", (True, 0, 0, 0), "between[0]: True is no whole number"),
        ("between", (0, 0, 0, "1"), "between[3]: '1' is no whole number"),
        ("run", (1, None, 1), "run[1]: None is no whole number"),
    ],
)
def test_what_are_no_times_is_refused(field: str, value: object, message: str) -> None:
    bad = replace(equal_times(3), **{field: value})  # type: ignore[arg-type]
    schedule = policies.chain(Ring(3, 2))
    for function in (
        lambda: steady(schedule, bad),
        lambda: pass_time(schedule, bad),
        lambda: require_times(bad, 3),
    ):
        with pytest.raises(CostsError) as raised:
            function()
        assert str(raised.value).startswith(message)
