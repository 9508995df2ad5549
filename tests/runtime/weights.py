"""Every kind of weight: a quantised subclass, tables in buffers, an attribute beside a Parameter,
buffers that a run writes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from runtime.layout import LARGE_BUFFER
from tests.runtime.models import WIDTH, Block, Stack


class Scaled(torch.Tensor):
    """A weight in eight bits with a scale for each row, as quantisers make them."""

    data_: torch.Tensor
    scale: torch.Tensor
    __slots__ = ("data_", "scale")

    @staticmethod
    def __new__(cls, data_: torch.Tensor, scale: torch.Tensor) -> Scaled:
        made = torch.Tensor._make_wrapper_subclass(
            cls, data_.shape, dtype=scale.dtype, device=data_.device, strides=data_.stride()
        )
        made.data_, made.scale = data_, scale
        return made

    @classmethod
    def of(cls, weight: torch.Tensor) -> Scaled:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def dense(self) -> torch.Tensor:
        return self.data_.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data_", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: object) -> Scaled:
        return Scaled(inner["data_"], inner["scale"])

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(function(arguments[0].data_), function(arguments[0].scale))
        if function is torch.ops.aten.clone.default:
            return cls(arguments[0].data_.clone(), arguments[0].scale.clone())
        if function is torch.ops.aten._to_copy.default:
            device = (options or {}).get("device")
            return cls(arguments[0].data_.to(device), arguments[0].scale.to(device))
        if function is torch.ops.aten.mul_.Scalar or function is torch.ops.aten.mul_.Tensor:
            arguments[0].scale.mul_(arguments[1])
            return arguments[0]
        dense = [one.dense() if isinstance(one, Scaled) else one for one in arguments]
        return function(*dense, **(options or {}))


class Quantised(Block):
    """A block with weights of that kind."""

    def __init__(self, inner: int = 64) -> None:
        super().__init__(inner)
        for layer in self.up, self.down:
            layer.weight = nn.Parameter(Scaled.of(layer.weight.detach()), requires_grad=False)
            layer.bias.requires_grad_(False)


class Tables(nn.Module):
    """Weights in buffers, as GPTQ and AWQ keep them, and scales in attributes of a Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.randint(-99, 99, (WIDTH, WIDTH), dtype=torch.int32))
        self.register_buffer("zeros", torch.randint(0, 9, (WIDTH,), dtype=torch.uint8), False)
        self.register_buffer("small", torch.randn(WIDTH))
        self.register_buffer("large", torch.randn(LARGE_BUFFER // 4 + WIDTH))
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
        self.weight.scale = torch.rand(WIDTH)  # type: ignore[attr-defined]
        self.weight.kind = "rows"  # type: ignore[attr-defined]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.weight.kind == "rows"
        quantised = (self.qweight + self.zeros).to(x.dtype) / 100
        return torch.tanh(x @ quantised + self.large[:WIDTH] + self.small) @ (
            self.weight * self.weight.scale
        )


def made(kind: type[nn.Module], modules: int = 3) -> Stack:
    torch.manual_seed(0)
    return Stack([kind() for _ in range(modules)]).eval()


def inner_tensors(layer: nn.Module) -> list[torch.Tensor]:
    found = []
    for tensor in [*layer.parameters(), *layer.buffers()]:
        parts = [tensor.data_, tensor.scale] if isinstance(tensor, Scaled) else [tensor]
        beside = vars(tensor).get("scale")
        found += parts if beside is None or isinstance(tensor, Scaled) else [*parts, beside]
    return found


class Counting(nn.Module):
    """Counts its runs in a buffer of integers, and remembers its inputs in a large one."""

    def __init__(self, replace: bool) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(LARGE_BUFFER // 4 + 1))
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.replace = replace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x) + self.cache[:WIDTH] * self.runs
        if self.replace:
            self.runs = self.runs + 1
            self.cache = torch.cat([x[0], self.cache[WIDTH:]])
        else:
            self.runs += 1
            self.cache[:WIDTH] = x[0]
        return x
