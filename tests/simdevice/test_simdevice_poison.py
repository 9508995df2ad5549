"""In every test here a slot is poisoned as soon as nobody may read it. That shows what values alone
do not: without it these breaks are right by luck."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import outputs
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import WIDTH, Case, batches, same
from tests.simdevice.test_simdevice_fences import without

by_luck = pytest.mark.parametrize(
    "by_luck",
    [False, pytest.param(True, marks=pytest.mark.unpoisoned)],
    ids=["poisoned", "unpoisoned"],
)


@by_luck
@pytest.mark.parametrize("fence", ["wait for what ran", "wait for what landed"])
def test_a_missing_fence_shows_where_a_module_is_copied_over_itself(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, fence: str, by_luck: bool
) -> None:
    """Old bytes and new ones are the same."""
    with without(monkeypatch, fence):
        case = Case("slot_local", 3, 3)
    adversary = "compute" if "ran" in fence else "copies"
    with case.offloaded:
        assert case.offloaded.schedule.copies == 3
        assert all(case.right(sim, seed, adversary) for seed in range(8)) == by_luck


class Again(nn.Module):
    """Reads each layer's weight once more when the layer has run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            seen: list[torch.Tensor] = []
            handle = layer.register_forward_pre_hook(
                lambda layer, _, seen=seen: seen.append(layer.weight)
            )
            x = layer(x)
            handle.remove()
            x = torch.tanh(x @ seen[0])
        return x


@by_luck
def test_a_slot_that_is_read_after_the_run_shows(
    sim: SimDevice, by_luck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refill is late, so that the slot still holds what was there."""
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)  # which refuses it
    model, inputs = Again(), batches(1)
    wanted = outputs(copy.deepcopy(model), inputs)
    with runtime.offload(model, list(model.layers), slots=2, policy="chain", device=DEVICE):
        here = [x.to(DEVICE) for x in inputs]
        with sim.steps(1, "copies"):
            given = outputs(model, here)
    assert same(given, wanted) == by_luck
