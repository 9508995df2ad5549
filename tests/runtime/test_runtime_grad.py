"""An output that leads back into the slot is refused, since the slot will hold other weights: one
that requires grad, whose backward would read them, and one that is a view of them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

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


# Mended: tree_leaves does not look into objects, so that the wrong gradient comes in silence.
def test_an_output_inside_an_object_is_refused_or_has_the_right_gradient() -> None:
    def run(layers: list[nn.Module]) -> torch.Tensor:
        x = batches(1)[0].requires_grad_()
        y = x
        for layer in layers:
            y = layer(y).x
        y.sum().backward()
        return x.grad

    torch.manual_seed(0)
    layers = [Wrapping(Box) for _ in range(3)]
    wanted = run(copy.deepcopy(layers))
    with runtime.offload(layers, slots=1):
        try:
            found = run(layers)
        except (OffloadError, RuntimeError):
            return
    assert torch.equal(found, wanted)


# Mended: grad is asked for where the hook runs, not where the output was made.
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


# ---- views of weights


class Giving(Block):
    """Gives something made from its weights and its output."""

    def __init__(self, make: Callable[[Block, torch.Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(self, super().forward(x))


VIEWS: dict[str, Callable[[Block, torch.Tensor], Any]] = {
    "the weight": lambda block, _: block.up.weight,
    "its transposed rows": lambda block, _: block.down.weight.t()[2:],
    "one element": lambda block, _: block.up.bias[-1],
    "without gradient": lambda block, _: block.up.weight.detach(),
    "in a container": lambda block, x: {"x": x, "weights": [block.down.bias]},
}


def give(make: Callable[[Block, torch.Tensor], Any]) -> Any:
    """What the first of three modules gives, when the second one ran too, from one slot."""
    torch.manual_seed(0)
    layers = [Giving(make), Block(), Block()]
    with torch.no_grad(), runtime.offload(layers, slots=1):
        given = layers[0](batches(1)[0])
        layers[1](batches(1)[0])
    return given


@pytest.mark.parametrize("name", VIEWS)
def test_an_output_that_is_a_view_of_weights_is_refused(name: str) -> None:
    message = (
        r"^an output of modules\[0\] is a view of its weights, but its slot .* \.clone\(\), or"
    )
    with pytest.raises(OffloadError, match=message):
        give(VIEWS[name])


def test_a_view_would_show_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.hooks.check_output", lambda *_: None)
    torch.manual_seed(0)
    weight = Block().up.weight
    assert not torch.equal(give(VIEWS["the weight"]), weight)
    assert torch.equal(give(lambda block, _: block.up.weight.clone()), weight)


HARMLESS: dict[str, Callable[[Block, torch.Tensor], Any]] = {
    "a copy": lambda block, _: block.up.weight.clone(),
    "nothing": lambda *_: None,
    "words": lambda *_: ("a", 1, {"b": None}),
    "empty": lambda _, x: x[:0],
    "meta": lambda _, x: x.to("meta"),
    "sparse": lambda _, x: x.to_sparse(),
    "sparse rows": lambda _, x: x.to_sparse_csr(),
    "mkldnn": lambda _, x: x.to_mkldnn(),
    "jagged": lambda _, x: torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged),
}


# Mended: [sparse*], [mkldnn]: a tensor without storage has no data pointer: RuntimeError.
@pytest.mark.parametrize("name", HARMLESS)
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_other_outputs_are_none_of_our_business(name: str) -> None:
    give(HARMLESS[name])


# Mended: the same, of the tensors that vmap passes through.
def test_vmap_over_an_offloaded_model() -> None:
    model = stack(3)
    x = batches(1)[0]
    with torch.no_grad():
        wanted = torch.vmap(stack(3))(x)
        with runtime.offload(model, slots=2):
            assert torch.equal(torch.vmap(model)(x), wanted)


# ---- what a module keeps of its weights


class Keeping(Block):
    """Keeps a view of a weight, in an attribute or within one."""

    def __init__(self, deep: bool) -> None:
        super().__init__()
        self.deep, self.kept = deep, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            view = self.up.weight.detach().t()
            self.kept = [{"one": view}] if self.deep else view
        return super().forward(x)


@pytest.mark.parametrize("deep", [False, True])
def test_a_view_of_a_weight_that_a_module_keeps_is_refused(deep: bool) -> None:
    model = Stack([Keeping(deep) for _ in range(3)])
    with (
        runtime.offload(model, slots=2),
        pytest.raises(OffloadError, match=r"attribute kept of a Keeping in layers\.0 keeps a view"),
    ):
        outputs(model, batches(1))


def test_it_would_show_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.hooks.check_kept", lambda *_: None)
    model = Stack([Keeping(False) for _ in range(3)])
    with runtime.offload(model, slots=1):
        outputs(model, batches(1))
        assert not torch.equal(model.layers[1].kept, model.layers[1].up.weight.t())


def test_a_trace_is_refused_which_would_keep_slots() -> None:
    model = stack(3).requires_grad_(False)
    with runtime.offload(model, slots=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        with pytest.raises(OffloadError, match=r"torch\.jit\.trace would keep slots as constants"):
            torch.jit.trace(model, batches(1)[0])
