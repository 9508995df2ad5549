"""Every kind of weight: subclasses, attributes beside a weight, buffers, views of others."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import unverified
from runtime.layout import LARGE_BUFFER
from schedule.errors import OffloadError
from tests.runtime.models import (
    WIDTH,
    Stack,
    as_bytes,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)
from tests.runtime.weights import Counting, Quantised, Tables, inner_tensors, made

pytestmark = pytest.mark.usefixtures("sanitized")


@pytest.mark.parametrize("kind", [Quantised, Tables])
def test_they_are_right_and_are_moved(kind: type[nn.Module]) -> None:
    model = made(kind)
    parameters = dict(model.named_parameters())
    wanted = outputs(model, batches(2))
    for slots in (1, 2):
        with runtime.offload(model, slots=slots, policy="chain") as offloaded:
            for slot in offloaded.arena.slots:
                slot.fill_(0xFF)  # what no copy brought is not there by luck
            offloaded.refresh()
            assert same(outputs(model, batches(2)), wanted)
            report = offloaded.report()
            assert report.copies >= 4
            layers = [p for layer in model.layers for p in inner_tensors(layer)]
            small = 3 * 4 * WIDTH if kind is Tables else 0
            assert (
                report.bytes_offloaded == sum(t.numel() * t.element_size() for t in layers) - small
            )
        assert all(p is parameters[name] for name, p in model.named_parameters())
        assert same(outputs(model, batches(2)), wanted)


@pytest.mark.parametrize("kind", [Quantised, Tables])
def test_under_the_old_rule_they_are_wrong(kind: type[nn.Module]) -> None:
    """Twin: they do pass through the slots."""
    model = made(kind)
    wanted = outputs(model, batches(2))
    with unverified.offload_without_proof(
        model, slots=2, policy="modular", output_may_be_wrong=True
    ):
        assert not same(outputs(model, batches(2)), wanted)


def test_in_its_run_each_inner_tensor_lies_in_the_slot_and_outside_in_the_host_block() -> None:
    model = made(Quantised)
    with runtime.offload(model, slots=1) as offloaded:
        (slot,) = offloaded.arena.slots
        seen: list[list[bool]] = []
        for layer in model.layers:
            where = lambda *_, of=layer: seen.append([inside(t, slot) for t in inner_tensors(of)])  # noqa: E731
            layer.up.register_forward_hook(where)
        outputs(model, batches(1))
        assert [all(layer) for layer in seen] == [True] * 3
        for layer, (segment,) in zip(model.layers, offloaded.arena.blocks, strict=True):
            assert all(inside(one, segment.bytes) for one in inner_tensors(layer))


def inside(tensor: torch.Tensor, block: torch.Tensor) -> bool:
    return block.data_ptr() <= tensor.data_ptr() < block.data_ptr() + block.numel()


def test_a_write_into_a_quantised_weight_is_seen() -> None:
    model = made(Quantised)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=1), torch.no_grad():
        outputs(model, batches(1))
        for one in model, twin:
            one.layers[1].up.weight.mul_(3)
        assert same(outputs(model, batches(1)), outputs(twin, batches(1)))
        assert not same(outputs(model, batches(1)), outputs(made(Quantised), batches(1)))


def test_what_is_put_inside_a_subclass_is_refused_until_refreshed() -> None:
    model = made(Quantised)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=1) as offloaded:
        for one in model, twin:
            one.layers[1].up.weight.scale = one.layers[1].up.weight.scale * 3
        with pytest.raises(OffloadError, match=r"layers\.1\.up\.weight was given other data"):
            outputs(model, batches(2))
        offloaded.refresh()
        assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
        assert offloaded.report().copies > 0


# ---- buffers


@pytest.mark.parametrize("replace", [False, True])
def test_a_buffer_written_in_a_run_keeps_its_new_value(replace: bool) -> None:
    torch.manual_seed(0)
    model = Stack([Counting(replace) for _ in range(3)]).eval()
    twin = copy.deepcopy(model)
    for slots in (1, 3):
        with runtime.offload(model, slots=slots) as offloaded:
            assert same(outputs(model, batches(4)), outputs(twin, batches(4)))
            assert offloaded.report().copies > 0
            now = {name: as_bytes(b) for name, b in model.named_buffers()}
            assert now == {name: as_bytes(b) for name, b in twin.named_buffers()}
        assert now == {name: as_bytes(b) for name, b in model.named_buffers()}
    assert [layer.runs.item() for layer in model.layers] == [8, 8, 8]


def test_a_buffer_of_another_shape_is_refused_until_refreshed() -> None:
    model = made(Tables)
    plain = outputs(model, batches(2))
    with runtime.offload(model, slots=1) as offloaded:
        model.layers[1].large = torch.ones(LARGE_BUFFER)
        with pytest.raises(OffloadError, match=r"layers\.1\.large was replaced .*refresh"):
            outputs(model, batches(1))
        offloaded.refresh()
        now = outputs(model, batches(2))
        assert offloaded.report().copies > 0
    assert same(now, outputs(model, batches(2)))
    assert not same(now, plain)


def test_a_buffer_of_two_modules_stays() -> None:
    model = stack(3)
    table = torch.arange(4)
    for layer in model.layers:
        layer.register_buffer("table", table)
    with runtime.offload(model, slots=1) as offloaded:
        assert all(layer.table is table for layer in model.layers)
        assert offloaded.report().stay == ("layers.2.table",)


# ---- tensors that share memory


def view_in_an_attribute(model: Stack) -> None:
    model.layers[1].fused = model.layers[1].up.weight.detach()[:2]


def view_in_a_list(model: Stack) -> None:
    model.layers[1].views = [{"one": (model.layers[1].up.weight.data,)}]


def view_in_the_rest(model: Stack) -> None:
    model.cached = model.layers[1].up.weight.t()


def view_in_a_buffer(model: Stack) -> None:
    model.register_buffer("view", model.layers[1].up.weight.detach()[0])


def own_in_a_list(model: Stack) -> None:
    model.layers[1].up.flat = [model.layers[1].up.weight]


@pytest.mark.parametrize(
    "share",
    [
        view_in_an_attribute,
        view_in_a_list,
        view_in_the_rest,
        view_in_a_buffer,
        own_in_a_list,
    ],
)
def test_a_view_that_would_go_stale_is_refused(share: Any) -> None:
    model = stack(3)
    share(model)
    before = picture(model)
    with pytest.raises(OffloadError, match=r"attribute \w+ of a \w+ shares memory with layers\.1"):
        runtime.offload(model, slots=1)
    assert_unchanged(model, before)


def test_two_parameters_over_the_same_bytes_are_refused() -> None:
    model = stack(3)
    model.layers[1].up.bias = nn.Parameter(model.layers[0].up.bias.data)
    with pytest.raises(OffloadError, match=r"up\.bias and layers\.1\.up\.bias share memory, but"):
        runtime.offload(model, slots=1)


def test_parameters_side_by_side_in_one_storage_are_right() -> None:
    """As checkpoints are mapped, and fused weights are made."""
    model = stack(3)
    wanted = outputs(copy.deepcopy(model), batches(2))
    flat = torch.cat([p.detach().flatten() for p in model.layers.parameters()])
    start = 0
    for p in model.layers.parameters():
        p.data = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()
    with runtime.offload(model, slots=1) as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.report().copies > 0


def test_the_parent_may_hold_a_layer_s_parameter_and_reads_its_master() -> None:
    model = stack(3)
    held = model.held = [model.layers[1].up.weight]
    value = as_bytes(held[0])
    with runtime.offload(model, slots=1):
        outputs(model, batches(1))
        assert as_bytes(held[0]) == value


# ---- worth it


def test_less_than_half_of_a_module_is_an_error() -> None:
    model = stack(3)
    for layer in model.layers:
        layer.register_buffer("mask", torch.zeros(1000))
    before = picture(model)
    with pytest.raises(
        OffloadError,
        match=r"of the 4576 bytes of module layers\.0 only 576 can be .* at most 1 MiB, .*leave",
    ):
        runtime.offload(model, slots=1)
    assert_unchanged(model, before)
