"""What a guarded engine issues when the modules arrive in some order: the runtime's meaning, pure.

At its enter a pass issues its refills. A module that arrives gets its step's refills before it,
its reload if the guard finds it not resident, its run, and then the refills after it, whatever
came before it. A pass that ends, early too, issues its leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedule.guard import Copied, arrives, is_resident
from schedule.operations import ONE_COPY_STREAM, Copy, Issued, Listing, Streams
from schedule.program import RELOAD, lower
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Schedule


def arrive(
    schedule: Schedule, order: Iterable[Sequence[int]], streams: Streams = ONE_COPY_STREAM
) -> Listing:
    """The preload, and then all that is issued in passes that run these modules in this order.

    order: for each pass, its modules; the n-th pass is at that pass of the period.
    ValueError for a module that the ring has not.
    """
    parts, modules = lower(schedule, streams).parts(), schedule.ring.modules
    found: list[Issued] = [*parts[PRELOAD][0]]
    for number, running in enumerate(order):
        at = number % schedule.period
        found += parts[ENTER][at]
        for module in running:
            if isinstance(module, bool) or module not in range(modules):
                raise ValueError(
                    f"pass {number} runs module {module!r}; the modules of {schedule.ring} are "
                    f"0 .. {modules - 1}"
                )
            step = at * modules + module
            found += parts[BEFORE][step]
            last = _last(found, schedule.slot_of[step])
            for half in arrives(is_resident(last, module, 0)):
                found += parts[half][step]
            found += parts[AFTER][step]
        found += parts[LEAVE][at]
    return tuple(found)


def misses(listing: Listing) -> int:
    """How many modules of it were reloaded, since they were not resident."""
    return sum(isinstance(one.operation, Copy) and one.boundary.half == RELOAD for one in listing)


def _last(issued: Sequence[Issued], slot: int) -> Copied:
    """What was last copied into the slot; no block is written here, so every version is 0."""
    for one in reversed(issued):
        if isinstance(one.operation, Copy) and one.operation.slot == slot:
            return Copied(one.operation.module, 0)
    return Copied()
