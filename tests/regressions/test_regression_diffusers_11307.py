"""diffusers #11307: group offloading prefetched in the order in which modules hang in the model,
which is not the order in which they run; #11375 records the order in a first pass.

Here it is a pass that misses, and is right; from then on the order is that one, and of layers that
were given the log has the corrected list, once.
"""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import Block, batches, outputs, same


class UNet(nn.Module):
    """Hangs as diffusers' UNets do: down, up, middle. Runs down, middle, up."""

    _repeated_blocks = ("Block",)

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(Block() for _ in range(3))
        self.up = nn.ModuleList(Block() for _ in range(3))
        self.middle = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in (*self.down, self.middle, *self.up):
            x = block(x)
        return x


HANGS = [f"{part}.{i}" for part in ("down", "up") for i in range(3)] + ["middle"]
RUNS = [*HANGS[:3], "middle", *HANGS[3:6]]


@pytest.mark.parametrize("given", [False, True])
def test_the_order_that_differs_is_said_and_the_corrected_one_misses_nothing(
    given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Layers that were found are taken in it at once; for those that were given it is said how."""
    torch.manual_seed(0)
    model = UNet().eval()
    expected = outputs(copy.deepcopy(model), batches(3))
    caplog.set_level(logging.INFO)
    layers = HANGS if given else None
    with runtime.offload(model, layers, slots=2, policy="balanced") as offloaded:
        assert list(offloaded.selection.names) == HANGS
        assert same(outputs(model, batches(1)), expected[:1])
        first = offloaded.report().misses
        assert same(outputs(model, batches(3)), expected)
        assert (
            (offloaded.report().misses > first > 0) if given else offloaded.report().misses == first
        )
        assert list(offloaded.selection.names) == (HANGS if given else RUNS)
        corrected = offloaded.recorded_order()
    (record,) = (record for record in caplog.records if str(RUNS) in record.getMessage())
    assert (record.name, record.levelno) == (
        "ringproof.runtime",
        logging.WARNING if given else logging.INFO,
    )
    with runtime.offload(model, corrected, slots=2, policy="balanced") as offloaded:
        assert list(offloaded.selection.names) == RUNS
        assert same(outputs(model, batches(3)), expected)
        assert offloaded.report().misses == 0
