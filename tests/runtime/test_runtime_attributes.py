"""What hangs beside a weight, and under two names: changed between passes or in a run, it is as in
the plain model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError
from tests.runtime.models import batches


class Scaling(nn.Module):
    """Multiplies by an attribute of its weight, and counts its runs in another one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.linear.weight.factor = 2.0
        self.linear.weight.ran = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        weight.ran += 1
        return self.linear(x) * weight.factor


def scaling(beside: bool) -> list[Scaling]:
    torch.manual_seed(0)
    layers = [Scaling() for _ in range(3)]
    for layer in layers if beside else ():
        layer.linear.weight.scale = torch.ones(8)
    return layers


def passes(layers: list[Scaling]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [layer(batches(1)[0]) for layer in layers]


@pytest.mark.parametrize("beside", [False, True])
def test_an_attribute_that_is_changed_is_seen_by_the_next_run(beside: bool) -> None:
    layers = scaling(beside)
    with runtime.offload(layers, slots=2):
        passes(layers)
        for layer in layers:
            layer.linear.weight.factor = 3.0
        found = passes(layers)
    wanted = scaling(beside)
    for layer in wanted:
        layer.linear.weight.factor = 3.0
    assert all(map(torch.equal, found, passes(wanted)))


def test_an_attribute_that_a_run_changes_is_the_modules_own() -> None:
    layers = scaling(False)
    with runtime.offload(layers, slots=2):
        passes(layers)
        passes(layers)
        assert [layer.linear.weight.ran for layer in layers] == [2, 2, 2]
    passes(layers)
    assert [layer.linear.weight.ran for layer in layers] == [3, 3, 3]


class TwoNames(nn.Module):
    """One large buffer under two names; a run does something to it."""

    def __init__(self, act: Callable[[TwoNames], None]) -> None:
        super().__init__()
        self.act = act
        self.linear = nn.Linear(8, 8)
        buffer = torch.zeros(1 << 19)
        self.register_buffer("one", buffer)
        self.register_buffer("other", buffer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.act(self)
        return self.linear(x) + self.one[0] + 10 * self.other[0]


def replaces(module: TwoNames) -> None:
    module.one = module.one + 1


def writes(module: TwoNames) -> None:
    module.one += 1


def test_a_buffer_under_two_names_that_a_run_writes_is_written_under_both() -> None:
    layers = [TwoNames(writes) for _ in range(3)]
    plain = copy.deepcopy(layers)
    x = batches(1)[0]
    with torch.no_grad(), runtime.offload(layers, slots=2):
        for _ in range(3):
            assert all(torch.equal(a(x), b(x)) for a, b in zip(layers, plain, strict=True))
    assert layers[0].one is layers[0].other


def test_a_buffer_under_two_names_that_a_run_replaces_is_two_from_then_on() -> None:
    layers = [TwoNames(replaces) for _ in range(3)]
    plain = copy.deepcopy(layers)
    x = batches(1)[0]
    with torch.no_grad(), runtime.offload(layers, slots=2) as offloaded:
        assert torch.equal(layers[0](x), plain[0](x))
        with pytest.raises(OffloadError, match=r"^modules\[0\]\.one was replaced .* refresh\(\)"):
            layers[0](x)
        offloaded.refresh()
        for _ in range(2):
            assert torch.equal(layers[0](x), plain[0](x))
