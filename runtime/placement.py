"""Where every tensor of an offloaded model lives: host blocks, slots, the device; where each came
from, and back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import nn

from runtime.arena import Arena, Source, home, slot_sizes
from runtime.device import Streams, streams_of
from runtime.layout import Layout, lay_out, offloaded_tensors, require_worth, size_of
from runtime.leaves import is_wrapper, place_at
from runtime.locked import host_memory
from runtime.memory import require
from runtime.progress import with_bar
from runtime.select import (
    Selection,
    device_of,
    renewed,
    reordered,
    require_values,
    tensors_that_stay,
)
from runtime.views import refuse_views
from schedule.table import Schedule


class Placement:
    """The tensors of one offload. Planned when made, and filled by ``fill()``; OffloadError before
    anything is changed says what can't be placed.

    limit:  bytes of host memory that may be page-locked.
    source: writes the values of tensors on the meta device.
    arena:  its kind.
    """

    def __init__(
        self,
        selection: Selection,
        schedule: Schedule,
        streams: Streams,
        limit: int,
        source: Source | None = None,
        arena: type[Arena] = Arena,
    ) -> None:
        self.selection, self.schedule, self.streams = selection, schedule, streams
        self._limit, self._source = limit, source
        self._at_the_end: tuple[int, int] | None = None
        self._moved: list[tuple[dict[str, torch.Tensor], str, torch.device]] = []
        layouts = laid_out(selection)
        require(self._bytes_to_load(layouts), "host memory for the weights")
        self.arena = arena(layouts, schedule, streams.device)
        self._hosts = [host_memory(layouts, schedule, streams, limit)]
        # By module: its host memory, and which module it is there.
        self._host_of = {module: (self._hosts[0], module) for module in range(len(layouts))}

    def _bytes_to_load(self, layouts: list[Layout]) -> int:
        """Host memory that is needed for tensors which have no values yet."""
        size = sum(one.size for one in layouts if any(leaf.is_meta for leaf, _ in one.leaves))
        if size and self.streams.device.type == "cpu":
            size += sum(size_of(tensor) for tensor in self.rest() if tensor.is_meta)
            size += sum(slot_sizes(layouts, self.schedule))
        return size

    def fill(self) -> None:
        """Move everything to its place."""
        sizes = [layout.size for layout in self.arena.layouts]
        for module in with_bar(range(len(sizes)), sizes, "moving weights"):
            self.arena.adopt(module, self._hosts[0].block(module), self._source)
        self._hosts[0].lock()
        self.move_the_rest()

    def settle(self) -> None:
        """What had no values has them now, and keeps them when it leaves the device."""
        self.arena.settle()
        self._moved = [(tensors, name, home(device)) for tensors, name, device in self._moved]

    # ---- the model changed

    def changed(self, module: int | None) -> list[int]:
        """The modules whose tensors are others by now, of all or of one; and those of which other
        tensors are offloaded for it, since one is shared with them now, or is no more. OffloadError
        if one is no part of the model any more."""
        arena = self.arena
        some = range(len(arena.layouts)) if module is None else (module,)
        found = {one for one in some if arena.change(one) is not None}
        if not found and module is not None:
            return []
        self.selection = renewed(self.selection)
        for index, layout in enumerate(arena.layouts):
            goes = [id(t) for _, t in offloaded_tensors(layout.module, self.selection.stay)]
            if goes != [id(item.tensor) for item in layout.items]:
                found.add(index)
        return sorted(found)

    def renew(self, changed: list[int]) -> None:
        """Adopt the tensors that these modules, which ``changed`` named, have now."""
        require_values(self.selection)
        layouts = laid_out(self.selection)
        self.streams.synchronize()
        self.arena.plan(layouts)
        given_up = [self._host_of[module] for module in changed]
        stays = sum(
            host.locked_beside({there for one, there in given_up if one is host})
            for host in self._hosts
        )
        limit = max(0, self._limit - stays)
        # New host memory, for these modules alone.
        only = [
            one if module in changed else replace(one, items=(), size=0)
            for module, one in enumerate(layouts)
        ]
        host = host_memory(only, self.schedule, self.streams, limit)
        self._hosts.append(host)
        for module in changed:
            self.arena.adopt(module, host.block(module), None)
            self._release(module)
            self._host_of[module] = host, module
        host.lock()
        used = {one for one, _ in self._host_of.values()}
        self._hosts = [one for one in self._hosts if one in used]

    def reorder(self, order: Sequence[int]) -> None:
        """Count the modules of these positions one after the other. Where that takes larger slots
        than there is memory for, the device's error, and nothing is changed."""
        self.arena.reorder(order)
        self._host_of = {new: self._host_of[old] for new, old in enumerate(order)}
        self.selection = reordered(self.selection, order)

    def _release(self, module: int) -> None:
        host, there = self._host_of[module]
        host.release(there)

    # ---- the rest of the model

    def rest(self) -> Iterable[torch.Tensor]:
        """The tensors that stay on the device, each once."""
        return {
            id(tensors[name]): tensors[name]
            for tensors, name, _ in tensors_that_stay(self.selection)
        }.values()

    def move_the_rest(self) -> None:
        """Move to the device what belongs there for good and is elsewhere."""
        for tensors, name, full_name in tensors_that_stay(self.selection):
            empty = tensors[name].is_meta
            if tensors[name].device != self.streams.device:
                self._moved.append((tensors, name, tensors[name].device))
                _move(tensors, name, self.streams.device)
            if empty:
                assert self._source is not None, "values were required before"
                self._source(full_name, tensors[name].data)

    # ---- numbers

    @property
    def bytes_host(self) -> tuple[int, int]:
        """Host memory that is page-locked, and weights in host memory that is not; at the end, as
        it was."""
        if self._at_the_end is not None:
            return self._at_the_end
        locked = sum(host.bytes_locked for host in self._hosts)
        return locked, sum(host.bytes_pageable for host in self._hosts)

    def is_locked(self, module: int) -> bool:
        """Whether the module's block is page-locked."""
        host, there = self._host_of[module]
        return host.is_locked(there)

    @property
    def notes(self) -> list[str]:
        """What could not be locked, and why."""
        return [note for host in self._hosts for note in host.notes]

    # ---- the end

    def release(self) -> None:
        """Move everything back. No copy is under way."""
        self._at_the_end = self.bytes_host  # it stays what it was, if this is called again
        self.arena.release(self._release)
        while self._moved:
            tensors, name, device = self._moved[-1]
            if tensors.get(name) is not None:
                _move(tensors, name, device)
            self._moved.pop()


def laid_out(selection: Selection) -> list[Layout]:
    """By module, what of it is offloaded. OffloadError for what can't be."""
    layouts = [
        lay_out(module, name, selection.stay)
        for module, name in zip(selection.modules, selection.names, strict=True)
    ]
    if not (selection.filters or selection.kept):  # who chooses parts wants what is left
        require_worth(layouts)
    scope = selection.modules if selection.root is None else (selection.root,)
    refuse_views([part for module in scope for part in module.modules()], layouts)
    return layouts


def placed(
    selection: Selection,
    schedule: Schedule,
    device: torch.device | str | None,
    limit: int = sys.maxsize,
    source: Source | None = None,
    arena: type[Arena] = Arena,
) -> Placement:
    """A placement, planned; outside inference mode, as all that is made for it must be."""
    with torch.inference_mode(False), torch.no_grad():
        streams = streams_of(device_of(selection) if device is None else device)
        return Placement(selection, schedule, streams, limit, source, arena)


def _move(tensors: dict[str, torch.Tensor], name: str, device: torch.device) -> None:
    """Let the tensor, the same object where that can be, live on the device."""
    tensor = tensors[name]
    if tensor.is_meta:
        place_at(tensor, torch.empty_like(tensor.data, device=device))
    elif tensor.is_inference():  # its object can't be given other bytes
        tensors[name] = tensor.to(device)
    elif is_wrapper(tensor):
        moved = tensor.to(device)
        if isinstance(tensor, nn.Parameter):
            moved = nn.Parameter(moved, requires_grad=tensor.requires_grad)
        torch.utils.swap_tensors(tensor, moved)
    else:
        place_at(tensor, tensor.data.to(device))
