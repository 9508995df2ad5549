"""An ordering's faults in words: which two operations, at which boundaries, and the fence that is
missing between them."""

from __future__ import annotations

from collections.abc import Iterator

from schedule.graphs import lower_captured
from schedule.operations import (
    Capture,
    Copy,
    EndCapture,
    Event,
    Record,
    Replay,
    Run,
    Wait,
    Write,
)
from schedule.order import Ordering, order
from schedule.program import lower
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, ORDERING, PAGEABLE, RAW, WAR, WAW
from schedule.ring import EMPTY
from schedule.table import Schedule
from schedule.tasks import Fault, Task

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
    """By group, its first fault in words, or None. Where the schedule has no graph ``joined`` is
    left out: nothing was looked at."""
    found: dict[str, str | None] = dict.fromkeys(GROUPS)
    if schedule.period != 1:
        del found["joined"]
    for ordering in orderings(schedule):
        for fault in ordering.faults:
            for name, properties in GROUPS.items():
                if fault.property in properties and found.get(name, "") is None:
                    found[name] = explain(ordering, fault, schedule.ring.modules)
    return found


def explain(ordering: Ordering, fault: Fault, modules: int) -> str:
    """The fault in one sentence, for a ring of that many modules."""
    here = place(ordering, ordering.tasks[fault.later], modules)
    if fault.why:
        return f"{fault.property}: {here}: {fault.why}"
    if fault.property == IDENTITY:
        reads = ordering.tasks[fault.later].operation
        assert isinstance(reads, Run | Write), "identity is of what reads a slot"
        copies = _copies(ordering, fault.later, reads.slot)
        old = bool(copies) and copies[-1].module == reads.module
        since = ", as it was before the host wrote its block" if old else ""
        return f"{IDENTITY}: {here}: {_latest(ordering, fault, reads.slot)}{since}"
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
    """The fence to add: a wait, and a record for it where none is in between. What is part of a
    replay is fenced where the replay is: no wait in a graph reaches outside."""
    assert fault.earlier is not None, "a fence is between two operations"
    first, second = ordering.tasks[fault.earlier], ordering.tasks[fault.later]
    same = first.replay == second.replay
    stream, after, since = _end(ordering, first, fault.earlier, same)
    waits, before = _start(ordering, second, same)
    latest: dict[Event, tuple[str, int]] = {}
    for number, task in enumerate(ordering.tasks[: fault.later]):
        operation = task.operation
        if isinstance(operation, Record) and (same or operation.event.graph is None):
            latest[operation.event] = operation.stream, number
    stands = [event for event, (of, number) in latest.items() if of == stream and number > since]
    if stands:
        return f"let {waits} wait for {stands[0]} before {before}"
    issued = ordering.listing[first.at].operation.stream if same else stream
    return f"record an event on {issued} after {after}, and let {waits} wait for it before {before}"


def _end(ordering: Ordering, task: Task, number: int, same: bool) -> tuple[str, str, int]:
    """A stream that is behind the task, what it is behind of, and the last task of that."""
    if same or task.replay is None:
        return task.operation.stream, f"the {_word(ordering.listing[task.at].operation)}", number
    replay = ordering.listing[task.replay].operation
    last = max(n for n, other in enumerate(ordering.tasks) if other.replay == task.replay)
    return replay.stream, "the replay", last


def _start(ordering: Ordering, task: Task, same: bool) -> tuple[str, str]:
    """The stream that must wait, and before what."""
    if same or task.replay is None:
        stream = ordering.listing[task.at].operation.stream
        return stream, f"the {_word(ordering.listing[task.at].operation)}"
    return ordering.listing[task.replay].operation.stream, "the replay"


def _word(operation: object) -> str:
    words: dict[type, str] = {
        Copy: "copy",
        Run: "run",
        Write: "write",
        Capture: "capture",
        EndCapture: "end of the capture",
        Replay: "replay",
    }
    return words.get(type(operation), "operation")


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
    records = [
        number
        for number, task in enumerate(ordering.tasks[: fault.later])
        if isinstance(task.operation, Record) and task.operation.event == wait.event
    ]
    recorded = _copies(ordering, records[-1], wait.event.number) if records else []
    if not recorded or recorded[-1].module != wait.module:
        return f"{wait.event} was not recorded since that copy was issued"
    return "some copy into the slot may not be done when the wait is over"


def _latest(ordering: Ordering, fault: Fault, slot: int | None) -> str:
    copies = _copies(ordering, fault.later, slot)
    what = f"of module {copies[-1].module}" if copies else "none"
    return f"the latest copy into slot {slot} is {what}"
