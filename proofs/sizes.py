"""The claims about policies, for every N and K: what a policy's own arithmetic must show.

For one arbitrary slot s and one arbitrary step of the period: if the slot held what its next run
reads before the step, it does after it, and neither the run nor the refill was objected to.
Beginning (the preload) and end (the next period) close the induction.

Where refills are derived, N stands for the steps of a period of any length, and the module of a
step is any number, the same one for the same step (``AnyModules``): so what is shown covers every
number of passes, and every order in which they run the modules. Where a rule gives targets, a
period is one pass, and step i runs module i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofs.integers import SymInt, both
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.slotfile import (
    AnyModules,
    AnySlotMap,
    NextUserAt,
    OneSlot,
    SlotOf,
    SymbolicRing,
    any_ring,
    next_users,
)
from proofs.symbolic import Run
from proofs.theorems import in_host_order

At = dict[str, int]
Condition = Callable[[Run, SymbolicRing], Any]
"""Restricts a claim to some rings; an assumption, or None."""

FIVE_TWO: At = {"N": 5, "K": 2, "i": 1, "s": 1}  # module 1 runs from slot 1; 3 is next in it


def any_slot(run: Run, ring: SymbolicRing) -> Any:
    s = run.integer("s")
    run.assume(s >= 0, s < ring.slots)
    return s


def any_step(run: Run, ring: SymbolicRing) -> Any:
    i = run.integer("i")
    run.assume(i >= 0, i < ring.modules)
    return i


def every_step(run: Run, _: SymbolicRing) -> Any:
    """A step of any pass, so that no number of passes need be known."""
    i = run.integer("i")
    run.assume(i >= 0)
    return i


def in_range(
    slot_of: SlotOf, least_slots: int, steps: Callable[[Run, SymbolicRing], Any] = any_step
) -> Callable[[Run], Goal]:
    """0 <= slot < K for every step: the map is one into the slots."""

    def body(run: Run) -> Goal:
        ring = any_ring(run, least_slots)
        slot = slot_of(steps(run, ring), ring)
        if isinstance(slot, bool) or not isinstance(slot, int | SymInt):
            return Failure(f"a slot that is a {type(slot).__name__}")
        return both(run, slot >= 0, slot < ring.slots)

    return body


def passes_in_range(passes: Any, least_slots: int) -> Callable[[Run], Goal]:
    """A period has at least one pass."""

    def body(run: Run) -> Goal:
        result = passes(any_ring(run, least_slots))
        if isinstance(result, bool) or not isinstance(result, int | SymInt):
            return Failure(f"a number of passes that is a {type(result).__name__}")
        return both(run, result >= 1)

    return body


def target_in_range(target: Any, where: Condition | None = None) -> Callable[[Run], Goal]:
    """The target is a module of the ring, or None."""

    def body(run: Run) -> Goal:
        ring = any_ring(run)
        if where is not None:
            run.assume(where(run, ring))
        result = target(any_step(run, ring), ring.slots, ring.modules)
        if result is None:
            return True
        if isinstance(result, bool) or not isinstance(result, int | SymInt):
            return Failure(f"a target that is a {type(result).__name__}")
        return both(run, result >= 0, result < ring.modules)

    return body


def itself(step: SymInt) -> SymInt:
    """The module of a step of a pass."""
    return step


def preload(system: System) -> Callable[[Run], Goal]:
    """Base: the preload of a slot's first user makes it ready for step 0."""
    machine, verifier = system.machine, system.verifier

    def body(run: Run) -> Goal:
        ring, slot_of = any_ring(run), AnySlotMap(run, [])
        s = any_slot(run, ring)
        (user,) = next_users(run, ring, slot_of, s, [run.number(0)], [])
        first = AnyModules(run, [])(user)
        nothing = OneSlot(run, s, EMPTY)
        state = machine.State(run.number(0), nothing, nothing, EMPTY)
        events = [machine.CopyBegins(s, first), machine.CopyLands(s)]
        asked = NextUserAt(run, s, ((run.number(0), first),))
        after = in_host_order(system, state, events, asked)
        if isinstance(after, machine.Objection):
            return Failure(after.property)
        if not verifier.refilled(False, first, first):
            return Failure("progress")
        return both(run, after.holds.value == first, after.moving.value == EMPTY)

    return body


def step(
    system: System,
    slot_of: SlotOf | None,
    target: Any | None,
    where: Condition | None = None,
) -> Callable[[Run], Goal]:
    """Step: run module i, then refill; slot s stays ready. slot_of None: any slot map; target
    None: derived refills."""
    machine, verifier, arithmetic = system.machine, system.verifier, system.arithmetic

    def body(run: Run) -> Goal:
        ring = any_ring(run)
        if where is not None:
            run.assume(where(run, ring))
        maps = slot_of or AnySlotMap(run, [])
        s, i = any_slot(run, ring), any_step(run, ring)
        slot_i = maps(i, ring)
        goal = target(i, ring.slots, ring.modules) if target else None
        steps = [i, s] if goal is None else [i, s, goal]
        users = next_users(run, ring, maps, s, [i, i + 1], steps)
        module_of = AnyModules(run, []) if target is None else itself
        module, owner, later = map(module_of, (i, *users))
        refill_slot = slot_i if goal is None else maps(goal, ring)
        if target is None:
            # Derived: the released slot gets its next user. If that slot is not s, the refill
            # is none of its business, so any module will do.
            goal = arithmetic.derived_target(module, later if slot_i == s else run.fresh("other"))
        holds, moving = OneSlot(run, s, owner), OneSlot(run, s, EMPTY)
        state = machine.State(i, holds, moving, EMPTY)
        asked = NextUserAt(run, s, ((i, owner), (i + 1, later)))
        events = [machine.ModuleBegins(slot_i, module), machine.ModuleEnds(slot_i)]
        state = in_host_order(system, state, events, asked)
        if isinstance(state, machine.Objection):
            return Failure(state.property) if slot_i == s else True
        ready = verifier.ran(True, module, later) if slot_i == s else True
        if goal is not None:
            events = [machine.CopyBegins(refill_slot, goal), machine.CopyLands(refill_slot)]
            state = in_host_order(system, state, events, asked)
            if isinstance(state, machine.Objection):
                # Another slot's objection is found where that slot is the arbitrary one.
                return Failure(state.property) if refill_slot == s else True
            if refill_slot == s:
                ready = verifier.refilled(ready, goal, later)
        if not ready:
            return Failure("progress")
        return both(run, state.holds.value == later, state.moving.value == EMPTY)

    return body


def closure() -> Callable[[Run], Goal]:
    """End: what the end of the period leaves ready is what its start took for granted: the next
    user at step N is the first user of the next period."""

    def body(run: Run) -> Goal:
        ring, maps = any_ring(run), AnySlotMap(run, [])
        s = any_slot(run, ring)
        first, last = next_users(run, ring, maps, s, [run.number(0), ring.modules], [])
        return both(run, last == first)

    return body


def scan(system: System) -> Callable[[Run], Goal]:
    """One step of the backward scan: the table holds each slot's next user before the step too,
    and the released slot's next user comes out."""

    def body(run: Run) -> Goal:
        ring, maps = any_ring(run), AnySlotMap(run, [])
        s, i = any_slot(run, ring), any_step(run, ring)
        slot_i = maps(i, ring)
        owner, later = next_users(run, ring, maps, s, [i, i + 1], [i])
        found, table = system.arithmetic.scan(OneSlot(run, s, later), slot_i, i)
        return both(
            run,
            table.value == owner,
            found == later if slot_i == s else True,
        )

    return body


def restored(system: System) -> Callable[[Run], Goal]:
    """End, for ``modular``, which is not ready at every step: for K < N the refill after module
    N-K+s is module s, the first user of slot s, and no later one of the pass goes to slot s."""
    target, slot_of = system.arithmetic.modular_target, system.arithmetic.cyclic_slot

    def body(run: Run) -> Goal:
        ring = any_ring(run)
        s, j = any_slot(run, ring), run.integer("j")
        n, k = ring.modules, ring.slots
        run.assume(k < n, j > n - k + s, j < n)
        brought = target(n - k + s, k, n)
        return both(
            run, brought == s, slot_of(brought, ring) == s, slot_of(target(j, k, n), ring) != s
        )

    return body


def policy_obligations(
    system: System, name: str, target: Any, where: Condition | None = None, at: At = FIVE_TWO
) -> list[Obligation]:
    """That a rule for targets over the slot map i % K is safe at the rings of ``where``."""
    slot_of = system.arithmetic.cyclic_slot
    return [
        Obligation(f"{name}: range", "targets are modules", target_in_range(target, where), at),
        Obligation(
            f"{name}: step",
            "a step keeps every slot ready: ownership and progress",
            step(system, slot_of, target, where),
            at,
        ),
    ]
