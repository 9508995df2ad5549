"""A brute-force walk over a schedule's plain tables: every property straight from its definition.

Written apart from ``schedule`` (which it imports for a type annotation only), to be compared
with it. It lays out all moments of a few periods in one list, remembers what each slot held
before each moment, and answers every "next" and "last" by walking along that list. With N
modules, P passes a period and C copies a period, a walk over R periods lists about R (N P + C)
moments and takes at worst the square of that; a period more than is judged is laid out, so that
a search forward always meets the slot's next run if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
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
    ownership, progress, identity, closure: the first moment that violates it, or None.
    own: refills that copy what the slot already holds.   idle: refills into a slot from which
    nothing runs.   unread: refills that another refill follows before a run of the slot.
    These three name the step within its period, and hold what happened in any period.
    """

    log: tuple[Place, ...]
    held: tuple[int, ...]
    ownership: Place | None
    progress: Place | None
    identity: Place | None
    closure: Place | None
    own: frozenset[Place]
    idle: frozenset[Place]
    unread: frozenset[Place]

    @property
    def violated(self) -> dict[str, Place]:
        """By the name of each violated property: the first moment that violates it."""
        names = ("ownership", "progress", "identity", "closure")
        return {name: place for name in names if (place := getattr(self, name)) is not None}


def walk(schedule: Schedule, periods: int = 4) -> Verdict:
    """Walk that many periods; ownership and thrift are judged in all of them but the last."""
    log, starts = lay_out(schedule, periods)
    held = contents(log)
    judged = range(starts[-2])
    runs = [at for at in range(len(log)) if log[at].half == RUN]
    refills = [at for at in judged if log[at].half != RUN]
    period = len(schedule.slot_of)

    def first(places: Iterable[int]) -> Place | None:
        return next((log[at] for at in places), None)

    def in_period(places: Iterable[int]) -> frozenset[Place]:
        return frozenset(log[at]._replace(step=log[at].step % period) for at in places)

    return Verdict(
        log=tuple(log),
        held=tuple(held),
        ownership=first(at for at in refills if steals(log, held, at)),
        progress=first(at for at in runs if not brought(log, at)),
        identity=first(at for at in runs if held[at] != log[at].module),
        closure=first(unprovided(log, held, starts)),
        own=in_period(at for at in refills if held[at] == log[at].module),
        idle=in_period(at for at in refills if next_run(log, at) is None),
        unread=in_period(at for at in refills if refilled_again(log, at)),
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


def next_run(log: list[Place], at: int) -> Place | None:
    """The first run from this moment's slot after it."""
    slot = log[at].slot
    for later in range(at + 1, len(log)):
        if log[later].slot == slot and log[later].half == RUN:
            return log[later]
    return None


def steals(log: list[Place], held: list[int], at: int) -> bool:
    """Ownership: this refill replaces, by another module, the one that the next run reads."""
    if held[at] == NOTHING or held[at] == log[at].module:
        return False
    reader = next_run(log, at)
    return reader is not None and reader.module == held[at]


def brought(log: list[Place], at: int) -> bool:
    """Progress: since the last run of another module in the slot, this run's was refilled."""
    slot, module = log[at].slot, log[at].module
    for earlier in range(at - 1, -1, -1):
        if log[earlier].slot == slot:
            if log[earlier].half != RUN and log[earlier].module == module:
                return True
            if log[earlier].half == RUN and log[earlier].module != module:
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


def refilled_again(log: list[Place], at: int) -> bool:
    """Thrift: the next thing that happens to the slot is another refill."""
    slot = log[at].slot
    for later in range(at + 1, len(log)):
        if log[later].slot == slot:
            return log[later].half != RUN
    return False
