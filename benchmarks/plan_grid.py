"""The grid of ``python -m benchmarks plan``: which plans are made, and what they are held against.

N is 3 to 61, and a copy takes a quarter to a hundred times what a run does. Up to N = 10 there are
all K and all ratios; beyond, four K, each with every other ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from benchmarks.plan_models import MODELS, UNIT, equal
from schedule import Ring
from schedule.costs import Costs
from schedule.knobs import Setting
from schedule.plan import Planner
from schedule.policy import slot_local

RATIOS = tuple(map(Fraction, ("1/4", "1/2", "1", "2", "4", "10", "40", "100")))
SOME_RATIOS = tuple(map(Fraction, ("1/2", "2", "10", "40")))
ALL, SOME = (3, 4, 5, 6, 7, 8, 9, 10), (13, 20, 28, 40, 61)
"""N: with all K and ratios, and with some."""
SHARES = tuple(map(Fraction, ("1/3", "2/3", "5/6")))
"""Of the models' bytes that fit the device: at two thirds a third must be offloaded."""
EQUAL = "equal modules"
EXACTLY, BEST = "slot_local as merged", "the best of these"


@dataclass(frozen=True, slots=True)
class Question:
    """group: of modules.   costs: of a model.    budgets: of each of which there is a plan."""

    group: str
    costs: Costs
    budgets: tuple[int, ...]
    captured: bool
    parts: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """time, bound: of the plan.     others: of a pass, by what else fits; of every policy, and of
    vLLM's settings, it is the best with any number of slots, but ``EXACTLY`` has as many as fit."""

    group: str
    captured: bool
    parts: bool
    time: Fraction
    bound: Fraction
    others: dict[str, Fraction]


def questions() -> Iterator[Question]:
    """The whole grid, what takes longest first."""
    for model in MODELS:
        for ratio in SOME_RATIOS:
            costs = model(ratio)
            budgets = tuple(int(costs.whole * share) for share in SHARES)
            yield from _each(costs.model, costs, budgets)
    for modules in reversed(SOME):
        quarters = (2, modules // 4, modules // 2, modules * 3 // 4)
        for at, ratio in enumerate(RATIOS):
            yield from _each(EQUAL, equal(modules, ratio), slots_of(quarters[at % 2 :: 2]))
    for modules in reversed(ALL):
        for ratio in RATIOS:
            yield from _each(EQUAL, equal(modules, ratio), slots_of(range(1, modules)))


def tiny_questions() -> Iterator[Question]:
    """Four equal modules, and five layers of each model, of all kinds that it has."""
    ratio = Fraction(2)
    yield from _each(EQUAL, equal(4, ratio), slots_of(range(1, 4)))
    for model in MODELS:
        costs = model(ratio)
        (workload,) = costs.workloads
        modules, compute = costs.modules[2::13], workload.compute[2::13]
        few = replace(workload, compute=compute, between=(0,) * (len(modules) + 1))
        costs = replace(costs, modules=modules, workloads=(few,))
        yield from _each(costs.model, costs, (costs.whole * 2 // 3,))


def slots_of(numbers: Iterable[int]) -> tuple[int, ...]:
    """The memory of so many slots."""
    return tuple(number * UNIT for number in numbers)


def _each(group: str, costs: Costs, budgets: tuple[int, ...]) -> Iterator[Question]:
    """Of eager passes and of replays, by whole modules and by parts."""
    for captured in (False, True):
        for parts in (False, True):
            yield Question(group, costs, budgets, captured, parts)


def answers(question: Question) -> list[Answer]:
    """One for each budget."""
    costs = question.costs
    planner = Planner(costs, captured=question.captured, parts=question.parts)
    found = []
    for budget in question.budgets:
        plan = planner.plan(budget)
        others = {one.name.partition(",")[0]: one.time for one in plan.others}
        others[BEST] = min(others.values())
        merged = planner.option(as_merged(costs, budget))
        one = Answer(
            question.group,
            question.captured,
            question.parts,
            plan.time,
            plan.bound,
            {EXACTLY: merged.time} | others,
        )
        found.append(one)
    return found


def as_merged(costs: Costs, budget: int) -> Setting:
    """``slot_local`` with as many slots as fit."""
    modules = len(costs.modules)
    for slots in range(modules, 0, -1):
        schedule = slot_local(Ring(modules, slots))
        size = sum(schedule.slot_sizes(costs.sizes))
        if size <= budget - costs.resident:
            return Setting(EXACTLY, EXACTLY, size, partial(slot_local, Ring(modules, slots)))
    raise AssertionError("a plan fits, so one slot does")
