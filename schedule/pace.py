"""The time of a pass, quickly: for a planner, which asks for it thousands of times.

What the lowering's fences come to, worked out: a run begins when the one before it has ended and
the last copy into its slot has landed; a copy, when the runs issued before it have ended, its
stream's last copy has, and the last one into its slot. ``timing`` executes the program itself, and
decides: what is planned is timed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from schedule.costs import Times
from schedule.table import Refills, Schedule

MOST_PERIODS = 60
"""What has not come to its steady state by then is left to ``timing``."""

BUSY, RUNS, COPIES = 0, 1, 2
"""What happens: something beside; a run from a slot; a copy into a slot, on a stream."""

Action = tuple[int, int, int, int]
"""What happens, its time, and for runs and copies the slot, for copies the stream."""


def actions_of(schedule: Schedule, times: Times) -> list[Action]:
    """What happens in a period, in host order."""
    modules, streams = schedule.ring.modules, len(times.streams.copies)
    found: list[Action] = []

    def copies(refills: Refills) -> None:
        for slot, module in refills:
            found.append((COPIES, times.copy[module], slot, module % streams))

    for step, slot in enumerate(schedule.slot_of):
        number, module = divmod(step, modules)
        if module == 0:
            copies(schedule.enter[number])
        found.append((BUSY, times.between[module], 0, 0))
        copies(schedule.before[step])
        found.append((RUNS, times.run[module], slot, 0))
        copies(schedule.after[step])
        if module == modules - 1:
            found.append((BUSY, times.between[modules], 0, 0))
            copies(schedule.leave[number])
    return found


def pace(actions: Sequence[Action], slots: int, streams: int) -> Fraction | None:
    """The time of a period in the steady state, with so many copy streams, 0 for the compute
    stream's own; None if it takes more than MOST_PERIODS to get there."""
    all_of_it = sum(time for _, time, _, _ in actions)
    if streams == 0:
        return Fraction(all_of_it)
    # However much is under way at first, a period takes as long in the end. Where copies take
    # a little longer than what hides them, it is there soon if they are behind already.
    for behind in (0, all_of_it):
        time = _followed(actions, [0] * slots, [behind] * streams)
        if time is not None:
            return time
    return None


def _followed(actions: Sequence[Action], landed: list[int], free: list[int]) -> Fraction | None:
    """The time of a period from here on, once all repeats; None if that is after too many."""
    clock = 0
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for number in range(MOST_PERIODS):
        key = tuple(time - clock if time > clock else 0 for time in (*landed, *free))
        if key in seen:
            first, then = seen[key]
            return Fraction(clock - then, number - first)
        seen[key] = number, clock
        clock = _period(actions, clock, landed, free)
    return None


def replay_pace(actions: Sequence[Action], slots: int, streams: int) -> Fraction:
    """The time of a pass that is captured: nothing is under way when it begins, or ends."""
    if streams == 0:
        return Fraction(sum(time for _, time, _, _ in actions))
    free = [0] * streams
    return Fraction(max(_period(actions, 0, [0] * slots, free), *free))


def _period(actions: Iterable[Action], clock: int, landed: list[int], free: list[int]) -> int:
    """When the compute stream comes to the period's end. landed, free: by slot and by copy stream,
    when its last copy has landed; moved on."""
    for what, time, slot, stream in actions:
        if what == RUNS:
            if landed[slot] > clock:
                clock = landed[slot]
            clock += time
        elif what == COPIES:
            begin = free[stream]
            if clock > begin:
                begin = clock
            if landed[slot] > begin:
                begin = landed[slot]
            landed[slot] = free[stream] = begin + time
        else:
            clock += time
    return clock
