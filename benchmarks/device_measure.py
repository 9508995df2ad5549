"""How passes and copies are timed: by the device's events, behind one another, after warming up."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch

from benchmarks.device_rows import TOLERANCE, Row
from benchmarks.device_sizes import Bench

WARM = 3


@dataclass(frozen=True, slots=True)
class Times:
    """seconds: a pass on the device.   host: what it takes the host to issue one.   Medians.
    passes: how many were run in all."""

    seconds: float
    host: float
    passes: int


def passes(call: Callable[[], object], bench: Bench) -> Times:
    """Each pass begins as soon as the one before has ended, as refills go on across their ends.
    The host's time is that of the warm-ups, which find nothing under way that could hold it up."""
    host = []
    for _ in range(WARM):
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        torch.accelerator.synchronize(bench.device)
    call()  # it finds more copies done than any other
    marks = [mark(bench)]
    for _ in range(bench.sizes.rounds):
        call()
        marks.append(mark(bench))
    marks[-1].synchronize()
    seconds = statistics.median(between(first, last) for first, last in pairwise(marks))
    return Times(seconds, statistics.median(host), WARM + len(marks))


def copies(call: Callable[[], object], bench: Bench) -> float:
    """Seconds from the call's begin on the current stream to its end there, the median; nothing
    else is under way."""
    found = []
    for number in range(-WARM, bench.sizes.rounds):
        torch.accelerator.synchronize(bench.device)
        start = mark(bench)
        call()
        end = mark(bench)
        end.synchronize()
        if number >= 0:
            found.append(between(start, end))
    return statistics.median(found)


def mark(bench: Bench) -> torch.Event:
    """An event, recorded on the current stream."""
    event = torch.Event(device=bench.device, enable_timing=True)
    event.record(torch.accelerator.current_stream(bench.device))
    return event


def between(first: torch.Event, last: torch.Event) -> float:
    """Seconds."""
    return float(first.elapsed_time(last)) / 1e3


@dataclass(frozen=True, slots=True)
class Whole:
    """What others are compared with: a pass with all weights on the device. seconds: of it.
    output: what it gives; None if all weights at once don't fit.  layers: of the model."""

    seconds: float
    output: torch.Tensor | None
    layers: int


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run a pass.  call: runs one and returns its output.  copied: bytes copied so far.
    device, locked: bytes of weights on the device, and of page-locked host memory."""

    call: Callable[[], torch.Tensor]
    copied: Callable[[], int]
    device: int
    locked: int
    note: str = ""


def row_of(bench: Bench, part: str, what: str, arm: Arm, whole: Whole) -> Row:
    """The arm's pass, measured. It fails where its output is more than rounding away."""
    before = arm.copied()
    times = passes(arm.call, bench)
    moved = (arm.copied() - before) / times.passes
    away = None if whole.output is None else difference(arm.call(), whole.output)
    bound = rate = of_peak = None
    if bench.peak is not None:
        bound = max(whole.seconds, moved / bench.peak)
    if moved and times.seconds:
        rate = moved / times.seconds / 1e9
        of_peak = None if bench.peak is None else rate * 1e9 / bench.peak
    return Row(
        part,
        what,
        seconds=times.seconds,
        bytes=moved,
        compute=whole.seconds,
        bound=bound,
        ratio=times.seconds / bound if bound else None,
        rate=rate,
        of_peak=of_peak,
        stall=times.seconds - whole.seconds,
        device=arm.device,
        locked=arm.locked,
        host=times.host / whole.layers,
        difference=away,
        note=arm.note,
        failed=away is not None and not away <= TOLERANCE,  # NaN is no number below it
    )


def difference(given: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, to the largest value that is expected; 0 only bit for bit."""
    if torch.equal(given, expected):
        return 0.0
    expected = expected.float()
    return float((given.float() - expected).abs().max() / expected.abs().max())


def free() -> None:
    """Give back what the part before took, on the device and page-locked."""
    gc.collect()
    torch.accelerator.empty_cache()
    getattr(torch.accelerator, "empty_host_cache", lambda: None)()
