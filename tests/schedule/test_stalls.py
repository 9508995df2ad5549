"""Stalls: with what is computed they are the pass, and what is said of them is so."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule import Policy, Ring, Schedule, ScheduleError, policies
from schedule.costs import Times, equal_times
from schedule.operations import COMPUTE, Streams
from schedule.stalls import stalls
from schedule.table import Refill
from schedule.timing import pass_time, steady
from schedule.windows import windows
from tests.schedule.test_random_tables import FIXED, build, safe_schedules

FEWER = settings(FIXED, max_examples=250)
STREAMS = (
    Streams(),
    Streams((COMPUTE,)),
    Streams(("copy 0", "copy 1")),
    Streams(("copy 0", "copy 1", "copy 2")),
)


@st.composite
def timed(draw: st.DrawFn, modules: int) -> Times:
    def times(count: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(0, most), min_size=count, max_size=count)))

    most = draw(st.sampled_from((3, 12, 1000)))
    return Times(
        times(modules, 9),
        times(modules + 1, draw(st.sampled_from((0, 4)))),
        times(modules, most),
        draw(st.sampled_from(STREAMS)),
    )


@st.composite
def named_schedules(draw: st.DrawFn) -> Schedule:
    ring = Ring(draw(st.integers(1, 9)), draw(st.integers(1, 5)))
    fitting = [one for one in policies.NAMED.values() if one.least_slots <= ring.slots]
    return draw(st.sampled_from(fitting))(ring)


def adds_up(schedule: Schedule, times: Times, captured: bool) -> None:
    found = stalls(schedule, times, captured)
    period = steady(schedule, times, captured)
    computed = sum(times.run) + sum(times.between)
    if period.exact:
        assert sum(one.time for one in found) + computed == period.time
    assert [one.module for one in found] == list(range(schedule.ring.modules))
    assert sum(one.copies for one in found) == Fraction(schedule.copies, schedule.period)
    for one in found:
        assert one.copy == times.copy[one.module]
        assert one.time >= 0
        assert bool(one.reason) == bool(one.time)
        assert one.copies or not one.time
        if times.streams.shared:
            assert one.time == one.copies * one.copy


@FEWER
@given(st.data())
def test_stalls_and_compute_are_the_pass(data: st.DataObject) -> None:
    schedule = data.draw(st.one_of(safe_schedules(), named_schedules()))
    times = data.draw(timed(schedule.ring.modules))
    for captured in (False, True) if schedule.period == 1 else (False,):
        adds_up(schedule, times, captured)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("streams", STREAMS, ids=lambda one: ",".join(one.copies))
@pytest.mark.parametrize("name", list(policies.NAMED))
def test_of_every_policy_on_every_kind_of_streams(
    name: str, streams: Streams, captured: bool
) -> None:
    times = Times((3, 1, 4, 1, 5, 9), (0, 2, 0, 0, 1, 0, 2), (6, 5, 3, 5, 8, 9), streams)
    adds_up(policies.NAMED[name](Ring(6, 3)), times, captured)


def test_a_transient_that_is_not_followed_to_its_end_is_near() -> None:
    """Two copy streams that take as long as the runs, but for a unit that one of them is late."""
    most = 10**6
    copy = (2 * most, 2 * most + 1, *(2 * most,) * 6)
    schedule, times = policies.chain(Ring(8, 4)), Times((most,) * 8, (0,) * 9, copy, STREAMS[2])
    assert not steady(schedule, times).exact
    adds_up(schedule, times, False)


def test_copies_that_fall_behind_slowly_are_stalls() -> None:
    """By hand: each of 128 copies takes 1 longer than what hides it, but first there is slack."""
    million = 10**6
    times = Times((million,) * 128, (0,) * 129, (million + 1,) * 128)
    found = steady(policies.slot_local(Ring(128, 40)), times)
    assert found.exact
    assert found.time == 128 * (million + 1)
    adds_up(policies.slot_local(Ring(128, 40)), times, False)


# ---- windows


@pytest.mark.parametrize(
    "name", ["chain", "balanced", "double_buffer", "single_buffer", "rotating"]
)
@pytest.mark.parametrize("size", [(3, 2), (7, 3), (9, 4), (5, 5), (6, 1)])
@pytest.mark.parametrize("copy", [0, 2, 7])
def test_a_window_of_equal_modules_counts_runs(name: str, size: tuple[int, int], copy: int) -> None:
    if size[1] < policies.NAMED[name].least_slots:
        return
    schedule = policies.NAMED[name](Ring(*size))
    counted = windows(schedule)
    for streams in STREAMS[:1] + STREAMS[2:]:
        times = Times((1,) * size[0], (0,) * (size[0] + 1), (copy,) * size[0], streams)
        for one in stalls(schedule, times):
            mine = [w for w in counted[one.module :: size[0]] if w is not None]
            assert one.window == (Fraction(sum(mine), len(mine)) if mine else None)


def test_a_window_ends_with_a_captured_pass() -> None:
    schedule = policies.chain(Ring(4, 2))  # 2 is copied after 0, 3 after 1, 0 after 2, 1 after 3
    times = Times((2, 3, 5, 7), (10, 0, 0, 0, 1), (1, 1, 1, 1))
    assert [one.window for one in stalls(schedule, times)] == [18, 13, 3, 5]
    assert [one.window for one in stalls(schedule, times, True)] == [8, 1, 3, 5]


def test_a_copy_after_the_join_has_a_window_of_its_own() -> None:
    """Module 0 is copied as a pass ends, and once more as the next one begins."""
    plan = {
        ("after", 0): [Refill(0, 1)],
        ("leave", 0): [Refill(0, 0)],
        ("enter", 0): [Refill(0, 0)],
    }
    schedule = build(Ring(2, 1), (0, 0), [Refill(0, 0)], plan)
    found = stalls(schedule, Times((2, 3), (10, 0, 7), (1, 1)), True)
    assert found[0].copies == 2
    assert found[0].window == 10


def test_the_waits_for_others_are_in_no_window() -> None:
    schedule = policies.chain(Ring(4, 2))
    for copy in ((0, 0, 100, 0), (100, 0, 0, 100)):
        found = stalls(schedule, Times((2, 3, 5, 7), (0,) * 5, copy))
        assert [one.window for one in found] == [7, 2, 3, 5]


# ---- reasons


def said(policy: str, size: tuple[int, int], times: Times, captured: bool = False) -> list[str]:
    """What is said of the modules that wait, each after its number."""
    found = stalls(policies.NAMED[policy](Ring(*size)), times, captured)
    return [f"{one.module}: {one.reason}" for one in found if one.time]


def one_slow(modules: int, slow: int, copy: int, run: int = 1, between: int = 0) -> Times:
    """Only this module's copy takes time."""
    copies = tuple(copy * (at == slow) for at in range(modules))
    return Times((run,) * modules, (between,) * (modules + 1), copies)


@pytest.mark.parametrize(
    ("policy", "size", "times", "captured", "reasons"),
    [
        (
            "chain",
            (7, 1),
            one_slow(7, 6, 2),
            False,
            [
                "6: module 5 and module 6 run back to back from one slot, nothing hides the copy "
                "of module 6, 2: 3 slots in turn would"
            ],
        ),
        (
            "chain",
            (7, 1),
            one_slow(7, 6, 4, between=1),
            False,
            [
                "6: module 5 and module 6 run back to back from one slot, only 1 between them "
                "hides the copy of module 6, 4: 3 slots in turn would"
            ],
        ),
        (
            "rotating",
            (7, 2),
            one_slow(7, 6, 3),
            False,
            [
                "6: its slot is free only after module 4, only 1 of compute after that hides its "
                "copy, 3: 4 slots in turn would"
            ],
        ),
        (
            "chain",
            (3, 1),
            one_slow(3, 1, 3, run=1),
            False,
            [
                "1: module 0 and module 1 run back to back from one slot, nothing hides the copy "
                "of module 1, 3: no slot is free early enough, only fewer bytes would"
            ],
        ),
        (
            "chain",
            (6, 3),
            one_slow(6, 1, 2),
            True,
            [
                "2: the wrap joins before the end of a captured pass, and its copy, issued after "
                "module 5, waits behind that of module 1: a slot that is free earlier, or fewer "
                "bytes, would"
            ],
        ),
        (
            "chain",
            (6, 3),
            one_slow(6, 2, 2),
            True,
            [
                "2: the wrap joins before the end of a captured pass: nothing hides its "
                "copy, 2, issued after module 5: issued as the next pass begins, it would be in "
                "time"
            ],
        ),
        (
            "chain",
            (3, 1),
            one_slow(3, 0, 4),
            True,
            [
                "0: the wrap joins before the end of a captured pass: nothing hides its copy, 4, "
                "issued after module 2: no slot is free early enough, only fewer bytes would"
            ],
        ),
        (
            "chain",
            (4, 1),
            Times((1,) * 4, (0, 0, 0, 0, 5), (0, 6, 0, 0)),
            False,
            [
                "1: module 0 and module 1 run back to back from one slot, nothing hides the copy "
                "of module 1, 6: 2 slots in turn would"
            ],
        ),
        (
            "chain",
            (3, 1),
            one_slow(3, 1, 3, run=4),
            True,
            [
                "1: module 0 and module 1 run back to back from one slot, nothing hides the copy "
                "of module 1, 3: a slot that is free as a pass begins would"
            ],
        ),
        (
            "on_demand",
            (6, 3),
            one_slow(6, 4, 2),
            False,
            [
                "4: its copy, 2, is issued only before module 4, though its slot is free after "
                "module 1: issued then, it would be in time"
            ],
        ),
        (
            "restart",
            (4, 4),
            equal_times(4, 4, 1),
            False,
            ["0: it is copied although its slot holds it: without that copy it would not wait"],
        ),
    ],
    ids=[
        "lone",
        "between",
        "free",
        "never",
        "queue at the join",
        "join",
        "never at the join",
        "end",
        "enter",
        "issue",
        "anew",
    ],
)
def test_a_reason(
    policy: str, size: tuple[int, int], times: Times, captured: bool, reasons: list[str]
) -> None:
    assert said(policy, size, times, captured) == reasons


def test_copies_that_wait_for_each_other() -> None:
    """Bound by copies, and by where the first of them may begin."""
    assert said("rotating", (3, 2), equal_times(3)) == [
        f"{one}: its copy waits behind that of module {(one - 1) % 3}: the copy stream is busy "
        f"all the time, fewer bytes would"
        for one in range(3)
    ]
    assert said("double_buffer", (9, 4), equal_times(9))[1:3] == [
        "2: the copy stream is busy 93% of the time, fewer bytes would",
        "3: its copy waits behind that of module 2: the copy stream is busy 93% of the time, "
        "fewer bytes would",
    ]
    times = Times((1,) * 12, (0,) * 13, (0, 3, 3, 3, 3, *[0] * 7))
    assert said("rotating", (12, 2), times) == [
        "1: its slot is free only after module 11, only 1 of compute after that hides its copy, "
        "3: 4 slots in turn would",
        *(
            f"{one}: its copy waits behind {those}, "
            f"{which} could begin only after module 11: a slot that is free earlier, or fewer "
            f"bytes, would"
            for one, those, which in (
                (2, "that of module 1", "which"),
                (3, "those of module 1 and module 2", "the first of which"),
                (4, "those of module 1, module 2 and module 3", "the first of which"),
            )
        ),
    ]


def test_a_copy_that_is_issued_after_what_would_hide_it() -> None:
    plan = {("after", 0): [Refill(0, 1)], ("leave", 0): [Refill(0, 0)]}
    schedule = build(Ring(2, 1), (0, 0), [Refill(0, 0)], plan)
    times = Times((2, 3), (0, 0, 7), (6, 0))
    assert stalls(schedule, times, True)[0].reason == (
        "the wrap joins before the end of a captured pass: nothing hides its copy, 6, issued as a "
        "pass ends: issued after module 1, it would be in time"
    )
    named = stalls(schedule, times, True, ("first", "last"))[0].reason
    assert named.endswith("issued after last, it would be in time")


def test_a_copy_is_behind_another_only_if_that_makes_it_wait() -> None:
    """Of module 0 the copy ends just as that of module 1 may begin."""
    times = Times((1,) * 12, (0,) * 13, (1, 3, 3, *[0] * 9))
    assert said("rotating", (12, 2), times)[1] == (
        "2: its copy waits behind that of module 1, which could begin only after module 11: a slot "
        "that is free earlier, or fewer bytes, would"
    )
    # Most of what module 1 waits it would wait for its own copy alone.
    times = Times((1,) * 12, (0,) * 13, (2, 9, *[0] * 10))
    assert said("rotating", (12, 2), times)[1] == (
        "1: its slot is free only after module 11, only 1 of compute after that hides its copy, 9: "
        "10 slots in turn would"
    )


def test_the_reason_is_of_the_longest_wait() -> None:
    """In its first pass module 1 follows module 2 of the pass before, in its second module 0."""
    slots = (0, 1, 1, 0, 0, 1)
    policy = Policy("two", lambda step, _: slots[step], passes=lambda _: 2)
    found = stalls(policy(Ring(3, 2)), one_slow(3, 1, 5))[1]
    assert found.time == Fraction(4 + 5, 2)
    assert found.window == Fraction(1 + 0, 2)
    assert found.reason.startswith("module 0 and module 1 run back to back")


def test_on_the_compute_stream() -> None:
    times = Times((1, 1, 1), (0,) * 4, (2, 2, 2), STREAMS[1])
    why = "copies take the compute stream's own time here: only fewer bytes would save some"
    assert said("chain", (3, 1), times) == [f"{one}: {why}" for one in range(3)]


def test_names_and_times_in_words() -> None:
    schedule = policies.chain(Ring(7, 1))
    names = [f"layers.{one}" for one in range(7)]
    times = one_slow(7, 6, 2)
    (found,) = [
        one.reason for one in stalls(schedule, times, False, names, "{} ms".format) if one.time
    ]
    assert found == (
        "layers.5 and layers.6 run back to back from one slot, nothing hides the copy of "
        "layers.6, 2 ms: 3 slots in turn would"
    )


def test_a_period_of_several_passes_is_no_graph() -> None:
    with pytest.raises(ScheduleError, match="repeats after 2 passes"):
        stalls(policies.rotating(Ring(3, 2)), equal_times(3), True)


# ---- the remedies are so


def in_turn(modules: int, slots: int, slow: int, enter: bool) -> Schedule:
    """Slots in turn, each refilled when it falls free, this module's as its pass begins."""
    schedule = policies.rotating(Ring(modules, slots))
    if not enter or slow >= slots:
        return schedule
    plan = {("after", step): list(found) for step, found in enumerate(schedule.after)}
    for step, found in plan.items():
        plan[step] = [one for one in found if one.module != slow]
    plan[("enter", 0)] = [Refill(slow % slots, slow)]
    return build(schedule.ring, schedule.slot_of, list(schedule.preload), plan)


@FEWER
@given(st.data())
def test_so_many_slots_in_turn_do_hide_it_and_fewer_do_not(data: st.DataObject) -> None:
    modules = data.draw(st.sampled_from((1, 4, 6, 12)))
    slow = data.draw(st.integers(0, modules - 1))
    drawn = data.draw(timed(modules))
    copy = data.draw(st.integers(1, 30))
    times = Times(drawn.run, drawn.between, one_slow(modules, slow, copy).copy)
    captured = data.draw(st.booleans())
    found = stalls(policies.chain(Ring(modules, 1)), times, captured)[slow]
    free = sum(times.run) + sum(times.between)

    def hidden(slots: int, enter: bool = False) -> bool:
        return pass_time(in_turn(modules, slots, slow, enter), times, captured) == free

    told = re.search(r"(\d+) slots in turn would", found.reason)
    # A graph needs slots that divide the modules.
    fitting = [one for one in range(1, modules) if not captured or modules % one == 0]
    for slots in fitting:
        if told:
            assert hidden(slots) == (slots == int(told[1])) or slots > int(told[1])
        elif "only fewer bytes would" in found.reason:
            assert not hidden(slots)
            assert not captured or not hidden(slots, True)
        elif "as the next pass begins" in found.reason and slots > slow:
            assert hidden(slots, True)
