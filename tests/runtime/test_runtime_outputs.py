"""An output that is a view of its module's weights is refused; any other one is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import runtime
from schedule import OffloadError
from tests.runtime.models import Block, batches, stack


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
        r"^an output of modules\[0\] is a view of its weights, but the slot .* \.clone\(\), or"
    )
    with pytest.raises(OffloadError, match=message):
        give(VIEWS[name])


def test_a_view_would_show_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)
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


# Mended: [sparse*], [mkldnn]: a tensor without storage has no data pointer: that was an error.
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
