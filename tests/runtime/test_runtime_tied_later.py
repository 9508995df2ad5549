"""Weights that are tied, or no more, after wrapping: what is offloaded of each module follows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import Stack, batches, outputs, same, stack

Change = Callable[[Stack], None]


NAMES = {"layers.0.up.weight": 0, "layers.1.up.weight": 1, "layers.3.down.weight": 3}


def is_tied(model: Stack, path: str, layer: int) -> bool:
    """Whether the layer's weight of this name hangs elsewhere too."""
    weight = model.get_parameter(path)
    inside = {id(part) for part in model.layers[layer].modules()}
    beside = (part for part in model.modules() if id(part) not in inside)
    return any(one is weight for part in beside for one in part._parameters.values())


def tie(model: Stack) -> None:
    model.layers[1].up.weight = model.layers[0].up.weight


def tie_with_the_rest(model: Stack) -> None:
    model.head.weight = model.layers[3].down.weight


def untie(model: Stack) -> None:
    model.layers[1].up.weight = nn.Parameter(model.layers[1].up.weight.detach() + 1)


def untie_and_more(model: Stack) -> None:
    untie(model)
    model.layers[3].down.weight = nn.Parameter(model.layers[3].down.weight.detach() - 1)


STEPS: dict[str, tuple[Change, ...]] = {
    "tied": (tie,),
    "tied with the rest": (tie_with_the_rest,),
    "tied, and with the rest": (tie, tie_with_the_rest),
    "tied and untied": (tie, untie),
    "tied, untied and more": (tie, untie_and_more),
    "tied before": (untie,),
    "tied before, and more": (untie_and_more,),
}


@pytest.mark.parametrize("name", STEPS)
def test_refresh_adopts_it(name: str) -> None:
    model = stack(4).requires_grad_(False)
    if "before" in name:
        tie(model)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=2) as offloaded:
        for step in STEPS[name]:
            outputs(model, batches(1))
            step(model)
            step(twin)
            offloaded.refresh()
            for _ in range(2):
                assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
        tied = [path for path, layer in NAMES.items() if is_tied(model, path, layer)]
        assert offloaded.selection.stay == {id(model.get_parameter(path)) for path in tied}
    assert same(outputs(model, batches(2)), outputs(twin, batches(2)))


def test_a_load_that_unties_is_adopted() -> None:
    model = stack(4)
    tie(model)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=2):
        for one in model, twin:
            values = {name: value + 1 for name, value in one.layers[1].state_dict().items()}
            one.layers[1].load_state_dict(values, assign=True)
        assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
        assert model.layers[1].up.weight is not model.layers[0].up.weight
        with torch.no_grad():
            model.layers[0].up.weight.add_(1)
            twin.layers[0].up.weight.add_(1)
        assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
