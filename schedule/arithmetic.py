"""All slot and refill arithmetic, once: which slot a step uses, and what is refilled when.

``policy`` makes tables of these functions for a ring and ``verify`` checks the tables; the proofs
execute these very functions on symbolic sizes; the runtime executes the finished tables and
computes no slot or module number.

Every function here must stay ordinary arithmetic and comparisons on its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TypeVar

from schedule.ring import EMPTY, ScanTable, Sizes, Slots, SlotTable
from schedule.table import AFTER, BEFORE, ENTER, Boundary

Table = TypeVar("Table", bound=SlotTable)

SlotMap = Callable[[int, Sizes], int]
"""(step, ring) -> the slot that this step's module runs from."""

Target = Callable[[int, int, int], "int | None"]
"""(index, slots, modules) -> the module refilled after module ``index`` into its own slot, or
None for no refill: the signature of vLLM's prefetch offloader."""

RefillRule = Callable[[Boundary, int, Sizes], "int | None"]
"""(boundary, slot, ring) -> the module refilled into the slot at that boundary, or None."""

Passes = Callable[[Sizes], int]
"""(ring) -> how many passes a period has."""


# ---- slot maps


def cyclic_slot(step: int, ring: Sizes) -> int:
    """Neighbours in the ring are neighbours in the slots; the map of vLLM's offloader."""
    return step % ring.slots


def block_count(ring: Sizes) -> int:
    """ceil(N / K): into as many blocks ``balanced`` cuts the ring, each no longer than K."""
    return (ring.modules - 1) // ring.slots + 1


def best_distance(ring: Sizes) -> int:
    """g* = N // ceil(N / K), in steps: the largest distance from one user of a slot to the next
    that a static slot map can keep everywhere, the end of the pass included (claim 8)."""
    return ring.modules // block_count(ring)


def balanced_slot(step: int, ring: Sizes) -> int:
    """Near-equal blocks: distance at least g*, which no static map exceeds.

    The ring is cut into ceil(N / K) blocks that differ by at most one in length; a module's
    slot is its offset in its block. Slots that no offset needs are spare: each takes one
    module, of the smallest offset first, for itself, so that it is never copied again. The
    last block's module of each offset stays, alone then, in the offset's slot.
    """
    blocks, short = block_count(ring), best_distance(ring)
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


def alternating_slot(step: int, _: Sizes) -> int:
    """Two slots in turn, however many there are."""
    return step % 2


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


# ---- rules for refills


def restart_refill(boundary: Boundary, slot: int, ring: Sizes) -> int | None:
    """Every pass begins anew with the first K modules; a released slot gets the module K steps
    ahead, if the pass has one. Nothing is carried from pass to pass."""
    half, step = boundary
    if half == ENTER:
        module = slot
    elif half == AFTER and slot == cyclic_slot(step, ring):
        module = step + ring.slots
    else:
        return None
    return module if module < ring.modules else None


def one_ahead_refill(boundary: Boundary, slot: int, ring: Sizes) -> int | None:
    """While a module runs, the next one is copied into the other slot; the first one on enter."""
    half, step = boundary
    if half == ENTER:
        module = 0
    elif half == BEFORE:
        module = step + 1
    else:
        return None
    if module < ring.modules and slot == alternating_slot(module, ring):
        return module
    return None


def on_demand_refill(boundary: Boundary, slot: int, ring: Sizes) -> int | None:
    """Each module is copied just before it runs."""
    half, step = boundary
    return step if half == BEFORE and slot == cyclic_slot(step, ring) else None


# ---- which modules are offloaded


def is_in_group(layer: int, group_size: int, num_in_group: int) -> bool:
    """Whether a layer is one of the last so many of its group: vLLM's ``offload_group_size`` and
    ``offload_num_in_group`` (vllm/model_executor/offloader/prefetch.py), whose
    ``offload_prefetch_step`` is our number of slots. An incomplete last group may have none."""
    return layer % group_size >= group_size - num_in_group


# ---- periods


def every_pass(_: Sizes) -> int:
    """The schedule repeats every pass."""
    return 1


def rotating_passes(ring: Sizes) -> int:
    """The fewest passes whose steps are a multiple of K, so that ``step % K`` goes on unbroken
    from one period into the next."""
    return ring.slots // gcd(ring.modules, ring.slots)


# ---- next users, and the refills derived from them


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


def in_order_of_use(slot_of: Sequence[int], modules: int) -> tuple[tuple[int, ...], ...]:
    """By step, the steps whose modules are refilled after it, if refills are issued in the order in
    which they are used: each as soon as its slot is free, and every slot that is used before it.
    Those of the next period are counted on. A step is in none if its slot serves the same module
    before it.
    """
    steps = len(slot_of)
    issued: list[list[int]] = [[] for _ in slot_of]
    released: dict[int, int] = {}
    latest = 0
    for step in range(2 * steps):
        slot = slot_of[step % steps]
        user = released.get(slot)
        released[slot] = step
        if user is None or (step - user) % modules == 0:
            continue
        latest = max(latest, user)
        # The first period is not complete: what it releases at its end comes with the second's.
        if step >= steps:
            issued[latest % steps].append(step if latest < steps else step - steps)
    return tuple(map(tuple, map(sorted, issued)))


def derived_target(module: int, next_user: int) -> int | None:
    """The slot that a module released gets its next user; none if that is the same module."""
    return None if next_user == module else next_user
