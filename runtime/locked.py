"""What page-locks host blocks: where the device type offers it, maps that are registered with the
driver, else slabs from torch's pinned allocator.
"""

from __future__ import annotations

import mmap
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from weakref import finalize

import torch

from runtime.device import Streams
from runtime.host import PAGE, HostMemory, empty_bytes, note_memlock
from runtime.layout import Block, Layout, Segment
from runtime.packing import SLACK, affordable, pack
from runtime.progress import with_bar
from runtime.registration import Registration, forget_error, registration_of
from schedule.table import PRELOAD, RUN, Schedule


def host_memory(
    layouts: Sequence[Layout], schedule: Schedule, streams: Streams, limit: int
) -> HostMemory:
    """The host memory of these modules, of which at most ``limit`` bytes are locked: the modules
    refilled most come first, then those that run first."""
    if limit == 0 or not streams.locks:
        return HostMemory(layouts)
    note_memlock(min(limit, sum(layout.size for layout in layouts)))
    refills = Counter(m.module for m in schedule.walk(1) if m.half not in (RUN, PRELOAD))
    order = sorted(range(len(layouts)), key=lambda module: -refills[module])
    registration = registration_of(streams.device)
    if registration is None:
        return Slabs(layouts, order, streams.device, limit)
    return Registered(layouts, order, streams, registration, limit)


class Registered(HostMemory):
    """One map a module, whole pages, which ``lock`` registers with the driver. A module whose
    pages are more than 1.05 times its weights and a page, for the gaps between many tiny tensors,
    stays pageable. What is registered is unregistered before it is freed: as each module is
    given up, and when the offload is dropped without being closed."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        order: Sequence[int],
        streams: Streams,
        registration: Registration,
        limit: int,
    ) -> None:
        super().__init__(layouts)
        self._order, self._limit = order, limit
        self._device, self._registration = streams.device, registration
        self._maps: dict[int, torch.Tensor] = {}
        self._registered: dict[int, torch.Tensor] = {}
        finalize(self, _unregister, self._registered, registration, streams.synchronize)

    def block(self, module: int) -> Block:
        size = self.layouts[module].size
        if size == 0:
            return super().block(module)
        # Private: a child process must not write into our weights, nor we into its.
        pages = mmap.mmap(-1, -(-size // PAGE) * PAGE, access=mmap.ACCESS_COPY)
        self._maps[module] = torch.frombuffer(pages, dtype=torch.uint8)
        return (Segment(0, self._maps[module][:size]),)

    def lock(self) -> None:
        sizes = [self.layouts[module].size for module in self._order]
        for module in with_bar(self._order, sizes, "locking weights"):
            if module not in self._maps:
                continue
            layout, pages = self.layouts[module], self._maps[module]
            size, address = pages.numel(), pages.data_ptr()
            if self.bytes_locked + size > self._limit:
                continue  # a smaller one may fit
            if (size - PAGE - layout.weights) * SLACK > layout.weights:
                self.notes.append(f"{layout.name} is more gaps than weights and stays pageable")
                continue

            def register(address: int = address, size: int = size) -> None:
                self._registration.register(address, size)

            if self._locks(module, layout.name, size, layout.weights, register):
                self._registered[module] = pages
        if self._refused < sys.maxsize:
            forget_error(self._device)

    def release(self, module: int) -> None:
        if module in self._registered:
            self._registration.unregister(self._registered[module].data_ptr())
            del self._registered[module], self._locked[module]
        self._maps.pop(module, None)
        super().release(module)


def _unregister(
    registered: dict[int, torch.Tensor],
    registration: Registration,
    synchronize: Callable[[], None],
) -> None:
    """What was not given up in time. The maps live until the end of this function."""
    if registered:
        with ExitStack() as last:
            for pages in registered.values():
                last.callback(registration.unregister, pages.data_ptr())
            synchronize()
        registered.clear()


class Slabs(HostMemory):
    """Slabs of exact powers of two, each made when the first module comes that has tensors in it.
    A slab may hold tensors of several modules: wrapping has one slab more than it needs so far.
    """

    def __init__(
        self, layouts: Sequence[Layout], order: Sequence[int], device: torch.device, limit: int
    ) -> None:
        super().__init__(layouts)
        self._device = device
        starts = {module: _starts(layouts[module]) for module in _first(order, layouts, limit)}
        parts = [(module, *part) for module in sorted(starts) for part in starts[module]]
        self._slabs = pack([size for _, _, size, _ in parts])
        self._weights = [weights for *_, weights in parts]
        self._to_lock = affordable(self._slabs, self._weights, len(starts) * PAGE, limit)
        self._memory: dict[int, torch.Tensor] = {}
        self._places: dict[int, list[tuple[int, int, int, int]]] = {}
        for number, slab in enumerate(self._slabs):
            at = 0
            for piece in slab.pieces:
                module, start, size, _ = parts[piece]
                self._places.setdefault(module, []).append((start, size, number, at))
                at += size
        self._users = Counter(number for module in starts for number in self._of(module))
        pageable = len(self._slabs) - len(self._to_lock)
        if pageable:
            self.notes.append(f"{pageable} of {len(self._slabs)} slabs stay pageable")

    def _of(self, module: int) -> set[int]:
        """The slabs that hold tensors of the module."""
        return {number for _, _, number, _ in self._places.get(module, ())}

    def is_locked(self, module: int) -> bool:
        return module in self._places and all(one in self._locked for one in self._of(module))

    def block(self, module: int) -> Block:
        if module not in self._places:
            return super().block(module)
        return tuple(
            Segment(start, self._slab(number)[at : at + size])
            for start, size, number, at in _joined(sorted(self._places[module]))
        )

    def _slab(self, number: int) -> torch.Tensor:
        if number not in self._memory:
            slab = self._slabs[number]
            weights = sum(self._weights[piece] for piece in slab.pieces)

            def lock() -> None:
                self._memory[number] = empty_bytes(slab.size, pin_memory=True)

            what = f"slab {number}"
            if number not in self._to_lock or not self._locks(
                number, what, slab.size, weights, lock
            ):
                self._memory[number] = empty_bytes(slab.used)
        return self._memory[number]

    def lock(self) -> None:
        if self._refused < sys.maxsize:
            forget_error(self._device)

    def locked_beside(self, modules: Set[int]) -> int:
        given_up = Counter(number for module in modules for number in self._of(module))
        stay = [number for number in self._locked if self._users[number] > given_up[number]]
        return sum(self._locked[number][0] for number in stay)

    def release(self, module: int) -> None:
        for number in self._of(module):
            self._users[number] -= 1
            if not self._users[number]:
                self._memory.pop(number, None)
                self._locked.pop(number, None)
        super().release(module)
        # torch would keep them for the next one who asks, while the model is made anew beside.
        getattr(torch.accelerator, "empty_host_cache", lambda: None)()


def _first(order: Iterable[int], layouts: Sequence[Layout], limit: int) -> Iterator[int]:
    """The modules, in this order, that are within the limit; a smaller one may follow one that is
    not."""
    for module in order:
        if layouts[module].size <= limit:
            limit -= layouts[module].size
            yield module


def _starts(layout: Layout) -> Iterator[tuple[int, int, int]]:
    """The module's block cut before each tensor, as (start, bytes, those of weights); of a module
    that has none here, nothing."""
    regions = [region for _, region in layout.leaves if region.size]
    if not regions:
        return
    # What is before the first one goes with it.
    starts = [region.offset if at else 0 for at, region in enumerate(regions)]
    ends = [*starts[1:], layout.size]
    for region, start, end in zip(regions, starts, ends, strict=True):
        weights = region.shape.numel() * region.dtype.itemsize
        yield start, end - start, min(weights, region.size)


def _joined(places: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Places (start, bytes, slab, start in it), where neighbours in both are one."""
    joined: list[tuple[int, int, int, int]] = []
    for start, size, number, at in places:
        if joined:
            first, length, slab, begin = joined[-1]
            if (slab, first + length, begin + length) == (number, start, at):
                joined[-1] = (first, length + size, slab, begin)
                continue
        joined.append((start, size, number, at))
    return joined
