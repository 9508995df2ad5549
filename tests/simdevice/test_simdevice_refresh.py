"""A model that is changed while the host runs ahead, and refresh(): by the device's own counters.
A weight outside its run."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import runtime
from schedule.errors import OffloadError
from tests.runtime.changes import CHANGES, adapted, another_name, deleted, larger, replaced
from tests.runtime.models import (
    Stack,
    block_bytes,
    outputs,
    stack,
)
from tests.simdevice.ahead import INPUTS, N, allocated, offloaded_to, on_device, registered, seeds
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import same


@pytest.fixture
def here(sim: SimDevice) -> list[torch.Tensor]:
    """The inputs."""
    del sim
    return on_device()


# ---- changing


def slot_bytes(offloaded: runtime.Offloaded, model: Stack) -> list[int]:
    """Of each slot, those of the largest layer in it."""
    sizes = [0] * offloaded.schedule.ring.slots
    for layer, slot in zip(model.layers, offloaded.schedule.slot_of, strict=True):
        sizes[slot] = max(sizes[slot], block_bytes(layer))
    return sizes


def page_bytes(model: Stack) -> int:
    sizes = [math.ceil(block_bytes(layer) / mmap.PAGESIZE) for layer in model.layers]
    return mmap.PAGESIZE * sum(sizes)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_refresh_adopts_a_change_while_the_host_is_ahead(
    sim: SimDevice, here: list[torch.Tensor], change: Callable[[Stack], None], slots: int
) -> None:
    for seed, adversary in seeds(1):
        model, other = stack(N, uneven=True), stack(N, uneven=True)
        before, locked, wanted = allocated(), registered(sim), outputs(model, INPUTS)
        with offloaded_to(model, slots) as offloaded:
            device, old = allocated() - before, slot_bytes(offloaded, model)
            assert registered(sim) - locked == page_bytes(model)
            torch.manual_seed(5)
            with sim.steps(seed, adversary):
                first = outputs(model, here)
                change(model)
                offloaded.refresh()
                second = outputs(model, here)
            torch.manual_seed(5)
            change(other)
            assert same(first, wanted), (seed, adversary)
            assert same(second, outputs(other, INPUTS)), (seed, adversary)
            del first, second
            new = slot_bytes(offloaded, model)
            grown = sum(map(max, old, new)) - sum(old)
            assert allocated() - before - device == grown
            assert (grown > 0) == (change in (adapted, larger, another_name))
            # The old blocks are unregistered, the new ones are registered.
            assert registered(sim) - locked == page_bytes(model)
            assert offloaded.report().bytes_offloaded == sum(
                p.nbytes for p in model.layers.parameters()
            )
        assert registered(sim) == locked
        assert allocated() == before
        assert {p.device.type for p in model.parameters()} == {"cpu"}
        assert same(outputs(model, INPUTS), outputs(other, INPUTS))


@pytest.mark.parametrize("change", [adapted, deleted, replaced])
def test_until_then_it_is_an_error_and_nothing_moves(
    here: list[torch.Tensor], change: Callable[[Stack], None]
) -> None:
    model = stack(N, uneven=True)
    with offloaded_to(model) as offloaded:
        outputs(model, here)
        change(model)
        with pytest.raises(OffloadError, match=CHANGES[change]):
            outputs(model, here)
        offloaded.refresh()
        outputs(model, here)


# ---- weights outside their run


class Peeking(Stack):
    """Reads a layer's weight from outside."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[0](self.embed(x))
        return functional.linear(x, self.layers[self.peeks].down.weight.t())

    peeks = 0


@pytest.mark.parametrize("peeks", [0, 1])
def test_a_weight_read_outside_its_run_is_torch_s_device_error(
    sim: SimDevice, here: list[torch.Tensor], peeks: int
) -> None:
    torch.manual_seed(0)
    model = Peeking(stack(2).layers)
    model.peeks = peeks
    outputs(model, INPUTS)
    with offloaded_to(model, 1):
        for adversary in ADVERSARIES:
            with sim.steps(1, adversary):
                weight = model.layers[peeks].down.weight
                with pytest.raises(RuntimeError, match="to be on the same device"):
                    outputs(model, here)
                assert model.layers[peeks].down.weight is weight
                assert weight.device.type == "cpu"


# ---- tied, and within a budget


def test_tied_and_untied_after_wrapping(sim: SimDevice, here: list[torch.Tensor]) -> None:
    model = stack(4).requires_grad_(False)
    twin = stack(4).requires_grad_(False)
    with offloaded_to(model, slots=2) as offloaded:
        for seed in range(2):
            for one in model, twin:
                one.layers[1].up.weight = one.layers[0].up.weight
                one.head.weight = one.layers[3].down.weight
            offloaded.refresh()
            with sim.steps(seed):
                assert same(outputs(model, here), outputs(twin, INPUTS))
            for one in model, twin:
                for layer in one.layers[1].up, one.layers[3].down:
                    layer.weight = nn.Parameter(layer.weight.detach().cpu() + 1, False)
            offloaded.refresh()
            with sim.steps(seed):
                assert same(outputs(model, here), outputs(twin, INPUTS))
    assert same(outputs(model, INPUTS), outputs(twin, INPUTS))


@pytest.mark.parametrize("way", ["registered", "slabs"])
def test_what_a_load_replaced_is_locked_within_the_same_budget(
    sim: SimDevice, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sim
    if way == "slabs":
        monkeypatch.setattr("runtime.locked.registration_of", lambda _: None)
    model = stack(4).requires_grad_(False)
    budget = page_bytes(model)
    with runtime.offload(model, slots=2, pin=budget, device=DEVICE) as offloaded:
        first = offloaded.report()
        assert first.bytes_locked > 0
        for _ in range(3):
            values = {name: value.cpu() + 1 for name, value in model.state_dict().items()}
            model.load_state_dict(values, assign=True)
            report = offloaded.report()
            assert report.bytes_locked == first.bytes_locked <= budget
            assert report.bytes_pageable == first.bytes_pageable
