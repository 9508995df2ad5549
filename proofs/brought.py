"""That a rule is safe though its slots are not ready at every step: each module is brought in time.

Two statements, for one arbitrary slot and step, which together make every schedule of a rule safe
for ever (``refills`` says why): *next user*, whatever a boundary brings into a slot is the slot's
next user; and *brought*, before each run some boundary brings something into its slot, with no run
from that slot in between: by the first statement that is the run's module. Which boundary it is
need not be known: those near the run, and near the slot's run before, are tried. That is enough for
rules that look a few steps ahead; one that brings a module elsewhere is not proved here, whether
right or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proofs.integers import SymInt, both
from proofs.obligation import Failure, Goal
from proofs.refills import any_boundary, first_run
from proofs.sizes import any_slot, any_step
from proofs.slotfile import SlotOf, SymbolicRing, any_ring
from proofs.symbolic import Run
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary

NEAR = 2
"""How many steps from the run, and from the slot's previous run, the boundaries may be that are
tried: each more is another decision on every path."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for refills, as its policy has it or made of one for targets. preloads: the preload
    is the slots' first users, whatever the rule says."""

    slot_of: SlotOf
    refill: Callable[[Boundary, Any, Any], Any]
    least_slots: int
    preloads: bool


def of_target(slot_of: SlotOf, target: Callable[..., Any], least_slots: int) -> Rule:
    """A rule for targets: after step i the target, into the target's own slot."""

    def refill(boundary: Boundary, slot: Any, ring: SymbolicRing) -> Any:
        if boundary.half != AFTER:
            return None
        module = target(boundary.step, ring.slots, ring.modules)
        return None if module is None or slot_of(module, ring) != slot else module

    return Rule(slot_of, refill, least_slots, True)


def refill_in_range(refill: Any, least_slots: int) -> Callable[[Run], Goal]:
    """What is brought is a module of the ring, or None."""

    def body(run: Run) -> Goal:
        ring = any_ring(run, least_slots)
        module = refill(any_boundary(run, ring), any_slot(run, ring), ring)
        if module is None:
            return True
        if isinstance(module, bool) or not isinstance(module, int | SymInt):
            return Failure(f"a refill that is a {type(module).__name__}")
        return both(run, module >= 0, module < ring.modules)

    return body


def brought_somewhere(rule: Rule) -> Callable[[Run], Goal]:
    """Before step i's run some boundary brings something into its slot, and no run from the slot
    is between. By *next user* what it brings is module i."""

    def body(run: Run) -> Goal:
        ring = any_ring(run, rule.least_slots)
        i = any_step(run, ring)
        slot = rule.slot_of(i, ring)
        # The slot's last run before this one in the pass, -1 if there is none.
        previous = run.fresh("previous")
        run.assume(previous >= -1, previous < i)
        if previous >= 0:
            run.assume(rule.slot_of(previous, ring) == slot)

        def brings(boundary: Boundary) -> bool:
            return rule.refill(boundary, slot, ring) is not None

        if any(brings(boundary) for boundary in near(previous, i, ring)):
            return True
        if previous >= 0:
            return Failure("nothing brings it behind the slot's run before")
        if brings(Boundary(ENTER, 0)):
            return True
        if not (rule.preloads or brings(Boundary(PRELOAD, 0))):
            return Failure("nothing brings it in the first pass")
        last = run.fresh("last")  # the slot's last run in a pass
        run.assume(last >= i, last < ring.modules, rule.slot_of(last, ring) == slot)
        if last == i:
            return True  # the slot's only one: it holds the module since the pass before
        end: Any = ring.modules - 1
        if brings(Boundary(LEAVE, end)):
            return True
        found = any(brings(boundary) for boundary in near(last, i + ring.modules, ring))
        return True if found else Failure("nothing brings it in later passes")

    return body


def near(after: Any, step: Any, ring: SymbolicRing) -> Iterator[Boundary]:
    """The boundaries of the pass that are tried behind the run ``after`` and before ``step``."""
    yield from _within(after, step, ring, Boundary(AFTER, after), Boundary(BEFORE, step))
    for steps in range(1, NEAR + 1):
        for at in (step - steps, after + steps):
            yield from _within(after, step, ring, Boundary(AFTER, at), Boundary(BEFORE, at))


def _within(after: Any, step: Any, ring: Any, *found: Boundary) -> Iterator[Boundary]:
    for boundary in found:
        in_pass = boundary.step >= 0 and boundary.step < ring.modules
        if in_pass and first_run(boundary) > after and first_run(boundary) <= step:
            yield boundary
