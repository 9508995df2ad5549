"""Host blocks and device slots as bytes, and the two sets of Parameters that lie over them.

A module's own Parameter objects never change identity; they live in the module's host block. A
second set lies over its slot, at fixed addresses; over each of them, if it runs from several.
Binding puts the second set into the submodules' ``_parameters`` while the module runs, and the
first set back when it ended. So outside its module's run a weight is its host master, never a
slot's bytes.

Every parameter, host and device, has a storage object of its own over its bytes: views into one
shared storage break ``torch.save``, safetensors and AOTAutograd.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import torch
from torch import nn

from schedule.errors import OffloadError
from schedule.table import RUN, Schedule

MARK = "ringproof_offloaded"
"""The attribute that marks a Parameter as living in a host block, by its id: a copy of it, from
a deepcopy or a file, carries the attribute too and does not."""

ALIGNMENT = 256
"""Bytes; every parameter starts at a multiple, which satisfies all vector loads."""


@dataclass(frozen=True, slots=True)
class Region:
    """Where a parameter lies in its module's block: bytes from ``offset``, and how to read them."""

    offset: int
    size: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    def over(self, block: torch.Tensor) -> torch.Tensor:
        """A tensor over this region of the block, with a storage object of its own."""
        bytes_ = block.untyped_storage()[self.offset : self.offset + self.size]
        tensor = torch.empty(0, dtype=self.dtype, device=block.device)
        return tensor.set_(bytes_, 0, self.shape, self.stride)


@dataclass(frozen=True, slots=True)
class Place:
    """One name under which a parameter hangs in a submodule, and its two Parameter objects."""

    parameters: dict[str, nn.Parameter | None]
    name: str
    host: nn.Parameter
    device: nn.Parameter

    @property
    def shows(self) -> nn.Parameter | None:
        """The Parameter that the submodule has under this name now."""
        return self.parameters.get(self.name)


@dataclass(slots=True, eq=False)
class DeviceSet:
    """A module's second set of Parameters, over one slot.

    places: where they hang in the module.     start, end: the slot's addresses.
    written: the sum of their versions, after the last write that is in the host masters too.
    """

    module: int
    places: tuple[Place, ...]
    start: int
    end: int
    written: int = 0

    def __post_init__(self) -> None:
        self.written = self.version

    @property
    def was_written(self) -> bool:
        """Whether the weights in the slot were written since they were last kept."""
        return self.written != self.version

    @property
    def version(self) -> int:
        return sum(place.device._version for place in self.places)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters of one module that are offloaded, their regions, and the block's bytes."""

    module: nn.Module
    name: str
    paths: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    regions: tuple[Region, ...]
    size: int

    @property
    def weights(self) -> int:
        """Bytes of weights, without the gaps of alignment."""
        return sum(p.numel() * p.element_size() for p in self.parameters)


def lay_out(module: nn.Module, name: str, stay: Set[int]) -> Layout:
    """Plan the module's block; ``stay`` are the ids of parameters that are not offloaded.
    OffloadError names a parameter that can't be. Nothing is changed."""
    offset, paths, parameters, regions = 0, [], [], []
    for path, parameter in module.named_parameters():
        if id(parameter) in stay:
            continue
        _refuse_unless_plain(parameter, f"{name}.{path}")
        size = _extent(parameter) * parameter.element_size()
        shape, stride = parameter.shape, parameter.stride()
        regions.append(Region(offset, size, shape, stride, parameter.dtype))
        paths.append(path)
        parameters.append(parameter)
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    return Layout(module, name, tuple(paths), tuple(parameters), tuple(regions), offset)


def _extent(tensor: torch.Tensor) -> int:
    """How many elements lie between a tensor's first and last one, both included."""
    if tensor.numel() == 0:
        return 0
    lengths = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((length - 1) * stride for length, stride in lengths)


def _refuse_unless_plain(parameter: nn.Parameter, name: str) -> None:
    if parameter.is_meta:
        raise OffloadError(
            f"parameter {name} is on the meta device and has no values; load the checkpoint "
            f"before offloading"
        )
    if parameter.is_inference():
        raise OffloadError(
            f"parameter {name} was made under torch.inference_mode and has no version counter; "
            f"build or load the model outside of it"
        )
    kind = type(parameter.data)
    if type(parameter) is not nn.Parameter or kind is not torch.Tensor:
        raise OffloadError(
            f"parameter {name} is a {type(parameter).__name__} over a {kind.__name__}; only plain "
            f"dense parameters can be offloaded: leave its module out of layers"
        )
    if parameter.layout is not torch.strided:
        raise OffloadError(
            f"parameter {name} has layout {parameter.layout}, and only strided ones can be "
            f"offloaded; make it dense, or leave its module out of layers"
        )
    if _extent(parameter) < parameter.numel():
        raise OffloadError(
            f"parameter {name} overlaps itself (shape {tuple(parameter.shape)}, stride "
            f"{parameter.stride()}); make it contiguous before offloading"
        )


def place_at(parameter: nn.Parameter, tensor: torch.Tensor) -> None:
    """Let the Parameter, the same object, be over this tensor. Between some device types its
    ``.data`` can't be set; then the two objects change contents, as ``nn.Module.to`` does it."""
    if torch._has_compatible_shallow_copy_type(parameter, tensor):
        parameter.data = tensor
    else:
        other = nn.Parameter(tensor, requires_grad=parameter.requires_grad)
        other.__dict__.update(parameter.__dict__)  # attributes and gradient are swapped too
        other.grad = None if parameter.grad is None else parameter.grad.to(tensor.device)
        torch.utils.swap_tensors(parameter, other)


class Arena:
    """The blocks and the slots of one offload.

    layouts: by module.     schedule: which modules run from a slot, or are copied into it.
    Each slot is as large as the largest of these.     sets: by module and slot.
    """

    def __init__(self, layouts: Sequence[Layout], schedule: Schedule, device: torch.device) -> None:
        self.layouts, moments = tuple(layouts), list(schedule.walk(1))
        sizes = [0] * schedule.ring.slots
        for moment in moments:
            sizes[moment.slot] = max(sizes[moment.slot], layouts[moment.module].size)
        self.slots = tuple(torch.empty(size, dtype=torch.uint8, device=device) for size in sizes)
        self.blocks: list[torch.Tensor] = []
        self._device = device
        self._addresses: list[tuple[int, ...]] = []
        runs = {(moment.module, moment.slot) for moment in moments if moment.half == RUN}
        self.sets = {
            (module, slot): self._device_set(module, slot) for module, slot in sorted(runs)
        }

    def _device_set(self, module: int, slot: int) -> DeviceSet:
        over, start = self.slots[slot], self.slots[slot].data_ptr()
        places = tuple(self._places(self.layouts[module], over))
        return DeviceSet(module, places, start, start + over.numel())

    def _places(self, layout: Layout, slot: torch.Tensor) -> Iterable[Place]:
        device_set = {
            id(parameter): nn.Parameter(region.over(slot), requires_grad=False)
            for parameter, region in zip(layout.parameters, layout.regions, strict=True)
        }
        for submodule in layout.module.modules():
            for name, parameter in submodule._parameters.items():
                if parameter is not None and id(parameter) in device_set:
                    yield Place(submodule._parameters, name, parameter, device_set[id(parameter)])

    def adopt(self, module: int, block: torch.Tensor) -> None:
        """Move the module's weights into its host block; its Parameter objects stay the same."""
        assert module == len(self.blocks), "modules are adopted in order"
        layout = self.layouts[module]
        self.blocks.append(block)
        for parameter, region in zip(layout.parameters, layout.regions, strict=True):
            master = region.over(block)
            master.copy_(parameter.data)
            place_at(parameter, master)
            setattr(parameter, MARK, id(parameter))
        self._addresses.append(tuple(parameter.data_ptr() for parameter in layout.parameters))

    def bind(self, weights: DeviceSet) -> None:
        """Show the slot's weights in the module. OffloadError if its own are others by now."""
        module, layout = weights.module, self.layouts[weights.module]
        addresses = tuple(parameter.data_ptr() for parameter in layout.parameters)
        for place in weights.places:
            shown = place.shows
            if shown is not place.host and shown is not place.device:
                self._refuse_changed(module, place.name)
        if addresses != self._addresses[module]:
            changed = zip(addresses, self._addresses[module], layout.paths, strict=True)
            self._refuse_changed(module, next(path for now, then, path in changed if now != then))
        for place in weights.places:
            place.parameters[place.name] = place.device

    def _refuse_changed(self, module: int, path: str) -> None:
        raise OffloadError(
            f"parameter {path} of {self.layouts[module].name} was replaced, or its data was, while "
            f"the model is offloaded; close() first, change the model, and offload it again"
        )

    def unbind(self, weights: DeviceSet) -> None:
        """Show the host masters in the module."""
        for place in weights.places:
            if place.shows is place.device:
                place.parameters[place.name] = place.host

    def keep_writes(self, weights: DeviceSet) -> None:
        """What was written into the weights in the slot goes into the host masters, whose new
        version then makes the slot's copy old."""
        with torch.no_grad():
            for place in weights.places:
                place.host.copy_(place.device)
        weights.written = weights.version

    def in_slot(self, weights: DeviceSet, tensor: torch.Tensor) -> bool:
        """Whether the tensor's bytes lie in the slot of these weights."""
        if tensor.device.type != self._device.type:
            return False
        try:
            return weights.start <= tensor.data_ptr() < weights.end
        except RuntimeError:  # it has no storage: sparse, or inside a function transform
            return False

    def version(self, module: int) -> int:
        """Grows whenever torch writes into one of the module's host masters."""
        return sum(parameter._version for parameter in self.layouts[module].parameters)

    def release(self, devices: dict[int, torch.device]) -> None:
        """Give every Parameter an ordinary tensor again, on the device that it had by its id."""
        for layout in self.layouts[: len(self.blocks)]:
            for parameter in layout.parameters:
                plain = torch.empty_strided(
                    parameter.shape,
                    parameter.stride(),
                    dtype=parameter.dtype,
                    device=devices[id(parameter)],
                )
                place_at(parameter, plain.copy_(parameter.data))
                parameter.__dict__.pop(MARK, None)
        self.blocks.clear()
        self.slots, self.sets = (), {}
