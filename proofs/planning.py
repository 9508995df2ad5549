"""Claim 12: what a planner returns, against every static slot map and every choice of kept parts.

Each of them is timed by its program's own recurrence, and its bytes are counted here, slot by slot;
the planner has a quick reckoning of its own, and leaves most of them out. What it returns is looked
at as any schedule is: by the local check, by the ordering of its program, by its certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from random import Random
from typing import Any

from proofs.obligation import System
from proofs.search import Search
from schedule.certificate import document
from schedule.costs import SECOND, Costs, Link, Module, Part, Workload
from schedule.graphs import lower_captured
from schedule.order import order
from schedule.policy import Policy
from schedule.program import lower
from schedule.recheck import Refuted, recheck
from schedule.ring import Ring
from schedule.table import Refill, Schedule
from schedule.timing import pass_time, steady

BOUND = 6
PARTS = 4
"""Models of more modules are not cut into parts."""
MODELS = 4
"""So many models of each number of modules, each of them eager and captured."""


@dataclass(frozen=True, slots=True)
class Static:
    """A static slot map. moved: by module, the bytes of a refill.   memory: bytes of all slots, and
    of what is kept beside them.     time: nanoseconds of a pass, of the mix of workloads."""

    slot_of: tuple[int, ...]
    moved: tuple[int, ...]
    memory: int
    time: Fraction

    def __str__(self) -> str:
        return f"slots {self.slot_of}, refills of {self.moved} bytes, take {self.time}"


def planning(system: System, modules: int) -> Search:
    """Claim 12, of models of so many modules: the first plan that is not the best, or not what it
    says it is."""
    looked_at = 0
    for number, captured in product(range(MODELS), (False, True)):
        costs = model(modules, number)
        planner = system.plan.Planner(costs, captured=captured)
        every = [*statics(costs, captured)]
        for memory in budgets(every):
            looked_at += 1
            best = min((one for one in every if one.memory <= memory), key=lambda one: one.time)
            wrong = wrong_with(planner.plan(costs.resident + memory), best)
            if wrong:
                how = "captured" if captured else "eager"
                found = f"N={modules}, model {number}, {how}, {memory} bytes: {wrong}"
                return Search(looked_at, found)
    return Search(looked_at)


def wrong_with(plan: Any, best: Static) -> str | None:
    """What is not as claimed of this plan, in words. best: of all that fit."""
    costs, schedule, captured = plan.costs, plan.schedule, plan.captured
    if plan.time > best.time or not plan.exact:
        return f"it takes {plan.time}{'' if plan.exact else ', not exact'}; {best}"
    kept = [
        sum(part.size for part in module.parts if part.name in names)
        for module, names in zip(costs.modules, plan.kept, strict=True)
    ]
    if [one + moved for one, moved in zip(kept, plan.moved, strict=True)] != [*costs.sizes]:
        return f"{plan.kept} are kept and {plan.moved} bytes moved of {costs.sizes}"
    memory = costs.resident + bytes_of(schedule.slot_of, plan.moved, costs.sizes)
    if not plan.memory == memory <= plan.budget:
        return f"it needs {memory} bytes and says {plan.memory}"
    for workload in costs.workloads:
        time = pass_time(schedule, costs.times(workload, plan.moved), captured)
        if time != plan.times[workload.name]:
            return f"{workload.name} takes {time} and not {plan.times[workload.name]}"
        if plan.bounds[workload.name] > time:
            return f"{workload.name} takes {time}, less than {plan.bounds[workload.name]}"
    streams = costs.link.copy_streams
    program = (lower_captured if captured else lower)(schedule, streams)
    if not order(program.listing(2), streams).safe:
        return "its program is not ordered"
    try:
        recheck(document(plan.verified))
    except Refuted as error:
        return f"its certificate is refused: {error}"
    return None


def budgets(every: Sequence[Static]) -> list[int]:
    """Where more memory helps, and a byte less than there."""
    found, best = set[int](), None
    for one in sorted(every, key=lambda one: (one.memory, one.time)):
        if best is None or one.time < best:
            # The first is the least for which there is a plan.
            found |= {one.memory} if best is None else {one.memory - 1, one.memory}
            best = one.time
    return sorted(found)


def statics(costs: Costs, captured: bool) -> Iterator[Static]:
    """Every static map with every choice of kept parts, its refills as slots fall free and in the
    order of use."""
    sizes = costs.sizes
    for slot_of in partitions(len(sizes)):
        alone = [slot_of.count(slot) == 1 for slot in slot_of]
        schedules = as_slots_fall_free(slot_of), in_order_of_use(slot_of)
        # What is kept of a module that has a slot for itself is never copied either way.
        every = [
            {module.size} if one else _sums(module)
            for module, one in zip(costs.modules, alone, strict=True)
        ]
        for moved in product(*every):
            memory = bytes_of(slot_of, moved, sizes)
            for schedule in dict.fromkeys(schedules):
                time = mixed(schedule, costs, moved, captured)
                yield Static(slot_of, moved, memory, time)


def partitions(modules: int) -> Iterator[tuple[int, ...]]:
    """Every way to share out modules among slots, slots numbered as they are first used."""
    if modules == 0:
        yield ()
    for before in partitions(modules - 1) if modules else ():
        for slot in range(max(before, default=-1) + 2):
            yield *before, slot


def _sums(module: Module) -> set[int]:
    """What may move of a module, at least a byte."""
    parts = module.parts
    kept = (some for number in range(len(parts) + 1) for some in combinations(parts, number))
    return {module.size - sum(part.size for part in some) for some in kept} - {0}


def bytes_of(slot_of: Sequence[int], moved: Sequence[int], sizes: Sequence[int]) -> int:
    """Of all slots, each as large as the largest refill into it, and of what does not move. Steps
    may be those of several passes."""
    through: dict[int, list[int]] = {}
    for step, slot in enumerate(slot_of):
        through.setdefault(slot, []).append(moved[step % len(moved)])
    return sum(map(max, through.values())) + sum(sizes) - sum(moved)


def mixed(schedule: Schedule, costs: Costs, moved: Sequence[int], captured: bool) -> Fraction:
    """The mean time of a pass, by the workloads' weights."""
    total = weights = Fraction(0)
    for one in costs.workloads:
        weight = Fraction(one.weight)
        total += weight * steady(schedule, costs.times(one, moved), captured).time
        weights += weight
    return total / weights


def as_slots_fall_free(slot_of: Sequence[int]) -> Schedule:
    """Each slot is refilled with its next user after each run."""
    ring = Ring(len(slot_of), max(slot_of) + 1)
    return Policy("derived", lambda step, _: slot_of[step])(ring)


def in_order_of_use(slot_of: Sequence[int]) -> Schedule:
    """The same refills, but none before those that are used earlier. It is only timed: there is no
    preload."""
    modules = len(slot_of)
    after: list[list[Refill]] = [[] for _ in slot_of]
    latest = 0
    # In the third pass all goes as it ever will.
    for step in range(modules, 3 * modules):
        slot = slot_of[step % modules]
        before = max(one for one in range(step) if slot_of[one % modules] == slot)
        if before % modules != step % modules:
            latest = max(latest, before)
            if step >= 2 * modules:
                after[latest % modules].append(Refill(slot, step % modules))
    # After one run those of this pass come before those of the next.
    rows = tuple(
        tuple(sorted(refills, key=lambda one: (one.module <= at, one.module)))
        for at, refills in enumerate(after)
    )
    none = ((),) * modules
    ring = Ring(modules, max(slot_of) + 1)
    return Schedule(ring, "in order of use", tuple(slot_of), (), ((),), none, rows, ((),))


def model(modules: int, number: int) -> Costs:
    """One of the models of so many modules: equal ones first, then others, with parts if there are
    few, of one kind of pass or two, on one copy stream, two, or none."""
    random = Random(f"{modules} modules, model {number}")
    unequal = number > 0

    def some(least: int, most: int) -> int:
        return random.randint(least, most) if unequal else most

    def parts() -> tuple[Part, ...]:
        most = 3 if modules < PARTS else 1
        count = random.randint(1, most) if modules <= PARTS and unequal else 0
        return tuple(Part(f"part {one}", some(1, 3)) for one in range(count))

    found = tuple(
        Module(f"module {one}", parts(), some(0 if modules <= PARTS else 1, 4))
        for one in range(modules)
    )
    rest = 2 if number % 2 else 0
    workloads = tuple(
        Workload(
            name,
            tuple(some(0, most) for _ in range(modules)),
            tuple(random.randint(0, rest) for _ in range(modules + 1)),
            weight,
        )
        for name, most, weight in (("decode", 2, 1.0), ("prefill", 9, 0.5))[: 1 + number % 2]
    )
    link = Link(SECOND, random.randint(0, 1) if unequal else 0, (1, 1, 2, 0)[number % 4])
    return Costs(found, workloads, link, resident=10 * number)
