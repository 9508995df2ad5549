"""What is advised where many modules miss, and that nobody is warned of what costs nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.misses import DO_NOT_WRITE, LEAVE_OUT, MissLog
from runtime.progress import with_bar
from runtime.sizes import counted, megabytes
from schedule.ring import EMPTY
from tests.runtime.models import Stack, batches, outputs, stack
from tests.runtime.test_runtime_transformers import TOKENS, ask, fresh


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The warnings; with a level, what was logged at it."""
    caplog.set_level(logging.INFO, "ringproof.runtime")
    return lambda level="WARNING": [
        record.getMessage()
        for record in caplog.records
        if record.levelname == level and record.name == "ringproof.runtime"
    ]


# ---- what is advised


def test_of_an_encoder_decoder_the_decoder_alone_misses_nothing(told: Any) -> None:
    model = fresh("T5", 3)
    with runtime.offload(model, slots=2) as offloaded:
        for _ in range(2):
            ask(model)
        assert 10 * offloaded.report().misses > offloaded.report().runs
    (warning,) = told()
    assert "the first: decoder.block.0 (module 3) came after decoder.block.2 (module 5)" in warning
    assert warning.endswith(f"Each miss waits for a copy: {LEAVE_OUT}")
    with runtime.offload(model, "decoder.block.*", slots=2) as offloaded:
        ask(model)
        assert (offloaded.report().runs, offloaded.report().misses) == (3 * TOKENS, 0)
    assert told() == [warning]


def test_a_module_that_calls_itself_is_to_be_kept(told: Any) -> None:
    class Twice(nn.Linear):
        deep = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.deep:
                return super().forward(x)
            self.deep = True
            x = self(x)
            self.deep = False
            return super().forward(x)

    def run(**options: Any) -> int:
        model = Stack([nn.Linear(8, 8), Twice(8, 8), nn.Linear(8, 8)]).eval()
        with runtime.offload(model, slots=1, **options) as offloaded:
            outputs(model, batches(4))
            return offloaded.report().misses

    assert run() > 0
    assert [warning.partition("copy: ")[2] for warning in told()] == [LEAVE_OUT]
    assert run(keep=["layers.1"]) == 0
    assert len(told()) == 1


def test_weights_that_are_written_every_pass_are_another_reason(told: Any) -> None:
    model = stack(3)
    with runtime.offload(model, slots=3):
        for x in batches(5):
            outputs(model, [x])
            with torch.no_grad():
                for layer in model.layers:
                    layer.up.weight.add_(0)
    assert [warning.partition("copy: ")[2] for warning in told()] == [DO_NOT_WRITE]


@pytest.mark.parametrize(("written", "advice"), [(1, LEAVE_OUT), (2, LEAVE_OUT), (3, DO_NOT_WRITE)])
def test_most_misses_decide(told: Any, written: int, advice: str) -> None:
    log = MissLog(["a"])
    for miss in range(4):
        log.missed(0, 0, 0 if miss < written else EMPTY, 3 if miss == 3 else 1, 4)
    assert [warning.partition("copy: ")[2] for warning in told()] == [advice]


# ---- what costs nothing


def test_another_order_without_a_miss_is_no_reason_to_warn(told: Any) -> None:
    model = stack(3)
    layers = [model.layers[i] for i in (2, 0, 1)]
    with runtime.offload(model, layers, slots=3) as offloaded:
        outputs(model, batches(2))
        assert offloaded.report().misses == 0
    assert told() == []
    (order,) = [line for line in told("INFO") if "in another order" in line]
    assert "of layers: 0 misses in it; on_miss='raise'" in order


# ---- words


def test_one_is_not_many() -> None:
    numbers = [counted(number, "miss", "misses") for number in range(3)]
    assert numbers == ["0 misses", "1 miss", "2 misses"]
    assert counted(1, "run") == "1 run"


def test_small_sizes_are_not_nothing() -> None:
    sizes = (0, 1, 99, 100, 6144, 99_900, 100_000, 1_250_000)
    assert [megabytes(size) for size in sizes] == [
        "0.0 MB",
        "1 B",
        "99 B",
        "0.1 KB",
        "6.1 KB",
        "99.9 KB",
        "0.1 MB",
        "1.2 MB",
    ]


# ---- the bar


def test_wrapping_draws_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Module by module, each with its size."""
    drawn = []

    def bar(items: Any, sizes: Any, what: str) -> Any:
        for item, size in zip(with_bar(items, sizes, what), sizes, strict=True):
            drawn.append((what, item, size))
            yield item

    monkeypatch.setattr("runtime.placement.with_bar", bar)
    with runtime.offload(stack(3), slots=2) as offloaded:
        sizes = [layout.size for layout in offloaded.arena.layouts]
    assert drawn == [("moving weights", module, size) for module, size in enumerate(sizes)]
    assert len(drawn) == 3
