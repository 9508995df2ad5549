"""Compiled models and layers: the hooks stay outside of what is compiled, and everything is right.

Twin: hooks that Dynamo may look into. torch 2.13 does not lose them with its eager backend, but
compiles them, anew for each module, until its limit is reached; and it can't compile the guard.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.utils import counters

import runtime
from runtime.layout import MARK
from runtime.unverified import offload_without_proof
from schedule import Ring, policies
from tests.runtime.models import Stack, assert_unchanged, batches, outputs, picture, same, stack

SCHEDULES = [
    policies.single_buffer(Ring(3, 1)),
    policies.chain(Ring(3, 2)),
    policies.slot_local(Ring(3, 2)),
    policies.balanced(Ring(4, 3)),
    policies.double_buffer(Ring(3, 4)),
]

Compile = Callable[..., nn.Module]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled before or after."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def whole(model: Stack, **options: Any) -> nn.Module:
    return torch.compile(model, backend="eager", **options)


def by_layer(model: Stack, **options: Any) -> nn.Module:
    for layer in model.layers:
        layer.compile(backend="eager", **options)
    return model


def in_place(model: Stack, **options: Any) -> nn.Module:
    model.compile(backend="eager", **options)
    return model


WAYS = [whole, by_layer, in_place]


@pytest.mark.parametrize("compile_", WAYS)
def test_compiled_models_are_right_and_copy_as_often_as_others(compile_: Compile) -> None:
    for schedule in SCHEDULES:
        torch._dynamo.reset()
        model = stack(schedule.ring.modules)
        before = picture(model)
        wanted = outputs(copy.deepcopy(model), batches(3))
        with runtime.offload(
            model, slots=schedule.ring.slots, policy=schedule, on_miss="raise"
        ) as offloaded:
            compiled = compile_(model)
            assert same(outputs(compiled, batches(3)), wanted), schedule
            report = offloaded.report()
            assert report.runs == 3 * schedule.ring.modules
            assert (report.copies, report.misses) == (3 * schedule.copies, 0)
        # What was compiled in between does not call the hooks of an offload that is closed.
        assert same(outputs(compiled, batches(3)), wanted)
        assert_unchanged(model, before)
        with runtime.offload(model, slots=1, on_miss="raise") as again:
            assert same(outputs(compiled, batches(3)), wanted)
            assert again.report().runs == report.runs == offloaded.report().runs
    assert counters["frames"]["ok"] > 0  # something was compiled


# Mended: [whole], [in_place]: Dynamo skips its guards on hooks, so that a model which ran compiled
# before it was offloaded ran on without them: right here, from the host blocks, but not offloaded.
@pytest.mark.parametrize("compile_", WAYS)
def test_it_may_be_compiled_before_it_is_offloaded(compile_: Compile) -> None:
    model = stack(4)
    wanted = outputs(copy.deepcopy(model), batches(3))
    compiled = compile_(model)
    assert same(outputs(compiled, batches(3)), wanted)
    for slots in (1, 2, 3):
        with runtime.offload(model, slots=slots, on_miss="raise") as offloaded:
            assert same(outputs(compiled, batches(3)), wanted)
            assert offloaded.report().runs == 12
    assert same(outputs(compiled, batches(3)), wanted)


@pytest.mark.parametrize("compile_", WAYS)
def test_with_the_old_rule_a_compiled_model_is_wrong(compile_: Compile) -> None:
    """Twin: the weights that it reads are the slots'."""
    model = stack(3)
    wanted = outputs(copy.deepcopy(model), batches(3))
    with offload_without_proof(
        model, slots=2, policy="modular", output_may_be_wrong=True
    ) as offloaded:
        assert not same(outputs(compile_(model), batches(3)), wanted)
        assert offloaded.report().copies == 9


@pytest.mark.parametrize("compile_", WAYS)
def test_updates_and_other_orders_are_seen_by_compiled_code(compile_: Compile) -> None:
    model = stack(4)
    plain = copy.deepcopy(model)
    with torch.no_grad(), runtime.offload(model, slots=2, policy="chain"):
        compiled = compile_(model)
        for index in range(4):
            for each in (model, plain):
                each.layers[index].up.weight.add_(1)
            assert same(outputs(compiled, batches(2)), outputs(plain, batches(2)))
            x = torch.randn(2, 8)
            assert torch.equal(model.layers[index](x), plain.layers[index](x))


def frames(modules: int, compile_: Compile) -> int:
    """How many frames Dynamo looks at for two passes of a model of that many modules."""
    torch._dynamo.reset()
    counters.clear()
    model = stack(modules)
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain"):
        assert same(outputs(compile_(model), batches(2)), wanted)
    return counters["frames"]["total"]


@pytest.mark.parametrize("compile_", WAYS)
def test_dynamo_does_not_look_into_the_hooks(compile_: Compile) -> None:
    """So that what it looks at does not grow with the number of modules."""
    assert frames(3, compile_) == frames(5, compile_) <= 4


def only_marked(hook: Callable[..., None]) -> Callable[..., None]:
    """What _closed_to_dynamo would be without closing."""
    setattr(hook, MARK, True)
    return hook


def test_it_would_look_into_hooks_that_are_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: each module's hooks are compiled apart. The outputs are still right."""
    monkeypatch.setattr("runtime.hooks._closed_to_dynamo", only_marked)
    assert frames(3, by_layer) > 10


def test_the_hooks_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: nor do hooks that are not closed fit into a whole graph."""
    monkeypatch.setattr("runtime.hooks._closed_to_dynamo", only_marked)
    model = stack(2)
    with runtime.offload(model, slots=1), pytest.raises(Unsupported, match="`RLock`"):
        outputs(whole(model, fullgraph=True), batches(1))


def test_a_whole_graph_across_hooks_is_refused_by_dynamo() -> None:
    """An error, where silence would be wrong text."""
    model = stack(3)
    with runtime.offload(model, slots=2) as offloaded:
        compiled = whole(model, fullgraph=True)
        with pytest.raises(Unsupported, match=r"Skip calling `torch\.compiler\.disable\(\)`d"):
            outputs(compiled, batches(1))
        assert offloaded.report().runs == 0
        assert same(outputs(model, batches(1)), outputs(stack(3), batches(1)))


def test_layers_may_be_whole_graphs() -> None:
    model = stack(4)
    wanted = outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(model, slots=2, on_miss="raise") as offloaded:
        assert same(outputs(by_layer(model, fullgraph=True), batches(3)), wanted)
        assert offloaded.report().copies == 3 * policies.double_buffer(Ring(4, 2)).copies


def test_layers_of_one_class_share_one_compiled_graph() -> None:
    """Their weights are inputs, at whatever address: no module is compiled again."""
    model = stack(5)
    with runtime.offload(model, slots=2):
        outputs(by_layer(model), batches(3))
    assert counters["stats"]["unique_graphs"] == 1
