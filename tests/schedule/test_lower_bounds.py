"""Lower bounds of a pass by hand; against the shortest pass of all they are in tests/proofs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from schedule import CostsError
from schedule.bounds import BYTES, COMPUTE, ROOM, WINDOWS, fewest_bytes, lower_bound, lower_bounds
from schedule.costs import SECOND, Costs, Link, Module, Workload


@pytest.mark.parametrize(
    ("sizes", "memory", "expected"),
    [
        ((5, 3, 4), 12, 0),
        ((5, 3, 4), 99, 0),
        # d = 4: of 8 bytes 4, 3 and 4 stay in turn, and all of each moves but a byte of the first.
        ((5, 3, 4), 5, 11),
        # d = 1: (5 - 1) + (3 - 1) + (4 - 1) + 1 = 10.
        ((5, 3, 4), 10, 3),
        # d = 7/2: 3/2 + 1/2 + 7/2 = 11/2 is too little for the first, d = 4 exactly enough for 5.
        ((5, 3, 4), Fraction(11, 2), Fraction(7, 2) * 2 + 3),
        # Equal ones: N (N - K) / (N - 1) modules.
        ((1,) * 4, 2, Fraction(4 * 2, 3)),
        ((7,) * 5, 21, 7 * Fraction(5 * 2, 4)),
        ((2, 2), 2, 4),
        ((2, 2), 3, 2),
        ((9, 1), 9, 2),  # a byte of the large one makes room for the small one
        ((9,), 9, 0),
    ],
)
def test_the_fewest_bytes_that_move(
    sizes: tuple[int, ...], memory: int, expected: Fraction
) -> None:
    assert fewest_bytes(sizes, memory) == expected


def model(
    sizes: tuple[int, ...],
    run: tuple[int, ...],
    between: tuple[int, ...] | None = None,
    link: Link | None = None,
) -> Costs:
    """A byte takes a nanosecond."""
    modules = tuple(Module(f"m{at}", (), size) for at, size in enumerate(sizes))
    workload = Workload("decode", run, between or (0,) * (len(sizes) + 1))
    return Costs(modules, (workload,), link or Link(SECOND))


def bounds(costs: Costs, memory: int) -> dict[str, Fraction]:
    return {one.name: one.time for one in lower_bounds(costs, costs.workloads[0], memory)}


@pytest.mark.parametrize(
    ("costs", "memory", "expected"),
    [
        # Nothing has room beside a run: 1 + 4 + 2 + 4.
        (model((4, 4), (1, 2)), 4, {COMPUTE: 3, BYTES: 8, WINDOWS: 11}),
        # The rest of the pass hides 3 of one's copy, before and after its end.
        (model((4, 4), (1, 2), (1, 0, 2)), 4, {COMPUTE: 6, BYTES: 8, WINDOWS: 11}),
        (model((4, 4), (1, 2), (1, 6, 2)), 4, {COMPUTE: 12, BYTES: 8, WINDOWS: 13}),
        # A byte of each has room.
        (model((4, 4), (1, 2)), 5, {COMPUTE: 3, BYTES: 6, WINDOWS: 9}),
        # From the end of 0 to the run of 2, 4 of 8 bytes are copied, beside 1's run; and so on.
        (model((4, 4, 4), (1, 1, 1)), 8, {COMPUTE: 3, BYTES: 6, WINDOWS: 6}),
        # From the end of 1 to the run of 2 one byte of 2; from the end of 2 to that of 1, past 0,
        # two bytes of 1 and 0: 1 + 1 + 2 + 1. Counted from module 0 it is less.
        (model((1, 2, 2), (1, 1, 1)), 3, {COMPUTE: 3, BYTES: 3, WINDOWS: 5}),
        # Each stretch has a copy's latency, each copy too.
        (model((4, 4), (1, 2), link=Link(SECOND, 3)), 4, {COMPUTE: 3, BYTES: 14, WINDOWS: 17}),
        # 8 bytes on two streams: 4 and 4 together, but no module has half of itself earlier.
        (model((4, 4), (1, 2), link=Link(SECOND, 0, 2)), 4, {COMPUTE: 3, BYTES: 4, WINDOWS: 7}),
        # On the compute stream all comes one after the other.
        (model((4, 4), (1, 2), link=Link(SECOND, 3, 0)), 4, {COMPUTE: 3, BYTES: 17}),
        (model((4, 4), (1, 2), (5, 6, 7)), 8, {COMPUTE: 21, BYTES: 0, WINDOWS: 21}),
    ],
)
def test_the_bounds_by_hand(costs: Costs, memory: int, expected: dict[str, int]) -> None:
    found = bounds(costs, memory)
    room = found.pop(ROOM, 0)
    assert found == expected
    assert lower_bound(costs, costs.workloads[0], memory) == max(room, *expected.values())


@pytest.mark.parametrize(
    ("costs", "memory", "expected"),
    [
        # Nothing has room beside a run, and all of both moves.
        (model((4, 4), (1, 2)), 4, 3 + 8),
        # Of each a byte stays, and none has room then: 6 move. If none stays, one has room.
        (model((4, 4), (1, 2)), 5, 3 + 6),
        (model((4, 4), (1, 2), (1, 6, 2)), 5, 3 + 9),
        # Nine modules of 2, room for four, a byte of copy a run: 8 y + c <= 6 with c = 1.
        (model((2,) * 9, (1,) * 9), 8, 9 + (18 - 9 * (Fraction(5, 8) + 1))),
        # Long runs, with room for a copy beside each: all is hidden.
        (model((2,) * 9, (3,) * 9), 8, 27),
        # Two streams bring two bytes a run, all that must move.
        (model((2,) * 9, (1,) * 9, link=Link(SECOND, 0, 2)), 8, 9),
        (model((5, 3), (9, 9)), 8, 18),
        # Beside 1 three bytes of 0 can stay, and one be copied: 6 - 4 are left.
        (model((5, 1), (1, 1)), 5, 2 + 2),
    ],
)
def test_what_has_no_room_beside_a_run(costs: Costs, memory: int, expected: Fraction) -> None:
    assert bounds(costs, memory)[ROOM] == expected


def test_the_largest_comes_first_and_each_has_its_argument() -> None:
    costs = model((4, 4), (1, 2))
    found = lower_bounds(costs, costs.workloads[0], 4)
    assert [(one.name, one.argument) for one in found] == [
        (
            WINDOWS,
            "what does not fit beside a module that runs comes after it; counted from m0",
        ),
        (ROOM, "of what must move, 8 bytes have no room beside a module that runs"),
        (BYTES, "8 bytes must move a pass, whatever is replaced by what"),
        (COMPUTE, "all that is computed, one after the other"),
    ]


def test_more_of_anything_is_no_larger_a_bound() -> None:
    costs = model((5, 3, 4, 6, 2), (1, 2, 0, 3, 1), (1, 0, 0, 2, 0, 1))
    workload, times = costs.workloads[0], []
    for memory in range(6, 22):
        times.append(lower_bound(costs, workload, memory))
        faster = replace(costs, link=Link(2 * SECOND))
        several = replace(costs, link=Link(SECOND, streams=2))
        for other in faster, several:
            assert lower_bound(other, workload, memory) <= times[-1]
    assert times == sorted(times, reverse=True)
    assert times[-1] == workload.total == 11 < times[0]


def test_memory_for_less_than_one_module_is_none() -> None:
    costs = model((4, 6), (1, 2))
    with pytest.raises(CostsError, match=r"^memory: 5 bytes, but a module has 6"):
        lower_bounds(costs, costs.workloads[0], 5)
    assert lower_bound(costs, costs.workloads[0], 6) > 0
