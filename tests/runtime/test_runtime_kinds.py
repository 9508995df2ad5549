"""Parameters of every kind and shape are right in their slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import as_bytes, assert_unchanged, batches, outputs, picture, stack

pytestmark = pytest.mark.usefixtures("sanitized")


def bits(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random bytes as that dtype; booleans are 0 or 1."""
    size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (size,), dtype=torch.uint8)
    return (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(shape)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
]
KINDS: dict[str, Callable[[], torch.Tensor]] = {
    **{str(dtype): lambda dtype=dtype: bits((3, 5), dtype) for dtype in DTYPES},
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
    "with gaps": lambda: torch.randn(8, 8)[::2, 1::3],
    "with gaps, a column": lambda: torch.randn(100, 3)[:, 1],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "a slice with an offset": lambda: torch.randn(100)[50:60],
    "scalar": lambda: torch.randn(()),
    "one element, odd stride": lambda: torch.randn(1).as_strided((1, 1), (77, 13)),
    "empty": lambda: torch.empty(0),
    "empty, with a shape": lambda: torch.empty(3, 0, 2),
    "conjugated": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
}


class Reader(nn.Module):
    """Copies what its parameters are, in its run."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        for position, tensor in enumerate(tensors):
            self.register_parameter(f"p{position}", nn.Parameter(tensor, requires_grad=False))
        self.seen: list[list[tuple[bytes, object]]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.read())
        return x

    def read(self) -> list[tuple[bytes, object]]:
        return [(as_bytes(p), (p.shape, p.stride(), p.dtype)) for p in self.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_parameter_is_right(kind: str) -> None:
    torch.manual_seed(0)
    make = KINDS[kind]
    # Something before and after it, so that its place matters.
    layers = [Reader(torch.randn(5), make(), make(), torch.randn(3)) for _ in range(3)]
    wanted = [layer.read() for layer in layers]
    model = nn.Sequential(*layers)
    before = picture(model)
    with runtime.offload(model, slots=1, policy="chain") as offloaded:
        for slot in offloaded.arena.slots:
            assert slot.numel() == max(block[0].bytes.numel() for block in offloaded.arena.blocks)
        outputs(model, batches(2))
        assert offloaded.report().copies == 6
    assert [layer.seen for layer in layers] == [[want, want] for want in wanted]
    assert_unchanged(model, before)


def test_a_module_whose_only_parameter_is_empty_can_be_offloaded() -> None:
    layers = [Reader(torch.empty(0)), Reader(torch.randn(4)), Reader(torch.empty(0, 3))]
    with runtime.offload(layers, slots=2, policy="chain") as offloaded:
        outputs(nn.Sequential(*layers), batches(2))
        assert offloaded.report().bytes_offloaded == 16


def test_parameters_with_and_without_gradients() -> None:
    model = stack(3)
    model.layers[1].up.weight.requires_grad_(False)
    before = picture(model)
    with runtime.offload(model, slots=2):
        assert picture(model).layout == before.layout
    assert_unchanged(model, before)
