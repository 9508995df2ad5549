"""Policies: which slot a step uses, and which module is refilled after it.

This file is the one place where slot and refill arithmetic exists. ``verify`` checks what comes
out of it ring by ring; the proofs execute these very functions on symbolic sizes; the runtime
executes the finished tables and computes no slot or module number.

A policy is a slot map and, optionally, a rule for targets. Without the rule its refills are
*derived*: after a module ran, its slot is refilled with the slot's next user, and not at all
if that is the same module. Derived refills are safe for every slot map.

Every function here must stay ordinary arithmetic and comparisons on its arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from schedule.budget import OutOfBudget, within_budget
from schedule.errors import PolicyError
from schedule.ring import EMPTY, Ring, ScanTable, Sizes, Slots, SlotTable
from schedule.table import Refill, Schedule, one_pass

Result = TypeVar("Result")
BARE = "ringproof_bare"
"""The attribute under which a guarded function keeps the function itself."""

Table = TypeVar("Table", bound=SlotTable)

SlotMap = Callable[[int, Sizes], int]
"""(step, ring) -> the slot that this step's module runs from."""

Target = Callable[[int, int, int], "int | None"]
"""(index, slots, modules) -> the module refilled after module ``index`` into its own slot, or
None for no refill: the signature of vLLM's prefetch offloader."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule for every ring; call it with a ring to get that ring's schedule.

    name:   as on the command line.
    slot_of: the slot map.
    target: the module refilled after each module, into the target's own slot; None: derived.
    origin: where the rule comes from.
    least_slots: the smallest number of slots for which the rule makes sense.
    """

    name: str
    slot_of: SlotMap
    target: Target | None = None
    origin: str = "a user's function"
    least_slots: int = 1

    def __call__(self, ring: Ring) -> Schedule:
        """The schedule for this ring. PolicyError if the rule does not apply or misbehaves."""
        if ring.slots < self.least_slots:
            raise PolicyError(
                f"policy {self.name} needs at least {self.least_slots} slots, got {ring.slots}; "
                f"give more slots or choose single_buffer"
            )
        slot_of = tuple(self._slot(step, ring) for step in range(ring.modules))
        first = first_users(slot_of, ring.slots)
        preload = [Refill(slot, first[slot]) for slot in range(ring.slots) if first[slot] != EMPTY]
        if self.target is None:
            refills = derived_refills(slot_of, first)
        else:
            refills = tuple(
                target_refills(self.name, self.target, slot_of, step, ring)
                for step in range(ring.modules)
            )
        return one_pass(ring, self.name, slot_of, preload, refills)

    def _slot(self, step: int, ring: Ring) -> int:
        slot = self.slot_of(step, ring)
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < ring.slots:
            raise PolicyError(
                f"policy {self.name} gives step {step} the slot {slot!r} in {ring}; "
                f"slots are the integers 0 .. {ring.slots - 1}"
            )
        return slot


# ---- slot maps


def cyclic_slot(step: int, ring: Sizes) -> int:
    """Neighbours in the ring are neighbours in the slots; the map of vLLM's offloader."""
    return step % ring.slots


def balanced_slot(step: int, ring: Sizes) -> int:
    """Near-equal blocks: distance at least g* = N // ceil(N / K), which no static map exceeds.

    The ring is cut into ceil(N / K) blocks that differ by at most one in length; a module's
    slot is its offset in its block. Slots that no offset needs are spare: each takes one
    module, of the smallest offset first, for itself, so that it is never copied again. The
    last block's module of each offset stays, alone then, in the offset's slot.
    """
    blocks = (ring.modules - 1) // ring.slots + 1
    short = ring.modules // blocks
    longer = ring.modules % blocks
    if step < longer * (short + 1):
        block, offset = step // (short + 1), step % (short + 1)
    else:
        rest = step - longer * (short + 1)
        block, offset = longer + rest // short, rest % short
    used = short + 1 if longer > 0 else short
    spare = offset * (blocks - 1) + block
    if block < blocks - 1 and spare < ring.slots - used:
        return used + spare
    return offset


def double_buffer_slot(step: int, ring: Sizes) -> int:
    """The last K-2 modules are kept, two slots shuttle the others. Kept modules follow one
    another, so that they hide the refill at the ring's end, where one slot may serve twice."""
    if step < ring.modules - ring.slots + 2:
        return step % 2
    return step - ring.modules + ring.slots


def single_buffer_slot(step: int, ring: Sizes) -> int:
    """The last K-1 modules are kept, one slot serves the others."""
    return max(0, step - ring.modules + ring.slots)


# ---- targets


def modular_target(index: int, slots: int, modules: int) -> int:
    """The rule of vLLM PR #29941: right only if the target's slot is the one just released.
    It is wrong exactly when 1 < K < N and N % K != 0 (PR #54975)."""
    return (index + slots) % modules


def slot_local_target(index: int, slots: int, modules: int) -> int:
    """The rule of vLLM PR #54975: a target in a foreign slot becomes the slot's first module."""
    target = (index + slots) % modules
    if slots < modules and target % slots != index % slots:
        target = index % slots
    return target


# ---- refills


def scan(next_of: Table, slot: int, step: int) -> tuple[int, Table]:
    """One step of a backward scan: the next user of the slot that this step releases, and the
    table of next users as it is before the step."""
    return next_of[slot], next_of.put(slot, step)


def first_users(slot_of: Sequence[int], slots: int) -> Slots:
    """By slot: the first step of the period that uses it, or EMPTY. The preload's content."""
    table = ScanTable([EMPTY] * slots)
    for step in reversed(range(len(slot_of))):
        _, table = scan(table, slot_of[step], step)
    return Slots(table)


def next_users(slot_of: Sequence[int], first: Slots) -> tuple[int, ...]:
    """By step: the next user, as a step of the period, of the slot that the step releases."""
    table, found = ScanTable(first), [EMPTY] * len(slot_of)
    for step in reversed(range(len(slot_of))):
        found[step], table = scan(table, slot_of[step], step)
    return tuple(found)


def derived_target(step: int, next_user: int) -> int | None:
    """A released slot gets its next user; none if that is the module which just ran."""
    return None if next_user == step else next_user


def derived_refills(slot_of: Sequence[int], first: Slots) -> tuple[tuple[Refill, ...], ...]:
    """The derived refills of every step of a one-pass period."""
    targets = map(derived_target, range(len(slot_of)), next_users(slot_of, first))
    return tuple(
        () if target is None else (Refill(slot, target),)
        for slot, target in zip(slot_of, targets, strict=True)
    )


def target_refills(
    name: str, target: Target, slot_of: Sequence[int], step: int, ring: Ring
) -> tuple[Refill, ...]:
    """What a rule for targets refills after a step. PolicyError unless it is a module or None."""
    module = target(step, ring.slots, ring.modules)
    if module is None:
        return ()
    at = f"for (index={step}, slots={ring.slots}, modules={ring.modules})"
    if isinstance(module, bool) or not isinstance(module, int):
        raise PolicyError(
            f"policy {name} returned {_shown(module)} {at}, a {type(module).__name__}; "
            f"return an integer, or None for no refill"
        )
    if not 0 <= module < ring.modules:
        raise PolicyError(
            f"policy {name} returned {module} {at}, which is no module; "
            f"return 0 .. {ring.modules - 1}, or None"
        )
    return (Refill(slot_of[module], module),)


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

NAMED = {
    policy.name: policy
    for policy in (modular, slot_local, chain, balanced, double_buffer, single_buffer)
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
    if not callable(function) or isinstance(function, type):
        raise PolicyError(
            f"a policy is a function (index, slots, modules) -> target or None; got {function!r}"
        )
    try:
        inspect.signature(function).bind(0, 1, 1)
    except TypeError as error:
        raise PolicyError(
            f"{_name(function)} can't be called with (index, slots, modules): {error}"
        ) from error
    except ValueError:
        pass  # a built-in without a signature: the first call will tell
    return Policy(name or _name(function), cyclic_slot, guarded(function, _name(function)))


def guarded_policy(policy: Policy) -> Policy:
    """A Policy that somebody wrote, its functions guarded. PolicyError for a subclass: what it
    changes is not what is checked."""
    if type(policy) is not Policy:
        raise PolicyError(
            f"{type(policy).__name__} is a subclass of Policy; give a Policy made of functions"
        )
    if policy is NAMED.get(policy.name):
        return policy
    target = policy.target and guarded(policy.target, f"target of {policy.name}")
    return replace(
        policy, slot_of=guarded(policy.slot_of, f"slot_of of {policy.name}"), target=target
    )


def from_target(function: Target, ring: Ring) -> Schedule:
    """The schedule of ``of_target(function)`` for this ring."""
    return of_target(function)(ring)


def guarded(function: Callable[..., Result], name: str) -> Callable[..., Result]:
    """The function, under a budget of instructions, its exceptions turned into PolicyError."""

    if hasattr(function, BARE):
        return function

    def call(*arguments: Any) -> Result:
        try:
            return within_budget(function, *arguments)
        except OutOfBudget as error:
            raise PolicyError(
                f"{name}{arguments} {error}; a policy is plain arithmetic on its arguments"
            ) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a SystemExit too: a policy does not end the program
            what = f"{type(error).__name__}: {_shown(error, str)}"
            raise PolicyError(
                f"{name}{arguments} raised {what}; a policy returns a number or None"
            ) from error

    setattr(call, BARE, function)
    return call


def bare(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function that ``guarded`` guards; any other function as it is."""
    found: Callable[..., Result] = getattr(function, BARE, function)
    return found


def _shown(value: object, how: Callable[[object], str] = repr) -> str:
    """A user's value as text; its own code for that may fail."""
    try:
        return how(value)
    except Exception:
        return "a value that can't be printed"


def _name(function: object) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}:{name}" if module else name


def default(slots: int) -> Policy:
    """The policy used when none is asked for: decode on today's GPUs is bound by copies, and
    then keeping all but two modules' slots moves the fewest bytes."""
    return double_buffer if slots >= double_buffer.least_slots else single_buffer
