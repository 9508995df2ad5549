"""A graph that is captured of an offloaded model has no hooks, and its replays would read whatever
the slots hold: the capture is refused, in words that say so, and the model goes on.
"""

from __future__ import annotations

import pytest
import torch

import runtime
from schedule import OffloadError
from tests.runtime.models import outputs, stack
from tests.simdevice.ahead import INPUTS, on_device
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, stream
from tests.simdevice.offloads import same


def part(model: torch.nn.Module, rooted: bool) -> torch.nn.Module:
    return model if rooted else model.layers[0]


@pytest.mark.parametrize("rooted", [True, False], ids=["the model", "a layer"])
@pytest.mark.parametrize("policy", ["chain", "double_buffer"])
def test_a_capture_is_refused_and_the_model_goes_on(
    sim: SimDevice, policy: str, rooted: bool
) -> None:
    model = stack(4)
    here = on_device()
    wanted = outputs(stack(4), INPUTS)
    with runtime.offload(model, slots=2, policy=policy, device=DEVICE) as offloaded:
        assert same(outputs(model, here), wanted)
        before = offloaded.report()
        graph = sim.Graph()
        with stream(), torch.no_grad():
            graph.capture_begin()
            with pytest.raises(OffloadError, match=r"captured into a graph, whose replays run no"):
                part(model, rooted)(here[0])
            graph.capture_end()
        assert offloaded.report() == before
        assert same(outputs(model, here), wanted)


def test_else_it_is_the_device_that_refuses(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: at the first wait for a copy from outside, and the capture is lost with it."""
    monkeypatch.setattr("runtime.hooks.refuse_recording", lambda _: None)
    model, here = stack(2).requires_grad_(False), on_device()
    with runtime.offload(model, slots=2, device=DEVICE):
        model(here[0])
        graph = sim.Graph()
        with stream():
            graph.capture_begin()
            with pytest.raises(RuntimeError, match="recorded outside the capture"):
                model.layers[0](here[0])
            with pytest.raises(RuntimeError, match="the capture is invalid"):
                graph.capture_end()
