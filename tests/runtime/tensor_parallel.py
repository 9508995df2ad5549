"""Tensor-parallel models for two ranks, cut into parts that are not equal; and what is counted."""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.runtime.models import Block, Stack, outputs

INNER = (65, 129, 65, 129, 65)
"""The widths that are cut: rank 0 has the larger half of each."""


class Failure(Exception):
    """What a layer raises that is told to."""


class Layer(Block):
    """raises: "before" or "after" its collective, once, and what."""

    raises: tuple[str, type[BaseException]] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._raise_if("before")
        x = super().forward(x)
        self._raise_if("after")
        return x

    def _raise_if(self, when: str) -> None:
        if self.raises is not None and self.raises[0] == when:
            kind, self.raises = self.raises[1], None
            raise kind


class Bare(Layer):
    """Its output is still being reduced when it returns it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        reduced: torch.Tensor = self.down(torch.tanh(self.up(x)))
        return reduced


class Gathering(Layer):
    """Gathers a weight from both ranks, and waits for that in its run, or leaves it under way."""

    waits = True
    left: list[torch.Tensor] = []  # noqa: RUF012

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        group = self.down.bias.device_mesh.get_group().group_name
        functional = torch.ops._c10d_functional
        both = functional.all_gather_into_tensor(self.down.bias.to_local(), 2, group)
        if self.waits:
            x = x + functional.wait_tensor(both).sum()
        else:
            self.left.append(both)
        return super().forward(x)


class Retrying(Stack):
    """Runs a layer that raised once more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            try:
                x = layer(x)
            except (Failure, KeyboardInterrupt):
                x = layer(x)
        return x


class Agreeing(Stack):
    """After each layer the ranks tell each other whether it raised; if so, both end the pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            raised = torch.zeros(1)
            try:
                x = layer(x)
            except (Failure, KeyboardInterrupt):
                raised += 1
            distributed.all_reduce(raised)
            if raised:
                raise Failure
        return x


def parallel(layer: type[Layer] = Layer, model: type[Stack] = Stack) -> Stack:
    """The same model on both ranks, each of which keeps its part of the layers."""
    mesh = init_device_mesh("cpu", (2,))
    assert mesh.get_group() is distributed.group.WORLD, "its collectives are counted"
    torch.manual_seed(0)
    made = model(map(layer, INNER)).eval().requires_grad_(False)
    # As DTensors: local outputs are taken to be of equal sizes.
    plan = {"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel()}
    for one in made.layers:
        parallelize_module(one, mesh, plan)
    return made


def collectives() -> int:
    """How many this rank took part in so far, of any kind, whoever called them."""
    group = distributed.group.WORLD
    assert group is not None, "it was made"
    return group._get_sequence_number_for_group()


def counted(model: nn.Module, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """What the model gives, and in how many collectives."""
    before = collectives()
    return outputs(model, inputs), collectives() - before
