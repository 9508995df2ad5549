"""One model from several threads, each with a stream of its own: the next pass waits for the one
before on the device; where modules overlap the second is refused and the first is right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from unittest.mock import patch

import pytest
import torch

import runtime
from runtime.device import AcceleratorStreams
from schedule import OffloadError
from tests.runtime.interrupt import interrupted_at
from tests.runtime.threads import WIDTH, in_thread, paused, slow
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import MORE

CASES = [("chain", 1), ("balanced", 2), ("rotating", 2), ("one_ahead", 2), ("restart", 2)]
X = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))


def on(stream: torch.Stream | None, function: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The function, with that stream current in the thread that it is called in."""
    with stream or nullcontext():
        return function()


def wrong_in_turn(sim: SimDevice, policy: str, slots: int) -> tuple[int, runtime.Report, int]:
    """How many seeds are wrong where five passes follow each other, in this thread and in others,
    while the device is behind; the report, and the copies that the device counted."""
    model = slow(3)
    expected, wrong = model(X), 0
    with runtime.offload(list(model), slots=slots, policy=policy, device=DEVICE) as offloaded:
        x, streams = X.to(DEVICE), [torch.Stream(device=DEVICE) for _ in range(2)]
        torch.accelerator.synchronize()
        sim.reset_counters()
        for adversary in ADVERSARIES:
            for seed in range(4 * MORE):
                with sim.steps(seed, adversary):
                    found = []
                    for stream in (None, *streams, None, streams[0]):
                        run = lambda stream=stream: on(stream, lambda: model(x))  # noqa: E731
                        found.append(in_thread(run) if stream else run())
                    torch.accelerator.synchronize()
                wrong += not all(torch.equal(y.cpu(), expected) for y in found)
        copies = sim.counters().copies["host to device"]
        return wrong, offloaded.report(), copies


@pytest.mark.parametrize(("policy", "slots"), CASES)
def test_threads_in_turn_are_right_under_every_seed(
    sim: SimDevice, policy: str, slots: int
) -> None:
    wrong, report, copies = wrong_in_turn(sim, policy, slots)
    assert (wrong, report.misses) == (0, 0)
    assert copies == report.copies > 100


def test_unless_a_stream_does_not_wait_for_that_of_the_thread_before(sim: SimDevice) -> None:
    """Twin: each thread's stream is on its own."""
    current = torch.accelerator.current_stream
    with patch.object(AcceleratorStreams, "_compute", lambda self: current(self.device)):
        assert wrong_in_turn(sim, "restart", 2)[0] > 0


@pytest.mark.parametrize(("policy", "slots"), CASES)
def test_a_thread_that_comes_while_another_is_in_a_module_is_refused(
    sim: SimDevice, policy: str, slots: int
) -> None:
    model = slow(3)
    expected = model(X)
    with runtime.offload(list(model), slots=slots, policy=policy, device=DEVICE) as offloaded:
        x, side = X.to(DEVICE), torch.Stream(device=DEVICE)
        torch.accelerator.synchronize()
        for seed, adversary in enumerate(ADVERSARIES * 2):
            with sim.steps(seed, adversary):
                for layer in model:
                    with paused(layer, lambda: on(side, lambda: model(x))) as first:
                        before = sim.counters()
                        for other in model:
                            with pytest.raises(OffloadError, match="runs in thread 'first_0'"):
                                other(x)
                        assert sim.counters() == before  # nothing was issued
                    second = model(x)
                    torch.accelerator.synchronize()
                    for y in (first.result(), second):
                        assert torch.equal(y.cpu(), expected), (seed, adversary)
        assert offloaded.report().misses == 0
        assert offloaded.report().copies > 0


def test_a_thread_that_took_the_slots_of_another_would_harm_it(sim: SimDevice) -> None:
    """Twin: it is not refused."""
    model = slow(3)
    expected, wrong = model[0](X), 0
    with runtime.offload(list(model), slots=1, policy="chain", device=DEVICE):
        x, side = X.to(DEVICE), torch.Stream(device=DEVICE)
        torch.accelerator.synchronize()
        for seed, adversary in enumerate(ADVERSARIES * 2):
            with sim.steps(seed, adversary), patch("runtime.calls._modules_on_stack", lambda _: ()):
                with paused(model[0], lambda: on(side, lambda: model[0](x))) as first:
                    model[2](x)
                torch.accelerator.synchronize()
            wrong += not torch.equal(first.result().cpu(), expected)
    assert wrong > 0


def test_the_pass_of_another_thread_after_an_interrupt_at_any_line_is_right(
    sim: SimDevice,
) -> None:
    model = slow(3)
    expected = model(X)
    with runtime.offload(list(model), slots=2, policy="balanced", device=DEVICE) as offloaded:
        x, side = X.to(DEVICE), torch.Stream(device=DEVICE)
        torch.accelerator.synchronize()
        for number in count(1):
            with sim.steps(number, ADVERSARIES[number % 3]):
                where = interrupted_at(number, lambda: model(x))
                given = in_thread(lambda: on(side, lambda: model(x)))
                torch.accelerator.synchronize()
            assert torch.equal(given.cpu(), expected), where
            if where is None:
                break
        assert number > 100
        assert offloaded.report().copies > 0
