"""vllm-omni #6456: layers of other pipeline stages were placeholders that never ran, but counted
in the ring of prefetches, so that the refill which the first real layer needed was never issued.

Placeholders without weights are no modules; those with weights are named, and nothing is wrong.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import Block, Stack, batches, outputs, same


class Stage(Stack):
    """Of its layers only those from ``start`` on run."""

    start = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[self.start :]:
            x = layer(x)
        return self.head(x)


def stage(*placeholders: nn.Module) -> Stage:
    torch.manual_seed(0)
    model = Stage([*placeholders, *(Block() for _ in range(4))]).eval()
    model.start = len(placeholders)
    return model


def test_placeholders_without_weights_are_no_modules_of_the_ring(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = stage(nn.Identity(), nn.Identity())
    expected = outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(3)), expected)
        assert offloaded.selection.names == tuple(f"layers.{i}" for i in range(2, 6))
        assert offloaded.report().misses == 0
    assert not caplog.records


def test_placeholders_with_weights_cost_misses_and_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = stage(Block(), Block())
    expected = outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(3)), expected)
        assert offloaded.report().misses >= 3  # one a pass at least: the wrap brings a placeholder
    (record,) = caplog.records
    assert "2 of 6 modules did not run" in record.getMessage()
    assert "['layers.0', 'layers.1']" in record.getMessage()
    with runtime.offload(model, slots=2, policy="chain", keep="layers.[01]") as offloaded:
        assert same(outputs(model, batches(3)), expected)
        assert offloaded.report().misses == 0
    assert len(caplog.records) == 1
