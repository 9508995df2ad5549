"""What people change within an offloaded model's layers, and what the runtime says then."""

from __future__ import annotations

import torch
from torch import nn

from tests.runtime.models import WIDTH, Stack


class Adapter(nn.Module):
    """A low-rank adapter around a linear layer, as peft puts it in."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        # On the device of the base's weight, which is the host while it is offloaded.
        self.down = nn.Linear(base.in_features, 2, bias=False, device=base.weight.device)
        self.up = nn.Linear(2, base.out_features, bias=False, device=base.weight.device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def replaced(model: Stack) -> None:
    model.layers[1].up.weight = nn.Parameter(torch.ones_like(model.layers[1].up.weight))


def replaced_in_the_table(model: Stack) -> None:
    part = model.layers[1].up
    part._parameters["weight"] = nn.Parameter(torch.ones_like(part.weight))


def larger(model: Stack) -> None:
    model.layers[2].up = nn.Linear(WIDTH, 300)
    model.layers[2].down = nn.Linear(300, WIDTH)


def other_data(model: Stack) -> None:
    model.layers[1].up.weight.data = torch.ones(model.layers[1].up.weight.shape)


def adapted(model: Stack) -> None:
    for layer in model.layers:
        layer.up = Adapter(layer.up)


def deleted(model: Stack) -> None:
    model.layers[1].up.bias = None


def another_name(model: Stack) -> None:
    model.layers[1].extra = nn.Parameter(torch.ones(3))


def swapped(model: Stack) -> None:
    one = nn.Parameter(torch.ones_like(model.layers[1].up.weight))
    torch.utils.swap_tensors(model.layers[1].up.weight, one)


CHANGES = {
    replaced: r"\.up\.weight was replaced",
    replaced_in_the_table: r"\.up\.weight was replaced",
    larger: r"\.\w+\.\w+ was \w+",
    other_data: r"\.up\.weight was given other data",
    adapted: r"\.up\.\S+ was \w+",
    deleted: r"\.up\.bias was deleted",
    another_name: r"\.extra was added",
    swapped: r"\.up\.weight was given other data",
}
