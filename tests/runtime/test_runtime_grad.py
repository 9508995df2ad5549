"""An output that requires grad is refused: its backward would read the slot, which holds other
weights by then.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import runtime
from schedule import OffloadError
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    assert_same_values,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)

MESSAGE = (
    r"^an output of layers\.0 requires grad, but by the time of backward its slot holds other "
    r"weights: run the model under torch\.no_grad\(\)$"
)


def test_an_output_that_requires_grad_is_refused_and_nothing_is_spoilt() -> None:
    model = stack(4)
    before = picture(model)
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain"):
        for _ in range(2):
            with pytest.raises(OffloadError, match=MESSAGE):
                model(batches(1)[0])
            assert_same_values(model.state_dict(), before.values)
            assert same(outputs(model, batches(2)), wanted)
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    "mode", [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)]
)
def test_without_grad_it_runs(mode: Callable[[], Any]) -> None:
    model = stack(3)
    wanted = outputs(stack(3), batches(1))
    with runtime.offload(model, slots=2), mode():
        assert torch.equal(model(batches(1)[0]), wanted[0])


def test_weights_that_are_to_be_trained_after_all_are_seen() -> None:
    """They were frozen while the model was wrapped; backward would leave them out."""
    model = stack(3).requires_grad_(False)
    with runtime.offload(model, slots=2):
        model(batches(1)[0])
        model.layers[1].requires_grad_(True)
        with pytest.raises(OffloadError, match=r"an output of layers\.1 requires grad"):
            model(batches(1)[0])
        model.layers[1].requires_grad_(False)
        assert not model(batches(1)[0]).requires_grad


def test_with_grad_enabled_but_nothing_that_requires_it_it_runs() -> None:
    """The slot's weights require it where the module's own do."""
    model = stack(3).requires_grad_(False)
    wanted = outputs(stack(3), batches(1))
    with runtime.offload(model, slots=2):
        assert torch.equal(model(batches(1)[0]), wanted[0])
    model = stack(3).requires_grad_(False)
    with runtime.offload(model.layers, slots=2):
        x = batches(1)[0]
        for layer in model.layers:
            x = layer(x)
        assert not x.requires_grad


class Wrapping(Block):
    """Its output is within something."""

    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(super().forward(x))


WRAPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tuple": lambda x: (None, x),
    "list": lambda x: [x],
    "dict": lambda x: {"hidden": {"states": (x,)}},
    "beside": lambda x: (x.detach(), x),
    "a list in a tuple": lambda x: (x.detach(), ([None, x],)),
    "a dict in a tuple": lambda x: (x.detach(), {"hidden": x}),
}


@pytest.mark.parametrize("name", WRAPS)
def test_an_output_inside_a_container_is_refused_too(name: str) -> None:
    layers = [Wrapping(WRAPS[name]) for _ in range(2)]
    x = batches(1)[0].requires_grad_()
    with (
        runtime.offload(layers, slots=1),
        pytest.raises(OffloadError, match=r"an output of modules\[0\] requires grad"),
    ):
        layers[0](x)


def gradient(model: Stack, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    model(x).sum().backward()
    assert x.grad is not None
    return x.grad


def test_it_prevents_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: without the refusal, the gradient is computed from foreign weights, in silence."""
    monkeypatch.setattr("runtime.hooks.check_output", lambda *_: None)
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)  # the graph keeps weights
    x = batches(1)[0]
    wanted = gradient(stack(3), x)
    model = stack(3)
    with runtime.offload(model, slots=1):
        assert not torch.equal(gradient(model, x), wanted)
    assert torch.equal(gradient(model, x), wanted)


class Box:
    """A result of a class that torch does not know."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


# Mended: tree_leaves does not look into objects, so that the wrong gradient came in silence.
def test_an_output_inside_an_object_is_refused_too() -> None:
    layers = [Wrapping(Box) for _ in range(2)]
    x = batches(1)[0].requires_grad_()
    with (
        runtime.offload(layers, slots=1),
        pytest.raises(OffloadError, match=r"^an output of modules\[0\] requires grad, but by the"),
    ):
        layers[0](x)


# Mended: grad was asked for where the hook runs, not where the output was made.
def test_an_output_that_requires_grad_under_no_grad_is_refused() -> None:
    """A layer that enables grad for itself."""

    class Own(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                return super().forward(x)

    layers = [Own(), Own()]
    x = torch.randn(1, WIDTH, requires_grad=True)
    with (
        torch.no_grad(),
        runtime.offload(layers, slots=1),
        pytest.raises(OffloadError, match="requires grad"),
    ):
        layers[0](x)


def test_a_trace_is_refused_which_would_keep_slots() -> None:
    model = stack(3).requires_grad_(False)
    with runtime.offload(model, slots=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        with pytest.raises(OffloadError, match=r"torch\.jit\.trace would keep slots as constants"):
            torch.jit.trace(model, batches(1)[0])
