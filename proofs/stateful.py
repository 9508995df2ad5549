"""A policy's schedule, driven through the machine event by event in any order that streams allow.

    class TestMine(policy_machine(my_policy).TestCase):
        settings = settings(max_examples=200)

The host issues a pass's refills and the modules' runs, the device does them when it likes: copies
one after another, each behind the runs that were issued before it; a run behind the copies into
its slot. Modules may come out of order; from then on the guard reloads what is missed. Beside the
machine a dict says what is in each slot, and what may happen to it; the two must agree on every
event, and nothing may be wrong: ownership and identity while the modules come in order, identity
and the hazards of timing whatever comes.
"""

from __future__ import annotations

# The reason why Hypothesis is missing is said before it is missed.
from proofs.needs_hypothesis import HYPOTHESIS  # isort: split

from collections import Counter, deque
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proofs.strategies.sizes import Rings, rings, strategy_of_rings
from schedule import machine
from schedule.arithmetic import Target
from schedule.guard import Copied, is_resident
from schedule.machine import (
    CopyBegins,
    CopyLands,
    Event,
    ModuleArrives,
    ModuleBegins,
    ModuleEnds,
    Objection,
)
from schedule.policy import Policy, guarded_policy, of_target
from schedule.properties import IDENTITY, OWNERSHIP, RAW, WAR, WAW
from schedule.ring import EMPTY
from schedule.table import Refill, Refills

EXAMPLES = settings(max_examples=300, stateful_step_count=60, deadline=None)
Step = TypeVar("Step", bound=Callable[..., None])
__all__ = ["HYPOTHESIS", "PolicyMachine", "policy_machine"]


def policy_machine(policy: Policy | Target, among: Rings | None = None) -> type[PolicyMachine]:
    """The state machine of a policy, of a class of its own: its ``TestCase`` runs it.

    policy: a function ``(index, slots, modules) -> target | None``, or a Policy.
    among: a strategy of rings, by default to 4x3, with slots enough for the policy. EXAMPLES are
    tried, enough to find the rule of vLLM before #54975 wrong with nearly every seed; give the
    TestCase other ``settings`` for other rings.
    PolicyError if it is no policy; ValueError if ``among`` is no strategy.
    """
    made = guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
    least = made.least_slots
    sizes = strategy_of_rings(among, rings(max_modules=4, min_slots=least, max_slots=max(3, least)))
    own = {"policy": made, "sizes": sizes, "ran": Counter(), "__module__": __name__}
    found: type[PolicyMachine] = type("PolicyMachine", (PolicyMachine,), own)
    setattr(found.TestCase, "settings", EXAMPLES)  # noqa: B010  # Hypothesis has no type for it
    return found


def counted(step: Step) -> Step:
    """Count how often a rule ran."""

    @wraps(step)
    def run(self: PolicyMachine, *arguments: Any, **named: Any) -> None:
        self.ran[step.__name__] += 1
        step(self, *arguments, **named)

    return run  # type: ignore[return-value]


class PolicyMachine(RuleBasedStateMachine):
    """Use ``policy_machine``. ran: by rule, how often it ran, over all examples of this class.

    state: the machine's.      slots: beside it, by slot, the module that is there, whole.
    moving: the copy that is under way.      running: the module that runs, and its slot.
    queue: copies that were issued, each with the number of runs that it is behind.
    issued: by slot, what was last copied there, as the guard knows.      begun: runs so far.
    at: the step that comes after the last run, if nothing arrives out of order.
    number, module: the pass, and the module that comes next; None between passes.
    arrived: the module that is to run, and does not yet.
    any_order: whether modules may come out of order.      in_order: whether none did so far.
    """

    policy: ClassVar[Policy]
    sizes: ClassVar[Rings]
    ran: ClassVar[Counter[str]]

    @initialize(data=st.data(), any_order=st.booleans())
    def preload(self, data: st.DataObject, any_order: bool) -> None:
        """The ring is chosen, and its preload issued. Half of the examples are all in order, so
        that they get far."""
        self.any_order = any_order
        self.schedule = self.policy(data.draw(self.sizes, label="ring"))
        self.users = self.schedule.users()
        self.state = machine.start(self.schedule.ring.slots)
        self.slots: dict[int, int] = {}
        self.moving: Refill | None = None
        self.running: Refill | None = None
        self.queue: deque[tuple[Refill, int]] = deque()
        self.issued: dict[int, Copied] = {}
        self.begun = self.number = self.at = 0
        self.module: int | None = None
        self.arrived: int | None = None
        self.in_order = True
        self.issue(self.schedule.preload)

    # ---- what the host does

    @precondition(lambda self: self.module is None)
    @rule()
    @counted
    def pass_begins(self) -> None:
        self.module = 0
        self.issue(self.schedule.enter[self.number])

    @precondition(lambda self: self.module == self.schedule.ring.modules and self.arrived is None)
    @rule()
    @counted
    def pass_ends(self) -> None:
        self.leave()

    @precondition(
        lambda self: (
            self.any_order
            and self.module not in (None, 0, self.schedule.ring.modules)
            and self.arrived is None
        )
    )
    @rule()
    @counted
    def pass_ends_early(self) -> None:
        self.in_order = False
        self.leave()

    @precondition(
        lambda self: self.module not in (None, self.schedule.ring.modules) and self.arrived is None
    )
    @rule()
    @counted
    def module_arrives(self) -> None:
        assert self.module is not None
        self.arrive(self.module)

    @precondition(lambda self: self.any_order and self.module is not None and self.arrived is None)
    @rule(module=st.integers(0, 99))
    @counted
    def module_arrives_out_of_order(self, module: int) -> None:
        module %= self.schedule.ring.modules
        self.in_order = self.in_order and module == self.module
        self.arrive(module)

    @precondition(lambda self: not self.in_order and self.misses())
    @rule()
    @counted
    def guard_reloads(self) -> None:
        assert self.arrived is not None
        self.issue((Refill(self.slot(self.arrived), self.arrived),))

    # ---- what the device does

    @precondition(lambda self: self.queue and not self.moving and self.queue[0][1] <= self.ended())
    @rule()
    @counted
    def copy_begins(self) -> None:
        copy, _ = self.queue.popleft()
        self.take(CopyBegins(*copy))
        self.moving = copy

    @precondition(lambda self: self.moving)
    @rule()
    @counted
    def copy_lands(self) -> None:
        assert self.moving is not None
        slot, module = self.moving
        self.moving = None
        self.take(CopyLands(slot))
        self.slots[slot] = module

    @precondition(lambda self: self.arrived is not None and self.may_begin())
    @rule()
    @counted
    def module_begins(self) -> None:
        assert self.arrived is not None
        module, step = self.arrived, self.step(self.arrived)
        own = Refill(self.slot(module), module)
        if not self.in_order:
            self.take(ModuleArrives(step))
        self.take(ModuleBegins(*own))
        self.running, self.arrived, self.begun = own, None, self.begun + 1
        self.module = module + 1
        self.at = self.at + 1 if self.in_order else step + 1
        self.issue(self.schedule.after[step])

    @precondition(lambda self: self.running)
    @rule()
    @counted
    def module_ends(self) -> None:
        assert self.running is not None
        self.take(ModuleEnds(self.running.slot))
        self.running = None

    # ---- what always holds

    @invariant()
    def the_machine_holds_what_the_dict_does(self) -> None:
        slots = range(self.schedule.ring.slots)
        assert [self.slots.get(slot, EMPTY) for slot in slots] == [*self.state.holds]
        moving = dict([self.moving] if self.moving else [])
        assert [moving.get(slot, EMPTY) for slot in slots] == [*self.state.moving]
        assert self.state.running == (self.running.slot if self.running else EMPTY)
        assert self.state.step == self.at

    @invariant()
    def what_runs_is_in_its_slot(self) -> None:
        if self.running:
            assert self.slots[self.running.slot] == self.running.module

    # ---- the host's and the device's parts

    def step(self, module: int) -> int:
        """The module's step in this pass of the period."""
        return self.number * self.schedule.ring.modules + module

    def slot(self, module: int) -> int:
        return self.schedule.slot_of[self.step(module)]

    def issue(self, refills: Refills) -> None:
        """Copies are behind every run so far."""
        for refill in refills:
            self.queue.append((refill, self.begun))
            self.issued[refill.slot] = Copied(refill.module, 0)

    def leave(self) -> None:
        self.issue(self.schedule.leave[self.number])
        self.number = (self.number + 1) % self.schedule.period
        self.module = None

    def arrive(self, module: int) -> None:
        self.arrived = module
        self.issue(self.schedule.before[self.step(module)])

    def misses(self) -> bool:
        """Whether the guard finds that the module that arrived will not be there."""
        if self.arrived is None:
            return False
        last = self.issued.get(self.slot(self.arrived), Copied())
        return not is_resident(last, self.arrived, 0)

    def may_begin(self) -> bool:
        """No other run, and the copies into its slot have landed; what is missed out of order is
        reloaded first. In order nothing is: there a miss is the policy's fault."""
        assert self.arrived is not None
        copies = [*(refill for refill, _ in self.queue), *([self.moving] if self.moving else [])]
        landed = all(copy.slot != self.slot(self.arrived) for copy in copies)
        return not self.running and landed and (self.in_order or not self.misses())

    def ended(self) -> int:
        """How many runs have ended."""
        return self.begun - (self.running is not None)

    # ---- the machine, and what the dict says of the same event

    def take(self, event: Event) -> None:
        """Both take the event, agree on it, and have nothing against it."""
        refused = machine.objection(self.state, event, self.next_user)
        assert refused == self.against(event), f"the machine says {refused} at {event}"
        where = f"pass {self.number} of {self.schedule.period}, {self.schedule.ring}"
        assert refused is None, f"{refused and refused.property}: {event}, {where}"
        self.state = machine.effect(self.state, event)

    def next_user(self, slot: int, step: int) -> int:
        """Ownership is of the schedule's order; out of it a slot has no next user."""
        return self.schedule.next_user(self.users, slot, step) if self.in_order else EMPTY

    def against(self, event: Event) -> Objection | None:
        """What the dict has against the event, by looking at the runs to come."""
        match event:
            case CopyBegins(slot, module):
                if self.running and self.running.slot == slot:
                    return Objection(WAR, slot)
                if self.moving and self.moving.slot == slot:
                    return Objection(WAW, slot)
                held = self.slots.get(slot)
                if held not in (None, module) and self.in_order and held == self.reads_next(slot):
                    return Objection(OWNERSHIP, slot)
            case ModuleBegins(slot, module):
                if self.moving and self.moving.slot == slot:
                    return Objection(RAW, slot)
                if self.slots.get(slot) != module:
                    return Objection(IDENTITY, slot)
        return None

    def reads_next(self, slot: int) -> int | None:
        """The module that runs from the slot next, in order: counted on from the runs so far."""
        steps = len(self.schedule.slot_of)
        for step in range(self.begun, self.begun + steps):
            if self.schedule.slot_of[step % steps] == slot:
                return step % self.schedule.ring.modules
        return None
