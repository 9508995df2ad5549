"""How long before its run a module's copy is issued: the time that hides it."""

from __future__ import annotations

from schedule.ring import EMPTY
from schedule.table import RUN, Schedule


def windows(schedule: Schedule) -> tuple[int | None, ...]:
    """By step of a period, the window of the run: how many runs lie between the refill that
    brought its module into its slot and itself. With equal modules, that times the compute time
    of one.

    Counted in the second period, which every later one repeats. A refill after step p, of the
    module that step q runs from that slot, has the window q - p - 1, one less than the distance;
    before step p, q - p. None where no refill brought it since the slot's last run: it was there
    already (a useless refill brings nothing), or the slot holds another module's weights.
    """
    holds = [EMPTY] * schedule.ring.slots
    brought: list[int | None] = [None] * schedule.ring.slots
    found: list[int | None] = []
    for half, _, slot, module in schedule.walk(2):
        if half == RUN:
            since = brought[slot] if holds[slot] == module else None
            found.append(None if since is None else len(found) - since)
            brought[slot] = None
        elif holds[slot] != module:
            holds[slot], brought[slot] = module, len(found)
    return tuple(found[len(schedule.slot_of) :])
