"""What is offloaded already is refused, in other pieces too."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from torch import nn

import runtime
from schedule import OffloadError
from tests.runtime.models import (
    Block,
    Stack,
    assert_unchanged,
    batches,
    hook_count,
    outputs,
    picture,
    same,
    stack,
)


def test_offloading_twice() -> None:
    model = stack(3)
    wanted = outputs(stack(3), batches(1))
    with runtime.offload(model, slots=2) as offloaded:
        hooks = hook_count(model)
        for again in (model, model.layers, [model.layers[2]], [model.layers[1], Block()]):
            with pytest.raises(OffloadError, match=r"is offloaded already; close\(\) that offload"):
                runtime.offload(again, slots=2)
        assert hook_count(model) == hooks
        assert same(outputs(model, batches(1)), wanted)
        assert offloaded.report().misses == 0
    with runtime.offload(model, slots=2):
        assert same(outputs(model, batches(1)), wanted)


def test_the_one_already_offloaded_is_named() -> None:
    layers = list(stack(3).layers)
    with runtime.offload(layers[2:], slots=1):
        with pytest.raises(OffloadError, match=r"^modules\[2\]\.up\.weight is offloaded already"):
            runtime.offload(layers, slots=1)
        assert sum(map(hook_count, layers[:2])) == 0


PARTS: list[Callable[[Stack], list[nn.Module]]] = [
    lambda model: [layer.up for layer in model.layers],  # inside
    lambda model: [nn.Sequential(layer) for layer in model.layers],  # around
]


@pytest.mark.parametrize("pick", PARTS, ids=["parts of the modules", "what contains them"])
def test_offloading_twice_in_other_pieces(pick: Callable[[Stack], list[nn.Module]]) -> None:
    model = stack(3)
    with (
        runtime.offload(model, slots=2),
        pytest.raises(OffloadError, match="is offloaded already"),
    ):
        runtime.offload(pick(model), slots=2)


def test_offloading_a_parameter_that_another_offloaded_model_shares() -> None:
    """Its memory can be in one host block only."""
    first, second = stack(3, seed=1), stack(3, seed=2)
    second.layers[2].up.weight = first.layers[0].up.weight
    before = picture(second)
    with (
        runtime.offload(first, slots=2),
        pytest.raises(OffloadError, match=r"^layers\.2\.up\.weight is offloaded already"),
    ):
        runtime.offload(second, slots=2)
    assert_unchanged(second, before)
    with runtime.offload(second, slots=2):
        assert same(outputs(first, batches(1)), outputs(stack(3, seed=1), batches(1)))


# Mended: the mark was an attribute of the Parameter, and was pickled with it.
def test_a_parameter_saved_while_offloaded_can_be_offloaded_elsewhere() -> None:
    with runtime.offload(stack(1).layers, slots=1) as offloaded:
        (layer,) = offloaded.selection.modules
        saved = pickle.dumps(layer.up.weight)
    model = stack(3)
    model.layers[1].up.weight = pickle.loads(saved)
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))
