"""Device memory is poisoned when it is handed out and given up; slices of storages; limits."""

from __future__ import annotations

import math

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, error_of, full, is_all, pinned, stream

accelerator = torch.accelerator


@pytest.mark.usefixtures("timing")
def test_fresh_memory_is_poison() -> None:
    assert is_all(torch.empty(5, device=DEVICE), math.nan)
    assert is_all(torch.empty(5, device=DEVICE, dtype=torch.int64), -1)


@pytest.mark.usefixtures("timing")
@pytest.mark.parametrize("recorded", [False, True])
def test_memory_that_another_stream_still_uses(sim: SimDevice, recorded: bool) -> None:
    """It is given up in the order of the stream that allocated it, unless record_stream said who
    else uses it."""
    side, values, out = stream(), full(1), full(0)
    with sim.held(side) as hold:
        with side:
            torch.add(values, 1, out=out)
        if recorded:
            values.record_stream(side)
        del values
        if not recorded:
            accelerator.current_stream().synchronize()
        hold.release()
        accelerator.synchronize()
    assert is_all(out, 2 if recorded else math.nan)


@pytest.mark.usefixtures("timing")
def test_memory_that_only_its_own_stream_uses_is_safe(sim: SimDevice) -> None:
    values, out = full(1), full(0)
    with sim.held(accelerator.current_stream()) as hold:
        torch.add(values, 1, out=out)
        del values
        hold.release()
    assert is_all(out, 2)


@pytest.mark.usefixtures("timing")
def test_memory_is_handed_out_in_the_order_of_its_stream(sim: SimDevice) -> None:
    """Until that stream gets there, its former owner may still write to it: another stream must
    not use it before."""
    side = stream()
    with sim.held(accelerator.current_stream()) as hold:
        early, late = torch.empty(4, device=DEVICE), torch.empty(4, device=DEVICE)
        allocated = accelerator.current_stream().record_event()
        with side:
            early.fill_(1)
        side.synchronize()
        side.wait_event(allocated)
        with side:
            late.fill_(1)
        hold.release()
        accelerator.synchronize()
    assert is_all(early, math.nan)
    assert is_all(late, 1)


def test_what_is_in_use_is_counted() -> None:
    accelerator.reset_peak_memory_stats()
    before, there = accelerator.memory_allocated(0), accelerator.memory_allocated(1)
    values = torch.empty(1000, device=DEVICE)
    assert accelerator.memory_allocated(0) == before + 4000
    assert accelerator.memory_allocated(1) == there
    del values
    assert accelerator.memory_allocated(0) == before
    assert accelerator.max_memory_allocated(0) == before + 4000


def test_device_memory_can_run_out(sim: SimDevice) -> None:
    used = accelerator.memory_allocated(0)
    with sim.device_fails_at(used + 1000):
        values = torch.empty(250, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError, match=rf"4 bytes asked, {used + 1000} of"):
            torch.empty(1, device=DEVICE)
        del values
        torch.empty(1, device=DEVICE)
    torch.empty(1000, device=DEVICE)


@pytest.mark.usefixtures("timing")
def test_a_tensor_over_a_slice_of_a_storage() -> None:
    block = torch.arange(64, dtype=torch.uint8, device=DEVICE)
    part = torch.empty(0, dtype=torch.int32, device=DEVICE).set_(
        block.untyped_storage()[16:48], 0, (2, 4), (4, 1)
    )
    expected = torch.arange(64, dtype=torch.uint8).view(torch.int32)[4:12].view(2, 4)
    assert part.data_ptr() == block.data_ptr() + 16
    assert part.untyped_storage().nbytes() == 32
    assert torch.equal(part.cpu(), expected)
    assert torch.equal(part[1, 1:].cpu(), expected[1, 1:])
    assert torch.equal(part.t().contiguous().cpu(), expected.t())
    part[:, 2] = 0
    assert block[24:28].tolist() == block[40:44].tolist() == [0] * 4
    assert block.sum().item() == sum(range(64)) - sum(range(24, 28)) - sum(range(40, 44))


@pytest.mark.usefixtures("timing")
def test_views_of_a_tensor_over_a_slice() -> None:
    block = torch.arange(48, dtype=torch.float32, device=DEVICE)
    part = torch.empty(0, device=DEVICE).set_(block.untyped_storage()[32:], 0, (5, 8), (8, 1))
    expected = torch.arange(48, dtype=torch.float32)[8:].clone().view(5, 8)
    for view in (
        lambda t: t[2],
        lambda t: t.view(-1)[3:9],
        lambda t: t.transpose(0, 1)[1:3],
        lambda t: t.view(torch.int32),
        lambda t: t.unfold(1, 3, 2),
        lambda t: t.as_strided((3, 2), (2, 1), 1),
        lambda t: t.diagonal(),
        lambda t: torch.cat(t.split(2, dim=1), dim=1),
        lambda t: t[:, None].expand(5, 2, 8),
    ):
        assert torch.equal(view(part).cpu(), view(expected))


@pytest.mark.usefixtures("timing")
def test_the_slice_keeps_the_block_alive() -> None:
    block = full(3, 8)
    part = torch.empty(0, device=DEVICE).set_(block.untyped_storage()[16:], 0, (4,), (1,))
    del block
    assert is_all(part, 3)


@pytest.mark.usefixtures("sim")
def test_a_misaligned_slice_is_an_error_when_it_is_used() -> None:
    block = torch.zeros(16, dtype=torch.uint8, device=DEVICE)
    part = torch.empty(0, device=DEVICE).set_(block.untyped_storage()[1:9], 0, (2,), (1,))
    assert "misaligned address" in error_of(lambda: part + 1)


@pytest.mark.usefixtures("timing")
def test_an_empty_slice_is_an_empty_tensor() -> None:
    block = full(1)
    for start in (0, 16):
        storage = block.untyped_storage()[start:start]
        part = torch.empty(0, device=DEVICE).set_(storage, 0, (0, 3), (3, 1))
        assert part.cpu().shape == (0, 3)
        assert (part + 1).sum().item() == 0


@pytest.mark.usefixtures("timing")
def test_resizing_keeps_the_content() -> None:
    values = torch.arange(4, dtype=torch.float32, device=DEVICE)
    values.resize_(6)
    assert values[:4].tolist() == [0, 1, 2, 3]
    assert is_all(values[4:], math.nan)
    values.untyped_storage().resize_(8)
    assert values.resize_(2).tolist() == [0, 1]


# ---- pinned memory


@pytest.mark.usefixtures("sim")
def test_pinned_memory_is_known_as_such() -> None:
    tensor = torch.empty(100, dtype=torch.uint8, pin_memory=True)
    assert tensor.is_pinned()
    assert tensor[50:].is_pinned()
    assert not torch.empty(100).is_pinned()
    assert not full(1).is_pinned()


@pytest.mark.parametrize(("asked", "reserved"), [(1, 1), (64, 64), (65, 128), (5000, 8192)])
def test_pinned_memory_is_rounded_to_powers_of_two(
    sim: SimDevice, asked: int, reserved: int
) -> None:
    accelerator.empty_host_cache()
    before = sim.pinned()
    tensor = torch.empty(asked, dtype=torch.uint8, pin_memory=True)
    assert sim.pinned().asked == before.asked + asked
    assert sim.pinned().reserved == before.reserved + reserved
    del tensor
    assert sim.pinned().asked == before.asked
    assert sim.pinned().reserved == before.reserved + reserved  # kept for the next one
    tensor = torch.empty(reserved, dtype=torch.uint8, pin_memory=True)
    assert sim.pinned().reserved == before.reserved + reserved
    del tensor
    accelerator.empty_host_cache()
    assert sim.pinned().reserved == before.reserved


def test_pinned_memory_can_fail_at_a_byte(sim: SimDevice) -> None:
    accelerator.empty_host_cache()
    reserved = sim.pinned().reserved
    with sim.pinned_fails_at(reserved + 1024):
        first = torch.empty(513, dtype=torch.uint8, pin_memory=True)
        with pytest.raises(RuntimeError, match="out of pinned memory: 1 bytes asked, rounded to 1"):
            torch.empty(1, dtype=torch.uint8, pin_memory=True)
        del first
        torch.empty(600, dtype=torch.uint8, pin_memory=True)  # from the cache
    torch.empty(5000, dtype=torch.uint8, pin_memory=True)


@pytest.mark.usefixtures("timing")
def test_a_pending_copy_keeps_its_pinned_source(sim: SimDevice) -> None:
    a, target, source = stream(), full(0), pinned(1)
    with sim.held(a) as hold:
        with a:
            target.copy_(source, non_blocking=True)
        del source
        other = pinned(9)  # would get the same memory, if that had been given up
        hold.release()
        a.synchronize()
    assert is_all(target, 1)
    assert is_all(other, 9)


# ---- tensors that change device


def test_data_may_be_set_across_devices_as_on_cuda() -> None:
    host, there = torch.nn.Parameter(torch.ones(2)), full(3, 2)
    assert torch._has_compatible_shallow_copy_type(host, there)
    assert torch._has_compatible_shallow_copy_type(there, host)
    assert torch._has_compatible_shallow_copy_type(there, full(1, device=OTHER))
    assert not torch._has_compatible_shallow_copy_type(there, torch.empty(1, device="meta"))
    host.data = there
    assert host.device == torch.device(DEVICE)
    assert host.tolist() == [3, 3]
    host.data = torch.zeros(2)
    assert host.tolist() == [0, 0]


def test_or_may_not_if_the_test_wants_so(sim: SimDevice) -> None:
    host = torch.nn.Parameter(torch.ones(2))
    with sim.no_shallow_copies():
        assert not torch._has_compatible_shallow_copy_type(host, full(3, 2))
        assert torch._has_compatible_shallow_copy_type(full(1), full(3))
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            host.data = full(3, 2)


@pytest.mark.usefixtures("timing")
def test_device_of_two_devices() -> None:
    values = full(1, device=OTHER)
    assert (values + 1).device == torch.device(OTHER)
    assert torch.ones(2, device=OTHER).sum().item() == 2
    assert values.new_zeros(3).device == torch.device(OTHER)
