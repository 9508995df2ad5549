"""Which copies the host waits for, when they read and when they land."""

from __future__ import annotations

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, full, is_all, pinned, stream

accelerator = torch.accelerator


@pytest.mark.usefixtures("timing")
def test_a_pinned_source_is_read_at_the_copys_own_time(sim: SimDevice) -> None:
    a, target, source = stream(), full(0), pinned(1)
    with sim.held(a) as hold:
        with a:
            target.copy_(source, non_blocking=True)
        source.fill_(7)  # too early: the copy is still pending
        hold.release()
        a.synchronize()
    assert is_all(target, 7)


@pytest.mark.usefixtures("timing")
def test_a_pageable_source_is_read_at_the_call_and_lands_later(sim: SimDevice) -> None:
    a, target, source = stream(), full(0), torch.ones(4)
    with sim.held(a) as hold:
        with a:
            target.copy_(source, non_blocking=True)
        source.fill_(7)
        assert is_all(target, 0)  # through another stream: not landed
        hold.release()
        a.synchronize()
    assert is_all(target, 1)


@pytest.mark.usefixtures("timing")
@pytest.mark.parametrize("kind", ["dtype", "strides"])
def test_a_pinned_source_that_must_be_converted_is_read_at_the_call(
    sim: SimDevice, kind: str
) -> None:
    a, target = stream(), torch.zeros(4, 4, device=DEVICE)
    source = torch.ones(4, 4).pin_memory()
    if kind == "dtype":
        source = source.double().pin_memory()
    accelerator.synchronize()
    with sim.held(a) as hold:
        with a:
            target.copy_(source if kind == "dtype" else source.t(), non_blocking=True)
        source.fill_(7)
        hold.release()
        a.synchronize()
    assert is_all(target, 1)


@pytest.mark.usefixtures("timing")
def test_a_pinned_target_is_written_later(sim: SimDevice) -> None:
    a, source, target = stream(), full(1), pinned(0)
    with sim.held(a) as hold:
        with a:
            target.copy_(source, non_blocking=True)
        assert is_all(target, 0)
        hold.release()
        a.synchronize()
    assert is_all(target, 1)


@pytest.mark.parametrize("target", ["pageable", "pinned"])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_the_host_waits_for_all_other_downloads(
    sim: SimDevice, target: str, non_blocking: bool
) -> None:
    host = pinned(0) if target == "pinned" else torch.zeros(4)
    source = full(1)
    with sim.steps(seed=0, adversary="copies"):
        host.copy_(source, non_blocking=non_blocking)
        assert is_all(host, 0 if target == "pinned" and non_blocking else 1)


@pytest.mark.parametrize("source", ["pageable", "pinned"])
def test_a_blocking_upload_has_landed_when_the_call_returns(sim: SimDevice, source: str) -> None:
    host = pinned(1) if source == "pinned" else torch.ones(4)
    a, target, seen = stream(), full(0), full(0)
    with sim.steps(seed=0, adversary="copies"):
        target.copy_(host)
        with a:  # in no order with the copy
            seen.copy_(target)
        a.synchronize()
    assert is_all(seen, 1)


@pytest.mark.usefixtures("timing")
def test_copies_on_the_device_never_make_the_host_wait(sim: SimDevice) -> None:
    a, source, target, far = stream(), full(1), full(0), full(0, device=OTHER)
    with sim.held(a), a:
        target.copy_(source)
        far.copy_(source, non_blocking=False)
        assert not a.query()
    a.synchronize()
    assert is_all(target, 1)
    assert is_all(far, 1)


@pytest.mark.usefixtures("timing")
def test_conversions_have_the_cpus_values() -> None:
    values = torch.linspace(-3, 3, 24).reshape(4, 6)
    for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.complex64):
        assert torch.equal(values.to(DEVICE).to(dtype).cpu(), values.to(dtype))
        assert torch.equal(values.to(DEVICE, dtype).cpu(), values.to(dtype))
    assert torch.equal(values.t().to(DEVICE).cpu(), values.t())
    complex_values = torch.complex(values, values + 1)
    assert torch.equal(complex_values.to(DEVICE).conj().cpu(), complex_values.conj())
    assert torch.equal(complex_values.conj().to(DEVICE).cpu(), complex_values.conj())
    imaginary = complex_values.conj().imag  # a lazy negative
    assert torch.equal(imaginary.to(DEVICE).cpu(), imaginary.clone())


@pytest.mark.usefixtures("timing")
def test_copies_and_bytes_are_counted(sim: SimDevice) -> None:
    target, source = full(0, 10), pinned(1, 10)
    sim.reset_counters()
    target.copy_(source, non_blocking=True)
    target.copy_(torch.ones(10))
    target.cpu()
    target.clone()
    target.to(OTHER)
    counters = sim.counters()
    assert counters.copies == {"host to device": 2, "device to host": 1, "on devices": 2}
    assert counters.bytes == {"host to device": 80, "device to host": 40, "on devices": 80}


def test_kernels_and_waits_are_counted(sim: SimDevice) -> None:
    values = full(3)
    sim.reset_counters()
    total = (values * 2).sum()
    counters = sim.counters()
    assert (counters.kernels, counters.waits) == (2, 0)
    assert total.item() == 24
    counters = sim.counters()
    assert (counters.kernels, counters.waits) == (2, 1)
    assert counters.waits_by_operator == {"aten::_local_scalar_dense": 1}
    sim.reset_counters()
    assert sim.counters().kernels == 0


@pytest.mark.usefixtures("timing")
def test_a_host_scalar_is_taken_by_value_at_the_call(sim: SimDevice) -> None:
    a, values, scalar = stream(), full(3), torch.tensor(2.0)
    with sim.held(a) as hold:
        with a:
            values.mul_(scalar)
        scalar.fill_(100)
        hold.release()
        a.synchronize()
    assert is_all(values, 6)
