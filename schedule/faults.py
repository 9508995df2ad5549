"""An ordering's faults in words: which two operations, at which boundaries, and the fence that is
missing between them."""

from __future__ import annotations

from collections.abc import Iterator

from schedule.operations import Copy, Record, Run, Wait
from schedule.order import Ordering, order
from schedule.program import lower, lower_captured
from schedule.ring import EMPTY
from schedule.table import Schedule
from schedule.tasks import (
    BLOCK,
    IDENTITY,
    JOINED,
    MEANING,
    ORDERING,
    PAGEABLE,
    RAW,
    WAR,
    WAW,
    Fault,
    Task,
)

WHAT = {
    RAW: "reads the slot while it may still be written by",
    WAR: "overwrites the slot while it may still be read by",
    WAW: "overwrites the slot while it may still be written by",
    BLOCK: "changes the block while it may still be read by",
    JOINED: "goes on before this is joined:",
}


GROUPS = {"ordering": ORDERING, "joined": (JOINED, PAGEABLE), "meaning": (MEANING,)}
"""What a program is checked for beside identity: no hazard; captures that are whole; waits that
get the copy that they mean."""


def orderings(schedule: Schedule) -> Iterator[Ordering]:
    """What the clocks find in the schedule's program: two periods of it, and, where a pass can
    stand for all, its graph replayed twice."""
    yield order(lower(schedule).listing(2))
    if schedule.period == 1:
        yield order(lower_captured(schedule).listing(2))


def groups(schedule: Schedule) -> dict[str, str | None]:
    """By group, its first fault in words, or None."""
    found: dict[str, str | None] = dict.fromkeys(GROUPS)
    for ordering in orderings(schedule):
        for fault in ordering.faults:
            for name, properties in GROUPS.items():
                if fault.property in properties and found[name] is None:
                    found[name] = explain(ordering, fault, schedule.ring.modules)
    return found


def explain(ordering: Ordering, fault: Fault, modules: int) -> str:
    """The fault in one sentence, for a ring of that many modules."""
    here = place(ordering, ordering.tasks[fault.later], modules)
    if fault.why:
        return f"{fault.property}: {here}: {fault.why}"
    if fault.property == IDENTITY:
        run = ordering.tasks[fault.later].operation
        assert isinstance(run, Run), "identity is a run's"
        return f"{IDENTITY}: {here}: {_latest(ordering, fault, run.slot)}"
    if fault.property == MEANING:
        return f"{MEANING}: {here}: {_meant(ordering, fault)}"
    if fault.earlier is None:
        return f"{fault.property}: {here} {WHAT[fault.property]} what came before the listing"
    there = place(ordering, ordering.tasks[fault.earlier], modules)
    return f"{fault.property}: {here} {WHAT[fault.property]} {there}; {missing(ordering, fault)}"


def place(ordering: Ordering, task: Task, modules: int) -> str:
    """A task as its operation and boundary; of a replay, as that replay's."""
    operation, boundary = ordering.listing[task.at]
    where = boundary.text(modules)
    if task.replay is not None:
        where = ordering.listing[task.replay].boundary.text(modules)
    return f"[{operation}] ({where})"


def missing(ordering: Ordering, fault: Fault) -> str:
    """The fence to add: a wait, and a record for it where none is in between."""
    assert fault.earlier is not None, "a fence is between two operations"
    first, second = (
        ordering.listing[ordering.tasks[number].at].operation
        for number in (fault.earlier, fault.later)
    )
    between = ordering.tasks[fault.earlier : fault.later]
    theirs = ordering.tasks[fault.earlier].operation.stream  # in a replay, one of its own
    records = [
        task.operation.event
        for task in between
        if isinstance(task.operation, Record) and task.operation.stream == theirs
    ]
    if records:
        return f"let {second.stream} wait for {records[0]} before it"
    return (
        f"record an event on {first.stream} after the {_word(first)}, "
        f"and let {second.stream} wait for it before the {_word(second)}"
    )


def _word(operation: object) -> str:
    return {Copy: "copy", Run: "run"}.get(type(operation), "operation")


def _copies(ordering: Ordering, number: int, slot: int | None) -> list[Copy]:
    """The copies into the slot among the tasks before this one."""
    found = (task.operation for task in ordering.tasks[:number])
    return [one for one in found if isinstance(one, Copy) and one.slot == slot]


def _meant(ordering: Ordering, fault: Fault) -> str:
    wait = ordering.tasks[fault.later].operation
    assert isinstance(wait, Wait), "a meaning is a wait's"
    copies = _copies(ordering, fault.later, wait.event.number)
    latest = copies[-1].module if copies else EMPTY
    if latest != wait.module:
        return _latest(ordering, fault, wait.event.number)
    return "the latest record of the event does not stand for that copy; record it after the copy"


def _latest(ordering: Ordering, fault: Fault, slot: int | None) -> str:
    copies = _copies(ordering, fault.later, slot)
    what = f"of module {copies[-1].module}" if copies else "none"
    return f"the latest copy into slot {slot} is {what}"
