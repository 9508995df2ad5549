"""Parameters of every dtype, shape and strides, in slots of the simulated accelerator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import runtime
from tests.runtime.models import assert_unchanged, batches, outputs, picture
from tests.runtime.test_runtime_kinds import KINDS, Reader
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE

pytestmark = pytest.mark.usefixtures("sanitized")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("conjugated", "negated")])
def test_every_kind_of_parameter_is_right(sim: SimDevice, kind: str) -> None:
    torch.manual_seed(0)
    make = KINDS[kind]
    layers = [Reader(torch.randn(5), make(), torch.randn(3)) for _ in range(3)]
    wanted = [layer.read() for layer in layers]
    model = nn.Sequential(*layers)
    before = picture(model)
    with runtime.offload(model, slots=1, policy="chain", device=DEVICE) as offloaded:
        here = [x.to(DEVICE) for x in batches(2)]
        sim.reset_counters()
        for seed, adversary in enumerate(ADVERSARIES):
            with sim.steps(seed, adversary):
                outputs(model, here)
        copied = sim.counters().copies["host to device"]
        assert copied == offloaded.report().copies == 6 * len(ADVERSARIES)
    assert [layer.seen for layer in layers] == [[one] * 2 * len(ADVERSARIES) for one in wanted]
    assert_unchanged(model, before)
