"""Three engines on the same programs: clocks, interleavings, and a solver over real times.

They share the tasks that a program is written out to, and nothing else. Where all of them can
take a program they must find the same faults; where they differ the verdict is DISAGREE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from proofs.cases import EVERY_RUN, STREAMS, Case, cases, programs, rings_of
from proofs.faulty import AS_IT_IS
from proofs.hosted import issued
from proofs.obligation import System
from proofs.search import Search
from proofs.timing import overlaps
from schedule.explore import LIMIT, Explored, explore
from schedule.operations import Listing, Streams
from schedule.program import RELOAD, RESUME, WRITE
from schedule.properties import IDENTITY, MEANING, ORDERING
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Refill, Schedule
from schedule.tasks import Tasks

STATES = 1_000
"""Faulty programs may have very many interleavings; past this bound what was found is compared."""

Explorer = Callable[[Listing, Streams, int], Explored]


def remembering() -> Explorer:
    """``explore``, which remembers what it found in programs as they are: claims 9 and 11 look at
    the same ones."""
    whole = lru_cache(maxsize=None)(explore)
    return lambda *program: whole(*program) if program[2] == LIMIT else explore(*program)


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


def difference(
    system: System, case: Case, solver: bool, explorer: Explorer = explore
) -> str | None:
    """How the engines differ on this program, in words."""
    states = LIMIT if case.fault == AS_IT_IS else STATES
    return compare(system, case, solver, states, explorer)[0]


def compare(
    system: System, case: Case, solver: bool, states: int, explorer: Explorer = explore
) -> tuple[str | None, bool]:
    """How the engines differ, in words, and whether every interleaving was visited: up to so many
    states are, and then the clocks must have found what they show."""
    clocks = system.order.order(case.listing, case.streams)
    explored = explorer(case.listing, case.streams, states)
    asked = [clocks.faults, explored.faults, *([overlaps(explored.tasks)] if solver else [])]
    ours, theirs, *real = settled(*(normal(faults, explored.tasks) for faults in asked))
    differs = theirs != ours if explored.complete else not theirs <= ours
    others = [("interleavings", theirs)] * differs
    others += [("the solver", found) for found in real if found != ours]
    for engine, found in others:
        more, fewer = _named(found - ours), _named(ours - found)
        return f"{case.name}: clocks find {fewer} more, {engine} {more}", explored.complete
    return None, explored.complete


def _named(faults: frozenset[Any]) -> str:
    return ", ".join(sorted({f"{name} at task {at}" for name, at, _ in faults})) or "nothing"


def disagreement(system: System, modules: int, explorer: Explorer = explore) -> Search:
    """Claim 11, of rings of so many modules: the first program, by K, then policy, on which the
    engines differ."""
    seen: set[Any] = set()
    for policy, ring in rings_of(system.policy.NAMED.values(), modules, EVERY_RUN.rings):
        for program, solver in programs(system, policy, ring, EVERY_RUN, seen):
            found = difference(system, program, solver, explorer)
            if found:
                return Search(len(seen), found)
    return Search(len(seen))


def together(system: System, modules: int, explorer: Explorer = explore) -> Search:
    """Claim 9, of rings of so many modules: the first program whose interleavings are not as its
    schedule's verdict says: a safe schedule shows no fault in any of them, an unsafe one a wrong
    module in some. And the first whose parts, which are what the runtime executes, are not its
    listing's operations."""
    seen: set[Any] = set()
    for policy, ring in rings_of(system.policy.NAMED.values(), modules, EVERY_RUN.rings):
        schedule = policy(ring)
        verified = system.verifier.check(schedule).safe
        other = other_parts(system, schedule)
        if other:
            return Search(len(seen), f"N={ring.modules}, K={ring.slots}, {policy.name}, {other}")
        for case in cases(system, policy, ring):
            if (case.listing, case.streams) in seen:
                continue
            seen.add((case.listing, case.streams))
            explored = explorer(case.listing, case.streams, LIMIT)
            found = _as_verified(explored, verified or case.guarded)
            if found:
                return Search(len(seen), f"{case.name}: {found}")
    return Search(len(seen))


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
                if parts[half][step] != issued(operations, half, step):
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
