"""State dicts and saved files of an offloaded model are those of the plain one."""

from __future__ import annotations

import io
import pickle

import pytest
import safetensors.torch
import torch
from torch import nn

import runtime
from schedule import Ring
from tests.runtime.models import (
    assert_same_values,
    batches,
    named_schedules,
    outputs,
    picture,
    same,
    stack,
)


def test_state_dict_is_right_at_any_moment() -> None:
    """Before and after a pass, and from within every submodule of every module."""
    for schedule in named_schedules(Ring(4, 2)):
        model = stack(4, uneven=True)
        before = picture(model).values
        seen: list[dict[str, torch.Tensor]] = []
        for module in model.modules():
            module.register_forward_pre_hook(
                lambda *_, model=model, seen=seen: seen.append(picture(model).values)
            )
            module.register_forward_hook(
                lambda *_, model=model, seen=seen: seen.append(picture(model).values)
            )
        with runtime.offload(model, slots=2, policy=schedule):
            outputs(model, batches(2))
            for module in model.modules():  # these hooks run after those of the offload
                module.register_forward_hook(
                    lambda *_, model=model, seen=seen: seen.append(picture(model).values)
                )
            outputs(model, batches(1))
            seen.append(picture(model).values)
        assert len(seen) == 2 * 2 * 15 + 3 * 15 + 1
        for values in seen:
            assert_same_values(values, before)


def saved(model: nn.Module, how: str) -> bytes:
    state = model.state_dict()
    if how == "pickle":
        return pickle.dumps(state)
    if how == "safetensors":
        return safetensors.torch.save(state)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def loaded(data: bytes, how: str) -> dict[str, torch.Tensor]:
    if how == "pickle":
        return pickle.loads(data)
    if how == "safetensors":
        return safetensors.torch.load(data)
    return torch.load(io.BytesIO(data))


@pytest.mark.parametrize("how", ["torch.save", "pickle", "safetensors"])
def test_saved_files_are_right_and_no_larger(how: str) -> None:
    model = stack(5, uneven=True)
    before = picture(model).values
    plain = len(saved(model, how))
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))
        data = saved(model, how)
        inside_run: list[bytes] = []
        model.layers[2].down.register_forward_hook(lambda *_: inside_run.append(saved(model, how)))
        outputs(model, batches(1))
    for each in (data, inside_run[0]):
        assert abs(len(each) - plain) < 0.02 * plain + 200
        assert_same_values(loaded(each, how), before)


def test_views_into_one_storage_would_make_larger_files() -> None:
    """Twin: the size does tell."""
    model = stack(5, uneven=True)
    plain = len(saved(model, "pickle"))
    with runtime.offload(model, slots=2) as offloaded:
        arena = offloaded.arena
        for one, (segment,) in zip(arena.sets.values(), arena.blocks, strict=True):
            block = segment.bytes
            for place in one.places:
                at = (place.host.data_ptr() - block.data_ptr()) // 4
                shape, stride = place.host.shape, place.host.stride()
                place.host.data = block.view(torch.float32).as_strided(shape, stride, at)
        assert len(saved(model, "pickle")) > 2 * plain


def test_load_state_dict_reads_what_was_saved_by_the_plain_model() -> None:
    model, other = stack(4, seed=1), stack(4, seed=2)
    with runtime.offload(model, slots=2):
        assert not same(outputs(model, batches(1)), outputs(other, batches(1)))
        model.load_state_dict(other.state_dict())
        assert same(outputs(model, batches(1)), outputs(other, batches(1)))
    assert_same_values(model.state_dict(), other.state_dict())
