"""What is to be said of a plan: what is kept, what moves, what bounds it, where it waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from schedule.bounds import Bound, lower_bounds
from schedule.plan import Option, Plan
from schedule.spoken import milliseconds
from schedule.stalls import Stall, stalls
from schedule.table import TABLES
from schedule.trace import tables_json


@dataclass(frozen=True, slots=True)
class Explained:
    """A plan, and by workload the bound that is largest, and what each module waits.
    knobs: what was asked to be compared with it.
    whole: the modules that are kept whole.    copied: by other module, how often a pass."""

    plan: Plan
    bounds: Mapping[str, Bound]
    stalls: Mapping[str, tuple[Stall, ...]]
    knobs: tuple[Option, ...]
    whole: tuple[int, ...]
    copied: Mapping[int, Fraction]

    @property
    def copies(self) -> Fraction:
        """How many a pass."""
        return sum(self.copied.values(), Fraction(0))

    @property
    def moved(self) -> Fraction:
        """Bytes that are copied in a pass."""
        return moved(self.plan)

    @property
    def in_part(self) -> Mapping[tuple[str, ...], list[int]]:
        """By parts that are kept, the modules of which just these are."""
        found: dict[tuple[str, ...], list[int]] = {}
        for module, parts in enumerate(self.plan.kept):
            if parts and module not in self.whole:
                found.setdefault(parts, []).append(module)
        return found

    def kept_of(self, module: int) -> int:
        """Bytes of it that are never copied."""
        size = self.plan.costs.sizes[module]
        return size if module in self.whole else size - self.plan.moved[module]

    @property
    def slots(self) -> Mapping[int, int]:
        """By size, how many slots that modules share there are."""
        schedule = self.plan.schedule
        own = {schedule.slot_of[module] for module in self.whole}
        sizes = enumerate(schedule.slot_sizes(self.plan.moved))
        return Counter(size for slot, size in sizes if slot not in own)

    @property
    def slot_map(self) -> str:
        period = self.plan.schedule.period
        return "static" if period == 1 else f"rotating, the same again after {period} passes"


def explained(plan: Plan, knobs: tuple[Option, ...] = ()) -> Explained:
    """What is to be said of this plan."""
    costs, schedule = plan.costs, plan.schedule
    names = [module.name for module in costs.modules]
    times = {one.name: costs.times(one, plan.moved) for one in costs.workloads}
    copied = copies(plan)
    return Explained(
        plan=plan,
        bounds={
            one.name: lower_bounds(costs, one, plan.budget - costs.resident)[0]
            for one in costs.workloads
        },
        stalls={
            name: stalls(schedule, found, plan.captured, names, milliseconds)
            for name, found in times.items()
        },
        knobs=knobs,
        whole=tuple(one for one in schedule.kept() if one not in copied),
        copied=copied,
    )


def copies(plan: Plan) -> Mapping[int, Fraction]:
    """By module that is copied, how often a pass."""
    tables = (found for name in TABLES for found in getattr(plan.schedule, name))
    counts = Counter(refill.module for found in tables for refill in found)
    return {one: Fraction(count, plan.schedule.period) for one, count in sorted(counts.items())}


def moved(plan: Plan) -> Fraction:
    """Bytes that are copied in a pass."""
    pairs = copies(plan).items()
    return sum((count * plan.moved[module] for module, count in pairs), Fraction(0))


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan in short: sizes in bytes, times in nanoseconds."""
    return {
        "moved": float(moved(plan)),
        "budget": plan.budget,
        "memory": plan.memory,
        "unused": plan.unused,
        "resident": plan.is_resident,
        "exact": plan.exact,
        "time": float(plan.time),
        "bound": float(plan.bound),
        "gap": plan.gap,
        "workloads": {
            one.name: {
                "weight": one.weight,
                "time": float(plan.times[one.name]),
                "bound": float(plan.bounds[one.name]),
            }
            for one in plan.costs.workloads
        },
    }


def option_json(option: Option) -> dict[str, Any]:
    """Another way to use the memory."""
    return {
        "name": option.name,
        "memory": option.memory,
        "time": float(option.time),
        "workloads": {name: float(time) for name, time in option.times.items()},
    }


def explained_json(found: Explained) -> dict[str, Any]:
    """All that is said, and the schedule."""
    plan = found.plan
    short = plan_json(plan)
    for name, bound in found.bounds.items():
        short["workloads"][name] |= {
            "bound_name": bound.name,
            "argument": bound.argument,
            "modules": [_stall_json(one) for one in found.stalls[name]],
        }
    return short | {
        "captured": plan.captured,
        "slots": {
            "sizes": list(plan.schedule.slot_sizes(plan.moved)),
            "shared": sum(found.slots.values()),
            "map": found.slot_map,
        },
        "copies": float(found.copies),
        "modules": [
            {
                "name": module.name,
                "size": module.size,
                "kept": found.kept_of(at),
                "parts": list(plan.kept[at]),
                "whole": at in found.whole,
                "copies": float(found.copied.get(at, 0)),
            }
            for at, module in enumerate(plan.costs.modules)
        ],
        "others": [option_json(one) for one in plan.others],
        "knobs": [option_json(one) for one in found.knobs],
        "schedule": tables_json(plan.schedule),
    }


def _stall_json(one: Stall) -> dict[str, Any]:
    return {
        "window": None if one.window is None else float(one.window),
        "copy": one.copy,
        "stall": float(one.time),
        "reason": one.reason or None,
    }
