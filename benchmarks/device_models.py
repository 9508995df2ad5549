"""Decoder layers in plain torch, with the shapes of public models and random weights.

Hidden states go in and come out: there is no embedding and no head. A pass is given all that it
needs beside the weights, so that nothing else of a module can be offloaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

DTYPE, EPS = torch.bfloat16, 1e-5


@dataclass(frozen=True, slots=True)
class Shape:
    """width: of the hidden states.      inner: of the gated unit.    head: width of each head.
    heads, pairs: of queries, and of keys and values.                 base: of the rotation.
    normed: whether queries and keys are normed, head by head.        layers: of the whole model.
    """

    name: str
    width: int
    inner: int
    heads: int
    pairs: int
    head: int
    layers: int
    base: float
    normed: bool = False

    @property
    def bytes(self) -> int:
        """Of one layer's weights."""
        rows = 2 * self.heads * self.head + 2 * self.pairs * self.head + 3 * self.inner
        norms = 2 * self.width + (2 * self.head if self.normed else 0)
        return (self.width * rows + norms) * DTYPE.itemsize


# "The Llama 3 Herd of Models", arXiv:2407.21783, table 3, and the models' config.json.
LLAMA_8B = Shape("Llama-3-8B", 4096, 14336, 32, 8, 128, 32, 500_000)
LLAMA_70B = Shape("Llama-3-70B", 8192, 28672, 64, 8, 128, 80, 500_000)
# "Qwen3 Technical Report", arXiv:2505.09388, table 1, and config.json of Qwen/Qwen3-0.6B.
QWEN_06B = Shape("Qwen3-0.6B", 1024, 3072, 16, 8, 128, 28, 1_000_000, normed=True)
TINY = Shape("tiny", 32, 64, 4, 2, 8, 5, 10_000)
TINY_NORMED = Shape("tiny, normed", 16, 32, 2, 1, 8, 24, 10_000, normed=True)


class Layer(nn.Module):
    """Attention with fewer keys than queries, and a gated unit; a norm before each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        queries, pairs = shape.heads * shape.head, shape.pairs * shape.head
        self.head = shape.head
        self.norm, self.norm_inner = (nn.RMSNorm(shape.width, EPS) for _ in range(2))
        self.query, self.key, self.value = (
            nn.Linear(shape.width, rows, bias=False) for rows in (queries, pairs, pairs)
        )
        self.query_norm, self.key_norm = (
            nn.RMSNorm(shape.head, EPS) if shape.normed else nn.Identity() for _ in range(2)
        )
        self.out = nn.Linear(queries, shape.width, bias=False)
        self.gate, self.up = (nn.Linear(shape.width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x: (1, tokens, width).    cos, sin: (tokens, head).    keys, values: the cache, (1,
        pairs, context, head), whose last place is that of the one new token; or a prompt begins."""
        normed = self.norm(x)
        query = _rotated(self.query_norm(self._heads(self.query(normed))), cos, sin)
        key = _rotated(self.key_norm(self._heads(self.key(normed))), cos, sin)
        value = self._heads(self.value(normed))
        if keys is not None and values is not None:
            keys[:, :, -1:] = key
            values[:, :, -1:] = value
            key, value = keys, values
        seen = functional.scaled_dot_product_attention(
            query, key, value, is_causal=keys is None, enable_gqa=True
        )
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        normed = self.norm_inner(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """(1, tokens, rows) as (1, heads, tokens, head)."""
        return x.view(*x.shape[:2], -1, self.head).transpose(1, 2)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Stack(nn.Module):
    """Layers, one after the other."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        x, caches = inputs.x, inputs.caches
        for number, layer in enumerate(self.layers):
            cache = caches[number] if caches else ()
            x = layer(x, inputs.cos, inputs.sin, *cache)
        return x


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a pass has beside the weights; see ``Layer.forward``. caches: (keys, values) of each
    layer, or none."""

    x: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    caches: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()


def prompt(shape: Shape, tokens: int, device: torch.device) -> Inputs:
    """For the pass over so many tokens that begins an answer."""
    return Inputs(_random(device, 1, tokens, shape.width), *_rotation(shape, 0, tokens, device))


def token(shape: Shape, layers: int, context: int, device: torch.device) -> Inputs:
    """For the pass that looks at so many tokens, of which the last one is new."""
    places = (1, shape.pairs, context, shape.head)
    caches = tuple((_random(device, *places), _random(device, *places)) for _ in range(layers))
    cos, sin = _rotation(shape, context - 1, 1, device)
    return Inputs(_random(device, 1, 1, shape.width), cos, sin, caches)


def _random(device: torch.device, *sizes: int) -> torch.Tensor:
    return torch.empty(sizes, dtype=DTYPE, device=device).normal_()


def _rotation(
    shape: Shape, first: int, tokens: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, head) each; made on the host, once."""
    steps = torch.arange(0, shape.head, 2, device="cpu") / shape.head
    places = torch.arange(first, first + tokens, device="cpu", dtype=torch.float32)
    angles = torch.outer(places, shape.base**-steps).repeat(1, 2)
    return angles.cos().to(device, DTYPE), angles.sin().to(device, DTYPE)


def layer_on(shape: Shape, device: torch.device) -> Layer:
    """A layer whose weights are drawn on the device, such that its outputs are as large as its
    inputs."""
    with torch.device("meta"):
        layer = Layer(shape).to(DTYPE)
    layer.to_empty(device=device).requires_grad_(False)
    for parameter in layer.parameters():
        if parameter.dim() == 1:
            parameter.fill_(1)
        else:
            parameter.normal_(std=parameter.shape[1] ** -0.5)
    return layer.eval()
