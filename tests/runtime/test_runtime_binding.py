"""Parameter objects keep their identity; in its run a module reads its slot, outside of it a weight
is its host master, whatever its dtype, strides and size, and however often it hangs in the model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import count, product

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.layout import NUMBER
from schedule import Ring
from tests.runtime.models import (
    Block,
    Stack,
    assert_same_values,
    assert_unchanged,
    batches,
    block_bytes,
    named_schedules,
    outputs,
    picture,
    rounded,
    same,
    stack,
)

ALIGNMENT = 256


def inside(parameter: torch.Tensor, block: torch.Tensor) -> bool:
    """Whether the parameter's bytes lie within the block, at an aligned offset."""
    offset = parameter.data_ptr() - block.data_ptr()
    size = parameter.untyped_storage().nbytes()
    return 0 <= offset <= offset + size <= block.numel() and offset % ALIGNMENT == 0


# ---- identity


@pytest.mark.parametrize(("modules", "slots"), [(1, 1), (5, 1), (5, 2), (5, 3), (4, 4), (3, 5)])
def test_parameters_are_the_same_objects_before_and_after(modules: int, slots: int) -> None:
    for schedule in named_schedules(Ring(modules, slots)):
        model = stack(modules, uneven=True)
        before = picture(model)
        with runtime.offload(model, slots=slots, policy=schedule):
            for _ in range(2):
                now = picture(model)
                assert all(now.parameters[n] is p for n, p in before.parameters.items())
                assert now.layout == before.layout
                assert_same_values(now.values, before.values)
                outputs(model, batches(1))
        assert_unchanged(model, before)


def test_gradients_and_attributes_of_parameters_stay() -> None:
    model = stack(3)
    weight = model.layers[1].up.weight
    weight.grad, weight.note = torch.ones_like(weight), "kept"
    grad = weight.grad
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))
        assert model.layers[1].up.weight.note == "kept"
    assert model.layers[1].up.weight is weight
    assert (weight.grad is grad, weight.note, weight.requires_grad) == (True, "kept", True)


def test_in_its_run_every_parameter_lies_in_its_slot_and_outside_in_its_host_block() -> None:
    """At addresses that never change."""
    for schedule in named_schedules(Ring(5, 2)):
        model = stack(5, uneven=True)
        masters = dict(model.named_parameters())
        seen: dict[str, set[int]] = {}
        box: list[Offloaded] = []
        runs = count()

        def look(
            running: int,
            model: Stack,
            box: list[Offloaded],
            seen: dict[str, set[int]],
            masters: dict[str, nn.Parameter],
            runs: Iterator[int],
        ) -> None:
            arena, slot_of = box[0].arena, box[0].schedule.slot_of
            slot = arena.slots[slot_of[next(runs) % len(slot_of)]]
            for index, layer in enumerate(model.layers):
                for name, parameter in layer.named_parameters():
                    path = f"layers.{index}.{name}"
                    assert (parameter is masters[path]) == (index != running)
                    assert inside(
                        parameter, slot if index == running else arena.blocks[index][0].bytes
                    )
                    seen.setdefault(path, set()).add(parameter.data_ptr())

        for index, layer in enumerate(model.layers):
            layer.down.register_forward_pre_hook(
                lambda *_, args=(index, model, box, seen, masters, runs): look(*args)
            )
        with runtime.offload(model, slots=2, policy=schedule) as offloaded:
            box.append(offloaded)
            outputs(model, batches(4))
        assert len(seen) == 5 * 4
        # Its master's, and one over each slot that it runs from.
        assert all(len(addresses) == 1 + schedule.period for addresses in seen.values())


def test_every_parameter_has_a_storage_of_its_own_of_just_its_size() -> None:
    model = stack(3, uneven=True)
    with runtime.offload(model, slots=2) as offloaded:
        places = [place for one in offloaded.arena.sets.values() for place in one.places]
        tensors = [t for place in places for t in (place.host, place.device)]
        for tensor in tensors:
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
            assert tensor.storage_offset() == 0
        assert len({t.untyped_storage()._cdata for t in tensors}) == len(tensors)


def test_regions_of_a_module_do_not_overlap_and_fill_its_block() -> None:
    """Between its number, which comes first, and its number behind the last of them."""
    model = stack(3, uneven=True)
    with runtime.offload(model, slots=2) as offloaded:
        for index, layer in enumerate(model.layers):
            block = offloaded.arena.blocks[index][0].bytes
            spans = sorted(
                (p.data_ptr() - block.data_ptr(), p.untyped_storage().nbytes())
                for p in layer.parameters()
            )
            begin = end = rounded(NUMBER)
            for offset, size in spans:
                assert offset == begin
                begin, end = offset + rounded(size), offset + size
            assert offloaded.arena.layouts[index].end == rounded(end, NUMBER)
            assert block.numel() == rounded(rounded(end, NUMBER) + NUMBER) == block_bytes(layer)


@pytest.mark.parametrize(("modules", "slots"), [(1, 1), (5, 2), (7, 3), (4, 4), (3, 5)])
def test_a_slot_is_as_large_as_the_largest_module_that_uses_it(modules: int, slots: int) -> None:
    for schedule in named_schedules(Ring(modules, slots)):
        model = stack(modules, uneven=True)
        sizes = [block_bytes(layer) for layer in model.layers]
        assert len(set(sizes)) == modules
        wanted = [
            max(
                (sizes[i % modules] for i, s in enumerate(schedule.slot_of) if s == slot),
                default=0,
            )
            for slot in range(slots)
        ]
        with runtime.offload(model, slots=slots, policy=schedule) as offloaded:
            assert [slot.numel() for slot in offloaded.arena.slots] == wanted
            assert offloaded.report().bytes_slots == sum(wanted)
            assert [block[0].bytes.numel() for block in offloaded.arena.blocks] == sizes


def swapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between device types whose tensors can't take one another's place."""
    monkeypatch.setattr(torch, "_has_compatible_shallow_copy_type", lambda *_: False)


def test_between_foreign_device_types_the_objects_stay_too(monkeypatch: pytest.MonkeyPatch) -> None:
    swapping(monkeypatch)
    model = stack(4, uneven=True)
    before = picture(model)
    wanted = outputs(copy.deepcopy(model), batches(2))
    for slots in (1, 2):
        with runtime.offload(model, slots=slots, policy="chain") as offloaded:
            now = picture(model)
            assert all(now.parameters[name] is p for name, p in before.parameters.items())
            for layer, (segment,) in zip(model.layers, offloaded.arena.blocks, strict=True):
                assert all(inside(p, segment.bytes) for p in layer.parameters())
            assert same(outputs(model, batches(2)), wanted)
        assert_unchanged(model, before)


# Mended: swap_tensors swapped all of the object, its attributes and its gradient too.
def test_between_foreign_device_types_attributes_and_gradients_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swapping(monkeypatch)
    test_gradients_and_attributes_of_parameters_stay()


def test_modules_of_modules_of_modules() -> None:
    """Every depth is bound."""

    def deep(depth: int) -> nn.Module:
        return nn.Sequential(Block(), deep(depth - 1)) if depth else Block()

    torch.manual_seed(0)
    model = Stack([deep(i) for i in range(4)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))
    seen = []
    with runtime.offload(model, slots=1) as offloaded:
        slot = offloaded.arena.slots[0]
        for layer, part in product(model.layers, [Block, nn.Linear]):
            for module in layer.modules():
                if isinstance(module, part):
                    module.register_forward_pre_hook(
                        lambda module, _: seen.append(
                            all(inside(p, slot) for p in module.parameters())
                        )
                    )
        assert same(outputs(model, batches(2)), wanted)
    assert len(seen) == 2 * 3 * (1 + 2 + 3 + 4)
    assert all(seen)
