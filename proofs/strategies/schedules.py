"""Schedules, safe by construction or with a fault planted, and labelled."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from proofs.planted import PLANTED, gap, line_of
from proofs.strategies.sizes import (
    Rings,
    rings,
    safe_policies,
    slot_maps,
    strategy_of_rings,
)
from schedule.arithmetic import first_users
from schedule.policy import Policy, preload
from schedule.ring import Ring
from schedule.table import PRELOAD, Boundary, Schedule

DERIVED, NAME, ANYWHERE = "derived", "named", "at any boundary"
KINDS = (DERIVED, NAME, ANYWHERE)
"""How a safe schedule is made: derived refills of any slot map, over one to three passes; a named
policy; every refill, and useless ones beside, at any boundary where it is safe."""


@dataclass(frozen=True, slots=True)
class LabelledSchedule:
    """A schedule, and what is true of it.

    made:     one of KINDS.
    fault:    what was planted into it, of ``proofs.planted.PLANTED``, or "".
    violates: a property that it violates for that, or "" if it is safe. Others may be violated
              as well. Ownership and identity are seen by the machine; where progress or closure
              is violated, so is identity.
    at, slot: where: the boundary whose refills are wrong, or the run (of half RUN) that misses
              one; and the slot. None if it is safe.
    """

    schedule: Schedule
    made: str
    fault: str = ""
    violates: str = ""
    at: Boundary | None = None
    slot: int | None = None

    @property
    def safe(self) -> bool:
        return not self.violates


def safe_schedules(among: Rings | None = None) -> st.SearchStrategy[LabelledSchedule]:
    """Safe schedules of every kind, of rings drawn from ``among`` (by default to 6x5).

    Shrinks towards derived refills of a map to slot 0. ValueError if ``among`` is no strategy.
    """
    return _safe(strategy_of_rings(among, rings(max_modules=6, max_slots=5)))


def unsafe_schedules(among: Rings | None = None) -> st.SearchStrategy[LabelledSchedule]:
    """Safe schedules with one fault planted, and the property that it violates.

    Shrinks towards a module that is never copied, and for one fault towards its first place in
    the smallest ring, and the plainest schedule, that can have it. ValueError if ``among`` is no
    strategy.
    """
    return _unsafe(safe_schedules(among))


def schedules(among: Rings | None = None) -> st.SearchStrategy[LabelledSchedule]:
    """Safe and unsafe ones, about as many. Shrinks towards safe ones."""
    return safe_schedules(among) | unsafe_schedules(among)


@st.composite
def _safe(draw: st.DrawFn, among: Rings) -> LabelledSchedule:
    """The slot map is drawn for a named policy too: so another kind of schedule is a shorter one
    of the same choices, and what fails shrinks from kind to kind."""
    ring, passes = draw(among), draw(st.integers(1, 3))
    made, slot_of = draw(st.sampled_from(KINDS)), draw(slot_maps(ring, passes))
    if made == NAME:
        policy = draw(st.sampled_from(safe_policies(ring)))
        return LabelledSchedule(policy(ring), made)
    if made == ANYWHERE:
        return LabelledSchedule(draw(_anywhere(ring, slot_of)), made)
    policy = Policy(made, lambda step, _: slot_of[step], passes=lambda _: passes)
    return LabelledSchedule(policy(ring), made)


@st.composite
def _anywhere(draw: st.DrawFn, ring: Ring, slot_of: tuple[int, ...]) -> Schedule:
    """Before each run, at one or two boundaries since the run before it in its slot, its module
    is copied: where that is another one it must be, else it may be."""
    modules, passes = ring.modules, len(slot_of) // ring.modules
    line = line_of(modules, passes)
    first = preload(first_users(slot_of, ring.slots), modules)
    plan: dict[tuple[Boundary, int], int] = {(Boundary(PRELOAD, 0), s): m for s, m in first}
    for step, slot in enumerate(slot_of):
        boundaries, before = gap(line, slot_of, step)
        needed = before % modules != step % modules
        among = st.sampled_from(boundaries)
        for at in draw(st.lists(among, min_size=int(needed), max_size=2, unique=True)):
            plan[at, slot] = step % modules
    policy = Policy(
        ANYWHERE,
        lambda step, _: slot_of[step],
        refill=lambda boundary, slot, _: plan.get((boundary, slot)),
        passes=lambda _: passes,
    )
    return policy(ring)


@st.composite
def _unsafe(draw: st.DrawFn, safe: st.SearchStrategy[LabelledSchedule]) -> LabelledSchedule:
    fault = draw(st.sampled_from([*PLANTED]))
    violates, plant = PLANTED[fault]
    found = draw(safe.filter(lambda labelled: any(plant(labelled.schedule))))
    planted = draw(st.sampled_from([*plant(found.schedule)]))
    return LabelledSchedule(planted.schedule, found.made, fault, violates, planted.at, planted.slot)
