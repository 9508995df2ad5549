"""Which programs the engines look at: every lowering of a policy's schedules, and with faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from proofs import hosted
from proofs.faulty import AS_IT_IS, FAULTY, NO_JOIN
from proofs.hosted import issued
from proofs.obligation import System
from schedule.graphs import REPLAY, CapturedProgram
from schedule.operations import COMPUTE, COPY, Copy, Listing, Streams
from schedule.policy import Policy
from schedule.program import RELOAD, WRITE, Program
from schedule.ring import Ring
from schedule.table import PRELOAD, RUN, Refill


@dataclass(frozen=True, slots=True)
class Bounds:
    """Up to which size of ring the engines look at what. rings: programs as lowered, one copy
    stream.  middle: those on two copy streams, or with a period of several passes.  faults:
    faulty programs.  small: faulty programs on two copy streams, or with nothing joined, which
    have very many interleavings; and faults where a module is skipped or a block written, which
    are the same faults once more.  solver: all that the solver is asked about."""

    rings: int
    faults: int
    middle: int
    small: int
    solver: int

    def __str__(self) -> str:
        return (
            f"all rings to {self.rings}x{self.rings} (two copy streams, and periods of several "
            f"passes, to {self.middle}x{self.middle}"
        )


EVERY_RUN = Bounds(rings=8, faults=6, middle=4, small=3, solver=2)
"""What ``python -m proofs`` has the time for; ``python -m proofs engines`` has no other limit than
the one it is given."""
STREAMS = {
    "one copy stream": Streams(),
    "two copy streams": Streams((COPY, "copy 1")),
    "copies on the compute stream": Streams((COMPUTE,)),
}
GUARDED = {"captured, cut short": hosted.cut_short, "captured, in pieces": hosted.in_pieces}
"""Graphs that are replayed in any state."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program of a ring: which, and as listed. guarded: what is missed is reloaded, so that it
    is right for an unsafe schedule too. plain: nothing is skipped, and nothing written. fault: of
    FAULTY, by what the listing differs from the lowering."""

    name: str
    listing: Listing
    streams: Streams
    guarded: bool = False
    plain: bool = True
    fault: str = AS_IT_IS


def cases(system: System, policy: Policy, ring: Ring, bounds: Bounds = EVERY_RUN) -> Iterator[Case]:
    """Every lowering of the policy's schedule: preload and two periods, eagerly, with a module
    skipped, with the host writing a block, and captured, with eager passes between, whole or cut
    short, and in pieces."""
    schedule, size = policy(ring), max(ring.modules, ring.slots)
    for kind, streams in STREAMS.items():
        if size > bounds.middle and (len(streams.copies) > 1 or schedule.period > 1):
            continue
        head = f"N={ring.modules}, K={ring.slots}, {policy.name}, {kind}"
        program = system.program.lower(schedule, streams)
        eager = program.listing(2)
        yield Case(head, eager, streams)
        written = _written(system, eager, ring, streams)
        yield Case(f"{head}, written", written, streams, plain=False)
        if schedule.period == 1:
            skipped = hosted.skipped(system, schedule, streams)
            yield Case(f"{head}, skipped", skipped, streams, guarded=True, plain=False)
            captured = system.graphs.lower_captured(schedule, streams)
            graph = _captured(captured, program)
            yield Case(f"{head}, captured", graph, streams)
            written = _written(system, captured.listing(1), ring, streams)
            yield Case(f"{head}, captured, written", written, streams, plain=False)
            for name, of in GUARDED.items() if size <= bounds.middle else ():
                listing = of(system, schedule, streams)
                yield Case(f"{head}, {name}", listing, streams, guarded=True, plain=False)


def _written(system: System, listing: Listing, ring: Ring, streams: Streams) -> Listing:
    """At the end the module of the last copy is brought into another slot too, and runs; the host
    keeps what it wrote into the first slot, whose copy is old then, and it runs once more. So both
    copies read the block that the host writes."""
    copy = [one.operation for one in listing if isinstance(one.operation, Copy)][-1]
    held = Refill(copy.slot, copy.module)
    other = Refill((copy.slot - 1) % ring.slots, copy.module)
    again = system.program.lower_refills([other] if other != held else [], streams)
    kept = system.program.lower_write(held, streams)
    run = system.program.lower_run(held.slot, held.module, streams)
    once_more = (*system.program.lower_refills([held], streams), *run)
    return (
        *listing,
        *issued(again, RELOAD, 0),
        *issued(run, RUN, 0),
        *issued(kept, WRITE, 0),
        *issued(once_more, RELOAD, 1),
    )


def _captured(captured: CapturedProgram, eager: Program) -> Listing:
    """Capture; an eager pass; a replay; another eager pass; a replay."""
    passes = [one for one in eager.listing(1) if one.boundary.half != PRELOAD]
    replay = issued(captured.replay, REPLAY, 0)
    return (*captured.listing(0), *passes, *replay, *passes, *replay)


def rings(policies: Any, bound: int) -> Iterator[tuple[Policy, Ring]]:
    """Policies and rings, by N, then K."""
    for modules in range(1, bound + 1):
        yield from rings_of(policies, modules, bound)


def rings_of(policies: Any, modules: int, bound: int) -> Iterator[tuple[Policy, Ring]]:
    """Policies and the rings of so many modules, by K."""
    for slots in range(1, bound + 1):
        for policy in policies:
            if slots >= policy.least_slots:
                yield policy, Ring(modules, slots)


def programs(
    system: System, policy: Policy, ring: Ring, bounds: Bounds, seen: set[Any]
) -> Iterator[tuple[Case, bool]]:
    """Every lowering with every fault within the bounds, and whether the solver is asked too. What
    is in ``seen`` is left out, the same program of another policy or fault; the rest is put in."""
    size = max(ring.modules, ring.slots)
    for case in cases(system, policy, ring, bounds):
        for fault, change in FAULTY.items():
            few = case.plain and len(case.streams.copies) == 1 and fault != NO_JOIN
            looked_at = fault == AS_IT_IS or size <= (bounds.faults if few else bounds.small)
            listing = change(case.listing)
            if looked_at and (listing, case.streams) not in seen:
                seen.add((listing, case.streams))
                name = f"{case.name}, {fault}"
                faulty = replace(case, name=name, listing=listing, fault=fault)
                yield faulty, size <= bounds.solver
