"""A pass allocates nothing: no host, device or page-locked memory, no stream, no event.

The layers compute nothing, so that whatever is asked for is asked for by the runtime.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import runtime
from runtime.arena import Arena
from runtime.device import AcceleratorStreams
from schedule.operations import Record, Wait
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE

HERE = str(Path(runtime.__file__).parent)
LAYERS, PASSES = 5, 50


class Idle(nn.Module):
    """Holds weights and returns what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.fixture(params=[2, LAYERS], ids=["with refills", "K >= N"])
def passes(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Callable[[], None], runtime.Offloaded]]:
    """Runs so many passes, after a few that warm up; and the offload."""
    model, x = nn.Sequential(*(Idle() for _ in range(LAYERS))).eval(), torch.zeros(8).to(DEVICE)

    def run(passes: int) -> None:
        for _ in range(passes):
            model(x)
        torch.accelerator.synchronize()

    with runtime.offload(model, list(model), slots=request.param, device=DEVICE) as offloaded:
        run(5)
        yield partial(run, PASSES), offloaded
    assert offloaded.report().misses == 0


Passes = tuple[Callable[[], None], runtime.Offloaded]


def grown(call: Callable[[], None]) -> int:
    """Bytes that the runtime's own lines hold more of after the call; it is called once before."""
    only = [tracemalloc.Filter(True, f"{HERE}/*")]
    tracemalloc.start()
    try:
        call()
        gc.collect()
        before = tracemalloc.take_snapshot().filter_traces(only)
        call()
        gc.collect()
        after = tracemalloc.take_snapshot().filter_traces(only)
    finally:
        tracemalloc.stop()
    return sum(one.size_diff for one in after.compare_to(before, "lineno"))


def test_nothing_grows(passes: Passes) -> None:
    run, offloaded = passes
    copies = offloaded.report().copies
    assert grown(run) <= PASSES  # not even a byte a pass
    assert offloaded.report().copies - copies == (2 * PASSES * LAYERS if refills(offloaded) else 0)


def test_what_a_trace_collects_is_seen_to_grow(passes: Passes) -> None:
    """Twin."""
    run, offloaded = passes
    with offloaded.trace():
        assert grown(run) > PASSES * LAYERS


def refills(offloaded: runtime.Offloaded) -> bool:
    return offloaded.schedule.ring.slots < LAYERS


def asked_for(sim: SimDevice, call: Callable[[], object]) -> dict[str, int]:
    """What the device was asked for, by name: allocations, pinned blocks, streams, events."""

    def allocations() -> int:
        count: int = torch.accelerator.memory_stats()["allocation.all.allocated"]
        return count

    sim.reset_counters()
    before = allocations()
    call()
    return {"allocations": allocations() - before} | sim.counters().new


def test_nothing_is_asked_of_the_device(sim: SimDevice, passes: Passes) -> None:
    run, offloaded = passes
    found = asked_for(sim, run)
    assert found == {"allocations": 0}
    copies = sim.counters().copies.get("host to device", 0)
    assert copies == (PASSES * LAYERS if refills(offloaded) else 0)


def test_what_a_fence_makes_anew_is_seen(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: a record that makes its event anew each time."""
    made = AcceleratorStreams.fence

    def fence(streams: AcceleratorStreams, operation: Record | Wait) -> Callable[[], None]:
        action = made(streams, operation)
        if isinstance(operation, Wait):
            return action

        def anew() -> None:
            action()
            torch.accelerator.current_stream().record_event()

        return anew

    monkeypatch.setattr(AcceleratorStreams, "fence", fence)
    model, x = nn.Sequential(*(Idle() for _ in range(LAYERS))).eval(), torch.zeros(8).to(DEVICE)
    with runtime.offload(model, list(model), slots=2, device=DEVICE):
        model(x)
        assert asked_for(sim, partial(model, x))["events"] >= LAYERS


def test_what_a_bind_asks_for_is_seen(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, passes: Passes
) -> None:
    """Twin: memory of the device, pinned memory and a stream, once a run."""
    run, _ = passes
    bind = Arena.bind

    def wasteful(arena: Arena, weights: object) -> None:
        torch.empty(8, device=DEVICE)
        torch.empty(8, pin_memory=True)
        torch.Stream(device=DEVICE)
        bind(arena, weights)  # type: ignore[arg-type]

    monkeypatch.setattr(Arena, "bind", wasteful)
    runs = PASSES * LAYERS
    found = asked_for(sim, run)
    assert found == {"allocations": runs, "pinned blocks": runs, "streams": runs}
