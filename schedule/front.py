"""Memory against pass time: what is planned for budgets from the least that works to the whole
model, what ``slot_local`` makes of the same memory, and what no schedule can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

from schedule.bounds import lower_bound
from schedule.knobs import Setting
from schedule.plan import Option, Plan, Planner
from schedule.policy import slot_local
from schedule.ring import Ring

Either = TypeVar("Either", Plan, Option)

MOST_POINTS = 24
"""Budgets that are planned for."""
WORK = 500
"""So many modules in all budgets together: a plan of many modules takes a second or more."""
MOST_BOUNDS, BOUNDS_WORK = 96, 3000
"""The same of the lower bounds, which take less."""


@dataclass(frozen=True, slots=True)
class Edge:
    """times: by workload, nanoseconds that no schedule beats in ``budget`` bytes on the device."""

    budget: int
    times: Mapping[str, Fraction]


@dataclass(frozen=True, slots=True)
class Front:
    """plans: those that no other one is better than, in both memory and time; the least memory
    first.    edges: the lower bounds.    slot_local: its own front, over all numbers of slots."""

    plans: tuple[Plan, ...]
    edges: tuple[Edge, ...]
    slot_local: tuple[Option, ...]


def front(planner: Planner, points: int | None = None) -> Front:
    """The front; points: for how many budgets at most, at least 2."""
    modules = len(planner.costs.modules)
    count = points or max(6, min(MOST_POINTS, WORK // modules))
    bounds = max(count, min(MOST_BOUNDS, BOUNDS_WORK // modules))
    return Front(
        plans=undominated(planner.plan(budget) for budget in budgets(planner, count)),
        edges=tuple(_edge(planner, budget) for budget in budgets(planner, bounds)),
        slot_local=undominated(planner.option(setting) for setting in _slot_local(planner)),
    )


def budgets(planner: Planner, count: int) -> Sequence[int]:
    """At most so many, at least 2, ascending: a slot for the largest module, and two and three of
    that size; all of the model; and in between evenly."""
    least, whole = planner.least, planner.costs.whole
    slot = max(planner.costs.sizes)
    few = {least + slot * more for more in (1, 2)[: count - 2] if least + slot * more < whole}
    even = max(1, count - 1 - len(few))
    return sorted(few | {least + (whole - least) * at // even for at in range(even + 1)})


def undominated(found: Iterable[Either]) -> tuple[Either, ...]:
    """Those than which no other one is faster in as little memory, the least memory first."""
    best: list[Either] = []
    for one in sorted(found, key=lambda one: (one.memory, one.time)):
        if not best or one.time < best[-1].time:
            best.append(one)
    return tuple(best)


def _slot_local(planner: Planner) -> Iterator[Setting]:
    """With every number of slots."""
    modules, sizes = len(planner.costs.modules), planner.costs.sizes
    for slots in range(1, modules + 1):
        make = partial(slot_local, Ring(modules, slots))
        name = f"{slot_local.name}, {slots} slots"
        yield Setting(name, slot_local.name, sum(make().slot_sizes(sizes)), make)


def _edge(planner: Planner, budget: int) -> Edge:
    costs = planner.costs
    memory = budget - costs.resident
    return Edge(budget, {one.name: lower_bound(costs, one, memory) for one in costs.workloads})
