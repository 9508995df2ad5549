"""What an offloaded model weighs, part by part, as a planner's costs have it; and whether costs are
of this model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

import torch

from runtime.layout import ALIGNMENT, Item, Layout, size_of
from runtime.log import log
from runtime.report import tensors_beside
from runtime.select import Selection
from schedule.costs import Costs, Module, Part
from schedule.errors import CostsError

REMEDY = "measure this one: python -m runtime profile, or runtime.profile"


def modules_of(layouts: Iterable[Layout]) -> tuple[Module, ...]:
    """By module, its size in a slot, and the parts of it that can be kept on the device."""
    return tuple(map(_module, layouts))


def _module(layout: Layout) -> Module:
    parts = tuple(
        Part(item.path, size)
        for item in layout.items
        if _can_be_kept(item, layout) and (size := _size(item))
    )
    return Module(layout.name, parts, layout.size - sum(part.size for part in parts))


def _can_be_kept(item: Item, layout: Layout) -> bool:
    """Not what is made of other tensors, or has some beside it; not what has gaps between its
    elements, which no device keeps; and not the last one, where the block's last number lies in
    what its alignment leaves: without it that number might need bytes of its own. So a refill is
    shorter by all of a part's size, whatever else is kept."""
    last = item is layout.items[-1] and layout.end % ALIGNMENT > 0
    return not (item.composed or last or item.regions[0].size > size_of(item.tensor))


def _size(item: Item) -> int:
    """Bytes in the block, aligned."""
    return sum(-(-region.size // ALIGNMENT) * ALIGNMENT for region in item.regions)


def resident(selection: Selection) -> int:
    """Bytes of what stays on the device whatever is planned."""
    return sum(size for _, size in tensors_beside(selection))


def name_of(selection: Selection, modules: Sequence[Module]) -> str:
    """Names the model for people: its class, and a digest of its modules' names and sizes."""
    what = f"{len(modules)} modules" if selection.root is None else type(selection.root).__name__
    return f"{what} {hashlib.sha256(repr(modules).encode()).hexdigest()[:12]}"


def device_name(device: torch.device) -> str:
    """Names what costs were measured on: of a CPU the threads count too."""
    if device.type == "cpu":
        return f"cpu, {torch.get_num_threads()} threads"
    name = getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if name is None else f"{device.type}, {name(device)}"


def require_costs_of(
    costs: Costs, selection: Selection, modules: Sequence[Module], device: torch.device
) -> None:
    """CostsError, with the first field that differs, if the costs are of another model. A warning
    in the log if they were measured on another device, or by another torch."""
    for at, (there, here) in enumerate(zip_longest(costs.modules, modules)):
        if there != here:
            where = f"modules[{at}]"
            raise CostsError(f"{_difference(where, there, here)}: the costs are of {_other(costs)}")
    beside = resident(selection)
    if costs.resident != beside:
        raise CostsError(
            f"resident: {costs.resident} bytes, where this model has {beside} that stay on the "
            f"device: the costs are of {_other(costs)}"
        )
    for field, there, here in (
        ("device", costs.device, device_name(device)),
        ("torch", costs.torch, torch.__version__),
    ):
        if there and there != here:
            log.warning(
                "the costs were measured elsewhere: %s %r, where this is %r. The plan is right, "
                "its times may not be; %s",
                *(field, there, here, REMEDY),
            )


def _other(costs: Costs) -> str:
    name = f"another model, {costs.model}" if costs.model else "another model"
    return f"{name}; {REMEDY}"


def _difference(where: str, there: Module | None, here: Module | None) -> str:
    if there is None or here is None:
        what = "no module here has" if here is None else "the costs lack"
        return f"{where}: {getattr(there or here, 'name', '')}, which {what}"
    if there.name != here.name:
        return f"{where}.name: {there.name}, where this model has {here.name}"
    for at, (one, other) in enumerate(zip_longest(there.parts, here.parts)):
        if one != other:
            return f"{where}.parts[{at}]: {_part(one)}, where {here.name} has {_part(other)}"
    return f"{where}.fixed: {there.fixed} bytes, where {here.name} has {here.fixed}"


def _part(part: Part | None) -> str:
    return "none" if part is None else f"{part.name}, {part.size} bytes"
