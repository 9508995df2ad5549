"""What the runtime's two hooks cost a module, beside two empty ones and none at all.

The modules compute nothing, so that a pass is hooks and torch's own calls alone. On a plain CPU a
refill is done inline, and its copy is in the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import runtime
from benchmarks.interleaved import medians

PARAMETERS = (1, 11)
AIM, AIM_A_PARAMETER = 3.0, 0.2
"""Microseconds beyond an empty pair."""
NONE, EMPTY, ALL_FIT, REFILLS = "no hooks", "an empty pair", "K >= N", "with refills"


@dataclass(frozen=True, slots=True)
class HooksLine:
    """Microseconds a module, beyond a module without hooks.

    parameters: of a module.     how: K >= N, so that nothing is copied in a pass, or with refills.
    pair: ours.                  empty: a pair of hooks that do nothing, closed to dynamo like ours.
    call: the call of a module without hooks.        ratio: a call with our hooks to one with those.
    """

    device: str
    parameters: int
    how: str
    pair: float
    empty: float
    call: float

    @property
    def aim(self) -> float:
        return self.empty + AIM + AIM_A_PARAMETER * self.parameters

    @property
    def ratio(self) -> float:
        return (self.call + self.pair) / (self.call + self.empty)

    def __str__(self) -> str:
        plural = "s" if self.parameters > 1 else ""
        return (
            f"hooks on {self.device}, {self.parameters} parameter{plural} a module, {self.how}: "
            f"{self.pair:.1f} us over no hooks; an empty pair {self.empty:.1f}, "
            f"aim {self.aim:.1f}; {self.ratio:.2f} times a call with the empty pair"
        )

    def json(self) -> dict[str, Any]:
        return {"part": "hooks"} | asdict(self) | {"aim": self.aim, "ratio": self.ratio}


class Idle(nn.Module):
    """Holds parameters, and returns what it is given."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        for number in range(parameters):
            self.register_parameter(f"weight_{number}", nn.Parameter(torch.zeros(64)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def hooks(device: torch.device, modules: int, rounds: int) -> Iterable[HooksLine]:
    """Two lines for each number of parameters."""
    x = torch.zeros(8, device=device)
    for parameters in PARAMETERS:
        models = {
            name: nn.Sequential(*(Idle(parameters) for _ in range(modules))).eval()
            for name in (NONE, EMPTY, ALL_FIT, REFILLS)
        }
        for layer in models[EMPTY]:
            _empty_pair(layer)
        with ExitStack() as stack, torch.no_grad():
            for name, slots in ((ALL_FIT, modules), (REFILLS, 2)):
                model = models[name]
                stack.enter_context(runtime.offload(model, list(model), slots=slots, device=device))
            calls: dict[str, Callable[[], object]] = {
                name: partial(model, x) for name, model in models.items()
            }
            # The device runs behind: it is the host's time that is asked for.
            seconds = medians(calls, rounds, wait=lambda: None)
        us = {name: one / modules * 1e6 for name, one in seconds.items()}
        for how in (ALL_FIT, REFILLS):
            pair, empty = us[how] - us[NONE], us[EMPTY] - us[NONE]
            yield HooksLine(str(device), parameters, how, pair, empty, us[NONE])


def _empty_pair(module: nn.Module) -> None:
    def before(*_: object) -> None:
        """Nothing."""

    def after(*_: object) -> None:
        """Nothing."""

    module.register_forward_pre_hook(torch.compiler.disable(before))
    module.register_forward_hook(torch.compiler.disable(after), always_call=True)
