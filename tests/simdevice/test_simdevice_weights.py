"""Every kind of weight on the simulated device: bit for bit the plain model's under every seed,
with the copies and the bytes that their layouts make, by the device's own counters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import runtime
from runtime import unverified
from runtime.layout import LARGE_BUFFER
from schedule.errors import OffloadError
from tests.runtime.models import WIDTH, Stack, as_bytes, block_of, outputs
from tests.runtime.poison import Poisoned
from tests.runtime.weights import Counting, Quantised, Scaled, Tables, inner_tensors, made
from tests.simdevice.ahead import INPUTS, allocated, on_device, seeds
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import same

pytestmark = pytest.mark.usefixtures("sanitized")

KINDS = [Quantised, Tables]
TO_DEVICE = "host to device"


@pytest.fixture
def here(sim: SimDevice) -> list[torch.Tensor]:
    """The inputs."""
    del sim
    return on_device()


def in_slot(layer: nn.Module) -> int:
    """Bytes that the layer takes in a slot; what is last there leaves room for the number."""
    tensors = [one for one in inner_tensors(layer) if one is not getattr(layer, "small", None)]
    return block_of(one.nbytes for one in tensors)


def rest_of(model: Stack) -> int:
    """Bytes beside the layers, and of the layers' small buffers."""
    parts = [model.embed, model.head]
    small = [layer.small for layer in model.layers if hasattr(layer, "small")]
    return sum(t.nbytes for t in [*(p for m in parts for p in m.parameters()), model.scale, *small])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("policy", "slots"), [("chain", 1), ("chain", 2), ("rotating", 2)])
def test_under_every_seed_they_are_right(
    sim: SimDevice, here: list[torch.Tensor], kind: type[nn.Module], policy: str, slots: int
) -> None:
    model = made(kind)
    wanted, size, before = outputs(model, INPUTS), in_slot(model.layers[0]), allocated()
    with runtime.offload(model, slots=slots, policy=policy, device=DEVICE) as offloaded:
        assert allocated() - before == slots * size + rest_of(model)
        copies = offloaded.schedule.copies // offloaded.schedule.period * len(INPUTS)
        for seed, adversary in seeds():
            sim.reset_counters()
            with sim.steps(seed, adversary):
                given = outputs(model, here)
            counters = sim.counters()
            assert same(given, wanted), (seed, adversary)
            assert counters.copies[TO_DEVICE] == copies > 0
            assert counters.bytes[TO_DEVICE] == copies * size
    del given
    assert allocated() == before


@pytest.mark.parametrize("kind", KINDS)
def test_with_slots_poisoned_on_release_they_are_right(
    sim: SimDevice, here: list[torch.Tensor], kind: type[nn.Module], poisoned: Poisoned
) -> None:
    """The rule for every test here: 0xFF behind a run, and before each copy."""
    model = made(kind)
    wanted = outputs(model, INPUTS)
    with runtime.offload(model, slots=2, policy="chain", device=DEVICE) as offloaded:
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                given = outputs(model, here)
            assert same(given, wanted), (seed, adversary)
        report = offloaded.report()
    assert poisoned.copies == report.preloaded + report.copies
    runs = [at for at, after in enumerate(offloaded.schedule.after) if after]
    assert poisoned.released == report.runs // len(model.layers) * runs


@pytest.mark.parametrize("kind", KINDS)
def test_under_the_old_rule_they_are_wrong(
    sim: SimDevice, here: list[torch.Tensor], kind: type[nn.Module]
) -> None:
    """Twin."""
    model = made(kind)
    wanted = outputs(model, INPUTS)
    with (
        unverified.offload_without_proof(
            model, slots=2, policy="modular", output_may_be_wrong=True, device=DEVICE
        ),
        sim.steps(1),
    ):
        given = outputs(model, here)
    assert not same(given, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_what_they_are_made_of_is_in_the_slot_in_a_run_and_on_the_host_outside(
    here: list[torch.Tensor], kind: type[nn.Module]
) -> None:
    model, seen = made(kind), []
    for layer in model.layers:
        layer.register_forward_hook(
            lambda layer, *_: seen.append([t.device.type for t in inner_tensors(layer)])
        )
    with runtime.offload(model, slots=1, device=DEVICE):
        outputs(model, here)
        assert len(seen) == 6
        assert {one for layer in seen for one in layer} == {"simdev"}
        for layer in model.layers:
            small = getattr(layer, "small", None)
            assert all((t.device.type == "cpu") != (t is small) for t in inner_tensors(layer))


def test_a_write_into_a_quantised_weight_is_seen(sim: SimDevice, here: list[torch.Tensor]) -> None:
    model, twin = made(Quantised), made(Quantised)
    with runtime.offload(model, slots=2, policy="chain", device=DEVICE):
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                before = outputs(model, here)
                torch.accelerator.synchronize()
                for one in model, twin:
                    one.layers[seed % 3].up.weight.mul_(-1)
                given = outputs(model, here)
            assert same(given, outputs(twin, INPUTS)), (seed, adversary)
            assert not torch.equal(given[0].cpu(), before[0].cpu())


# ---- buffers that a run writes


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("policy", "slots"), [("chain", 1), ("chain", 2), ("double_buffer", 3)])
def test_a_buffer_written_or_replaced_in_a_run_keeps_its_new_value(
    sim: SimDevice, here: list[torch.Tensor], replace: bool, policy: str, slots: int
) -> None:
    """What a run wrote is copied back to the host, and up again before the next run."""
    torch.manual_seed(0)
    model, rounds = Stack([Counting(replace) for _ in range(4)]).eval(), 0
    twin = copy.deepcopy(model)
    size, before = in_slot(model.layers[0]), allocated()
    with runtime.offload(model, slots=slots, policy=policy, device=DEVICE) as offloaded:
        assert allocated() - before == slots * size + rest_of(model)
        assert same(outputs(model, here), outputs(twin, INPUTS))  # the first ones were preloaded
        rounds += len(here)
        for seed, adversary in seeds():
            sim.reset_counters()
            with sim.steps(seed, adversary):
                given = outputs(model, here)
            rounds, counters = rounds + len(here), sim.counters()
            assert same(given, outputs(twin, INPUTS)), (seed, adversary)
            # After each run all of the layer's tensors.
            back = len(here) * sum(t.nbytes for t in inner_tensors(model.layers))
            assert counters.bytes["device to host"] == back
            assert counters.bytes[TO_DEVICE] == size * counters.copies[TO_DEVICE]
            assert counters.copies[TO_DEVICE] == len(here) * len(model.layers)
            values = [as_bytes(buffer) for buffer in model.buffers()]
            assert values == [as_bytes(buffer.cpu()) for buffer in twin.buffers()]
        assert [layer.runs.item() for layer in model.layers] == [rounds] * 4
        assert offloaded.report().copies > 0
    assert values == [as_bytes(buffer) for buffer in model.buffers()]


@pytest.mark.parametrize("replace", [False, True])
def test_without_keeping_it_the_new_value_is_lost(
    sim: SimDevice, here: list[torch.Tensor], replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.arena.Arena.keep_writes", lambda *_: None)
    torch.manual_seed(0)
    model = Stack([Counting(replace) for _ in range(4)]).eval()
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=2, policy="chain", device=DEVICE), sim.steps(1):
        if replace:
            with pytest.raises(OffloadError, match="runs was replaced"):
                outputs(model, here)
        else:
            assert not same(outputs(model, here), outputs(twin, INPUTS))


# ---- in the rest of the model


class Ends(Stack):
    """With an output layer of that kind, which stays on the device."""

    def __init__(self, parameter: bool) -> None:
        torch.manual_seed(0)
        super().__init__(Quantised() for _ in range(3))
        weight = Scaled.of(self.head.weight.detach())
        del self.head.weight
        if parameter:
            self.head.weight = nn.Parameter(weight, requires_grad=False)
        else:
            self.head.register_buffer("weight", weight)


@pytest.mark.parametrize("shallow", [True, False])
@pytest.mark.parametrize("parameter", [True, False])
def test_a_subclass_beside_the_layers_moves_to_the_device_and_back(
    sim: SimDevice, here: list[torch.Tensor], parameter: bool, shallow: bool
) -> None:
    model = Ends(parameter).eval()
    wanted, own, before = outputs(model, INPUTS), model.head.weight, allocated()
    value = as_bytes(own.data_), as_bytes(own.scale)
    with (
        nullcontext() if shallow else sim.no_shallow_copies(),
        runtime.offload(model, slots=1, device=DEVICE),
    ):
        now = model.head.weight
        assert now is own
        assert [t.device.type for t in (now, now.data_, now.scale)] == ["simdev"] * 3
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                given = outputs(model, here)
            assert same(given, wanted), (seed, adversary)
    assert model.head.weight is own
    assert [t.device.type for t in (own, own.data_, own.scale)] == ["cpu"] * 3
    assert (as_bytes(own.data_), as_bytes(own.scale)) == value
    assert isinstance(own, nn.Parameter) == parameter
    assert same(outputs(model, INPUTS), wanted)
    del given
    assert allocated() == before


def test_left_on_the_host_it_fails(here: list[torch.Tensor]) -> None:
    """Twin: the output layer is read on the device."""
    model = Ends(True).eval()
    left: Callable[[torch.Tensor], nn.Parameter] = lambda one: nn.Parameter(one, False)  # noqa: E731
    with runtime.offload(model, slots=1, device=DEVICE):
        model.head.weight = left(Scaled(model.head.weight.data_.cpu(), model.head.weight.scale))
        with pytest.raises(RuntimeError, match="same device"):
            outputs(model, here)


def test_a_large_table_is_what_passes_through(sim: SimDevice, here: list[torch.Tensor]) -> None:
    """And the small buffer is not copied with it."""
    model = made(Tables)
    assert model.layers[0].large.nbytes > LARGE_BUFFER > model.layers[0].small.nbytes
    with runtime.offload(model, slots=1, device=DEVICE):
        small = [layer.small.data_ptr() for layer in model.layers]
        assert {layer.small.device.type for layer in model.layers} == {"simdev"}
        sim.reset_counters()
        outputs(model, here)
        assert sim.counters().bytes[TO_DEVICE] > 2 * 3 * LARGE_BUFFER
        assert [layer.small.data_ptr() for layer in model.layers] == small
        assert len(small) == 3
        assert model.layers[0].small.numel() == WIDTH
