"""Plans made by hand, for what is done with a plan whoever made it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn

from runtime import Offloaded
from runtime.parts import device_name, modules_of, resident
from runtime.placement import laid_out
from runtime.select import select
from schedule import Ring, policies, verify
from schedule.costs import Costs, Link, Workload
from schedule.plan import Plan
from schedule.table import PRELOAD, RUN, Schedule
from tests.runtime.models import batches, outputs, same

MS = 10**6
CPU = torch.device("cpu")


def by_hand(
    costs: Costs, budget: int, slots: int, kept: Mapping[int, tuple[str, ...]], policy: str
) -> Plan:
    """A named policy's schedule, of whose modules these parts are kept."""
    verified = verify(policies.named(policy)(Ring(len(costs.modules), slots)))
    moved = []
    for at, module in enumerate(costs.modules):
        sizes = {part.name: part.size for part in module.parts}
        moved.append(module.size - sum(sizes[name] for name in kept.get(at, ())))
    stays = sum(costs.sizes) - sum(moved)
    sizes = [0] * slots
    for moment in verified.schedule.walk(1):
        sizes[moment.slot] = max(sizes[moment.slot], moved[moment.module])
    times = {one.name: Fraction(one.total) for one in costs.workloads}
    return Plan(
        costs=costs,
        budget=budget,
        captured=False,
        verified=verified,
        kept=tuple(kept.get(at, ()) for at in range(len(costs.modules))),
        moved=tuple(moved),
        memory=costs.resident + stays + sum(sizes),
        times=times,
        bounds=times,
        time=Fraction(sum(times.values())),
        bound=Fraction(1),
        others=(),
        exact=False,
    )


def plan_by_hand(
    monkeypatch: pytest.MonkeyPatch,
    slots: int,
    kept: Mapping[int, tuple[str, ...]],
    policy: str = "double_buffer",
) -> None:
    """Whatever is asked for, this is planned."""

    def plan(costs: Costs, budget: int, **_: Any) -> Plan:
        return by_hand(costs, budget, slots, kept, policy)

    monkeypatch.setattr("runtime.planning.plan", plan)


def bytes_in(schedule: Schedule, moved: tuple[int, ...]) -> int:
    """Bytes of all refills of a period, the preload apart."""
    refills = [m.module for m in schedule.walk(1) if m.half not in (RUN, PRELOAD)]
    return sum(moved[module] for module in refills)


def predicted(offloaded: Offloaded) -> int:
    """Bytes that a period of the plan copies."""
    assert offloaded.plan is not None
    return bytes_in(offloaded.plan.schedule, offloaded.plan.moved)


def costs_of(model: nn.Module, layers: Any = None) -> Costs:
    """Costs without a measurement: a module runs as long as a thousand bytes are copied."""
    selection = select(model, layers)
    modules = modules_of(laid_out(selection))
    number = len(modules)
    return Costs(
        modules,
        (Workload("decode", (MS,) * number, (0,) * (number + 1)),),
        Link(10**6, streams=0),
        resident(selection),
        device=device_name(CPU),
        torch=torch.__version__,
    )


def assert_right(model: nn.Module, plain: nn.Module, offloaded: Offloaded, passes: int = 2) -> None:
    """Bit for bit, with every byte that the plan copies, and no miss but in the first period, where
    weights may be others than those that were preloaded."""
    plan = offloaded.plan
    assert plan is not None
    period = plan.schedule.period
    inputs = batches(period)
    assert same(outputs(model, inputs), outputs(plain, inputs))
    before = offloaded.report()
    inputs = batches(passes * period, seed=2)
    assert same(outputs(model, inputs), outputs(plain, inputs))
    after = offloaded.report()
    assert after.copies - before.copies == passes * plan.schedule.copies
    assert after.bytes_copied - before.bytes_copied == passes * predicted(offloaded)
    assert after.misses == before.misses
    assert after.bytes_device <= plan.memory <= plan.budget
