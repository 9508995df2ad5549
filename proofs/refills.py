"""The claims about rules for refills, and about a period of several passes, for every N and K.

A rule for refills says what each boundary brings into each slot. Two things are shown of it, from
its own source, for one arbitrary slot and step:

- *next user*: whatever it brings, at any half of any boundary, is the slot's next user;
- *brought*: before each run some boundary of the same pass brings the run's module into its slot,
  and no run reads that slot in between. BROUGHT says which boundary that is.

Together they make every schedule of the rule safe for ever. Ownership: the next user replaces
nothing that the next run reads. Progress: the boundary that *brought* names lies between the last
run of another module and the run. Identity follows by claim 1; directly: behind that boundary the
slot holds the run's module, and what is brought until the run is, by *next user*, the same one.
Closure: *brought* stays within the pass, so no pass takes anything for granted (*own pass*), and
nothing need be preloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from proofs.integers import SymBool, SymInt, both, implies
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.sizes import any_slot, any_step, every_step
from proofs.slotfile import NextUserAt, OneSlot, SymbolicRing, any_ring, next_users
from proofs.symbolic import Run
from proofs.theorems import in_host_order
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary

Brought = Callable[[Any, Any], Boundary]
"""(step, ring) -> the boundary that brings the step's module into its slot."""


def brought_by_restart(i: Any, ring: Any) -> Boundary:
    return Boundary(ENTER, 0) if i < ring.slots else Boundary(AFTER, i - ring.slots)


def brought_by_one_ahead(i: Any, _: Any) -> Boundary:
    return Boundary(ENTER, 0) if i == 0 else Boundary(BEFORE, i - 1)


def brought_by_on_demand(i: Any, _: Any) -> Boundary:
    return Boundary(BEFORE, i)


BROUGHT: dict[str, Brought] = {
    "restart": brought_by_restart,
    "one_ahead": brought_by_one_ahead,
    "on_demand": brought_by_on_demand,
}


def any_boundary(run: Run, ring: SymbolicRing) -> Boundary:
    """A boundary of the pass; the witness names it by ``half``, its place in this table."""
    number, i = run.integer("half"), any_step(run, ring)
    start, end = run.number(0), ring.modules - 1
    places: Any = ((PRELOAD, start), (ENTER, start), (BEFORE, i), (AFTER, i), (LEAVE, end))
    run.assume(number >= 0, number < len(places))
    return next(Boundary(*at) for place, at in enumerate(places) if number == place)


def first_run(boundary: Boundary) -> Any:
    """The first step that runs after the boundary."""
    half, step = boundary
    return step + 1 if half in (AFTER, LEAVE) else step


def next_user(system: System, policy: Any) -> Callable[[Run], Goal]:
    """Every refill brings the slot's next user: it is owned, and makes the slot ready."""
    machine, verifier = system.machine, system.verifier

    def body(run: Run) -> Goal:
        ring = any_ring(run, policy.least_slots)
        s, boundary = any_slot(run, ring), any_boundary(run, ring)
        module = policy.refill(boundary, s, ring)
        if module is None:
            return True
        if isinstance(module, bool) or not isinstance(module, int | SymInt):
            return Failure(f"a refill that is a {type(module).__name__}")
        step = first_run(boundary)
        points = [boundary.step, module]
        (owner,) = next_users(run, ring, policy.slot_of, s, [step], points)
        holds, moving = OneSlot(run, s, run.integer("held")), OneSlot(run, s, EMPTY)
        state = machine.State(step, holds, moving, EMPTY)
        events = [machine.CopyBegins(s, module), machine.CopyLands(s)]
        after = in_host_order(system, state, events, NextUserAt(run, s, ((step, owner),)))
        if isinstance(after, machine.Objection):
            return Failure(after.property)
        if not verifier.refilled(False, module, owner):
            return Failure("progress")
        whole = both(run, after.holds.value == owner, after.moving.value == EMPTY)
        return both(run, whole, module >= 0, module < ring.modules)

    return body


def brought(policy: Any, by: Brought) -> Callable[[Run], Goal]:
    """The boundary brings step i's module into its slot, and no step j in between reads it."""

    def body(run: Run) -> Goal:
        ring = any_ring(run, policy.least_slots)
        i, j = any_step(run, ring), run.integer("j")
        run.assume(j >= 0, j < ring.modules)
        boundary, slot = by(i, ring), policy.slot_of(i, ring)
        module = policy.refill(boundary, slot, ring)
        if module is None:
            return Failure("nothing is brought")
        between = both(run, first_run(boundary) <= j, j < i)
        reads = policy.slot_of(j, ring) == slot
        return both(run, module == i, implies(run, both(run, between, reads), False))

    return body


def own_pass(policy: Any, by: Brought) -> Callable[[Run], Goal]:
    """The boundary belongs to the run's own pass, comes before the run, and fills its slot."""

    def body(run: Run) -> Goal:
        ring = any_ring(run, policy.least_slots)
        i = any_step(run, ring)
        boundary = by(i, ring)
        if (
            boundary.half == PRELOAD
            or policy.refill(boundary, policy.slot_of(i, ring), ring) is None
        ):
            return Failure("the pass does not fill the slot before the run")
        return both(run, boundary.step >= 0, first_run(boundary) <= i)

    return body


def refill_obligations(system: System, policy: Any) -> list[Obligation]:
    """That a named rule for refills is safe for ever."""
    name, least = policy.name, policy.least_slots
    half = 3 if name == "restart" else 2  # the refill at a step: after it, or before it
    goes_to = {"restart": 1, "one_ahead": 0, "on_demand": 1}[name]
    at = {"N": 5, "K": max(2, least), "i": 1, "s": goes_to, "half": half}
    return [
        Obligation(
            f"{name}: next user",
            "every refill at any boundary brings its slot's next user: ownership and progress",
            next_user(system, policy),
            at,
        ),
        Obligation(
            f"{name}: brought",
            "before each run its module is brought, and no run reads the slot in between",
            brought(policy, BROUGHT[name]),
            {"N": 5, "K": 2, "i": 3, "j": 2},
        ),
    ]


def own_pass_obligation(policy: Any) -> Obligation:
    """That a named rule for refills takes nothing for granted at a pass's start."""
    return Obligation(
        f"{policy.name}: own pass",
        "each slot is filled in the pass that reads it, before it does: nothing is granted",
        own_pass(policy, BROUGHT[policy.name]),
        {"N": 5, "K": 2, "i": 3},
    )


def rotation(system: System) -> Callable[[Run], Goal]:
    """K steps further the slot is the same; and N * K/g steps, g a divisor of N and K, are
    K * N/g. So at the end of a period of that many steps ``step % K`` goes on unbroken."""
    slot_of = system.arithmetic.cyclic_slot

    def body(run: Run) -> Goal:
        ring = any_ring(run)
        i = every_step(run, ring)
        n, k, g, m, p = (z3.Int(name) for name in "nkgmp")
        multiple = z3.Implies(z3.And(n == g * m, k == g * p), n * p == k * m)
        unbroken = slot_of(i + ring.slots, ring) == slot_of(i, ring)
        return both(run, unbroken, SymBool(run, multiple))

    return body
