"""Offloaded models inside one another."""

from __future__ import annotations

import contextlib

import pytest
import torch

import runtime
from tests.runtime.models import (
    Stack,
    assert_same_values,
    batches,
    before_run,
    hook_count,
    outputs,
    same,
    stack,
)
from tests.runtime.test_runtime_nested import hosts

pytestmark = pytest.mark.usefixtures("sanitized")


def test_two_models_at_once() -> None:
    """Pass by pass and layer by layer in turns; one closed while the other goes on."""
    one, two = stack(4, seed=1), stack(5, seed=2)
    wanted = [outputs(stack(4, seed=1), batches(3)), outputs(stack(5, seed=2), batches(3))]
    x = batches(1)[0]
    second = runtime.offload(two, slots=3, policy="balanced")
    with torch.no_grad(), runtime.offload(one, slots=2, policy="chain") as first:
        for at, batch in enumerate(batches(3)):
            assert torch.equal(one(batch), wanted[0][at])
            assert torch.equal(two(batch), wanted[1][at])
        seen = [(a(x), b(x)) for a, b in zip(one.layers, two.layers, strict=False)]
        assert first.report().misses == second.report().misses == 0
        assert (first.report().runs, second.report().runs) == (16, 19)
    plain = zip(stack(4, seed=1).layers, stack(5, seed=2).layers, strict=False)
    with torch.no_grad():
        assert all(same(got, (a(x), b(x))) for got, (a, b) in zip(seen, plain, strict=True))
    assert hook_count(one) == 0
    assert same(outputs(two, batches(3)), wanted[1])
    second.close()
    assert hook_count(two) == 0


def test_one_offloaded_model_inside_another() -> None:
    def build() -> tuple[Stack, Stack]:
        outer, inner = hosts(3), stack(4, seed=3)
        outer.layers[1].inner = (inner,)
        return outer, inner

    wanted = outputs(build()[0], batches(2))
    outer, inner = build()
    with (
        runtime.offload(outer, slots=2, policy="chain") as one,
        runtime.offload(inner, slots=2, policy="chain") as two,
    ):
        assert same(outputs(outer, batches(2)), wanted)
        assert (one.report().misses, two.report().misses) == (0, 0)
        assert (one.report().runs, two.report().runs) == (6, 4)


def test_of_two_outer_runs_over_one_slot_only_the_inner_one_gets_it() -> None:
    """Module 1 runs module 0, which runs module 2 and is interrupted; module 1 catches that, goes
    on, and writes into its weights. Mended: it was shown its slot, which held module 0, and so
    read and kept module 0's weights as its own."""

    def interrupted(x: torch.Tensor) -> torch.Tensor:
        model.layers[2](x)
        raise KeyboardInterrupt

    def caught(x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(KeyboardInterrupt):
            model.layers[0](x)
        return x

    for policy in ("chain", "on_demand", "single_buffer"):
        model = hosts(3)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad(), runtime.offload(model, slots=1, policy=policy):
            model.layers[0].inner, model.layers[1].inner = (interrupted,), (caught,)
            up = model.layers[1].up
            handle = before_run(model.layers[1].down, lambda up=up: up.bias.add_(1))
            model.layers[1](batches(1)[0])
            handle.remove()
            model.layers[0].inner = model.layers[1].inner = ()
            model(batches(1)[0])
            before["layers.1.up.bias"] += 1
            assert_same_values(model.state_dict(), before)
