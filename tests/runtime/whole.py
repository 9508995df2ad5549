"""Models to be compiled whole: what they read of their weights could be moved to another place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

WIDTH, LAYERS = 16, 4


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) / shape[-1] ** 0.5)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = weight(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.w.t())


class Streams(nn.Module):
    """Two streams, which never meet."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = weight(WIDTH, WIDTH), weight(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x @ self.w.t()), torch.relu(y @ self.v.t())


class Biased(nn.Module):
    """Its second output is made of a weight alone, as a relative position's bias is."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.e = weight(WIDTH, WIDTH), weight(WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu((x + y) @ self.w.t()), torch.sin(self.e) * 2 + 1


class Dequantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        values = torch.randint(-100, 100, (WIDTH, WIDTH), dtype=torch.int8)
        self.w = nn.Parameter(values, requires_grad=False)
        self.scale = nn.Parameter(torch.rand(WIDTH, 1) / 300)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ (self.w.to(x.dtype) * self.scale).t())


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x))


class Merged(nn.Module):
    """Merges its adapter anew in each run, a product of weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.a, self.b = weight(WIDTH, WIDTH), weight(WIDTH, 4), weight(4, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ (self.w + self.a @ self.b).t())


class Experts(nn.Module):
    """A mixture of which each token takes the best two; all shapes are fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = weight(4, WIDTH)
        self.up, self.down = weight(4, WIDTH, WIDTH), weight(4, WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, which = torch.softmax(x @ self.gate.t(), -1).topk(2, -1)
        scores = torch.zeros_like(x[:, :4]).scatter(1, which, best)
        each = torch.relu(torch.einsum("td,edf->tef", x, self.up))
        return x + torch.einsum("tef,efd,te->td", each, self.down, scores)


class Joint(nn.Module):
    """As a double block of Flux: two streams, each with weights of its own, that attend to both;
    their scales and shifts are made of weights and of one stream's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = weight(2, 3 * WIDTH, WIDTH), weight(2, WIDTH, WIDTH)
        self.modulation = weight(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        changes = (self.modulation @ x.mean(0)).view(2, 2, WIDTH)
        streams, parts = (x, y), []
        for stream, qkv, (scale, shift) in zip(streams, self.qkv, changes, strict=True):
            normed = nn.functional.layer_norm(stream, (WIDTH,)) * (1 + scale) + shift
            parts.append(normed @ qkv.t())
        q, k, v = torch.cat(parts).chunk(3, -1)
        mixed = torch.softmax(q @ k.t() / WIDTH**0.5, -1) @ v
        split = mixed.split([len(x), len(y)])
        x, y = (
            stream + part @ out.t()
            for stream, part, out in zip(streams, split, self.out, strict=True)
        )
        return x, y


class Chain(nn.Module):
    def __init__(self, layers: Iterable[nn.Module], streams: int = 1) -> None:
        super().__init__()
        self.layers, self.streams = nn.ModuleList(layers), streams

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 0.5
        for layer in self.layers:
            if self.streams == 2:
                x, y = layer(x, y)
            else:
                x = layer(x)
        return x + y


class Towers(nn.Module):
    """Two halves that depend on the input alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Plain() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x, x * 0.5
        for layer in self.layers[: LAYERS // 2]:
            a = layer(a)
        for layer in self.layers[LAYERS // 2 :]:
            b = layer(b)
        return a + b


@dataclass(frozen=True)
class Whole:
    """A model, its layers to offload, its inputs, and what is compared of its output."""

    model: nn.Module
    layers: list[nn.Module]
    inputs: dict[str, Any]
    first: Callable[[Any], torch.Tensor]


def _chain(kind: type[nn.Module], streams: int = 1) -> Callable[[], Whole]:
    def made() -> Whole:
        model = Chain([kind() for _ in range(LAYERS)], streams)
        return Whole(model, list(model.layers), {"x": torch.randn(3, WIDTH)}, lambda out: out)

    return made


def _towers() -> Whole:
    model = Towers()
    return Whole(model, list(model.layers), {"x": torch.randn(3, WIDTH)}, lambda out: out)


def _t5() -> Whole:
    import transformers

    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2, vocab_size=32
    )
    model = transformers.T5EncoderModel(config)
    inputs = {"input_ids": torch.randint(1, 32, (1, 6))}
    return Whole(model, list(model.encoder.block), inputs, lambda out: out.last_hidden_state)


WHOLE: dict[str, Callable[[], Whole]] = {
    "two streams": _chain(Streams, 2),
    "a function of weights": _chain(Biased, 2),
    "dequantisation": _chain(Dequantised),
    "weight norm": _chain(Normed),
    "merged adapter": _chain(Merged),
    "experts": _chain(Experts),
    "Flux": _chain(Joint, 2),
    "two towers": _towers,
    "T5": _t5,
}


def whole(name: str) -> Whole:
    """The model of this name, the same at each call."""
    torch.manual_seed(0)
    made = WHOLE[name]()
    made.model.eval().requires_grad_(False)
    return made
