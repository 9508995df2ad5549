"""Windows against values by hand, and against the distances of slot maps."""

from __future__ import annotations

from itertools import product

import pytest

from schedule import Refill, Ring, Schedule, policies
from schedule.arithmetic import best_distance
from schedule.windows import windows


@pytest.mark.parametrize(
    ("policy", "modules", "slots", "expected"),
    [
        # 2 comes after run 0, and runs after 1; 0 comes after run 2, right before its own.
        ("chain", 3, 2, (0, None, 1)),
        ("slot_local", 3, 2, (0, None, 1)),  # 1 is copied over itself: nothing is brought
        # Module 0 is in slot 0 when 2 runs from it, and still when 0 does.
        ("modular", 3, 2, (None, None, None)),
        # Slots 0 1 2 0 1 2 0: 6 is followed by 0 at once, 3 and 4 by two others.
        ("chain", 7, 3, (0, 3, 3, 2, 2, 2, 2)),
        # Slots 0 1 2 0 1 0 1: every user of slot 0 and 1 has another one between, or two.
        ("balanced", 7, 3, (1, 1, None, 2, 2, 1, 1)),
        ("on_demand", 3, 2, (0, None, 0)),  # slot 1 has module 1 alone, and it is there
        ("one_ahead", 4, 2, (0, 1, 1, 1)),  # 0 on enter; before each run the next one
        ("restart", 3, 2, (0, None, 1)),
        # Over two passes slots 0 1 0 1 0 1: every run waits two for its slot's next one.
        ("rotating", 3, 2, (1, 1, 1, 1, 1, 1)),
        ("chain", 2, 1, (0, 0)),
        ("chain", 2, 2, (None, None)),
    ],
)
def test_windows_by_hand(
    policy: str, modules: int, slots: int, expected: tuple[int | None, ...]
) -> None:
    assert windows(policies.NAMED[policy](Ring(modules, slots))) == expected


def test_a_refill_counts_from_where_it_is_issued() -> None:
    """Module 1 before, at and after each run of module 0 that it may follow, in a slot of its own
    that another module spoils on enter."""
    spoil, bring = (Refill(1, 0),), (Refill(1, 2),)
    found = []
    for half, at in product(("before", "after"), range(3)):
        table = {"before": [()] * 3, "after": [()] * 3}
        table[half][at] = bring
        made = Schedule(
            Ring(3, 2),
            "by hand",
            (0, 0, 1),
            (Refill(0, 0),),
            (spoil,),
            tuple(table["before"]),
            tuple(table["after"]),
            ((),),
        )
        found.append(windows(made)[2])
    # After run 2 it comes too late, and on enter it is gone again.
    assert found == [2, 1, 0, 1, 0, None]


def test_the_smallest_window_of_balanced_is_one_less_than_the_best_distance() -> None:
    seen = 0
    for modules, slots in product(range(1, 21), repeat=2):
        ring = Ring(modules, slots)
        found = [window for window in windows(policies.balanced(ring)) if window is not None]
        if slots < modules:
            assert min(found) >= best_distance(ring) - 1
            seen += min(found) == best_distance(ring) - 1
        else:
            assert found == []
    assert seen > 150
