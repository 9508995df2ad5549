"""What is run on the simulated device to see whether passes take what the plan predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.simulated import SIMULATED
from schedule.costs import Costs, Link, Module, Times, Workload

MILLISECOND = 10**6
"""In nanoseconds."""
LINK = Link(bandwidth=4_000_000, latency=MILLISECOND)


@dataclass(frozen=True, slots=True)
class Case:
    """A schedule, and milliseconds.

    run, copy: of each module's run, and of its copy; the copy's about, for its block has some
               bytes more than the weights.
    between:   of what comes before each module, and after the last; empty if that is nothing.
    """

    policy: str
    slots: int
    run: tuple[int, ...]
    copy: tuple[int, ...]
    between: tuple[int, ...] = ()
    captured: bool = False

    @property
    def modules(self) -> int:
        return len(self.run)

    def __str__(self) -> str:
        how = "captured" if self.captured else "eager"
        alike = len({*self.run}) == len({*self.copy}) == 1 and not self.between
        what = f"runs {self.run[0]}, copies {self.copy[0]} ms" if alike else "unequal modules"
        return f"{self.policy}, N={self.modules}, K={self.slots}, {how}, {what}"

    def times(self, sizes: Sequence[int]) -> Times:
        """What it takes, in nanoseconds, where blocks have these bytes."""
        modules = tuple(Module(str(at), (), size) for at, size in enumerate(sizes))
        between = self.between or (0,) * (self.modules + 1)
        run, beside = (tuple(one * MILLISECOND for one in each) for each in (self.run, between))
        costs = Costs(modules, (Workload("pass", run, beside),), LINK)
        return costs.times(costs.workloads[0], costs.sizes)


def _alike(policy: str, modules: int, slots: int, run: int, copy: int, captured: bool) -> Case:
    return Case(policy, slots, (run,) * modules, (copy,) * modules, captured=captured)


EAGER, CAPTURED = False, True
DENSE_AND_EXPERTS = ((3, 3, 5, 5, 3, 5, 5, 3), (8, 8, 20, 20, 8, 20, 20, 8))
BETWEEN = (5, 0, 0, 3, 0, 0, 0, 2, 6)
CASES = (
    _alike("slot_local", 9, 4, 4, 8, EAGER),
    _alike("slot_local", 10, 4, 4, 8, CAPTURED),
    _alike("balanced", 9, 4, 4, 8, EAGER),
    _alike("balanced", 10, 4, 4, 8, CAPTURED),
    _alike("double_buffer", 9, 4, 4, 8, EAGER),
    _alike("double_buffer", 10, 4, 4, 8, CAPTURED),
    _alike("single_buffer", 6, 3, 3, 24, EAGER),
    _alike("single_buffer", 6, 1, 4, 12, CAPTURED),
    _alike("rotating", 7, 3, 4, 10, EAGER),
    _alike("rotating", 8, 4, 4, 10, CAPTURED),
    _alike("one_ahead", 6, 2, 6, 9, EAGER),
    _alike("one_ahead", 6, 2, 9, 6, CAPTURED),
    _alike("on_demand", 5, 2, 5, 9, EAGER),
    _alike("restart", 7, 3, 5, 8, CAPTURED),
    _alike("chain", 8, 3, 12, 4, EAGER),
    _alike("balanced", 8, 4, 12, 4, CAPTURED),
    Case("slot_local", 3, *DENSE_AND_EXPERTS),
    Case("balanced", 3, *DENSE_AND_EXPERTS, BETWEEN, captured=True),
    Case("double_buffer", 3, *DENSE_AND_EXPERTS, BETWEEN),
    Case("rotating", 5, *DENSE_AND_EXPERTS, BETWEEN),
)
TINY_CASES = (CASES[0], CASES[5], CASES[18])


class Slow(nn.Module):
    """Multiplies by its weight, and takes so many milliseconds for that on the device.
    began: when it begins to run, where that is looked at."""

    def __init__(self, size: int, milliseconds: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size // 4) + 0.5, requires_grad=False)
        self.milliseconds = milliseconds
        self.began: list[torch.Event] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.began is not None:
            self.began.append(mark())
        busy(x, self.milliseconds)
        return x * self.weight[: x.numel()]


class Chain(nn.Module):
    """The case's modules one after the other, and what is between them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        sizes = (LINK.bandwidth * (one - 1) // 1000 for one in case.copy)
        self.layers = nn.ModuleList(map(Slow, sizes, case.run))
        self.between = case.between or (0,) * (case.modules + 1)
        self.came: list[torch.Event] | None = None

    def look(self, came: list[torch.Event] | None, began: list[torch.Event] | None) -> None:
        """From now on passes add to these lists when the compute stream came to a module, and
        when that began to run."""
        self.came = came
        for layer in self.layers:
            assert isinstance(layer, Slow)
            layer.began = began

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for milliseconds, layer in zip(self.between[:-1], self.layers, strict=True):
            busy(x, milliseconds)
            if self.came is not None:
                self.came.append(mark())
            x = layer(x)
        busy(x, self.between[-1])
        return x


def busy(x: torch.Tensor, milliseconds: int) -> None:
    """Nothing else is done for so long where the tensor is, unless that is the CPU."""
    if milliseconds and x.device.type == SIMULATED:
        torch.ops.simdevice.busy(milliseconds * 1000)


def mark() -> torch.Event:
    """An event, recorded on the current stream."""
    event = torch.Event(device=SIMULATED, enable_timing=True)
    event.record(torch.accelerator.current_stream())
    return event
