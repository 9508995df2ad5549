"""Locked host memory of offloaded models, by the device's own counters: within the bound, nothing
where nothing is wanted, and none left over. What can't be locked is as right."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
import torch
from torch import nn

import runtime
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE, error_of, full, is_all
from tests.simdevice.offloads import SAFE, Case, Stack, batches, same

PAGE = mmap.PAGESIZE
FORGET = "runtime.locked.forget_error"


@pytest.fixture(params=["registered", "slabs"])
def way(sim: SimDevice, request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways of locking; the second as if the device type offered no registration."""
    torch.accelerator.empty_host_cache()
    there = locked(sim)
    if request.param == "slabs":
        with patch("runtime.locked.registration_of", lambda _: None):
            yield request.param
    else:
        yield request.param
    gc.collect()
    assert locked(sim) == there


def locked(sim: SimDevice) -> int:
    return sim.pinned().registered + sim.pinned().reserved


def odd(*widths: int) -> nn.Sequential:
    """Layers of sizes that are no powers of two."""
    torch.manual_seed(3)
    return nn.Sequential(*(nn.Linear(width, width) for width in widths))


class Wide(nn.Module):
    """Of several layers whose inner width is large and odd."""

    def __init__(self, *inner: int) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 16)) for width in inner
        )
        self.x = torch.randn(2, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def bytes_of(modules: nn.ModuleList) -> int:
    return sum(p.numel() * p.element_size() for p in modules.parameters())


ODD = {
    "alike": (771,) * 24,
    "three quarters": (1520,) * 24,
    "just above a power of two": (1030,) * 24,
    "mixed": (300, 5000, 20, 777, 1, 2048, 900) * 3,
}


@pytest.mark.parametrize("sizes", ODD)
def test_little_more_than_the_weights_is_locked(sim: SimDevice, way: str, sizes: str) -> None:
    model = Wide(*ODD[sizes])
    x = model.x
    expected, before = model(x), locked(sim)
    weights = bytes_of(model.layers)
    with runtime.offload(model, model.layers, slots=2) as offloaded:
        now = locked(sim) - before
        assert now == offloaded.placement.bytes_host[0]
        assert now <= 1.05 * weights + PAGE * len(model.layers)
        # All of it, but for the last slabs' worth.
        assert offloaded.placement.bytes_host[1] <= (0 if way == "registered" else 0.1 * weights)
        assert now >= weights - offloaded.placement.bytes_host[1]
        assert (sim.pinned().registered > 0) == (way == "registered")
        assert torch.equal(model(x.to(DEVICE)).cpu(), expected)
    assert locked(sim) == before


def test_powers_of_two_alone_would_lock_far_more(sim: SimDevice) -> None:
    """Twin: the bound does tell."""
    torch.accelerator.empty_host_cache()
    model, before = Wide(*ODD["just above a power of two"]), locked(sim)
    kept = [
        torch.empty(sum(p.numel() * 4 for p in layer.parameters()), pin_memory=True)
        for layer in model.layers
    ]
    assert locked(sim) - before > 1.5 * bytes_of(model.layers)
    del kept
    torch.accelerator.empty_host_cache()


@pytest.mark.usefixtures("way")
def test_nothing_is_locked_if_nothing_is_wanted(sim: SimDevice) -> None:
    before = sim.pinned()
    case = Case("balanced", 5, 2, offload=_with(pin=False))
    with case.offloaded:
        for adversary in ADVERSARIES:
            for seed in range(8):
                assert case.right(sim, seed, adversary)
        assert sim.pinned() == before
        assert case.offloaded.placement.bytes_host[0] == 0
    assert sim.pinned() == before


def _with(**options: object) -> Callable[..., runtime.Offloaded]:
    return lambda *arguments, **others: runtime.offload(*arguments, **others, **options)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("part", [0, 0.3, 0.7])
def test_where_locking_fails_the_rest_is_pageable(sim: SimDevice, part: float) -> None:
    """And the driver's error is no kernel's afterwards: the next pass would raise it."""
    model = Wide(*(771,) * 24)
    x = model.x
    expected, weights = model(x), bytes_of(model.layers)
    fails_at = locked(sim) + int(part * weights)
    with sim.pinned_fails_at(fails_at), runtime.offload(model, model.layers, slots=2) as offloaded:
        host = offloaded.placement
        assert locked(sim) <= fails_at
        assert (host.bytes_host[0] > 0) == (part > 0)
        assert weights - host.bytes_host[0] <= host.bytes_host[1] <= weights * (1.3 - part)
        (note,) = host.notes
        assert "out of pinned memory" in note
        for adversary in ADVERSARIES:
            for seed in range(4):
                with sim.steps(seed, adversary):
                    assert torch.equal(model(x.to(DEVICE)).cpu(), expected)
    assert torch.equal(model(x), expected)


@pytest.mark.unpoisoned  # poison would be the next kernel
def test_the_error_of_a_failed_registration_would_be_anothers(sim: SimDevice) -> None:
    """Twin: with the driver's last error left where it is, the user's kernel raises it."""
    device, others = full(1), locked(sim)
    with (
        sim.pinned_fails_at(others),
        patch(FORGET, lambda _: None),
        runtime.offload(odd(20, 20, 20), slots=2, device=DEVICE),
    ):
        assert "an earlier registration failed" in error_of(lambda: device.add_(1))
    assert is_all(device.add_(1), 2)


@pytest.mark.parametrize("policy", SAFE)
def test_every_seed_is_right_from_slabs_too(sim: SimDevice, policy: str) -> None:
    """The registered ones are what all the other tests have."""
    with patch("runtime.locked.registration_of", lambda _: None):
        case = Case(policy, 5, 3)
    with case.offloaded as offloaded:
        assert offloaded.placement.bytes_host[0] > 0
        for adversary in ADVERSARIES:
            for seed in range(6):
                assert case.right(sim, seed, adversary), case.replay(seed, adversary)
    torch.accelerator.empty_host_cache()


@pytest.mark.usefixtures("way")
def test_a_budget_is_kept(sim: SimDevice) -> None:
    model = Wide(*(771,) * 24)
    x = model.x
    expected, before, weights = model(x), locked(sim), bytes_of(model.layers)
    budget = weights // 2
    with runtime.offload(model, model.layers, slots=2, pin=f"{budget} B") as offloaded:
        assert budget * 0.6 <= locked(sim) - before <= budget
        assert offloaded.placement.bytes_host[1] >= weights - budget
        assert torch.equal(model(x.to(DEVICE)).cpu(), expected)


@pytest.mark.usefixtures("way")
def test_closed_while_copies_are_under_way_twice(sim: SimDevice) -> None:
    """What a pending copy reads can't be unregistered; ``way`` sees that nothing is left."""
    for adversary in ADVERSARIES:
        for seed in range(6):
            with sim.steps(seed, adversary):
                case = Case("balanced", 5, 2, warm=False)
                given = case.outputs()
                case.offloaded.close()
                assert sim.pinned().registered == 0
                case.offloaded.close()
            assert same(given, case.expected())


def test_dropped_while_copies_are_under_way(sim: SimDevice, way: str) -> None:
    """The model goes with its offload, and nobody closed it."""
    with sim.steps(3, "copies"):
        model, order = Stack(4), range(4)
        offloaded = runtime.offload(model, slots=2, device=DEVICE)
        model(batches(1)[0].to(DEVICE), order)
        assert (sim.pinned().registered > 0) == (way == "registered")
        del model, offloaded
        gc.collect()
        assert sim.pinned().registered == 0
    torch.accelerator.empty_host_cache()


@pytest.mark.usefixtures("way")
def test_a_weight_kept_by_the_user_outlives_the_offload() -> None:
    """Its memory is no longer locked, and still its own."""
    model = odd(24, 24, 24)
    before = model[1].weight.detach().clone()
    offloaded = runtime.offload(model, slots=2, device=DEVICE)
    kept = model[1].weight.data
    offloaded.close()
    assert torch.equal(kept, before)
    del kept
    torch.accelerator.empty_host_cache()


@pytest.mark.usefixtures("way")
def test_what_fails_half_way_leaves_nothing_locked(sim: SimDevice) -> None:
    before, model = locked(sim), odd(40, 40, 40, 40)
    for stage in ("runtime.offloaded.Interpreter", "runtime.static.Hooks"):
        with patch(stage, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            runtime.offload(model, slots=2, device=DEVICE)
        assert locked(sim) == before


# ---- chunks


@pytest.mark.parametrize(("chunk", "copies"), [(None, 1), ("128KiB", 1), ("64KiB", 3)])
def test_a_long_refill_is_cut(sim: SimDevice, chunk: str | None, copies: int) -> None:
    """A block of 192,512 bytes: more than two chunks of 64 KiB, less than two of 128."""
    model = Wide(1456, 1456, 1456)
    x = model.x
    expected = model(x)
    with runtime.offload(model, model.layers, slots=2, chunk=chunk, device=DEVICE) as offloaded:
        before, x = offloaded.report(), x.to(DEVICE)
        sim.reset_counters()
        for adversary in ADVERSARIES:
            for seed in range(4):
                with sim.steps(seed, adversary):
                    given = model(x)
                assert torch.equal(given.cpu(), expected)
        counters, after = sim.counters(), offloaded.report()
        refills = after.copies - before.copies
        assert refills > 0
        assert counters.copies["host to device"] == copies * refills
        assert counters.bytes["host to device"] == after.bytes_copied - before.bytes_copied


def test_bad_sizes_change_nothing(sim: SimDevice) -> None:
    model = odd(8, 8, 8)
    kept, before = list(model.parameters()), sim.pinned()
    for options in ({"pin": -1}, {"pin": None}, {"chunk": 0}, {"chunk": "8 parsecs"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            runtime.offload(model, slots=2, device=DEVICE, **options)
    assert all(a is b for a, b in zip(model.parameters(), kept, strict=True))
    assert sim.pinned() == before
