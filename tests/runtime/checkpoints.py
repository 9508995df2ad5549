"""Checkpoints on disk, made from a model or from tensors; and models to load them into."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError
from tests.runtime.models import WIDTH, stack

N = 5


def save(tensors: nn.Module | Mapping[str, torch.Tensor], path: Path) -> Path:
    """One safetensors file."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    state = tensors.state_dict() if isinstance(tensors, nn.Module) else tensors
    save_file(dict(state), path)
    return path


def save_sharded(model: nn.Module, folder: Path, shards: int = 3) -> Path:
    """So many files, and the index that names them."""
    state, weight_map = list(model.state_dict().items()), {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = dict(state[number::shards])
        save(part, folder / name)
        weight_map.update(dict.fromkeys(part, name))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="ascii")
    return index


def on_meta(make: Callable[[], nn.Module] = lambda: stack(N)) -> Any:
    with torch.device("meta"):
        return make()


def skeleton(model: nn.Module) -> list[Any]:
    """The objects in a model, and where they are."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return [(name, id(tensor), tensor.device, tensor.shape) for name, tensor in named]


def refused(model: nn.Module, path: Path, message: str, **options: Any) -> None:
    """The model is as before, and no host block was asked for."""
    before = skeleton(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.host.HostMemory.block", lambda *_: pytest.fail("allocated"))
        with pytest.raises(OffloadError, match=message):
            runtime.load(model, path, **options)
    assert skeleton(model) == before


class Tied(nn.Module):
    """The head reads the first layer's weight, which hangs in the model twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body = stack(3)
        self.first, self.head = nn.Linear(WIDTH, WIDTH, False), nn.Linear(WIDTH, WIDTH, False)
        self.head.weight = self.first.weight
        self.again = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.first(x)))
