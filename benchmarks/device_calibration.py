"""What copies reach on this machine: by size and kind of host memory, both ways at once, and how
long a small one waits behind a large one."""

from __future__ import annotations

import mmap
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch

from benchmarks.device_measure import WARM, between, copies, free, mark
from benchmarks.device_rows import Row, guarded
from benchmarks.device_sizes import CALIBRATION, MIB, TO_DEVICE, Bench
from runtime.device import Action
from runtime.host import empty_bytes
from runtime.registration import forget_error, registration_of
from runtime.sizes import megabytes

SLAB_OFFSET = 256
"""A tensor in a slab begins at a multiple of this, seldom at a page."""
CHAINED, CHAINS = 16 * MIB, 64
"""Copies are timed by so many bytes behind one another, and at most so many copies."""
SMALL = 4096
"""Bytes of an upload that a user of the device makes beside the refills."""


def calibration(bench: Bench) -> Iterator[Row]:
    """The highest rate to the device is the peak that later rows are held against."""
    for kind in (_pinned, _registered, _slab):
        what = f"{TO_DEVICE}, {kind.__name__[1:]}"
        yield from guarded(CALIBRATION, what, partial(_rates, bench, kind, what))
        free()
    yield from guarded(CALIBRATION, "both ways at once", partial(_duplex, bench))
    yield from guarded(CALIBRATION, "an upload beside others", partial(_uploads, bench))


@contextmanager
def _pinned(device: torch.device, size: int) -> Iterator[torch.Tensor]:
    """A block of torch's page-locking allocator."""
    del device  # it is the current accelerator that locks
    yield empty_bytes(size, pin_memory=True)


@contextmanager
def _registered(device: torch.device, size: int) -> Iterator[torch.Tensor]:
    """A map that the driver locks where it lies; of no bytes where the device type has no such."""
    registration = registration_of(device)
    if registration is None:
        yield empty_bytes(0)
        return
    pages = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
    try:
        registration.register(pages.data_ptr(), size)
    except RuntimeError:
        forget_error(device)
        raise
    try:
        yield pages
    finally:
        torch.accelerator.synchronize(device)
        registration.unregister(pages.data_ptr())


@contextmanager
def _slab(device: torch.device, size: int) -> Iterator[torch.Tensor]:
    """What lies in a slab behind something else."""
    with _pinned(device, size) as slab:
        yield slab[SLAB_OFFSET:]


Memory = Callable[[torch.device, int], AbstractContextManager[torch.Tensor]]


def _rates(bench: Bench, memory: Memory, what: str) -> Iterator[Row]:
    most = bench.sizes.copies[-1]
    with memory(bench.device, most) as host:
        if not host.numel():
            yield Row(CALIBRATION, what, note=f"{bench.device.type} locks no memory of others")
            return
        host.zero_()
        there = torch.empty(host.numel(), dtype=torch.uint8, device=bench.device)
        for nominal in bench.sizes.copies:
            size = min(nominal, host.numel())
            times = max(1, min(CHAINS, CHAINED // size))
            seconds = copies(partial(_copy, there[:size], host[:size], times), bench) / times
            yield Row(
                CALIBRATION,
                f"{what}, {size_text(nominal)}",
                seconds=seconds,
                bytes=size,
                rate=size / seconds / 1e9 if seconds else None,
                locked=host.numel(),
            )


def _copy(target: torch.Tensor, source: torch.Tensor, times: int = 1) -> None:
    for _ in range(times):
        target.copy_(source, non_blocking=True)


def size_text(size: int) -> str:
    """In binary units where it is a round number of them; else for people."""
    for bytes_, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_} {unit}"
    return megabytes(size)


def _duplex(bench: Bench) -> Iterator[Row]:
    """A copy to the device and one to the host of as many bytes, on a stream each."""
    size, device = bench.sizes.copies[-2], bench.device
    up, down = torch.Stream(device=device), torch.Stream(device=device)
    hosts = [empty_bytes(size, pin_memory=True).zero_() for _ in range(2)]
    theirs = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2)]

    def both() -> None:
        current = torch.accelerator.current_stream(device)
        for stream in (up, down):
            stream.wait_stream(current)
        with up:
            _copy(theirs[0], hosts[0])
        with down:
            _copy(hosts[1], theirs[1])
        for stream in (up, down):
            current.wait_stream(stream)

    seconds = copies(both, bench)
    rate = 2 * size / seconds / 1e9 if seconds else None
    what = f"both ways at once, {size_text(size)} each"
    yield Row(CALIBRATION, what, seconds=seconds, bytes=2 * size, rate=rate)


def _uploads(bench: Bench) -> Iterator[Row]:
    """How long an upload on the current stream takes, while another stream copies a long block."""
    device, long, chunk = bench.device, bench.sizes.copies[-1], bench.sizes.chunks
    host, target = (
        empty_bytes(long, pin_memory=True).zero_(),
        torch.empty(long, dtype=torch.uint8, device=device),
    )
    small, there = (
        empty_bytes(SMALL, pin_memory=True).zero_(),
        torch.empty(SMALL, dtype=torch.uint8, device=device),
    )
    copier, event = torch.Stream(device=device), torch.Event(device=device)
    parts = list(zip(target.split(chunk), host.split(chunk), strict=True))

    def nothing() -> None:
        """The upload is alone."""

    def at_once() -> None:
        with copier:
            _copy(target, host)

    def in_chunks() -> None:
        with copier:
            for pair in parts:
                _copy(*pair)

    def with_events() -> None:
        with copier:
            for pair in parts:
                _copy(*pair)
                event.record(copier)

    block, piece = size_text(long), size_text(chunk)
    arms = {
        "alone": nothing,
        f"behind {block}": at_once,
        f"behind {block} in chunks of {piece}": in_chunks,
        "the same, with an event after each chunk": with_events,
    }
    for what, before in arms.items():
        seconds = _latency(bench, before, partial(_copy, there, small))
        yield Row(CALIBRATION, f"{size_text(SMALL)} {what}", seconds=seconds, bytes=SMALL)


def _latency(bench: Bench, before: Action, upload: Action) -> float:
    found = []
    for number in range(-WARM, bench.sizes.rounds):
        torch.accelerator.synchronize(bench.device)
        before()
        start = mark(bench)
        upload()
        end = mark(bench)
        end.synchronize()
        if number >= 0:
            found.append(between(start, end))
    return statistics.median(found)
