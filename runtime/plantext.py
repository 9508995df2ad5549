"""A plan in words."""

from __future__ import annotations

from runtime.sizes import counted, megabytes
from schedule.plan import Plan
from schedule.spoken import milliseconds


def sentence(plan: Plan) -> str:
    """The plan for people: memory, time, and what stays."""
    memory = f"{megabytes(plan.memory)} of {megabytes(plan.budget)} on the device"
    if plan.is_resident:
        return (
            f"the whole model fits: {memory}, {megabytes(plan.unused)} unused; nothing is copied "
            f"after the preload"
        )
    passes = "; ".join(
        f"{name} {milliseconds(time)}, at least {milliseconds(plan.bounds[name])}"
        for name, time in plan.times.items()
    )
    return (
        f"{memory}, {megabytes(plan.unused)} unused; a pass in this memory, predicted: {passes}"
        f"{_kept(plan)}"
    )


def _kept(plan: Plan) -> str:
    whole, parts = len(plan.schedule.kept()), sum(map(len, plan.kept))
    modules = sum(map(bool, plan.kept))
    found = [f"{counted(whole, 'module')} whole"] if whole else []
    if parts:
        found.append(f"{counted(parts, 'part')} of {counted(modules, 'module')}")
    return f"; kept are {' and '.join(found)}" if found else ""
