"""Host memory that is registered: page-locked where it lies, until it is unregistered."""

from __future__ import annotations

import mmap

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, error_of, full, is_all, pinned, stream

PAGE = mmap.PAGESIZE


def register(tensor: torch.Tensor, size: int = PAGE) -> None:
    torch.get_device_module("simdev").register_host(tensor.data_ptr(), size)


def unregister(tensor: torch.Tensor) -> None:
    torch.get_device_module("simdev").unregister_host(tensor.data_ptr())


def pages(number: int = 1, value: float = 0.0) -> torch.Tensor:
    """Whole pages of floats."""
    map_ = mmap.mmap(-1, number * PAGE, access=mmap.ACCESS_COPY)
    return torch.frombuffer(map_, dtype=torch.float32).fill_(value)


def test_registered_memory_is_pinned_until_it_is_not(sim: SimDevice) -> None:
    pinned(0)  # torch asks no device that was never used
    memory, there = pages(2), sim.pinned().registered
    assert not memory.is_pinned()
    register(memory)
    assert memory.is_pinned()
    assert sim.pinned().registered == there + PAGE
    unregister(memory)
    assert not memory.is_pinned()
    assert sim.pinned().registered == there
    assert sim.pinned().most_registered == there + PAGE
    sim.reset_counters()
    assert sim.pinned().most_registered == there


def test_what_is_locked_is_pages(sim: SimDevice) -> None:
    memory, there = pages(3)[PAGE // 4 - 1 :], sim.pinned().registered
    register(memory, 8)  # the last four bytes of a page and the first of the next
    assert sim.pinned().registered == there + 2 * PAGE
    unregister(memory)


@pytest.mark.usefixtures("timing")
def test_a_registered_source_is_read_at_the_copys_own_time(sim: SimDevice) -> None:
    a, target = stream(), full(0, PAGE // 4)
    for registered, read in ((True, 2), (False, 1)):
        source = pages(1, 1)
        if registered:
            register(source)
        with sim.held(a):
            with a:
                target.copy_(source, non_blocking=True)
            source.fill_(2)
        a.synchronize()
        assert is_all(target, read)
        if registered:
            unregister(source)


@pytest.mark.usefixtures("timing")
@pytest.mark.parametrize("upload", [True, False])
def test_what_a_pending_copy_needs_cannot_be_unregistered(sim: SimDevice, upload: bool) -> None:
    a, device, host = stream(), full(1, PAGE // 4), pages(1, 2)
    register(host)
    with sim.held(a):
        with a:
            target, source = (device, host) if upload else (host, device)
            target.copy_(source, non_blocking=True)
        assert "copies there have not ended" in error_of(lambda: unregister(host))
        there = sim.pinned().registered
    a.synchronize()
    unregister(host)
    assert sim.pinned().registered == there - PAGE
    assert is_all(device if upload else host.clone(), 2 if upload else 1)


def test_a_graph_keeps_its_memory_registered(sim: SimDevice) -> None:
    a, graph, target, source = stream(), sim.Graph(), full(0, PAGE // 4), pages(1, 1)
    register(source)
    with a, graph:
        target.copy_(source, non_blocking=True)
    with a:
        graph.replay()
    a.synchronize()
    assert "a graph has them" in error_of(lambda: unregister(source))
    graph.reset()
    unregister(source)


def test_what_cannot_be_registered(sim: SimDevice) -> None:
    memory, locked = pages(3), pinned(0)
    register(memory[PAGE // 4 :])
    twice = "some of the memory is registered already"
    assert twice in error_of(lambda: register(memory[PAGE // 4 :]))
    assert twice in error_of(lambda: register(memory[PAGE // 4 + 1 :], 8))
    assert twice in error_of(lambda: register(memory, 2 * PAGE))
    assert "page-locked already" in error_of(lambda: register(locked, 8))
    assert "0 bytes at" in error_of(lambda: register(memory, 0))
    module = torch.get_device_module("simdev")
    assert "are no memory" in error_of(lambda: module.register_host(0, 8))
    assert "no memory is registered at" in error_of(lambda: unregister(memory))
    with sim.pinned_fails_at(sim.pinned().reserved + sim.pinned().registered + PAGE - 1):
        assert "out of pinned memory: 4096 bytes" in error_of(lambda: register(memory))
        assert "out of pinned memory: 8192 bytes" in error_of(lambda: pinned(0, 2048))
    unregister(memory[PAGE // 4 :])
    error_of(lambda: torch.ones(1, device=DEVICE))  # the last one is kept, for the next test too


def test_a_failed_registration_comes_again_with_the_next_kernel() -> None:
    """As on CUDA, where it is the driver's last error until someone asks for it."""
    host, device = pages(), full(0)
    error_of(lambda: register(host, 0))
    device.copy_(torch.ones(4))  # a copy has an error of its own
    assert "an earlier registration failed" in error_of(lambda: device.add_(1))
    assert is_all(device.add_(1), 2)
