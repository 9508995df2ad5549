"""Modules that write into their own weights: what they wrote is kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import runtime
from tests.runtime.models import (
    LOADS_EVERY_PASS,
    WIDTH,
    Stack,
    assert_same_values,
    batches,
    before_run,
    outputs,
    same,
    stack,
)
from tests.runtime.test_runtime_updates import SCHEDULES


class Counting(nn.Linear):
    """Adds one to its weights in each of its runs, and then may call something."""

    inner: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight += 1
        inner, self.inner = self.inner, ()
        for visit in inner:
            x = x + visit(x)
        return torch.tanh(super().forward(x))


def counting() -> Stack:
    torch.manual_seed(0)
    return Stack([Counting(WIDTH, WIDTH) for _ in range(4)]).eval()


def test_what_a_module_writes_into_its_weights_is_kept() -> None:
    for schedule in SCHEDULES:
        if schedule.ring.modules == 4:
            model, plain = counting(), counting()
            with runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded:
                for _ in range(3):
                    assert same(outputs(model, batches(1)), outputs(plain, batches(1))), schedule
                    assert_same_values(model.state_dict(), plain.state_dict())
                copied = {refill.module for refills in schedule.after for refill in refills}
                kept = 0 if schedule.policy in LOADS_EVERY_PASS else 4 - len(copied)
                assert offloaded.report().misses >= 2 * kept  # their copies are old then
            assert_same_values(model.state_dict(), plain.state_dict())


def test_a_module_that_writes_once_is_copied_again_once() -> None:
    model = stack(3)
    with torch.no_grad(), runtime.offload(model, slots=3) as offloaded:
        handle = before_run(model.layers[1].down, lambda: model.layers[1].up.bias.add_(1))
        outputs(model, batches(1))
        handle.remove()
        assert offloaded.report().misses == 0
        outputs(model, batches(3))
        assert offloaded.report().misses == 1


# Mended: the inner module's reload overwrote what the outer one wrote, before it was kept.
def test_what_a_module_writes_before_another_one_runs_inside_it_is_kept() -> None:
    def nested(model: Stack) -> list[torch.Tensor]:
        model.layers[0].inner = (model.layers[1],)
        return outputs(model, batches(2))

    for schedule in SCHEDULES:
        if schedule.ring.modules == 4:
            model, plain = counting(), counting()
            with runtime.offload(model, slots=schedule.ring.slots, policy=schedule):
                assert same(nested(model), nested(plain)), schedule
            assert_same_values(model.state_dict(), plain.state_dict())
