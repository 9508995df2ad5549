"""Layers that are found are taken in the order of the first pass, while the host runs ahead."""

from __future__ import annotations

import pytest

import runtime
from tests.runtime.models import copies_in, outputs
from tests.runtime.test_runtime_reordered import NAMES, backwards
from tests.simdevice.ahead import INPUTS, on_device
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import same


@pytest.mark.parametrize("policy", ["chain", "double_buffer", "rotating", "restart"])
def test_every_seed_is_right_before_and_after(sim: SimDevice, policy: str) -> None:
    here, wanted = on_device(), outputs(backwards(), INPUTS)
    for seed, adversary in enumerate(ADVERSARIES):
        model = backwards()
        with runtime.offload(model, slots=2, policy=policy, device=DEVICE) as offloaded:
            with sim.steps(seed, adversary):
                assert same(outputs(model, here), wanted)
            assert offloaded.selection.names == NAMES
            missed = offloaded.report().misses
            sim.reset_counters()
            with sim.steps(seed, adversary):
                assert same(outputs(model, here), wanted)
            assert offloaded.report().misses == missed > 0
            copies = copies_in(offloaded.schedule, len(INPUTS))
            assert sim.counters().copies["host to device"] == copies
        assert same(outputs(model, INPUTS), wanted)
