"""The claims about vLLM's two rules: where exactly the old one fails, and what the new one is."""

from __future__ import annotations

from typing import Any

from proofs.integers import both, opposite
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.sizes import FIVE_TWO, any_step, policy_obligations
from proofs.slotfile import NextUserAt, OneSlot, SymbolicRing, any_ring, next_users
from proofs.symbolic import Run

FOUR_TWO = {"N": 4, "K": 2, "i": 1, "s": 1}


def fails(run: Run, ring: SymbolicRing) -> Any:
    """The failure set of the old rule: 1 < K < N, and K does not divide N."""
    n, k = ring.modules, ring.slots
    return both(run, k > 1, k < n, n % k != 0)


def failure_claim(system: System) -> list[Obligation]:
    """Claim 3: ``modular`` is safe outside its failure set, and violated everywhere in it, in the
    very first pass: the refill after module N-K is module 0, and the victim is N - N % K."""
    machine, arithmetic = system.machine, system.arithmetic
    target, slot_of = arithmetic.modular_target, arithmetic.cyclic_slot

    def ring_in_set(run: Run) -> tuple[SymbolicRing, Any]:
        """A ring of the failure set, and its victim."""
        ring = any_ring(run)
        run.assume(fails(run, ring))
        return ring, ring.modules - ring.modules % ring.slots

    def replaced(run: Run) -> Goal:
        ring, victim = ring_in_set(run)
        last = ring.modules - ring.slots  # until then no target wrapped: see "first steps"
        zero = run.number(0)
        now, later = next_users(run, ring, slot_of, zero, [last, last + 1], [last, victim])
        refill = target(last, ring.slots, ring.modules)
        held, moving = OneSlot(run, zero, now), OneSlot(run, zero, EMPTY)
        state = machine.State(last + 1, held, moving, EMPTY)
        begins = machine.CopyBegins(slot_of(refill, ring), refill)
        result = machine.transition(state, begins, NextUserAt(run, zero, ((last + 1, later),)))
        if not isinstance(result, machine.Objection):
            return Failure("no objection to the refill that replaces the victim")
        named = both(run, refill == 0, result.slot == 0, now == victim, later == victim)
        return both(run, named, result.property == machine.OWNERSHIP)

    def not_restored(run: Run) -> Goal:
        ring, victim = ring_in_set(run)
        j = run.integer("j")
        run.assume(j > ring.modules - ring.slots, j < victim)
        return both(run, slot_of(target(j, ring.slots, ring.modules), ring) != 0)

    def read(run: Run) -> Goal:
        ring, victim = ring_in_set(run)
        zero = run.number(0)
        held, moving = OneSlot(run, zero, run.number(0)), OneSlot(run, zero, EMPTY)
        state = machine.State(victim, held, moving, EMPTY)
        begins = machine.ModuleBegins(slot_of(victim, ring), victim)
        result = machine.transition(state, begins, NextUserAt(run, zero, ()))
        if not isinstance(result, machine.Objection):
            return Failure("no objection to the run that reads another module's weights")
        return both(run, result.slot == 0, result.property == machine.IDENTITY)

    def outside(run: Run, ring: SymbolicRing) -> Any:
        return opposite(run, fails(run, ring))

    def first_steps(run: Run, ring: SymbolicRing) -> Any:
        return both(run, fails(run, ring), run.integer("i") + ring.slots < ring.modules)

    return [
        *policy_obligations(system, "outside the set", target, outside, FOUR_TWO),
        *policy_obligations(system, "first steps", target, first_steps, FIVE_TWO),
        Obligation(
            "replaced",
            "in the set, the refill after N-K is module 0, into slot 0, which holds N - N % K",
            replaced,
            {"N": 5, "K": 2},
        ),
        Obligation(
            "not restored",
            "and no refill before the victim's run goes to slot 0",
            not_restored,
            {"N": 7, "K": 5, "j": 4},
        ),
        Obligation("read", "so the victim's run reads module 0", read, {"N": 5, "K": 2}),
    ]


def equivalence_claim(system: System) -> list[Obligation]:
    """Claim 4: what ``slot_local`` is in closed form, and what ``chain`` leaves out of it."""
    arithmetic = system.arithmetic
    slot_of = arithmetic.cyclic_slot

    def closed_form(run: Run) -> Goal:
        ring = any_ring(run)
        i, n, k = any_step(run, ring), ring.modules, ring.slots
        run.assume(k < n)
        expected = i + k if i + k < n else i % k
        return both(run, arithmetic.slot_local_target(i, k, n) == expected)

    def less_copies(run: Run) -> Goal:
        ring = any_ring(run)
        i = any_step(run, ring)
        target = arithmetic.slot_local_target(i, ring.slots, ring.modules)
        mine, its = slot_of(i, ring), slot_of(target, ring)
        (later,) = next_users(run, ring, slot_of, mine, [i + 1], [i, target, mine])
        (there,) = next_users(run, ring, slot_of, its, [i + 1], [i, target, its])
        # What the target's slot holds after module i ran: the module itself, or what is ready.
        held = i if mine == its else there
        derived = arithmetic.derived_target(i, later)
        if derived is None:
            return both(run, held == target)
        return both(run, derived == target, held != target)

    return [
        Obligation(
            "closed form",
            "for K < N slot_local is i + K if i + K < N else i % K",
            closed_form,
            FIVE_TWO,
        ),
        Obligation(
            "chain",
            "chain is slot_local without the refills of a module that its slot already holds",
            less_copies,
            FIVE_TWO,
        ),
    ]
