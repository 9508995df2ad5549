"""Errors reach Python: at the call where it can be known, else at the host's next wait, once."""

from __future__ import annotations

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, error_of, full, is_all, stream

accelerator = torch.accelerator

WAITS = {
    "the device": lambda: accelerator.synchronize(),
    "a stream": lambda: accelerator.current_stream().synchronize(),
    "an event": lambda: accelerator.current_stream().record_event().synchronize(),
    "a value": lambda: full(1).sum().item(),
}


@pytest.mark.usefixtures("timing")
@pytest.mark.parametrize("wait", WAITS)
def test_a_kernel_that_fails_is_told_at_the_next_wait_once(wait: str) -> None:
    table, indices = torch.ones(3, 2, device=DEVICE), torch.tensor([99]).to(DEVICE)
    torch.nn.functional.embedding(indices, table)
    message = error_of(WAITS[wait])
    assert message.startswith(
        "simdev: an earlier asynchronous operation failed: aten::index_select"
    )
    assert "index out of range" in message
    accelerator.synchronize()
    assert is_all(full(2), 2)  # the device goes on


@pytest.mark.usefixtures("timing")
def test_the_callers_own_error_is_told_at_the_call() -> None:
    with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied \(3x2 and 7x1\)"):
        torch.ones(3, 2, device=DEVICE) @ torch.ones(7, 1, device=DEVICE)


@pytest.mark.usefixtures("timing")
def test_host_tensors_are_not_taken_for_device_tensors() -> None:
    """Weights left behind on the host must not compute the right thing by chance."""
    there, here = full(1), torch.ones(4)
    for call in (
        lambda: there + here,
        lambda: here * there,
        lambda: torch.nn.functional.linear(there, torch.ones(2, 4)),
        lambda: torch.cat([there, here]),
        lambda: there.add_(here),
    ):
        assert "Expected all tensors to be on the same device" in error_of(call)
    assert is_all(there + torch.tensor(2.0), 3)
    assert there[torch.tensor([1, 2])].tolist() == [1, 1]


@pytest.mark.usefixtures("timing")
def test_tensors_of_two_devices_do_not_mix() -> None:
    message = error_of(lambda: full(1) + full(1, device=OTHER))
    assert "same device" in message
    assert "simdev:0" in message
    assert "simdev:1" in message


def test_an_error_leaves_a_context_of_timing_whole(sim: SimDevice) -> None:
    table, indices = torch.ones(3, 2, device=DEVICE), torch.tensor([99]).to(DEVICE)
    with pytest.raises(RuntimeError, match="operation failed"), sim.threads(seed=0):
        torch.nn.functional.embedding(indices, table)
    with sim.held(stream()) as hold:  # steps again: who waits for nothing is told
        assert hold is not None
    assert is_all(full(1), 1)


@pytest.mark.parametrize("call", ["steps", "threads"])
def test_an_unknown_adversary_is_refused(sim: SimDevice, call: str) -> None:
    with pytest.raises(ValueError, match=r"adversary must be one of .*, got 'nobody'"):
        getattr(sim, call)(0, "nobody").__enter__()


@pytest.mark.usefixtures("timing")
def test_a_kernel_may_not_wait_for_the_device() -> None:
    """As a host callback may not call the driver: it would wait for itself."""

    @torch.library.custom_op("simdevice_test::impatient", mutates_args=(), device_types="cpu")
    def impatient(x: torch.Tensor) -> torch.Tensor:
        accelerator.synchronize()
        return x.clone()

    impatient.register_fake(torch.empty_like)
    impatient(full(1))
    assert "a kernel on a queue may not wait for the device" in error_of(accelerator.synchronize)


@pytest.mark.usefixtures("timing")
def test_kernels_written_in_python_run_on_the_queue(sim: SimDevice) -> None:
    @torch.library.custom_op("simdevice_test::double", mutates_args=(), device_types="cpu")
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    a, values = stream(), full(1)
    with sim.held(a) as hold:
        with a:
            result = double(values)
        values.fill_(5)
        accelerator.current_stream().synchronize()
        hold.release()
        a.synchronize()
    assert is_all(result, 10)
