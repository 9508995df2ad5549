"""The second set of a module's tensors, which lies over a slot."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from runtime.layout import MARK, Item, Layout, Segment, Table, hangs
from runtime.leaves import counted, leaves, rebuilt, version
from schedule.errors import OffloadError

_uses = torch._C._storage_Use_Count  # of a storage, by its address: all tensors over it count

Row = tuple[Table, str, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Place:
    """One name under which a tensor hangs in a submodule, its path in the module, and its two
    objects."""

    tensors: Table
    name: str
    path: str
    host: torch.Tensor
    device: torch.Tensor

    @property
    def shows(self) -> torch.Tensor | None:
        """What the submodule has under this name now."""
        return self.tensors.get(self.name)


@dataclass(slots=True, eq=False)
class DeviceSet:
    """A module's second set of tensors, over one slot.

    places: where they hang in the module.     start, end: the slot's addresses.
    rows: the same as plain tuples (table, name, host, device), for the hot path.
    pairs: each plain tensor in the slot, and its host master.     counted: whose versions count.
    composed: host and device object of what is made of several plain tensors, or has some beside.
    buffers: the places of buffers, which a module may replace while it runs; not of those that
    hang under several names, since one that is replaced under one of them is two from then on.
    written: what ``writes`` gave after the last write that is in the host masters too.
    held: the references to all of this while the module does not run; None before its first run.
    """

    module: int
    places: tuple[Place, ...]
    pairs: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    composed: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    start: int
    end: int
    rows: tuple[Row, ...] = field(init=False)
    counted: tuple[torch.Tensor, ...] = field(init=False)
    buffers: tuple[Place, ...] = field(init=False)
    written: int = field(init=False)
    held: list[int] | None = field(init=False, default=None)
    _storages: tuple[torch.UntypedStorage, ...] = field(init=False)
    _at: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = tuple((p.tensors, p.name, p.host, p.device) for p in self.places)
        objects = {id(place.device): place.device for place in self.places}
        each = (tensor for one in objects.values() for tensor in counted(one))
        self.counted = tuple({id(t): t for t in [*each, *(d for d, _ in self.pairs)]}.values())
        names = Counter(id(place.host) for place in self.places)
        self.buffers = tuple(
            place
            for place in self.places
            if not isinstance(place.host, nn.Parameter) and names[id(place.host)] == 1
        )
        self.written = self.writes()
        # Each leaf has its own, which is kept alive here, whatever a module does with the leaf.
        self._storages = tuple(device.untyped_storage() for device, _ in self.pairs)
        self._at = tuple(storage._cdata for storage in self._storages)

    def share_attributes(self) -> None:
        """Let both objects of a plain tensor have the same attributes, whoever sets one."""
        apart = {id(host) for host, _ in self.composed}
        for place in self.places:
            if id(place.host) not in apart:
                place.device.__dict__ = place.host.__dict__

    def follow_attributes(self) -> None:
        """Where attributes are tensors, the two objects have their own; the others are followed."""
        for host, device in self.composed:
            theirs = vars(device)
            for name, value in vars(host).items():
                tensor = isinstance(value, torch.Tensor)
                if theirs.get(name) is not value and not tensor and name != MARK:
                    theirs[name] = value

    def writes(self) -> int:
        """Grows with every write into these tensors that torch counts."""
        return version(self.counted)

    def references(self) -> list[int]:
        """How many there are to each tensor here, and to the bytes under it. A view, wherever it
        is, is one."""
        return [*map(_uses, self._at), *map(sys.getrefcount, self.counted)]

    def lies_here(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is one of these, or a view of one, or is made of such."""
        return any(leaf.untyped_storage()._cdata in self._at for leaf in leaves(tensor))

    def containers(self) -> set[int]:
        """The ids of all that refers to these tensors by right."""
        ours: list[object] = [self.counted, *self.counted, *map(vars, self.counted)]
        ours += [*self.rows, *self.places, *self.pairs, *self.composed]
        return set(map(id, ours))

    def grown(self) -> torch.Tensor | None:
        """The host master of one of these that more refer to than before the run."""
        assert self.held is not None, "it was bound"
        masters = {id(place.device): place.host for place in self.places}
        masters |= {id(device): host for device, host in self.pairs}
        of = [*(host for _, host in self.pairs), *(masters.get(id(one)) for one in self.counted)]
        now = zip(of, self.held, self.references(), strict=True)
        return next((host for host, before, after in now if after > before), None)

    def moved(self) -> Iterator[torch.Tensor]:
        """The host masters of leaves that a module gave other bytes through ``.data``; they get
        those in the slot again."""
        for (device, host), storage in zip(self.pairs, self._storages, strict=True):
            if host.numel() and device.data_ptr() != storage.data_ptr():
                plain = torch.empty(0, dtype=host.dtype, device=storage.device)
                device.data = plain.set_(storage, 0, host.shape, host.stride())
                yield host

    @property
    def was_written(self) -> bool:
        """Whether the weights in the slot were written since they were last kept."""
        if self.written != self.writes():
            return True
        return bool(self.buffers) and any(map(was_replaced, self.buffers))


def was_replaced(place: Place) -> bool:
    """Whether the module put a new tensor of the same kind under the name while it ran."""
    shown = place.shows
    if shown is None or shown is place.host or shown is place.device:
        return False
    return shown.shape == place.host.shape and shown.dtype == place.host.dtype


def device_set(kind: type[DeviceSet], module: int, layout: Layout, slot: torch.Tensor) -> DeviceSet:
    """The set of this kind over the slot. OffloadError if a tensor does not stay there."""
    block, places, pairs = (Segment(0, slot),), [], []
    twins: dict[int, torch.Tensor] = {}
    for item in layout.items:
        new = [region.over(block) for region in item.regions]
        twins[id(item.tensor)] = twin = _twin(item, iter(new))
        inner = [
            *leaves(twin),
            *(one for name in item.beside for one in leaves(getattr(twin, name))),
        ]
        for one, region in zip(inner, item.regions, strict=True):
            if region.size and one.data_ptr() != slot.data_ptr() + region.offset:
                raise OffloadError(
                    f"{item.path} of {layout.name}, a {type(item.tensor).__name__}, can't be bound "
                    f"to a slot: what it is made of does not stay where it was put; leave the "
                    f"module out of layers"
                )
        pairs += zip(inner, item.leaves, strict=True)
    for path, table, name, tensor in hangs(layout.module):
        if id(tensor) in twins:
            places.append(Place(table, name, path, tensor, twins[id(tensor)]))
    start = slot.data_ptr()
    composed = tuple((one.tensor, twins[id(one.tensor)]) for one in layout.items if one.composed)
    return kind(module, tuple(places), tuple(pairs), composed, start, start + slot.numel())


def _twin(item: Item, new: Iterator[torch.Tensor]) -> torch.Tensor:
    """A tensor like the item's own, over new plain ones, with the same attributes."""
    own = item.tensor
    twin = rebuilt(own, new)
    if isinstance(own, nn.Parameter):
        # As its own: torch chooses kernels by it, and the last bits with them.
        twin = nn.Parameter(twin, requires_grad=own.requires_grad)
    for name in item.beside:
        setattr(twin, name, rebuilt(getattr(own, name), new))
    for name, value in vars(own).items():
        if name != MARK and name not in vars(twin):
            setattr(twin, name, value)
    return twin
