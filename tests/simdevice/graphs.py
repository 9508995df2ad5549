"""An offloaded model on the simulated accelerator whose passes are captured and replayed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import runtime
from schedule import Ring, policies
from schedule.policy import NAMED
from tests.runtime.models import WIDTH, Block
from tests.simdevice.helpers import DEVICE

CLOSED = tuple(name for name, one in NAMED.items() if one(Ring(5, 2)).period == 1)
"""Policies whose schedule, for 5 modules and 2 slots, is where it began after one pass."""
SAFE = tuple(name for name in CLOSED if name != "modular")


class Walked(nn.Module):
    """Runs these of its layers, in any order, and adds up what it saw in place, as a cache would:
    so that a run which is done twice, or not at all, shows."""

    def __init__(self, modules: int, *, uneven: bool = False) -> None:
        super().__init__()
        torch.manual_seed(modules)
        inner = [WIDTH + 24 * (i * 5 % 7) if uneven else WIDTH for i in range(modules)]
        self.layers = nn.ModuleList(map(Block, inner))
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.requires_grad_(False).eval()

    def forward(self, x: torch.Tensor, order: Sequence[int] | None = None) -> torch.Tensor:
        for index in range(len(self.layers)) if order is None else order:
            x = torch.tanh(self.layers[index](x))
            self.seen.mul_(0.5).add_(x.mean(0))
        return x + self.seen


class Pair:
    """A model, offloaded, and the same one whole on the host.

    inputs: what a pass reads, on the device, always in the same memory.
    """

    def __init__(
        self,
        modules: int = 5,
        slots: int = 2,
        policy: str = "chain",
        *,
        offload: Callable[..., runtime.Offloaded] = runtime.offload,
        uneven: bool = False,
        **options: Any,
    ) -> None:
        self.plain = Walked(modules, uneven=uneven)
        self.model = copy.deepcopy(self.plain)
        layers = list(self.model.layers)
        self.offloaded = offload(
            self.model, layers, slots=slots, policy=policy, device=DEVICE, **options
        )
        self.inputs = torch.zeros(3, WIDTH, device=DEVICE)
        self._x = torch.zeros(3, WIDTH)
        self._number = 0

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.offloaded.close()

    def capture(self, order: Sequence[int] | None = None) -> runtime.Captured:
        """A graph of a pass over these; the run to warm up counts."""
        captured = self.offloaded.capture(lambda: self.model(self.inputs, order))
        self.plain(self._x, order)
        return captured

    def feed(self) -> None:
        """Other inputs."""
        self._number += 1
        self._x = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(self._number))
        self.inputs.copy_(self._x)

    def wanted(self, order: Sequence[int] | None = None) -> torch.Tensor:
        """What the next pass over these must give; it counts as a pass of the whole model."""
        return self.plain(self._x, order).clone()

    def eager(self, order: Sequence[int] | None = None) -> bool:
        """Whether a pass with hooks is right, bit for bit."""
        self.feed()
        given = self.model(self.inputs, order)
        return torch.equal(given.cpu(), self.wanted(order))

    def replayed(self, captured: runtime.Captured, order: Sequence[int] | None = None) -> bool:
        """Whether a replay of a graph of this order is right, bit for bit."""
        self.feed()
        captured.replay()
        return torch.equal(captured.output.cpu(), self.wanted(order))

    @property
    def counts(self) -> tuple[int, int, int]:
        """Runs, copies after the preload, misses."""
        report = self.offloaded.report()
        return report.runs, report.copies, report.misses


def copies(policy: str, modules: int = 5, slots: int = 2) -> int:
    """Copies a pass."""
    return policies.named(policy)(Ring(modules, slots)).copies
