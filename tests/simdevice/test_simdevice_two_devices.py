"""Two devices in one process: an offload has one of them, the current one or not. A model that is
on both is two offloads, or is refused."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from proofs.cases import STREAMS
from runtime.unverified import offload_without_proof
from schedule import Ring, policies
from schedule.audit import audit
from schedule.errors import OffloadError
from tests.runtime.models import Block, assert_unchanged, copies_in, outputs, picture, stack
from tests.runtime.models import batches as narrow
from tests.simdevice.device import ADVERSARIES, NAME, SimDevice
from tests.simdevice.helpers import DEVICE, OTHER
from tests.simdevice.offloads import (
    MORE,
    WIDTH,
    Case,
    Layer,
    batches,
    from_the_start,
    line,
    same,
)

BOTH = (DEVICE, OTHER)
N, SLOTS, PASSES = 5, 2, 2
SEEDS = {"random": 6 * MORE, "compute": 3 * MORE, "copies": 3 * MORE}
TO_DEVICE = "host to device"


@pytest.fixture(params=BOTH)
def current(sim: SimDevice, request: pytest.FixtureRequest) -> Iterator[str]:
    """The current device; it stays that."""
    del sim
    index = torch.device(request.param).index
    with torch.accelerator.device_index(index):
        yield request.param
        assert torch.accelerator.current_device_index() == index


# ---- two offloads


class Split(nn.Module):
    """Half of its layers on each device."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.ModuleList(Layer(WIDTH, WIDTH) for _ in range(N))
        self.second = nn.ModuleList(Layer(WIDTH, WIDTH) for _ in range(N))
        self.devices: tuple[str, ...] = ("cpu", "cpu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for half, device in zip((self.first, self.second), self.devices, strict=True):
            x = x.to(device)
            for layer in half:
                x = layer(x)
        return x


class Across(nn.Module):
    """Runs a layer on the other device."""

    def __init__(self, layer: nn.Module, model: Split) -> None:
        super().__init__()
        self.layer, self.model = [layer], [model]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        here, there = self.model[0].devices
        (layer,) = self.layer
        back: torch.Tensor = layer(x.to(there)).to(here)
        return back


def nested(model: Split) -> Split:
    """A layer of the second half runs inside one of the first, too."""
    model.first[3].inside = (Across(model.second[0], model),)
    return model


def offloads(model: Split, policy: str = "chain") -> Iterator[runtime.Offloaded]:
    """Each half on its own device."""
    model.devices = BOTH
    for half, device in zip((model.first, model.second), BOTH, strict=True):
        yield runtime.offload(half, slots=SLOTS, policy=policy, device=device)


@pytest.mark.parametrize("policy", ["chain", "double_buffer", "rotating"])
def test_each_half_on_its_own_device(sim: SimDevice, current: str, policy: str) -> None:
    del current
    model, wanted = Split(), outputs(Split(), batches(PASSES))
    schedule = policies.named(policy)(Ring(N, SLOTS))
    with ExitStack() as stack:
        halves = [stack.enter_context(one) for one in offloads(model, policy)]
        for half in halves:
            torch.accelerator.synchronize(half.streams.device)
        sim.reset_counters()
        rounds = 0
        for adversary, number in SEEDS.items():
            for seed in range(number):
                with sim.steps(seed, adversary):
                    given = outputs(model, batches(PASSES))
                assert same(given, wanted), (adversary, seed)
                rounds += PASSES
        reports = [half.report() for half in halves]
        assert [report.copies for report in reports] == [copies_in(schedule, rounds)] * 2
        assert [report.misses for report in reports] == [0, 0]
        # A layer's weight and bias are one copy; so is each input.
        assert sim.counters().copies[TO_DEVICE] == 2 * copies_in(schedule, rounds) + rounds
        for half, device in zip(halves, BOTH, strict=True):
            assert_all_on(half, device)
            with half.trace() as trace, runtime.sanitize(half):
                assert same(outputs(model, batches(PASSES)), wanted)
            assert audit(trace).fits
    assert {str(one.device) for one in model.parameters()} == {"cpu"}


def assert_all_on(offloaded: runtime.Offloaded, device: str) -> None:
    """Slots, copy streams, and every event; one that was never recorded is on none yet."""
    streams = offloaded.streams
    assert {str(one.device) for one in offloaded.arena.slots} == {device}
    assert {str(one.device) for one in streams._copy_streams.values()} == {device}
    assert {str(one.device) for one in streams._events.values()} - {NAME} == {device}
    assert offloaded.report().device == device


def test_a_layer_of_one_half_may_run_inside_one_of_the_other(sim: SimDevice, current: str) -> None:
    del current
    model, wanted = nested(Split()), outputs(nested(Split()), batches(PASSES))
    with ExitStack() as stack:
        halves = [stack.enter_context(one) for one in offloads(model)]
        for adversary in ADVERSARIES:
            for seed in range(6 * MORE):
                with sim.steps(seed, adversary):
                    given = outputs(model, batches(PASSES))
                assert same(given, wanted), (adversary, seed)
        reports = [half.report() for half in halves]
    passes = PASSES * 6 * MORE * len(ADVERSARIES)
    assert [report.runs for report in reports] == [N * passes, (N + 1) * passes]
    assert all(report.copies > 0 for report in reports)


def test_there_the_old_rule_is_wrong(current: str) -> None:
    del current
    model, wanted = Split(), outputs(Split(), batches(PASSES))
    model.first.to(DEVICE)
    model.devices = BOTH
    with offload_without_proof(
        model.second, slots=SLOTS, policy="modular", output_may_be_wrong=True, device=OTHER
    ) as offloaded:
        assert not same(outputs(model, batches(PASSES)), wanted)
        assert offloaded.report().copies > 0


# ---- one offload on a device that is not current


@pytest.mark.parametrize("kind", ["skipped", "updated", "writing", "nested"])
def test_all_kinds_of_passes_on_a_device_that_is_not_current(sim: SimDevice, kind: str) -> None:
    gc.collect()
    before = torch.accelerator.memory_allocated(0)
    case = Case("chain", 5, 2, kind, device=OTHER)
    assert torch.accelerator.current_device_index() == 0
    with case.offloaded as offloaded:
        for adversary in ADVERSARIES:
            for seed in range(3 * MORE):
                assert case.right(sim, seed, adversary), case.replay(seed, adversary)
        assert_all_on(offloaded, OTHER)
        assert offloaded.report().copies > 0
        assert torch.accelerator.memory_allocated(0) == before


@pytest.mark.parametrize("streams", STREAMS)
def test_from_the_preload_there_to_a_close_while_the_host_is_ahead(
    sim: SimDevice, streams: str
) -> None:
    for adversary in ADVERSARIES:
        for seed in range(3 * MORE):
            arguments = (seed, adversary, "chain", 5, 2, "in order", streams, OTHER)
            assert from_the_start(sim, *arguments), line("replay_from_the_start", arguments)


@pytest.mark.parametrize("registers", [True, False])
def test_what_it_locks_is_locked_for_that_one(
    sim: SimDevice, registers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver, or in slabs of torch's allocator."""
    if not registers:
        monkeypatch.setattr("runtime.locked.registration_of", lambda _: None)
    case = Case("chain", 5, 2, device=OTHER)
    with case.offloaded as offloaded:
        report = offloaded.report()
        assert (report.bytes_locked > 0, report.bytes_pageable) == (True, 0)
        for adversary in ADVERSARIES:
            assert case.right(sim, 1, adversary)
        offloaded.refresh()
        assert case.right(sim, 2, "copies")


# ---- where a model is already


def test_by_default_a_model_stays_on_its_device(current: str) -> None:
    """That is the accelerator that any of it is on; else the current one."""
    wanted = outputs(stack(3), narrow(1))
    for home, there in (DEVICE, DEVICE), (OTHER, OTHER), ("cpu", current):
        model = stack(3)
        model.head.to(home)
        with runtime.offload(model, slots=1) as offloaded:
            assert_all_on(offloaded, there)
            assert same(outputs(model, [x.to(there) for x in narrow(1)]), wanted)
        assert str(model.head.weight.device) == home
        with offload_without_proof(
            model, slots=1, policy="chain", output_may_be_wrong=True
        ) as offloaded:
            assert_all_on(offloaded, there)


def whole(model: nn.Module) -> Any:
    return model


def layers(model: Any) -> Any:
    return model.layers


@pytest.mark.parametrize(
    ("part", "first", "second"),
    [(whole, "layers.0", "layers.2"), (layers, "modules[0]", "modules[2]")],
)
def test_a_model_on_both_is_refused_with_what_to_do(
    current: str, part: Callable[[nn.Module], Any], first: str, second: str
) -> None:
    """Unless it is said where it is to run."""
    del current
    model = stack(4)
    model.layers[0].to(DEVICE)
    model.layers[2].to(OTHER)
    before = picture(model)
    message = (
        f"{first}.up.weight is on {DEVICE} and {second}.up.weight on {OTHER}, but the slots of an "
        f"offload are on one device: offload the part on each device by itself, as a list of its "
        f"modules, or pass device='{DEVICE}' to run everything there"
    )
    for wrap in runtime.offload, door:
        with pytest.raises(OffloadError, match=f"^{re.escape(message)}$"):
            wrap(part(model), slots=2)
        assert_unchanged(model, before)
    for device in BOTH:
        with runtime.offload(model, slots=2, device=device) as offloaded:
            given = outputs(model, [x.to(device) for x in narrow(2)])
            assert same(given, outputs(stack(4), narrow(2)))
            assert_all_on(offloaded, device)
        assert_unchanged(model, before)
    assert isinstance(model.layers[2], Block)
    with runtime.offload(model.layers[2:3], slots=1) as offloaded:
        assert_all_on(offloaded, OTHER)


def door(model: Any, slots: int) -> runtime.Offloaded:
    return offload_without_proof(model, slots=slots, policy="chain", output_may_be_wrong=True)


def test_a_device_map_over_two_devices(sim: SimDevice) -> None:
    """Is refused while its hooks move the inputs, and afterwards since the layers are on both."""
    del sim
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(*stack(4).layers)
    accelerate.dispatch_model(model, {str(at): BOTH[at // 2] for at in range(4)})
    with pytest.raises(OffloadError, match=rf"a device_map over {DEVICE}, {OTHER}\)"):
        runtime.offload(model, list(model), slots=2)
    accelerate.hooks.remove_hook_from_submodules(model)
    with pytest.raises(OffloadError, match=rf"^0\.\S+ is on {DEVICE} and 2\.\S+ on {OTHER}, "):
        runtime.offload(model, list(model), slots=2)
    with runtime.offload(model, list(model), slots=2, device=OTHER) as offloaded:
        given = outputs(model, [x.to(OTHER) for x in narrow(2)])
        assert offloaded.report().copies > 0
    assert same(given, outputs(nn.Sequential(*stack(4).layers), narrow(2)))
