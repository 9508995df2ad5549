"""Policies with a fault planted, and the same policies repaired.

The right rule is written here once more, as a user would; the faults are those that users make.
"""

from __future__ import annotations

from typing import Any

from schedule import Policy
from schedule.policy import of_target
from schedule.table import Boundary


def right(index: int, slots: int, modules: int) -> int:
    """The module K on, or the slot's first one; a module with a slot of its own again."""
    return index + slots if index + slots < modules else index % slots


def old(index: int, slots: int, modules: int) -> int:
    return (index + slots) % modules


def each_pass(step: int, ring: Any) -> int:
    return int(step % ring.modules % ring.slots)


# ---- rules for targets


def wrong_modulus(index: int, slots: int, modules: int) -> int:
    return (index + slots) % max(1, modules - 1)


def off_by_one(index: int, slots: int, modules: int) -> int:
    return (right(index, slots, modules) + 1) % modules


def wrong_at_the_last(index: int, slots: int, modules: int) -> int:
    return 0 if index == modules - 1 else right(index, slots, modules)


def wrong_for_sevens(index: int, slots: int, modules: int) -> int:
    wrong = modules % 7 == 0 and slots == 5
    return old(index, slots, modules) if wrong else right(index, slots, modules)


def wrong_if_it_divides(index: int, slots: int, modules: int) -> int:
    wrong = 1 < slots < modules and modules % slots == 0
    return index % slots if wrong else right(index, slots, modules)


def wrong_for_one_less(index: int, slots: int, modules: int) -> int:
    return old(index, slots, modules) if slots == modules - 1 else right(index, slots, modules)


def stops_early(index: int, slots: int, modules: int) -> int | None:
    """As if each pass were the last one."""
    return index + slots if index + slots < modules else None


def wraps_to_the_first(index: int, slots: int, modules: int) -> int:
    return index + slots if index + slots < modules else 0


def one_comparison_off(index: int, slots: int, modules: int) -> int:
    return index + slots if index + slots < modules - 1 else index % slots


def wrong_from_twenty(index: int, slots: int, modules: int) -> int:
    wrong = modules >= 20 and slots == 3
    return old(index, slots, modules) if wrong else right(index, slots, modules)


def table_of(slots: int, modules: int) -> list[int]:
    """The targets, by walking backwards and remembering what comes next in each slot."""
    following = [slot % modules for slot in range(slots)]
    table = [0] * modules
    for index in reversed(range(modules)):
        table[index] = following[index % slots]
        following[index % slots] = index
    return table


def table_right(index: int, slots: int, modules: int) -> int:
    return table_of(slots, modules)[index]


def table_one_wrong(index: int, slots: int, modules: int) -> int:
    """In a table that is long enough one entry is its neighbour's."""
    table = table_of(slots, modules)
    return table[3 if index == 4 else index]


# ---- slot maps with targets of their own


def swapped(step: int, ring: Any) -> int:
    """After the first round the first two slots are swapped; the targets do not know."""
    slot: int = step % ring.slots
    return 1 - slot if step >= ring.slots > 1 and slot < 2 else slot


def halves(step: int, ring: Any) -> int:
    """Neighbours share a slot; the targets are K apart."""
    slot: int = step * ring.slots // ring.modules
    return slot


# ---- rules for refills


def in_time(boundary: Boundary, slot: int, ring: Any) -> int | None:
    half, step = boundary
    if half == "preload":
        return slot if slot < ring.modules else None
    if half == "after" and slot == each_pass(step, ring):
        return right(step % ring.modules, ring.slots, ring.modules)
    return None


def one_short(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """The last slot is not preloaded."""
    short = boundary.half == "preload" and slot == ring.slots - 1
    return None if short else in_time(boundary, slot, ring)


def before_it_ended(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """A module's slot is refilled before the module runs, not after."""
    half, step = boundary
    there = {"after": "none", "before": "after"}.get(half, half)
    return in_time(Boundary(there, step), slot, ring)


def restarted(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """Each pass begins anew, and nothing is carried over."""
    half, step = boundary
    if half == "enter":
        return slot if slot < ring.modules else None
    if half == "after" and slot == each_pass(step, ring) and step + ring.slots < ring.modules:
        return int(step + ring.slots)
    return None


def no_enter(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """The first pass is preloaded, and what later ones enter with is missing."""
    half, step = boundary
    there = {"enter": "none", "preload": "enter"}.get(half, half)
    return restarted(Boundary(there, step), slot, ring)


def twice(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """The pass's leave brings each slot's first module once more: useless, and right."""
    there = "preload" if boundary.half == "leave" else boundary.half
    return in_time(Boundary(there, boundary.step), slot, ring)


def twice_another(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """It brings each slot's second one, and no run is between."""
    if boundary.half == "leave" and slot + ring.slots < ring.modules:
        return int(slot + ring.slots)
    return in_time(boundary, slot, ring)


def wrong_in_the_second_pass(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """Only there the last module is copied over itself, and not what comes next in its slot."""
    if boundary == ("after", 2 * ring.modules - 1) and slot == each_pass(boundary.step, ring):
        return int(ring.modules - 1)
    return in_time(boundary, slot, ring)


def two(_: Any) -> int:
    return 2


RIGHT = of_target(right, "right")
IN_TIME = Policy("in_time", each_pass, refill=in_time)

PLANTED: dict[str, tuple[Policy, Policy]] = {
    **{
        rule.__name__: (of_target(rule, rule.__name__), RIGHT)
        for rule in (
            wrong_modulus,
            off_by_one,
            wrong_at_the_last,
            wrong_for_sevens,
            wrong_if_it_divides,
            wrong_for_one_less,
            stops_early,
            wraps_to_the_first,
            one_comparison_off,
            wrong_from_twenty,
        )
    },
    "table_one_wrong": (
        of_target(table_one_wrong, "table_one_wrong"),
        of_target(table_right, "table_right"),
    ),
    "swapped": (Policy("swapped", swapped, right), Policy("swapped", swapped)),
    "halves": (Policy("halves", halves, right), Policy("halves", halves)),
    "one_short": (Policy("one_short", each_pass, refill=one_short), IN_TIME),
    "before_it_ended": (Policy("before_it_ended", each_pass, refill=before_it_ended), IN_TIME),
    "no_enter": (
        Policy("no_enter", each_pass, refill=no_enter),
        Policy("restarted", each_pass, refill=restarted),
    ),
    "twice_another": (
        Policy("twice_another", each_pass, refill=twice_another),
        Policy("twice", each_pass, refill=twice),
    ),
    "wrong_in_the_second_pass": (
        Policy("second", each_pass, refill=wrong_in_the_second_pass, passes=two),
        Policy("second", each_pass, refill=in_time, passes=two),
    ),
}
"""By fault: the policy with it, and the policy repaired."""
