"""Programs as lowered from safe schedules, right or with a fault at one place, and labelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import assume, reject
from hypothesis import strategies as st

from proofs.cases import Case, cases
from proofs.faulty import AS_IT_IS, FAULTY, HOST_WAITS
from proofs.obligation import System
from proofs.strategies.sizes import Rings, rings, safe_policies, strategy_of_rings
from schedule.operations import Listing, Streams
from schedule.order import order
from schedule.table import Boundary

HARMLESS = (AS_IT_IS, HOST_WAITS)


@dataclass(frozen=True, slots=True)
class LabelledProgram:
    """A listing, and what is true of it.

    name:     the ring, the policy, the streams and the way of lowering.
    fault:    one of ``proofs.faulty.FAULTY``; some of them are none.
    at:       where: the boundary at whose operations it begins, and their position in the
              listing; None for a program as it is.
    violates: the properties of its ordering that the clocks find violated. A fault at a place
              where another fence does the same is harmless, and violates none.
    """

    name: str
    listing: Listing
    streams: Streams
    fault: str
    at: tuple[Boundary, int] | None
    violates: frozenset[str]

    @property
    def safe(self) -> bool:
        return not self.violates


def programs(among: Rings | None = None) -> st.SearchStrategy[LabelledProgram]:
    """Programs of the named policies, for rings drawn from ``among`` (by default to 4x3): eager,
    captured and replayed, with a module skipped, with the host writing a block; copies on one
    stream, on two, on the compute stream; as they are or with one fault at one place.

    Shrinks towards the smallest ring's, eager, as it is. ValueError if ``among`` is no strategy.
    """
    return _programs(strategy_of_rings(among, rings(max_modules=4, max_slots=3)))


def faulty_programs(among: Rings | None = None) -> st.SearchStrategy[LabelledProgram]:
    """Those that violate a property: some timing of the device, or the form of the graph, is
    wrong. Shrinks towards the smallest ring, and the first place at which its fault is one."""
    return _faulty(strategy_of_rings(among, rings(max_modules=4, max_slots=3)))


@st.composite
def _programs(draw: st.DrawFn, among: Rings) -> LabelledProgram:
    fault = draw(st.sampled_from(sorted(FAULTY, key=lambda name: name != AS_IT_IS)))
    case = draw(st.sampled_from(_able(draw, among, fault)))
    return draw(st.sampled_from([*_labelled(case, fault)]))


@st.composite
def _faulty(draw: st.DrawFn, among: Rings) -> LabelledProgram:
    fault = draw(st.sampled_from([name for name in FAULTY if name not in HARMLESS]))
    able = _able(draw, among, fault)
    # The next one in which the fault is one: some faults are in few programs.
    first = draw(st.integers(0, len(able) - 1))
    for case in (*able[first:], *able[:first]):
        found = [program for program in _labelled(case, fault) if not program.safe]
        if found:
            return draw(st.sampled_from(found))
    reject()


def _able(draw: st.DrawFn, among: Rings, fault: str) -> list[Case]:
    """The programs of a ring and a policy that can have the fault."""
    ring, change = draw(among), FAULTY[fault]
    made = cases(System(), draw(st.sampled_from(safe_policies(ring))), ring)
    found = [one for one in made if fault == AS_IT_IS or change(one.listing) != one.listing]
    assume(found)
    return found


def _labelled(case: Case, fault: str) -> Iterator[LabelledProgram]:
    """The program with the fault, for each place; what the clocks find in it."""
    if fault == AS_IT_IS:
        yield LabelledProgram(case.name, case.listing, case.streams, fault, None, frozenset())
    for at, listing in places(case.listing, fault):
        violates = frozenset(one.property for one in order(listing, case.streams).faults)
        yield LabelledProgram(case.name, listing, case.streams, fault, at, violates)


def places(listing: Listing, fault: str) -> list[tuple[tuple[Boundary, int], Listing]]:
    """The listing with the fault at one place, for each place, in order: the shortest
    stretch of whole boundaries that the fault changes."""
    change, number = FAULTY[fault], len(listing)
    borders = [at for at, (one, two) in enumerate(pairwise(listing), 1) if one[1] != two[1]]
    starts = [0, *borders] if listing else []
    found: dict[Listing, tuple[Boundary, int]] = {}
    for place, start in reversed(list(enumerate(starts))):
        for stop in (*starts[place + 1 :], number):
            stretch = listing[start:stop]
            changed = change(stretch)
            if changed != stretch:
                whole = (*listing[:start], *changed, *listing[stop:])
                found.setdefault(whole, (listing[start].boundary, start))
                break
    return [(at, whole) for whole, at in reversed(found.items())]
