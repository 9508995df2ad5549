"""Ways to run a model whose layers' weights do not stay on the device, ours among others.

Each is given a model of its own and the device, and returns what to call, and what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

import runtime
from benchmarks.buffers import TwoBuffers
from benchmarks.prefetch import Prefetch

SLOTS = 2


class NotInstalled(Exception):
    """The library that a scheme is of is not there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """model: to be called.     device, locked: bytes of the model's weights on the device at most,
    and of page-locked host memory, now that it has run.     note: what else must be said."""

    model: nn.Module
    device: Callable[[], int]
    locked: Callable[[], int]
    note: str = ""


Layers = Callable[[nn.Module], nn.ModuleList]
Scheme = Callable[[nn.Module, Layers, torch.device, ExitStack], Ready]
"""Of a model on the CPU, a function that finds its layers, the device, and what to undo."""


def size(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def plain(model: nn.Module, _: Layers, device: torch.device, __: ExitStack) -> Ready:
    """The whole model on the device."""
    model.to(device)
    return Ready(model, lambda: size(model.parameters()), lambda: 0)


def ours(
    model: nn.Module, layers: Layers, device: torch.device, stack: ExitStack, **chosen: Any
) -> Ready:
    """``runtime.offload``, by its default policy; ``chosen`` are more of its arguments."""
    where = chosen or {"layers": list(layers(model))}
    one = stack.enter_context(runtime.offload(model, slots=SLOTS, device=device, **where))
    return Ready(
        model, lambda: one.report().bytes_device, lambda: one.report().bytes_locked, policy(one)
    )


def policy(one: runtime.Offloaded) -> str:
    ring = one.schedule.ring
    return f"{one.schedule.policy}, N={ring.modules}, K={ring.slots}"


def accelerate(model: nn.Module, _: Layers, device: torch.device, __: ExitStack) -> Ready:
    """accelerate's ``cpu_offload``: a layer's weights come when it is called, and go after it."""
    _require("accelerate")
    from accelerate import cpu_offload

    most = max(size(one.parameters(recurse=False)) for one in model.modules())
    return Ready(cpu_offload(model, execution_device=device), lambda: most, lambda: 0)


def diffusers(model: nn.Module, layers: Layers, device: torch.device, __: ExitStack) -> Ready:
    """diffusers' group offloading, one layer a group; with its copy stream, where it can."""
    _require("diffusers")
    from diffusers.hooks import apply_group_offloading

    stream = device.type != "cpu" and hasattr(torch.get_device_module(device), "stream")
    groups, weights = [size(one.parameters()) for one in layers(model)], size(model.parameters())
    rest = weights - sum(groups)
    apply_group_offloading(
        model,
        onload_device=device,
        offload_type="block_level",
        num_blocks_per_group=1,
        use_stream=stream,
    )
    most = rest + max(groups) * (2 if stream else 1)
    note = f"{'with' if stream else 'without'} its copy stream"
    return Ready(model, lambda: most, lambda: weights if stream else 0, note)


def prefetch(model: nn.Module, layers: Layers, device: torch.device, stack: ExitStack) -> Ready:
    """vLLM's scheme, restated."""
    one = Prefetch(layers(model), SLOTS, device)
    stack.callback(one.remove)
    rest = size(model.parameters()) - size(one.masters)
    inside = {id(master) for layer in layers(model) for master in layer.parameters()}
    for tensor in model.parameters():
        if id(tensor) not in inside:
            tensor.data = tensor.data.to(device)
    locked = size(tensor for tensor in one.masters if tensor.is_pinned())
    return Ready(model, lambda: rest + size(one.buffers), lambda: locked, f"K={SLOTS}")


def double_buffering(
    model: nn.Module, layers: Layers, device: torch.device, stack: ExitStack
) -> Ready:
    """Two buffers in turn, a copy a layer; of a model whose layers hold all of its weights."""
    one = TwoBuffers(layers(model), device)
    stack.callback(one.remove)
    return Ready(model, lambda: size(one.buffers), lambda: size(one.blocks))


def _require(library: str) -> None:
    if not find_spec(library):
        raise NotInstalled(library)
