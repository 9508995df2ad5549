"""A plan, and a front of plans, as text."""

from __future__ import annotations

from collections.abc import Iterator

from schedule.costs import Costs
from schedule.explain import Explained, moved
from schedule.front import Front
from schedule.plan import Option, Plan
from schedule.spoken import listed, milliseconds, percent, size, table
from schedule.stalls import Stall

MOST_STALLS = 12
"""Of more modules that wait, those that do so longest; JSON has all."""


def subject(costs: Costs) -> str:
    """Which model, on what."""
    return f"{costs.model or 'a model'} on {costs.device or 'a device'}"


def purpose(costs: Costs, captured: bool) -> str:
    """For what it is planned."""
    counting = [one for one in costs.workloads if one.weight]
    mix = " : ".join(f"{one.name} {one.weight:g}" for one in counting)
    passes = "captured" if captured else "eager"
    return f"planned for {mix if len(counting) > 1 else counting[0].name}, {passes} passes"


def plan_text(found: Explained) -> str:
    """One plan: what it does with the memory, how good it is, what else there is, why it waits."""
    plan = found.plan
    lines = [f"{subject(plan.costs)}: {purpose(plan.costs, plan.captured)}", ""]
    lines += table(list(_memory(found)), left=(0, 1))
    if plan.is_resident:
        lines += ["", "The whole model fits: everything is resident, and nothing is copied."]
    lines += ["", *table(list(_workloads(found)), left=(0, 5))]
    if not plan.is_resident:
        lines += ["", *table(list(_others(found)))]
    for name in found.stalls:
        rows = list(_stalls(found, name))
        if rows:
            lines += [
                "",
                *table([(f"{name} waits for", "window", "copy", "stall", "why"), *rows], (0, 4)),
            ]
    return "\n".join(lines)


def _memory(found: Explained) -> Iterator[tuple[str, str]]:
    plan = found.plan
    names = [module.name for module in plan.costs.modules]
    yield "budget", f"{size(plan.budget)}; used {size(plan.memory)}, unused {size(plan.unused)}"
    if plan.costs.resident:
        yield "resident", f"{size(plan.costs.resident)}, which no plan moves"
    if found.whole:
        kept = sum(map(found.kept_of, found.whole))
        yield "kept whole", f"{size(kept)}: {listed(names, found.whole)}"
    for parts, modules in found.in_part.items():
        kept = sum(map(found.kept_of, modules))
        yield "kept in part", f"{size(kept)}: {', '.join(parts)} of {listed(names, modules)}"
    if found.copied:
        slots = ", ".join(f"{count} of {size(each)}" for each, count in found.slots.items())
        yield "slots", f"{slots}; {found.slot_map}"
        yield "copies", f"{float(found.copies):g} a pass, {size(found.moved)}"


def _workloads(found: Explained) -> Iterator[tuple[str, ...]]:
    plan = found.plan
    yield "", "pass time", "lower bound", "gap", "", "the bound's argument"
    for name, bound in found.bounds.items():
        time = plan.times[name]
        gap = float(time / bound.time) - 1 if bound.time else 0.0
        yield (
            name,
            milliseconds(time),
            milliseconds(bound.time),
            percent(gap),
            "",
            f"{bound.name}: {bound.argument}",
        )
    if len(found.bounds) > 1:
        yield "mix", milliseconds(plan.time), milliseconds(plan.bound), percent(plan.gap), "", ""


def _others(found: Explained) -> Iterator[tuple[str, ...]]:
    """The plan, and beside it what else the memory could be used for."""
    plan = found.plan
    several = len(plan.times) > 1
    yield ("", *plan.times, *(["mix"] if several else []), "ratio", "memory")
    mine = Option("planned", plan.memory, plan.times, plan.time)
    for one in (mine, *plan.others, *found.knobs):
        times = [*one.times.values(), *([one.time] if several else [])]
        ratio = float(one.time / plan.time) if plan.time else 1.0
        name = one.name if one.memory <= plan.budget else f"{one.name}, which does not fit"
        yield name, *map(milliseconds, times), f"{ratio:.3f}", size(one.memory)


def _stalls(found: Explained, workload: str) -> list[tuple[str, ...]]:
    """Modules that wait alike for the same reason are one row."""
    alike: dict[tuple[str, ...], list[Stall]] = {}
    for one in found.stalls[workload]:
        if one.time:
            window = "" if one.window is None else milliseconds(one.window)
            key = window, milliseconds(one.copy), milliseconds(one.time), one.reason
            alike.setdefault(key, []).append(one)
    longest = sorted(alike, key=lambda key: -sum(one.time for one in alike[key]))[:MOST_STALLS]
    names = [module.name for module in found.plan.costs.modules]
    rows = [
        (listed(names, (one.module for one in alike[key])), *key) for key in alike if key in longest
    ]
    rest = [one for key, modules in alike.items() if key not in longest for one in modules]
    if rest:
        waits = milliseconds(sum(one.time for one in rest))
        rows.append((f"and {len(rest)} more", "", "", f"{waits} in all", ""))
    return rows


def front_text(costs: Costs, front: Front, captured: bool) -> str:
    """A row a plan."""
    several = len(costs.workloads) > 1
    names = [one.name for one in costs.workloads]
    rows = [("memory", *names, *(["mix"] if several else []), "lower bound", "gap", "moved a pass")]
    for plan in front.plans:
        rows.append(_point(plan, several))
    return "\n".join([f"{subject(costs)}: {purpose(costs, captured)}", "", *table(rows, ())])


def _point(plan: Plan, several: bool) -> tuple[str, ...]:
    times = [*plan.times.values(), *([plan.time] if several else [])]
    return (
        size(plan.memory),
        *map(milliseconds, times),
        milliseconds(plan.bound),
        percent(plan.gap),
        size(moved(plan)),
    )
