"""Claim 7: the guard makes every run right, in any order of modules.

From any state of the slots, copies under way included, for any module that arrives or resumes: what
the guard lets the host issue leads to a run that finds its own weights, as they are now (by the
machine), and that is ordered for every timing (by the clocks, from claim 5's invariant, which is
kept). So modules may be skipped, repeated, reversed or cut short. Executed are the guard's own
functions, the lowering and the two transition functions.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from proofs.integers import both, opposite
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.ordering import HERE, KINDS, AnyStreams, any_state, invariant, issue
from proofs.slotfile import NextUserAt, OneSlot
from proofs.symbolic import Run
from proofs.theorems import any_state as any_slots
from proofs.theorems import in_host_order
from schedule.operations import COMPUTE, ONE_COPY_STREAM, Copy, Issued, Write
from schedule.operations import Run as Reads
from schedule.program import RELOAD
from schedule.table import RUN, Boundary, Refill

GUARDS = {
    "arrives": "a module that arrives, in whatever order, finds its own weights as they are now",
    "resumes": "so does one inside whose run others ran, when it resumes",
}


def halves(system: System, name: str, resident: bool) -> tuple[str, ...]:
    """What the guard lets the host issue."""
    guard = system.guard
    found: tuple[str, ...] = (guard.arrives if name == "arrives" else guard.resumes)(resident)
    return found


def resident(system: System) -> Any:
    """Resident is exactly what was copied last and has not changed since."""

    def body(run: Run) -> Goal:
        held, version, m, now = (run.integer(name) for name in ("held", "version", "m", "now"))
        there = both(run, held == m, version == now)
        if system.guard.is_resident(system.guard.Copied(held, version), m, now):
            return there
        return opposite(run, there)

    return body


def by_the_machine(system: System, name: str) -> Any:
    """In host order: whatever was copied last, maybe still under way, lands before the run."""
    machine, guard = system.machine, system.guard

    def body(run: Run) -> Goal:
        state = any_slots(run, system)
        s, m, version, now = (run.integer(name) for name in ("s", "m", "version", "now"))
        run.assume(m >= 0, state.running == EMPTY)
        under_way = bool(state.moving.value != EMPTY)
        last = state.moving.value if under_way else state.holds.value
        events = [machine.ModuleArrives(m)]
        events += [machine.CopyLands(s)] if under_way else []
        for half in halves(system, name, guard.is_resident(guard.Copied(last, version), m, now)):
            if half == RELOAD:
                events += [machine.CopyBegins(s, m), machine.CopyLands(s)]
                version = now
        if version != now:
            return Failure("an older version")
        events += [machine.ModuleBegins(s, m), machine.ModuleEnds(s)]
        after = in_host_order(system, state, events, NextUserAt(run, s, ((m, m), (m + 1, m))))
        return Failure(after.property) if isinstance(after, machine.Objection) else True

    return body


def operations(system: System, found: tuple[str, ...], held: Any, streams: Any) -> Any:
    """What the host issues for these halves; then the module reads its slot, whatever they are."""
    slot, module = held
    run = system.program.lower_run(slot, module, streams)
    for half in found:
        yield from system.program.lower_refill(held, streams) if half == RELOAD else run[:-1]
    yield Reads(COMPUTE, slot, module)


def by_the_clocks(system: System, streams: AnyStreams, name: str) -> Any:
    """For every timing; nothing is assumed of what the slot holds."""
    guard = system.guard

    def body(run: Run) -> Goal:
        s, m, version, now = (run.integer(name) for name in ("s", "m", "version", "now"))
        run.assume(m >= 0)
        state = any_state(run, system, streams)._replace(
            version=OneSlot(run, s, version), written=OneSlot(run, m, now)
        )
        last = guard.Copied(state.content.value, version)
        found = halves(system, name, guard.is_resident(last, m, now))
        held: Any = (s, m)
        listing = operations(system, found, Refill(*held), streams)
        state, conflicts = issue(system, state, listing)
        if conflicts:
            return Failure(conflicts[0].property)
        return invariant(run, streams, state)

    return body


def guard_claim(system: System) -> list[Obligation]:
    """Claim 7: what is resident, and what that leads to, by the machine and by the clocks."""
    values = {"held": 1, "version": 0, "m": 1, "now": 0}
    slots = {**values, "s": 0, "holds": 2, "moving": 1, "running": EMPTY}
    text = "resident is what was copied last and has not changed since"
    found = [Obligation("resident", text, resident(system), values)]
    found += [
        Obligation(name, GUARDS[name], by_the_machine(system, name), slots) for name in GUARDS
    ]
    clocks = {**HERE, "version": 0, "now": 1}
    found += [
        Obligation(f"{name}, {kind}", text, by_the_clocks(system, streams, name), clocks)
        for kind, streams in KINDS.items()
        for name, text in GUARDS.items()
    ]
    return found


# ---- the smallest order of modules that goes wrong


def wrong_order(system: System) -> str:
    """The shortest sequence of arrivals, of modules resuming, of refills by a schedule and of
    writes by the host, over one slot, after which the clocks find a fault. Each write is fenced."""
    events = [(kind, m) for kind in ("refilled", "written", "arrives", "resumes") for m in (0, 1)]
    for length in range(1, 4):
        for sequence in product(events, repeat=length):
            if _wrong(system, sequence):
                return ", ".join(f"{kind} {module}" for kind, module in sequence)
    return "none"


def _wrong(system: System, sequence: tuple[tuple[str, int], ...]) -> bool:
    guard, program = system.guard, system.program
    last, written = guard.Copied(), {0: 0, 1: 0}
    listing: list[Issued] = []
    issued: Any
    for kind, module in sequence:
        held = Refill(0, module)
        if kind == "refilled":
            issued = program.lower_refill(held)
        elif kind == "written":
            issued = (*program.lower_write(held)[:2], Write(module))
        else:
            found = halves(system, kind, guard.is_resident(last, module, written[module]))
            issued = tuple(operations(system, found, held, ONE_COPY_STREAM))
        if any(isinstance(one, Copy) for one in issued):
            last = guard.Copied(module, written[module])
        written[module] += kind == "written"
        listing += [Issued(one, Boundary(RUN, 0)) for one in issued]
    return not system.order.order(tuple(listing)).safe
