"""Public reports of what is copied ahead, of replays, several devices and adapters, each right
as it is here and wrong with the fault that is reported."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import runtime
from schedule.errors import OffloadError
from schedule.operations import COPY
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, error_of, full, is_all, pinned, stream
from tests.simdevice.offloads import WIDTH, Case, Stack, batches, same

# ---- what is copied ahead


def ahead(sim: SimDevice, policy: str) -> list[bool]:
    """By pass, whether module 2 has landed in slot 0 while module 1 can't run."""
    case, found = Case(policy, 4, 2), []
    weight = case.plain.layers[2].weight.detach().flatten()[:4]
    ran, side, seen = torch.Event(device=DEVICE), stream(), pinned(0)
    first = case.offloaded.arena.layouts[2].items[0].regions[0].offset

    def before_module_1(*_: object) -> None:
        torch.accelerator.current_stream().record_event(ran)
        ran.synchronize()
        with sim.held(torch.accelerator.current_stream()):
            case.offloaded.streams._copy_streams[COPY].synchronize()
            with side:
                seen.copy_(case.offloaded.arena.slots[0][first:].view(torch.float32)[:4])
            side.synchronize()
        found.append(torch.equal(seen, weight))

    case.model.layers[1].register_forward_pre_hook(before_module_1)
    with case.offloaded:
        assert same(case.outputs(), case.expected())
    return found


def test_the_prefetch_does_not_prefetch(sim: SimDevice) -> None:
    """verl #6317, torchtitan #2749, pytorch #178862, #106030: the setting was dropped, and copies
    came when they were needed. Here the next one lands while the compute stream is held."""
    assert ahead(sim, "chain") == [True, True]
    assert ahead(sim, "on_demand") == [False, False]


# ---- replays


def replayed(sim: SimDevice, fresh: bool) -> float:
    """Capture a reader of a slot; bring other weights, in place or as a fresh tensor; replay."""
    side, graph, out = stream(), sim.Graph(), full(0)
    weights = full(1)
    with side, graph:
        out.copy_(weights + 0)
    source = pinned(2)
    captured = weights
    if fresh:
        weights = source.to(DEVICE)  # what a hook would bind, were there one in a replay
    else:
        weights.copy_(source)
    graph.replay()
    assert is_all(weights, 2)
    assert is_all(captured, 1 if fresh else 2)
    return out[0].item()


def test_a_replay_runs_no_hook_and_reads_the_old_addresses(sim: SimDevice) -> None:
    """sglang #23664: weights were brought into fresh tensors by a Python hook, which no replay
    calls. Slots stay where they are: what is copied into them is what a replay reads."""
    assert replayed(sim, fresh=False) == 2
    assert replayed(sim, fresh=True) == 1


# ---- several devices, and what a copy does on its way


def test_slots_are_on_the_first_devices_alone(sim: SimDevice) -> None:
    """llama.cpp #28414: staging buffers for splits of two devices were all on the first one. An
    offload has one device: layers that were on another one run there too, and go back."""
    del sim
    model, order = Stack(4), range(4)
    expected = [model(x, order) for x in batches(2)]
    model.layers[2].to(OTHER)
    model.layers[3].to(OTHER)
    model.layers[0].to(DEVICE)
    with pytest.raises(RuntimeError, match="device"):
        model(batches(1)[0].to(DEVICE), order)  # twin: as it is, it runs on neither
    places = [layer.weight.device for layer in model.layers]
    with runtime.offload(model, slots=2, device=DEVICE) as offloaded:
        assert {slot.device for slot in offloaded.arena.slots} == {torch.device(DEVICE)}
        assert same([model(x.to(DEVICE), order) for x in batches(2)], expected)
    assert [layer.weight.device for layer in model.layers] == places
    assert [str(place) for place in places] == [DEVICE, "cpu", OTHER, OTHER]


@pytest.mark.unpoisoned  # poison is a kernel
def test_weights_are_converted_on_each_copy(sim: SimDevice) -> None:
    """vllm-ascend #13950, #15415: the host's copy was in another layout than the kernels', and each
    refill converted it, which no capture can record. A refill is one copy of bytes: no kernel, no
    copy on the device, whatever the strides."""
    model, order = Stack(3), range(3)
    for layer in model.layers:
        layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
    x = batches(1)[0]
    expected, strides = model(x, order), model.layers[0].weight.stride()
    assert strides == (1, WIDTH)
    with runtime.offload(model, slots=1, policy="chain", device=DEVICE) as offloaded:
        x = x.to(DEVICE)
        model(x, order)
        before = offloaded.report().copies
        interpreter = offloaded._interpreter
        sim.reset_counters()
        for _ in range(4):
            interpreter.issue(interpreter.preload)
        torch.accelerator.synchronize()
        counters = sim.counters()
        assert counters.copies == {"host to device": 4}
        assert counters.kernels == 0
        offloaded.refresh()
        assert same([model(x, order)], [expected])
        assert offloaded.report().copies > before
    sim.reset_counters()  # twin: to another layout and type it takes three copies
    torch.ones(16, 16, dtype=torch.float64).t().contiguous().t().to(DEVICE).float().contiguous()
    torch.accelerator.synchronize()
    assert sim.counters().copies == {"host to device": 1, "on devices": 2}


class Adapted(nn.Linear):
    """A layer that an adapter may be put on."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.adapter: nn.Linear | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return torch.tanh(y if self.adapter is None else y + self.adapter(x))


def adapt(model: nn.Sequential) -> None:
    """As libraries do it: on the device of the weight beside it."""
    for number, layer in enumerate(model):
        torch.manual_seed(number)
        layer.adapter = nn.Linear(WIDTH, WIDTH, device=layer.weight.device)


def test_adapters_are_created_on_the_host(sim: SimDevice) -> None:
    """vLLM #11748, #15843: adapters were made on the device of the offloaded base weight, which is
    the host, and stayed there. Here refresh() offloads them with it, and they run beside it."""
    x = batches(1)[0]
    model, plain = (nn.Sequential(*(Adapted() for _ in range(3))) for _ in range(2))
    plain.load_state_dict(model.state_dict())
    base = plain(x)
    adapt(plain)
    expected = plain(x)
    assert not torch.equal(expected, base)
    with torch.no_grad(), runtime.offload(model, list(model), slots=1, device=DEVICE) as offloaded:
        assert torch.equal(model(x.to(DEVICE)).cpu(), base)
        before = offloaded.report().bytes_offloaded
        adapt(model)
        assert {p.device.type for p in model.parameters()} == {"cpu"}
        with pytest.raises(OffloadError, match=r"0\.adapter\.\w+ was added"):
            model(x.to(DEVICE))
        offloaded.refresh()
        assert offloaded.report().bytes_offloaded == 2 * before
        for seed in range(4):
            with sim.steps(seed, "copies"):
                given = model(x.to(DEVICE))
            assert torch.equal(given.cpu(), expected)
    model.to(DEVICE)
    model[1].adapter.cpu()
    assert "device" in error_of(lambda: model(x.to(DEVICE)))  # twin: one that stayed there
