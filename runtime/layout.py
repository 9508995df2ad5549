"""What of a module is offloaded, and where it lies in the module's block of bytes.

The block begins and ends with the module's number, which so is copied with its weights: a device
can tell whose bytes a slot holds. The first is overwritten by whatever else is copied there, and
the last comes last.

Offloaded are its parameters, and its buffers of integer type or above a mebibyte: quantised
layers keep their weights in such. The others are small, and stay on the device. What hangs in
several places stays there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from runtime.leaves import extent, is_wrapper, leaves, refuse_unless_plain
from schedule.errors import OffloadError

ALIGNMENT = 256
"""Bytes; every leaf starts at a multiple, which satisfies all vector loads."""

NUMBER = 8
"""Bytes of a module's number."""

MARK = "ringproof_offloaded"
"""The attribute that marks a tensor as living in a host block, by its id: a copy of it, from a
deepcopy or a file, carries the attribute too and does not."""

BOUND = "ringproof_bound"
"""The attribute in which a module has what its operators work on, while its weights stay bound to
a slot."""

LARGE_BUFFER = 1 << 20
"""Bytes; a buffer above is offloaded, whatever its type."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a module's host memory: the bytes of its block from ``offset`` on."""

    offset: int
    bytes: torch.Tensor


Block = tuple[Segment, ...]
"""A module's host memory, in order; no region crosses a segment's end."""


@dataclass(frozen=True, slots=True)
class Region:
    """Where a leaf lies in its module's block: bytes from ``offset``, and how to read them."""

    offset: int
    size: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    def over(self, block: Sequence[Segment]) -> torch.Tensor:
        """A tensor over this region of the block, with a storage object of its own: views into
        one storage break ``torch.save``, safetensors and AOTAutograd."""
        segment = next(s for s in reversed(block) if s.offset <= self.offset)
        start = self.offset - segment.offset
        bytes_ = segment.bytes.untyped_storage()
        first = segment.bytes.storage_offset() + start  # a segment may be a part of a slab
        tensor = torch.empty(0, dtype=self.dtype, device=segment.bytes.device)
        return tensor.set_(bytes_[first : first + self.size], 0, self.shape, self.stride)


def number_at(offset: int) -> Region:
    """Where a module's number lies, from this offset on."""
    return Region(offset, NUMBER, torch.Size(()), (), torch.int64)


@dataclass(frozen=True, slots=True)
class Item:
    """One offloaded Parameter or buffer: its name in the module, the object, and its plain
    tensors with their regions. ``beside``: its attributes that are tensors, among these too."""

    path: str
    tensor: torch.Tensor
    beside: tuple[str, ...]
    leaves: tuple[torch.Tensor, ...]
    regions: tuple[Region, ...]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """It and those beside it."""
        return self.tensor, *(getattr(self.tensor, name) for name in self.beside)

    @property
    def composed(self) -> bool:
        """Whether it is made of other tensors, or has some beside it."""
        return bool(self.beside) or self.leaves[0] is not self.tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """The items of one module, and its block's bytes. ``end``: where its last number lies.
    ``whole`` and ``paths``: the bytes and the names of all its tensors, those that stay on the
    device too."""

    module: nn.Module
    name: str
    items: tuple[Item, ...]
    size: int
    end: int
    whole: int
    paths: frozenset[str]

    @property
    def leaves(self) -> Iterator[tuple[torch.Tensor, Region]]:
        """All plain tensors with their regions, in the order of the block."""
        for item in self.items:
            yield from zip(item.leaves, item.regions, strict=True)

    def path(self, tensor: torch.Tensor) -> str:
        """The full name of the item that this is, or is a leaf of."""
        these = (i.path for i in self.items if any(tensor is t for t in (i.tensor, *i.leaves)))
        return f"{self.name}.{next(these)}"

    @property
    def weights(self) -> int:
        """Bytes of weights, without the gaps of alignment."""
        return sum(size_of(leaf) for leaf, _ in self.leaves)


def lay_out(module: nn.Module, name: str, stay: Set[int]) -> Layout:
    """Plan the module's block; ``stay`` are the ids of tensors that are not offloaded.
    OffloadError names a tensor that can't be. Nothing is changed."""
    offset, end, items = ALIGNMENT, NUMBER, []  # behind the first number
    for path, tensor in offloaded_tensors(module, stay):
        beside = tuple(attributes(tensor))
        plain, regions = tuple(_leaves(tensor, beside, f"{name}.{path}")), []
        for leaf in plain:
            size = extent(leaf) * leaf.element_size()
            regions.append(Region(offset, size, leaf.shape, leaf.stride(), leaf.dtype))
            end = _aligned(offset + size, NUMBER)
            offset = _aligned(offset + size, ALIGNMENT)
        items.append(Item(path, tensor, beside, plain, tuple(regions)))
    everything = {id(tensor): tensor for _, _, _, tensor in hangs(module)}
    whole = sum(size_of(leaf) for tensor in everything.values() for leaf in leaves(tensor))
    paths = frozenset(path for path, _, _, _ in hangs(module))
    size = _aligned(end + NUMBER, ALIGNMENT)
    return Layout(module, name, tuple(items), size, end, whole, paths)


def _aligned(offset: int, to: int) -> int:
    return -(-offset // to) * to


class Table(Protocol):
    """Where tensors hang by name: a module's parameters or buffers."""

    def get(self, name: str, /) -> torch.Tensor | None:
        """What hangs there."""

    def __setitem__(self, name: str, tensor: torch.Tensor | None, /) -> None: ...


class FlatWeights:
    """The list in which a recurrent layer of torch has its parameters once more, and which alone it
    reads; by the parameters' names."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self._layer, self._at = layer, {n: i for i, n in enumerate(layer._flat_weights_names)}

    def get(self, name: str, /) -> torch.Tensor | None:
        """What is at this name's place."""
        return self._layer._flat_weights[self._at[name]]

    def __setitem__(self, name: str, tensor: torch.Tensor | None, /) -> None:
        self._layer._flat_weights[self._at[name]] = tensor


def hangs(module: nn.Module) -> Iterator[tuple[str, Table, str, torch.Tensor]]:
    """Where parameters and buffers hang in the module: path, table and key, and the tensor."""
    for prefix, part in module.named_modules():
        for table in part._parameters, part._buffers:
            for name, tensor in table.items():
                if tensor is not None:
                    yield f"{prefix}.{name}" if prefix else name, table, name, tensor
        if isinstance(part, nn.RNNBase):
            flat = FlatWeights(part)
            for name, tensor in zip(part._flat_weights_names, part._flat_weights, strict=True):
                if tensor is not None:
                    path = f"_flat_weights.{name}"
                    yield f"{prefix}.{path}" if prefix else path, flat, name, tensor


def _leaves(tensor: torch.Tensor, beside: Iterable[str], name: str) -> Iterator[torch.Tensor]:
    parts = {name: tensor} | {f"{name}.{one}": getattr(tensor, one) for one in beside}
    for part, value in parts.items():
        refuse_unless_plain(value, f"{_kind(tensor)} {part}")
        for leaf in leaves(value):
            _refuse_unless_copied(leaf, f"{_kind(tensor)} {part}")
            yield leaf


def _refuse_unless_copied(leaf: torch.Tensor, name: str) -> None:
    """OffloadError for the dtypes that torch names and can't copy: integers of less than a byte,
    and its old quantised ones."""
    if not leaf.is_quantized:
        with suppress(NotImplementedError):
            one, other = (torch.empty(1, dtype=leaf.dtype, device="cpu") for _ in range(2))
            one.copy_(other)
            return
    raise OffloadError(
        f"{name} has dtype {leaf.dtype}, which torch can't copy to other memory; keep such weights "
        f"in torch.uint8, packed, or leave their module out of layers"
    )


def _kind(tensor: torch.Tensor) -> str:
    return "parameter" if isinstance(tensor, nn.Parameter) else "buffer"


def offloaded_tensors(module: nn.Module, stay: Set[int]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that are offloaded, each object once; parameters before buffers."""
    for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if id(tensor) not in stay and goes(tensor):
            yield path, tensor


def goes(tensor: torch.Tensor) -> bool:
    """Whether a tensor of an offloaded module is offloaded, if it hangs nowhere else."""
    if isinstance(tensor, nn.Parameter):
        return True
    counts = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
    return counts or sum(map(size_of, leaves(tensor))) > LARGE_BUFFER


def attributes(tensor: torch.Tensor) -> Iterator[str]:
    """The names of a Parameter's attributes that are tensors, scales for instance; what a
    subclass is made of is no attribute, and neither is another Parameter."""
    made_of = tensor.__tensor_flatten__()[0] if is_wrapper(tensor) else ()
    for name, value in vars(tensor).items():
        beside = isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter)
        if beside and name not in made_of:
            yield name


def is_other(item: Item) -> bool:
    """Whether the item is made of other plain tensors by now, or has others beside it."""
    own = item.tensor
    now = [*leaves(own), *(one for name in attributes(own) for one in leaves(getattr(own, name)))]
    return [*map(id, now)] != [*map(id, item.leaves)]


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a plain tensor's elements."""
    return tensor.numel() * tensor.element_size()


def require_worth(layouts: Iterable[Layout]) -> None:
    """OffloadError for a module of which less than half of the bytes would be offloaded."""
    for layout in layouts:
        if 2 * layout.weights < layout.whole:
            raise OffloadError(
                f"of the {layout.whole} bytes of module {layout.name} only {layout.weights} can be "
                f"offloaded; the others are shared with other modules, or buffers that are of no "
                f"integer type and at most 1 MiB, and stay on the device: leave the module out of "
                f"layers"
            )
