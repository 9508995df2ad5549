"""The claims about the machine, and that ownership and progress imply identity.

Claim numbers are those of ARCHITECTURE.md. Every obligation executes the functions of
``schedule`` themselves; what is written here is only the properties, in words of the model.
"""

from __future__ import annotations

from typing import Any

import z3

from proofs.integers import SymBool, SymInt, both, implies, opposite
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.slotfile import NextUserAt, OneSlot
from proofs.symbolic import PRODUCT_LEMMA, Run

AT_SLOT_0 = {"s": 0, "t": 0, "holds": 1, "moving": EMPTY, "running": EMPTY, "next": 1, "m": 1}


def any_state(run: Run, system: System) -> Any:
    """An arbitrary state, seen at one arbitrary slot s."""
    s = run.integer("s")
    run.assume(s >= 0)
    holds, moving = (OneSlot(run, s, run.integer(name)) for name in ("holds", "moving"))
    return system.machine.State(run.integer("step"), holds, moving, run.integer("running"))


def product_lemma(run: Run) -> Goal:
    """The one statement about products that every proof here rests on, with true products."""
    f, k, x, y = (z3.Int(name) for name in "fkxy")
    premise = z3.And(f >= 0, x >= y + k)
    return SymBool(run, z3.Implies(premise, f * x >= f * y + k * f))


def machine_claim(system: System) -> list[Obligation]:
    """Claim 0: what the machine allows is what the properties allow, no more and no less."""
    machine = system.machine

    def guard(event: str, allowed: bool) -> Any:
        def body(run: Run) -> Goal:
            state, s, m = any_state(run, system), run.integer("s"), run.integer("m")
            holds, moving, owner = state.holds.value, state.moving.value, run.integer("next")
            run.assume(m >= 0)
            overwrites = both(run, holds != EMPTY, holds == owner, m != holds)
            forbidden = {
                "CopyBegins": {
                    "WAR": state.running == s,
                    "WAW": moving != EMPTY,
                    "ownership": overwrites,
                },
                "ModuleBegins": {"RAW": moving != EMPTY, "identity": holds != m},
            }[event]
            asked = NextUserAt(run, run.integer("s"), ((state.step, owner),))
            result = machine.transition(state, getattr(machine, event)(s, m), asked)
            if isinstance(result, machine.Objection):
                return allowed or both(run, forbidden[result.property], result.slot == s)
            if not allowed:
                return True
            return both(run, *(opposite(run, wrong) for wrong in forbidden.values()))

        return body

    def elsewhere(event: str) -> Any:
        def body(run: Run) -> Goal:
            state, t = any_state(run, system), run.integer("t")
            run.assume(t != run.integer("s"))
            arguments = (t,) if event in ("CopyLands", "ModuleEnds") else (t, run.integer("m"))
            after = machine.effect(state, getattr(machine, event)(*arguments))
            return both(
                run,
                after.holds.value == state.holds.value,
                after.moving.value == state.moving.value,
            )

        return body

    names = ("CopyBegins", "ModuleBegins")
    obligations = [
        Obligation(f"{n} allowed", f"an allowed {n} violates nothing", guard(n, True), AT_SLOT_0)
        for n in names
    ]
    obligations += [
        Obligation(
            f"{n} objected",
            f"an objection to {n} names a property that it violates",
            guard(n, False),
            {**AT_SLOT_0, "holds": 2, "next": 2},
        )
        for n in names
    ]
    obligations += [
        Obligation(
            f"{n} elsewhere",
            f"{n} in another slot changes nothing in this one",
            elsewhere(n),
            {**AT_SLOT_0, "t": 1},
        )
        for n in (*names, "CopyLands", "ModuleEnds")
    ]
    obligations.append(
        Obligation("effects", "each event has its effect", _effects(system), AT_SLOT_0)
    )
    return obligations


def _effects(system: System) -> Any:
    machine = system.machine

    def body(run: Run) -> Goal:
        state, s, m = any_state(run, system), run.integer("s"), run.integer("m")
        begun = machine.effect(state, machine.CopyBegins(s, m))
        landed = machine.effect(begun, machine.CopyLands(s))
        runs = machine.effect(landed, machine.ModuleBegins(s, m))
        ended = machine.effect(runs, machine.ModuleEnds(s))
        arrived = machine.effect(ended, machine.ModuleArrives(m))
        return both(
            run,
            begun.moving.value == m,  # under way, the old module still there
            begun.holds.value == state.holds.value,
            landed.holds.value == m,
            landed.moving.value == EMPTY,
            landed.running == state.running,
            landed.step == state.step,
            runs.running == s,
            runs.step == state.step + 1,
            runs.holds.value == m,
            ended.running == EMPTY,
            ended.step == runs.step,
            ended.holds.value == m,
            ended.moving.value == EMPTY,
            arrived.step == m,
            arrived.holds.value == m,
            arrived.moving.value == EMPTY,
            arrived.running == EMPTY,
        )

    return body


def in_host_order(system: System, state: Any, events: list[Any], owner: Any) -> Any:
    """The state after the events, or the first objection."""
    for event in events:
        state = system.machine.transition(state, event, owner)
        if isinstance(state, system.machine.Objection):
            return state
    return state


def soundness_claim(system: System) -> list[Obligation]:
    """Claim 1, an induction over events, for an arbitrary slot s.

    ``ready`` is the local bookkeeping of progress (``verifier.refilled``, ``verifier.ran``). The
    invariant: if ready, the slot holds the module that its next run reads, whole. Base: nothing
    ran. Step: any refill, any run, in this slot or another. Use: progress says that a slot is
    ready when its run begins, so the run reads its own weights.
    """
    machine, verifier = system.machine, system.verifier
    here = {**AT_SLOT_0, "ready": 1, "owner": 1, "later": 2, "p": 1}
    other = {**here, "t": 1, "m": 3, "p": 3, "later": 1}

    def invariant(run: Run, ready: bool, state: Any, owner: SymInt) -> SymBool:
        whole = both(run, state.moving.value == EMPTY, state.running == EMPTY)
        return both(run, whole, implies(run, ready, state.holds.value == owner))

    def base(run: Run) -> Goal:
        states = [machine.start(slots) for slots in range(1, 9)]
        tables = [table for state in states for table in (state.holds, state.moving)]
        empty = all(value == EMPTY for table in tables for value in table)
        return both(run, empty, *(state.running == EMPTY and state.step == 0 for state in states))

    def before(run: Run) -> tuple[Any, bool, SymInt]:
        """Any state at step p, with ``owner`` the next user of s, for which the invariant holds."""
        state, owner = any_state(run, system), run.integer("owner")
        ready = bool(run.integer("ready") == 1)
        run.assume(owner >= 0, invariant(run, ready, state, owner))
        return state, ready, owner

    def refill(here: bool) -> Any:
        def body(run: Run) -> Goal:
            state, ready, owner = before(run)
            s, t, m = run.integer("s"), run.integer("t"), run.integer("m")
            run.assume(m >= 0, t == s if here else t != s)
            events = [machine.CopyBegins(t, m), machine.CopyLands(t)]
            asked = NextUserAt(run, run.integer("s"), ((state.step, owner),))
            after = in_host_order(system, state, events, asked)
            if isinstance(after, machine.Objection):
                # Ownership is assumed of every refill; nothing else may object in this slot.
                return after.property == machine.OWNERSHIP or not here
            return invariant(
                run, verifier.refilled(ready, m, owner) if here else ready, after, owner
            )

        return body

    def runs(here: bool) -> Any:
        def body(run: Run) -> Goal:
            state, ready, owner = before(run)
            s, t, p, later = (run.integer(name) for name in ("s", "t", "p", "later"))
            # The next user, unfolded at step p: p's module if it runs from s, else a later one.
            run.assume(p >= 0, later >= 0, t == s if here else t != s)
            run.assume(owner == (p if here else later))
            if here and not ready:
                return True  # progress is assumed: a slot is ready when its run begins
            events = [machine.ModuleBegins(t, p), machine.ModuleEnds(t)]
            asked = NextUserAt(run, run.integer("s"), ((state.step + 1, later),))
            after = in_host_order(system, state, events, asked)
            if isinstance(after, machine.Objection):
                return not here
            return invariant(run, verifier.ran(ready, p, later) if here else ready, after, later)

        return body

    def use(run: Run) -> Goal:
        state, ready, owner = before(run)
        s = run.integer("s")
        run.assume(ready)
        asked = NextUserAt(run, run.integer("s"), ((state.step, owner),))
        after = machine.transition(state, machine.ModuleBegins(s, owner), asked)
        return Failure(after.property) if isinstance(after, machine.Objection) else True

    lemma = {"f": 3, "k": 1, "x": 5, "y": 2}
    return [
        Obligation("product lemma", PRODUCT_LEMMA, product_lemma, lemma),
        Obligation(
            "base", "before the first event all slots are empty, of rings up to K = 8", base, {}
        ),
        Obligation("refill here", "a refill of this slot keeps it", refill(True), here),
        Obligation("refill elsewhere", "a refill of another slot keeps it", refill(False), other),
        Obligation("run here", "a run from this slot keeps it", runs(True), here),
        Obligation("run elsewhere", "a run from another slot keeps it", runs(False), other),
        Obligation("use", "a run from a ready slot reads its own weights", use, here),
    ]
