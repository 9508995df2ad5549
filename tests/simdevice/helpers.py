"""Small things that several tests need."""

from __future__ import annotations

from collections.abc import Callable

import torch

DEVICE, OTHER = "simdev:0", "simdev:1"


def stream(device: str = DEVICE) -> torch.Stream:
    return torch.Stream(device=device)


def full(value: float, size: int = 4, device: str = DEVICE) -> torch.Tensor:
    """A tensor of this value that is there already."""
    tensor = torch.full((size,), float(value), device=device)
    torch.accelerator.synchronize(device)
    return tensor


def pinned(value: float, size: int = 4) -> torch.Tensor:
    return torch.full((size,), float(value)).pin_memory()


def is_all(tensor: torch.Tensor, value: float) -> bool:
    """Whether every element is this value; waits for the tensor's current stream."""
    on_host = tensor.cpu()
    if value != value:
        return bool(on_host.isnan().all())
    return bool((on_host == value).all())


def error_of(call: Callable[[], object]) -> str:
    """The first line of the RuntimeError that the call raises; empty if it raises none."""
    try:
        call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""
