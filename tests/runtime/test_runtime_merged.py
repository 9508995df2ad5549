"""An adapter that merges by giving the weight beside it other bytes, or by replacing it, as some of
peft's do, is adopted with the merge.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import Stack, batches, outputs, same, stack

pytestmark = pytest.mark.usefixtures("sanitized")


class Merging(nn.Module):
    """A layer with an adapter of ones; ``replace``: by a new Parameter, else through ``.data``."""

    merged_adapters = ()

    def __init__(self, base: nn.Linear, replace: bool) -> None:
        super().__init__()
        self.base, self.replace = base, replace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.base(x)
        return output

    def merge(self) -> None:
        merged = self.base.weight.detach() + 1
        if self.replace:
            self.base.weight = nn.Parameter(merged)
        else:
            self.base.weight.data = merged


def adapted(replace: bool) -> Stack:
    model = stack(4)
    for layer in model.layers:
        layer.up = Merging(layer.up, replace)
    return model


@pytest.mark.parametrize("replace", [False, True])
def test_a_merge_that_makes_new_memory_is_adopted(replace: bool) -> None:
    model = adapted(replace)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=2) as offloaded:
        for _ in range(2):
            assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
            for one in model, twin:
                for layer in one.layers:
                    layer.up.merge()
        assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
        assert offloaded.report().copies > 0
    assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
