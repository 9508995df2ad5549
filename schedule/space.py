"""What a planner chooses from: how much of each module moves, which slot it runs from, and in which
order refills are issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from schedule.arithmetic import first_users
from schedule.bounds import lower_bound
from schedule.costs import Costs
from schedule.pace import actions_of, pace, replay_pace
from schedule.parts import Choices, choices
from schedule.policy import after_runs, derived_refills, preload, refills_by_use
from schedule.ring import Ring
from schedule.table import Schedule
from schedule.timing import pass_time

PLANNED = "planned"
"""The name of the policy of what is planned."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """moved: by module, the bytes of a refill; the rest of it stays on the device.
    slot_of: by step of the period.
    by_use: refills are issued in the order in which they are used, else as slots fall free."""

    moved: tuple[int, ...]
    slot_of: tuple[int, ...]
    by_use: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """The candidates for these costs. memory: bytes on the device for the modules.
    captured: passes are replays of a graph.    choices, sizes: by module."""

    costs: Costs
    memory: int
    captured: bool
    choices: tuple[Choices, ...]
    sizes: tuple[int, ...]

    @property
    def modules(self) -> int:
        return len(self.choices)

    def with_memory(self, memory: int) -> Space:
        """The same for another budget."""
        return replace(self, memory=memory)

    @property
    def uncut(self) -> Space:
        """The same without any module in part."""
        every = tuple(Choices(one.moved[-1:], one.kept[-1:]) for one in self.choices)
        return replace(self, choices=every)

    def fits(self, candidate: Candidate) -> bool:
        """Whether it has room."""
        return needed(candidate, self.sizes) <= self.memory

    def time(self, candidate: Candidate) -> Fraction:
        """Nanoseconds of a pass, of the mix of workloads."""
        return self.time_of(planned(candidate, self.modules), candidate.moved)

    def time_of(self, schedule: Schedule, moved: Sequence[int]) -> Fraction:
        """The same of any schedule, with so many bytes to a refill of each module."""
        streams = self.costs.link.streams
        pacer = replay_pace if self.captured else pace
        found = []
        for workload in self.costs.workloads:
            times = self.costs.times(workload, moved)
            period = pacer(actions_of(schedule, times), schedule.ring.slots, streams)
            # Only an eager pass can take too long to settle.
            found.append(pass_time(schedule, times) if period is None else period / schedule.period)
        return mixed(self.costs, found)

    @property
    def bound(self) -> Fraction:
        """No pass of the mix takes less, in this memory."""
        found = [lower_bound(self.costs, one, self.memory) for one in self.costs.workloads]
        return mixed(self.costs, found)


def space_of(costs: Costs, memory: int, captured: bool, parts: bool) -> Space:
    """All candidates."""
    every = tuple(choices(module, parts) for module in costs.modules)
    return Space(costs, memory, captured, every, costs.sizes)


def mixed(costs: Costs, times: Sequence[Fraction]) -> Fraction:
    """The mean of times by workload, by their weights."""
    weights = [Fraction(workload.weight) for workload in costs.workloads]
    pairs = zip(weights, times, strict=True)
    return sum((weight * time for weight, time in pairs), Fraction(0)) / sum(weights)


def needed(candidate: Candidate, sizes: Sequence[int]) -> int:
    """Bytes on the device: each slot as large as the largest that moves through it, and what of
    each module does not move."""
    slots: dict[int, int] = {}
    modules = len(sizes)
    for step, slot in enumerate(candidate.slot_of):
        size = candidate.moved[step % modules]
        if size > slots.get(slot, 0):
            slots[slot] = size
    return sum(slots.values()) + sum(sizes) - sum(candidate.moved)


def shuttled(candidate: Candidate) -> frozenset[int]:
    """The modules that share a slot, and so are copied."""
    modules = len(candidate.moved)
    users: dict[int, set[int]] = {}
    for step, slot in enumerate(candidate.slot_of):
        users.setdefault(slot, set()).add(step % modules)
    return frozenset(one for sharing in users.values() if len(sharing) > 1 for one in sharing)


def planned(candidate: Candidate, modules: int) -> Schedule:
    """The candidate's schedule, over as many slots as it uses."""
    names = {slot: number for number, slot in enumerate(dict.fromkeys(candidate.slot_of))}
    slot_of = tuple(names[slot] for slot in candidate.slot_of)
    first = first_users(slot_of, len(names))
    if candidate.by_use:
        filled, after = refills_by_use(slot_of, first, modules)
    else:
        filled, after = preload(first, modules), derived_refills(slot_of, first, modules)
    return after_runs(PLANNED, Ring(modules, len(names)), slot_of, filled, after)
