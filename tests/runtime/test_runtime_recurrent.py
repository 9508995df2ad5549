"""Recurrent layers of torch keep their parameters in a list as well, and read that alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError
from tests.runtime.models import same

pytestmark = pytest.mark.usefixtures("sanitized")

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(8, 8, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.cells(x)[0]
        return output


def made(kind: type[nn.RNNBase]) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Recurrent(kind) for _ in range(4))).requires_grad_(False)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_they_run_from_slots_and_follow_changes(kind: type[nn.RNNBase]) -> None:
    model = made(kind)
    twin = copy.deepcopy(model)
    with runtime.offload(model, list(model), slots=2) as offloaded:
        assert same([model(X) for _ in range(2)], [twin(X) for _ in range(2)])
        assert offloaded.report().copies == 8
        for one in model, twin:
            ones = torch.ones(one[1].cells.weight_hh_l1.shape)
            one[1].cells.weight_hh_l1 = nn.Parameter(ones, requires_grad=False)
        with pytest.raises(OffloadError, match=r"^1\.cells\.weight_hh_l1 was replaced"):
            model(X)
        offloaded.refresh()
        assert torch.equal(model(X), twin(X))
        values = {name: 2 * value for name, value in twin.state_dict().items()}
        for one in model, twin:
            one.load_state_dict(values)
        assert torch.equal(model(X), twin(X))
    assert torch.equal(model(X), twin(X))
    for layer in model:
        flat = layer.cells._flat_weights
        assert all(a is b for a, b in zip(flat, layer.cells.parameters(), strict=True))


def test_unless_the_list_is_bound_too_it_would_show_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: torch puts into it what the parameters are in the run, and it stays there."""
    monkeypatch.setattr("runtime.layout.FlatWeights.__setitem__", lambda *_: None)
    model = made(nn.LSTM)
    with (
        runtime.offload(model, list(model), slots=2),
        pytest.raises(OffloadError, match=r"keeps 0\.cells\.weight_ih_l0, or a view of it"),
    ):
        model(X)
