"""Models offloaded to the simulated accelerator, and whether what they give is right under a seed.

Each seed starts where the one before ended: with slots full, and at the start of a period. A round
without a seed comes first, so that a seed alone does what it did among others, and its line
replays it.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

import runtime
from proofs.cases import STREAMS
from schedule import policies
from schedule.program import lower
from schedule.ring import Ring
from tests.simdevice.device import SimDevice, start
from tests.simdevice.helpers import DEVICE

WIDTH = 32
MORE = int(os.environ.get("SIMDEVICE_SEEDS", "1"))
SAFE = tuple(name for name in policies.NAMED if name != "modular")
ONE, IN_ORDER = "one copy stream", "in order"


class Layer(nn.Linear):
    """Changes what the next one sees; one that writes also changes its own weights. Those inside
    run within its forward, before it reads its weights once more."""

    writes = False
    inside: tuple[nn.Module, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(super().forward(x))
        for inner in self.inside:
            x = torch.tanh(super().forward(inner(x)))
        if self.writes:
            self.weight.mul_(-1)
        return x


class Stack(nn.Module):
    """N layers, and a head that stays on the device."""

    def __init__(self, modules: int, kind: str = IN_ORDER) -> None:
        super().__init__()
        torch.manual_seed(modules)
        self.layers = nn.ModuleList(Layer(WIDTH, WIDTH) for _ in range(modules))
        self.head = nn.Linear(WIDTH, WIDTH)
        for layer in self.layers:
            layer.writes = kind == "writing"
        if kind == "nested":
            self.layers[-1].inside = (self.layers[0],)

    def forward(self, x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        for index in order:
            x = self.layers[index](x)
        return self.head(x)


def batches(passes: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(2, WIDTH, generator=generator) for _ in range(passes)]


def _in_order(modules: int, _: int) -> list[int]:
    return [*range(modules)]


ORDERS: dict[str, Callable[[int, int], list[int]]] = {
    IN_ORDER: _in_order,
    "skipped": lambda modules, number: [m for m in range(modules) if m % 3 != (number + 1) % 3],
    "repeated": lambda modules, _: [m for m in range(modules) for _ in range(1 + m % 2)],
    "backwards": lambda modules, _: [*reversed(range(modules))],
    "updated": _in_order,
    "writing": _in_order,
    "nested": _in_order,
}
"""By kind, the modules that a pass runs, of so many modules and in the pass of this number."""

CHANGING = ("updated", "writing")
"""Kinds whose weights change: by the user between passes; by the module that runs."""


class Case:
    """One model, offloaded, and what it must give.

    lower: what lowers its schedule; kind: what its passes run; streams: by their name there.
    offload: ``runtime.offload``, or the unverified door.
    warm: after a round without a seed, which may give something wrong if a fence is missing.
    """

    def __init__(
        self,
        policy: str,
        modules: int,
        slots: int,
        kind: str = IN_ORDER,
        streams: str = ONE,
        device: str = DEVICE,
        *,
        lower: Callable[..., Any] = lower,
        offload: Callable[..., runtime.Offloaded] = runtime.offload,
        warm: bool = True,
    ) -> None:
        self.name, self.kind = (policy, modules, slots, kind, streams, device), kind
        self.plain = Stack(modules, kind)
        self.passes = 2 * policies.named(policy)(Ring(modules, slots)).period
        self._batches = batches(self.passes)
        self.inputs = [x.to(device) for x in self._batches]
        self._expected: list[torch.Tensor] = []
        self.model = copy.deepcopy(self.plain)
        made = functools.partial(lower, streams=STREAMS[streams])
        with patch("runtime.offload.lower", made), patch("runtime.unverified.lower", made):
            # Given, so that they stay in this order, whatever the first pass runs.
            layers = list(self.model.layers)
            self.offloaded = offload(self.model, layers, slots=slots, policy=policy, device=device)
        if warm:
            self.outputs()
            self.expected()
            torch.accelerator.synchronize(device)

    def outputs(self) -> list[torch.Tensor]:
        """One round: twice the period."""
        return self._round(self.model, self.inputs)

    def expected(self) -> list[torch.Tensor]:
        """What a round of the plain model gives; to be called once for each round."""
        if not self._expected or self.kind in CHANGING:
            self._expected = self._round(self.plain, self._batches)
        return self._expected

    def _round(self, model: Stack, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The host waits only before an update, as it must: it runs ahead, and the pass before
        may not have read the weights yet."""
        found, modules = [], len(model.layers)
        with torch.no_grad():
            for number, x in enumerate(inputs):
                found.append(model(x, ORDERS[self.kind](modules, number)))
                if self.kind == "updated":
                    found[-1] = found[-1].cpu()
                    model.layers[number % modules].weight.mul_(-1)
        return found

    def right(self, sim: SimDevice, seed: int, adversary: str) -> bool:
        """Whether a round is bit-identical under this seed."""
        with sim.steps(seed, adversary):
            given = self.outputs()
        return same(given, self.expected())

    def replay(self, seed: int, adversary: str) -> str:
        """The line that runs this seed alone."""
        return line("replay", (seed, adversary, *self.name))


def same(given: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(a.cpu(), b) for a, b in zip(given, expected, strict=True))


def from_the_start(sim: SimDevice, seed: int, adversary: str, *name: Any) -> bool:
    """Whether all is right under this seed from the offload, with its preload, to the close, which
    comes while the host is ahead."""
    with sim.steps(seed, adversary):
        case = Case(*name, warm=False)
        with case.offloaded:
            given = case.outputs()
    return same(given, case.expected())


def line(function: str, arguments: tuple[Any, ...]) -> str:
    """A shell line that calls a function of this module."""
    import_ = f"from tests.simdevice.offloads import {function}"
    return f'python -c "{import_}; print({function}{arguments})"'


def replay(seed: int, adversary: str, *name: Any) -> bool:
    """Whether this seed is right; in a process of its own, as a failing test prints it."""
    torch.set_num_threads(1)
    sim, case = start(), Case(*name)
    with case.offloaded:
        return case.right(sim, seed, adversary)


def replay_from_the_start(seed: int, adversary: str, *name: Any) -> bool:
    """The same for a seed that the offload itself is under."""
    torch.set_num_threads(1)
    return from_the_start(start(), seed, adversary, *name)
