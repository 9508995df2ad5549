"""A brute-force walk over a schedule's plain tables: every property straight from its definition.

Written apart from ``schedule`` (which it imports for a type annotation only), to be compared
with it. It lays out all moments of a few periods in one list, remembers what each slot held
before each moment, and answers every "next" and "last" by going forward or backward through
all moments of the slot. With N modules, P passes and C copies a period, R periods are about
R (N P + C) moments; the searches take at worst the square of that (one slot), mostly far less,
since what a search looks for is seldom far away. What needs a search forward is judged in all
periods but the last one, so that the slot's next run is always met if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schedule import Schedule

NOTHING = -1
RUN = "run"


class Place(NamedTuple):
    """Where something happened: half of the boundary (or "run"), step since the start, slot,
    and the module that ran or was copied."""

    half: str
    step: int
    slot: int
    module: int


@dataclass(frozen=True)
class Verdict:
    """What the walk saw.

    log: every moment.   held: by moment, what its slot held just before it.
    first: for each violated property, where in the log it is violated first: ownership by a
    refill; progress, identity and closure by a run.
    own: refills that copy what the slot already holds.   idle: refills into a slot from which
    nothing runs.   unread: refills that another refill follows before a run of the slot.
    These three name the step within its period, and hold what happened in any period.
    """

    log: tuple[Place, ...]
    held: tuple[int, ...]
    first: dict[str, int]
    own: frozenset[Place]
    idle: frozenset[Place]
    unread: frozenset[Place]

    @property
    def violated(self) -> dict[str, Place]:
        """By the name of each violated property: the first moment that violates it."""
        return {name: self.log[at] for name, at in self.first.items()}


def walk(schedule: Schedule, periods: int = 4) -> Verdict:
    """Walk that many periods; ownership and thrift are judged in all of them but the last."""
    log, starts = lay_out(schedule, periods)
    held = contents(log)
    runs = [at for at in range(len(log)) if log[at].half == RUN]
    refills = [at for at in range(starts[-2]) if log[at].half != RUN]
    period = len(schedule.slot_of)

    lanes: dict[int, list[Place]] = {}
    seat = []  # by moment: its index in its slot's lane
    for place in log:
        lane = lanes.setdefault(place.slot, [])
        seat.append(len(lane))
        lane.append(place)

    # What happened to a run's slot before it, the latest first; to a refill's slot after it.
    earlier = {at: lanes[log[at].slot][: seat[at]][::-1] for at in runs}
    later = {at: lanes[log[at].slot][seat[at] + 1 :] for at in refills}

    def in_period(places: Iterable[int]) -> frozenset[Place]:
        return frozenset(log[at]._replace(step=log[at].step % period) for at in places)

    faults: dict[str, Iterable[int]] = {
        "ownership": (at for at in refills if steals(log[at], held[at], later[at])),
        "progress": (at for at in runs if not brought(log[at], earlier[at])),
        "identity": (at for at in runs if held[at] != log[at].module),
        "closure": unprovided(log, held, starts),
    }

    return Verdict(
        log=tuple(log),
        held=tuple(held),
        first={name: at for name, places in faults.items() for at in islice(places, 1)},
        own=in_period(at for at in refills if held[at] == log[at].module),
        idle=in_period(at for at in refills if next_run(later[at]) is None),
        unread=in_period(at for at in refills if refilled_again(later[at])),
    )


def lay_out(schedule: Schedule, periods: int) -> tuple[list[Place], list[int]]:
    """All moments in host order, and where in that list each period starts and the last ends."""
    modules = schedule.ring.modules
    log = [Place("preload", 0, slot, module) for slot, module in schedule.preload]
    starts = []
    step = 0
    for _ in range(periods):
        starts.append(len(log))
        for number in range(len(schedule.slot_of) // modules):
            log += [Place("enter", step, *refill) for refill in schedule.enter[number]]
            for module in range(modules):
                at = number * modules + module
                log += [Place("before", step, *refill) for refill in schedule.before[at]]
                log.append(Place(RUN, step, schedule.slot_of[at], module))
                log += [Place("after", step, *refill) for refill in schedule.after[at]]
                step += 1
            log += [Place("leave", step - 1, *refill) for refill in schedule.leave[number]]
    return log, [*starts, len(log)]


def contents(log: list[Place]) -> list[int]:
    """By moment: the module whose weights its slot holds just before it."""
    holds: dict[int, int] = {}
    held = []
    for half, _, slot, module in log:
        held.append(holds.get(slot, NOTHING))
        if half != RUN:
            holds[slot] = module
    return held


def next_run(later: list[Place]) -> Place | None:
    """The first run among what happens to a slot later."""
    for place in later:
        if place.half == RUN:
            return place
    return None


def steals(refill: Place, held: int, later: list[Place]) -> bool:
    """Ownership: this refill replaces, by another module, the one that the next run reads."""
    if held in (NOTHING, refill.module):
        return False
    reader = next_run(later)
    return reader is not None and reader.module == held


def brought(run: Place, earlier: list[Place]) -> bool:
    """Progress: since the last run of another module in the slot, this run's was refilled."""
    for place in earlier:
        if place.half != RUN and place.module == run.module:
            return True
        if place.half == RUN and place.module != run.module:
            return False
    return False


def unprovided(log: list[Place], held: list[int], starts: list[int]) -> Iterable[int]:
    """Closure: the runs that come before any refill of their slot in their period, and for
    which that period did not start with their module in the slot."""
    for start, end in pairwise(starts):
        written: set[int] = set()
        for at in range(start, end):
            if log[at].half != RUN:
                written.add(log[at].slot)
            elif log[at].slot not in written and held[at] != log[at].module:
                yield at


def refilled_again(later: list[Place]) -> bool:
    """Thrift: the next thing that happens to the slot is another refill."""
    return bool(later) and later[0].half != RUN
