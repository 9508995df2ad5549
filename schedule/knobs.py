"""What else the memory could be used for: the named policies, and the settings of other engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from schedule.arithmetic import is_in_group
from schedule.costs import Costs
from schedule.errors import CostsError
from schedule.policy import NAMED, modular, slot_local
from schedule.ring import Ring
from schedule.table import TABLES, Refill, Refills, Schedule

MOST_GROUP = 16
"""Groups of more layers are not looked at."""
FEW_SLOTS = 4
"""Of more slots only as many as there are layers are looked at."""
MOST_SLOTS = 128
"""Of more numbers of slots so many are looked at, evenly spread."""
MOST_STEPS = 20_000
"""A policy with a longer period is not looked at."""


@dataclass(frozen=True, slots=True)
class Setting:
    """name: of a policy with its slots, or of another engine's knobs.   family: what all of a kind
    have in common.    size: bytes on the device for the modules.    make: its schedule."""

    name: str
    family: str
    size: int
    make: Callable[[], Schedule]

    @property
    def schedule(self) -> Schedule:
        """Over all modules; made anew, since there are thousands of settings."""
        return self.make()


def named_settings(costs: Costs, captured: bool) -> Iterator[Setting]:
    """Every named policy with every number of slots, but ``modular``: where it is safe it does what
    ``slot_local`` does."""
    modules, sizes = len(costs.modules), costs.sizes
    for slots in range(1, modules + 1, -(-modules // MOST_SLOTS)):
        ring = Ring(modules, slots)
        for policy in NAMED.values():
            passes = policy.passes(ring)
            if policy is modular or policy.least_slots > slots or (captured and passes > 1):
                continue
            if passes * modules <= MOST_STEPS:
                size = sum(policy(ring).slot_sizes(sizes))
                name = f"{policy.name}, {slots} slots"
                yield Setting(name, policy.name, size, partial(policy, ring))


def vllm_settings(costs: Costs) -> Iterator[Setting]:
    """vLLM's knobs: how many layers are a group, of how many of them are offloaded, and how many
    buffers are filled ahead."""
    modules = len(costs.modules)
    for group in range(1, min(MOST_GROUP, modules) + 1):
        for number in range(1, group + 1):
            offloaded = len(grouped(modules, group, number))
            if not offloaded or (number == group and group > 1):
                continue  # all of each group is what all of groups of one are
            for step in sorted({*range(1, min(FEW_SLOTS, offloaded) + 1), offloaded}):
                yield vllm_setting(costs, group, number, step)


def vllm_setting(costs: Costs, group_size: int, num_in_group: int, prefetch_step: int) -> Setting:
    """One of these. CostsError for what vLLM would refuse too."""
    for name, value in (
        ("group size", group_size),
        ("number in group", num_in_group),
        ("prefetch step", prefetch_step),
    ):
        if type(value) is not int or value < 1:
            raise CostsError(f"{name}: {value!r} is no whole number, at least 1")
    modules = len(costs.modules)
    if num_in_group > group_size:
        raise CostsError(f"number in group: {num_in_group}, but a group has {group_size} layers")
    places = grouped(modules, group_size, num_in_group)
    if not places:
        raise CostsError(f"group size: {group_size}, of {modules} layers none would be offloaded")

    def make() -> Schedule:
        return among(slot_local(Ring(len(places), prefetch_step)), places, modules)

    name = f"vLLM, group size {group_size}, {num_in_group} in group, prefetch step {prefetch_step}"
    return Setting(name, "vLLM", sum(make().slot_sizes(costs.sizes)), make)


def grouped(modules: int, group_size: int, num_in_group: int) -> list[int]:
    """Of every so many modules the last so many."""
    return [one for one in range(modules) if is_in_group(one, group_size, num_in_group)]


def among(schedule: Schedule, places: Sequence[int], modules: int) -> Schedule:
    """The schedule's modules at these places of a larger ring, all others kept. Of a period of one
    pass."""
    assert schedule.period == 1, "of one pass"
    others = [module for module in range(modules) if module not in set(places)]
    slots = schedule.ring.slots
    own = {module: slots + number for number, module in enumerate(others)}
    at = {place: number for number, place in enumerate(places)}

    def renamed(refills: Refills) -> Refills:
        return tuple(Refill(slot, places[module]) for slot, module in refills)

    tables = {
        name: tuple(map(renamed, getattr(schedule, name)))
        if name in ("enter", "leave")
        else tuple(
            renamed(getattr(schedule, name)[at[module]]) if module in at else ()
            for module in range(modules)
        )
        for name in TABLES
    }
    kept = tuple(Refill(slot, module) for module, slot in own.items())
    return Schedule(
        ring=Ring(modules, slots + len(others)),
        policy=schedule.policy,
        slot_of=tuple(
            own[module] if module in own else schedule.slot_of[at[module]]
            for module in range(modules)
        ),
        preload=(*renamed(schedule.preload), *kept),
        **tables,
    )
