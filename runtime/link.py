"""How quick copies are from host memory to a device, by the very blocks and actions that an offload
uses; and how quick the device reads its own memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from runtime.device import Action, Mark, Pieces, nanoseconds
from runtime.placement import Placement, placed
from runtime.select import select
from schedule import policies
from schedule.costs import SECOND, Link
from schedule.operations import COMPUTE, COPY
from schedule.ring import Ring

LARGEST = 64 << 20
"""Bytes of the largest copy that is measured: more than most caches of processors hold."""
SHIFTS = (0, 1, 2, 4, 6)
"""The copies that are measured are smaller than the largest by these powers of two."""
ROUNDS = 5
"""So often each is measured; the median counts."""


class Bytes(nn.Module):
    """So many bytes to be copied."""

    def __init__(self, size: int) -> None:
        super().__init__()
        content = torch.zeros(size, dtype=torch.uint8, device="cpu")
        self.weight = nn.Parameter(content, requires_grad=False)

    def forward(self) -> None:
        """Never called."""


class Lane:
    """A host block of LARGEST bytes and more, page-locked where an offload's are, and a slot."""

    def __init__(self, placement: Placement) -> None:
        self.streams = placement.streams
        (self._block,), (self._slot,) = placement.arena.blocks, placement.arena.slots

    def copy(self, start: int, size: int) -> Action:
        """Copies these bytes of the block into the slot."""
        return self.streams.copy(COPY, tuple(self._pieces(start, start + size)))

    def _pieces(self, start: int, end: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for segment in self._block:
            first = max(start, segment.offset)
            last = min(end, segment.offset + segment.bytes.numel())
            if first < last:
                part = segment.bytes[first - segment.offset : last - segment.offset]
                yield self._slot[first:last], part

    def time(self, size: int) -> int:
        """Nanoseconds of a copy of so many bytes on an idle device: the median."""
        places = LARGEST // size
        found = []
        for number in range(ROUNDS):
            # Two, of which the first one keeps the engine busy while the second one is issued:
            # other bytes, which no cache has.
            first, second = (
                self.copy((2 * number + one) % places * size, size) for one in range(2)
            )
            self.streams.synchronize()
            first()
            begin = self.streams.mark(COPY)
            second()
            end = self.streams.mark(COPY)
            self.streams.synchronize()
            found.append(nanoseconds(begin, end))
        return round(statistics.median(found))

    def load(self, time: int, link: Link) -> Mark:
        """Copies for so many nanoseconds and more; the moment at which they end."""
        copy = self.copy(0, LARGEST)
        for _ in range(-(-time // link.time(LARGEST))):
            copy()
        return self.streams.mark(COPY)

    def reading(self) -> int:
        """Bytes a second that the device reads of its memory: a copy within it reads each byte and
        writes it."""
        other, found = torch.empty_like(self._slot), []
        pieces: Pieces = ((other, self._slot),)
        copy = self.streams.copy(COMPUTE, pieces)
        for _ in range(ROUNDS):
            copy()
            self.streams.synchronize()
            begin = self.streams.mark(COMPUTE)
            copy()
            end = self.streams.mark(COMPUTE)
            self.streams.synchronize()
            found.append(nanoseconds(begin, end))
        return round(2 * other.numel() * SECOND / max(1, statistics.median(found)))


@contextmanager
def lane_to(device: torch.device) -> Iterator[Lane]:
    """A lane to the device, which is given up at the end."""
    schedule = policies.default(1)(Ring(1, 1))
    with torch.inference_mode(False):
        model = Bytes(LARGEST)
    placement = placed(select([model]), schedule, device)
    try:
        with torch.inference_mode(False), torch.no_grad():
            placement.fill()
        yield Lane(placement)
    finally:
        placement.streams.synchronize()
        with torch.inference_mode(False), torch.no_grad():
            placement.release()


def link_of(lane: Lane) -> Link:
    """Bandwidth and latency of copies in the lane. On a CPU they take the compute stream's time."""
    sizes = [LARGEST >> shift for shift in SHIFTS]
    bandwidth, latency = fit([(size, lane.time(size)) for size in sizes])
    return Link(bandwidth, latency, 1 if lane.streams.locks else 0)


def fit(points: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Bytes a second and nanoseconds, of copies of (bytes, nanoseconds): by the line that has the
    least squares of relative errors, through the origin if it would begin below it."""
    known = [(size, max(1, time)) for size, time in points]
    ones = sum(1 / time**2 for _, time in known)
    sizes = sum(size / time**2 for size, time in known)
    squares = sum((size / time) ** 2 for size, time in known)
    times = sum(1 / time for _, time in known)
    products = sum(size / time for size, time in known)
    determinant = ones * squares - sizes**2
    latency = (squares * times - sizes * products) / determinant if determinant else 0.0
    slope = (ones * products - sizes * times) / determinant if determinant else 0.0
    if latency < 0 or slope < 1e-6:  # no memory is that quick
        latency, slope = 0.0, products / squares
    return max(1, round(SECOND / slope)), round(latency)
