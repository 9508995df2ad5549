"""What the tests of the simulated accelerator share. They run by themselves: there is one such
device a process, and torch then takes it for the machine's accelerator."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.runtime.poison import poisoned  # noqa: F401, a fixture
from tests.runtime.sanitized import sanitized  # noqa: F401, a fixture
from tests.simdevice.device import NoCompiler, SimDevice, start

torch.set_num_threads(1)  # how work is split changes the rounding


@pytest.fixture(scope="session")
def sim() -> SimDevice:
    """The device; built on first use, and if its sources changed."""
    try:
        return start()
    except NoCompiler as error:
        if os.environ.get("SIMDEVICE_REQUIRED"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _each_test(sim: SimDevice) -> Iterator[None]:
    """No gradients, fresh counters, nothing left over."""
    sim.reset_counters()
    with torch.no_grad():
        yield
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)


@pytest.fixture(params=["steps", "threads"])
def timing(sim: SimDevice, request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs under both."""
    context = sim.steps(seed=1) if request.param == "steps" else sim.threads(1, microseconds=300)
    with context:
        yield request.param
