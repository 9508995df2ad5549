"""Plans on the simulated device: what stays is there, what is copied is what was predicted, and
the device holds no byte more than the plan says."""

from __future__ import annotations

import copy
import gc
import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.link import Lane
from runtime.parts import device_name, modules_of, resident
from runtime.placement import laid_out
from runtime.profile import profiled
from runtime.select import select
from schedule.costs import Costs, Link, Workload
from schedule.operations import COPY
from tests.runtime.models import Block, Stack, batches, outputs, same, stack
from tests.runtime.plans import plan_by_hand, predicted
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE

H2D = "host to device"
KEPT = {1: ("up.weight",), 2: ("up.weight", "down.weight"), 4: ("down.weight",)}


def costs_of(model: Stack) -> Costs:
    """Costs by which a pass is bound by its copies."""
    selection = select(model)
    modules = modules_of(laid_out(selection))
    number = len(modules)
    return Costs(
        *(modules, (Workload("decode", (10**6,) * number, (0,) * (number + 1)),)),
        *(Link(10**6), resident(selection)),
        device=device_name(torch.device(DEVICE)),
        torch=torch.__version__,
    )


def kept_in(model: Stack) -> list[torch.Tensor]:
    return [model.layers[at].get_parameter(name) for at, names in KEPT.items() for name in names]


def assert_right(offloaded: Offloaded, plain: Stack, sim: SimDevice, seed: int = 1) -> None:
    """Bit for bit, and the bytes of a period are those that the plan foretells."""
    plan, model = offloaded.plan, offloaded.selection.root
    assert plan is not None
    assert model is not None
    period = plan.schedule.period
    inputs = [x.to(DEVICE) for x in batches(2 * period)]
    expected = outputs(plain, batches(2 * period))
    for number in range(3):
        with sim.steps(seed + number, ADVERSARIES[number % len(ADVERSARIES)]):
            torch.accelerator.synchronize(DEVICE)
            before = sim.counters()
            given = outputs(model, inputs)
            torch.accelerator.synchronize(DEVICE)
            after = sim.counters()
        assert same([one.cpu() for one in given], expected)
        assert after.copies[H2D] - before.copies.get(H2D, 0) == 2 * plan.schedule.copies
        assert after.bytes[H2D] - before.bytes.get(H2D, 0) == 2 * predicted(offloaded) > 0
    assert offloaded.report().misses == 0


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_plan_is_run_bit_for_bit(share: float, sim: SimDevice) -> None:
    model = stack(7, uneven=True)
    plain, costs = copy.deepcopy(model), costs_of(model)
    budget = costs.resident + int(share * sum(costs.sizes))
    with runtime.offload(model, memory=budget, costs=costs, device=DEVICE) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.report().bytes_device <= offloaded.plan.memory <= budget
        assert_right(offloaded, plain, sim)


def test_kept_parts_live_on_the_device(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_by_hand(monkeypatch, 3, KEPT)
    model = stack(5, uneven=True)
    plain = copy.deepcopy(model)
    with runtime.offload(model, memory="1 MB", costs=costs_of(model), device=DEVICE) as offloaded:
        assert {part.device.type for part in kept_in(model)} == {"simdev"}
        others = {id(part) for part in model.layers.parameters()} - set(map(id, kept_in(model)))
        assert {p.device.type for p in model.layers.parameters() if id(p) in others} == {"cpu"}
        assert_right(offloaded, plain, sim)
        model.layers[2].up.weight = nn.Parameter(torch.full_like(plain.layers[2].up.weight, 2))
        plain.layers[2].up.weight.fill_(2)
        offloaded.refresh()
        assert model.layers[2].up.weight.device.type == "simdev"
        outputs(model, [x.to(DEVICE) for x in batches(1)])
        assert offloaded.report().misses == 3  # what the slots held is loaded again
        given = outputs(model, [x.to(DEVICE) for x in batches(2)])
        assert same([one.cpu() for one in given], outputs(plain, batches(2)))
    assert {part.device.type for part in model.parameters()} == {"cpu"}


def test_the_device_holds_what_the_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model whose weights need no alignment it is exactly that, and exactly that is
    allocated there."""
    plan_by_hand(monkeypatch, 2, {0: ("up.weight",), 3: ("down.weight",)})
    model = stack(4)
    gc.collect()  # of earlier tests
    before = torch.accelerator.memory_allocated(0)
    with runtime.offload(model, memory="1 MB", costs=costs_of(model), device=DEVICE) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.report().bytes_device == offloaded.plan.memory
        assert torch.accelerator.memory_allocated(0) - before == offloaded.plan.memory


def test_several_copy_streams_are_those_of_the_costs(sim: SimDevice) -> None:
    model = stack(6, uneven=True)
    plain = copy.deepcopy(model)
    costs = replace(costs_of(model), link=Link(10**6, streams=2))
    budget = costs.resident + sum(costs.sizes) // 2
    with runtime.offload(model, memory=budget, costs=costs, device=DEVICE) as offloaded:
        assert len(offloaded.program.streams.copies) == 2
        assert_right(offloaded, plain, sim)


def test_everything_fits(sim: SimDevice) -> None:
    model = stack(4, uneven=True)
    plain, costs = copy.deepcopy(model), costs_of(model)
    with runtime.offload(model, memory=costs.whole, costs=costs, device=DEVICE) as offloaded:
        before = sim.counters().copies[H2D]
        inputs = [x.to(DEVICE) for x in batches(3)]
        given = outputs(model, inputs)
        assert same([one.cpu() for one in given], outputs(plain, batches(3)))
        assert sim.counters().copies[H2D] == before + 3  # the inputs
        assert offloaded.plan is not None
        assert offloaded.plan.is_resident


def test_a_captured_pass_has_the_plans_bytes(sim: SimDevice) -> None:
    model = Stack([Block(1000 + 500 * number) for number in range(6)]).eval()
    plain, costs = copy.deepcopy(model), costs_of(model)
    budget = costs.resident + sum(costs.sizes) // 2
    with runtime.offload(
        model, memory=budget, costs=costs, device=DEVICE, static=True
    ) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.plan.captured
        x = batches(1)[0].to(DEVICE)
        graph = offloaded.capture(lambda: model(x))
        graph.replay()
        before = offloaded.report().bytes_copied
        with sim.steps(seed=3, adversary="copies"):
            graph.replay()
        assert offloaded.report().bytes_copied - before == predicted(offloaded) > 0
        assert same([graph.output.cpu()], outputs(plain, batches(1)))


# ---- profile


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 18)


@pytest.mark.usefixtures("small")
def test_a_profile_and_its_plan(sim: SimDevice, timing: str) -> None:
    del timing
    model = stack(5, uneven=True)
    plain = copy.deepcopy(model)
    x = batches(1)[0].to(DEVICE)
    before = sim.counters().copies.get(H2D, 0)
    found = profiled(model, inputs={"decode": (x,)}, device=DEVICE)
    assert sim.counters().copies[H2D] > before + 3 * 5  # beside each run, too
    costs = found.costs
    assert {one.device.type for one in model.parameters()} == {"cpu"}
    assert (costs.device, costs.link.streams) == ("simdev", 1)
    assert all(0 < time < 10**9 for time in costs.workloads[0].compute)
    assert all(0 < time < 10**9 for time in found.alone[0])
    assert [len(one.between) for one in costs.workloads] == [6]
    budget = costs.resident + sum(costs.sizes) // 2
    with runtime.offload(model, memory=budget, costs=costs, device=DEVICE):
        given = outputs(model, [one.to(DEVICE) for one in batches(3)])
        assert same([one.cpu() for one in given], outputs(plain, batches(3)))


@pytest.mark.usefixtures("small")
def test_a_model_that_does_not_fit_is_profiled(sim: SimDevice) -> None:
    """Module by module: the device has room for two of them and what is measured with."""
    model = stack(12)
    for layer in model.layers:
        layer.up, layer.down = nn.Linear(8, 20_000), nn.Linear(20_000, 8)
    whole = sum(parameter.nbytes for parameter in model.parameters())
    x = batches(1)[0].to(DEVICE)
    with sim.device_fails_at(whole // 2):
        with pytest.raises(torch.OutOfMemoryError):
            copy.deepcopy(model).to(DEVICE)
        costs = profiled(model, inputs={"decode": (x,)}, device=DEVICE).costs
        assert sum(costs.sizes) > whole
        with runtime.offload(model, memory=whole // 3, costs=costs, device=DEVICE) as offloaded:
            outputs(model, [x])
            assert offloaded.report().copies > 0


@pytest.mark.usefixtures("small")
def test_beside_each_run_a_copy_lasts_longer(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real time, what was measured beside a copy was beside one until its end."""
    seen: list[bool] = []

    def covered(passes: Any) -> tuple[int, ...]:
        seen.extend(one for found in passes for one in found.covered)
        return (1,) * len(passes[0].compute)

    monkeypatch.setattr(importlib.import_module("runtime.profile"), "covered", covered)
    x = batches(1)[0].to(DEVICE)
    with sim.threads(1, "copies", microseconds=2000):
        profiled(stack(3), inputs={"decode": (x,)}, device=DEVICE)
        assert len(seen) == 3 * 7
        assert sum(seen) > 10
        seen.clear()
        monkeypatch.setattr(Lane, "load", lambda lane, *_: lane.streams.mark(COPY))
        profiled(stack(3), inputs={"decode": (x,)}, device=DEVICE)
    assert len(seen) == 3 * 7
    assert sum(seen) < 4  # it ended before
