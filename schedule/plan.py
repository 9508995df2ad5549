"""The best schedule that a memory budget allows, for a model's costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from schedule.costs import Costs
from schedule.table import Schedule
from schedule.verifier import Verified


@dataclass(frozen=True, slots=True)
class Option:
    """Another way to use the memory. name: of the policy, or of another engine's setting.
    memory: bytes on the device.    times: nanoseconds of a pass by workload.   time: of the mix."""

    name: str
    memory: int
    times: Mapping[str, Fraction]
    time: Fraction


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a device memory budget.

    costs, budget, captured: as given; the budget in bytes, what is resident included.
    verified: the schedule, over all modules of the costs; a module that is kept whole has a slot
              of its own.
    kept:     by module, the parts that stay on the device beside the slots (by name).
    moved:    by module, the bytes of a refill.
    memory:   bytes on the device: resident parts, kept parts and slots.
    times, bounds: nanoseconds of a pass, by workload; no schedule in this memory takes less than
              its bound.    time, bound: the same of the mix.
    others:   the named policies and other engines' settings at the same memory, the best first.
    """

    costs: Costs
    budget: int
    captured: bool
    verified: Verified
    kept: tuple[tuple[str, ...], ...]
    moved: tuple[int, ...]
    memory: int
    times: Mapping[str, Fraction]
    bounds: Mapping[str, Fraction]
    time: Fraction
    bound: Fraction
    others: tuple[Option, ...]

    @property
    def schedule(self) -> Schedule:
        return self.verified.schedule

    @property
    def unused(self) -> int:
        """Bytes of the budget that the plan has no use for."""
        return self.budget - self.memory

    @property
    def gap(self) -> float:
        """By how much a pass is longer than the bound, at most: 0.1 is a tenth."""
        return float(self.time / self.bound) - 1 if self.bound else 0.0

    @property
    def is_resident(self) -> bool:
        """Whether the whole model fits, so that nothing is ever copied."""
        return not self.schedule.copies


def plan(costs: Costs, budget: int, *, captured: bool = False, parts: bool = True) -> Plan:
    """The best plan that is found for so many bytes on the device. captured: passes are replays of
    a graph. parts: whether a module may be kept in part. CostsError for a budget that is too small
    for one slot, with the smallest that works."""
    raise NotImplementedError
