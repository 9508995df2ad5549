"""Load a checkpoint while offloading: each tensor goes from its file straight to its place.

The model is built on the meta device, so it takes no memory before, and the checkpoint is never
whole anywhere but in the host blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn

from runtime.checkpoint import CODES, Checkpoint, Stored, open_checkpoint
from runtime.offload import offload
from runtime.offloaded import Offloaded
from runtime.select import Layers
from schedule.errors import OffloadError

REAL_BUFFERS = (
    "build the model with real buffers, under accelerate.init_empty_weights() and not "
    "torch.device('meta') (then tie what was tied: model.tie_weights()); or give them their values"
)
TIES = (
    "if such a tensor is tied to another one: model.tie_weights() before, init_empty_weights unties"
)
LISTED = 5
"""How many tensors of each kind an error lists."""


def load(
    model: nn.Module,
    checkpoint: str | PathLike[str],
    layers: Layers = None,
    **options: Any,
) -> Offloaded:
    """Offload a model that is on the meta device, with the values of a checkpoint.

    model:      the whole model; its parameters are on the meta device, in the checkpoint's dtypes.
    checkpoint: a safetensors file, the index of a sharded one, or a folder with either.
    layers and options: as for ``offload``.

    The layers' tensors are copied from the mapped file into their host blocks, the others to the
    device. Parameter objects stay the same, and after ``close()`` they are on the CPU. Raises
    OffloadError with a list of all tensors that do not fit, before anything is allocated, and
    what ``offload`` raises; the model is then on the meta device again.
    """
    if "source" in options:
        raise OffloadError("load reads the checkpoint; a source of your own goes with offload")
    if not isinstance(model, nn.Module):
        raise OffloadError(f"model is a {type(model).__name__}; give the whole model, an nn.Module")
    found = open_checkpoint(checkpoint)
    stored = _match(model, found, checkpoint)

    def source(name: str, target: torch.Tensor) -> None:
        target.copy_(stored[name].read())

    buffers = list(_persistent_buffers(model))
    try:
        for holder, name, buffer in buffers:
            holder[name] = buffer.to("meta")
        return offload(model, layers, source=source, **options)
    except BaseException:
        for holder, name, buffer in buffers:
            holder[name] = buffer
        raise


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor of the model that a checkpoint has, under at least one of its names."""

    names: list[str]
    tensor: torch.Tensor


def _wanted(model: nn.Module) -> list[Wanted]:
    """Parameters and persistent buffers; tied ones once, with all of their names."""
    found: dict[int, Wanted] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        skipped = module._non_persistent_buffers_set
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None and name not in skipped:
                full = f"{path}.{name}" if path else name
                found.setdefault(id(tensor), Wanted([], tensor)).names.append(full)
    return list(found.values())


def _lost(model: nn.Module) -> Iterator[str]:
    """Tensors on the meta device that no checkpoint has."""
    for path, module in model.named_modules():
        attributes = [(k, v) for k, v in vars(module).items() if isinstance(v, torch.Tensor)]
        kept = [(name, module._buffers[name]) for name in module._non_persistent_buffers_set]
        for name, tensor in [*kept, *attributes]:
            if tensor is not None and tensor.is_meta:
                yield f"{path}.{name}" if path else name


def _persistent_buffers(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, torch.Tensor]]:
    """Buffers that get the checkpoint's values, where they had their own too."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield module._buffers, name, buffer


def _match(model: nn.Module, found: Checkpoint, path: str | PathLike[str]) -> dict[str, Stored]:
    """What is stored for each name in the model. OffloadError lists what does not fit."""
    wanted = _wanted(model)
    there = [[found[name] for name in one.names if name in found] for one in wanted]
    pairs = [(one, stored) for one, group in zip(wanted, there, strict=True) for stored in group]
    names = {name for one in wanted for name in one.names}
    missing = [" or ".join(w.names) for w, group in zip(wanted, there, strict=True) if not group]
    unexpected = [name for name in found if name not in names]
    shapes = [(one, stored) for one, stored in pairs if stored.shape != tuple(one.tensor.shape)]
    dtypes = [(one, stored) for one, stored in pairs if stored.dtype != CODES.get(one.tensor.dtype)]
    real = [one.names[0] for one in wanted if _is_real(one.tensor)]
    untied = [" and ".join(s.name for s in group) for group in there if _differ(group)]
    lost = list(_lost(model))
    parts = [
        _listed("not on the meta device, as they must be", real),
        _listed("missing from the checkpoint", missing),
        TIES if missing and hasattr(model, "tie_weights") else "",
        _listed("unexpected in the checkpoint", unexpected),
        _prefix(model, names, set(found)) if missing and unexpected else "",
        _listed("of another shape", [f"{s.name}, {_shapes(one, s)}" for one, s in shapes]),
        _listed("of another dtype", [f"{s.name}, {_dtypes(one, s)}" for one, s in dtypes]),
        _remedy({stored.dtype for _, stored in dtypes}),
        _listed("on the meta device, but no checkpoint has such tensors", lost),
        REAL_BUFFERS if lost else "",
        _listed("tied in the model, but not equal in the checkpoint", untied),
    ]
    if any(parts):
        raise OffloadError(
            "\n  ".join([f"{path} does not fit {type(model).__name__}:", *filter(None, parts)])
        )
    return {name: group[0] for w, group in zip(wanted, there, strict=True) for name in w.names}


def _is_real(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.is_meta


def _listed(what: str, items: list[str]) -> str:
    more = f"; and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return f"{what} ({len(items)}): {'; '.join(items[:LISTED])}{more}" if items else ""


def _shapes(one: Wanted, stored: Stored) -> str:
    return f"{stored.shape} in the checkpoint, {tuple(one.tensor.shape)} in the model"


def _dtypes(one: Wanted, stored: Stored) -> str:
    return f"{stored.dtype} in the checkpoint, {one.tensor.dtype} in the model"


def _remedy(stored: set[str]) -> str:
    """What to do about dtypes."""
    if not stored:
        return ""
    known = [dtype for dtype, code in CODES.items() if code in stored and dtype.is_floating_point]
    if len(known) == len(stored) == 1:
        return f"nothing is converted: while it is on meta, make the model so: model.to({known[0]})"
    return "nothing is converted: make the tensors in the checkpoint's dtypes, or convert the file"


def _prefix(model: nn.Module, names: set[str], found: set[str]) -> str:
    """Whether one prefix is all that is between the names."""
    for part, _ in model.named_children():
        if all(f"{part}.{name}" in names for name in found):
            return f"all would fit with the prefix '{part}.': this is a checkpoint of model.{part}"
    for part in sorted({name.partition(".")[0] for name in found}):
        if all(f"{part}.{name}" in found for name in names):
            return f"all would fit without the prefix '{part}.': the model is only a part of it"
    return "for names that transformers converts, use its from_pretrained, then runtime.offload"


def _differ(group: list[Stored]) -> bool:
    """Whether tensors stored under several names of one tied tensor are not all the same."""
    if len(group) < 2 or len({(stored.shape, stored.dtype) for stored in group}) > 1:
        return False  # or said already
    first, *others = (stored.read().contiguous().view(-1).view(torch.uint8) for stored in group)
    return any(not torch.equal(first, other) for other in others)
