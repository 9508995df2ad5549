"""Beside the slots: the rest of the model, and the caches that generate() makes, are on the
device that the layers run on; and so are kept layers and parameters that no filter matches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from tests.runtime.caches import CACHES, LAYERS, TOKENS, ask, built, same_answer, tensors
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER
from tests.simdevice.offloads import WIDTH, Layer, Stack, batches

pytestmark = pytest.mark.usefixtures("sanitized")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", LAYERS)
def test_caches_are_where_the_layers_run(sim: SimDevice, kind: str, cache: str) -> None:
    wanted, model = ask(built(kind), cache), copy.deepcopy(built(kind))
    with runtime.offload(model, LAYERS[kind], slots=2, device=DEVICE) as offloaded, sim.steps(1):
        sim.reset_counters()
        answer = ask(model, cache, DEVICE)
        assert same_answer(answer, wanted)
        assert model.device == torch.device(DEVICE)
        kept = list(tensors(answer))
        assert len(kept) >= 6
        assert {str(tensor.device) for tensor in kept} == {DEVICE}
        for one, other in zip(kept, tensors(wanted), strict=True):
            assert torch.equal(one.cpu(), other)
        report = offloaded.report()
        assert (report.misses, report.copies) == (0, TOKENS * offloaded.schedule.copies)
    with (
        offload_without_proof(
            model,
            LAYERS[kind],
            slots=2,
            policy="modular",
            output_may_be_wrong=True,
            device=DEVICE,
        ),
        sim.steps(1),
    ):
        assert not same_answer(ask(model, cache, DEVICE), wanted)


class Pair(nn.Module):
    """Two layers, of which one may be offloaded alone."""

    def __init__(self) -> None:
        super().__init__()
        self.expert, self.gate = Layer(WIDTH, WIDTH), Layer(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.expert(x) * self.gate(x)


@pytest.mark.parametrize("device", [DEVICE, OTHER])
def test_kept_layers_and_unmatched_parameters_are_on_the_device(
    sim: SimDevice, device: str
) -> None:
    plain = Stack(6)
    plain.layers = nn.ModuleList(Pair() for _ in range(6))
    model, order = copy.deepcopy(plain), range(6)
    options: dict[str, Any] = {"group_size": 2, "keep": "layers.1", "parameters": "expert"}
    with runtime.offload(model, slots=1, device=device, **options) as offloaded, sim.steps(1):
        assert offloaded.selection.names == ("layers.3", "layers.5")
        there = {name for name, p in model.named_parameters() if str(p.device) == device}
        away = {f"layers.{i}.expert.{kind}" for i in (3, 5) for kind in ("weight", "bias")}
        assert {name for name, _ in model.named_parameters()} - there == away
        inputs = [x.to(device) for x in batches(3)]
        sim.reset_counters()
        for x in inputs:
            assert torch.equal(model(x, order).cpu(), plain(x.cpu(), order))
        assert offloaded.report().misses == 0
        # Two experts a pass through one slot: number, weight and bias at multiples of 256.
        assert sim.counters().copies["host to device"] == 3 * 2
        assert sim.counters().bytes["host to device"] == 3 * 2 * (256 + 4 * WIDTH * WIDTH + 256)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
