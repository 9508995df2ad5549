"""Small models whose host runs ahead, and what the device says that they hold."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch
from torch import nn

import runtime
from tests.runtime.models import batches
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import MORE

INPUTS = batches(2)
N = 4


def on_device() -> list[torch.Tensor]:
    """The inputs, on the device, where nothing else is left from before."""
    gc.collect()
    there = [x.to(DEVICE) for x in INPUTS]
    torch.accelerator.synchronize()
    return there


def seeds(number: int = 2) -> Iterator[tuple[int, str]]:
    for adversary in ADVERSARIES:
        yield from ((seed, adversary) for seed in range(number * MORE))


def offloaded_to(model: nn.Module, slots: int = 2, policy: str = "chain") -> runtime.Offloaded:
    return runtime.offload(model, slots=slots, policy=policy, device=DEVICE)


def allocated() -> int:
    torch.accelerator.synchronize()
    return torch.accelerator.memory_allocated(0)


def registered(sim: SimDevice) -> int:
    return sim.pinned().registered
