"""Layers that have their weights in buffers alone, as GPTQ and AWQ keep them, are found by default
and offloaded; counters and statistics are no weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import runtime
from runtime.find import find, has_weights, overview, size
from tests.runtime.models import batches, outputs, same


class Packed(nn.Module):
    """A linear layer whose weight is two whole numbers of four bits in a byte."""

    def __init__(self, width: int) -> None:
        super().__init__()
        numbers = torch.randint(0, 256, (width, width // 2), dtype=torch.uint8)
        self.register_buffer("packed", numbers)
        self.register_buffer("scale", torch.full((width,), 0.01))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = self.packed & 15, self.packed >> 4
        return x @ (torch.cat([low, high], 1).float() - 8) * self.scale


class Model(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(8, width)
        self.layers = nn.ModuleList(Packed(width) for _ in range(4))
        self.few = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_of_buffers_are_found_and_offloaded() -> None:
    model, x = Model(), batches(3)
    expected = outputs(Model(), x)
    with runtime.offload(model, slots=2) as offloaded:
        assert offloaded.selection.names == tuple(f"layers.{index}" for index in range(4))
        assert same(outputs(model, x), expected)
        assert offloaded.report().bytes_offloaded == 4 * 32
        assert offloaded.report().misses == 0


def test_a_pattern_matches_them_too() -> None:
    with runtime.offload(Model(), layers="layers.*", slots=2) as offloaded:
        assert len(offloaded.selection.modules) == 4


@pytest.mark.parametrize("word", ["_no_split_modules", "_repeated_blocks"])
def test_a_class_named_by_the_model_is_found(word: str) -> None:
    model = Model()
    setattr(model, word, ["Packed"])
    assert find(model) == list(model.layers)


def test_the_choice_is_listed_by_what_would_go() -> None:
    assert overview(Model(1000)).startswith("it has 'layers.*' (4 x Packed, 2.0 MB), 'few.*' (2 x")


def test_what_is_counted() -> None:
    packed = Packed(8)
    assert (size(packed), has_weights(packed)) == (32, True)
    assert size(packed.to("meta")) == 32
    packed.register_buffer("large", torch.zeros(1 << 18))  # a mebibyte stays
    assert size(packed) == 32
    packed.large = torch.zeros((1 << 18) + 1)
    assert size(packed) == 32 + (4 << 18) + 4


@pytest.mark.parametrize(
    ("module", "there"),
    [
        (nn.BatchNorm1d(100, affine=False), False),  # one counter, beside its statistics
        (nn.BatchNorm1d(100), True),
        (nn.LazyLinear(3), True),
        (nn.ReLU(), False),
        (nn.ParameterList([torch.empty(0)]), False),
    ],
)
def test_what_has_weights(module: nn.Module, there: bool) -> None:
    assert has_weights(module) is there


def test_a_counter_alone_is_not_offloaded() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 8)).eval()
    with runtime.offload(model, slots=1) as offloaded:
        assert offloaded.selection.names == ("0", "2")
