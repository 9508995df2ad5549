"""A checkpoint goes from its file into locked host blocks and, of the rest, to the device; nowhere
else, by the device's own counters.
"""

from __future__ import annotations

import copy
import mmap
from pathlib import Path

import pytest
import torch

import runtime
from runtime.checkpoint import Stored
from schedule import OffloadError
from tests.runtime.checkpoints import on_meta, save
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import WIDTH, Stack, batches, same

pytest.importorskip("safetensors")

N, SLOTS, PAGE = 5, 2, mmap.PAGESIZE
# A layer's number, its weight, and its bias in the next 256 bytes, with its number once more.
BLOCK = 256 + 4 * WIDTH * WIDTH + 256
REST = 4 * WIDTH * (WIDTH + 1)


def test_each_tensor_goes_straight_to_its_place(sim: SimDevice, tmp_path: Path) -> None:
    plain, model = Stack(N), on_meta(lambda: Stack(N))
    path, objects = save(plain, tmp_path / "a.safetensors"), list(model.parameters())
    torch.accelerator.reset_peak_memory_stats(DEVICE)
    before, pinned = torch.accelerator.memory_allocated(DEVICE), sim.pinned().registered
    with (
        sim.steps(3, "copies"),
        runtime.load(model, path, slots=SLOTS, policy="balanced", device=DEVICE) as offloaded,
    ):
        assert sim.pinned().registered - pinned == N * -(-BLOCK // PAGE) * PAGE
        peak = torch.accelerator.max_memory_allocated(DEVICE)
        assert peak - before == SLOTS * BLOCK + REST
        assert sim.counters().bytes["host to device"] == SLOTS * BLOCK + REST
        assert sim.counters().copies["host to device"] == SLOTS + 2
        found = [model(x.to(DEVICE), range(N)) for x in batches(3)]
        assert offloaded.report().misses == 0
    assert same(found, [plain(x, range(N)) for x in batches(3)])
    assert [p.device.type for p in model.parameters()] == ["cpu"] * len(objects)
    assert all(a is b for a, b in zip(model.parameters(), objects, strict=True))
    assert same(list(model.parameters()), list(plain.parameters()))


def test_twin_with_two_tensors_swapped(sim: SimDevice, tmp_path: Path) -> None:
    del sim
    plain, model = Stack(N), on_meta(lambda: Stack(N))
    tensors = copy.copy(plain.state_dict())
    one, other = "layers.0.weight", "layers.4.weight"
    tensors[one], tensors[other] = tensors[other], tensors[one]
    path = save(tensors, tmp_path / "a.safetensors")
    with runtime.load(model, path, slots=SLOTS, device=DEVICE):
        found = [model(x.to(DEVICE), range(N)) for x in batches(3)]
    assert not same(found, [plain(x, range(N)) for x in batches(3)])


@pytest.mark.parametrize("read", [3, 10, 11])
def test_when_reading_fails_nothing_is_left(
    sim: SimDevice, read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a layer, and at each tensor of the rest."""
    model, path = on_meta(lambda: Stack(N)), save(Stack(N), tmp_path / "a.safetensors")
    objects, complete, names = list(model.parameters()), Stored.read, iter(range(read))

    def failing(stored: Stored) -> torch.Tensor:
        if next(names, None) is None:
            raise OffloadError("planned")
        return complete(stored)

    monkeypatch.setattr(Stored, "read", failing)
    before, pinned = torch.accelerator.memory_allocated(DEVICE), sim.pinned().registered
    with sim.no_shallow_copies(), pytest.raises(OffloadError, match="planned"):
        runtime.load(model, path, slots=SLOTS, device=DEVICE)
    assert torch.accelerator.memory_allocated(DEVICE) == before
    assert sim.pinned().asked == pinned
    assert all(a is b for a, b in zip(model.parameters(), objects, strict=True))
    assert {p.device.type for p in model.parameters()} == {"meta"}
