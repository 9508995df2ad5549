"""Policies: what a rule says, worked out for one ring as tables; and the named policies.

A policy is a slot map and a period, and its refills in one of three forms. *Derived*: after a
module ran, its slot is refilled with the slot's next user, and not at all if that is the same
module; safe for every slot map. A rule for *targets*: the module refilled after each module. A
rule for *refills*: asked for every slot at every boundary.

The functions themselves are in ``arithmetic``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedule.arithmetic import (
    Passes,
    RefillRule,
    SlotMap,
    Target,
    alternating_slot,
    balanced_slot,
    cyclic_slot,
    derived_target,
    double_buffer_slot,
    every_pass,
    first_users,
    in_order_of_use,
    modular_target,
    next_users,
    on_demand_refill,
    one_ahead_refill,
    restart_refill,
    rotating_passes,
    single_buffer_slot,
    slot_local_target,
)
from schedule.errors import PolicyError
from schedule.ring import EMPTY, LARGEST, Ring, Slots, inside
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary, Refill, Refills, Schedule
from schedule.users import bare, call_text, guarded, name_of, require_target, shown


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule for every ring; call it with a ring to get that ring's schedule.

    name:   as on the command line.
    slot_of: the slot map, over the steps of a period.
    target: the module refilled after each module, into the target's own slot.
    origin: where the rule comes from.
    least_slots: the smallest number of slots for which the rule makes sense.
    refill: the module refilled into each slot at each boundary.
    passes: how many passes a period has.
    Without target and refill, refills are derived. PolicyError for both of them, and for a
    target over several passes, in each of which it may have another slot of its own.
    """

    name: str
    slot_of: SlotMap
    target: Target | None = None
    origin: str = "a user's function"
    least_slots: int = 1
    refill: RefillRule | None = None
    passes: Passes = every_pass

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise PolicyError(
                f"the name {self.name!a} of a policy must be a text that can be printed"
            )
        for name in ("slot_of", "passes", "target", "refill"):
            function = getattr(self, name)
            if not callable(function) and not (function is None and name in ("target", "refill")):
                raise PolicyError(
                    f"policy {self.name}: {name} is {shown(function)}; give a function"
                )
        if type(self.least_slots) is not int or self.least_slots < 1:
            raise PolicyError(
                f"policy {self.name}: least_slots is {shown(self.least_slots)}; "
                f"give an integer, at least 1"
            )
        if self.target is not None and self.refill is not None:
            raise PolicyError(
                f"policy {self.name} has both target and refill; give one of them, "
                f"or neither, and its refills are derived"
            )
        if self.target is not None and bare(self.passes) is not every_pass:
            raise PolicyError(
                f"policy {self.name} has a target and a period of its own, but over several "
                f"passes a target has several slots; give refill instead, or neither"
            )

    def __call__(self, ring: Ring) -> Schedule:
        """The schedule for this ring. PolicyError if the rule does not apply or misbehaves."""
        if ring.slots < self.least_slots:
            raise PolicyError(
                f"policy {self.name} needs at least {self.least_slots} slots, got {ring.slots}; "
                f"give more slots or choose single_buffer"
            )
        slot_of = self._slots(ring)
        if self.refill is not None:
            return self._refilled(self.refill, slot_of, ring)
        first = first_users(slot_of, ring.slots)
        if self.target is None:
            after = derived_refills(slot_of, first, ring.modules)
        else:
            after = tuple(
                self._after(self.target, slot_of, step, ring) for step in range(ring.modules)
            )
        return after_runs(self.name, ring, slot_of, preload(first, ring.modules), after)

    def steps(self, ring: Ring) -> int:
        """How many steps the period has in this ring."""
        passes = _plain(self.passes(ring))
        if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
            raise PolicyError(
                f"policy {self.name} gives a period of {shown(passes)} passes in {ring}; "
                f"passes is an integer, at least 1"
            )
        if passes * ring.modules > LARGEST:
            raise PolicyError(
                f"policy {self.name} gives a period of {passes} passes in {ring}; "
                f"a period has at most {LARGEST} steps: choose other sizes"
            )
        return passes * ring.modules

    def _slots(self, ring: Ring) -> tuple[int, ...]:
        slots = tuple(_plain(self.slot_of(step, ring)) for step in range(self.steps(ring)))
        for step, slot in enumerate(() if inside(slots, ring.slots) else slots):
            if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < ring.slots:
                raise PolicyError(
                    f"policy {self.name} gives step {step} the slot {shown(slot)} in {ring}; "
                    f"slots are the integers 0 .. {ring.slots - 1}"
                )
        return slots

    def _after(self, target: Target, slot_of: Sequence[int], step: int, ring: Ring) -> Refills:
        """What a rule for targets refills after a step."""
        module = target(step, ring.slots, ring.modules)
        if module is None:
            return ()
        module = self._check(module, ring, index=step, slots=ring.slots, modules=ring.modules)
        return (Refill(slot_of[module], module),)

    def _refilled(self, rule: RefillRule, slot_of: Sequence[int], ring: Ring) -> Schedule:
        """The schedule of a rule for refills."""

        def at(half: str, steps: Iterable[int]) -> tuple[Refills, ...]:
            return tuple(tuple(self._at(rule, Boundary(half, step), ring)) for step in steps)

        steps, modules = range(len(slot_of)), ring.modules
        return Schedule(
            ring=ring,
            policy=self.name,
            slot_of=tuple(slot_of),
            preload=at(PRELOAD, (0,))[0],
            enter=at(ENTER, steps[::modules]),
            before=at(BEFORE, steps),
            after=at(AFTER, steps),
            leave=at(LEAVE, steps[modules - 1 :: modules]),
        )

    def _at(self, rule: RefillRule, boundary: Boundary, ring: Ring) -> Iterable[Refill]:
        for slot in range(ring.slots):
            module = rule(boundary, slot, ring)
            if module is not None:
                yield Refill(
                    slot, self._check(module, ring, boundary=boundary, slot=slot, ring=ring)
                )

    def _check(self, module: object, ring: Ring, /, **call: object) -> int:
        """A rule's result, an int of its own kind made a plain one. PolicyError unless it is a
        module; ``call`` is what it was called with."""
        if isinstance(module, bool) or not isinstance(module, int):
            raise PolicyError(
                f"policy {self.name} returned {shown(module)} for {call_text(call)}, "
                f"a {type(module).__name__}; return an integer, or None for no refill"
            )
        module = int.__index__(module)  # a kind of its own may compare as it likes
        if not 0 <= module < ring.modules:
            raise PolicyError(
                f"policy {self.name} returned {shown(module)} for {call_text(call)}, "
                f"which is no module; return 0 .. {ring.modules - 1}, or None"
            )
        return module


def _plain(number: Any) -> Any:
    """An int of a kind of its own, which may compare as it likes, made a plain one."""
    odd = isinstance(number, int) and type(number) not in (int, bool)
    return int.__index__(number) if odd else number


def preload(first: Slots, modules: int) -> Refills:
    """The first user of each slot."""
    users = enumerate(first)
    return tuple(Refill(slot, step % modules) for slot, step in users if step != EMPTY)


def derived_refills(slot_of: Sequence[int], first: Slots, modules: int) -> tuple[Refills, ...]:
    """The derived refills after every step of a period."""
    found = []
    for step, user in enumerate(next_users(slot_of, first)):
        target = derived_target(step % modules, user % modules)
        found.append(() if target is None else (Refill(slot_of[step], target),))
    return tuple(found)


def refills_by_use(
    slot_of: Sequence[int], first: Slots, modules: int
) -> tuple[Refills, tuple[Refills, ...]]:
    """The preload, and the refills after every step of a period, issued in the order of use. What
    the first period brings in time is not preloaded."""
    issued = in_order_of_use(slot_of, modules)
    after = tuple(
        tuple(Refill(slot_of[step % len(slot_of)], step % modules) for step in steps)
        for steps in issued
    )
    brought = {step for steps in issued for step in steps}
    kept = Slots(EMPTY if step in brought else step for step in first)
    return preload(kept, modules), after


def after_runs(
    name: str, ring: Ring, slot_of: tuple[int, ...], filled: Refills, after: tuple[Refills, ...]
) -> Schedule:
    """A schedule that refills after runs alone. filled: its preload."""
    passes = len(slot_of) // ring.modules
    return Schedule(
        ring=ring,
        policy=name,
        slot_of=slot_of,
        preload=filled,
        enter=((),) * passes,
        before=((),) * len(slot_of),
        after=after,
        leave=((),) * passes,
    )


# ---- the named policies

modular = Policy("modular", cyclic_slot, modular_target, "vLLM before PR #54975")
slot_local = Policy("slot_local", cyclic_slot, slot_local_target, "vLLM PR #54975")
chain = Policy("chain", cyclic_slot, None, "vLLM PR #51710: slot_local without useless refills")
balanced = Policy("balanced", balanced_slot, None, "near-equal blocks, spare slots used")
double_buffer = Policy(
    "double_buffer", double_buffer_slot, None, "keep K-2 modules, two slots shuttle the rest", 2
)
single_buffer = Policy(
    "single_buffer", single_buffer_slot, None, "keep K-1 modules, one slot for the rest"
)
rotating = Policy(
    "rotating",
    cyclic_slot,
    origin="slot = step mod K; its period is several passes",
    passes=rotating_passes,
)
restart = Policy(
    "restart",
    cyclic_slot,
    origin="TensorRT-LLM: every pass loads the first K modules anew",
    refill=restart_refill,
)
one_ahead = Policy(
    "one_ahead",
    alternating_slot,
    origin="diffusers' groups with a stream: the next module is copied while one runs",
    least_slots=2,
    refill=one_ahead_refill,
)
on_demand = Policy(
    "on_demand",
    cyclic_slot,
    origin="accelerate: each module is copied just before it runs",
    refill=on_demand_refill,
)

NAMED = {
    policy.name: policy
    for policy in (
        modular,
        slot_local,
        chain,
        balanced,
        double_buffer,
        single_buffer,
        rotating,
        restart,
        one_ahead,
        on_demand,
    )
}


def named(name: str) -> Policy:
    """The named policy; PolicyError lists the names."""
    if name not in NAMED:
        raise PolicyError(
            f"no policy is called {name!r}; choose one of {', '.join(NAMED)}, "
            f"or give pkg.module:function"
        )
    return NAMED[name]


def of_target(function: Target, name: str | None = None) -> Policy:
    """A policy from any function ``(index, slots, modules) -> target | None``.

    Its slot map is ``index % slots``, its target goes to the target's own slot, and the preload
    is the first user of each slot. PolicyError if the function takes other arguments; and, when
    a schedule is made, if it raises, does not return, or returns no module.
    """
    require_target(function)
    return Policy(name or name_of(function), cyclic_slot, guarded(function, name_of(function)))


def guarded_policy(policy: Policy) -> Policy:
    """A Policy that somebody wrote, its functions guarded. PolicyError for a subclass: what it
    changes is not what is checked."""
    if type(policy) is not Policy:
        raise PolicyError(
            f"{type(policy).__name__} is a subclass of Policy; give a Policy made of functions"
        )
    if policy is NAMED.get(policy.name):
        return policy
    functions: dict[str, Any] = {
        name: guarded(function, f"{name} of {policy.name}")
        for name in ("slot_of", "target", "refill", "passes")
        if (function := getattr(policy, name)) is not None
    }
    return replace(policy, **functions)


def from_target(function: Target, ring: Ring) -> Schedule:
    """The schedule of ``of_target(function)`` for this ring."""
    return of_target(function)(ring)


def default(slots: int) -> Policy:
    """The policy used when none is asked for: decode on today's GPUs is bound by copies, and
    then keeping all but two modules' slots moves the fewest bytes."""
    return double_buffer if slots >= double_buffer.least_slots else single_buffer
