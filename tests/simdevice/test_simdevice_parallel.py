"""A rank's part of a tensor-parallel model on the simulated device: DTensors pass through its
slots, and are on the host outside their runs, whatever device they were made on.

There is no other rank: its collectives leave what they are given as it is, for the plain model too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import runtime
from runtime.unverified import offload_without_proof
from tests.runtime.models import Block, Stack, outputs
from tests.runtime.tensor_parallel import INNER
from tests.simdevice.ahead import INPUTS, on_device, seeds
from tests.simdevice.device import NAME, SimDevice
from tests.simdevice.helpers import DEVICE

fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")


@pytest.fixture(params=[0, 1])
def rank(sim: SimDevice, request: pytest.FixtureRequest) -> Iterator[int]:
    """One of two ranks."""
    del sim
    distributed.init_process_group(
        f"cpu:fake,{NAME}:fake", store=fake.FakeStore(), rank=request.param, world_size=2
    )
    yield request.param
    distributed.destroy_process_group()


def parallel(home: str) -> Stack:
    """The layers are cut on the device, and go from there to their home, one after the other."""
    mesh = init_device_mesh(NAME, (2,))
    torch.manual_seed(0)
    model = Stack(map(Block, INNER)).eval().requires_grad_(False)
    plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan, src_data_rank=None).to(home)
    return model.to(DEVICE) if home == DEVICE else model


def devices(layer: nn.Module) -> set[str]:
    """Where its tensors are, by what they say themselves and by what they are made of."""
    weights = list(layer.parameters())
    assert all(isinstance(one, DTensor) for one in weights)
    return {str(at) for one in weights for at in (one.device, one.to_local().device)}


@pytest.mark.parametrize("home", ["cpu", DEVICE])
def test_right_under_every_seed(sim: SimDevice, rank: int, home: str) -> None:
    here = on_device()
    wanted = [one.cpu() for one in outputs(parallel(DEVICE), here)]
    model, seen = parallel(home), []
    parameters = dict(model.named_parameters())
    layer = model.layers[2]
    assert layer.up.weight.to_local().shape[0] == INNER[2] // 2 + (rank == 0)
    with runtime.offload(model, list(model.layers), slots=2, policy="chain") as offloaded:
        assert devices(layer) == {"cpu"}
        handle = layer.up.register_forward_hook(lambda *_: seen.append(devices(layer)))
        for seed, adversary in seeds():
            with sim.steps(seed, adversary), runtime.sanitize(offloaded):
                given = outputs(model, here)
            assert all(torch.equal(a.cpu(), b) for a, b in zip(given, wanted, strict=True))
        handle.remove()
        report = offloaded.report()
        assert report.copies == report.runs == len(seen) * len(INNER) > 0
        assert report.misses == 0
        assert devices(layer) == {"cpu"}
        # Detached: torch refuses one that says it is elsewhere than what it is made of.
        saved = {name: one.clone() for name, one in model.state_dict().items()}
        assert str(saved["layers.2.up.weight"].device) == "cpu"
        for factor in 2, 1:
            model.load_state_dict({name: factor * one for name, one in saved.items()})
            again = outputs(model, here)
            assert torch.equal(again[0].cpu(), wanted[0]) == (factor == 1)
    assert seen == [{DEVICE}] * len(seen)
    assert devices(layer) == {home}
    assert all(one is parameters[name] for name, one in model.named_parameters())


def test_the_old_rule_is_wrong_there(sim: SimDevice, rank: int) -> None:
    del rank
    here = on_device()
    wanted, model = outputs(parallel(DEVICE), here), parallel(DEVICE)
    with (
        sim.steps(0),
        offload_without_proof(
            model, list(model.layers), slots=2, policy="modular", output_may_be_wrong=True
        ),
    ):
        given = outputs(model, here)
    assert len(INPUTS) == len(given)
    assert not any(torch.equal(a.cpu(), b.cpu()) for a, b in zip(given, wanted, strict=True))
