"""The runtime's one accelerator path, on the simulated accelerator: bit-identical under every
seed, and wrong under some as soon as one of its fences is missing."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import runtime
import runtime.device
from runtime.device import AcceleratorStreams, Action
from schedule import policies
from schedule.operations import COMPUTE, COPY, Record, Wait
from tests.simdevice.device import ADVERSARIES, SimDevice, start
from tests.simdevice.helpers import DEVICE, OTHER

WIDTH, PASSES = 16, 2
RINGS = ((3, 2), (4, 3), (5, 2), (7, 3))
SAFE = tuple(name for name in policies.NAMED if name != "modular")
MORE = int(os.environ.get("SIMDEVICE_SEEDS", "1"))
SEEDS = {"random": 80 * MORE, "compute": 10 * MORE, "copies": 10 * MORE}
"""By adversary; the two extreme ones leave little to the seed."""


class Stack(nn.Module):
    """N layers that each change what the next one sees, and a head that stays on the device."""

    def __init__(self, modules: int) -> None:
        super().__init__()
        torch.manual_seed(modules)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(modules))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(2, WIDTH, generator=generator) for _ in range(PASSES)]


class Case:
    """One model, offloaded, and what it must give."""

    def __init__(self, policy: str, modules: int, slots: int, device: str = DEVICE) -> None:
        self.name = (policy, modules, slots)
        model = Stack(modules)
        with torch.no_grad():
            self.expected = [model(x) for x in batches()]
        self.model = copy.deepcopy(model)
        self.offloaded = runtime.offload(self.model, slots=slots, policy=policy, device=device)
        self.inputs = [x.to(device) for x in batches()]

    def right(self, sim: SimDevice, seed: int, adversary: str) -> bool:
        """Whether all passes are bit-identical under this seed; the host waits at the end only."""
        with torch.no_grad(), sim.steps(seed, adversary):
            outputs = [self.model(x) for x in self.inputs]
        return all(
            torch.equal(output.cpu(), expected)
            for output, expected in zip(outputs, self.expected, strict=True)
        )

    def replay(self, seed: int, adversary: str) -> str:
        """The line that runs this seed alone."""
        call = f"replay{(*self.name, seed, adversary)}"
        start_ = "from tests.simdevice.test_simdevice_runtime import replay"
        return f'python -c "{start_}; print({call})"'


def replay(policy: str, modules: int, slots: int, seed: int, adversary: str) -> bool:
    """Whether this seed is right; in a process of its own, as a failing test prints it."""
    torch.set_num_threads(1)
    sim = start()
    case = Case(policy, modules, slots)
    with case.offloaded:
        return case.right(sim, seed, adversary)


@pytest.mark.parametrize(("modules", "slots"), RINGS)
@pytest.mark.parametrize("policy", SAFE)
def test_every_seed_is_bit_identical(sim: SimDevice, policy: str, modules: int, slots: int) -> None:
    case = Case(policy, modules, slots)
    with case.offloaded as offloaded:
        for adversary, seeds in SEEDS.items():
            for seed in range(seeds):
                assert case.right(sim, seed, adversary), case.replay(seed, adversary)
        report = offloaded.report()
    assert report.device == DEVICE
    assert report.misses == 0
    assert report.runs == sum(SEEDS.values()) * PASSES * modules
    assert report.copies == sum(SEEDS.values()) * PASSES * offloaded.schedule.copies > 0
    assert report.bytes_device < report.bytes_whole


def test_the_copies_are_the_reports_and_the_slots_are_small(sim: SimDevice) -> None:
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    case = Case("balanced", 7, 3)
    with case.offloaded as offloaded:
        torch.accelerator.synchronize()
        report = offloaded.report()
        inputs = sum(x.nbytes for x in case.inputs)
        used = torch.accelerator.memory_allocated() - before - inputs
        assert used == report.bytes_device
        sim.reset_counters()
        assert case.right(sim, 0, "random")
        counters = sim.counters()
        copied = offloaded.report()
        assert counters.copies["host to device"] == copied.copies - report.copies
        assert counters.bytes["host to device"] == copied.bytes_copied - report.bytes_copied
        assert counters.waits == 0
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() - before == inputs


def test_real_threads_too(sim: SimDevice) -> None:
    case = Case("double_buffer", 5, 2)
    with case.offloaded, torch.no_grad():
        for adversary in ADVERSARIES:
            for seed in range(3):
                with sim.threads(seed, adversary, microseconds=500):
                    outputs = [case.model(x) for x in case.inputs]
                    for output, expected in zip(outputs, case.expected, strict=True):
                        assert torch.equal(output.cpu(), expected)


def test_the_other_device(sim: SimDevice) -> None:
    case = Case("balanced", 5, 2, OTHER)
    with case.offloaded as offloaded, torch.accelerator.device_index(1):
        assert offloaded.report().device == OTHER
        for adversary in ADVERSARIES:
            for seed in range(10):
                assert case.right(sim, seed, adversary)


def test_where_data_cannot_be_set_across_devices(sim: SimDevice) -> None:
    with sim.no_shallow_copies():
        case = Case("balanced", 5, 2)
        assert case.model.head.weight.device == torch.device(DEVICE)
        with case.offloaded:
            assert case.right(sim, 0, "random")
        assert case.model.head.weight.device == torch.device("cpu")


def test_when_pinned_memory_runs_out_nothing_is_changed(sim: SimDevice) -> None:
    torch.accelerator.empty_host_cache()
    model, x = Stack(5), batches()[0]
    expected, kept = model(x), list(model.parameters())
    two_modules = sim.pinned().reserved + 2 * 2048
    with (
        sim.pinned_fails_at(two_modules),
        pytest.raises(RuntimeError, match="out of pinned memory"),
    ):
        runtime.offload(model, slots=2, policy="balanced", device=DEVICE)
    assert all(a is b for a, b in zip(model.parameters(), kept, strict=True))
    assert torch.equal(model(x), expected)
    case = Case("balanced", 5, 2)
    with case.offloaded:
        assert case.right(sim, 0, "random")


# ---- the fences

FENCES: dict[str, Callable[[Record | Wait], bool]] = {
    "record of what ran": lambda op: isinstance(op, Record) and op.stream == COMPUTE,
    "wait for what ran": lambda op: isinstance(op, Wait) and op.stream == COPY,
    "record of what landed": lambda op: isinstance(op, Record) and op.stream == COPY,
    "wait for what landed": lambda op: isinstance(op, Wait) and op.stream == COMPUTE,
}


@contextmanager
def without(monkeypatch: pytest.MonkeyPatch, fence: str) -> Iterator[None]:
    """Programs that are bound in this context lack the fence."""
    whole = AcceleratorStreams.fence

    def broken(self: AcceleratorStreams, operation: Record | Wait) -> Action:
        if FENCES[fence](operation):
            return lambda: None
        return whole(self, operation)

    with monkeypatch.context() as patch:
        patch.setattr(AcceleratorStreams, "fence", broken)
        yield


@pytest.mark.parametrize("policy", SAFE)
@pytest.mark.parametrize("fence", FENCES)
def test_a_missing_fence_shows(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, fence: str, policy: str
) -> None:
    with without(monkeypatch, fence):
        case = Case(policy, 5, 3)
    with case.offloaded:
        for adversary in ("compute" if "ran" in fence else "copies", "random"):
            assert not all(case.right(sim, seed, adversary) for seed in range(20)), adversary


def test_a_copy_on_the_wrong_stream_shows(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAW: the program has one copy stream, and relies on it for copies into one slot. With a new
    stream for each copy that order is gone."""

    def scattered(
        self: AcceleratorStreams, _: str, target: torch.Tensor, source: torch.Tensor
    ) -> Action:
        def copy_() -> None:
            other = torch.Stream(device=self.device)
            other.wait_event(self._copy_streams[COPY].record_event())
            with other:
                target.copy_(source, non_blocking=True)

        return copy_

    with monkeypatch.context() as patch:
        patch.setattr(AcceleratorStreams, "copy", scattered)
        case = Case("chain", 5, 3)
    with case.offloaded:
        assert not all(case.right(sim, seed, "copies") for seed in range(4))
    torch.accelerator.synchronize()
