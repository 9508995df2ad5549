"""Host blocks and device slots as bytes, and the two sets of tensors that lie over them.

A module's own Parameter and buffer objects never change identity; they live in the module's host
block, its *host masters*. A second set lies over its slot, at fixed addresses; over each of them,
if it runs from several. Binding puts the second set into the submodules' tables while the module
runs, and the first set back when it ended. So outside its module's run a weight is its host
master, never a slot's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from runtime.layout import MARK, NUMBER, Block, Item, Layout, hangs, is_other, number_at
from runtime.leaves import counted, follow_leaves, is_wrapper, leaves, place_at, version
from runtime.memory import return_freed
from runtime.sets import DeviceSet, device_set, was_replaced
from schedule.errors import OffloadError
from schedule.table import RUN, Schedule

Source = Callable[[str, torch.Tensor], None]
"""Writes the values of the tensor of this full name into the target, which is of its shape and
dtype. Asked for what is on the meta device, once a tensor."""


_address = torch.Tensor.data_ptr


@dataclass(frozen=True, slots=True)
class Own:
    """A module's own tensors, in their host block: the plain ones and where they must lie, and all
    whose versions count. composed: items that are made of others, or have some beside."""

    block: Block
    masters: tuple[torch.Tensor, ...]
    addresses: list[int]
    counted: tuple[torch.Tensor, ...]
    composed: tuple[Item, ...]


class Arena:
    """The blocks and the slots of one offload.

    layouts: by module.     schedule: which modules run from a slot, or are copied into it.
    Each slot is as large as the largest of these.     sets: by module and slot.
    changed: modules in which a tensor was registered since they were laid out.
    """

    set_type: type[DeviceSet] = DeviceSet

    def __init__(self, layouts: Sequence[Layout], schedule: Schedule, device: torch.device) -> None:
        self._schedule, self._device = schedule, device
        self.bytes_slots = 0
        self.layouts: tuple[Layout, ...] = ()
        self.slots: tuple[torch.Tensor, ...] = ()
        self.sets: dict[tuple[int, int], DeviceSet] = {}
        self.changed: set[int] = set()
        self._own: list[Own] = []
        self._released = 0
        self._came_from: dict[int, torch.device] = {}
        self.plan(layouts)

    def plan(self, layouts: Sequence[Layout]) -> None:
        """Lay these out: slots that are too small are made anew, and so are the second sets."""
        slots = list(self.slots) or [None] * self._schedule.ring.slots
        for slot, size in enumerate(slot_sizes(layouts, self._schedule)):
            if slots[slot] is None or slots[slot].numel() < size:
                slots[slot] = torch.empty(size, dtype=torch.uint8, device=self._device)
        self.bytes_slots = sum(slot.numel() for slot in slots)
        runs = sorted({(one.module, one.slot) for one in self._schedule.walk(1) if one.half == RUN})
        self.sets = {
            run: device_set(self.set_type, run[0], layouts[run[0]], slots[run[1]]) for run in runs
        }
        self._forget_all_but(layouts)
        self.layouts, self.slots = tuple(layouts), tuple(slots)

    def reorder(self, order: Sequence[int]) -> None:
        """Count the modules of these positions one after the other."""
        self.plan([self.layouts[one] for one in order])
        self._own = [self._own[one] for one in order]
        for module, own in enumerate(self._own):
            self._write_number(module, own.block)

    def _write_number(self, module: int, block: Block) -> None:
        for offset in 0, self.layouts[module].end:
            number_at(offset).over(block).fill_(module)

    def require_on_device(self, module: int, slot: int) -> None:
        """The device itself asserts that the slot holds the whole of this module."""
        bytes_, end = self.slots[slot], self.layouts[module].end
        words = torch.empty(0, dtype=torch.int64, device=bytes_.device)
        words.set_(bytes_.untyped_storage(), 0, (2,), (end // NUMBER,))
        torch._assert_async(
            (words == module).all(),
            f"slot {slot} does not hold {self.layouts[module].name} (module {module}), which is "
            f"about to run from it",
        )

    def _forget_all_but(self, layouts: Sequence[Layout]) -> None:
        """Tensors that are in no layout any more are none of ours."""
        kept = {id(leaf) for layout in layouts for leaf, _ in layout.leaves}
        self._came_from = {one: at for one, at in self._came_from.items() if one in kept}
        kept = {id(item.tensor) for layout in layouts for item in layout.items}
        for layout in self.layouts:
            for item in layout.items:
                if id(item.tensor) not in kept:
                    vars(item.tensor).pop(MARK, None)

    @property
    def blocks(self) -> list[Block]:
        """The host blocks, by module."""
        return [own.block for own in self._own]

    def adopt(self, module: int, block: Block, source: Source | None) -> None:
        """Move the module's weights into its host block, or those on the meta device from their
        source; the objects stay the same."""
        layout = self.layouts[module]
        for leaf, _ in layout.leaves:
            self._came_from.setdefault(id(leaf), leaf.device)
        for item in layout.items:
            for leaf, region in zip(item.leaves, item.regions, strict=True):
                master = region.over(block)
                if leaf.is_meta:
                    assert source is not None, "values were required before"
                    source(f"{layout.name}.{item.path}", master)
                else:
                    master.copy_(leaf.data)
                place_at(leaf, master)
            for one in item.tensors:
                follow_leaves(one)
            setattr(item.tensor, MARK, id(item.tensor))
        self._write_number(module, block)
        masters = tuple(leaf for leaf, _ in layout.leaves)
        every = [*(one for item in layout.items for one in counted(item.tensor)), *masters]
        own = Own(
            block,
            masters,
            [leaf.data_ptr() for leaf in masters],
            tuple({id(tensor): tensor for tensor in every}.values()),
            tuple(one for one in layout.items if one.composed),
        )
        self._own[module : module + 1] = [own]
        self.changed.discard(module)
        return_freed(layout.size)

    def bind(self, weights: DeviceSet) -> None:
        """Show the slot's weights in the module. OffloadError if its own are others by now."""
        own = self._own[weights.module]
        if self.changed or list(map(_address, own.masters)) != own.addresses:
            self.refuse_changed(weights.module)
        if own.composed:
            if any(map(is_other, own.composed)):
                self.refuse_changed(weights.module)
            weights.follow_attributes()
        if weights.held is None:
            weights.share_attributes()
            weights.held = weights.references()
        for table, name, host, device in weights.rows:
            shown = table.get(name)
            if shown is not host and shown is not device:
                self.refuse_changed(weights.module)
            if device.requires_grad is not host.requires_grad:  # set since it was made
                device.requires_grad_(host.requires_grad)
            table[name] = device

    def require_unchanged(self, module: int) -> None:
        """OffloadError if the module's tensors are others than those that were adopted, as at a
        binding; for who reads the slots without one."""
        own = self._own[module]
        shown = (
            table.get(name) is host or table.get(name) is device
            for weights in self.sets.values()
            if weights.module == module
            for table, name, host, device in weights.rows
        )
        moved = list(map(_address, own.masters)) != own.addresses
        if self.changed or moved or any(map(is_other, own.composed)) or not all(shown):
            self.refuse_changed(module)

    def refuse_changed(self, module: int) -> None:
        """OffloadError if the module's tensors are others than those that were adopted."""
        what = self.change(module)
        if what is not None:
            raise OffloadError(
                f"{what} while the model is offloaded; call refresh() to adopt the change"
            )
        self.changed.discard(module)

    def refuse_moved(self, weights: DeviceSet) -> None:
        """OffloadError if the module gave one of its weights in the slot other bytes."""
        moved = list(weights.moved())
        if moved:
            raise OffloadError(
                f"{self.layouts[weights.module].path(moved[0])} was given other data (.data) while "
                f"its module ran, which is lost; do so between passes, then call refresh()"
            )

    def change(self, module: int) -> str | None:
        """The first tensor of the module that is not as it was adopted, and what happened."""
        layout, own = self.layouts[module], self._own[module]
        now = {path: tensor for path, _, _, tensor in hangs(layout.module)}
        for weights in self.sets.values():
            for place in weights.places if weights.module == module else ():
                shown = now.get(place.path)
                if shown is not place.host and shown is not place.device:
                    what = "deleted" if shown is None else "replaced"
                    return f"{layout.name}.{place.path} was {what}"
        for item in layout.items:
            if is_other(item):
                return f"{layout.name}.{item.path} was given other data"
        for leaf, address in zip(own.masters, own.addresses, strict=True):
            if leaf.data_ptr() != address:
                return f"{layout.path(leaf)} was given other data"
        for path in sorted(now.keys() ^ layout.paths):
            return f"{layout.name}.{path} was {'added' if path in now else 'deleted'}"
        return None

    def unbind(self, weights: DeviceSet) -> None:
        """Show the host masters in the module."""
        for table, name, host, device in weights.rows:
            if table.get(name) is device:
                table[name] = host

    def show_hosts(self, module: int | None = None) -> None:
        """Show the host masters of one module, or of all, whose weights are not running."""

    def hosts_shown(self) -> AbstractContextManager[None]:
        """Within this context all modules show their host masters; none is running."""
        return nullcontext()

    def keep_writes(self, weights: DeviceSet) -> None:
        """What was written into the weights in the slot goes into the host masters, whose new
        version then makes the slot's copy old."""
        with torch.no_grad():
            for place in filter(was_replaced, weights.buffers):
                for own, new in zip(leaves(place.device), leaves(place.shows), strict=True):
                    own.copy_(new)
                place.tensors[place.name] = place.device
            for device, host in weights.pairs:
                host.copy_(device)
        weights.written = weights.writes()

    def drop_writes(self, weights: DeviceSet) -> None:
        """What was written into the weights was captured, and not done."""
        for place in filter(was_replaced, weights.buffers):
            place.tensors[place.name] = place.device
        weights.written = weights.writes()

    def in_slot(self, weights: DeviceSet, tensor: torch.Tensor) -> bool:
        """Whether bytes of the tensor lie in the slot of these weights."""
        if is_wrapper(tensor):
            return any(self.in_slot(weights, leaf) for leaf in leaves(tensor))
        try:
            inside = weights.start <= tensor.data_ptr() < weights.end
        except RuntimeError:  # it has no storage: sparse, or inside a function transform
            return False
        return inside and tensor.device.type == self._device.type

    def version(self, module: int) -> int:
        """Grows whenever torch writes into one of the module's host masters."""
        return version(self._own[module].counted)

    def settle(self) -> None:
        """What had no values has them now, and keeps them."""
        self._came_from = {one: home(device) for one, device in self._came_from.items()}

    def release(self, give_back: Callable[[int], None]) -> None:
        """Give every tensor ordinary memory again, on the device that it came from; module by
        module, and each block back at once, so that no more than one is there twice. Interrupted,
        it can be called again, and goes on with the module that it was at."""
        self.slots, self.sets = (), {}
        while self._released < len(self.layouts):
            layout = self.layouts[self._released]
            for leaf, _ in layout.leaves:
                if id(leaf) in self._came_from:
                    device = self._came_from[id(leaf)]
                    plain = torch.empty_strided(
                        leaf.shape, leaf.stride(), dtype=leaf.dtype, device=device
                    )
                    place_at(leaf, plain.copy_(leaf.data))
            for item in layout.items:
                for one in item.tensors:
                    follow_leaves(one)
                vars(item.tensor).pop(MARK, None)
            del self._own[:1]
            self._released += 1
            give_back(self._released - 1)
            return_freed(layout.size)
        return_freed(self.bytes_slots if self._device.type == "cpu" else 0)


def slot_sizes(layouts: Sequence[Layout], schedule: Schedule) -> tuple[int, ...]:
    """Bytes of each slot."""
    return schedule.slot_sizes([layout.size for layout in layouts])


def home(device: torch.device) -> torch.device:
    """Where a tensor goes that came from this device and has values now."""
    return torch.device("cpu") if device.type == "meta" else device
