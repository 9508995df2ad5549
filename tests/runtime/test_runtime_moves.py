"""Moving, converting and copying an offloaded model is refused before anything is done."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from schedule.errors import OffloadError
from tests.runtime.models import Block, Stack, assert_unchanged, picture, stack

MOVES: dict[str, Callable[[nn.Module], object]] = {
    "to a device": lambda m: m.to("cpu"),
    "to a dtype": lambda m: m.to(torch.float64),
    "half": lambda m: m.half(),
    "double": lambda m: m.double(),
    "cpu": lambda m: m.cpu(),
    "to_empty": lambda m: m.to_empty(device="cpu"),
    "share_memory": lambda m: m.share_memory(),
}
COPIES: dict[str, Callable[[nn.Module], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "torch.save": lambda m: torch.save(m, io.BytesIO()),
    "deepcopy within": lambda m: copy.deepcopy([{"model": m}]),
}
PARTS: dict[str, Callable[[Stack], nn.Module]] = {
    "the root": lambda m: m,
    "the list": lambda m: m.layers,
    "a layer": lambda m: m.layers[2],
    "a part of a layer": lambda m: m.layers[2].up,
    "a part beside the layers": lambda m: m.embed,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", [*MOVES, *COPIES])
def test_moves_and_copies_are_refused_before_anything_is_done(how: str, part: str) -> None:
    model = stack(3)
    with runtime.offload(model, slots=1):
        before = picture(model)
        message = "is fixed: close" if how in MOVES else "would share its slots: close"
        with pytest.raises(OffloadError, match=message):
            {**MOVES, **COPIES}[how](PARTS[part](model))
        assert_unchanged(model, before)
    {**MOVES, **COPIES}[how](PARTS[part](model))


def test_a_list_s_layers_are_fixed_and_the_rest_is_free() -> None:
    model = stack(3)
    with runtime.offload(model.layers, slots=1):
        with pytest.raises(OffloadError, match="is fixed"):
            model.layers[0].double()
        model.head.double()
        assert model.head.weight.dtype == torch.float64


def test_after_closing_nothing_is_left() -> None:
    model = stack(3)
    before = {name: dict(vars(m)).keys() for name, m in model.named_modules()}
    globals_ = [len(t) for t in registrations()]
    for _ in range(2):
        runtime.offload(model, slots=1).close()
    assert {name: dict(vars(m)).keys() for name, m in model.named_modules()} == before
    assert [len(t) for t in registrations()] == globals_
    tables = ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks")
    tables += ("_load_state_dict_post_hooks",)
    assert not any(getattr(m, table) for m in model.modules() for table in tables)
    assert copy.deepcopy(model).double().layers[0].up.weight.dtype == torch.float64


def test_a_method_that_a_module_has_of_its_own_is_there_again_after_closing() -> None:
    model = stack(3)
    own = lambda *_: "mine"  # noqa: E731
    model.layers[1].up._apply = own
    model.head.__deepcopy__ = own
    with runtime.offload(model, slots=1), pytest.raises(OffloadError, match="is fixed"):
        model.layers[1].up.double()
    assert model.layers[1].up._apply is model.head.__deepcopy__ is own


def test_a_part_that_several_layers_share_is_free_again_after_closing() -> None:
    """It is met once for each of them."""
    layers, shared = [Block() for _ in range(3)], nn.GELU()
    for layer in layers:
        layer.shared = shared
    with runtime.offload(layers, slots=1), pytest.raises(OffloadError, match="is fixed"):
        shared.double()
    for layer in layers:
        copy.deepcopy(layer).double()
    assert {"_apply", "__deepcopy__", "__getstate__"}.isdisjoint(vars(shared))


def test_an_offload_that_nobody_closes_leaves_no_hook_of_the_whole_process() -> None:
    before = [len(t) for t in registrations()]
    offloaded = runtime.offload(stack(3), slots=1)
    assert [len(t) for t in registrations()] == [n + 1 for n in before]
    del offloaded
    gc.collect()
    assert [len(t) for t in registrations()] == before


def registrations() -> list[dict[int, Any]]:
    module = torch.nn.modules.module
    return [module._global_parameter_registration_hooks, module._global_module_registration_hooks]
