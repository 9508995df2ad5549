"""What is refused by name: models whose weights something else moves, casts, shards or copies.

Such libraries are not imported: each is known by the marks that it leaves in a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from runtime.device import Streams
from runtime.layout import BOUND, MARK
from schedule.errors import OffloadError

MOVES = ("group_offloading", "layer_execution_tracker", "lazy_prefetch_group_offloading")
CASTS = "layerwise_casting"
"""The hooks of diffusers that move weights, and the one that casts them. Its others, which skip
blocks or cache their outputs, leave weights alone and stay."""


def refuse(model: nn.Module | Iterable[Any]) -> None:
    """OffloadError if the model, or one of these modules, is in other hands; it says where, in
    whose, and how to undo that. Nothing is changed. What is no module is passed over."""
    for name, module in _named(model):
        found = _accelerate(module) or _diffusers(module) or _parallel(module)
        if found is not None:
            raise OffloadError(f"{name or 'the model'}, a {type(module).__name__}, {found}")
        if BOUND in vars(module):
            raise OffloadError(f"{name} is offloaded already; close() that offload first")
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if getattr(tensor, MARK, None) == id(tensor):
                path = f"{name}.{key}" if name else key
                raise OffloadError(f"{path} is offloaded already; close() that offload first")


def refuse_recording(streams: Streams) -> None:
    """OffloadError while what runs is recorded, to run again without its hooks: it would read
    whatever the slots hold by then."""
    if torch.jit.is_tracing():
        raise OffloadError("torch.jit.trace would keep slots as constants: close() first")
    if streams.captures():
        raise OffloadError(
            "an offloaded model is captured into a graph, whose replays run no hooks and would "
            "read whatever its slots hold by then: capture it with offloaded.capture(function), "
            "or run it without (torch.compile in a mode without CUDA graphs)"
        )


def _named(model: nn.Module | Iterable[Any]) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(model, nn.Module) and not isinstance(model, nn.ModuleList):
        yield from model.named_modules()
        return
    for position, part in enumerate(model):
        if isinstance(part, nn.Module):
            yield from part.named_modules(prefix=f"modules[{position}]")


def _accelerate(module: nn.Module) -> str | None:
    """cpu_offload, dispatch_model, transformers' device_map; of a pipeline's part,
    enable_model_cpu_offload and enable_sequential_cpu_offload."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return None
    hooks = getattr(hook, "hooks", (hook,))
    what = f"carries accelerate's {' and '.join(sorted({type(one).__name__ for one in hooks}))}"
    if any(hasattr(one, "compute_dtype") for one in hooks):
        return f"{what}, which changes its weights' type; load the model again without it"
    # A map that is left when its hooks were removed does no harm.
    places = (getattr(module, "hf_device_map", None) or {}).values()
    devices = sorted({str(place) for place in places})
    if len(devices) > 1:
        what += f" (a device_map over {', '.join(devices)})"
    if "disk" in devices:
        return f"{what}, and some weights are on disk; load the model again without it"
    return (
        f"{what}, which moves weights or inputs by itself; load the model without it, or first "
        f"call accelerate.hooks.remove_hook_from_submodules(model), or of a pipeline "
        f"remove_all_hooks()"
    )


def _diffusers(module: nn.Module) -> str | None:
    """enable_group_offload and enable_layerwise_casting."""
    hooks: dict[str, Any] = getattr(getattr(module, "_diffusers_hook", None), "hooks", {})
    if CASTS in hooks:
        return (
            "carries diffusers' layerwise casting, which changes its weights' type; load the model "
            "again without enable_layerwise_casting()"
        )
    moving = [hooks[name] for name in MOVES if name in hooks]
    if not moving:
        return None
    what = "carries diffusers' group offloading"
    if any(getattr(getattr(one, "group", None), "offload_to_disk_path", None) for one in moving):
        return f"{what}, and its weights are on disk; load the model again without it"
    return (
        f"{what}, which moves weights by itself; load the model without it, or for each name of "
        f"{MOVES} first call "
        f"diffusers.hooks.HookRegistry.check_if_exists_or_initialize(model).remove_hook(name)"
    )


def _parallel(module: nn.Module) -> str | None:
    """Wrappers of torch itself; those of FSDP by their names, since importing it takes long."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return "copies weights or gradients by itself; offload its .module, without the wrapper"
    kinds = {kind.__name__ for kind in type(module).__mro__}
    for kind, how in ("FSDPModule", "fully_shard (FSDP2)"), ("FullyShardedDataParallel", "FSDP"):
        if kind in kinds:
            return (
                f"is sharded by {how}, which gathers its weights by itself and can't be undone; "
                f"build or load the model again without it"
            )
    return None
