"""Checks of the device's streams and events.

They use the very actions that the runtime issues, and no clock decides: work that takes long
stands before what must be waited for, so that a fence which holds nobody back shows in the values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from runtime.device import AcceleratorStreams, Action, streams_of
from runtime.findings import Failed, check_named, require
from runtime.host import empty_bytes
from schedule.operations import COMPUTE, COPY, HOST, RAN, Record, Wait, landed

LANDED = landed(0)
MIB = 1 << 20
LARGE = 32 * MIB
"""Bytes of a copy that takes a while."""
SECONDS = 0.1
"""That work which takes long takes the device, about."""


class Rig:
    """A slot of zeros, a host block of ones, and the runtime's own actions on them.

    seen: what the compute stream read of the slot.
    back: pinned memory for the slot's bytes; the host reads it without waiting for anything.
    large: a large copy on the copy stream.
    """

    def __init__(self, device: torch.device) -> None:
        self.streams = streams_of(device)
        assert isinstance(self.streams, AcceleratorStreams)
        self.slot = torch.zeros(MIB, dtype=torch.uint8, device=device)
        self.ones, self.back = (empty_bytes(MIB, pin_memory=True) for _ in range(2))
        self.ones.fill_(1)
        self._large = empty_bytes(LARGE, pin_memory=True)
        self._there = torch.empty(LARGE, dtype=torch.uint8, device=device)
        self.seen = torch.zeros_like(self.slot)
        self.copy = self.streams.copy(COPY, ((self.slot, self.ones),))
        self.large = self.streams.copy(COPY, ((self._there, self._large),))
        # What is called first may take its time to begin; then nothing is under way.
        for action in (self.large, self.record(COPY), self.wait(COMPUTE), self.read_back(COPY)):
            action()
        self.streams.synchronize()

    def record(self, stream: str) -> Action:
        return self.streams.fence(Record(stream, RAN if stream == COMPUTE else LANDED))

    def wait(self, stream: str) -> Action:
        return self.streams.fence(Wait(stream, RAN if stream == COPY else LANDED))

    def read_back(self, stream: str) -> Action:
        return self.streams.copy(stream, ((self.back, self.slot),))

    def tries(self) -> Iterator[int]:
        """Three times: all is zero again, and nothing is under way."""
        for number in range(3):
            self.streams.synchronize()
            for bytes_ in (self.slot, self.seen, self.back):
                bytes_.zero_()
            self.streams.synchronize()
            yield number

    def late(self) -> None:
        for _ in range(8):
            self.large()

    def read(self) -> None:
        """The compute stream reads the slot."""
        self.seen.copy_(self.slot)

    def found(self) -> int | None:
        """What the compute stream read, if it was all the same; waits for everything."""
        self.streams.synchronize()
        return _value(self.seen.cpu())


def _value(bytes_: torch.Tensor) -> int | None:
    least, most = int(bytes_.min()), int(bytes_.max())
    return least if least == most else None


def busy(device: torch.device) -> Action:
    """Work for the current stream that takes the device long, and the host no time."""
    size, took = 128, 0.0
    while took < SECONDS / 50 and size < 8192:
        size *= 2
        x = torch.zeros(size, size, device=device)
        out = torch.mm(x, x)
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        torch.mm(x, x, out=out)
        torch.accelerator.synchronize(device)
        took = time.perf_counter() - start
    times = max(32, min(200, round(SECONDS / took)))

    def work() -> None:
        for _ in range(times):
            torch.mm(x, x, out=out)

    return work


NO_STREAMS = "a CPU does everything in order"


@check_named("host waits", NO_STREAMS)
def host_waits(device: torch.device) -> str:
    """An event really blocks: the host goes on when the copy before it has landed."""
    rig = Rig(device)
    read_back, record, wait = rig.read_back(COPY), rig.record(COPY), rig.wait(HOST)
    for _ in rig.tries():
        rig.late()
        rig.copy()
        read_back()
        record()
        wait()
        require(
            _value(rig.back) == 1,
            "the host waited for an event and went on before the copy that it stands for had "
            "landed: this back end's events hold nobody back",
        )
    return "an event holds the host back until the copy before it has landed"


@check_named("streams wait", NO_STREAMS)
def streams_wait(device: torch.device) -> str:
    """A run waits for the copy that it reads, a copy for the run that still reads its slot."""
    rig, work = Rig(device), busy(device)
    copied, compute_waits = rig.record(COPY), rig.wait(COMPUTE)
    for _ in rig.tries():
        rig.late()
        rig.copy()
        copied()
        compute_waits()
        rig.read()
        require(
            rig.found() == 1,
            "the compute stream waited for a copy's event, and read the slot before it had landed",
        )
    ran, copy_waits = rig.record(COMPUTE), rig.wait(COPY)
    for _ in rig.tries():
        work()
        rig.read()
        ran()
        copy_waits()
        rig.copy()
        require(
            rig.found() == 0,
            "the copy stream waited for a run's event, and overwrote the slot while it was read",
        )
    return "runs wait for the copies that they read, and copies for the runs before them"


@check_named("latest record", NO_STREAMS)
def latest_record(device: torch.device) -> str:
    """A wait takes the event's latest record, not its first one."""
    rig = Rig(device)
    read_back, record, wait = rig.read_back(COPY), rig.record(COPY), rig.wait(COMPUTE)
    host_waits = rig.wait(HOST)
    for _ in rig.tries():
        record()
        host_waits()
        rig.late()
        rig.copy()
        read_back()
        record()
        wait()
        rig.read()
        host_waits()
        require(
            _value(rig.back) == 1 and rig.found() == 1,
            "an event was recorded again, and a wait for it took an older record",
        )
    return "a wait takes the event's latest record"


@check_named("copies return", NO_STREAMS)
def copies_return(device: torch.device) -> str:
    """A copy from or to pinned memory returns before it has landed."""
    rig, work = Rig(device), busy(device)
    read_back, ran, wait = rig.read_back(COPY), rig.record(COMPUTE), rig.wait(COPY)
    for _ in rig.tries():  # once must do: the host may be held up by something else
        work()
        ran()
        wait()
        rig.late()
        rig.copy()
        read_back()
        if _value(rig.back) == 0:
            rig.streams.synchronize()
            return "copies from pinned memory return before they have landed"
    raise Failed(
        "copies from pinned memory block the host until they have landed, so nothing can overlap"
    )


@check_named("overlap", NO_STREAMS)
def overlap(device: torch.device) -> str:
    """A copy lands while the compute stream is at work."""
    rig, work = Rig(device), busy(device)
    read_back, copied, wait = rig.read_back(COMPUTE), rig.record(COPY), rig.wait(HOST)
    for _ in rig.tries():  # once must do: the device may have something else to do
        rig.slot.fill_(1)
        work()
        read_back()
        rig.large()
        copied()
        wait()
        if _value(rig.back) == 0:
            rig.streams.synchronize()
            return "copies land while the device computes"
    raise Failed(
        "copies landed only when the compute before them had ended: every refill is waited for"
    )
