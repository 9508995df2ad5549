"""Layers of DTensors, by one process that is its own group: moved like every weight. What two ranks
do is in ``test_runtime_parallel``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import runtime
from runtime import unverified
from tests.runtime.models import WIDTH, Block, batches, outputs, same

distributed = pytest.importorskip("torch.distributed")
tensor_ = pytest.importorskip("torch.distributed.tensor")


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[nn.Sequential]:
    parallel = pytest.importorskip("torch.distributed.tensor.parallel")
    method = f"file://{tmp_path / 'group'}"
    distributed.init_process_group("gloo", init_method=method, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        torch.manual_seed(0)
        model = nn.Sequential(*(Block(2 * WIDTH) for _ in range(5)))
        plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
        for layer in model:
            parallel.parallelize_module(layer, mesh, plan)
        yield model
    finally:
        distributed.destroy_process_group()


def test_they_pass_through_the_slots(layers: nn.Sequential) -> None:
    wanted, inside = outputs(layers, batches(2)), []
    assert isinstance(layers[2].up.weight, tensor_.DTensor)
    with runtime.offload(layers, list(layers), slots=2, policy="chain") as offloaded:
        slots = [(s.data_ptr(), s.data_ptr() + s.numel()) for s in offloaded.arena.slots]

        def look(module: nn.Module, *_: object) -> None:
            at = module.weight.to_local().data_ptr()
            inside.append([first <= at < last for first, last in slots])

        handle = layers[2].up.register_forward_hook(look)
        assert same(outputs(layers, batches(2)), wanted)
        handle.remove()
        look(layers[2].up)
        assert offloaded.report().copies == 10
    assert inside == [[True, False], [True, False], [False, False]]
    with unverified.offload_without_proof(
        layers, list(layers), slots=2, policy="modular", output_may_be_wrong=True
    ):
        assert not same(outputs(layers, batches(2)), wanted)
