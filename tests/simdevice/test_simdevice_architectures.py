"""Models of transformers and diffusers, offloaded to the simulated device: bit for bit the plain
ones, with the copies and the memory that the schedule says; and no tensor beside the layers may
stay behind on the host.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import runtime
from runtime.select import tensors_that_stay
from runtime.unverified import offload_without_proof
from schedule import OffloadError, Ring
from tests.runtime.architectures import ARCHITECTURES, forward, fresh, layers_of, to_offload
from tests.runtime.models import block_bytes, fails
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import same

pytestmark = pytest.mark.usefixtures("sanitized")

LEFT_BEHIND = ["Llama", "T5", "Mixtral", "UNet", "Flux"]
TO_DEVICE = "host to device"


@pytest.fixture(autouse=True)
def _plain_attention() -> Iterator[None]:
    """Foreign devices have no fused attention; the CPU has one, which rounds differently."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def expected(name: str) -> tuple[Any, list[torch.Tensor]]:
    """A model to offload, and what the plain one gives."""
    model = fresh(name)
    if any("experts" in key for key in ARCHITECTURES[name].sizes):
        model.set_experts_implementation("eager")  # the grouped one has no kernel here
    return model, forward(name, model)


def copies_of_the_plain_model(sim: SimDevice, name: str) -> int:
    """To the device, in a forward there: its inputs, and what some models make on the host."""
    there, wanted = expected(name)
    there.to(DEVICE)
    sim.reset_counters()
    assert same(forward(name, there, DEVICE), wanted)
    copies = sim.counters().copies[TO_DEVICE]
    assert copies >= len(ARCHITECTURES[name].inputs)
    return copies


def allocated() -> int:
    gc.collect()  # a model may be a cycle
    torch.accelerator.synchronize()
    return torch.accelerator.memory_allocated()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_outputs_copies_and_memory(sim: SimDevice, name: str) -> None:
    model, wanted = expected(name)
    sizes = [block_bytes(layer) for layer in layers_of(name, model)]
    weights = sum(p.nbytes for layer in layers_of(name, model) for p in layer.parameters())
    whole = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    others = copies_of_the_plain_model(sim, name)
    gc.collect()  # what other tests left goes now
    before = allocated()
    with runtime.offload(model, to_offload(name, model), slots=2, device=DEVICE) as offloaded:
        schedule = offloaded.schedule
        slots = [
            max(size for size, at in zip(sizes, schedule.slot_of, strict=True) if at == slot)
            for slot in range(2)
        ]
        assert allocated() - before == sum(slots) + whole - weights < whole
        for adversary in ADVERSARIES:
            sim.reset_counters()
            with sim.steps(1, adversary):
                assert same(forward(name, model, DEVICE), wanted)
            assert sim.counters().copies[TO_DEVICE] == others + schedule.copies > others
        assert offloaded.report().misses == 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_under_the_old_rule_they_differ(sim: SimDevice, name: str) -> None:
    """Twin."""
    model, wanted = expected(name)
    modules = len(layers_of(name, model))
    with (
        offload_without_proof(
            model,
            to_offload(name, model),
            slots=next(slots for slots in (2, 3) if fails(Ring(modules, slots))),
            policy="modular",
            output_may_be_wrong=True,
            device=DEVICE,
        ),
        sim.steps(1),
    ):
        assert not same(forward(name, model, DEVICE), wanted)


MOVED_BY_THE_MODEL = ("inv_freq", "original_inv_freq")


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_whatever_is_left_behind_on_the_host_fails(name: str) -> None:
    """Each tensor beside the layers, embeddings among them, one after the other."""
    model, wanted = expected(name)
    with runtime.offload(model, to_offload(name, model), slots=2, device=DEVICE) as offloaded:
        places = [place[:2] for place in tensors_that_stay(offloaded.selection)]
        tried = 0
        for tensor in {id(tensors[key]): tensors[key] for tensors, key in places}.values():
            hangs = [(tensors, key) for tensors, key in places if tensors[key] is tensor]
            if hangs[0][1] in MOVED_BY_THE_MODEL:
                continue
            for tensors, key in hangs:
                tensors[key] = tensor.cpu()
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                forward(name, model, DEVICE)
            for tensors, key in hangs:
                tensors[key] = tensor
            tried += 1
        assert tried >= 3
        assert same(forward(name, model, DEVICE), wanted)


def test_a_device_map_over_host_and_device() -> None:
    """Is refused; without its hooks the model is offloaded."""
    accelerate = pytest.importorskip("accelerate")
    model, wanted = expected("Llama")
    places = dict.fromkeys(["model.embed_tokens", "model.norm", "model.rotary_emb"], DEVICE)
    places |= {"lm_head": "cpu", **{f"model.layers.{at}": "cpu" for at in range(4)}}
    accelerate.dispatch_model(model, places)
    message = rf"a device_map over cpu, {DEVICE}\), which .*\.remove_hook_from_submodules\(model\)"
    with pytest.raises(OffloadError, match=message):
        runtime.offload(model, slots=2)
    accelerate.hooks.remove_hook_from_submodules(model)
    with runtime.offload(model, slots=2):
        assert same(forward("Llama", model, DEVICE), wanted)
