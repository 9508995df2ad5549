"""Models whose weights something else moves, casts, shards or copies are refused by name. Nothing
is changed then; and what the error says to do is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.refuse import MOVES
from runtime.unverified import offload_without_proof
from schedule import OffloadError
from tests.runtime.architectures import built, forward, fresh, to_offload
from tests.runtime.models import Block, Stack, after_run, batches, hook_count, outputs, same, stack

accelerate = pytest.importorskip("accelerate")
diffusers = pytest.importorskip("diffusers")
N = 3


def state(model: nn.Module) -> list[object]:
    """What refusing leaves as it is, also where there are no values."""
    return [
        (name, type(module), hook_count(module), *map(id, module.__dict__.values()))
        for name, module in model.named_modules()
    ] + [(id(p), p.device, p.dtype, p._version) for p in model.parameters()]


def refused(model: nn.Module, message: str, **options: Any) -> None:
    before = state(model)
    with pytest.raises(OffloadError, match=message):
        runtime.offload(model, slots=2, **options)
    assert state(model) == before


def right(model: nn.Module) -> None:
    """It can be offloaded, and gives what the plain model gives."""
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), outputs(stack(N), batches(2)))
        report = offloaded.report()
    assert (report.modules, report.misses) == (N, 0)
    assert report.copies == 2 * offloaded.schedule.copies > 0


# ---- accelerate


def sequential(model: Any) -> None:
    accelerate.cpu_offload(model, execution_device="cpu")


def whole(model: Any) -> None:
    accelerate.cpu_offload_with_hook(model, execution_device="cpu")


def one_layer(model: Any) -> None:
    hook = accelerate.hooks.AlignDevicesHook(execution_device="cpu")
    accelerate.hooks.add_hook_to_module(model.layers[1], hook)


HOOKED: dict[str, tuple[Callable[[Any], None], str]] = {
    "cpu_offload": (sequential, "^the model, a Stack, carries accelerate's AlignDevicesHook, "),
    "cpu_offload_with_hook": (whole, "^the model, a Stack, carries accelerate's CpuOffload, "),
    "one layer": (one_layer, r"^layers\.1, a Block, carries accelerate's AlignDevicesHook, which "),
}
UNDO = r"first call accelerate\.hooks\.remove_hook_from_submodules\(model\)"


@pytest.mark.parametrize("name", HOOKED)
def test_accelerate_hooks(name: str) -> None:
    wrap, message = HOOKED[name]
    model = stack(N)
    wrap(model)
    refused(model, f"{message}.*{UNDO}")
    accelerate.hooks.remove_hook_from_submodules(model)
    right(model)


def test_a_transformers_device_map_with_weights_on_disk(tmp_path: Path) -> None:
    """When its hooks are removed these have no values; others are tried on the simulated device."""
    plain = built("Llama")
    plain.save_pretrained(tmp_path / "model")
    parts = ["model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"]
    places = dict.fromkeys(parts, "cpu")
    places |= {f"model.layers.{at}": ("cpu", "disk")[at % 2] for at in range(4)}
    model = type(plain).from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=tmp_path / "disk"
    )
    refused(
        model,
        r"^the model, a LlamaForCausalLM, carries accelerate's AlignDevicesHook "
        r"\(a device_map over cpu, disk\), and some weights are on disk; load the model again",
    )
    accelerate.hooks.remove_hook_from_submodules(model)
    refused(model, "is on the meta device and has no values; load its checkpoint")


@pytest.mark.parametrize("enable", ["enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_a_part_of_a_pipeline(enable: str) -> None:
    unet = fresh("UNet")
    pipeline = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler())
    getattr(pipeline, enable)(device="cpu")
    refused(unet, r"^the model, a UNet2DCondition.* or of a pipeline remove_all_hooks\(\)$")
    pipeline.remove_all_hooks()
    with runtime.offload(unet, to_offload("UNet", unet), slots=3):
        assert same(forward("UNet", unet), forward("UNet", built("UNet")))


def test_accelerate_casting() -> None:
    model = stack(N)
    attach = accelerate.big_modeling.attach_layerwise_casting_hooks
    attach(model, torch.float16, torch.float32)
    cast = "LayerwiseCastingHook, which changes its weights' type; load the model again without it$"
    refused(model, f"^embed, a Linear, carries accelerate's {cast}")


# ---- diffusers


GROUPS: dict[str, dict[str, Any]] = {
    "of blocks": {"offload_type": "block_level", "num_blocks_per_group": 1},
    "of leaves": {"offload_type": "leaf_level"},
}


@pytest.mark.parametrize("groups", GROUPS)
def test_diffusers_group_offloading(groups: str) -> None:
    model = stack(N)
    diffusers.hooks.apply_group_offloading(model, torch.device("cpu"), **GROUPS[groups])
    refused(model, "^the model, a Stack, carries diffusers' group offloading, .*" + re.escape(
        f"for each name of {MOVES} first call "
        "diffusers.hooks.HookRegistry.check_if_exists_or_initialize(model).remove_hook(name)"
    ))  # fmt: skip
    for name in MOVES:
        diffusers.hooks.HookRegistry.check_if_exists_or_initialize(model).remove_hook(name)
    right(model)


def test_group_offloading_to_disk_leaves_no_weights_to_go_back_to(tmp_path: Path) -> None:
    model = stack(N)
    diffusers.hooks.apply_group_offloading(
        model, torch.device("cpu"), offload_to_disk_path=str(tmp_path), **GROUPS["of leaves"]
    )
    refused(model, "group offloading, and its weights are on disk; load the model again")


def test_diffusers_casting() -> None:
    model = stack(N)
    diffusers.hooks.apply_layerwise_casting(model, torch.float16, torch.float32)
    refused(model, r"^embed, a Linear, .* casting, .* again without enable_layerwise_casting\(\)")


def test_hooks_that_leave_weights_alone_stay() -> None:
    """From the second pass on most blocks are skipped, as they are in the plain model."""

    def cached(model: Any) -> list[torch.Tensor]:
        with model.cache_context("one"):
            return [tensor for _ in range(2) for tensor in forward("Flux", model)]

    plain, model = fresh("Flux"), fresh("Flux")
    for each in plain, model:
        each.enable_cache(diffusers.FirstBlockCacheConfig(threshold=1.0))
    seen: list[object] = []
    after_run(plain.transformer_blocks[1].attn, lambda: seen.append(None))
    wanted = cached(plain)
    assert len(seen) == 1
    with runtime.offload(model, slots=2) as offloaded:
        assert same(cached(model), wanted)
        assert (offloaded.report().runs, offloaded.report().misses) == (2 * 5, 0)


# ---- torch's own


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    distributed = torch.distributed
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, model = init_device_mesh("cpu", (1,)), stack(N)
    sharded = "is sharded by fully_shard (FSDP2), which gathers its weights by itself and can't be"
    fully_shard(model.layers[1], mesh=mesh)
    refused(model, re.escape(f"layers.1, a FSDPBlock, {sharded}"))
    with pytest.raises(OffloadError, match=re.escape(f"modules[1], a FSDPBlock, {sharded}")):
        runtime.offload(model.layers, slots=2)
    fully_shard(model, mesh=mesh)
    refused(model, re.escape(f"the model, a FSDPStack, {sharded}"))


class FullyShardedDataParallel(Stack):
    """Stands for torch's own of this name, which can't be made without an accelerator."""


def test_fsdp() -> None:
    model = FullyShardedDataParallel([Block(), Block()])
    refused(model, "^the model, a FullySharded.*, is sharded by FSDP, .* build or load the model")


@pytest.mark.usefixtures("group")
def test_replicas() -> None:
    for kind in nn.parallel.DistributedDataParallel, nn.DataParallel:
        model = kind(stack(N))
        refused(model, f"^the model, a {kind.__name__}, copies .*; offload its .module")
        right(model.module)


# ---- an earlier offload


def test_an_offload_of_other_layers_of_the_model() -> None:
    """The rest of the model would move to the device, and the first one's host masters with it."""
    model = stack(4)
    with runtime.offload(model, model.layers[:2], slots=1):
        refused(
            model,
            r"^layers\.0\.up\.weight is offloaded already; close\(\) that",
            layers=model.layers[2:],
        )
        with runtime.offload(model.layers[2:], slots=1):  # leaves the rest alone
            assert same(outputs(model, batches(2)), outputs(stack(4), batches(2)))


def test_without_proof_too() -> None:
    model = stack(N)
    sequential(model)
    with pytest.raises(OffloadError, match=UNDO):
        offload_without_proof(model, slots=2, policy="modular", output_may_be_wrong=True)
