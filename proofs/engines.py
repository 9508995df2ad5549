"""Three engines on the same programs: clocks, interleavings, and a solver over real times.

They share the tasks that a program is written out to, and nothing else. Where all of them can
take a program they must find the same faults; where they differ the verdict is DISAGREE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from proofs.faulty import AS_IT_IS, FAULTY, NO_JOIN
from proofs.obligation import System
from proofs.timing import overlaps
from schedule.explore import Explored, explore
from schedule.operations import (
    COMPUTE,
    COPY,
    Copy,
    Issued,
    Listing,
    Operations,
    Streams,
)
from schedule.policy import Policy
from schedule.program import RELOAD, REPLAY, RESUME, WRITE, CapturedProgram, Program
from schedule.properties import IDENTITY, MEANING, ORDERING
from schedule.ring import Ring
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary, Refill, Schedule
from schedule.tasks import Tasks

BOUND = 8
FAULTS, MIDDLE, SMALL, TINY = 6, 4, 3, 2
"""Faulty programs are compared to 6x6, to save time. Two copy streams, and periods of several
passes, have many interleavings: to 4x4. Faulty programs on two copy streams, or with nothing
joined, have very many: to 3x3. So are faults where a module is skipped or a block written, which
are the same faults once more. The solver is asked about rings to 2x2."""
STREAMS = {
    "one copy stream": Streams(),
    "two copy streams": Streams((COPY, "copy 1")),
    "copies on the compute stream": Streams((COMPUTE,)),
}
STATES = 1_000
"""Faulty programs may have very many interleavings; past this bound what was found is compared."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program of a ring: which, and as listed. guarded: what is missed is reloaded, so that it
    is right for an unsafe schedule too. plain: nothing is skipped, and nothing written."""

    name: str
    listing: Listing
    streams: Streams
    guarded: bool = False
    plain: bool = True


def cases(system: System, policy: Policy, ring: Ring) -> Iterator[Case]:
    """Every lowering of the policy's schedule: preload and two periods, eagerly, with a module
    skipped, with the host writing a block, and captured, with eager passes between."""
    schedule, large = policy(ring), max(ring.modules, ring.slots) > MIDDLE
    for kind, streams in STREAMS.items():
        if large and (len(streams.copies) > 1 or schedule.period > 1):
            continue
        head = f"N={ring.modules}, K={ring.slots}, {policy.name}, {kind}"
        program = system.program.lower(schedule, streams)
        eager = program.listing(2)
        yield Case(head, eager, streams)
        written = _written(system, eager, ring, streams)
        yield Case(f"{head}, written", written, streams, plain=False)
        if schedule.period == 1:
            skipped = _skipped(system, schedule, streams)
            yield Case(f"{head}, skipped", skipped, streams, guarded=True, plain=False)
            captured = system.program.lower_captured(schedule, streams)
            graph = _captured(captured, program)
            yield Case(f"{head}, captured", graph, streams)
            written = _written(system, captured.listing(1), ring, streams)
            yield Case(f"{head}, captured, written", written, streams, plain=False)


def _issued(operations: Operations, half: str, step: int) -> Listing:
    return tuple(Issued(operation, Boundary(half, step)) for operation in operations)


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
        *_issued(again, RELOAD, 0),
        *_issued(run, RUN, 0),
        *_issued(kept, WRITE, 0),
        *_issued(once_more, RELOAD, 1),
    )


def _skipped(system: System, schedule: Schedule, streams: Streams) -> Listing:
    """Two passes without module 1; what is then missed is reloaded before it runs."""
    program = system.program.lower(schedule, streams)
    listing, holds = list(program.listing(0)), dict(schedule.preload)
    for number in range(2 * schedule.ring.modules):
        step = number % schedule.ring.modules
        slot = schedule.slot_of[step]
        if step == 1:
            continue
        if holds.get(slot) != step:
            reload = system.program.lower_refills([Refill(slot, step)], streams)
            listing += _issued(reload, RELOAD, number)
            holds[slot] = step
        listing += _issued(program.before[step] + program.begin[step], BEFORE, number)
        listing += _issued(program.after[step], AFTER, number)
        holds.update(schedule.before[step])
        holds.update(schedule.after[step])
    return tuple(listing)


def _captured(captured: CapturedProgram, eager: Program) -> Listing:
    """Capture; an eager pass; a replay; another eager pass; a replay."""
    passes = [issued for issued in eager.listing(1) if issued.boundary.half != PRELOAD]
    replay = _issued(captured.replay, REPLAY, 0)
    return (*captured.listing(0), *passes, *replay, *passes, *replay)


def rings(policies: Any, bound: int) -> Iterator[tuple[Policy, Ring]]:
    """Policies and rings, by N, then K."""
    for modules in range(1, bound + 1):
        for slots in range(1, bound + 1):
            for policy in policies:
                if slots >= policy.least_slots:
                    yield policy, Ring(modules, slots)


def normal(faults: Any, tasks: Tasks) -> frozenset[Any]:
    """Faults as every engine can give them: the clocks name the latest task of a stream that is
    not ordered, so an earlier task counts as its stream."""
    return frozenset(
        (
            fault.property,
            fault.later,
            fault.earlier if fault.earlier is None else tasks.tasks[fault.earlier].operation.stream,
        )
        for fault in faults
    )


def settled(*engines: frozenset[Any]) -> list[frozenset[Any]]:
    """What each engine found; where one of them found a hazard identity is a matter of luck, and
    left out of all."""
    hazard = any(name in ORDERING for found in engines for name, _, _ in found)
    return [
        frozenset(one for one in found if not (hazard and one[0] == IDENTITY)) for found in engines
    ]


def difference(system: System, case: Case, solver: bool) -> str | None:
    """How the engines differ on this program, in words."""
    clocks = system.order.order(case.listing, case.streams)
    explored = explore(case.listing, case.streams, STATES)
    asked = [clocks.faults, explored.faults, *([overlaps(explored.tasks)] if solver else [])]
    ours, theirs, *real = settled(*(normal(faults, explored.tasks) for faults in asked))
    if theirs != ours if explored.complete else not theirs <= ours:
        return f"{case.name}: clocks find {_named(ours - theirs)} more, interleavings " + (
            f"{_named(theirs - ours)}"
        )
    for found in real:
        if found != ours:
            return f"{case.name}: clocks find {_named(ours - found)} more, the solver " + (
                f"{_named(found - ours)}"
            )
    return None


def _named(faults: frozenset[Any]) -> str:
    return ", ".join(sorted({f"{name} at task {at}" for name, at, _ in faults})) or "nothing"


def disagreement(system: System) -> str | None:
    """The first program, by N, then K, then policy, on which the engines differ."""
    seen = set()
    for policy, ring in rings(system.policy.NAMED.values(), BOUND):
        size = max(ring.modules, ring.slots)
        small = size <= SMALL
        for case in cases(system, policy, ring):
            for fault, change in FAULTY.items():
                few = case.plain and len(case.streams.copies) == 1 and fault != NO_JOIN
                few = few and size <= FAULTS
                listing = change(case.listing)
                if (listing, case.streams) in seen or not (small or few or fault == AS_IT_IS):
                    continue  # the same program, of another policy or fault
                seen.add((listing, case.streams))
                faulty = replace(case, name=f"{case.name}, {fault}", listing=listing)
                found = difference(system, faulty, size <= TINY)
                if found:
                    return found
    return None


def together(system: System) -> str | None:
    """Claim 9: the first program whose interleavings are not as its schedule's verdict says: a
    safe schedule shows no fault in any of them, an unsafe one a wrong module in some. And the
    first whose parts, which are what the runtime executes, are not its listing's operations."""
    seen = set()
    for policy, ring in rings(system.policy.NAMED.values(), BOUND):
        schedule = policy(ring)
        verified = system.verifier.check(schedule).safe
        other = other_parts(system, schedule)
        if other:
            return f"N={ring.modules}, K={ring.slots}, {policy.name}, {other}"
        for case in cases(system, policy, ring):
            if (case.listing, case.streams) in seen:
                continue
            seen.add((case.listing, case.streams))
            explored = explore(case.listing, case.streams)
            found = _as_verified(explored, verified or case.guarded)
            if found:
                return f"{case.name}: {found}"
    return None


def other_parts(system: System, schedule: Schedule) -> str | None:
    """What the program gives the runtime by boundary, against the listing that is looked at here,
    and against the lowering of what is not in it: a reload, the wait to resume, a write."""
    modules = schedule.ring.modules
    for kind, streams in STREAMS.items():
        program = system.program.lower(schedule, streams)
        parts, listing = program.parts(), list(program.parts()[PRELOAD][0])
        for step, slot in enumerate(schedule.slot_of):
            number, module = divmod(step, modules)
            listing += parts[ENTER][number] if module == 0 else ()
            listing += parts[BEFORE][step] + parts[RUN][step] + parts[AFTER][step]
            listing += parts[LEAVE][number] if module == modules - 1 else ()
            held = Refill(slot, module)
            wanted = {
                RELOAD: system.program.lower_refill(held, streams),
                RESUME: system.program.lower_run(slot, module, streams)[:-1],
                WRITE: system.program.lower_write(held, streams),
            }
            for half, operations in wanted.items():
                if parts[half][step] != _issued(operations, half, step):
                    return f"{kind}: {half} {step}"
        if tuple(listing) != program.listing(1):
            return f"{kind}: the parts of a period"
    return None


class Unfinished(Exception):
    """A search met its bound: what it looks for is neither found nor excluded."""


def _as_verified(explored: Explored, verified: bool) -> str | None:
    names = sorted({fault.property for fault in explored.faults})
    if not explored.complete:
        raise Unfinished(f"more than {explored.states} states")
    if verified and names:
        return ", ".join(names)
    if verified:
        return None
    if IDENTITY not in names:
        return "an unsafe schedule, and no interleaving is wrong"
    return ", ".join(name for name in names if name not in (IDENTITY, MEANING)) or None


def refute(system: System, case: Case) -> dict[str, list[str]]:
    """By engine, the properties that it finds violated in this program. The solver is asked only
    where another engine found something."""
    clocks = system.order.order(case.listing, case.streams)
    explored = explore(case.listing, case.streams, STATES)
    found = {"clocks": frozenset(clocks.faults), "interleavings": explored.faults}
    if any(found.values()):
        found["solver"] = overlaps(explored.tasks)
    return {engine: sorted({f.property for f in faults}) for engine, faults in found.items()}
