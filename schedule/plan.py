"""The best schedule that a memory budget allows, for a model's costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from schedule.bounds import lower_bound
from schedule.costs import MOST, Costs
from schedule.errors import CostsError
from schedule.knobs import Setting, named_settings, vllm_settings
from schedule.search import search
from schedule.space import Candidate, mixed, planned, space_of
from schedule.table import Schedule
from schedule.timing import steady
from schedule.verifier import Verified, verify


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
    exact:    whether no static slot map, with refills as slots fall free or in the order of use,
              is better with any choice of kept parts.
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
    exact: bool

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
    """The best plan that is found for so many bytes on the device: at least as good as every named
    policy with any number of slots, and as vLLM's settings (those that ``knobs`` looks at).
    captured: passes are replays of a graph. parts: whether a module may be kept in part. CostsError
    for a budget that is too small for one slot, with the smallest that works."""
    return Planner(costs, captured=captured, parts=parts).plan(budget)


class Planner:
    """Plans for several budgets: what else the memory could be used for is timed once."""

    def __init__(self, costs: Costs, *, captured: bool = False, parts: bool = True) -> None:
        self.costs, self.captured = costs, captured
        self._space = space_of(costs, 0, captured, parts)
        self._settings = [*named_settings(costs, captured), *vllm_settings(costs)]
        self._timed: dict[str, Fraction] = {}

    @property
    def least(self) -> int:
        """The smallest budget for which there is a plan: a slot for the largest module."""
        return self.costs.resident + max(self.costs.sizes)

    def plan(self, budget: int) -> Plan:
        """The best plan for so many bytes on the device."""
        costs = self.costs
        self._require(budget)
        space = self._space.with_memory(budget - costs.resident)
        others = self._others(space.memory)
        known = [one.slot_of for _, one in others if one.period == 1]
        found = search(space, [Candidate(costs.sizes, slot_of) for slot_of in known])
        candidate = found.candidate
        schedule, moved = planned(candidate, space.modules), candidate.moved
        times = self._times(schedule, moved)
        best = min(others, key=lambda one: one[0].time)
        if best[0].time < mixed(costs, list(times.values())):
            schedule, moved, times = best[1], costs.sizes, best[0].times
        kept = [space.choices[at].parts(size) for at, size in enumerate(moved)]
        slots = sum(schedule.slot_sizes(moved))
        bounds = {one.name: lower_bound(costs, one, space.memory) for one in costs.workloads}
        return Plan(
            costs=costs,
            budget=budget,
            captured=self.captured,
            verified=verify(schedule),
            kept=tuple(
                tuple(part.name for number, part in enumerate(module.parts) if number in stay)
                for module, stay in zip(costs.modules, kept, strict=True)
            ),
            moved=moved,
            memory=costs.resident + slots + sum(costs.sizes) - sum(moved),
            times=times,
            bounds=bounds,
            time=mixed(costs, list(times.values())),
            bound=mixed(costs, list(bounds.values())),
            others=tuple(option for option, _ in others),
            exact=found.exact,
        )

    def option(self, setting: Setting) -> Option:
        """What another setting takes, exactly."""
        times = self._times(setting.schedule, self.costs.sizes)
        time = mixed(self.costs, list(times.values()))
        return Option(setting.name, self.costs.resident + setting.size, times, time)

    def _others(self, memory: int) -> list[tuple[Option, Schedule]]:
        """Of each family the best setting that fits, the best first."""
        best: dict[str, tuple[Fraction, int, Setting]] = {}
        for setting in self._settings:
            if setting.size > memory:
                continue
            if setting.name not in self._timed:
                time = self._space.time_of(setting.schedule, self.costs.sizes)
                self._timed[setting.name] = time
            rank = self._timed[setting.name], setting.size
            if setting.family not in best or rank < best[setting.family][:2]:
                best[setting.family] = *rank, setting
        settings = [setting for _, _, setting in best.values()]
        found = [(self.option(setting), setting.schedule) for setting in settings]
        return sorted(found, key=lambda one: (one[0].time, one[0].memory))

    def _times(self, schedule: Schedule, moved: Sequence[int]) -> Mapping[str, Fraction]:
        return {
            one.name: steady(schedule, self.costs.times(one, moved), self.captured).time
            for one in self.costs.workloads
        }

    def _require(self, budget: int) -> None:
        if type(budget) is not int or not 0 <= budget <= MOST:
            raise CostsError(f"memory: {budget!r} is no whole number of bytes from 0 to 10**18")
        if budget < self.least:
            largest = max(self.costs.modules, key=lambda module: module.size)
            raise CostsError(
                f"memory: {budget} bytes are too few: {self.costs.resident} bytes stay on the "
                f"device, and {largest.name} needs a slot of {largest.size}; "
                f"the smallest that works is {self.least}"
            )
